"""What Spark's workers do, without Spark."""

import json
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from nearcast import SubscriptionTable, build_index, text
from nearcast.columns.from_arrow import words
from nearcast.sharding.building import build_sharded
from nearcast.storage.places import place_at

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
    import json, resource, sys
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

    first = sum(map(len, deliveries(messages.slice(quiet - 2 if quiet else 0, 4))))  # opens everything
    status = open("/proc/self/status").read()
    before = int(status.partition("VmRSS:")[2].split()[0]) * 1024
    found = sum(map(len, deliveries(messages)))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps({"found": found, "grown": peak - before}))
"""


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="memory is measured as on Linux")
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
