"""Searching packed messages: which ones a clause matches, and which may change sides when its region moves."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearcast.kernels import kernel
from nearcast.kernels.memory import prefetch
from nearcast.kernels.verify import Clauses, StoredProbes, keep_satisfying, keep_valid
from nearcast.matching.structure import Answers, Moment, Moves
from nearcast.matching.structures.packed_list.layout import BLOCK, BLOCK_BITS, LISTS, Lists

__all__ = ["PackedMessages", "add_word", "search", "search_moves"]

_RUNS = 256  # runs of slots that are prefetched before the first of them is read


class PackedMessages(NamedTuple):
    """What a search in packed messages reads."""

    stored: StoredProbes
    lists: Lists
    list_boxes: NDArray[np.float32]  # around what each list holds, column by column
    column_boxes: NDArray[np.float32]  # around the lists of each column of cells


@kernel
def add_word(word: int, first: Any, second: Any) -> Any:
    """Return the two halves of a signature with the bits of one more word."""
    mixed = np.uint64(word) * np.uint64(0x9E3779B97F4A7C15)
    for shift in (58, 52):
        bit = (mixed >> np.uint64(shift)) & np.uint64(63)
        half = np.int32(1) << np.int32(bit & np.uint64(31))
        if bit < np.uint64(32):
            first |= half
        else:
            second |= half
    return first, second


@kernel
def _rounded(boxes: NDArray[np.float64], i: int) -> Any:
    """Return the sides of a box as float32, which keeps their order."""
    return (
        np.float32(boxes[i, 0]),
        np.float32(boxes[i, 1]),
        np.float32(boxes[i, 2]),
        np.float32(boxes[i, 3]),
    )


@kernel
def _touches(boxes: NDArray[np.float32], i: int, box: Any) -> Any:
    """Tell whether boxes[i] may touch a box."""
    return (
        (boxes[i, 0] <= box[2]) & (boxes[i, 2] >= box[0]) & (boxes[i, 1] <= box[3]) & (boxes[i, 3] >= box[1])
    )


@kernel
def _inside(boxes: NDArray[np.float32], i: int, box: Any) -> Any:
    """Tell whether boxes[i] lies inside of a box for sure: rounding may make sides equal, but never swaps them."""
    return (boxes[i, 0] > box[0]) & (boxes[i, 2] < box[2]) & (boxes[i, 1] > box[1]) & (boxes[i, 3] < box[3])


@kernel
def _concerned(boxes: NDArray[np.float32], i: int, around: Any, before: Any, after: Any, kept: Any) -> Any:
    """Tell whether something in boxes[i] may be in reach before or after a move, but not both."""
    return (
        _touches(boxes, i, around)
        and (_touches(boxes, i, before) or _touches(boxes, i, after))
        and not _inside(boxes, i, kept)
    )


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
        around, before = _rounded(arounds, c), _rounded(befores, c)
        after, kept = _rounded(afters, c), _rounded(kepts, c)
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
                    if _concerned(super_boxes, s, around, before, after, kept):
                        for b in range(s << BLOCK_BITS, (s << BLOCK_BITS) + super_counts[s]):
                            if _concerned(block_boxes, b, around, before, after, kept):
                                slot = blocks[b, 0] << BLOCK_BITS
                                run_starts[runs] = slot
                                run_stops[runs] = slot + blocks[b, 1]
                                runs += 1
                                for line in range(slot, slot + blocks[b, 1], 8):
                                    prefetch(extras, line)
                elif number < count:
                    if number % cells == 0 and not _touches(column_boxes, number // cells, around):
                        number += cells
                        continue
                    if _concerned(list_boxes, number, around, before, after, kept):
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
            if (_touches(boxes, at, before) or _touches(boxes, at, after)) and not _inside(boxes, at, kept):
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
    nowhere = np.empty((stop, 4))
    for c in range(start, stop):
        nowhere[c, 0] = nowhere[c, 1] = np.inf
        nowhere[c, 2] = nowhere[c, 3] = -np.inf
    return search_moves(packed, Moves(clauses, boxes, boxes, nowhere), moment, start, stop, answers, filled)
