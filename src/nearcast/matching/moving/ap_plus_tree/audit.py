"""Whether every message is in the lists where questions look for it."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearcast.kernels import kernel
from nearcast.kernels.verify import StoredProbes
from nearcast.matching.moving.ap_plus_tree.frontier import push_children
from nearcast.matching.moving.ap_plus_tree.messages import (
    BORN,
    NUMBER,
    ROW,
    SIZE,
    START,
    Lists,
    MessageLists,
)
from nearcast.matching.structures.ap_tree.layout import KIND, LEAF, LIST, ROOT, Tree, rank_words

__all__ = ["lost_messages"]

_MOST = 10_000  # messages that are looked for
_NOT_YET = 2**31 - 1


def lost_messages(tree: Tree, lists: MessageLists, ranks: NDArray[np.int32], wait: int) -> int:
    """Return how many times a message is in no list on the way to a leaf, although all of them are complete."""
    rows = np.flatnonzero(lists.stored.alive)[-_MOST:]
    return int(_lost(tree, lists.arrays, lists.stored.stored, ranks, rows, wait))


@kernel
def _lost(
    tree: Tree,
    lists: Lists,
    stored: StoredProbes,
    ranks: NDArray[np.int32],
    rows: NDArray[np.int64],
    wait: int,
) -> Any:
    nodes, heads, sequence = tree.nodes, lists.heads, lists.sequence
    waiting = np.empty((wait, 2), np.int32)
    births, founds = np.empty(wait, np.int32), np.empty(wait, np.bool_)
    lost = 0
    for row in rows:
        first, last = stored.keyword_runs[row, 0], stored.keyword_runs[row, 1]
        words = np.empty(last - first, np.int32)
        rank_words(ranks, stored.keywords, first, last, words, 0)
        waiting[0, 0], waiting[0, 1], births[0], founds[0] = ROOT, 0, 0, False
        top = 1
        while top > 0:
            top -= 1
            node, born, found = waiting[top, 0], births[top], founds[top]
            number = nodes[node, LIST]
            born = max(born, heads[number, BORN]) if number > 0 else _NOT_YET
            found |= number > 0 and _holds(lists, number, row)
            if nodes[node, KIND] == LEAF:
                lost += not found and born <= sequence[row]
                continue
            height = push_children(tree, words, stored.boxes, row, node, waiting[top, 1], waiting, top)
            births[top:height] = born
            founds[top:height] = found
            top = height
    return lost


@kernel
def _holds(lists: Lists, number: int, row: int) -> Any:
    """Tell whether a list has a message."""
    start, entries = lists.heads[number, START], lists.entries
    for at in range(start, start + lists.heads[number, SIZE]):
        if entries[at, ROW] == row and entries[at, NUMBER] == lists.sequence[row]:
            return True
    return False
