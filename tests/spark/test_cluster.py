"""Two hosts that share no disk with each other or with the driver: the same deliveries as in one process."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from nearcast import Circle, Engine, ManualClock, Message, Point, Subscription
from spark import cluster_driver
from spark import hosts as clusters
from spark.worlds import in_process, message_table, pairs, subscription_table, write_files

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

PAGE = Path(__file__).parents[2] / "docs" / "cluster.md"


@pytest.fixture(scope="module")
def hosts(tmp_path_factory, s3_server):
    if not clusters.can_be_apart():
        give_up = pytest.fail if os.environ.get("NEARCAST_REQUIRE_HOSTS") == "1" else pytest.skip
        give_up("this user may not make mount namespaces, so hosts would share their disks")
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


def test_build_and_match_without_a_shared_disk(hosts, tmp_path, s3):
    subscriptions, messages = subscription_table(), message_table()
    write_files(subscriptions, tmp_path / "subscriptions", 2)
    write_files(messages, tmp_path / "messages", 3)
    (hosts.disk / "mark").touch()
    assert not any(hosts.sees(number, hosts.disk / "mark") for number in range(2))
    found = drive(hosts, "batch", str(tmp_path), s3)
    assert counted(found["batch"]) == in_process(messages, subscriptions)
    assert counted(found["stream"]) == counted(found["streamed"])
    assert found["stream"]


def test_the_commands_of_the_page(hosts, tmp_path, s3):
    """What the page has under "Standalone", with the address of this master and another bucket."""
    subscriptions, messages = subscription_table(), message_table()
    write_files(subscriptions, tmp_path / "subscriptions.parquet", 2)
    write_files(messages, tmp_path / "messages.parquet", 3)
    _, recipe = PAGE.read_text().split("## Standalone", 1)
    commands = re.findall("^nearcast .*", recipe.split("```")[1], re.M)
    assert [shlex.split(command)[1] for command in commands] == ["build", "match"]
    for command in commands:
        here = command.replace("s3://bucket", s3).replace("spark://127.0.0.1:7077", hosts.address)
        ran = subprocess.run(
            [sys.executable, "-m", *shlex.split(here)],
            cwd=tmp_path,
            env=hosts.environment,
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
        assert ran.returncode == 0, ran.stderr
    assert pairs(pq.read_table(tmp_path / "deliveries")) == in_process(messages, subscriptions)


def numbers(batch, side):
    """Return the numbers that the rows of a micro-batch are made from, as the driver does in SQL."""
    size = cluster_driver.PER_BATCH[side]
    return range(batch * size, (batch + 1) * size)


def expected_lives(batches):
    """Return the deliveries of each micro-batch, by an engine that is told the same in the same order."""
    engine = Engine(clock=ManualClock(0))
    engine.subscribe(
        pa.table(dict(zip(("id", "expression", "lon", "lat", "radius_m"), zip(*cluster_driver.FIRST))))
    )

    there = {first[0] for first in cluster_driver.FIRST}
    for number in range(batches):
        told = []
        for value in numbers(number, "changes"):
            change = ("subscribe", "update", "move", "unsubscribe", "subscribe")[value * 7 % 5]
            id, expression = f"s{value % 15}", ("tea", "coffee", "cake")[value % 3]
            if change == "unsubscribe" or (change == "move" and id not in there):
                if id in there and change == "unsubscribe":
                    engine.unsubscribe(id)
                    there.discard(id)
                continue
            circle = Circle(lon=value * 13 % 100 / 100, lat=value * 29 % 100 / 100, radius=40_000)
            if change == "move":
                found = engine.move([id], [circle])
            elif id in there:
                found = engine.update(Subscription(id, expression, circle))
            else:
                found = engine.subscribe(Subscription(id, expression, circle))
                there.add(id)
            told += [[d.message_id, d.subscription_id] for d in found if d.change == "+"]
        for value in numbers(number, "messages"):
            text = ("tea", "coffee", "cake with tea")[value % 3]
            place = Point(lon=value * 37 % 100 / 100, lat=value * 61 % 100 / 100)
            expires = cluster_driver.EXPIRES if value % 2 == 0 else None
            message = Message(f"m{value}", text, place, expires_at=expires)
            told += [[d.message_id, d.subscription_id] for d in engine.publish(message)]
        yield sorted(told)


@pytest.mark.parametrize("driver_is_lost", [False, pytest.param(True, marks=pytest.mark.long)])
def test_changes_and_a_lost_executor(hosts, s3, driver_is_lost):
    out = hosts.disk / ("lost" if driver_is_lost else "live")
    out.mkdir()
    driver = drive(hosts, "live", f"{s3}/live", str(out), "20", wait=False)
    try:
        clusters.wait_for(lambda: driver.poll() is not None or (out / "1").exists(), "two micro-batches", [])
        assert driver.poll() is None, driver.communicate()[1][-5000:]
        assert hosts.kill_executor(0)
        clusters.wait_for(lambda: (out / "3").exists(), "micro-batches after an executor was lost", [driver])
    finally:
        driver.kill()
        driver.communicate()
    if driver_is_lost:
        drive(hosts, "live", f"{s3}/live", str(out), "5")
    batches = 6 if driver_is_lost else 4
    expected = list(expected_lives(batches))
    assert [json.loads((out / str(number)).read_text()) for number in range(batches)] == expected
    assert all(expected)


@pytest.fixture(scope="module")
def strangers(s3_server):
    """Hosts whose workers run as nobody; their home is not below pytest's, which is closed to others."""
    if not clusters.can_be_apart() or shutil.which("setpriv") is None:
        pytest.skip("this user may not run processes as another one")
    with tempfile.TemporaryDirectory() as directory:
        home = Path(directory)
        home.chmod(0o755)
        with clusters.running(home, user=clusters.NOBODY) as found:
            found.shared = home / "shared"
            yield found


