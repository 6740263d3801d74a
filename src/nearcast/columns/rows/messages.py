"""The probe rows of a message store, and the message rows that own them: the counterpart of ``ClauseStore``."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from nearcast.columns.coding import Coding
from nearcast.columns.growable import GrowableArray
from nearcast.columns.messages import NEVER, MessageBatch
from nearcast.columns.parts import Arrays
from nearcast.columns.ragged import runs_of, runs_take
from nearcast.columns.rows.base import MAX_ROWS, Rows
from nearcast.errors import ColumnError, shown
from nearcast.kernels.verify import Probes, StoredProbes

__all__ = ["MessageRows"]


class MessageRows(Rows):
    """A growing set of probe rows, those of the messages that are present, and when each expires."""

    ragged: ClassVar[dict[str, tuple[str, ...]]] = {
        "keyword_runs": ("keywords",),
        "value_runs": ("value_attributes", "values"),
    }
    part_columns: ClassVar[tuple[str, ...]] = ("boxes", "expires")
    owner_columns: ClassVar[tuple[str, ...]] = ("expires_at",)
    nouns: ClassVar[tuple[str, str]] = ("places", "messages")

    stored: StoredProbes  # what kernels see

    def __init__(self, batch: MessageBatch) -> None:
        self.coding = batch.coding
        ends = _ends(batch)
        self._begin(_columns(batch, ends), batch.owners, batch.size, batch.shapes)
        self._columns["expires_at"] = GrowableArray(ends)

    @property
    def expires_at(self) -> NDArray[np.int64]:
        """When the message of each row expires; without meaning where none is present."""
        return self._columns["expires_at"].values

    def batch(self, rows: NDArray[Any]) -> MessageBatch:
        """Return the messages of the given rows, all present, as a batch without ids or times of publication."""
        parts, owners = self._parts_of(rows)
        stored = self.stored
        offsets, words = runs_take(stored.keyword_runs, stored.keywords, parts)
        value_offsets, attributes = runs_take(stored.value_runs, stored.value_attributes, parts)
        _, values = runs_take(stored.value_runs, stored.values, parts)
        return MessageBatch(
            Probes(stored.boxes[parts], offsets, words, value_offsets, attributes, values),
            owners.astype(np.int32),
            len(rows),
            self.shapes.take(parts),
            None,
            None,
            self.expires_at[rows],
            self.coding,
        )

    def check_insert(self, batch: MessageBatch) -> None:
        """Raise, before anything has changed, if *batch* does not fit the messages here."""
        if not isinstance(batch, MessageBatch):
            raise ColumnError(
                f"messages come as a MessageBatch, not as {shown(batch)}; "
                "make one with MessageBatch.from_messages, from_arrow or from_arrays"
            )
        if not batch.coding.fits(self.coding):
            raise ColumnError(
                "the messages are coded by another vocabulary than this store; "
                "make the batch with like=store, or, for bare codes, both from arrays"
            )
        if batch.size and batch.space != self.space:
            raise ColumnError(
                f"the messages here live in {self.space!r}, the new ones in {batch.space!r}; "
                "build them for the same space"
            )
        if max(self.size + batch.size, self.rows + len(batch.owners)) > MAX_ROWS:
            raise ColumnError(f"a store holds at most {MAX_ROWS:,} rows; expire what is no longer valid")

    def insert(self, batch: MessageBatch) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """Add the messages of *batch*; return their rows and those of their probes."""
        rows, ends = self.add_owners(batch.size), _ends(batch)
        self._columns["expires_at"].own()[rows] = ends
        columns, one_each = _columns(batch, ends), len(batch.owners) == batch.size
        return rows, self._add_parts(columns, batch.shapes, rows[batch.owners], one_each=one_each)

    @classmethod
    def restored(cls, coding: Coding, arrays: Arrays) -> MessageRows:
        """Restore the rows on mapped arrays, whose codes are those of *coding*."""
        rows = cls(MessageBatch.empty(coding))
        rows._restore(arrays)
        return rows

    def check(self) -> list[str]:
        """Return descriptions of the damage found."""
        found, alive = super().check(), np.flatnonzero(self.alive)
        if not np.array_equal(self.stored.expires[alive], self.expires_at[self.owners[alive]]):
            found.append("a place expires at another time than its message")
        return found

    def _view(self) -> None:
        columns = self._columns
        self.stored = StoredProbes(*[columns[name].values for name in StoredProbes._fields])
        self.shapes = self._shapes()


def _ends(batch: MessageBatch) -> NDArray[np.int64]:
    return np.full(batch.size, NEVER) if batch.expires_at is None else batch.expires_at


def _columns(batch: MessageBatch, ends: NDArray[np.int64]) -> dict[str, NDArray[Any]]:
    """Return the columns of the probes of *batch*, whose messages expire at *ends*."""
    probes = batch.probes
    return {
        "boxes": probes.boxes,
        "keyword_runs": runs_of(probes.keyword_offsets),
        "keywords": probes.keywords,
        "value_runs": runs_of(probes.value_offsets),
        "value_attributes": probes.value_attributes,
        "values": probes.values,
        "expires": ends[batch.owners],
    }
