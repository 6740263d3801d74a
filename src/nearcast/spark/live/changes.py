"""From records of change to a delta: each subscription after one micro-batch.

Records are applied in the order of ``changed_at``; those of one instant in the order of their change, then of their
content, so that a repeat has the same result. A record that cannot be applied (an unknown change, an expression that
cannot be read, a move of an unknown subscription) is refused with the reason, and changes nothing.

The order holds across micro-batches too: a record that is older than what has been applied is *late*, and refused. What
it is compared with is kept with each subscription, in the column ``_changed_at``:

- A subscription has one time for the whole of it, and one for its region, which a move sets alone. A late ``update``
  does not undo a later move: it brings its words, and the region stays.
- An id that was unsubscribed keeps the time as a *tombstone*, so that an older ``subscribe`` does not bring it back.
  Tombstones are kept for ``config.LIVE_LATE_SECONDS``. An id that never existed leaves one too, since its
  ``subscribe`` may come late.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from nearcast import config
from nearcast.columns.from_arrow.source import is_list
from nearcast.errors import shown
from nearcast.kernels import kernel
from nearcast.sharding.replica import CHANGE, CHANGED_AT
from nearcast.spark.live.records import KINDS, MOVE, UNSUBSCRIBE, WORDS, read_records, refusals

__all__ = ["STAMPS", "Resolution", "resolve"]

# When the whole subscription changed (or ended), when its region did, and, of a tombstone, the clock then.
STAMPS = pa.struct([("whole", pa.int64()), ("region", pa.int64()), ("ended", pa.int64())])
_NEVER = np.iinfo(np.int64).min  # older than every record
_APPLIED, _LATE, _UNKNOWN = range(3)  # what became of a record


class Resolution(NamedTuple):
    """The result of the records of one micro-batch."""

    # Each changed id once, in ascending order: the subscription as it is now, its last change, its times.
    delta: pa.Table
    # Subscriptions that existed before and were replaced, as they were before.
    before: pa.Table
    # How many records could not be applied, and the last of them: id, change, reason, detail.
    refused_count: int
    refused: pa.Table


class _Knowledge(NamedTuple):
    """The ids that records name: what is known of each, before and after the records are applied."""

    exists: NDArray[np.bool_]
    whole: NDArray[np.int64]  # the time of the last record that set all; of a tombstone, of its end
    region: NDArray[np.int64]  # the time of the last record that set the region
    words_from: NDArray[np.int64]  # the record that the words are from; -1: they are as before
    region_from: NDArray[np.int64]
    last: NDArray[np.int8]  # the last change, by KINDS; -1: none was applied


def resolve(
    records: pa.Table, schema: pa.Schema, current: Callable[[pa.Array], pa.Table], now: int
) -> Resolution:
    """Apply records, in their order, to subscriptions.

    *schema* is that of the stored subscriptions. *current* returns what is known of the given ids: their subscriptions,
    with ``_changed_at`` (null: never) and ``_change``, which is ``unsubscribe`` for a tombstone. *now* is the clock, in
    microseconds.
    """
    schema = schema.remove_metadata()
    read, unread = read_records(records, schema)
    coded = read.rows["id"].combine_chunks().dictionary_encode()
    ids, codes = coded.dictionary, coded.indices.to_numpy()
    known = current(ids).combine_chunks()
    order = _in_order(read.rows, codes, read.times, read.kinds)
    kinds, times = read.kinds[order], read.times[order]
    starts = np.searchsorted(codes[order], np.arange(len(ids) + 1))
    there = np.full(len(ids), -1, np.int64)  # the row of each id in *known*
    there[pc.index_in(known["id"].combine_chunks(), ids).to_numpy(zero_copy_only=False)] = np.arange(
        len(known)
    )
    state = _before(known, there)
    existed = state.exists.copy()
    verdicts = np.empty(len(order), np.int8)
    _apply(starts, kinds, times, state, verdicts)
    changed = np.flatnonzero(state.last >= 0)
    changed = changed[pc.sort_indices(ids.take(pa.array(changed))).to_numpy()]
    sources = pa.concat_tables([known.select(schema.names).cast(schema), read.rows])
    replaced = changed[existed[changed] & state.exists[changed]]
    return Resolution(
        _delta(sources, ids, changed, there, len(known) + order, state, now),
        known.select(schema.names).cast(schema).take(pa.array(there[replaced])),
        len(records) - len(read.rows) + int(np.count_nonzero(verdicts)),
        pa.concat_tables([unread, _not_applied(ids.take(coded.indices), order, kinds, verdicts)]),
    )


def _in_order(
    rows: pa.Table, codes: NDArray[np.int32], times: NDArray[np.int64], kinds: NDArray[np.int8]
) -> NDArray[np.int64]:
    """Return the records by id, and those of one id in the order in which they are applied."""
    order = np.lexsort((kinds, times, codes))
    keys = [values[order] for values in (codes, times, kinds)]
    same = np.ones(max(len(order) - 1, 0), bool)
    for key in keys:
        same &= key[1:] == key[:-1]
    if not same.any():
        return order
    # Of those that are equal so far, the content decides.
    tied = np.zeros(len(order), bool)
    tied[1:] |= same
    tied[:-1] |= same
    group = np.concatenate([[0], np.cumsum(~same)])[tied]
    some = rows.take(pa.array(order[tied]))
    for number, field in enumerate(some.schema):
        if is_list(field.type):
            some = some.set_column(
                number, field.name, pc.binary_join(some[field.name].combine_chunks(), "\0")
            )
    some = some.append_column("_group", pa.array(group))
    names = ["_group", *rows.column_names]
    by_content = pc.sort_indices(some, sort_keys=[(name, "ascending") for name in names]).to_numpy()
    order[tied] = order[tied][by_content]
    return order


def _before(known: pa.Table, there: NDArray[np.int64]) -> _Knowledge:
    """Return what is known of the ids before the records; *there* has the row of each id, or -1."""
    size = len(there)
    state = _Knowledge(
        np.zeros(size, bool),
        np.full(size, _NEVER),
        np.full(size, _NEVER),
        np.full(size, -1, np.int64),
        np.full(size, -1, np.int64),
        np.full(size, -1, np.int8),
    )
    found = np.flatnonzero(there >= 0)
    rows = there[found]
    stamps = known[CHANGED_AT].combine_chunks()
    for name, values in (("whole", state.whole), ("region", state.region)):
        times = pc.fill_null(pc.struct_field(stamps, name), _NEVER)
        values[found] = times.to_numpy(zero_copy_only=False)[rows]
    gone = pc.fill_null(pc.equal(known[CHANGE], "unsubscribe"), False).to_numpy(zero_copy_only=False)
    state.exists[found] = ~gone[rows]
    return state


@kernel
def _apply(
    starts: NDArray[np.int64],
    kinds: NDArray[np.int8],
    times: NDArray[np.int64],
    state: _Knowledge,
    verdicts: NDArray[np.int8],
) -> None:
    """Apply the records of each id, one after the other."""
    exists, whole, region, words_from, region_from, last = state
    for key in range(starts.size - 1):
        for record in range(starts[key], starts[key + 1]):
            kind, time = kinds[record], times[record]
            verdicts[record] = _APPLIED
            if kind == MOVE:
                if not exists[key]:
                    verdicts[record] = _LATE if whole[key] > time else _UNKNOWN
                elif region[key] > time:
                    verdicts[record] = _LATE
                else:
                    region[key], region_from[key] = time, record
            elif kind == UNSUBSCRIBE:
                if not exists[key] and whole[key] >= time:
                    continue  # it ended later, or just then
                if whole[key] > time:
                    verdicts[record] = _LATE
                else:
                    exists[key], whole[key], region[key] = False, time, _NEVER
            elif whole[key] > time:
                verdicts[record] = _LATE
            else:
                if not exists[key] or region[key] <= time:
                    region[key], region_from[key] = time, record
                exists[key], whole[key], words_from[key] = True, time, record
            if verdicts[record] == _APPLIED:
                last[key] = kind


def _delta(
    sources: pa.Table,
    ids: pa.Array,
    changed: NDArray[np.int64],
    there: NDArray[np.int64],
    records: NDArray[np.int64],
    state: _Knowledge,
    now: int,
) -> pa.Table:
    """Return the rows of the changed ids; *sources* has those of before, and behind them the records."""
    exists = state.exists[changed]

    def taken(origin: NDArray[np.int64]) -> pa.Array:
        before = origin[changed] < 0
        rows = np.where(before, there[changed], records[origin[changed]] if len(records) else -1)
        return pa.array(rows, mask=~exists)

    words, region = taken(state.words_from), taken(state.region_from)
    columns = {}
    for name in sources.column_names:
        if name == "id":
            columns[name] = ids.take(pa.array(changed))
        else:
            columns[name] = sources[name].take(words if name in WORDS else region)
    columns[CHANGE] = pa.array(KINDS).take(pa.array(state.last[changed]))
    whole, placed = (
        pa.array(values, mask=values == _NEVER) for values in (state.whole[changed], state.region[changed])
    )
    ended = pa.array(np.full(len(changed), now), pa.int64(), mask=exists)
    columns[CHANGED_AT] = pa.StructArray.from_arrays([whole, placed, ended], fields=list(STAMPS))
    return pa.table(columns)


def _not_applied(
    ids: pa.Array, order: NDArray[np.int64], kinds: NDArray[np.int8], verdicts: NDArray[np.int8]
) -> pa.Table:
    """Return the records that were late, and those that move what does not exist."""
    rows = []
    for record in np.flatnonzero(verdicts != _APPLIED)[-config.LIVE_REFUSED :].tolist():
        key = ids[int(order[record])].as_py()
        if verdicts[record] == _LATE:
            why = ("late", f"the subscription {shown(key)} was changed by a record with a later changed_at")
        else:
            why = ("unknown", f"there is no subscription {shown(key)} to move")
        rows.append((str(key), KINDS[kinds[record]], *why))
    return refusals(rows)
