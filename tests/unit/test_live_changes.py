"""Records of change, column by column, have the result that they have one by one."""

import math
import sys
import time
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearcast.errors import ColumnError
from nearcast.sharding.replica import CHANGE, CHANGED_AT
from nearcast.spark.live.changes import STAMPS, resolve
from nearcast.spark.live.records import KINDS, check_columns, digest_of

SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("expression", pa.string()),
        ("lon", pa.float64()),
        ("lat", pa.float64()),
        ("radius_m", pa.float64()),
    ]
)
REGION = ("lon", "lat", "radius_m")
RECORD = pa.schema([*SCHEMA, ("change", pa.string()), ("changed_at", pa.int64())])
KNOWN = pa.schema([*SCHEMA, (CHANGE, pa.string()), (CHANGED_AT, STAMPS)])


class Model:
    """Subscriptions in a dict, to which records are applied one by one."""

    def __init__(self):
        self.rows = {}  # by id: the values, the time of the whole, the time of the region
        self.ended = {}  # by id: the time

    def apply(self, records):
        """Apply the records of a micro-batch; return what is changed, by id, and what is refused."""
        changed, refused = {}, Counter()
        for record in sorted(records, key=_place_in_order):
            key, change, at = record["id"], record["change"], record["changed_at"]
            row, ended = self.rows.get(key), self.ended.get(key, -math.inf)
            values = {name: record[name] for name in SCHEMA.names}
            if change == "move":
                if row is None:
                    refused[key, "late" if ended > at else "unknown"] += 1
                    continue
                if row[2] > at:
                    refused[key, "late"] += 1
                    continue
                self.rows[key] = (values | {"expression": row[0]["expression"]}, row[1], at)
            elif change == "unsubscribe":
                if row is None:
                    if ended >= at:
                        continue
                elif row[1] > at:
                    refused[key, "late"] += 1
                    continue
                self.rows.pop(key, None)
                self.ended[key] = at
            else:
                if max(ended, -math.inf if row is None else row[1]) > at:
                    refused[key, "late"] += 1
                    continue
                self.ended.pop(key, None)
                if row is not None and row[2] > at:
                    values |= {name: row[0][name] for name in REGION}
                    self.rows[key] = (values, at, row[2])
                else:
                    self.rows[key] = (values, at, at)
            changed[key] = change
        return changed, refused


def _place_in_order(record):
    return (
        record["changed_at"],
        record["change"],
        tuple((record[name] is not None, record[name]) for name in SCHEMA.names),
    )


class Store:
    """What deltas say of each id, as the resolution wants it."""

    def __init__(self):
        self.known = KNOWN.empty_table()

    def current(self, ids):
        return self.known.filter(pa.compute.is_in(self.known["id"], ids))

    def apply(self, records, now=0):
        found = resolve(pa.Table.from_pylist(records, RECORD), SCHEMA, self.current, now)
        others = self.known.filter(
            pa.compute.invert(pa.compute.is_in(self.known["id"], found.delta["id"].combine_chunks()))
        )
        self.known = pa.concat_tables([others, found.delta.cast(KNOWN)])
        return found

    def rows(self):
        return {row["id"]: row for row in self.known.to_pylist() if row[CHANGE] != "unsubscribe"}


def record(change, key, at, word="tea", lon=0.0):
    region = {} if change == "unsubscribe" else {"lon": lon, "lat": 0.0, "radius_m": 5.0}
    words = {"expression": word} if change in ("subscribe", "update") else {}
    return dict.fromkeys(SCHEMA.names) | region | words | {"id": key, "change": change, "changed_at": at}


RECORDS = st.lists(
    st.builds(
        record,
        st.sampled_from(KINDS),
        st.sampled_from("abc"),
        st.integers(0, 6),
        st.sampled_from(["tea", "milk"]),
        st.sampled_from([0.0, 1.0]),
    ),
    max_size=12,
)


