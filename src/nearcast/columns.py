"""Subscriptions, messages and matches as columns: structures of arrays that kernels read.

A :class:`SubscriptionTable` has *clause rows* (one conjunction with one box each) and *subscription rows*;
``owners`` maps the first to the second. A :class:`MessageBatch` has *probe rows* (one message with one box each)
and *message rows*. With plain boxes and conjunctions the two are the same. :class:`Matches` speaks of subscription
rows and message rows only.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from nearcast.errors import ColumnError, shown
from nearcast.geometry import WGS84, Space
from nearcast.kernels.verify import Clauses, Probes
from nearcast.ragged import (
    box_rows,
    code_sets,
    integers,
    interval_rows,
    matrix,
    offsets_of,
    ragged_take,
    row_numbers,
)
from nearcast.shapes import NO_SHAPES, Shapes

if TYPE_CHECKING:
    import pyarrow as pa

    from nearcast.attributes import AttributeNames
    from nearcast.model import Message, Subscription
    from nearcast.vocabulary import Vocabulary

__all__ = [
    "NEVER",
    "Matches",
    "MessageBatch",
    "SubscriptionTable",
    "distinct_conjunctions",
    "id_array",
    "take_clauses",
]

NEVER = np.iinfo(np.int64).max  # when a message without an end expires


@dataclass(frozen=True, slots=True, eq=False)
class SubscriptionTable:
    """Subscriptions as columns; immutable.

    Build one from arrays of integer codes, from Arrow, pandas or GeoPandas tables, or from :class:`Subscription`
    objects; it goes back the same way. Tables that belong together (an index and what is inserted later) share a
    vocabulary: pass ``like=``.

    >>> subs = SubscriptionTable.from_arrays([[0, 0, 2, 2], [1, 1, 3, 3]], [0, 1, 3], [7, 7, 9])
    >>> subs
    <SubscriptionTable of 2 subscriptions>
    """

    clauses: Clauses
    owners: NDArray[np.int32]  # subscription row of each clause row, ascending
    size: int  # subscription rows; one may be without clauses (it matches nothing)
    shapes: Shapes  # what the boxes of some clause rows only contain
    ids: pa.Array | None  # of the subscriptions; None: the row number is the id
    vocabulary: Vocabulary | None  # of the keywords; None: the caller speaks in codes
    attributes: AttributeNames | None  # of the tests; None: the caller speaks in column numbers
    space: Space

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
            row asks for no word.
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
            What the coordinates mean to circles; plain boxes do not care.
        """
        box_array = box_rows(boxes, "boxes")
        n = len(box_array)
        words = code_sets(keyword_offsets, keywords, n, "keyword")
        unwanted = code_sets(*_pair(forbidden, "forbidden"), n=n, name="forbidden")
        tests = interval_rows(intervals, n)
        clauses = Clauses(box_array, *words, *unwanted, tests[0], tests[1], tests[2], tests[3], tests[4])
        owner_rows, size = _owners(owners, n, "owners")
        return cls(clauses, owner_rows, size, NO_SHAPES, id_array(ids, size, "ids"), None, None, space)

    @classmethod
    def empty(
        cls,
        vocabulary: Vocabulary | None = None,
        attributes: AttributeNames | None = None,
        space: Space = WGS84,
    ) -> SubscriptionTable:
        """Build a table without rows: what others are coded *like*."""
        bare = cls.from_arrays(np.empty((0, 4)), [0], [], space=space)
        return replace(bare, vocabulary=vocabulary, attributes=attributes)

    @classmethod
    def from_subscriptions(
        cls, subscriptions: Iterable[Subscription], *, like: SubscriptionTable | None = None
    ) -> SubscriptionTable:
        """Build from objects; words and attributes get codes of *like*'s vocabulary (which grows), or of a new one."""
        from nearcast import objects

        return objects.subscriptions_from_objects(subscriptions, like=like)

    @classmethod
    def from_arrow(
        cls, table: Any, *, like: SubscriptionTable | None = None, space: Space = WGS84
    ) -> SubscriptionTable:
        """Build from a table (Arrow, pandas, GeoPandas, Polars); the columns are listed in :mod:`nearcast.tables`."""
        from nearcast import tables

        return tables.subscriptions_from_arrow(table, like=like, space=space)

    def to_arrow(self) -> pa.Table:
        """Return id, expression and region columns; :meth:`from_arrow` reads them back."""
        from nearcast import tables

        return tables.subscriptions_to_arrow(self)

    def to_subscriptions(self) -> list[Subscription]:
        """Return the objects; the expression of each is its normal form."""
        from nearcast import objects

        return objects.subscriptions_to_objects(self)

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
        return SubscriptionTable(
            take_clauses(self.clauses, picks),
            np.repeat(np.arange(len(rows), dtype=np.int32), counts),
            len(rows),
            self.shapes.take(picks),
            None if self.ids is None else self.ids.take(rows),
            self.vocabulary,
            self.attributes,
            self.space,
        )


