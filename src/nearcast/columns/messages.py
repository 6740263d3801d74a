"""Messages as columns."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from nearcast.columns.coding import CodedColumns, Coding
from nearcast.columns.ids import id_array
from nearcast.columns.ragged import (
    box_rows,
    code_sets,
    integers,
    matrix,
    offsets_of,
    ragged_take,
    row_numbers,
)
from nearcast.columns.shapes import NO_SHAPES, Shapes
from nearcast.columns.values import Values
from nearcast.errors import ColumnError
from nearcast.geometry import WGS84, Space
from nearcast.kernels.verify import Probes

if TYPE_CHECKING:
    import pyarrow as pa

    from nearcast.columns.from_arrow.renaming import Columns
    from nearcast.model import Message

__all__ = ["NEVER", "NOT_GIVEN", "MessageBatch"]

# The expires_at of a message that does not expire.
NEVER = np.iinfo(np.int64).max
# The published_at of a message that does not give one: before any time that it could give.
NOT_GIVEN = np.iinfo(np.int64).min


@dataclass(frozen=True, slots=True, eq=False)
class MessageBatch(CodedColumns):
    """Messages as columns; immutable.

    Build one from arrays, from tables or from :class:`Message` objects. Words and attributes are coded *like* those of
    the subscriptions that the batch will be matched with. A word that none of them has at that time is left out, so
    build a batch after the subscriptions, or with ``learn=True`` if subscriptions may come later.

    >>> MessageBatch.from_arrays([[1.0, 1.0]], [0, 2], [7, 8])
    <MessageBatch of 1 message>
    """

    probes: Probes
    owners: NDArray[np.int32]  # message row of each probe row, ascending
    size: int
    shapes: Shapes
    ids: pa.Array | None
    # Times are microseconds since 1970 UTC.
    published_at: NDArray[np.int64] | None  # NOT_GIVEN where a message does not say
    expires_at: NDArray[np.int64] | None  # NEVER where a message does not expire
    coding: Coding  # that of the subscriptions to match

    def __len__(self) -> int:
        return self.size

    def __repr__(self) -> str:
        return f"<MessageBatch of {self.size:,} message{'s' * (self.size != 1)}>"

    @classmethod
    def from_arrays(
        cls,
        points: Any = None,
        keyword_offsets: Any = None,
        keywords: Any = None,
        attributes: Any = None,
        ids: Any = None,
        *,
        boxes: Any = None,
        published_at: Any = None,
        expires_at: Any = None,
        space: Space = WGS84,
    ) -> MessageBatch:
        """Build from arrays of integer codes.

        Parameters
        ----------
        points, boxes
            float64[m, 2]: x, y (longitude, latitude); or, for areas, float64[m, 4]: xmin, ymin, xmax, ymax.
        keyword_offsets, keywords
            int64[m + 1] and int32, in any order, duplicates allowed; negative codes (unknown words) are left out.
        attributes
            float64[m, A], NaN where absent.
        ids
            One id per message; the row number by default.
        published_at, expires_at
            int64[m]: microseconds since 1970 UTC; :data:`NOT_GIVEN` where a message does not say when it was
            published, :data:`NEVER` where it does not expire.
        space
            The space that the subscriptions live in.
        """
        if (points is None) == (boxes is None):
            raise ColumnError("give either points (m × 2) or boxes (m × 4) of the messages, one of the two")
        if points is not None:
            xy = matrix(points, "points", 2)
            box_array = np.concatenate([xy, xy], axis=1)
        else:
            box_array = box_rows(boxes, "boxes")
        if not np.isfinite(box_array).all():
            row = int(np.flatnonzero(~np.isfinite(box_array).all(axis=1))[0])
            raise ColumnError(
                f"message {row} has the coordinates {box_array[row].tolist()}; they must be finite numbers"
            )
        m = len(box_array)
        offsets, words = code_sets(keyword_offsets, keywords, m, "keyword", drop_negative=True)
        given = np.empty((m, 0)) if attributes is None else matrix(attributes, "attributes", None)
        if len(given) != m:
            raise ColumnError(f"attributes have {len(given)} rows for {m} messages")
        rows = np.arange(m, dtype=np.int32)
        probes = Probes(box_array, offsets, words, *Values.from_matrix(given))
        times: list[Any] = []
        for name, given in (("published_at", published_at), ("expires_at", expires_at)):
            time = None if given is None else integers(given, np.int64, name)
            if time is not None and len(time) != m:
                raise ColumnError(f"{name} has {len(time)} rows for {m} messages")
            times.append(time)
        coding = Coding(space=space)
        return cls(probes, rows, m, NO_SHAPES, id_array(ids, m, "ids"), times[0], times[1], coding)

    @classmethod
    def empty(cls, coding: Coding | None = None) -> MessageBatch:
        """Build a batch without messages."""
        return replace(cls.from_arrays(np.empty((0, 2)), [0], []), coding=coding or Coding())

    @classmethod
    def from_messages(cls, messages: Iterable[Message], *, like: Any, learn: bool = False) -> MessageBatch:
        """Build from objects, in the coding of *like*: a coding, an index, an engine or a table of subscriptions.

        With *learn*, words and attributes that no subscription has get codes too (the vocabulary grows). That is for
        messages that are kept, since somebody may ask for them later.
        """
        from nearcast.columns import from_objects

        return from_objects.messages_from_objects(messages, like=like, learn=learn)

    @classmethod
    def from_arrow(
        cls, table: Any, *, like: Any, learn: bool = False, columns: Columns | None = None
    ) -> MessageBatch:
        """Build from a table (Arrow, pandas, GeoPandas, Polars); the columns are listed in :mod:`.from_arrow`.

        If the table has other names for them, *columns* maps ours to theirs: ``{"lat": "latitude"}``.

        *like* and *learn* mean the same as in :meth:`from_messages`.
        """
        from nearcast.columns import from_arrow

        return from_arrow.messages_from_arrow(table, like=like, learn=learn, columns=columns)

    def take(self, rows: Any) -> MessageBatch:
        """Return the batch of the given message rows, in their order."""
        rows = row_numbers(rows, self.size, "message")
        starts = self.probe_offsets
        counts = (starts[1:] - starts[:-1])[rows]
        offsets = offsets_of(counts)
        picks = np.arange(offsets[-1]) - np.repeat(offsets[:-1] - starts[rows], counts)
        keyword_offsets, keywords = ragged_take(self.probes.keyword_offsets, self.probes.keywords, picks)
        probes = Probes(self.probes.boxes[picks], keyword_offsets, keywords, *self.values.take(picks))
        owners = np.repeat(np.arange(len(rows), dtype=np.int32), counts)
        return MessageBatch(
            probes,
            owners,
            len(rows),
            self.shapes.take(picks, owners),
            None if self.ids is None else self.ids.take(rows),
            None if self.published_at is None else self.published_at[rows],
            None if self.expires_at is None else self.expires_at[rows],
            self.coding,
        )

    @property
    def values(self) -> Values:
        """The attribute values of each probe row."""
        return Values(self.probes.value_offsets, self.probes.value_attributes, self.probes.values)

    @property
    def probe_offsets(self) -> NDArray[np.int64]:
        """Where the probe rows of each message begin: int64[m + 1]."""
        if len(self.owners) == self.size:  # each message has at least one probe, so each has exactly one
            return np.arange(self.size + 1)
        return np.searchsorted(self.owners, np.arange(self.size + 1)).astype(np.int64)