@given(st.lists(RECORDS, max_size=4))
def test_columns_say_what_a_dict_says(batches):
    store, model = Store(), Model()
    for number, records in enumerate(batches):
        before = {key: row[0] for key, row in model.rows.items()}
        changed, refused = model.apply(records)
        found = store.apply(records, number)
        assert dict(zip(found.delta["id"].to_pylist(), found.delta[CHANGE].to_pylist())) == changed
        assert found.delta["id"].to_pylist() == sorted(changed)
        assert found.before.to_pylist() == [
            before[key] for key in sorted(changed) if key in before and key in model.rows
        ]
        told = zip(found.refused["id"].to_pylist(), found.refused["reason"].to_pylist())
        assert Counter(told) == refused
        for key, row in store.rows().items():
            values, whole, region = model.rows[key]
            assert {name: row[name] for name in SCHEMA.names} == values
            assert row[CHANGED_AT] == {"whole": whole, "region": region, "ended": None}
        assert set(store.rows()) == set(model.rows)
        ended = {row["id"]: row for row in store.known.to_pylist() if row[CHANGE] == "unsubscribe"}
        assert {key: row[CHANGED_AT]["whole"] for key, row in ended.items()} == model.ended
        assert all(row[CHANGED_AT]["ended"] <= number for row in ended.values())


@given(RECORDS, st.randoms(use_true_random=False))
def test_how_records_are_ordered_and_cut_into_micro_batches_makes_no_difference(records, random):
    """Except for moves that come before their subscription, and for records of one instant."""
    first = [record("subscribe", key, -1) for key in "abc"]
    records = [
        each | {"changed_at": at} for at, each in enumerate(records) if each["change"] != "unsubscribe"
    ]
    in_order, shuffled = Store(), Store()
    in_order.apply([*first, *records])
    random.shuffle(records)
    shuffled.apply(first)
    while records:
        size = random.randint(1, len(records))
        shuffled.apply(records[:size])
        del records[:size]
    names = [*SCHEMA.names, CHANGED_AT]
    assert {key: [row[name] for name in names] for key, row in shuffled.rows().items()} == {
        key: [row[name] for name in names] for key, row in in_order.rows().items()
    }


@given(RECORDS, st.randoms(use_true_random=False))
def test_the_order_of_rows_makes_no_difference(records, random):
    one, other = Store(), Store()
    found = one.apply(records)
    digest = digest_of(pa.Table.from_pylist(records, RECORD))
    random.shuffle(records)
    assert other.apply(records).delta.equals(found.delta)
    assert digest_of(pa.Table.from_pylist(records, RECORD)) == digest
    if records:
        changed = [*records[1:], records[0] | {"changed_at": 99}]
        assert digest_of(pa.Table.from_pylist(changed, RECORD)) != digest


def test_an_older_record_that_comes_late_does_not_win():
    store = Store()
    store.apply([record("subscribe", "a", 5), record("unsubscribe", "gone", 5)])
    store.apply([record("move", "a", 10, lon=9.0)])
    late = store.apply(
        [
            record("subscribe", "a", 4),
            record("move", "a", 9, lon=3.0),
            record("subscribe", "gone", 4),
            record("unsubscribe", "a", 4),
        ]
    )
    assert not len(late.delta)
    assert late.refused["reason"].to_pylist() == ["late"] * 4
    # Words that are older than the move, and newer than the words before, count: the place stays.
    assert store.apply([record("update", "a", 7, "milk")]).refused.num_rows == 0
    assert store.rows()["a"]["expression"] == "milk"
    assert store.rows()["a"]["lon"] == 9.0
    # What comes again changes nothing, and is not refused.
    again = store.apply([record("move", "a", 10, lon=9.0), record("unsubscribe", "gone", 5)])
    assert again.refused.num_rows == 0
    assert store.rows()["a"]["lon"] == 9.0
    assert "gone" not in store.rows()


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.timestamp("us", "UTC"), [-5, 1, 3]),
        (pa.timestamp("ms"), [-5, 1, 3]),
        (pa.date32(), [-5, 1, 3]),
        (pa.int16(), [-5, 1, 3]),
        (pa.uint64(), [0, 1, 2**62]),
        (pa.float64(), [-math.inf, -1.5, 2.5]),
        (pa.float32(), [-0.5, 0.0, 2.5]),
        (pa.decimal128(9, 2), ["-1.5", "0.25", "3.5"]),
    ],
    ids=str,
)
def test_times_and_numbers_of_every_type_are_ordered(kind, values):
    if pa.types.is_decimal(kind):
        times = pa.array(values).cast(kind)
    else:
        times = pa.array(values, kind)
    rows = pa.table(
        {
            "id": ["a"] * 4,
            "change": ["update"] * 4,
            "expression": ["middle", "last", "first", "never"],
            "changed_at": times.take(pa.array([1, 2, 0, None])),
        }
    )
    schema = pa.schema([("id", pa.string()), ("expression", pa.string())])
    known = pa.schema([*schema, (CHANGE, pa.string()), (CHANGED_AT, STAMPS)]).empty_table()
    found = resolve(rows, schema, lambda ids: known, 0)
    assert found.delta["expression"].to_pylist() == ["last"]
    assert found.refused["reason"].to_pylist() == ["no-time"]