@dataclass(frozen=True, slots=True, eq=False)
class MessageBatch:
    """Messages as columns; immutable.

    Build one from arrays, from tables or from :class:`Message` objects. Words and attributes are coded *like* the
    subscriptions that the batch is to meet; a word that none of them has at that time is left out, so a batch is made
    after the subscriptions, or with ``learn=True`` where subscriptions may come later.

    >>> MessageBatch.from_arrays([[1.0, 1.0]], [0, 2], [7, 8])
    <MessageBatch of 1 message>
    """

    probes: Probes
    owners: NDArray[np.int32]  # message row of each probe row, ascending
    size: int
    shapes: Shapes
    ids: pa.Array | None
    published_at: NDArray[np.int64] | None  # microseconds since the epoch
    expires_at: NDArray[np.int64] | None  # microseconds; NEVER where a message does not expire
    vocabulary: Vocabulary | None  # of the subscriptions that it is coded like; None: codes are the caller's
    attributes: AttributeNames | None  # likewise
    space: Space

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
            int64[m]: microseconds since 1970 UTC, :data:`NEVER` where a message does not expire.
        space
            The space that the subscriptions live in.
        """
        if (points is None) == (boxes is None):
            raise ColumnError("give either points (m × 2) or boxes (m × 4) of the messages")
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
        words = code_sets(keyword_offsets, keywords, m, "keyword", drop_negative=True)
        values = np.empty((m, 0)) if attributes is None else matrix(attributes, "attributes", None)
        if len(values) != m:
            raise ColumnError(f"attributes have {len(values)} rows for {m} messages")
        rows = np.arange(m, dtype=np.int32)
        probes = Probes(box_array, *words, values)
        times: list[Any] = []
        for name, given in (("published_at", published_at), ("expires_at", expires_at)):
            time = None if given is None else integers(given, np.int64, name)
            if time is not None and len(time) != m:
                raise ColumnError(f"{name} has {len(time)} rows for {m} messages")
            times.append(time)
        return cls(probes, rows, m, NO_SHAPES, id_array(ids, m, "ids"), times[0], times[1], None, None, space)

    @classmethod
    def from_messages(
        cls, messages: Iterable[Message], *, like: SubscriptionTable, learn: bool = False
    ) -> MessageBatch:
        """Build from objects, with the codes of *like*'s vocabulary and attributes.

        With *learn*, words and attributes that no subscription has get codes too (the vocabulary grows): for messages
        that are kept, since somebody may ask for them later.
        """
        from nearcast import objects

        return objects.messages_from_objects(messages, like=like, learn=learn)

    @classmethod
    def from_arrow(cls, table: Any, *, like: SubscriptionTable, learn: bool = False) -> MessageBatch:
        """Build from a table (Arrow, pandas, GeoPandas, Polars); the columns are listed in :mod:`nearcast.tables`.

        *learn* as in :meth:`from_messages`.
        """
        from nearcast import tables

        return tables.messages_from_arrow(table, like=like, learn=learn)

    def take(self, rows: Any) -> MessageBatch:
        """Return the batch of the given message rows, in their order."""
        rows = row_numbers(rows, self.size, "message")
        starts = self.probe_offsets
        counts = (starts[1:] - starts[:-1])[rows]
        offsets = offsets_of(counts)
        picks = np.arange(offsets[-1]) - np.repeat(offsets[:-1] - starts[rows], counts)
        probes = Probes(
            self.probes.boxes[picks],
            *ragged_take(self.probes.keyword_offsets, self.probes.keywords, picks),
            self.probes.attributes[picks],
        )
        return MessageBatch(
            probes,
            np.repeat(np.arange(len(rows), dtype=np.int32), counts),
            len(rows),
            self.shapes.take(picks),
            None if self.ids is None else self.ids.take(rows),
            None if self.published_at is None else self.published_at[rows],
            None if self.expires_at is None else self.expires_at[rows],
            self.vocabulary,
            self.attributes,
            self.space,
        )

    @property
    def probe_offsets(self) -> NDArray[np.int64]:
        """Where the probe rows of each message begin: int64[m + 1]."""
        if len(self.owners) == self.size:  # each message has at least one probe, so each has exactly one
            return np.arange(self.size + 1)
        return np.searchsorted(self.owners, np.arange(self.size + 1)).astype(np.int64)


@dataclass(frozen=True, eq=False)
class Matches:
    """Which subscription rows each message row matched: grouped by message, without duplicates.

    The order inside a group is not promised; :meth:`sorted` gives one. A store of messages answers the other way round:
    there each subscription takes the part of a message here, and the rows are those of messages.

    >>> found = Matches(np.array([0, 2, 2]), np.array([5, 3], np.int32))
    >>> found[0], found.sorted().pairs()
    (array([5, 3], dtype=int32), array([[0, 0],
           [3, 5]]))
    """

    offsets: NDArray[np.int64]  # int64[m + 1]
    rows: NDArray[np.int32]

    def __len__(self) -> int:
        """How many messages."""
        return len(self.offsets) - 1

    def __getitem__(self, message: int) -> NDArray[np.int32]:
        """Return the subscription rows of one message."""
        if not 0 <= message < len(self):
            raise IndexError(f"message row {message} is not in 0..{len(self) - 1}")
        return self.rows[self.offsets[message] : self.offsets[message + 1]]

    def __iter__(self) -> Iterator[NDArray[np.int32]]:
        return (self[i] for i in range(len(self)))

    def __repr__(self) -> str:
        return f"<Matches: {len(self.rows):,} of {len(self):,} messages>"

    @property
    def counts(self) -> NDArray[np.int64]:
        """How many subscriptions each message matched."""
        return np.diff(self.offsets)

    @cached_property
    def messages(self) -> NDArray[np.int64]:
        """The message row of each match."""
        return np.repeat(np.arange(len(self)), self.counts)

    def sorted(self) -> Matches:
        """Return the same matches with ascending subscription rows in each group."""
        order = np.lexsort((self.rows, self.messages))
        return Matches(self.offsets, self.rows[order])

    def pairs(self) -> NDArray[np.int64]:
        """Return int64[2, p]: message rows, subscription rows (the form that Shapely's ``query`` gives)."""
        return np.stack([self.messages, self.rows.astype(np.int64)])

    def to_arrow(
        self, message_ids: pa.Array | None = None, subscription_ids: pa.Array | None = None
    ) -> pa.Table:
        """Return the columns ``message_id`` and ``subscription_id``; row numbers where no ids are given."""
        import pyarrow as pa

        messages, rows = pa.array(self.messages), pa.array(self.rows)
        return pa.table(
            {
                "message_id": messages if message_ids is None else message_ids.take(messages),
                "subscription_id": rows if subscription_ids is None else subscription_ids.take(rows),
            }
        )


def with_offsets(clauses: Clauses) -> Clauses:
    """Return clauses of which every ragged column has all offsets: an index leaves out those of an empty column."""
    n = len(clauses.keyword_offsets)

    def all_of(offsets: NDArray[np.int64]) -> NDArray[np.int64]:
        return offsets if len(offsets) == n else np.zeros(n, np.int64)

    return clauses._replace(
        forbidden_offsets=all_of(clauses.forbidden_offsets), test_offsets=all_of(clauses.test_offsets)
    )


def words_alone(clauses: Clauses, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Tell which of the given clause rows have neither forbidden keywords nor tests."""
    alone = np.ones(len(rows), np.bool_)
    for offsets in (clauses.forbidden_offsets, clauses.test_offsets):
        if offsets[-1]:
            alone &= offsets[rows + 1] == offsets[rows]
    return alone


def take_clauses(clauses: Clauses, rows: NDArray[np.int64]) -> Clauses:
    """Return the given clause rows."""
    clauses = with_offsets(clauses)
    test_offsets, tests = ragged_take(clauses.test_offsets, np.arange(len(clauses.test_flags)), rows)
    return Clauses(
        clauses.boxes[rows]
        if len(clauses.boxes)
        else clauses.boxes,  # clauses of an expression have none yet
        *ragged_take(clauses.keyword_offsets, clauses.keywords, rows),
        *ragged_take(clauses.forbidden_offsets, clauses.forbidden, rows),
        test_offsets,
        clauses.test_attributes[tests],
        clauses.test_lows[tests],
        clauses.test_highs[tests],
        clauses.test_flags[tests],
    )


def distinct_conjunctions(clauses: Clauses, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return of the given clause rows the first of each conjunction: those of a region with two boxes come twice."""
    seen: dict[tuple[bytes, ...], int] = {}
    clauses = with_offsets(clauses)
    for row in rows.tolist():
        words = slice(*clauses.keyword_offsets[row : row + 2])
        forbidden = slice(*clauses.forbidden_offsets[row : row + 2])
        tests = slice(*clauses.test_offsets[row : row + 2])
        parts: list[NDArray[Any]] = [clauses.keywords[words], clauses.forbidden[forbidden]]
        parts += [column[tests] for column in clauses[6:]]
        seen.setdefault(tuple(part.tobytes() for part in parts), row)
    return np.array(list(seen.values()), np.int64)


def id_array(ids: Any, size: int, name: str) -> pa.Array | None:
    """Return *ids* as an Arrow array of *size* strings or 64-bit integers, or None."""
    if ids is None:
        return None
    import pyarrow as pa

    try:
        array = ids.combine_chunks() if isinstance(ids, pa.ChunkedArray) else pa.array(ids)
        if pa.types.is_dictionary(array.type):
            array = array.dictionary_decode()
        if pa.types.is_integer(array.type):
            array = array.cast(pa.int64())
        elif any(
            test(array.type) for test in (pa.types.is_large_string, pa.types.is_string_view, pa.types.is_null)
        ):
            array = array.cast(pa.string())
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError, TypeError):
        raise ColumnError(
            f"{name} must be all strings or all integers of 64 bits, not {shown(ids)}"
        ) from None
    if len(array) != size:
        raise ColumnError(f"{len(array)} {name} for {size} rows")
    if array.null_count:
        row = array.is_null().to_numpy(zero_copy_only=False).argmax()
        raise ColumnError(f"{name} has no value in row {row}; every row needs an id")
    if not (pa.types.is_integer(array.type) or pa.types.is_string(array.type)):
        raise ColumnError(f"{name} must be strings or integers, not {array.type}")
    return array


def _pair(value: Sequence[Any] | None, name: str) -> tuple[Any, Any]:
    """Return (offsets, codes), or a pair of None."""
    if value is None:
        return None, None
    if len(value) != 2:
        raise ColumnError(f"{name} is a pair of arrays, (offsets, codes), not {len(value)} of them")
    return value[0], value[1]


def _owners(owners: Any, n: int, name: str) -> tuple[NDArray[np.int32], int]:
    """Check the owners of *n* clause rows; return them with the number of subscriptions."""
    if owners is None:
        return np.arange(n, dtype=np.int32), n
    array = integers(owners, np.int32, name)
    if array.shape != (n,):
        raise ColumnError(f"{name} has the shape {array.shape} for {n} rows")
    if n and (array[0] != 0 or (np.diff(array) < 0).any() or (np.diff(array) > 1).any()):
        raise ColumnError(f"{name} must run from 0 upwards without gaps, not {shown(array[:10].tolist())}")
    return array, int(array[-1]) + 1 if n else 0
