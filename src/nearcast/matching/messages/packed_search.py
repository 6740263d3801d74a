"""Searching packed messages: which ones a clause matches, and which may change sides when its region moves."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearcast.kernels import kernel
from nearcast.kernels.memory import prefetch
from nearcast.kernels.verify import Clauses, StoredProbes, keep_satisfying, keep_valid
from nearcast.matching.messages.cells import add_word, concerned, inside, nowhere, rounded, touches
from nearcast.matching.structure import Answers, Moment, Moves
from nearcast.matching.structures.packed_list.layout import BLOCK, BLOCK_BITS, LISTS, Lists

__all__ = ["PackedMessages", "search", "search_moves"]

_RUNS = 256  # runs of slots that are prefetched before the first of them is read


class PackedMessages(NamedTuple):
    """What a search in packed messages reads."""

    stored: StoredProbes
    lists: Lists
    list_boxes: NDArray[np.float32]  # around what each list holds, column by column
    column_boxes: NDArray[np.float32]  # around the lists of each column of cells


@kernel
def search_moves(
    packed: PackedMessages,
    moves: Moves,
    moment: Moment,
    start: int,
    stop: int,
    answers: Answers,
    filled: int,
) -> int:
    """Find the valid messages that have what the clauses from *start* to *stop* ask for, and may change sides.

    That is, they may be within the region before or after the move, but not within both.
    """
    stored, lists, list_boxes, column_boxes = packed
    clauses, befores, afters, kepts = moves
    ends, out = answers
    heads, boxes, rows, extras = lists.heads, lists.boxes, lists.rows, lists.extras
    block_boxes, blocks = lists.block_boxes, lists.blocks
    super_boxes, super_counts = lists.super_boxes, lists.super_counts
    stored_boxes, keyword_runs, keywords, expires = (
        stored.boxes,
        stored.keyword_runs,
        stored.keywords,
        stored.expires,
    )
    arounds, need_runs, needed = clauses.boxes, clauses.keyword_runs, clauses.keywords
    count, cells = lists.state[LISTS], column_boxes.shape[0]
    run_starts, run_stops = np.empty(_RUNS + BLOCK, np.int32), np.empty(_RUNS + BLOCK, np.int32)
    for c in range(start, stop):
        around, before = rounded(arounds, c), rounded(befores, c)
        after, kept = rounded(afters, c), rounded(kepts, c)
        first = second = 0
        for k in range(need_runs[c, 0], need_runs[c, 1]):
            first, second = add_word(needed[k], first, second)
        last, number, next_super, super_stop = filled, 0, 0, 0
        walking = True
        while walking:
            runs = 0
            while runs < _RUNS:
                if next_super < super_stop:
                    s = next_super
                    next_super += 1
                    if concerned(super_boxes, s, around, before, after, kept):
                        for b in range(s << BLOCK_BITS, (s << BLOCK_BITS) + super_counts[s]):
                            if concerned(block_boxes, b, around, before, after, kept):
                                slot = blocks[b, 0] << BLOCK_BITS
                                run_starts[runs] = slot
                                run_stops[runs] = slot + blocks[b, 1]
                                runs += 1
                                for line in range(slot, slot + blocks[b, 1], 8):
                                    prefetch(extras, line)
                elif number < count:
                    if number % cells == 0 and not touches(column_boxes, number // cells, around):
                        number += cells
                        continue
                    if concerned(list_boxes, number, around, before, after, kept):
                        head = heads[number, 0]
                        if heads[number, 2] < 0:
                            next_super, super_stop = head, head + heads[number, 3]
                        else:
                            run_starts[runs] = head
                            run_stops[runs] = head + heads[number, 1]
                            runs += heads[number, 1] > 0
                    number += 1
                else:
                    walking = False
                    break
            for run in range(runs):
                if last + run_stops[run] - run_starts[run] > out.size:
                    return c
                for at in range(run_starts[run], run_stops[run]):
                    out[last] = at
                    last += (extras[at, 0] & first == first) & (extras[at, 1] & second == second)
        for i in range(filled, last):
            prefetch(boxes, out[i])
        found, last = last, filled
        for i in range(filled, found):
            at = out[i]
            out[last] = at
            if (touches(boxes, at, before) or touches(boxes, at, after)) and not inside(boxes, at, kept):
                prefetch(rows, at)
                last += 1
        for i in range(filled, last):
            row = rows[out[i]]
            out[i] = max(row, ~row)
            prefetch(expires, out[i])
            prefetch(keyword_runs, out[i])
            prefetch(stored_boxes, out[i])
        for i in range(filled, last):
            prefetch(keywords, keyword_runs[out[i], 0])
        last = keep_valid(expires, moment.now, out, filled, last, moment.expired)
        filled = keep_satisfying(stored, clauses, c, out, filled, last)
        ends[c] = filled
    return stop


@kernel
def search(
    packed: PackedMessages,
    clauses: Clauses,
    moment: Moment,
    start: int,
    stop: int,
    answers: Answers,
    filled: int,
) -> int:
    """Match the clauses from *start* to *stop*; see :class:`~nearcast.matching.structure.View`.

    A subscription that comes is one that moves in from nowhere.
    """
    boxes = clauses.boxes
    moves = Moves(clauses, boxes, boxes, nowhere(stop))
    return search_moves(packed, moves, moment, start, stop, answers, filled)
