"""Access paths: estimate whether a clause is reached more cheaply by its words and place, or by its values.

Two prices are estimated for each clause, in nanoseconds a message. In a packed list, a message reads the clause's entry
if it has the rarest keyword and touches the box; in an MO-Tree, if it lies in the clause's cells of place and values.
Reading an entry has a price, and if the entry does not rule the clause out, verifying the clause has another. The
shares of messages are estimated from a sample of them, or without one from what the clauses ask for.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearcast import config
from nearcast.columns.ragged import runs_take
from nearcast.kernels import kernel
from nearcast.kernels.verify import Clauses, Probes
from nearcast.matching.structures.scale import (
    ABSENT,
    Scales,
    X,
    Y,
    clause_positions,
    knots_of,
    most_tested,
    scales_of,
    tests_of,
)
from nearcast.matching.structures.sketch import FIELDS, GROUPS

__all__ = ["Paths", "likely_paths", "prices"]


class Paths(NamedTuple):
    """The statistics that prices are estimated from."""

    word_shares: NDArray[np.float32]  # by code: the share of messages that have the word
    scales: Scales  # those of both axes, and of the most tested attributes


def likely_paths(clauses: Clauses, rows: NDArray[np.int64], messages: Probes | None) -> Paths:
    """Return the statistics for clause *rows* and a sample of messages."""
    _, keywords = runs_take(clauses.keyword_runs, clauses.keywords, rows)
    count = 0.0
    if messages is not None and len(messages.boxes):
        keywords, count = messages.keywords, float(len(messages.boxes))
    words = np.bincount(keywords).astype(np.float32) if len(keywords) else np.zeros(0, np.float32)
    shares = words / (count or max(len(keywords), 1) / config.AP_TREE_MESSAGE_WORDS)
    sample = rows[:: max(len(rows) // config.MO_TREE_SAMPLE, 1)]
    attributes, tests = most_tested(clauses, sample, GROUPS * FIELDS), tests_of(clauses, sample)
    knots = [knots_of(clauses.boxes[sample][:, axis::2].ravel()) for axis in (0, 1)]
    for attribute in attributes:
        own = tests[clauses.test_attributes[tests] == attribute]
        knots.append(knots_of(np.concatenate([clauses.test_lows[own], clauses.test_highs[own]])))
    return Paths(np.minimum(shares, 1.0), scales_of([X, Y, *attributes], knots))


def prices(paths: Paths, clauses: Clauses, rows: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the price of each clause in a packed list and in an MO-Tree: float64[rows, 2]."""
    out = np.empty((len(rows), 2))
    _prices(paths.word_shares, paths.scales, clauses, rows, out)
    return out


@kernel
def _prices(
    word_shares: NDArray[np.float32],
    scales: Scales,
    clauses: Clauses,
    rows: NDArray[np.int64],
    out: NDArray[np.float64],
) -> None:
    look, decide = config.AUTO_LOOK_NS, config.AUTO_DECIDE_NS
    _, knots, slopes, numbers = scales
    boxes, keyword_runs, keywords, _, _, test_runs = clauses[:6]
    attributes, lows, highs, flags = clauses[6:]
    ends = np.empty((knots.shape[0], 2))
    for i in range(rows.size):
        c = rows[i]
        with_word = 1.0
        for k in range(keyword_runs[c, 0], keyword_runs[c, 1]):
            known = keywords[k] < word_shares.size
            with_word = min(with_word, float(word_shares[keywords[k]]) if known else 0.0)
        clause_positions(knots, slopes, numbers, c, boxes, test_runs, attributes, lows, highs, flags, ends)
        inside = (ends[0, 1] - ends[0, 0]) * (ends[1, 1] - ends[1, 0])
        fitting, narrow, narrower = 1.0, 1.0, 1.0  # the last two: the two least widths of intervals
        tested = False
        for scale in range(knots.shape[0]):
            if ends[scale, 0] != ABSENT:
                tested |= scale > 1
                width = ends[scale, 1] - ends[scale, 0]
                fitting *= width
                narrow, narrower = min(narrow, max(width, narrower)), min(width, narrower)
        out[i, 0] = with_word * (look * min(4.0 * inside, 1.0) + decide * inside)
        out[i, 1] = look * min(2.0 * narrow, 1.0) * min(2.0 * narrower, 1.0) + decide * fitting
        if not tested:
            out[i, 1] = np.inf