@pytest.mark.long
class TestExecutorsOfAnotherUser:
    """They own nothing that the driver has, and have nothing in common with it but storage."""

    def test_build_and_match(self, strangers, tmp_path, s3):
        subscriptions, messages = subscription_table(), message_table()
        write_files(subscriptions, tmp_path / "subscriptions", 2)
        write_files(messages, tmp_path / "messages", 3)
        found = drive(strangers, "batch", str(tmp_path), s3)
        assert counted(found["batch"]) == in_process(messages, subscriptions)
        assert counted(found["stream"]) == counted(found["streamed"])

    def test_changes(self, strangers, s3):
        out = strangers.disk / "live"
        out.mkdir()
        driver = drive(strangers, "live", f"{s3}/live", str(out), "20", wait=False)
        try:
            clusters.wait_for(lambda: (out / "1").exists(), "two micro-batches", [driver])
            assert [strangers.users(number) for number in range(2)] == [{clusters.NOBODY}] * 2
            assert strangers.kill_executor(0)
            clusters.wait_for(lambda: (out / "3").exists(), "an executor was lost", [driver])
        finally:
            driver.kill()
            said = driver.communicate()[1]
        told = [json.loads((out / str(number)).read_text()) for number in range(4)]
        assert told == list(expected_lives(4)), said[-3000:]

    def test_a_version_on_a_disk_that_all_mount(self, strangers, tmp_path):
        """Readable as the umask of the driver says, and by nobody if that says so."""
        subscriptions, messages = subscription_table(), message_table()
        write_files(subscriptions, tmp_path / "subscriptions", 2)
        write_files(messages, tmp_path / "messages", 3)
        before = os.umask(0o022)
        try:
            found = drive(strangers, "shared", str(tmp_path), str(strangers.shared / "open"))
            os.umask(0o077)
            with pytest.raises(AssertionError, match="Permission denied"):
                drive(strangers, "shared", str(tmp_path), str(strangers.shared / "closed"))
        finally:
            os.umask(before)
        assert counted(found) == in_process(messages, subscriptions)
