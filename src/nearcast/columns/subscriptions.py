"""Subscriptions as columns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from nearcast.columns.clauses import clauses_from_csr, take_clauses
from nearcast.columns.coding import CodedColumns, Coding
from nearcast.columns.ids import id_array
from nearcast.columns.ragged import box_rows, code_sets, integers, interval_rows, offsets_of, row_numbers
from nearcast.columns.shapes import NO_SHAPES, Shapes
from nearcast.errors import ColumnError, shown
from nearcast.geometry import WGS84, Space
from nearcast.kernels.verify import Clauses

if TYPE_CHECKING:
    import pyarrow as pa

    from nearcast.columns.from_arrow.renaming import Columns
    from nearcast.model import Subscription

__all__ = ["SubscriptionTable"]


@dataclass(frozen=True, slots=True, eq=False)
class SubscriptionTable(CodedColumns):
    """Subscriptions as columns; immutable.

    Build one from arrays of integer codes, from Arrow, pandas or GeoPandas tables, or from :class:`Subscription`
    objects; it converts back to Arrow tables and objects. Tables that belong together (that of an index and those
    inserted later) share a vocabulary: pass ``like=``.

    >>> subs = SubscriptionTable.from_arrays([[0, 0, 2, 2], [1, 1, 3, 3]], [0, 1, 3], [7, 7, 9])
    >>> subs
    <SubscriptionTable of 2 subscriptions>
    """

    clauses: Clauses
    owners: NDArray[np.int32]  # subscription row of each clause row, ascending
    size: int  # the number of subscription rows; one without clauses matches nothing
    shapes: Shapes  # circles and polygons, of clause rows whose boxes only bound them
    ids: pa.Array | None  # of the subscriptions; None if the row numbers are the ids
    coding: Coding  # what the codes of keywords and tests mean

    def __len__(self) -> int:
        return self.size

    def __repr__(self) -> str:
        rows = len(self.owners)
        extra = f" in {rows:,} clause rows" if rows != self.size else ""
        return f"<SubscriptionTable of {self.size:,} subscription{'s' * (self.size != 1)}{extra}>"

    @classmethod
    def from_arrays(
        cls,
        boxes: Any,
        keyword_offsets: Any,
        keywords: Any,
        intervals: Sequence[Any] | None = None,
        ids: Any = None,
        *,
        forbidden: Sequence[Any] | None = None,
        owners: Any = None,
        space: Space = WGS84,
    ) -> SubscriptionTable:
        """Build from arrays of integer codes; arrays of the right type are not copied.

        Parameters
        ----------
        boxes
            float64[n, 4]: xmin, ymin, xmax, ymax. Infinite ends are allowed (everywhere), NaN and low > high are
            not. The coordinates are taken as they are, in any unit; a box across the antimeridian is two rows with
            one owner.
        keyword_offsets, keywords
            int64[n + 1] and int32: row i needs all of ``keywords[offsets[i]:offsets[i + 1]]``, in any order. An empty
            row needs no word.
        intervals
            (offsets int64[n + 1], attribute int32, low float64, high float64[, flags uint8]); ends are closed
            unless a flag says otherwise (1: low end open, 2: high end open, 4: the value must lie outside).
        ids
            One id per subscription; the row number by default.
        forbidden
            (offsets, codes): words that must be absent.
        owners
            int32[n], ascending: the subscription of each row, where several rows make one subscription.
        space
            What the coordinates mean, which matters to circles; plain boxes are the same in every space.
        """
        box_array = box_rows(boxes, "boxes")
        n = len(box_array)
        words = code_sets(keyword_offsets, keywords, n, "keyword")
        unwanted = code_sets(*_pair(forbidden, "forbidden"), n=n, name="forbidden")
        tests = interval_rows(intervals, n)
        clauses = clauses_from_csr(box_array, *words, *unwanted, *tests)
        owner_rows, size = _check_owners(owners, n, "owners")
        return cls(clauses, owner_rows, size, NO_SHAPES, id_array(ids, size, "ids"), Coding(space=space))

    @classmethod
    def empty(cls, coding: Coding | None = None) -> SubscriptionTable:
        """Build a table without rows."""
        return replace(cls.from_arrays(np.empty((0, 4)), [0], []), coding=coding or Coding())

    @classmethod
    def from_subscriptions(
        cls, subscriptions: Iterable[Subscription], *, like: Any = None
    ) -> SubscriptionTable:
        """Build from objects, in a new coding, or in that of *like* (a coding, an index, a table), which grows."""
        from nearcast.columns import from_objects

        return from_objects.subscriptions_from_objects(subscriptions, like=like)

    @classmethod
    def from_arrow(
        cls, table: Any, *, like: Any = None, space: Space = WGS84, columns: Columns | None = None
    ) -> SubscriptionTable:
        """Build from a table (Arrow, pandas, GeoPandas, Polars); the columns are listed in :mod:`.from_arrow`.

        If the table has other names for them, *columns* maps ours to theirs: ``{"expression": "query"}``.
        """
        from nearcast.columns import from_arrow

        return from_arrow.subscriptions_from_arrow(table, like=like, space=space, columns=columns)

    def to_arrow(self) -> pa.Table:
        """Return id, expression and region columns; :meth:`from_arrow` reads them back."""
        from nearcast.columns import from_arrow

        return from_arrow.subscriptions_to_arrow(self)

    def to_subscriptions(self) -> list[Subscription]:
        """Return the objects; the expression of each is its normal form."""
        from nearcast.columns import from_objects

        return from_objects.subscriptions_to_objects(self)

    @property
    def clause_offsets(self) -> NDArray[np.int64]:
        """Where the clause rows of each subscription begin: int64[n + 1]."""
        return np.searchsorted(self.owners, np.arange(self.size + 1)).astype(np.int64)

    def take(self, rows: Any) -> SubscriptionTable:
        """Return the table of the given subscription rows, in their order."""
        rows = row_numbers(rows, self.size, "subscription")
        order = np.argsort(self.owners, kind="stable")
        starts = np.searchsorted(self.owners[order], np.arange(self.size + 1))
        counts = (starts[1:] - starts[:-1])[rows]
        offsets = offsets_of(counts)
        picks = order[np.arange(offsets[-1]) - np.repeat(offsets[:-1] - starts[rows], counts)]
        owners = np.repeat(np.arange(len(rows), dtype=np.int32), counts)
        return SubscriptionTable(
            take_clauses(self.clauses, picks),
            owners,
            len(rows),
            self.shapes.take(picks, owners),
            None if self.ids is None else self.ids.take(rows),
            self.coding,
        )


def _pair(value: Sequence[Any] | None, name: str) -> tuple[Any, Any]:
    """Return (offsets, codes), or a pair of None."""
    if value is None:
        return None, None
    if len(value) != 2:
        raise ColumnError(f"{name} must be a pair of arrays, (offsets, codes), not {len(value)} of them")
    return value[0], value[1]


def _check_owners(owners: Any, n: int, name: str) -> tuple[NDArray[np.int32], int]:
    """Check the owners of *n* clause rows; return them with the number of subscriptions."""
    if owners is None:
        return np.arange(n, dtype=np.int32), n
    array = integers(owners, np.int32, name)
    if array.shape != (n,):
        raise ColumnError(f"{name} has the shape {array.shape} for {n} rows")
    if n and (array[0] != 0 or (np.diff(array) < 0).any() or (np.diff(array) > 1).any()):
        raise ColumnError(f"{name} must run from 0 upwards without gaps, not {shown(array[:10].tolist())}")
    return array, int(array[-1]) + 1 if n else 0
