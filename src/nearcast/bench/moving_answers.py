"""The answers of moving indexes: all must agree in every step, and with naive answers on a few moves and messages.

Message rows are given out again at different times by different indexes. So messages are compared by their *serial
numbers*: those of the beginning are numbered first, and the others as they arrive.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nearcast import config
from nearcast.columns import Matches, MessageBatch
from nearcast.columns.clauses import keyword_offsets
from nearcast.workloads.sampling import Ragged, take

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from numpy.typing import NDArray

    from nearcast.workloads.moving import MovingWorkload, Step

__all__ = ["MovingAnswers", "Serials", "StepAnswers"]

KINDS = ("matches", "came", "went")
_Sets = dict[int, list[int]]  # the answers of some queries, by the number of the query


class Serials:
    """The serial number of the message in each row of an index."""

    def __init__(self, first: int) -> None:
        self._of_row = np.arange(max(first, 1), dtype=np.int64)
        self._next = first

    def arrived(self, rows: NDArray[np.int32]) -> None:
        """Give numbers to the messages that have just been published; row -1 is of one that was not kept."""
        top = int(rows.max(initial=-1))
        if top >= len(self._of_row):
            self._of_row = np.append(self._of_row, np.zeros(top + 1, np.int64))
        kept = rows >= 0
        self._of_row[rows[kept]] = self._next + np.flatnonzero(kept)
        self._next += len(rows)

    def of(self, found: Matches) -> Matches:
        """Return the answers with serial numbers in place of rows."""
        return Matches(found.offsets, self._of_row[found.rows])  # type: ignore[arg-type]


class StepAnswers:
    """What one index answered in one step: how much, a sum over it, and some answers in full."""

    def __init__(self, chosen: Mapping[str, Iterable[int]] | None = None) -> None:
        self.counts = dict.fromkeys(KINDS, 0)
        self.some: dict[str, _Sets] = {kind: {} for kind in KINDS}
        self._chosen = {kind: sorted((chosen or {}).get(kind, ())) for kind in KINDS}
        self._sums, self._asked = dict.fromkeys(KINDS, 0), dict.fromkeys(KINDS, 0)

    def add(self, kind: str, found: Matches) -> None:
        """Add the answers of one call; their order within a query does not matter."""
        asked, offsets = self._asked[kind], found.offsets
        queries = np.repeat(np.arange(asked, asked + len(offsets) - 1), np.diff(offsets))
        mixed = (queries + 1).astype(np.uint64) * np.uint64(0xC2B2AE3D27D4EB4F)
        mixed ^= (found.rows.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        mixed ^= mixed >> np.uint64(29)
        self._sums[kind] += int(np.sum(mixed * mixed, dtype=np.uint64))
        self.counts[kind] += len(found.rows)
        self._asked[kind] += len(offsets) - 1
        for query in self._chosen[kind]:
            if asked <= query < self._asked[kind]:
                rows = found.rows[offsets[query - asked] : offsets[query - asked + 1]]
                self.some[kind][query] = sorted(rows.tolist())

    def difference(self, other: StepAnswers) -> str | None:
        """Describe the first kind of answers that differs, if there is one."""
        for kind, count in self.counts.items():
            if count != other.counts[kind]:
                return f"{count:,} {kind}, not {other.counts[kind]:,}"
            if self._sums[kind] != other._sums[kind]:
                return f"{count:,} {kind}, equally many, but different ones"
        return None


class MovingAnswers:
    """The answers to one workload: naive ones, and those of the index that has replayed the most steps."""

    def __init__(self, workload: MovingWorkload, steps: int) -> None:
        self._naive = naive_answers(workload, [step for step in config.MOVING_CHECKED_STEPS if step <= steps])
        self._known: tuple[str, list[StepAnswers]] = "", []

    def of_step(self, number: int) -> StepAnswers:
        """Return an object that collects the answers of a step."""
        return StepAnswers(self._naive.get(number))

    def compared(self, where: str, found: list[StepAnswers]) -> list[str]:
        """Return how the answers given at *where* differ from the known ones."""
        problems = []
        for number, expected in self._naive.items():
            if number <= len(found) and (some := found[number - 1].some) != expected:
                wrong = " and ".join(kind for kind in KINDS if some[kind] != expected[kind])
                problems.append(f"{where}: {wrong} of step {number} differ from naive answers")
        other, known = self._known
        for number, (one, another) in enumerate(zip(found, known), 1):
            if difference := one.difference(another):
                problems.append(f"{where}: step {number} has {difference} as {other}")
                break
        if len(found) > len(known):
            self._known = where, found
        return problems


class _Messages(NamedTuple):
    """Messages as columns, in the order of their serial numbers."""

    points: NDArray[np.float64]
    expires_at: NDArray[np.int64]
    words: Ragged

    def wanted(self, box: NDArray[np.float64], words: NDArray[np.int32], now: int) -> set[int]:
        """Return the valid messages in the box that have all the words."""
        inside = ((self.points >= box[:2]) & (self.points <= box[2:])).all(axis=1) & (self.expires_at > now)
        near = np.flatnonzero(inside)
        return set(near[_hits(take(self.words, near), words) == len(words)].tolist())


def _hits(rows: Ragged, words: NDArray[np.int32]) -> NDArray[np.int64]:
    """Return how many of the words each row has."""
    count = len(rows.offsets) - 1
    owners = np.repeat(np.arange(count), np.diff(rows.offsets))
    return np.bincount(owners[np.isin(rows.words, words)], minlength=count)


def naive_answers(workload: MovingWorkload, checked: list[int]) -> dict[int, dict[str, _Sets]]:
    """Return some answers of each checked step, found by testing everything."""
    clauses = workload.subscriptions.clauses
    keywords, boxes = Ragged(keyword_offsets(clauses), clauses.keywords), clauses.boxes.copy()
    batches, found = [workload.messages], {}
    for number, step in enumerate(workload.steps(max(checked, default=0)), 1):
        before = boxes[step.rows]
        boxes[step.rows] = step.boxes
        if number in checked:
            came, went = _changes(step, _joined(batches), before, keywords)
            found[number] = {"matches": _matches(step, boxes, keywords), "came": came, "went": went}
        batches.append(step.messages)
    return found


def _changes(
    step: Step, known: _Messages, before: NDArray[np.float64], keywords: Ragged
) -> tuple[_Sets, _Sets]:
    """Return what came to some subscriptions that move in a step, and what went."""
    came, went = {}, {}
    asking = take(keywords, step.rows)
    # Few and frequent words have many answers.
    frequency = np.log(np.bincount(known.words.words, minlength=int(keywords.words.max()) + 1) + 0.5)
    for query in _chosen(asking, frequency - frequency.max() - 1):
        words = asking.words[asking.offsets[query] : asking.offsets[query + 1]]
        old, new = (known.wanted(boxes[query], words, step.now) for boxes in (before, step.boxes))
        came[query], went[query] = sorted(new - old), sorted(old - new)
    return came, went


def _matches(step: Step, boxes: NDArray[np.float64], keywords: Ragged) -> _Sets:
    """Return the subscriptions that want some messages of a step."""
    probes, found = step.messages.probes, {}
    asking = Ragged(probes.keyword_offsets, probes.keywords)
    wanted = np.bincount(keywords.words, minlength=int(asking.words.max(initial=0)) + 1)
    for query in _chosen(asking, wanted.astype(np.float64)):
        place, words = (
            probes.boxes[query, :2],
            asking.words[asking.offsets[query] : asking.offsets[query + 1]],
        )
        near = np.flatnonzero(((boxes[:, :2] <= place) & (place <= boxes[:, 2:])).all(axis=1))
        own = take(keywords, near)
        found[query] = near[_hits(own, words) == np.diff(own.offsets)].tolist()
    return found


def _chosen(asking: Ragged, weights: NDArray[np.float64]) -> list[int]:
    """Return queries to check: the first ones, and as many whose words weigh most, which are likely to have answers."""
    count, half = len(asking.offsets) - 1, config.MOVING_CHECKED // 2
    owners = np.repeat(np.arange(count), np.diff(asking.offsets))
    totals = np.bincount(owners, weights[asking.words], minlength=count)
    heaviest = np.argsort(-totals, kind="stable")[:half]
    return np.union1d(np.arange(min(half, count)), heaviest).tolist()  # type: ignore[no-any-return]


def _joined(batches: list[MessageBatch]) -> _Messages:
    """Return all messages in the order of their arrival."""
    lengths = np.concatenate([np.diff(batch.probes.keyword_offsets) for batch in batches])
    return _Messages(
        np.concatenate([batch.probes.boxes[:, :2] for batch in batches]),
        np.concatenate([batch.expires_at for batch in batches if batch.expires_at is not None]),
        Ragged(
            np.concatenate([[0], np.cumsum(lengths)]),
            np.concatenate([batch.probes.keywords for batch in batches]),
        ),
    )
