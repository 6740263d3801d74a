"""Matching: lists, then blocks, then boxes, then extras, and the clause itself where there is more to decide."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearcast.kernels import kernel
from nearcast.kernels.memory import prefetch
from nearcast.kernels.sets import has
from nearcast.kernels.verify import Clauses, Probes, keep_satisfied
from nearcast.matching.structure import Answers
from nearcast.matching.structures.packed_list.layout import BLOCK, BLOCK_BITS, Lists

__all__ = ["Scratch", "SearchArrays", "new_scratch", "search", "search_with"]

# Hashes of keywords. The set of a message's hashes is read first, and refuses nearly all that the message lacks.
_HASHES = 1 << 16
_RUNS = 1024  # runs of slots that are prefetched before the first of them is read
_HITS = 4096  # postings whose box the message touches, and whose rows are read together


class SearchArrays(NamedTuple):
    """What a search in packed lists reads."""

    clauses: Clauses
    lists: Lists
    word_lists: NDArray[np.int32]  # of each word; -1 for none


class Scratch(NamedTuple):
    """What a search writes down on its way, and forgets."""

    seen: NDArray[np.uint64]  # the hashes of a message's keywords
    numbers: NDArray[np.int32]  # lists
    run_starts: NDArray[np.int32]  # slots
    run_stops: NDArray[np.int32]
    hits: NDArray[np.int32]


@kernel
def new_scratch() -> Scratch:
    """Return what :func:`search_with` needs."""
    return Scratch(
        np.zeros(_HASHES // 64, np.uint64),
        np.empty(_RUNS, np.int32),
        np.empty(_RUNS + BLOCK, np.int32),
        np.empty(_RUNS + BLOCK, np.int32),
        np.empty(_HITS, np.int32),
    )


@kernel
def _hash(word: int) -> Any:
    return (np.uint64(word) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(48)


@kernel
def _has(seen: NDArray[np.uint64], keywords: NDArray[np.int32], start: int, stop: int, word: int) -> bool:
    """Tell whether a message has a keyword; -1 stands for none and is always there."""
    if word < 0:
        return True
    number = _hash(word)
    if (seen[number >> np.uint64(6)] >> (number & np.uint64(63))) & np.uint64(1) == 0:
        return False
    return has(keywords, start, stop, word)


@kernel
def search_with(
    arrays: SearchArrays,
    scratch: Scratch,
    probes: Probes,
    start: int,
    stop: int,
    answers: Answers,
    filled: int,
) -> int:
    """Match the probes as :func:`search` does, in its *scratch*, which cannot be used again when the room runs out.

    Each step reads memory whose addresses the step before has written down, so that its cache misses overlap: the
    heads of the message's lists, the boxes of super-blocks and blocks, the boxes of runs of slots, the rows of hits.
    What is decided grows from the front of *out*, what needs the clause itself from its back.
    """
    clauses, lists, word_lists = arrays
    ends, out = answers
    heads, boxes, rows, extras = lists.heads, lists.boxes, lists.rows, lists.extras
    block_boxes, blocks = lists.block_boxes, lists.blocks
    super_boxes, super_counts = lists.super_boxes, lists.super_counts
    probe_boxes, keyword_offsets, keywords = probes[:3]
    seen, numbers, run_starts, run_stops, hits = scratch
    for p in range(start, stop):
        xmin, ymin = np.float32(probe_boxes[p, 0]), np.float32(probe_boxes[p, 1])
        xmax, ymax = np.float32(probe_boxes[p, 2]), np.float32(probe_boxes[p, 3])
        first_word, last_word = keyword_offsets[p], keyword_offsets[p + 1]
        for k in range(first_word, last_word):
            number = _hash(keywords[k])
            seen[number >> np.uint64(6)] |= np.uint64(1) << (number & np.uint64(63))
        decided, undecided = filled, out.size
        word, next_super, super_stop = first_word, 0, 0
        waiting = 1  # lists in *numbers*: the first is that of clauses without keywords
        numbers[0] = 0
        taken = 0
        walking = True
        while walking:
            # Runs of slots: whole flat lists, and blocks that the message touches.
            runs = 0
            while runs < _RUNS:
                if next_super < super_stop:
                    s = next_super
                    next_super += 1
                    if (
                        super_boxes[s, 0] <= xmax
                        and super_boxes[s, 2] >= xmin
                        and super_boxes[s, 1] <= ymax
                        and super_boxes[s, 3] >= ymin
                    ):
                        first = s << BLOCK_BITS
                        for b in range(first, first + super_counts[s]):
                            if (
                                (block_boxes[b, 0] <= xmax)
                                & (block_boxes[b, 2] >= xmin)
                                & (block_boxes[b, 1] <= ymax)
                                & (block_boxes[b, 3] >= ymin)
                            ):
                                slot = blocks[b, 0] << BLOCK_BITS
                                run_starts[runs] = slot
                                run_stops[runs] = slot + blocks[b, 1]
                                runs += 1
                                for line in range(slot, slot + BLOCK, 4):
                                    prefetch(boxes, line)
                elif taken < waiting:
                    number = numbers[taken]
                    taken += 1
                    head, room = heads[number, 0], heads[number, 2]
                    if room < 0:
                        next_super, super_stop = head, head + heads[number, 3]
                    else:
                        run_starts[runs] = head
                        run_stops[runs] = head + heads[number, 1]
                        runs += heads[number, 1] > 0
                        prefetch(boxes, head)
                elif word < last_word:
                    waiting = taken = 0
                    while word < last_word and waiting < _RUNS:
                        code = keywords[word]
                        word += 1
                        if code < word_lists.size:
                            numbers[waiting] = word_lists[code]
                            waiting += word_lists[code] >= 0
                else:
                    walking = False
                    break
            run = 0
            while run < runs:
                # Hits: the postings of the runs whose box the message touches.
                found = 0
                while run < runs and found + run_stops[run] - run_starts[run] <= _HITS:
                    for at in range(run_starts[run], run_stops[run]):
                        hits[found] = at
                        found += (
                            (boxes[at, 0] <= xmax)
                            & (boxes[at, 2] >= xmin)
                            & (boxes[at, 1] <= ymax)
                            & (boxes[at, 3] >= ymin)
                        )
                    run += 1
                if decided + found > undecided:
                    return p
                # Rounding keeps order, so boxes that are apart by float32 are apart, and boxes that overlap without
                # their sides meeting overlap; sides that meet are decided on float64.
                unsure = 0
                for i in range(found):
                    at = hits[i]
                    row = rows[at]
                    sure = (
                        (row >= 0)
                        & (boxes[at, 0] < xmax)
                        & (boxes[at, 2] > xmin)
                        & (boxes[at, 1] < ymax)
                        & (boxes[at, 3] > ymin)
                    )
                    out[decided] = row
                    decided += sure
                    hits[unsure] = at
                    unsure += not sure
                for i in range(unsure):
                    at = hits[i]
                    row, more = rows[at], False
                    if row < 0:
                        row, third = ~row, extras[at, 1]
                        if third < -1:
                            third, more = -3 - third, True
                        if not _has(seen, keywords, first_word, last_word, extras[at, 0]) or not _has(
                            seen, keywords, first_word, last_word, third
                        ):
                            continue
                    if (
                        more
                        or boxes[at, 0] == xmax
                        or boxes[at, 2] == xmin
                        or boxes[at, 1] == ymax
                        or boxes[at, 3] == ymin
                    ):
                        undecided -= 1
                        out[undecided] = row
                    else:
                        out[decided] = row
                        decided += 1
        for k in range(first_word, last_word):
            seen[_hash(keywords[k]) >> np.uint64(6)] = 0
        last = decided
        for i in range(undecided, out.size):
            out[last] = out[i]
            last += 1
        filled = keep_satisfied(clauses, probes, p, out, decided, last)
        ends[p] = filled
    return stop


@kernel
def search(arrays: SearchArrays, probes: Probes, start: int, stop: int, answers: Answers, filled: int) -> int:
    """Match the probes from *start* to *stop*; see :class:`~nearcast.matching.structure.View`."""
    return search_with(arrays, new_scratch(), probes, start, stop, answers, filled)
