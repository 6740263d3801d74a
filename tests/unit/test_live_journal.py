"""The journal of a live query, driven without Spark: who owns it, what it holds, and what a micro-batch costs."""

import sys
import threading
import uuid
from collections import Counter

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from memory_place import Memory
from nearcast import config
from nearcast.errors import StorageError
from nearcast.sharding.replica import CHANGE, CHANGED_AT
from nearcast.spark.live.changes import STAMPS
from nearcast.spark.live.compaction import Compaction
from nearcast.spark.live.deltas import Delta, Deltas, _latest, _tier
from nearcast.spark.live.journal import Journal
from nearcast.spark.live.states import Run, Snapshot

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("expression", pa.string()),
        ("lon", pa.float64()),
        ("lat", pa.float64()),
        ("radius_m", pa.float64()),
    ]
)
KNOWN = pa.schema([*SCHEMA, (CHANGE, pa.string()), (CHANGED_AT, STAMPS)])


class Version:
    """Subscriptions in memory, in the order of their ids."""

    schema = SCHEMA

    def __init__(self, rows):
        self.rows = rows

    def rows_with_ids(self, ids):
        there, wanted = self.rows["id"].to_numpy(), ids.to_numpy()
        at = np.minimum(np.searchsorted(there, wanted), len(there) - 1)
        return self.rows.take(pa.array(at[there[at] == wanted]))


class Life:
    """A journal, one micro-batch after another, beside a dict of subscriptions."""

    def __init__(self, subscriptions, checkpoint="c"):
        rows = {
            "id": np.arange(subscriptions),
            "expression": np.full(subscriptions, "tea"),
            "lon": np.zeros(subscriptions),
            "lat": np.zeros(subscriptions),
            "radius_m": np.ones(subscriptions),
            CHANGE: pa.nulls(subscriptions, pa.string()),
            CHANGED_AT: pa.nulls(subscriptions, STAMPS),
        }
        self.home = Memory(f"memory://{uuid.uuid4().hex}")
        self.versions = {"first": Version(pa.table(rows, schema=KNOWN))}
        self.lons, self.gone = {}, set()  # what has changed: by id, where it is; those that left
        self.subscriptions, self.number, self.rng = subscriptions, 0, np.random.default_rng(0)
        self.open(checkpoint)
        self.journal.start("first")

    def open(self, checkpoint="c"):
        self.journal = Journal(self.home, self.versions.__getitem__)
        self.run = Run(f"query of {checkpoint}", checkpoint, uuid.uuid4().hex)

    def records(self, count):
        ids = self.rng.choice(self.subscriptions, count, replace=False)
        kinds = self.rng.choice(["move", "subscribe", "unsubscribe"], count, p=[0.6, 0.3, 0.1])
        rows = []
        for key, kind in zip(ids.tolist(), kinds.tolist()):
            region = {"lon": float(self.number % 180), "lat": 0.0, "radius_m": 5.0}
            rows.append(
                {"id": key, "change": kind, "changed_at": self.number}
                | ({} if kind == "unsubscribe" else region)
                | ({"expression": "milk"} if kind == "subscribe" else {})
            )
        return rows

    def step(self, rows):
        """Process a micro-batch with these records, and note them in the model."""
        table = pa.Table.from_pylist(
            rows, pa.schema([*SCHEMA, ("change", pa.string()), ("changed_at", pa.int64())])
        )
        state = self.journal.begin(
            self.number, table, self.run, lambda: self.number, lambda last, now: last.valid
        )
        self.journal.finish(self.number)
        for row in rows:
            if row["change"] == "unsubscribe":
                self.lons.pop(row["id"], None)
                self.gone.add(row["id"])
            elif row["change"] == "subscribe" or row["id"] not in self.gone:
                self.gone.discard(row["id"])
                self.lons[row["id"]] = row.get("lon")
        self.number += 1
        return state

    def whole(self, state):
        """Return all that is known after the deltas of a state."""
        deltas = Deltas(self.home)
        tables = [self.versions[state.version].rows]
        tables += [deltas._read(f"deltas/{delta.name}").cast(KNOWN) for delta in state.deltas]
        return _latest(pa.concat_tables(tables))

    def compact(self, state):
        """Make a version of what is known. Tombstones stay in it here: on Spark they have a file of their own."""
        name = f"upto {state.deltas[-1].last}"
        self.versions[name] = Version(self.whole(state))
        self.journal.states.set_next_version(name, state.deltas[-1].last, None)

    def check(self, state):
        rows = self.whole(state)
        there = rows.filter(pc.invert(pc.fill_null(pc.equal(rows[CHANGE], "unsubscribe"), False)))
        assert len(there) == self.subscriptions - len(self.gone)
        found = dict(zip(there["id"].to_pylist(), there["lon"].to_pylist()))
        assert {key: lon for key, lon in found.items() if lon} == {
            key: lon for key, lon in self.lons.items() if lon
        }


