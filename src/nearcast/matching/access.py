"""Access paths: is a clause reached more cheaply by its words and place, or by its values.

For each clause two prices are estimated, in nanoseconds a message. In a packed list it is met by messages that have
its rarest keyword and touch its box; in an MO-Tree by messages that lie in its cells of place and values. Each
meeting costs a look at the entry; when what the entry holds does not refuse, it costs a decision on the clause.
Shares of messages are estimated from a sample of them, or else from what the clauses ask for.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearcast import config
from nearcast.kernels import kernel
from nearcast.kernels.verify import Clauses, Probes
from nearcast.matching.scale import X, Y, clause_ends, position, scale_of
from nearcast.matching.sketch import Sketch, sketch_of

__all__ = ["Paths", "likely_paths", "prices"]


class Paths(NamedTuple):
    """What prices are estimated from."""

    word_shares: NDArray[np.float32]  # share of messages that have a word, by its code
    place: Sketch  # scales of both axes
    values: Sketch  # scales of the attributes that are tested most


def likely_paths(clauses: Clauses, rows: NDArray[np.int64], messages: Probes | None) -> Paths:
    """Return the statistics for clause *rows* and a sample of messages."""
    keywords, count = clauses.keywords, 0.0
    if messages is not None and len(messages.boxes):
        keywords, count = messages.keywords, float(len(messages.boxes))
    words = np.bincount(keywords).astype(np.float32) if len(keywords) else np.zeros(0, np.float32)
    shares = words / (count or max(len(keywords), 1) / config.AP_TREE_MESSAGE_WORDS)
    sample = rows[:: max(len(rows) // config.MO_TREE_SAMPLE, 1)]
    place = Sketch(
        np.array([X, Y], np.int32),
        np.array([scale_of(clauses.boxes[sample][:, axis::2].ravel()) for axis in (0, 1)]),
    )
    return Paths(np.minimum(shares, 1.0), place, sketch_of(clauses, sample))


def prices(paths: Paths, clauses: Clauses, rows: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return [rows, 2]: what each clause costs a message in a packed list, and what in an MO-Tree."""
    out = np.empty((len(rows), 2))
    _prices(paths, clauses, rows, out)
    return out


@kernel
def _prices(paths: Paths, clauses: Clauses, rows: NDArray[np.int64], out: NDArray[np.float64]) -> None:
    look, decide = config.AUTO_LOOK_NS, config.AUTO_DECIDE_NS
    word_shares, place, values = paths
    boxes, keyword_offsets, keywords = clauses.boxes, clauses.keyword_offsets, clauses.keywords
    test_offsets = clauses.test_offsets
    attributes, lows, highs, flags = clauses[6:]
    place_sources, place_knots = place
    value_sources, value_knots = values
    for i in range(rows.size):
        c = rows[i]
        with_word = 1.0
        for k in range(keyword_offsets[c], keyword_offsets[c + 1]):
            known = keywords[k] < word_shares.size
            with_word = min(with_word, float(word_shares[keywords[k]]) if known else 0.0)
        inside, narrow, narrower = (
            1.0,
            1.0,
            1.0,
        )  # *narrower* and *narrow*: the two narrowest intervals of all
        for axis in range(2):
            _, low, high = clause_ends(
                place_sources[axis], c, boxes, test_offsets, attributes, lows, highs, flags
            )
            width = position(place_knots, axis, high) - position(place_knots, axis, low)
            inside *= width
            narrow, narrower = min(narrow, max(width, narrower)), min(width, narrower)
        fitting = inside
        tested = False
        for field in range(value_sources.size):
            asks, low, high = clause_ends(
                value_sources[field], c, boxes, test_offsets, attributes, lows, highs, flags
            )
            if asks:
                tested = True
                width = position(value_knots, field, high) - position(value_knots, field, low)
                fitting *= width
                narrow, narrower = min(narrow, max(width, narrower)), min(width, narrower)
        out[i, 0] = with_word * (look * min(4.0 * inside, 1.0) + decide * inside)
        out[i, 1] = look * min(2.0 * narrow, 1.0) * min(2.0 * narrower, 1.0) + decide * fitting
        if not tested:
            out[i, 1] = np.inf
