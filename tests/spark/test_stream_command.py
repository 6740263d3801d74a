"""``nearcast stream`` as a whole: raw messages and a quarantine, changing subscriptions, impossible arguments."""

import json
import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from nearcast.cli import app, endpoints, pipeline, stream
from nearcast.cli.monitor import QueryMonitor
from nearcast.errors import InputError
from nearcast.spark import build
from nearcast.storage.places import place_at
from spark.worlds import in_process, pairs, write_files

pytestmark = pytest.mark.spark

SCHEMA = "id long, lon double, lat double, keywords array<string>, price double, brand string"


def run(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def summary(*arguments):
    ran = run(*arguments, "--trigger", "once", "--json")
    assert ran.exit_code == 0, ran.stderr
    return json.loads(ran.stdout)


def write_lines(path, rows):
    """Write objects as JSON lines, and strings as they are; the file appears in one step."""
    path.parent.mkdir(exist_ok=True)
    draft = path.with_name(f".{path.name}")
    draft.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    draft.rename(path)


def rows_of(table):
    return table.drop(["unasked"]).to_pylist()


def repeat(checkpoint, number):
    """Forget that a micro-batch was committed, as if the driver had died before."""
    (checkpoint / "commits" / str(number)).unlink()
    (checkpoint / "commits" / f".{number}.crc").unlink(missing_ok=True)


@pytest.fixture
def subscriptions(spark, world):
    """The session of the tests is active, and the commands use it."""
    return world.home / "subscriptions"


def test_lines_that_are_no_messages(world, subscriptions, tmp_path):
    """JSON lines: good ones are matched, bad ones kept with the reason; a repeated micro-batch changes neither."""
    few = world.message_table.slice(0, 300)
    bad = ["{oops", {"id": 1, "lon": 0, "lat": 91.0, "keywords": []}, {"lon": 0, "lat": 0, "keywords": []}]
    write_lines(tmp_path / "in" / "1.jsonl", [*rows_of(few), *bad])
    checkpoint, out = tmp_path / "checkpoint", tmp_path / "out"
    command = ("stream", tmp_path / "in", subscriptions, out, "--checkpoint", checkpoint)
    expected = in_process(few, world.subscription_table)
    for _ in range(2):
        done = summary(*command)
        counted = done["messages"], done["deliveries"], done["quarantined"], done["batches"]
        assert counted == (303, sum(expected.values()), 3, 1)
        assert pairs(pq.read_table(out)) == expected
        kept = pq.read_table(checkpoint / "quarantine").to_pylist()
        assert {row["reason"]: row["original"] for row in kept} == {
            "malformed": "{oops",
            "place": json.dumps({"id": 1, "keywords": [], "lat": 91.0, "lon": 0.0}),
            "no-id": json.dumps({"keywords": [], "lat": 0.0, "lon": 0.0}),
        }
        assert len(kept) == 3
        repeat(checkpoint, 0)


def test_so_many_micro_batches_stay(world, subscriptions, tmp_path):
    rows = world.message_table.slice(0, 90)
    for number in range(3):
        write_files(rows.slice(30 * number, 30), tmp_path / "in", 1, start=number)
    command = ("stream", tmp_path / "in", subscriptions, tmp_path / "out", "--checkpoint", tmp_path / "c")
    assert summary(*command, "--option", "maxFilesPerTrigger=1", "--most", "2")["batches"] == 3
    assert sorted(each.name for each in (tmp_path / "out").iterdir()) == ["batch=1", "batch=2"]


def test_a_message_that_cannot_be_stops_the_stream_or_is_put_aside(world, subscriptions, tmp_path):
    few = world.message_table.slice(0, 200)
    wrong = few.set_column(2, "lat", pc.if_else(pa.array([i == 7 for i in range(200)]), 91.0, few["lat"]))
    write_files(wrong, tmp_path / "in", 1)
    command = ("stream", tmp_path / "in", subscriptions, tmp_path / "out", "--checkpoint", tmp_path / "c")
    broken = run(*command, "--trigger", "once")
    assert broken.exit_code == 1
    assert "10000000007" in broken.stderr
    assert "--prepare" in broken.stderr
    assert broken.stderr.count("\n") == 1
    done = summary(*command, "--quarantine", tmp_path / "aside")
    assert (done["messages"], done["quarantined"]) == (200, 1)
    right = few.filter(pc.not_equal(few["id"], 10_000_000_007))
    assert pairs(pq.read_table(tmp_path / "out")) == in_process(right, world.subscription_table)
    (row,) = pq.read_table(tmp_path / "aside").to_pylist()
    assert (row["id"], row["reason"]) == (10_000_000_007, "place")


def test_csv_by_its_pattern_and_schema(world, subscriptions, tmp_path):
    """The directory is empty at the start, so the ending of the path decides; cells have the types of --schema."""
    few = world.message_table.slice(0, 50)
    lines = [f"{row['id']},{row['lon']},{row['lat']},{' '.join(row['keywords'])}" for row in rows_of(few)]
    where, schema = tmp_path / "in" / "*.csv", "id long, lon double, lat double, text string"
    (tmp_path / "in").mkdir()
    command = ("stream", where, subscriptions, tmp_path / "out", "--checkpoint", tmp_path / "c")
    assert summary(*command, "--schema", schema)["messages"] == 0
    write_lines(tmp_path / "in" / "1.csv", ["id,lon,lat,text", *lines, "1,east,0,tea"])
    done = summary(*command, "--schema", schema)
    assert (done["messages"], done["quarantined"]) == (51, 1)
    plain = few.select(["id", "lon", "lat", "keywords"])
    assert pairs(pq.read_table(tmp_path / "out")) == in_process(plain, world.subscription_table)


CHANGES = [
    {"change": "subscribe", "id": "new", "changed_at": "2026-11-16T08:00:00Z", "expression": "*"},
    {"change": "unsubscribe", "id": "s1", "changed_at": "1794816000000000"},
    {"change": "move", "id": "nobody", "changed_at": 3, "lon": 0, "lat": 0, "radius_m": 5},
    "{oops",
]


def test_subscriptions_that_change(world, subscriptions, tmp_path, monkeypatch):
    """Raw messages and raw records of change: those that cannot be used are kept, and counted."""
    names = []
    monkeypatch.setattr(
        pipeline, "QueryMonitor", lambda query: (names.append(query.name), QueryMonitor(query))[1]
    )
    first, second = (rows_of(world.message_table.slice(at, 100)) for at in (0, 100))
    write_lines(tmp_path / "in" / "1.jsonl", [*first, "{oops"])
    (tmp_path / "changes").mkdir()
    checkpoint, out = tmp_path / "checkpoint", tmp_path / "out"
    command = (
        "stream", tmp_path / "in", subscriptions, out, "--checkpoint", checkpoint,
        "--changes", tmp_path / "changes" / "*.jsonl", "--quarantine", tmp_path / "aside", "--name", "notices",
    )  # fmt: skip
    done = summary(*command)
    assert names == ["notices", "notices quarantine"]
    assert (done["messages"], done["quarantined"], done["changes"], done["refused"]) == (101, 1, 0, 0)
    before = in_process(world.message_table.slice(0, 100), world.subscription_table)
    assert (pairs(pq.read_table(out)), done["deliveries"]) == (before, sum(before.values()))

    write_lines(tmp_path / "changes" / "1.jsonl", CHANGES)
    write_lines(tmp_path / "in" / "2.jsonl", second)
    done = summary(*command)
    assert (done["messages"], done["quarantined"], done["changes"], done["refused"]) == (100, 0, 4, 2)
    after = in_process(world.message_table.slice(100, 100), world.subscription_table)
    after = {pair: 1 for pair in after if pair[1] != "s1"} | {(row["id"], "new"): 1 for row in second}
    assert pairs(pq.read_table(out)) == before + pairs_of(after)
    refused = pq.read_table(checkpoint / "live" / "refused").to_pylist()
    assert {row["change"]: row["reason"] for row in refused} == {"move": "unknown", "{oops": "change"}
    (row,) = pq.read_table(tmp_path / "aside").to_pylist()
    assert (row["reason"], row["original"]) == ("malformed", "{oops")


def test_changes_with_a_home_in_an_object_store(world, subscriptions, tmp_path, s3):
    """Versions and state are at the home, and deliveries too; a new start and a repetition find them there."""
    first, second = (rows_of(world.message_table.slice(at, 100)) for at in (0, 100))
    write_lines(tmp_path / "in" / "1.jsonl", first)
    write_lines(tmp_path / "changes" / "1.jsonl", CHANGES[:1])
    checkpoint, out = tmp_path / "checkpoint", f"{s3}/out"
    command = (
        "stream", tmp_path / "in", subscriptions, out, "--checkpoint", checkpoint, "--home", f"{s3}/home",
        "--changes", tmp_path / "changes" / "*.jsonl", "--shards", 2, "--distribution", "location",
    )  # fmt: skip
    assert summary(*command)["changes"] == 1
    write_lines(tmp_path / "in" / "2.jsonl", second)
    assert summary(*command)["messages"] == 100
    repeat(checkpoint, 1)
    summary(*command)
    both = world.message_table.slice(0, 200)
    expected = in_process(both, world.subscription_table)
    expected += pairs_of({(id, "new"): 1 for id in both["id"].to_pylist()})
    found = [pq.read_table(place_at(out).open(entry.name)) for entry in place_at(out).entries()]
    assert pairs(pa.concat_tables(found)) == expected
    assert not (checkpoint / "live").exists()
    assert any("location-2" in name for name in (place_at(f"{s3}/home") / "live" / "versions").children())


def test_a_checkpoint_elsewhere_needs_a_home(world, subscriptions, tmp_path):
    """Nothing is started, so it is enough that the arguments pass: Spark has no connector here."""
    local = str(tmp_path / "home")
    check = partial(stream._check, "in", str(subscriptions), "out", schema=None, quarantine=None)
    for home in (local, "s3a://bucket/checkpoint"):
        check(checkpoint="s3a://bucket/checkpoint", changes="changes", home=home)
        check(checkpoint="s3a://bucket/checkpoint", changes=None, home=home)
    check(checkpoint="dbfs:/checkpoint", changes="changes", home=local)
    with pytest.raises(InputError, match="as --home"):
        check(checkpoint="dbfs:/checkpoint", changes=None, home="dbfs:/checkpoint")


def test_a_record_of_change_with_a_wrong_name_is_refused(world, subscriptions, tmp_path):
    """Its region would be lost, and the subscription would get messages from everywhere; a warning names others."""
    write_lines(tmp_path / "in" / "1.jsonl", rows_of(world.message_table.slice(0, 100)))
    at = {"changed_at": 1, "lon": 179.0, "radius_m": 5.0, "expression": "*"}
    write_lines(
        tmp_path / "changes" / "1.jsonl",
        [
            {"change": "subscribe", "id": "wrong", **at, "lattitude": 60.0},
            {"change": "move", "id": "s1", "changed_at": 1, "longitude": 1.0, "latitude": 1.0, "radius": 5.0},
            {"change": "subscribe", "id": "right", **at, "lat": 60.0, "note": "hello"},
        ],
    )
    checkpoint, out = tmp_path / "checkpoint", tmp_path / "out"
    ran = run("stream", tmp_path / "in", subscriptions, out, "--checkpoint", checkpoint,
              "--changes", tmp_path / "changes", "--trigger", "once", "--json")  # fmt: skip
    assert ran.exit_code == 0, ran.stderr
    assert (json.loads(ran.stdout)["changes"], json.loads(ran.stdout)["refused"]) == (3, 2)
    assert ran.stderr.startswith("nearcast: changes: left out 'note'; a subscription has id, expression")
    assert ran.stderr.count("\n") == 1
    refused = {row["id"]: row for row in pq.read_table(checkpoint / "live" / "refused").to_pylist()}
    assert {key: row["reason"] for key, row in refused.items()} == {"wrong": "column", "s1": "column"}
    assert "no column 'lattitude'; did you mean lat?" in refused["wrong"]["detail"]
    assert pairs(pq.read_table(out)) == in_process(
        world.message_table.slice(0, 100), world.subscription_table
    )


def pairs_of(found):
    ids = list(found)
    return pairs(pa.table({"message_id": [m for m, _ in ids], "subscription_id": [s for _, s in ids]}))


def test_a_stream_with_changes_drains_when_it_is_told_to_stop(world, subscriptions, tmp_path):
    """SIGTERM to a separate process with two queries: exit code 0, and a second run delivers the rest, once."""
    write_lines(tmp_path / "in" / "1.jsonl", rows_of(world.message_table.slice(0, 100)))
    (tmp_path / "changes").mkdir()  # Parquet files come later
    checkpoint, out = tmp_path / "checkpoint", tmp_path / "out"
    command = [
        "stream", tmp_path / "in", subscriptions, out, "--checkpoint", checkpoint,
        "--changes", tmp_path / "changes",
    ]  # fmt: skip
    process = [
        sys.executable,
        "-m",
        "nearcast",
        *command,
        "--trigger",
        "100ms",
        "--json",
        "--master",
        "local[2]",
    ]
    with subprocess.Popen(process, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        until = time.monotonic() + 180
        while time.monotonic() < until and not Path(checkpoint, "commits", "0").exists():
            assert running.poll() is None, running.stderr.read()
            time.sleep(0.1)
        running.send_signal(signal.SIGTERM)
        printed, said = running.communicate(timeout=60)
    assert running.returncode == 0, said
    assert said == b""
    done = json.loads(printed)
    assert (done["stopped"], done["messages"], done["changes"]) == (True, 100, 0)
    before = in_process(world.message_table.slice(0, 100), world.subscription_table)
    assert pairs(pq.read_table(out)) == before

    at = pa.array([1, 2], pa.timestamp("us", "UTC"))
    changes = {"change": ["subscribe", "unsubscribe"], "id": ["new", "s1"], "expression": ["*", None]}
    write_files(pa.table({**changes, "changed_at": at}), tmp_path / "changes", 1)
    write_lines(tmp_path / "in" / "2.jsonl", rows_of(world.message_table.slice(100, 100)))
    done = summary(*command)
    assert (done["messages"], done["changes"], done["refused"]) == (100, 2, 0)
    rest = world.message_table.slice(100, 100)
    after = {pair: 1 for pair in in_process(rest, world.subscription_table) if pair[1] != "s1"}
    after |= {(id, "new"): 1 for id in rest["id"].to_pylist()}
    assert pairs(pq.read_table(out)) == before + pairs_of(after)


def test_an_index_that_is_built_meanwhile_is_for_the_next_start(spark, tmp_path, monkeypatch):
    """Between two micro-batches of raw messages."""
    home = tmp_path / "versions"

    def build_for(word):
        build(spark.createDataFrame([(word, word)], "id string, expression string"), home)

    def writing(*given):
        write = sink(*given)

        def run(frame, number):
            build_for("milk")
            return write(frame, number)

        return run

    sink = endpoints.sink
    monkeypatch.setattr(endpoints, "sink", writing)
    build_for("tea")
    for number in range(2):
        row = {"id": number, "lon": 0.0, "lat": 0.0, "text": "tea and milk"}
        write_lines(tmp_path / "in" / f"{number}.jsonl", [row])
    out, source = tmp_path / "out", ["--option", "maxFilesPerTrigger=1"]
    command = ["stream", tmp_path / "in", home, out, "--checkpoint", tmp_path / "c", *source]
    assert summary(*command)["batches"] == 2
    assert pq.read_table(out)["subscription_id"].to_pylist() == ["tea"] * 2


@pytest.mark.parametrize(
    "times", [pytest.param(1, marks=pytest.mark.long), 3, pytest.param(40, marks=pytest.mark.long)]
)
def test_ctrl_c_lets_it_finish(world, subscriptions, tmp_path, times):
    """As a terminal sends it: to every process of the group, Java and the workers included, several times."""
    write_lines(tmp_path / "in" / "1.jsonl", rows_of(world.message_table.slice(0, 100)))
    checkpoint, out = tmp_path / "checkpoint", tmp_path / "out"
    command = [
        "stream",
        tmp_path / "in",
        subscriptions,
        out,
        "--checkpoint",
        checkpoint,
        "--trigger",
        "100ms",
    ]
    process = [sys.executable, "-m", "nearcast", *command, "--json", "--master", "local[2]"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(process, **pipes, start_new_session=True) as running:
        until = time.monotonic() + 180
        while time.monotonic() < until and not Path(checkpoint, "commits", "0").exists():
            assert running.poll() is None, running.stderr.read()
            time.sleep(0.1)
        for _ in range(times):
            if running.poll() is None:
                os.killpg(running.pid, signal.SIGINT)
            time.sleep(0.3)
        printed, said = running.communicate(timeout=60)
    assert (running.returncode, said) == (0, b"")
    done = json.loads(printed)
    assert (done["stopped"], done["messages"]) == (True, 100)
    assert pairs(pq.read_table(out)) == in_process(
        world.message_table.slice(0, 100), world.subscription_table
    )


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["kafka://host/topic", "in", "out"], "write kafka://host:9092/topic"),
        (["kafka://host:9092/topic?x", "in", "out"], "write kafka://host:9092/topic"),
        (["kafka://host:9092/topic", "in", "out"], "messages from Kafka need --schema"),
        (["in", "built", "out", "--changes", "in"], "built is a built index, but with --changes"),
        (["in", "in", "out", "--checkpoint", "dbfs:/c"], "unknown scheme 'dbfs'; give a path, or one of"),
        (["in", "in", "out", "--changes", "in", "--checkpoint", "dbfs:/c"], "hdfs:, as --home"),
        (["in", "built", "out", "--shards", "2"], "give --changes too, or run nearcast build"),
        (["in", "in", "dbfs:/out"], "unknown scheme 'dbfs'"),
        (
            ["in", "in", "kafka://host:9092/topic", "--most", "3"],
            "--most is for an output that is a directory",
        ),
        (["in", "in", "earlier"], "earlier holds micro-batches of another checkpoint"),
        (["in", "in", "out", "--quarantine", "earlier"], "earlier holds micro-batches of another checkpoint"),
        (["in", "in", "out"], "no file has arrived in"),
        (["in/*.jsonl", "in", "out"], "no file has arrived in"),
        (["in", "in", "out", "--schema", "id lung"], "--schema 'id lung' cannot be read"),
        (["in", "in", "out", "--schema", "int"], "does not list columns"),
        (["nowhere", "in", "out"], "there is no directory nowhere for files to arrive in"),
    ],
)
def test_what_cannot_be_is_one_line(spark, tmp_path, monkeypatch, arguments, said):
    monkeypatch.chdir(tmp_path)
    for name in ("in", "built", "earlier/batch=0"):
        Path(name).mkdir(parents=True)
    Path("built", "CURRENT").touch()
    if "--checkpoint" not in arguments:
        arguments = [*arguments, "--checkpoint", "c"]
    ran = run("stream", *arguments)
    assert (ran.exit_code, ran.stdout) == (2, "")
    assert said in ran.stderr
    assert ran.stderr.count("\n") == 1
    assert not Path("c").exists()