def run_for(batches, subscriptions):
    """Return the costs of each micro-batch, the largest state, and the life."""
    life, costs, largest = Life(subscriptions), [], 0
    for number in range(batches):
        life.home.counts.clear()
        state = life.step(life.records(5))
        costs.append(Counter(life.home.counts))
        largest = max(largest, len(life.home.files[f"states/{number:012}.json"]))
        if life.journal.is_grown(state, subscriptions):
            life.compact(state)
    life.check(state)
    return costs, largest, life


@pytest.mark.parametrize(
    ("batches", "subscriptions"),
    [
        (600, 4_000),
        pytest.param(100_000, 1_000_000, marks=[pytest.mark.long, pytest.mark.timeout(7_200)]),
    ],
)
def test_the_hundred_thousandth_micro_batch_costs_what_the_first_hundred_did(batches, subscriptions, capsys):
    costs, largest, life = run_for(batches, subscriptions)
    window = batches // 4  # long enough for every merge to occur
    first, last = (
        {key: sum(each[key] for each in part) / len(part) for key in ("reads", "writes", "removes", "bytes")}
        for part in (costs[1:100], costs[-window:])
    )
    with capsys.disabled():
        sys.stdout.write(f"\nper micro-batch, the first hundred: {first}\nafter {batches:,}: {last}\n")
        sys.stdout.write(f"the largest state: {largest:,} B\n")
    for key, cost in last.items():
        assert cost <= 2 * first[key], key
    assert len(life.versions) > 2  # it was compacted several times
    assert sum(each["listed"] for each in costs[1:]) == 0
    assert max(each["bytes"] for each in costs) < 3_000_000  # no micro-batch pays for all
    assert largest < 8_192
    assert len(life.home.files) < 3 * config.LIVE_DELTA_FILES


def test_deltas_are_merged_in_tiers():
    deltas, merged = [], 0
    for number in range(5_000):
        start = _tier(deltas)
        if start < len(deltas):
            whole = Delta("", sum(delta.rows for delta in deltas[start:]), deltas[start].first, number - 1)
            merged += whole.rows
            assert whole.rows <= config.LIVE_MERGED_ROWS
            deltas[start:] = [whole]
        deltas.append(Delta("", 5, number, number))
    assert len(deltas) < 32
    assert merged < 6 * 25_000  # a row is written again a few times
    assert [delta.first for delta in deltas[1:]] == [delta.last + 1 for delta in deltas[:-1]]


def test_many_large_deltas_make_a_version_due():
    life = Life(1_000_000)
    state = life.step(life.records(5))
    assert not life.journal.is_grown(state, 1_000_000)
    large = tuple(Delta("", 60_000, number, number) for number in range(config.LIVE_DELTA_FILES + 1))
    assert _tier(large) == len(large)
    assert life.journal.is_grown(state._replace(deltas=large), 10**9)
    assert life.journal.is_grown(state._replace(deltas=(Delta("", 5, 0, config.LIVE_DELTA_BATCHES),)), 10**9)


def test_a_repeat_finds_its_state():
    life = Life(100)
    rows = life.records(9)
    first = life.step(rows)
    life.open()  # the driver is started again
    life.number = 0
    files = dict(life.home.files)
    assert life.step(rows[::-1]) == first
    assert life.home.files == files
    life.step([])
    life.number = 1
    life.step([])  # the same run may repeat its own
    life.check(life.journal.states.last)


def test_another_checkpoint_is_refused_by_name():
    life = Life(100, "one")
    life.step([])
    for number in (0, 1):
        life.open("two")
        life.number = number
        with pytest.raises(
            StorageError,
            match=r"belongs to the query query of one with the checkpoint one, .* the query query of two with the "
            "checkpoint two. Continue with that checkpoint, or give this query a home of its own",
        ):
            life.step([])
    assert life.journal.states.last.number == 0


