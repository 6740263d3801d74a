"""What Spark's workers do, without Spark."""

import json
import subprocess
import sys
import textwrap
from collections import OrderedDict
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from nearcast import SubscriptionTable, build_index, config, text
from nearcast.columns.from_arrow import words
from nearcast.sharding.building import build_sharded
from nearcast.sharding.replica import CHANGE
from nearcast.storage.places import place_at, uri_of

pytest.importorskip("pyspark")

from nearcast.spark import worker


def test_an_index_from_which_rows_were_removed_delivers_to_those_behind_them(tmp_path):
    index = build_index("scan", SubscriptionTable.from_arrow({"expression": ["*"] * 4}))
    index.remove([0, 1])
    index.save(tmp_path / "saved")
    messages = pa.RecordBatch.from_pydict({"id": ["m"], "lon": [0.0], "lat": [0.0]})
    (found,) = worker.match_messages([messages], str(tmp_path / "saved"))
    assert found.to_pydict() == {"subscription_id": [2, 3], "message_id": ["m", "m"]}


def version_of(directory, subscriptions, **how):
    """Build a sharded version; return its URI."""
    build_sharded(place_at(directory), subscriptions, index="auto", **how)
    return str(directory)


def test_a_message_is_read_once_however_many_shards_it_is_sent_to(tmp_path, monkeypatch):
    subscriptions = pa.table({"id": [f"s{i:02}" for i in range(40)], "keywords": [["日本"], ["tea"]] * 20})
    version = version_of(tmp_path / "version", subscriptions, distribution="hash", shards=4)
    messages = pa.RecordBatch.from_pydict(
        {"id": [1, 2], "lon": [0.0, 1.0], "lat": [0.0, 1.0], "text": ["日本 tea", "日本"]}
    )
    split, texts = text.tokens, []

    def counted(one):
        texts.append(one)
        return split(one)

    monkeypatch.setattr(words.text, "tokens", counted)  # of texts that are not ASCII
    sent = list(worker.send_messages([messages], version))
    assert sum(map(len, sent)) == 8
    assert "text" not in sent[0].schema.names
    found = pa.Table.from_batches(worker.match_sent(sent, version))
    assert sorted(found["message_id"].to_pylist()) == [1] * 40 + [2] * 20
    assert texts == ["日本 tea", "日本"]


# Subscriptions that all messages match, as one index, and in two shards that both have all of them.
HUNGRY = """
    import json, sys
    import numpy as np, pyarrow as pa
    from nearcast.spark import worker

    way, version, quiet, loud = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    size = quiet + loud
    lon = np.where(np.arange(size) % 2, 30.0, -30.0)
    ids = [f"message {i}" for i in range(size)]
    said = ["nothing"] * quiet + ["tea"] * loud
    messages = pa.RecordBatch.from_pydict({"id": ids, "lon": lon, "lat": np.zeros(size), "text": said})

    def deliveries(batch):
        if way == "whole":
            return worker.match_messages([batch], version)
        return worker.match_sent(worker.send_messages([batch], version), version)

    def memory(field):
        return int(open("/proc/self/status").read().partition(field + ":")[2].split()[0]) * 1024

    first = sum(map(len, deliveries(messages.slice(quiet - 2 if quiet else 0, 4))))  # opens everything
    open("/proc/self/clear_refs", "w").write("5")  # what it took to compile kernels is no peak of matching
    before = memory("VmRSS")
    found = sum(map(len, deliveries(messages)))
    print(json.dumps({"found": found, "grown": memory("VmHWM") - before}))
"""


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="memory is measured as on Linux")
@pytest.mark.parametrize("way", ["whole", "shards"])
@pytest.mark.parametrize(
    ("quiet", "loud"),
    # The worst is that messages which match nobody, of which many are matched at once, are followed by those of all.
    [(4_000, 2_048), pytest.param(0, 10_000, marks=pytest.mark.long)],
)
def test_messages_with_ten_thousand_matches_each_take_little_memory(tmp_path, way, quiet, loud):
    size = 10_000
    subscriptions = pa.table(
        {"id": [f"subscription {i:05}" for i in range(size)], "keywords": [["tea"]] * size}
    )
    if way == "whole":
        version = str(build_index(SubscriptionTable.from_arrow(subscriptions)).save(tmp_path / "version"))
    else:
        how = {"distribution": "location", "shards": 2}
        places = pa.table({"id": np.arange(50), "lon": np.linspace(-50, 50, 50), "lat": np.zeros(50)})
        version = version_of(tmp_path / "version", subscriptions, messages=places, **how)
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(HUNGRY), way, version, str(quiet), str(loud)],
        capture_output=True,
        text=True,
        check=True,
    )
    figures = json.loads(done.stdout)
    assert figures["found"] == loud * size
    assert figures["grown"] < 500e6, figures


def changed_version(directory, subscriptions, shards):
    """Build a version, and a delta that changes each of its shards; return both."""
    table = pa.table({"id": np.arange(subscriptions), "keywords": [["tea"], ["milk"]] * (subscriptions // 2)})
    version = version_of(directory / "version", table, distribution="hash", shards=shards)
    changes = table.slice(0, 100).append_column(CHANGE, pa.array(["update"] * 50 + ["unsubscribe"] * 50))
    pq.write_table(changes, directory / "0-0-a.parquet")
    return version, [uri_of(directory / "0-0-a.parquet")]


def test_a_worker_closes_what_it_did_not_use_for_long_if_it_holds_too_much(tmp_path, monkeypatch):
    monkeypatch.setattr(worker, "_versions", OrderedDict())
    version, deltas = changed_version(tmp_path, 20_000, 5)
    messages = pa.RecordBatch.from_pydict({"id": [1], "lon": [0.0], "lat": [0.0], "keywords": [["tea"]]})

    def matched(digest, deltas):
        sent = list(worker.send_messages([messages], version, digest, deltas))
        found = pa.Table.from_batches(worker.match_sent(sent, version, digest, deltas))
        return sorted(found["subscription_id"].to_pylist())

    def replicas():
        return [each for opened in worker._versions.values() for each in opened.replicas.values()]

    for digest in "abcdef":
        assert matched(digest, []) == list(range(0, 20_000, 2))
    assert len(replicas()) == 5 * config.SPARK_OPEN_INDEXES  # their pages are those of files
    assert sum(each.private_bytes for each in replicas()) == 0
    expected = [*range(0, 50, 2), *range(100, 20_000, 2)]
    assert matched("f", deltas) == expected
    one = max(each.private_bytes for each in replicas())
    assert one > 4_000 * 12
    monkeypatch.setattr(config, "SPARK_REPLICA_BYTES", 3 * one)
    for digest in "fabc":
        for _ in range(2):
            assert matched(digest, deltas) == expected
        assert 2 * one <= sum(each.private_bytes for each in replicas()) <= 4 * one


def test_what_changes_in_a_shard_costs_a_few_bytes_for_each_of_its_subscriptions(tmp_path):
    version, deltas = changed_version(tmp_path, 40_000, 1)
    replica = worker._sharded(version, "").replica(0)
    replica.follow(deltas)
    assert replica._changes.nbytes < 14 * 40_000
