"""Replicas of shards: the same answers as an index that is built anew, whichever rows the index gives to newcomers."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from nearcast import Matches, MessageBatch, SubscriptionTable, build_index
from nearcast.sharding.building import build_sharded
from nearcast.sharding.replica import CHANGE, Replica, Router
from nearcast.sharding.version import ShardedVersion
from nearcast.storage.places import place_at, uri_of

WORDS = ["coffee", "tea", "sale", "flood", "concert"]
SHARDS = 3


class ReusingIndex:
    """An index that gives the rows of removed subscriptions to newcomers, the row that was freed last first.

    The index behind it may reuse rows or not: it is asked in its own rows, and the answers are translated.
    """

    def __init__(self, index):
        self.index, self.free = index, []
        self.inner = np.arange(len(index))  # the row in the index behind this one, for each row here
        self.reused = 0

    @property
    def coding(self):
        return self.index.coding

    def remove(self, rows):
        self.index.remove(self.inner[rows])
        self.inner[rows] = -1
        self.free += np.asarray(rows).tolist()

    def insert(self, table):
        size = len(self.inner)
        again = [self.free.pop() for _ in range(min(len(table), len(self.free)))]
        self.reused += len(again)
        rows = np.array([*again, *range(size, size + len(table) - len(again))], np.int32)
        self.inner = np.concatenate([self.inner, np.full(len(table) - len(again), -1)])
        self.inner[rows] = self.index.insert(table)
        return rows

    def match(self, batch):
        found = self.index.match(batch)
        row_of = np.full(self.inner.max(initial=-1) + 1, -1, np.int32)
        present = np.flatnonzero(self.inner >= 0)
        row_of[self.inner[present]] = present
        return Matches(found.offsets, row_of[found.rows])


class ReusingVersion(ShardedVersion):
    """A sharded version whose indexes reuse rows."""

    def open_shard(self, number):
        shard = super().open_shard(number)
        return shard._replace(matcher=ReusingIndex(shard.matcher))


def subscription(rng, key):
    x, y, size = rng.uniform(-10, 10), rng.uniform(-10, 10), rng.uniform(1, 8)
    words = " OR ".join(rng.choice(WORDS, 2, replace=False))
    return {"id": key, "expression": words, "xmin": x, "ymin": y, "xmax": x + size, "ymax": y + size}


def table_of(subscriptions):
    return pa.Table.from_pylist(sorted(subscriptions.values(), key=lambda row: row["id"]))


def message_rows(rng, size=200):
    keywords = [rng.choice(WORDS, 2).tolist() for _ in range(size)]
    lon, lat = rng.uniform(-11, 11, (2, size))
    return pa.table({"id": np.arange(size), "lon": lon, "lat": lat, "keywords": keywords})


def write_version(directory, table, distribution):
    build_sharded(place_at(directory), table, index="scan", distribution=distribution, shards=SHARDS)
    return directory


def write_delta(rng, path, subscriptions, step):
    """Change some subscriptions of every kind: newcomers, others in the place of the old ones, some that leave."""
    picks = rng.choice(sorted(subscriptions), 12, replace=False).tolist()
    gone, updated, newcomers = picks[:6], picks[6:], [f"new{step}-{i}" for i in range(2 + 4 * (step % 3))]
    rows = [{"id": key, CHANGE: "unsubscribe"} for key in gone]
    for key in gone:
        del subscriptions[key]
    for key, change in [*((key, "update") for key in updated), *((key, "subscribe") for key in newcomers)]:
        subscriptions[key] = subscription(rng, key)
        rows.append({**subscriptions[key], CHANGE: change})
    fields = [*table_of(subscriptions).schema, pa.field(CHANGE, pa.string())]
    pq.write_table(pa.Table.from_pylist(rows, pa.schema(fields)), path)
    return path


def delivered(replicas, router, messages):
    """The pairs that all shards deliver, one by one: a pair that two shards deliver would be there twice."""
    coded = router.messages(messages)
    sent = router.distribution.route_messages(coded)
    found = []
    for number, replica in enumerate(replicas):
        rows = sent.rows[sent.shards == number]
        lists = [sent.shards[sent.offsets[row] : sent.offsets[row + 1]] for row in rows]
        offsets = np.cumsum([0, *map(len, lists)])
        routes = type(sent)(offsets, np.concatenate([*lists, np.empty(0, np.int32)]))
        matches = replica.match(coded.take(rows), routes)
        ids = replica.ids_of(matches.rows).to_pylist()
        found += zip(ids, rows[matches.messages].tolist())
    return sorted(found)


def expected(subscriptions, messages):
    table = SubscriptionTable.from_arrow(table_of(subscriptions))
    found = build_index("scan", table).match(MessageBatch.from_arrow(messages, like=table))
    return sorted(zip(table.ids.take(pa.array(found.rows)).to_pylist(), found.messages.tolist()))


@pytest.mark.parametrize("distribution", ["hash", "location", "keyword"])
@pytest.mark.parametrize("version_class", [ShardedVersion, ReusingVersion])
def test_replicas_deliver_what_a_new_index_delivers(tmp_path, distribution, version_class):
    rng = np.random.default_rng(7)
    subscriptions = {key: subscription(rng, key) for key in (f"s{i:02}" for i in range(60))}
    directory = write_version(tmp_path / "version", table_of(subscriptions), distribution)
    version = version_class(directory)
    router = Router(version)
    replicas = [Replica(version, number, router) for number in range(SHARDS)]
    deltas, answers = [], []
    for step in range(8):
        messages = message_rows(rng)
        for replica in replicas:
            replica.follow(deltas)
        answers.append((list(deltas), messages, delivered(replicas, router, messages)))
        assert answers[-1][2] == expected(subscriptions, messages)
        name = f"{step:012}-{step:012}-x.parquet"
        deltas.append(uri_of(write_delta(rng, tmp_path / name, subscriptions, step)))
    if version_class is ReusingVersion:
        assert sum(replica._index.reused for replica in replicas) > 50
    # A repeat goes back to fewer deltas, and gets the same answers.
    for earlier, messages, answer in (answers[5], answers[2]):
        for replica in replicas:
            replica.follow(earlier)
        assert delivered(replicas, router, messages) == answer
