"""The probe rows of a message store: append, retire, compact; the counterpart of ``ClauseStore``.

Message rows are given out again after their message is gone, so memory is bounded by the most messages that were
present at a time. Probe rows are private to the store, stand at the end when they are new, and are renumbered when
half of them are dead; those of one message are always adjacent.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearcast import config
from nearcast.columns.coding import Coded, Coding
from nearcast.columns.growable import GrowableArray
from nearcast.columns.messages import NEVER, MessageBatch
from nearcast.columns.parts import Arrays, nested, part_of
from nearcast.columns.ragged import check_positions, checked_offsets, offsets_of, ragged_take
from nearcast.columns.shapes import NO_SHAPES, Shapes, arrays_of_polygons, polygons_from_arrays
from nearcast.columns.values import Values
from nearcast.errors import ColumnError
from nearcast.kernels.verify import Probes, Stored

__all__ = ["MessageRows"]

_MOST_ROWS = 2**31 - 1  # rows are int32


class MessageRows(Coded):
    """Growable probe rows of the messages that are present, and when each expires."""

    _single: bool  # no message has a second probe row

    def __init__(self, batch: MessageBatch) -> None:
        self.coding = batch.coding
        self._columns = {
            "present": GrowableArray(np.empty(0, np.bool_), borrowed=False),
            "expires_at": GrowableArray(np.empty(0, np.int64), borrowed=False),
            "first": GrowableArray(np.empty(0, np.int32), borrowed=False),  # probe row of each message row,
            "probes": GrowableArray(np.empty(0, np.int32), borrowed=False),  # and how many there are
            "free": GrowableArray(np.empty(0, np.int32), borrowed=False),  # message rows to give out again
        }
        nothing = Stored(
            np.empty((0, 4)),
            np.zeros(1, np.int64),
            np.empty(0, np.int32),
            np.zeros(1, np.int64),
            np.empty(0, np.int32),
            np.empty(0),
            np.empty(0, np.int64),
        )
        self._load(nothing, np.empty(0, np.int32), NO_SHAPES)
        self.append(batch)

    def __len__(self) -> int:
        """How many messages are present."""
        return self.size - len(self._columns["free"].values)

    @property
    def rows(self) -> int:
        """Probe rows, dead ones included."""
        return len(self.owners)

    @property
    def size(self) -> int:
        """Message rows ever given out: the most messages that were present at a time."""
        return len(self.present)

    @property
    def dead(self) -> int:
        """Probe rows of messages that are gone, and not yet compacted."""
        return self.rows - self._living

    @property
    def owners(self) -> NDArray[np.int32]:
        """The message row of each probe row."""
        return self._columns["owners"].values

    @property
    def alive(self) -> NDArray[np.bool_]:
        """Which probe rows count."""
        return self._columns["alive"].values

    @property
    def present(self) -> NDArray[np.bool_]:
        """Which message rows hold a message now."""
        return self._columns["present"].values

    @property
    def expires_at(self) -> NDArray[np.int64]:
        """When the message of each row expires; says nothing where none is present."""
        return self._columns["expires_at"].values

    @property
    def one_probe_each(self) -> bool:
        """Tell whether no message has a second probe row, so that matches need no deduplication."""
        return self._single

    @property
    def nbytes(self) -> int:
        """Memory of the rows; not of the words."""
        return sum(column.nbytes for column in self._columns.values()) + self.shapes.nbytes

    def probe_rows(self, rows: NDArray[Any]) -> NDArray[np.int64]:
        """Return the probe rows of the given message rows, all present."""
        starts: NDArray[np.int64] = self._columns["first"].values[rows].astype(np.int64)
        if self._single:
            return starts
        counts = self._columns["probes"].values[rows]
        offsets = offsets_of(counts)
        adjacent: NDArray[np.int64] = np.arange(offsets[-1]) + np.repeat(starts - offsets[:-1], counts)
        return adjacent

    def batch(self, rows: NDArray[Any]) -> MessageBatch:
        """Return the messages of the given rows, all present, as a batch without ids and times of publication."""
        probe_rows, stored = self.probe_rows(rows), self.stored
        counts = self._columns["probes"].values[rows]
        values = Values(stored.value_offsets, stored.value_attributes, stored.values).take(probe_rows)
        offsets, words = ragged_take(stored.keyword_offsets, stored.keywords, probe_rows)
        return MessageBatch(
            Probes(stored.boxes[probe_rows], offsets, words, *values),
            np.repeat(np.arange(len(rows), dtype=np.int32), counts),
            len(rows),
            self.shapes.take(probe_rows),
            None,
            None,
            self.expires_at[rows],
            self.coding,
        )

    def check_insert(self, batch: MessageBatch) -> None:
        """Raise before anything has changed where *batch* cannot stand beside the messages here."""
        if not batch.coding.fits(self.coding):
            raise ColumnError(
                "the messages are coded by another vocabulary than this store; "
                "make the batch with like=store, or, for bare codes, both from arrays"
            )
        if batch.size and batch.space != self.space:
            raise ColumnError(
                f"the messages here live in {self.space!r}, those of the insert in {batch.space!r}"
            )
        if max(self.size + batch.size, self.rows + len(batch.owners)) > _MOST_ROWS:
            raise ColumnError(f"a store holds at most {_MOST_ROWS:,} rows; expire what is no longer valid")

    def append(self, batch: MessageBatch) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """Add the messages of *batch*; return their message rows and their probe rows."""
        columns, old = self._columns, self.rows
        rows = self._take_rows(batch.size)
        starts = batch.probe_offsets
        ends = np.full(batch.size, NEVER) if batch.expires_at is None else batch.expires_at
        columns["present"].values[rows] = True
        columns["expires_at"].values[rows] = ends
        columns["first"].values[rows] = old + starts[:-1]
        columns["probes"].values[rows] = np.diff(starts)
        self._single = self._single and len(batch.owners) == batch.size
        if batch.shapes:
            if not self.shapes:
                columns["shape"].fill(old, -1)
            index = batch.shapes.index
            columns["shape"].extend(np.where(index < 0, -1, index + len(self.shapes)))
            columns["circles"].extend(batch.shapes.circles)
            columns["polygons"].extend(batch.shapes.polygons)
        elif self.shapes:
            columns["shape"].fill(len(batch.owners), -1)
        stored = Stored(*batch.probes, ends[batch.owners])
        for name in Stored._fields:
            values = getattr(stored, name)
            if name.endswith("_offsets"):
                values = values[1:] + columns[name].values[-1]
            columns[name].extend(values)
        columns["owners"].extend(rows[batch.owners])
        columns["alive"].fill(len(batch.owners), True)
        self._living += len(batch.owners)
        self._view()
        return rows, np.arange(old, self.rows)

    def retire(self, rows: NDArray[Any]) -> NDArray[np.int64]:
        """Mark message rows as gone and their probe rows as dead; return the probe rows."""
        probe_rows = self.probe_rows(rows)
        self.alive[probe_rows] = False
        self.present[rows] = False
        self._columns["free"].extend(rows)
        self._living -= len(probe_rows)
        return probe_rows

    def wasteful(self) -> bool:
        """Tell whether so many probe rows are dead that compaction pays."""
        return self.dead > max(config.COMPACT_MIN_DEAD, self.rows // 2)

    def compact(self) -> None:
        """Drop dead probe rows; probe rows are renumbered, message rows are not."""
        rows = np.flatnonzero(self.alive)
        owners = self.owners[rows]
        stored = self.stored
        offsets, words = ragged_take(stored.keyword_offsets, stored.keywords, rows)
        values = Values(stored.value_offsets, stored.value_attributes, stored.values).take(rows)
        taken = Stored(stored.boxes[rows], offsets, words, *values, stored.expires[rows])
        self._load(taken, owners, self.shapes.take(rows))
        begins = np.flatnonzero(np.diff(owners, prepend=-1))
        self._columns["first"].values[owners[begins]] = begins
        self._single = len(begins) == len(owners)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the flat arrays that :meth:`restored` takes."""
        columns = {name: column.values for name, column in self._columns.items()}
        polygons = columns.pop("polygons")
        return columns | nested(polygons=arrays_of_polygons(polygons))

    @classmethod
    def restored(cls, coding: Coding, arrays: Arrays) -> MessageRows:
        """Restore the rows on mapped arrays; *coding* says what their codes mean."""
        _check(coding, arrays)
        rows = cls(replace(MessageBatch.from_arrays(np.empty((0, 2)), [0], []), coding=coding))
        for name in rows._columns.keys() - {"polygons"}:
            rows._columns[name] = GrowableArray(arrays[name], borrowed=False)
        polygons = polygons_from_arrays(part_of(arrays, "polygons"), len(arrays["circles"]))
        rows._columns["polygons"] = GrowableArray(polygons, borrowed=False)
        rows._living = int(np.count_nonzero(rows.alive))
        rows._single = bool((arrays["probes"][rows.present] == 1).all())
        rows._view()
        return rows

    def check(self) -> list[str]:
        """Return the damage found, in words."""
        found = []
        present = np.flatnonzero(self.present)
        reached = self.probe_rows(present)
        if not np.array_equal(np.sort(reached), np.flatnonzero(self.alive)):
            found.append(f"{self._living} probe rows are alive, but messages reach {len(reached)}")
        elif not np.array_equal(
            self.owners[reached], np.repeat(present, self._columns["probes"].values[present])
        ):
            found.append("a probe row belongs to another message than the one that reaches it")
        elif not np.array_equal(self.stored.expires[reached], self.expires_at[self.owners[reached]]):
            found.append("a probe row expires at another time than its message")
        if not np.array_equal(np.sort(self._columns["free"].values), np.flatnonzero(~self.present)):
            found.append("the free message rows are not those without a message")
        return found

    def _take_rows(self, count: int) -> NDArray[np.int32]:
        """Give out message rows: those that are free first."""
        columns = self._columns
        free = columns["free"]
        again = free.shorten(min(count, len(free.values)))[::-1].copy()
        new = count - len(again)
        rows = np.concatenate([again, np.arange(self.size, self.size + new, dtype=np.int32)])
        for name in ("present", "expires_at", "first", "probes"):
            columns[name].fill(new, 0)
        return rows

    def _load(self, stored: Stored, owners: NDArray[np.int32], shapes: Shapes) -> None:
        """Take over probe rows, all alive."""
        columns = {**stored._asdict(), "owners": owners, "alive": np.ones(len(owners), np.bool_)}
        columns |= {"shape": shapes.index, "circles": shapes.circles, "polygons": shapes.polygons}
        for name, values in columns.items():
            self._columns[name] = GrowableArray(values, borrowed=name in ("shape", "circles", "polygons"))
        self._living = len(owners)
        self._single = True
        self._view()

    def _view(self) -> None:
        """Refresh what kernels see after a column grew."""
        columns = self._columns
        self.stored = Stored(**{name: columns[name].values for name in Stored._fields})
        shaped = len(columns["shape"].values) > 0
        self.shapes = (
            Shapes(columns["shape"].values, columns["circles"].values, columns["polygons"].values)
            if shaped
            else NO_SHAPES
        )


