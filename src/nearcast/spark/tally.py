"""The counts of one partition, for a profile; this runs in Spark's Python workers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from nearcast import MessageBatch, SubscriptionTable, config
from nearcast.columns.coding import Coding

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

__all__ = ["MESSAGES", "SUBSCRIPTIONS", "count_partition"]

MESSAGES, SUBSCRIPTIONS = "messages", "subscriptions"


def count_partition(batches: Iterable[pa.RecordBatch], *, messages: bool) -> Iterator[pa.RecordBatch]:
    """Count the messages or the subscriptions of a partition; yield the counts, if it has any rows."""
    tally = _Tally()
    for batch in batches:
        if messages:
            tally.add_messages(batch)
        else:
            tally.add_subscriptions(pa.Table.from_batches([batch]))
    if tally.rows:
        yield from tally.counts(MESSAGES if messages else SUBSCRIPTIONS).to_batches()


class _Tally:
    """Counts of the batches that were added."""

    def __init__(self) -> None:
        self._coding = Coding.new()  # gives codes to words and attributes as they come
        self.rows = 0
        self._words = np.zeros(0, np.int64)
        self._places = np.zeros(2 * config.PROFILE_CELLS**2, np.int64)
        self._attributes: dict[str, tuple[int, float, float]] = {}  # count, low, high

    def add_messages(self, batch: pa.RecordBatch) -> None:
        """Count the messages of a batch."""
        messages = MessageBatch.from_arrow(batch, like=self._coding, learn=True)
        self._add(len(batch), messages.probes.boxes, messages.probes.keywords)
        for number, (name, textual) in enumerate(self._coding.attributes or ()):
            values = messages.probes.values[messages.probes.value_attributes == number]
            self._note(name, textual, values, values)

    def add_subscriptions(self, table: pa.Table) -> None:
        """Count the clauses of subscriptions."""
        clauses = SubscriptionTable.from_arrow(table, like=self._coding).clauses
        self._add(len(table), clauses.boxes, clauses.keywords)
        for number, (name, textual) in enumerate(self._coding.attributes or ()):
            tests = clauses.test_attributes == number
            self._note(name, textual, clauses.test_lows[tests], clauses.test_highs[tests])

    def _add(self, rows: int, boxes: NDArray[np.float64], words: NDArray[np.int32]) -> None:
        self.rows += rows
        more = np.bincount(words, minlength=len(self._words))
        more[: len(self._words)] += self._words
        self._words = more
        self._places += _cells(boxes)

    def _note(self, name: str, textual: bool, lows: NDArray[np.float64], highs: NDArray[np.float64]) -> None:
        count, low, high = self._attributes.get(name, (0, np.inf, -np.inf))
        if not textual:  # the codes of strings mean nothing outside this partition
            low = min(low, lows[np.isfinite(lows)].min(initial=np.inf))
            high = max(high, highs[np.isfinite(highs)].max(initial=-np.inf))
        self._attributes[name] = count + len(lows), low, high

    def counts(self, side: str) -> pa.Table:
        """Return all counts as rows of a profile."""
        assert self._coding.vocabulary is not None
        words, cells = np.flatnonzero(self._words), np.flatnonzero(self._places)
        wide = 2 * config.PROFILE_CELLS
        found = {name: ends for name, ends in self._attributes.items() if ends[0]}
        return pa.concat_tables(
            [
                _rows(side, "rows", [""], [self.rows]),
                _rows(side, "word", self._coding.vocabulary.words.take(pa.array(words)), self._words[words]),
                _rows(
                    side, "place", [f"{cell % wide},{cell // wide}" for cell in cells], self._places[cells]
                ),
                _rows(side, "attribute", list(found), *np.array(list(found.values())).reshape(-1, 3).T),
            ]
        ).combine_chunks()


def _rows(
    side: str,
    kind: str,
    keys: list[str] | pa.Array,
    counts: list[int] | NDArray[np.int64] | NDArray[np.float64],
    lows: NDArray[np.float64] | None = None,
    highs: NDArray[np.float64] | None = None,
) -> pa.Table:
    def end(values: NDArray[np.float64] | None) -> pa.Array:
        if values is None:
            return pa.nulls(len(keys), pa.float64())
        return pa.array(values, mask=np.isinf(values))

    return pa.table(
        {
            "side": pa.array([side] * len(keys), pa.string()),
            "kind": pa.array([kind] * len(keys), pa.string()),
            "key": pa.array(keys, pa.string()) if isinstance(keys, list) else keys.cast(pa.string()),
            "count": pa.array(np.asarray(counts, np.int64)),
            "low": end(lows),
            "high": end(highs),
        }
    )


def _cells(boxes: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return how many boxes have their middle in each cell; infinite boxes have none and are not counted."""
    size = config.PROFILE_CELLS
    with np.errstate(invalid="ignore"):
        middles = (boxes[:, :2] + boxes[:, 2:]) / 2
    middles = middles[np.isfinite(middles).all(axis=1)]
    columns = np.clip((middles[:, 0] + 180) / 360 * 2 * size, 0, 2 * size - 1).astype(np.int64)
    rows = np.clip((middles[:, 1] + 90) / 180 * size, 0, size - 1).astype(np.int64)
    return np.bincount(rows * 2 * size + columns, minlength=2 * size * size)