def test_of_two_drivers_one_is_refused():
    life = Life(100)
    life.step([])
    first = life.journal, life.run
    life.open()  # a second one starts, and begins with a micro-batch that the first has begun, too
    life.number = 0
    life.step([])
    life.step(life.records(3))
    last = life.journal.states.last
    life.journal, life.run = first
    life.number = 1
    with pytest.raises(
        StorageError, match="another driver of the query query of c has started micro-batch 1"
    ):
        life.step([])
    life.journal.states.refresh()
    assert life.journal.states.last == last


def test_of_two_that_begin_a_micro_batch_at_once_one_decides():
    life = Life(100)
    life.step([])
    rows, run, journal = life.records(4), life.run, life.journal

    def meanwhile(last, now):
        life.open()
        life.step(rows)
        return last.valid

    table = pa.Table.from_pylist(
        rows, pa.schema([*SCHEMA, ("change", pa.string()), ("changed_at", pa.int64())])
    )
    with pytest.raises(StorageError, match="another driver"):
        journal.begin(1, table, run, lambda: 0, meanwhile)
    assert life.journal.states.last.owner == life.run


def test_records_that_differ_from_those_of_the_first_attempt_are_refused():
    life = Life(100)
    life.step(life.records(3))
    life.open()
    life.number = 0
    with pytest.raises(StorageError, match=r"micro-batch 0 in memory.* had other records of change"):
        life.step(life.records(3))


def test_a_home_from_a_copy_is_refused():
    life = Life(100)
    life.step([])
    life.number = 5
    with pytest.raises(
        StorageError, match="has started micro-batch 0, and this is micro-batch 5 of the same query"
    ):
        life.step([])
    fresh = Life(100)
    fresh.number = 5  # a new home may continue an old checkpoint
    fresh.step([])


def test_refused_records_are_counted_and_the_last_can_be_read(monkeypatch):
    monkeypatch.setattr("nearcast.config.LIVE_REFUSED", 10)
    life = Life(100)
    for step in range(5):
        state = life.step(
            [{"id": 1_000 + 10 * step + key, "change": "move", "changed_at": 1} for key in range(4)]
        )
    assert state.refused == 20
    last = life.journal.deltas.refused(state.refusals)
    assert (
        last["id"].to_pylist()
        == [str(1_000 + 10 * step + key) for step in (2, 3, 4) for key in range(4)][-10:]
    )
    assert last["batch"].to_pylist()[-5:] == [3, 4, 4, 4, 4]
    assert sum(name.startswith("refused/") for name in life.home.files) <= 2


def test_what_an_interrupted_driver_left_is_swept():
    life = Life(100)
    for _ in range(3):
        life.step(life.records(3))
    there = set(life.home.files)
    for part in ("deltas", "before", "gone", "refused"):
        (life.home / part).write("lost.parquet", b"")
    life.open()
    life.journal.sweep(1.0)
    assert set(life.home.files) == there
    before = [name for name in there if name.startswith("before/")]
    assert len(before) == 2  # of the micro-batches whose states are kept
    assert life.journal.states.last.valid == Snapshot((), 0, False)


def test_a_failing_compaction_waits_twice_as_long_each_time(caplog, monkeypatch):
    now = [0.0]
    monkeypatch.setattr("nearcast.spark.live.compaction.time.monotonic", lambda: now[0])
    compaction, works = Compaction(Memory(f"memory://{uuid.uuid4().hex}")), []

    def fail():
        works.append(now[0])
        raise OSError("full")

    for second in range(100):
        now[0] = float(second)
        compaction.start(fail)
        compaction.join()
    assert works == [0.0, 10.0, 30.0, 70.0]
    assert compaction.failed() == {"failures": 4, "error": "OSError: full"}
    assert "attempt 4 failed, the next one is in 80 s or later" in caplog.text
    now[0] = 1e9
    compaction.start(lambda: None)
    compaction.join()
    assert compaction.failed() == {"failures": 0, "error": None}
    compaction.start(fail)
    compaction.join()
    assert "attempt 1 failed, the next one is in 10 s" in caplog.records[-1].message


def test_a_second_compaction_does_not_start_beside_the_first():
    compaction, release = Compaction(Memory(f"memory://{uuid.uuid4().hex}")), threading.Event()
    assert compaction.start(release.wait)
    assert compaction.running
    assert not compaction.start(release.wait)
    release.set()
    compaction.join()
    assert not compaction.running