def _check(coding: Coding, arrays: Arrays) -> None:
    """Raise unless arrays fit together: offsets cut what they should, and rows and codes are there."""
    rows, size, shapes = len(arrays["owners"]), len(arrays["present"]), len(arrays["circles"])
    checked_offsets(arrays["keyword_offsets"], rows, len(arrays["keywords"]), "keyword")
    for name in ("value_attributes", "values"):
        checked_offsets(arrays["value_offsets"], rows, len(arrays[name]), "value")
    for name, lengths in (
        ("boxes", {rows}),
        ("alive", {rows}),
        ("expires", {rows}),
        ("expires_at", {size}),
        ("first", {size}),
        ("probes", {size}),
        ("shape", {0, rows}),
    ):
        if len(arrays[name]) not in lengths:
            raise ColumnError(f"{len(arrays[name]):,} {name} for {rows:,} places of {size:,} messages")
    words, attributes = coding.sizes
    present = arrays["present"]
    check_positions(arrays["owners"], size, "owners")
    check_positions(arrays["keywords"], words, "keywords")
    check_positions(arrays["value_attributes"], attributes, "attributes")
    check_positions(arrays["first"][present], rows, "first places")
    check_positions((arrays["first"] + arrays["probes"])[present], rows + 1, "ends of places")
    check_positions(arrays["free"], size, "free messages")
    check_positions(arrays["shape"], shapes, "shapes", none=True)
