"""Two hosts that share no disk with each other or with the driver: the same deliveries as in one process."""

import json
import subprocess
import sys
from collections import Counter

import pyarrow as pa
import pytest

from nearcast import Circle, Engine, ManualClock, Message, Point, Subscription
from spark import cluster_driver
from spark import hosts as clusters

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def hosts(tmp_path_factory, s3_server):
    if not clusters.can_be_apart():
        pytest.skip("this user may not make mount namespaces, so hosts would share their disks")
    with clusters.running(tmp_path_factory.mktemp("hosts")) as found:
        yield found


def drive(hosts, *arguments, wait=True):
    """Run a driver, which has a disk of its own too; return its process, or what it has found."""
    command = [sys.executable, "-m", "spark.cluster_driver", hosts.address, *arguments]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=hosts.environment, cwd="tests"
    )
    if not wait:
        return process
    out, errors = process.communicate(timeout=240)
    assert process.returncode == 0, errors[-5000:]
    return json.loads(out.splitlines()[-1])


def counted(pairs):
    return Counter(map(tuple, pairs))


def test_build_and_match_without_a_shared_disk(hosts, world, s3):
    (hosts.disk / "mark").touch()
    assert not any(hosts.sees(number, hosts.disk / "mark") for number in range(2))
    found = drive(hosts, "batch", str(world.home), s3)
    assert counted(found["batch"]) == world.expected
    assert counted(found["stream"]) == counted(found["streamed"])
    assert found["stream"]


def expected_lives(spark, batches):
    """Return the deliveries of each micro-batch, by an engine that is told the same in the same order."""
    engine = Engine(clock=ManualClock(0))
    engine.subscribe(
        pa.table(dict(zip(("id", "expression", "lon", "lat", "radius_m"), zip(*cluster_driver.FIRST))))
    )

    def rows(columns, number, size):
        values = spark.range(number * size, (number + 1) * size).withColumnRenamed("id", "value")
        return [row.asDict() for row in values.selectExpr("value", *cluster_driver._split(columns)).collect()]

    there = {first[0] for first in cluster_driver.FIRST}
    for number in range(batches):
        told = []
        for row in rows(cluster_driver.CHANGES, number, cluster_driver.PER_BATCH["changes"]):
            change, id = row["change"], row["id"]
            if change == "unsubscribe" or (change == "move" and id not in there):
                if id in there and change == "unsubscribe":
                    engine.unsubscribe(id)
                    there.discard(id)
                continue
            circle = Circle(lon=row["lon"], lat=row["lat"], radius=row["radius_m"])
            if change == "move":
                found = engine.move([id], [circle])
            elif id in there:
                found = engine.update(Subscription(id, row["expression"], circle))
            else:
                found = engine.subscribe(Subscription(id, row["expression"], circle))
                there.add(id)
            told += [[d.message_id, d.subscription_id] for d in found if d.change == "+"]
        for row in rows(cluster_driver.MESSAGES, number, cluster_driver.PER_BATCH["messages"]):
            expires = cluster_driver.EXPIRES if row["value"] % 2 == 0 else None
            message = Message(
                row["id"], row["text"], Point(lon=row["lon"], lat=row["lat"]), expires_at=expires
            )
            told += [[d.message_id, d.subscription_id] for d in engine.publish(message)]
        yield sorted(told)


def test_changes_a_lost_executor_and_a_lost_driver(hosts, spark, s3):
    out = hosts.disk / "live"
    out.mkdir()
    driver = drive(hosts, "live", f"{s3}/live", str(out), "20", wait=False)
    clusters.wait_for(lambda: (out / "2").exists(), "three micro-batches", [driver])
    assert hosts.kill_executor(0) == 1
    clusters.wait_for(lambda: (out / "5").exists(), "micro-batches after an executor was lost", [driver])
    driver.kill()
    driver.wait()
    drive(hosts, "live", f"{s3}/live", str(out), "8")
    expected = list(expected_lives(spark, 9))
    assert [json.loads((out / str(number)).read_text()) for number in range(9)] == expected
    assert all(expected)
