"""What a message is expected to cost: the steps of ``search``, counted on sample messages, each at its price."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearcast import config
from nearcast.kernels import kernel
from nearcast.kernels.verify import Probes
from nearcast.matching.structures.packed_list.layout import BLOCK_BITS, Lists

__all__ = ["Cost", "expected"]


class Cost(NamedTuple):
    """Nanoseconds a message, in all, and the part that goes to postings whose place fits but whose words may not."""

    total: float
    words: float


def expected(lists: Lists, word_lists: NDArray[np.int32], probes: Probes) -> Cost:
    """Return what matching *probes* costs on average."""
    counts = np.zeros(4, np.int64)
    _count(lists, word_lists, probes, counts)
    found, tests, hits, unsure = (counts / max(len(probes.boxes), 1)).tolist()
    words = config.PACKED_WORDS_NS * unsure
    plain = config.PACKED_LIST_NS * found + config.PACKED_TEST_NS * tests + config.PACKED_HIT_NS * hits
    return Cost(plain + words, words)


@kernel
def _count(lists: Lists, word_lists: NDArray[np.int32], probes: Probes, counts: NDArray[np.int64]) -> None:
    """Count lists, boxes tested, boxes that the message touches, and those whose words have to be looked at."""
    heads, boxes, rows = lists.heads, lists.boxes, lists.rows
    block_boxes, blocks = lists.block_boxes, lists.blocks
    super_boxes, super_counts = lists.super_boxes, lists.super_counts
    probe_boxes, keyword_offsets, keywords = probes[:3]
    query = np.empty(4, np.float32)
    for p in range(probe_boxes.shape[0]):
        for side in range(4):
            query[side] = probe_boxes[p, side]
        for k in range(keyword_offsets[p] - 1, keyword_offsets[p + 1]):
            number = np.int32(0)  # clauses without keywords
            if k >= keyword_offsets[p]:
                number = word_lists[keywords[k]] if keywords[k] < word_lists.size else np.int32(-1)
            if number < 0 or heads[number, 1] == 0:
                continue
            counts[0] += 1
            if heads[number, 2] >= 0:
                _count_run(boxes, rows, heads[number, 0], heads[number, 1], query, counts)
                continue
            for s in range(heads[number, 0], heads[number, 0] + heads[number, 3]):
                counts[1] += 1
                if _touches(super_boxes, s, query):
                    first = s << BLOCK_BITS
                    for b in range(first, first + super_counts[s]):
                        counts[1] += 1
                        if _touches(block_boxes, b, query):
                            _count_run(boxes, rows, blocks[b, 0] << BLOCK_BITS, blocks[b, 1], query, counts)


@kernel
def _count_run(
    boxes: NDArray[np.float32],
    rows: NDArray[np.int32],
    start: int,
    size: int,
    query: NDArray[np.float32],
    counts: NDArray[np.int64],
) -> None:
    counts[1] += size
    for at in range(start, start + size):
        if _touches(boxes, at, query):
            counts[2] += 1
            counts[3] += rows[at] < 0


@kernel
def _touches(boxes: NDArray[np.float32], i: int, query: NDArray[np.float32]) -> Any:
    return (
        boxes[i, 0] <= query[2]
        and boxes[i, 2] >= query[0]
        and boxes[i, 1] <= query[3]
        and boxes[i, 3] >= query[1]
    )
