"""Checking top-k results: the same for all that published the same messages, and naive NumPy's on a sample."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nearcast import config
from nearcast.bench.experiments import Digest, difference, summed
from nearcast.ranking.buffers import SHIFT
from nearcast.ranking.scoring import metric_of, places_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nearcast.bench.topk_workloads import Stream
    from nearcast.ranking import TopK

__all__ = ["RankedAnswers"]

_ROUNDING = 1e-12  # the most that scores may differ from NumPy's, which has another arcsine


class RankedAnswers:
    """The results over one stream, by the number of messages that had arrived."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._known: dict[int, tuple[str, Digest]] = {}

    def compared(self, where: str, top: TopK, arrived: int) -> list[str]:
        """Return how results differ from the first results after as many messages, and these from naive ones."""
        found = digest(top)
        if arrived in self._known:
            wrong = difference("subscription", found, *self._known[arrived])
            return [f"{where}, after {arrived:,} messages: {wrong}"] if wrong else []
        self._known[arrived] = where, found
        rows = np.unique(np.linspace(0, len(top) - 1, config.EXPERIMENT_CHECKED).astype(np.int64))
        return [
            f"{where}, after {arrived:,} messages: subscription {row} {wrong}"
            for row in rows.tolist()
            if (wrong := _wrong(self._stream, top, row, arrived))
        ]


def digest(top: TopK) -> Digest:
    """Return the digest of all results: messages and scores to the last bit, in order."""
    # Reading a million rows one by one through results() would take longer than the trial.
    held = top._results.buffers.table
    rows = top._subscribers.rows
    counts = np.minimum(held.counts[:rows], held.sizes[:rows]).astype(np.int64)
    offsets = np.concatenate([[0], np.cumsum(counts)])
    ranks = np.arange(offsets[-1]) - np.repeat(offsets[:-1], counts)
    picks = np.repeat(held.starts[:rows], counts) + ranks
    values = (held.keys[picks] >> SHIFT).astype(np.uint64) * np.uint64(0xC2B2AE3D27D4EB4F)
    values ^= held.scores[picks].view(np.uint64)
    return summed(offsets, values * np.uint64(0x165667B19E3779F9) + ranks.astype(np.uint64))


def _wrong(stream: Stream, top: TopK, row: int, arrived: int) -> str | None:
    """Describe the first difference between the results of a row and all messages of the window, scored and sorted."""
    numbers, scores = top.results(row)
    naive, candidates = _scores(stream, row, arrived)
    order = np.lexsort((-candidates, -naive[candidates]))[: stream.k]  # of equal scores, the newer one first
    expected = candidates[order] + arrived
    if len(numbers) != len(expected):
        return f"has {len(numbers)} results, not {len(expected)}"
    for rank, (number, other, score) in enumerate(
        zip(numbers.tolist(), expected.tolist(), scores.tolist()), 1
    ):
        if not 0 <= number - arrived < len(naive):
            return f"has message {number} at rank {rank}, which is not in the window"
        mine, best = float(naive[number - arrived]), float(naive[other - arrived])
        if abs(mine - score) > _ROUNDING:
            return f"has the score {score} at rank {rank}, not {mine}"
        if number != other and not 0 < abs(mine - best) <= _ROUNDING:
            return f"has message {number} at rank {rank}, not {other}"
    return None


def _scores(stream: Stream, row: int, arrived: int) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return the scores of all messages in the window (Equation 1), and which of them have one of the row's words."""
    points, words, alphas = stream.wishes
    probes = stream.messages.probes
    end = arrived + stream.size
    codes = probes.keywords[probes.keyword_offsets[arrived] : probes.keyword_offsets[end]]
    owners = np.repeat(np.arange(stream.size), np.diff(probes.keyword_offsets[arrived : end + 1]))
    mine = words.words[words.offsets[row] : words.offsets[row + 1]]
    squares = stream.frequencies.idf(int(max(codes.max(initial=0), mine.max())) + 1) ** 2
    common = np.isin(codes, mine)
    total = np.bincount(owners[common], squares[codes[common]], minlength=stream.size)
    lengths = np.sqrt(np.bincount(owners, squares[codes], minlength=stream.size))
    cosine = total / np.maximum(np.sqrt(squares[mine].sum()) * lengths, np.finfo(float).tiny)

    space = stream.messages.space
    metric = metric_of(space, stream.max_distance)
    apart = places_of(probes.boxes[arrived:end, :2], space) - places_of(points[row : row + 1], space)
    distance = np.sqrt((apart * apart).sum(axis=1))
    if metric.radius:
        distance = 2 * metric.radius * np.arcsin(np.minimum(1.0, distance / 2))
    near = np.maximum(0.0, 1 - distance / metric.max_distance)
    scores: NDArray[np.float64] = alphas[row] * near + (1 - alphas[row]) * cosine
    return scores, np.unique(owners[common])
