"""Drivers and workers are killed, at exact and at random instants: nothing is lost, nothing is delivered twice.

Every run kills the driver at two exact instants; ``--long`` at a dozen, and at ``NEARCAST_KILLS`` random ones, which
``NEARCAST_SEED`` chooses.
"""

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from nearcast import Deliveries, MessageBatch, open_index
from nearcast.storage.manifest import read_manifest
from spark.faults import PROGRAMS, Driver, Home, environment, finish, until
from spark.worlds import in_process, message_table, pairs, subscription_table

KILLS = int(os.environ.get("NEARCAST_KILLS", 20))
SEED = int(os.environ.get("NEARCAST_SEED", 0))
QUERIES = ["plain", "spark", "live"]

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processes are found in /proc"),
    pytest.mark.timeout(600 + 120 * KILLS),
]

# In the order in which they are reached, each in the life of another driver. A kill in the middle of a micro-batch is
# followed by its repeat, and some instants are only there in a repeat. What is renamed, made or removed is a path below
# the home; "after" it, or else right before. The last column has those of every run.
INSTANTS = {
    "changes are written, the state is not": ("os.rename", "live/home/deltas/*", True, False),
    "the state is written, deliveries are not": ("os.link", "live/home/states/*[2-9].json", True, True),
    "deliveries are written aside": ("os.rename", "live/out/batch=*", False, False),
    "deliveries are there, the micro-batch is not committed": ("os.rename", "live/out/batch=*", True, True),
    "the first attempt has made way for the second": ("os.rename", "live/out/.batch=*", True, False),
    "a state that is over is removed": ("os.remove", "live/home/states/*", True, False),
    "a new version was begun": ("os.mkdir", "live/home/versions/auto-*", True, False),
    "a new version is complete, and does not count yet": (
        "os.link",
        "live/home/versions/auto-*/manifest.json",
        False,
        False,
    ),
    "a new version is there, and is not announced": ("os.rename", "live/home/ready.json", False, False),
    "a new version is announced": ("os.rename", "live/home/ready.json", True, False),
    "an index is built, and has no name yet": ("os.rename", "plain/versions/auto-*", False, False),
    "deliveries are there, and subscriptions do not change": ("os.rename", "plain/out/batch=*", True, False),
    "both attempts are there": ("shutil.rmtree", "plain/out/.batch=*", False, False),
}


@pytest.mark.parametrize("all_of_them", [False, pytest.param(True, marks=pytest.mark.long)])
def test_the_driver_is_killed_at_exact_instants(tmp_path, all_of_them):
    home = Home(tmp_path)
    home.arrive(3)
    queries = set()
    for name, (event, path, after, short) in INSTANTS.items():
        if short or all_of_them:
            query = path.partition("/")[0]
            queries.add(query)
            home.feed([query])
            die = {"event": event, "path": f"{tmp_path}/{path}", "after": after}
            with Driver(home, [query], die=die) as driver:
                for _ in range(8):  # some instants need more micro-batches than others
                    until(lambda: driver.process.poll() is not None or home.idle(query), name, 0.05)  # noqa: B023
                    if driver.process.poll() is not None:
                        break
                    time.sleep(3)  # a version may be in the making
                    home.arrive()
                assert driver.process.poll() is not None, f"{name}: it never came to that"
                assert driver.wait() == -signal.SIGKILL, f"{name}: {driver.said()}"
    finish(home, sorted(queries))


def wait_for_instant(driver, kind, query, begun, rng):
    """Return at a random instant of the wanted kind in the life of *query*, which had *begun* these micro-batches."""
    home = driver.home
    if kind == "start":
        time.sleep(rng.uniform(0, 6))
        return
    if kind == "inside":
        driver.until(lambda: home.logged(query, "offsets") > begun, f"a micro-batch of {query}")
        time.sleep(rng.exponential(0.4))
        return
    driver.until(driver.started.exists, "the start")
    if kind == "repeat":  # of the micro-batch that the last kill interrupted
        time.sleep(rng.uniform(0, 1))
    else:
        driver.until(lambda: home.idle(query), f"the end of {query}")
        time.sleep(rng.uniform(0, 0.05))


@pytest.mark.long
def test_the_driver_is_killed_at_random_instants(tmp_path):
    home, rng = Home(tmp_path, SEED), np.random.default_rng(SEED)
    kinds = ["inside", "between", "repeat", "inside", "inside", "start", "between"]
    hit = {query: Counter() for query in QUERIES}
    for kill in range(KILLS):
        slowest = home.feed(QUERIES)
        kind, query = kinds[kill % len(kinds)], ["live", "plain", "live", "spark"][kill % 4]
        if home.read(query) == home.arrived:
            query = slowest  # which has something to read
        begun = home.logged(query, "offsets")
        with Driver(home, QUERIES) as driver:
            wait_for_instant(driver, kind, query, begun, rng)
            started = driver.started.exists()
            driver.kill()
        for query in QUERIES:
            hit[query]["inside" if home.inside(query) else "between" if started else "starting"] += 1
    finish(home, QUERIES)
    print(*(f"{query}: {dict(counts)}" for query, counts in hit.items()), sep="\n")  # noqa: T201
    for where in ("inside", "between"):
        assert any(counts[where] for counts in hit.values()), f"no kill was {where}"


def test_workers_are_killed(tmp_path):
    """Spark gives the tasks of a lost worker to another one, if it may try a task more than once."""
    home = Home(tmp_path)
    home.arrive(3)
    with Driver(home, ["plain", "live"], master="local[2,4]", ends=True) as driver:
        for victim in ("worker", "daemon"):
            fuse = home.path / "fuses" / victim
            fuse.touch()
            driver.until(lambda: not fuse.exists(), f"the end of a {victim}")  # noqa: B023
        assert driver.wait() == 0, driver.said()
    home.check(["plain", "live"])


def test_a_task_that_fails_when_its_shard_is_written_is_repeated(tmp_path):
    """What the first attempt wrote does not count, and does not stop the second."""
    table, messages = subscription_table(), message_table(400).drop(["unasked"])
    pq.write_table(table, tmp_path / "subscriptions.parquet")
    fuse = tmp_path / "fuses" / "shard"
    fuse.parent.mkdir()
    fuse.touch()
    done = subprocess.run(
        [sys.executable, str(PROGRAMS / "fault_build.py"), str(tmp_path)],
        env=environment(tmp_path),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert not fuse.exists()  # a task did fail
    version = open_index(tmp_path / "versions", verify=True)
    batch = MessageBatch.from_arrow(messages, like=version)
    found = Deliveries.of(version.match(batch), batch.ids, version.ids).to_arrow()
    assert pairs(found) == in_process(messages, table)
    listed = {name.partition("/")[0] for name in read_manifest(version.place).files}
    assert set(version.place.children()) == listed | {"manifest.json"}  # the first attempt has left nothing


@pytest.mark.long
def test_workers_are_killed_where_nothing_is_tried_again(tmp_path):
    """The query fails with the first task that fails; when it is started again, it continues."""
    home = Home(tmp_path)
    for victim in ("worker", "daemon", "worker"):
        home.arrive(2)
        (home.path / "fuses" / victim).touch()
        with Driver(home, ["plain", "live"], ends=True) as driver:
            assert (driver.wait() == 0) == (victim == "daemon"), driver.said()
        assert not (home.path / "fuses" / victim).exists()
    finish(home, ["plain", "live"])
