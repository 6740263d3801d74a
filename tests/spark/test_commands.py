"""The commands on Spark: profile, build, match and stream, in this process and in processes that are stopped."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import geopandas
import pyarrow.parquet as pq
import pytest
import shapely
from typer.testing import CliRunner

from nearcast import open_index
from nearcast.cli import app
from nearcast.sharding.version import ShardedVersion
from spark.worlds import pairs, write_files

pytestmark = pytest.mark.spark


def run(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture
def paths(spark, world):
    """The files of the world; the session of the tests is active, and the commands use it."""
    return world.home / "messages", world.home / "subscriptions"


def test_profile_build_match(world, paths, tmp_path):
    messages, subscriptions = paths
    picture = tmp_path / "places.svg"
    made = run(
        "profile", tmp_path / "profiles", "--messages", messages, "--subscriptions", subscriptions, "--json",
        "--plot", picture,
    )  # fmt: skip
    counted = json.loads(made.stdout)
    assert (counted["version"], counted["messages"], counted["subscriptions"]) == (1, 1200, 300)
    assert counted["words"]["messages"][0]["count"] > 100
    assert "<svg" in picture.read_text()
    shown = run("profile", tmp_path / "profiles")
    assert "profile, version 1" in shown.stdout

    versions = tmp_path / "versions"
    built = run(
        "build", subscriptions, versions, "--shards", 2, "--distribution", "location",
        "--profile", tmp_path / "profiles", "--json",
    )  # fmt: skip
    summary = json.loads(built.stdout)
    assert (summary["subscriptions"], summary["shards"], summary["distribution"]) == (300, 2, "location")
    assert isinstance(open_index(versions), ShardedVersion)

    out = tmp_path / "deliveries"
    matched = run("match", messages, versions, "--master", "local[2]", "--output", out, "--json")
    assert json.loads(matched.stdout)["deliveries"] == sum(world.expected.values())
    assert pairs(pq.read_table(out)) == world.expected


def test_an_index_in_an_object_store(world, paths, tmp_path, s3):
    """Every command that takes an index finds it there, in one piece or in shards, in one process too."""
    messages, subscriptions = paths
    total = sum(world.expected.values())
    versions = s3.replace("s3:", "s3a:") + "/versions"
    for number, (shards, more) in enumerate(
        [([], []), (["--shards", 2], []), ([], ["--master", "local[2]"])]
    ):
        if not more:
            assert run("build", subscriptions, versions, *shards).exit_code == 0
        out = tmp_path / f"{number}.parquet"
        matched = run("match", messages, versions, "--output", out, "--json", *more)
        assert matched.exit_code == 0, matched.stderr
        assert json.loads(matched.stdout)["deliveries"] == total
        assert pairs(pq.read_table(out)) == world.expected
    stream = ("stream", messages, versions, tmp_path / "out", "--checkpoint", tmp_path / "checkpoint")
    refused = run(*stream, "--changes", messages)
    assert f"{versions} is a built index, but with --changes" in refused.stderr
    streamed = run(*stream, "--trigger", "once", "--json")
    assert streamed.exit_code == 0, streamed.stderr
    assert json.loads(streamed.stdout)["deliveries"] == total
    assert pairs(pq.read_table(tmp_path / "out")) == world.expected


def test_a_profile_in_an_object_store(paths, s3):
    assert f"{s3}/profiles has no profile yet" in run("profile", f"{s3}/profiles").stderr
    assert run("profile", f"{s3}/profiles", "--subscriptions", paths[1]).exit_code == 0
    shown = run("profile", f"{s3}/profiles", "--json")
    assert json.loads(shown.stdout)["subscriptions"] == 300


def test_stream_once(spark, world, paths, tmp_path):
    arguments = ("stream", paths[0], paths[1], tmp_path / "out", "--checkpoint", tmp_path / "checkpoint")
    result = run(*arguments, "--trigger", "once", "--json")
    assert result.exit_code == 0, result.stderr
    assert json.loads(result.stdout)["messages"] == 1200
    assert json.loads(run(*arguments, "--trigger", "once", "--json").stdout)["messages"] == 0
    assert pairs(spark.read.parquet(str(tmp_path / "out"))) == world.expected


@pytest.mark.long  # every run does it with changes: tests/spark/test_stream_command.py
def test_a_stream_that_is_told_to_stop_drains_and_goes_on_later(spark, world, paths, tmp_path):
    """SIGTERM to a separate process: exit code 0, no traceback, and a second run delivers the rest, once."""
    arriving = write_files(world.message_table.slice(0, 600), tmp_path / "arriving", 2)
    command = [
        Path(sys.executable).with_name("nearcast"), "stream", arriving, paths[1], tmp_path / "out",
        "--checkpoint", tmp_path / "checkpoint", "--trigger", "100ms", "--json", "--master", "local[2]",
    ]  # fmt: skip
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        until = time.monotonic() + 90
        while time.monotonic() < until and not list((tmp_path / "checkpoint").glob("commits/0")):
            assert running.poll() is None, running.stderr.read()
            time.sleep(0.1)
        running.send_signal(signal.SIGTERM)
        out, said = running.communicate(timeout=60)
    assert running.returncode == 0, said
    assert b"Traceback" not in said
    assert json.loads(out)["stopped"] is True
    write_files(world.message_table.slice(600), arriving, 2, start=2)
    rest = run(*command[1:5], "--checkpoint", tmp_path / "checkpoint", "--trigger", "once")
    assert rest.exit_code == 0, rest.stderr
    assert pairs(spark.read.parquet(str(tmp_path / "out"))) == world.expected


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["build", "nowhere.parquet", "versions"], "there is no file or directory nowhere.parquet"),
        (["build", "rows.csv", "versions"], "nearcast prepare subscriptions rows.csv prepared"),
        (["profile", "nowhere"], "nowhere has no profile yet"),
        (["stream", "a", "b", "c", "--checkpoint", "d", "--trigger", "soon"], "500ms, 10s or 1min, or once"),
        (["match", "a", "b", "--master", "local[1]"], "give --output DIR"),
        (["match", "a", "b", "--verbose"], "give --master"),
    ],
)
def test_what_cannot_be_is_one_line(spark, tmp_path, monkeypatch, arguments, said):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rows.csv").write_text("id\n1\n")
    result = run(*arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert said in result.stderr
    assert result.stderr.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["rows.csv"]


@pytest.mark.parametrize(
    "arguments",
    [
        ["build", "regions.parquet", "out"],
        ["match", "regions.parquet", "regions.parquet", "--master", "local[1]", "--output", "out"],
        ["profile", "out", "--subscriptions", "regions.parquet"],
        ["prepare", "subscriptions", "regions.parquet", "out"],
    ],
    ids=lambda arguments: arguments[0],
)
def test_other_coordinates_are_refused(spark, tmp_path, monkeypatch, arguments):
    """The engine and the readers of files refuse them too: GeoParquet declares its coordinate system."""
    monkeypatch.chdir(tmp_path)
    frame = geopandas.GeoDataFrame(
        {"id": ["a"], "expression": ["tea"]}, geometry=[shapely.box(0, 0, 1, 1)], crs=4807
    )
    frame.to_parquet("regions.parquet")
    result = run(*arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "the coordinates are 'NTF (Paris)'; transform them to WGS84" in result.stderr
    assert not (tmp_path / "out").exists()