def test_records_that_cannot_be_read_are_refused_and_stop_nothing():
    store = Store()
    bad = [
        record("subscribe", "a", 1, "tea AND ("),
        record("subscribe", "b", None),
        record("resubscribe", "c", 1),
        record("subscribe", "", 1),
        record("subscribe", None, 1),
        record("subscribe", "d", 1) | {"lat": 95.0},
        record("subscribe", "e", 1) | {"expression": None},
        record("move", "nobody", 1),
        record("subscribe", "good", 1),
    ]
    found = store.apply(bad)
    assert dict(zip(found.refused["id"].to_pylist(), found.refused["reason"].to_pylist())) == {
        "a": "expression",
        "b": "no-time",
        "c": "change",
        "": "no-id",
        "None": "no-id",
        "d": "place",
        "e": "expression",
        "nobody": "unknown",
    }
    assert found.delta["id"].to_pylist() == ["good"]


def test_ids_are_those_of_the_subscriptions():
    narrow = pa.schema([("id", pa.int32()), ("keywords", pa.list_(pa.string()))])
    known = pa.schema([*narrow, (CHANGE, pa.string()), (CHANGED_AT, STAMPS)]).empty_table()
    rows = pa.table(
        {"id": [1, 2**40], "change": ["subscribe"] * 2, "keywords": [["b", "a"], ["c"]], "changed_at": [1, 1]}
    )
    found = resolve(rows, narrow, lambda ids: known, 0)
    assert found.delta.select(narrow.names).to_pylist() == [{"id": 1, "keywords": ["a", "b"]}]
    assert found.delta.schema.field("id").type == pa.int32()
    assert found.refused["reason"].to_pylist() == ["no-id"]
    text = rows.set_column(0, "id", pa.array(["1", "2"]))
    with pytest.raises(ColumnError, match="ids of changes are string, and those of subscriptions are int32"):
        check_columns(text.schema, narrow)
    with pytest.raises(ColumnError, match="changed_at must be a time or a number, not string"):
        check_columns(rows.set_column(3, "changed_at", pa.array(["1", "2"])).schema, narrow)


@pytest.mark.parametrize("change", ["move", "update"])
def test_hundreds_of_thousands_a_second(change, capsys):
    """In seconds of one core. ``pytest -k hundreds_of_thousands`` prints the rate."""
    count, rng = 100_000, np.random.default_rng(0)
    ids = pa.array([f"user-{i}" for i in range(count)])
    words = pa.array([f"coffee{i % 5000} AND price < {i % 40}" for i in range(count)])
    stamps = pa.array([{"whole": 1, "region": 1, "ended": None}] * count, STAMPS)
    columns = {
        "lon": rng.uniform(-9, 9, count),
        "lat": rng.uniform(-9, 9, count),
        "radius_m": np.full(count, 9.0),
    }
    known = pa.table(
        {"id": ids, "expression": words, **columns, CHANGE: pa.nulls(count, pa.string()), CHANGED_AT: stamps}
    )
    picked = pa.array(rng.permutation(count))
    records = pa.table(
        {
            "id": ids.take(picked),
            "expression": words if change == "update" else pa.nulls(count, pa.string()),
            **columns,
            "change": pa.array([change] * count),
            "changed_at": pa.array(rng.integers(2, 10**9, count)),
        }
    )
    best = math.inf
    for _ in range(5):
        start = time.process_time()  # this machine may be busy
        found = resolve(records, SCHEMA, lambda wanted: known, 0)
        best = min(best, time.process_time() - start)
        assert len(found.delta) == count
    with capsys.disabled():
        sys.stdout.write(f"\n{count / best:,.0f} {change}s a second\n")
    assert count / best > 200_000
