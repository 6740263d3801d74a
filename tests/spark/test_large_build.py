"""``python -m benchmarks build``: its work on a few subscriptions, and that it would notice a wrong answer."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import large_build
from nearcast.spark import build, versions

pytestmark = pytest.mark.spark

SUBSCRIPTIONS = 3_000
ROOT = Path(__file__).parents[2]

# The command, with so few subscriptions that the driver would build them all by itself.
COMMAND = """
import sys
from benchmarks.papers.commands import app
from nearcast import config

config.SPARK_DRIVER_ROWS = 1_000
app(sys.argv[1:])
"""


@pytest.fixture
def by_tasks(monkeypatch):
    monkeypatch.setattr("nearcast.config.SPARK_DRIVER_ROWS", SUBSCRIPTIONS // 3)
    monkeypatch.setattr(versions, "build_sharded", None)  # the driver's own way would fail


def test_a_few_thousand_are_built_by_tasks_matched_and_compared(spark, by_tasks, tmp_path):
    steps = []

    def tell(step, share):
        steps.append((share, step))

    found = large_build.measured(spark, tmp_path, SUBSCRIPTIONS, 400, 3, "location", tell)
    assert steps == sorted(steps)
    assert found["mismatches"] == []
    assert found["checked"] >= 20  # each message finds the subscription that it was made from
    assert found["stored"] >= found["subscriptions"] == SUBSCRIPTIONS
    assert found["messages_per_second"] > 0
    assert found["building"]["driver's Python"] > 10e6
    assert large_build.table(found | {"cores": 2}).row_count > 8


def test_a_version_that_lacks_a_subscription_is_noticed(spark, tmp_path):
    """The version is built without one of the subscriptions that messages are made from."""
    rows = spark.createDataFrame(
        [(f"s{number}", ["w1"], 0.0, 0.0, 1.0, 1.0) for number in range(10)],
        "id string, keywords array<string>, xmin double, ymin double, xmax double, ymax double",
    )
    without = build(rows.where("id <> 's4'"), tmp_path / "without", distribution="location", shards=2)
    assert large_build.compare(rows, without) == (100, ["match differs from SQL"])


def test_processes_of_another_cluster_are_not_counted():
    """Of two that look like executors, only the one that this process has started is."""
    sleeping = [sys.executable, "-c", "import sys; sys.stdin.read()", "CoarseGrainedExecutorBackend"]
    pipe = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    starting = 'exec 3<&0; "$@" <&3 >&2 & echo $!'  # a shell that ends at once, so that its child is nobody's
    with (
        subprocess.Popen(["sh", "-c", starting, "sh", *sleeping], **pipe) as shell,
        subprocess.Popen(sleeping, **pipe) as ours,
    ):
        other = int(shell.stdout.readline())
        shell.wait()
        os.kill(other, 0)  # it is there
        found = large_build._descendants(os.getpid())
        assert ours.pid in found
        assert other not in found
        assert [name for name, size in large_build._shares() if size].count("executor's Java") == 1


@pytest.mark.long
def test_the_command_watches_every_process_of_its_cluster(tmp_path):
    written = tmp_path / "run.json"
    how = ["--subscriptions", SUBSCRIPTIONS, "--messages", 400, "--shards", 2, "--executor", 512]
    subprocess.run(
        [sys.executable, "-c", COMMAND, "build", tmp_path / "home", *map(str, how), "--json", written],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        check=True,
        timeout=250,
    )
    figures = json.loads(written.read_text())
    for work in ("building", "matching"):
        for process in ("driver's Java", "driver's Python", "executor's Java", "executor's Python"):
            assert figures[work][process] > 10e6, (work, process)
        parts = figures[work]["executor's Java"] + figures[work]["executor's Python"]
        assert figures[work]["executor's Java"] < figures[work]["executor, all"] <= parts
    assert figures["mismatches"] == []
