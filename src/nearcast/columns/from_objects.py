"""Converts ``Subscription`` and ``Message`` objects to columns and back."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from nearcast.columns.attributes import AttributeNames
from nearcast.columns.clause_rows import code_clauses, cross, place, probe_rows
from nearcast.columns.clauses import distinct_conjunctions
from nearcast.columns.coding import Coding, coding_of
from nearcast.columns.ids import id_array
from nearcast.columns.messages import NEVER, NOT_GIVEN, MessageBatch
from nearcast.columns.ragged import code_sets, offsets_of
from nearcast.columns.shapes import region_of_boxes
from nearcast.columns.subscriptions import SubscriptionTable
from nearcast.columns.values import Values
from nearcast.errors import ColumnError, ModelError, shown
from nearcast.geometry import WGS84, Everywhere, Planar, Region, Space
from nearcast.kernels.verify import HIGH_OPEN, LOW_OPEN, NEGATED
from nearcast.model import Id, Message, Subscription
from nearcast.predicates import AnyOf, Clause, Expression, Interval, Test

__all__ = [
    "clauses_of",
    "expression_of",
    "ids_of",
    "messages_from_objects",
    "region_of",
    "rows_by_owner",
    "subscriptions_from_objects",
    "subscriptions_to_objects",
]


_FIRST = np.zeros(1, np.int64)


def subscriptions_from_objects(
    subscriptions: Iterable[Subscription], *, like: Any = None, with_ids: bool = True
) -> SubscriptionTable:
    """Build a table in the coding of *like*, which learns new words, or in a new coding."""
    subs = list(subscriptions)
    for sub in subs:
        if not isinstance(sub, Subscription):
            raise ModelError(f"{shown(sub)} is not a Subscription")
    coding = None if like is None else coding_of(like)
    space = _common_space([sub.region for sub in subs], coding)
    coding = coding or Coding.new(space)
    vocabulary, attributes = coding.words()
    ids = ids_of([sub.id for sub in subs]) if with_ids else None
    lists = code_clauses([sub.clauses for sub in subs], vocabulary, attributes)
    every = _FIRST if len(subs) == 1 else np.arange(len(subs))
    clauses, owners, shapes = cross(lists, every, place([sub.region for sub in subs]))
    return SubscriptionTable(clauses, owners, len(subs), shapes, ids, coding)


def messages_from_objects(
    messages: Iterable[Message], *, like: Any, with_ids: bool = True, learn: bool = False
) -> MessageBatch:
    """Build a batch in the coding of *like*.

    Words and attributes that no subscription has are left out, or, with *learn*, get codes.
    """
    batch = list(messages)
    for message in batch:
        if not isinstance(message, Message):
            raise ModelError(f"{shown(message)} is not a Message")
    coding = coding_of(like)
    vocabulary, attributes = coding.words()
    m = len(batch)
    _common_space([message.place for message in batch], coding)
    ids = ids_of([message.id for message in batch]) if with_ids else None
    words = [word for message in batch for word in message.keywords]
    known = vocabulary.add(words) if learn else vocabulary.encode(words)
    if m == 1:  # the words of a message are a set, so the codes need only be sorted
        codes = known if learn else known[known >= 0]
        codes.sort()
        offsets = np.array([0, len(codes)])
    else:
        counts = np.array([len(message.keywords) for message in batch], np.int64)
        offsets, codes = code_sets(offsets_of(counts), known, m, "keyword", drop_negative=True)
    placed = place([message.place for message in batch])
    probes, owners = probe_rows(placed, offsets, codes, _values(batch, attributes, learn))
    starts = [message.published_at for message in batch]
    ends = [message.expires_at for message in batch]
    return MessageBatch(
        probes,
        owners,
        m,
        placed.shapes,
        ids,
        _times(starts, NOT_GIVEN),
        _times(ends, NEVER),
        coding,
    )


def _times(times: list[int | None], absent: int) -> NDArray[np.int64] | None:
    """Return a column of times; None if no message has one."""
    if all(time is None for time in times):
        return None
    return np.array([absent if time is None else time for time in times], np.int64)


def _values(messages: Sequence[Message], attributes: AttributeNames, learn: bool) -> Values:
    """Return the values of each message."""
    if not any(message.attributes for message in messages):
        return Values.none(len(messages))
    column_of = attributes.add if learn else attributes.find
    rows, columns, numbers, strings = [], [], [], []  # all strings are coded together, at the end
    for row, message in enumerate(messages):
        for name, value in message.attributes.items():
            text = isinstance(value, str)
            column = column_of(name, text=text)
            if column is not None:
                rows.append(row)
                columns.append(column)
                numbers.append(np.nan if text else value)
                if text:
                    strings.append(value)
    coded = np.array(numbers, np.float64)
    if strings:
        coded[np.isnan(coded)] = (attributes.strings.add if learn else attributes.strings.encode)(strings)
    return Values.from_cells(len(messages), np.array(rows, np.int64), np.array(columns, np.int64), coded)


def subscriptions_to_objects(table: SubscriptionTable) -> list[Subscription]:
    """Return the subscriptions of a table; the expression of each is its normal form."""
    result = []
    rows_of = rows_by_owner(table)
    ids = range(table.size) if table.ids is None else table.ids.to_pylist()
    for row, key in enumerate(ids):
        rows = rows_of[row]
        if not len(rows):
            raise ColumnError(f"subscription {shown(key)} has no clauses (it was removed); leave it out")
        result.append(Subscription(key, expression_of(table, rows), region_of(table, rows)))
    return result


def rows_by_owner(table: SubscriptionTable) -> list[NDArray[np.int64]]:
    """Return the clause rows of each subscription row."""
    order = np.argsort(table.owners, kind="stable")
    cuts = np.searchsorted(table.owners[order], np.arange(1, table.size))
    return np.split(order, cuts) if table.size else []


def region_of(table: SubscriptionTable, rows: NDArray[np.int64]) -> Region:
    """Return the region of a subscription from its clause rows."""
    shape = table.shapes.region(int(rows[0]), table.space)
    if shape is not None:
        return shape
    return region_of_boxes(np.unique(table.clauses.boxes[rows], axis=0), table.space)


def clauses_of(table: SubscriptionTable, rows: NDArray[np.int64]) -> list[Clause]:
    """Return the clauses of the given clause rows, one for each different conjunction."""
    return [_clause(table, int(row)) for row in distinct_conjunctions(table.clauses, rows)]


def expression_of(table: SubscriptionTable, rows: NDArray[np.int64]) -> Expression:
    """Return the normal form of a subscription from its clause rows."""
    expressions = [clause.expression() for clause in clauses_of(table, rows)]
    return expressions[0] if len(expressions) == 1 else AnyOf(tuple(expressions))


def _clause(table: SubscriptionTable, row: int) -> Clause:
    columns = table.clauses
    if table.vocabulary is None or table.attributes is None:
        raise ColumnError("this table was built from bare codes; only one with a vocabulary has expressions")
    names = table.attributes

    def words(runs: NDArray[np.int32], codes: NDArray[np.int32]) -> frozenset[str]:
        assert table.vocabulary is not None
        return frozenset(word for word in table.vocabulary.decode(codes[runs[row, 0] : runs[row, 1]]) if word)

    tests = []
    for i in range(columns.test_runs[row, 0], columns.test_runs[row, 1]):
        name, text = names.take([columns.test_attributes[i]])[0]
        flags = int(columns.test_flags[i])
        low: float | str | None = float(columns.test_lows[i])
        high: float | str | None = float(columns.test_highs[i])
        if text:
            low, high = names.strings.decode([columns.test_lows[i], columns.test_highs[i]])
        assert low is not None
        assert high is not None
        ends_open = bool(flags & LOW_OPEN), bool(flags & HIGH_OPEN)
        tests.append(Test(name, Interval(low, high, *ends_open, negated=bool(flags & NEGATED))))
    keywords = words(columns.keyword_runs, columns.keywords)
    return Clause(keywords, words(columns.forbidden_runs, columns.forbidden), tuple(tests))


def ids_of(ids: Sequence[Id]) -> pa.Array:
    """Return ids as an Arrow array: of integers if all are integers, else of strings."""
    if ids and all(isinstance(key, int) for key in ids):
        return pa.array(ids, pa.int64())
    mixed = [key for key in ids if not isinstance(key, str)]
    if mixed:
        raise ColumnError(f"ids must be all strings or all integers; {mixed[0]!r} is among strings")
    return id_array(pa.array(ids, pa.string()), len(ids), "ids")


def _common_space(places: Sequence[Any], like: Coding | None) -> Space:
    """Return the one space that all places live in."""
    if like is not None and all(getattr(place, "space", None) is like.space for place in places):
        return like.space
    spaces = {place.space for place in places if not isinstance(place, Everywhere)}
    planar = [space for space in spaces if isinstance(space, Planar)]
    if len(spaces) > 1:
        raise ColumnError(
            f"one table cannot hold places of several spaces: {shown(sorted(map(repr, spaces)))}; "
            "build a table for each"
        )
    if like is not None and spaces and like.space not in spaces:
        raise ColumnError(
            f"the subscriptions live in {like.space!r}, this place in {next(iter(spaces))!r}; "
            "give all places in one space"
        )
    if planar:
        return planar[0]
    return like.space if like is not None else WGS84
