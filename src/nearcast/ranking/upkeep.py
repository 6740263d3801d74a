"""Buffers while messages come and go: the loops over many of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from nearcast.kernels import kernel
from nearcast.ranking.buffers import Held, enter, fill, leave

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nearcast.ranking.finder import Found
    from nearcast.ranking.recall import Best
    from nearcast.ranking.subscribers import Asked

__all__ = ["Rules", "arrive", "expire", "refill"]


class Rules(NamedTuple):
    """What a policy says about the buffer of each row."""

    limits: NDArray[np.int32]
    wanted: NDArray[np.int32]
    dominators: NDArray[np.int32]


@kernel
def arrive(
    held: Held,
    asked: Asked,
    rules: Rules,
    found: Found,
    first: int,
    begin: int,
    entered: NDArray[np.bool_],
    raised: NDArray[np.int32],
) -> Any:
    """Put messages into the buffers that they concern, pair by pair from *begin* on; return where it stopped.

    It stops before a buffer without room. *entered* tells which pairs were taken, *raised* begins with those rows, some
    more than once, that have a new threshold because their buffer was over its limit; how many is returned too.
    """
    offsets, rows, scores = found.offsets, found.rows, found.scores
    thresholds, counts = asked.thresholds, held.counts
    message: Any = np.searchsorted(offsets, begin, side="right") - 1
    higher = 0
    for i in range(begin, len(rows)):
        while offsets[message + 1] <= i:
            message += 1
        row = rows[i]
        if scores[i] < thresholds[row]:
            continue
        if counts[row] == held.rooms[row]:
            return i, higher
        enter(held, row, first + message, scores[i], rules.dominators[row])
        entered[i] = True
        if counts[row] > rules.limits[row]:
            keep = rules.wanted[row]
            counts[row] = keep
            thresholds[row] = held.scores[held.starts[row] + keep - 1]
            raised[higher] = row
            higher += 1
    return len(rows), higher


@kernel
def expire(
    held: Held, asked: Asked, messages: NDArray[np.int64], rows: NDArray[np.int32], short: NDArray[np.int32]
) -> Any:
    """Take messages out of the buffers that held them (Algorithm 2, lines 1 to 3).

    Rows that need others are written to *short*, each once; return how many.
    """
    needy = 0
    for i in range(len(rows)):
        row = rows[i]
        if (
            leave(held, row, messages[i]) >= 0
            and held.counts[row] == asked.sizes[row] - 1  # it had k just now: each row once
            and asked.thresholds[row] > 0.0
        ):
            short[needy] = row
            needy += 1
    return needy


@kernel
def refill(
    held: Held,
    asked: Asked,
    rows: NDArray[np.int32],
    wanted: NDArray[np.int32],
    rules: Rules,
    ratio: float,
    best: Best,
) -> None:
    """Fill buffers with the best messages of the window (Algorithm 2, lines 4 to 6).

    The threshold is the score of the last of them or, where *ratio* is not 0, this share of the k-th score.
    """
    for i in range(len(rows)):
        row, count = rows[i], best.counts[i]
        # With fewer than it asked for it has all that share a word with it: every newcomer that does is taken.
        threshold = best.scores[i, count - 1] if count == wanted[i] else 0.0
        if ratio > 0.0:
            k = asked.sizes[row]
            threshold = ratio * best.scores[i, k - 1] if count >= k else 0.0
            while count > 0 and best.scores[i, count - 1] < threshold:
                count -= 1
        fill(held, row, best.scores[i], best.messages[i], count, rules.dominators[row])
        asked.thresholds[row] = threshold
