"""The index ``pt-quadtree``: a PT-Quadtree over the clauses, and lists of newcomers beside it."""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearcast import config
from nearcast.columns.clauses import words_alone
from nearcast.columns.rows.clauses import ClauseStore
from nearcast.kernels import kernel
from nearcast.kernels.postings import FULL
from nearcast.kernels.verify import Clauses, Probes
from nearcast.matching.structure import Answers, Progress, View, silent
from nearcast.matching.structures.folding import FoldingStructure, named_arrays, taken_arrays
from nearcast.matching.structures.mbr_trie.search import clear_bits, set_bits
from nearcast.matching.structures.newcomers import NewcomerLists, end_search
from nearcast.matching.structures.packed_list.search import new_scratch
from nearcast.matching.structures.pt_quadtree.fold import fold_quadtree
from nearcast.matching.structures.pt_quadtree.quadtree import (
    Entries,
    Frame,
    Quadtree,
    build_quadtree,
    check_quadtree,
    check_thresholds,
    crowded,
    quadtree_stats,
)
from nearcast.matching.structures.pt_quadtree.search import (
    corner_of,
    filter_nodes,
    mark_ranks,
    query_cells,
    unmark_ranks,
    verify_list,
)
from nearcast.matching.structures.token_order import message_tokens

__all__ = ["PTQuadtree"]


class PTQuadtree(FoldingStructure):
    """A quadtree over the clauses' boxes, with pivotal tokens at each node.

    It is described in Yu, Li and Feng, "A Cost-based Method for Location-Aware Publish/Subscribe Services" (2015),
    section 4. A region is a leaf if at most *tau_num* clauses would go down to its children, or if its share of the
    whole area is less than *tau_area*.
    """

    name: ClassVar[str] = "pt-quadtree"
    parameters: ClassVar[tuple[str, ...]] = ("tau_num", "tau_area")

    def __init__(
        self,
        store: ClauseStore,
        *,
        tau_num: int = config.QUADTREE_TAU_NUM,
        tau_area: float = config.QUADTREE_TAU_AREA,
    ) -> None:
        super().__init__(store)
        self.tau_num, self.tau_area = check_thresholds(tau_num, tau_area)

    def _lay_out(self, rows: NDArray[np.int64], tell: Progress = silent) -> None:
        tell("quadtree", 0.0)
        self._frame, self._tree, self._entries = build_quadtree(
            *self._described(rows), self.tau_num, self.tau_area
        )
        self._listed = rows.astype(np.int32)
        tell("quadtree", 1.0)

    def _described(
        self, rows: NDArray[np.int64]
    ) -> tuple[NDArray[np.int32], NDArray[np.float32], NDArray[np.int64], NDArray[np.int32]]:
        """Return clauses as a quadtree takes them: rows (complements where more is to check), boxes and tokens."""
        clauses = self.store.clauses
        with np.errstate(over="ignore"):
            boxes = clauses.boxes[rows].astype(np.float32)
        listed = np.where(words_alone(clauses, rows), rows, ~rows).astype(np.int32)
        return listed, boxes, *self._order.arranged(clauses, rows)

    def _fold(self, rows: NDArray[np.int64]) -> None:
        left = self._standing.values[self._listed]
        moved = np.where(left, np.cumsum(left) - 1, -1).astype(np.int32)
        self._listed = np.concatenate([self._listed[left], rows.astype(np.int32)])
        items = np.arange(len(self._listed) - len(rows), len(self._listed), dtype=np.int32)
        self._tree, self._entries = fold_quadtree(
            self._frame, self._tree, self._entries, moved, items, *self._described(rows)
        )
        if crowded(self._tree, self.tau_num, self.tau_area):
            self._lay_out(self.members())

    def _laid(self) -> NDArray[np.int64]:
        return self._listed.astype(np.int64)

    def _mark(self, rows: NDArray[np.int64]) -> None:
        """Do nothing: a search checks itself which clauses still stand."""

    def view(self) -> View:
        """Return the quadtree, its lists and the newcomers."""
        return View(
            _search,
            _SearchArrays(
                self.store.clauses,
                self._standing.values,
                self._frame,
                self._tree,
                self._entries,
                self._order.ranks,
                self._order.size,
                self._newcomers.lists,
            ),
        )

    def stats(self) -> dict[str, Any]:
        """Return the figures of the quadtree."""
        return (
            super().stats()
            | {"tau_num": self.tau_num, "tau_area": self.tau_area}
            | quadtree_stats(self._tree, len(self._listed))
        )

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the flat arrays."""
        return super().arrays() | {
            "thresholds": np.array([self.tau_num, self.tau_area]),
            "rows": self._listed,
            "frame": np.array(self._frame),
            **named_arrays("node_", self._tree),
            **named_arrays("entry_", self._entries),
        }

    def restore(self, arrays: dict[str, NDArray[Any]]) -> None:
        """Take the flat arrays."""
        super().restore(arrays)
        self.tau_num, self.tau_area = check_thresholds(*arrays["thresholds"].tolist())
        self._listed = arrays["rows"]
        self._frame = Frame(*arrays["frame"].tolist())
        self._tree = Quadtree(**taken_arrays("node_", Quadtree._fields, arrays))
        self._entries = Entries(**taken_arrays("entry_", Entries._fields, arrays))

    def check(self) -> list[str]:
        """Compare the quadtree with the clauses; return what is wrong."""
        laid = self._laid()
        tokens, standing = self._order.arranged(self.store.clauses, laid), self._standing.values[laid]
        return super().check() + check_quadtree(self._frame, self._tree, self._entries, *tokens, standing)


class _SearchArrays(NamedTuple):
    clauses: Clauses
    alive: NDArray[np.bool_]
    frame: Frame
    tree: Quadtree
    entries: Entries
    ranks: NDArray[np.int32]
    size: int  # of the order of the tokens
    newcomers: NewcomerLists


@kernel
def _search(
    arrays: _SearchArrays, probes: Probes, start: int, stop: int, answers: Answers, filled: int
) -> int:
    clauses, alive, frame, tree, entries, ranks, size, newcomers = arrays
    out = answers.rows
    offsets, keywords, probe_boxes = probes.keyword_offsets, probes.keywords, probes.boxes
    starts = tree.starts
    bits, present = np.zeros(config.TOKEN_BITS // 64, np.uint64), np.zeros((size >> 6) + 1, np.uint64)
    scratch = new_scratch()
    longest = 0
    for p in range(start, stop):
        longest = max(longest, offsets[p + 1] - offsets[p])
    tokens = np.empty(longest, np.int32)
    query, cells = np.empty(4, np.float32), np.empty(4, np.int64)
    nodes, corner = np.empty(tree.first.size, np.int32), np.empty(2, np.float32)
    for p in range(start, stop):
        count = message_tokens(keywords, offsets[p], offsets[p + 1], ranks, tokens)
        for k in range(4):
            query[k] = probe_boxes[p, k]
        query_cells(frame, query, cells)
        set_bits(bits, tokens, count)
        mark_ranks(present, tokens, count)
        last = filled
        for i in range(filter_nodes(tree, query, cells, tokens, count, bits, nodes)):
            node = nodes[i]
            corner_of(frame, tree, node, cells, corner)
            last = verify_list(
                entries,
                alive,
                corner,
                starts[node],
                starts[node + 1],
                bits,
                present,
                query,
                out,
                last,
            )
            if last == FULL:
                break
        clear_bits(bits, tokens, count)
        unmark_ranks(present, tokens, count)
        last = end_search(clauses, newcomers, scratch, probes, p, answers, filled, last)
        if last == FULL:
            return p
        filled = last
    return stop
