"""The demo from end to end: the sample data, a stream that ends by itself, deliveries, report, summary."""

import json
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from nearcast import config
from nearcast.cli import app
from nearcast.demo import pipeline, sample
from nearcast.errors import InputError, NearcastError
from spark.worlds import in_process, pairs

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def expected():
    return in_process(sample("messages"), sample("subscriptions"))


@pytest.fixture(scope="module")
def first(spark, tmp_path_factory):
    """One run on the session of the tests: its directory, its summary, and the steps that it reported."""
    output = tmp_path_factory.mktemp("demo") / "out"
    told = []
    return output, pipeline.run(spark, output, told.append), told


def test_the_deliveries_are_those_of_the_process(first, expected):
    output, summary, _ = first
    assert pairs(pq.read_table(output / "deliveries")) == expected
    assert summary.deliveries == sum(expected.values())
    assert summary.subscriptions_reached == len({subscription for _, subscription in expected})
    assert summary.messages == len(sample("messages"))
    assert summary.subscriptions == len(sample("subscriptions"))


def test_the_summary_holds_together(first):
    _, summary, _ = first
    assert summary.batches == config.DEMO_FILES
    assert 0 < summary.latency_p50 <= summary.latency_p95 <= summary.latency_p99 <= summary.seconds
    assert summary.messages_per_second == pytest.approx(summary.messages / summary.seconds, rel=0.01)


def test_progress_only_rises_and_ends_whole(first):
    _, summary, told = first
    seen = [(progress.messages, progress.deliveries, progress.batches) for progress in told]
    assert seen == sorted(seen)
    assert seen[-1] == (summary.messages, summary.deliveries, summary.batches)
    assert told[-1].share == 1


def test_messages_stream_in_the_order_of_their_times(first):
    output, _, _ = first
    files = sorted((output / "messages").glob("*.parquet"), key=lambda file: file.stat().st_mtime)
    times = [time for file in files for time in pq.read_table(file)["published_at"].to_pylist()]
    assert len(files) == config.DEMO_FILES
    assert times == sorted(times)


def test_the_report_is_about_this_run(first):
    _, summary, _ = first
    page = Path(summary.report_path).read_text(encoding="utf-8")
    assert f'["deliveries",{summary.deliveries}]' in page


def test_the_files_left_behind_serve_nearcast_match(first, expected, tmp_path):
    output, _, _ = first
    result = CliRunner().invoke(
        app,
        [
            "match",
            str(output / "messages"),
            str(output / "subscriptions.parquet"),
            "-o",
            str(tmp_path / "out.parquet"),
        ],
    )
    assert result.exit_code == 0, result.stderr
    assert pairs(pq.read_table(tmp_path / "out.parquet")) == expected


def test_the_command_replaces_what_an_earlier_run_made(spark, first, expected, tmp_path):
    output, _, _ = first
    (output / "leftover").touch()
    result = CliRunner().invoke(app, ["demo", "--output", str(output), "--json"])
    assert result.exit_code == 0, result.stderr
    summary = json.loads(result.stdout)
    assert summary["deliveries"] == sum(expected.values())
    assert summary["latency_is"].startswith("per message, from the start of its micro-batch")
    assert pairs(pq.read_table(summary["deliveries_path"])) == expected
    assert not (output / "leftover").exists()


def test_nothing_else_is_replaced(spark, tmp_path):
    (tmp_path / "precious").write_text("mine")
    with pytest.raises(InputError, match="was not made by nearcast demo"):
        pipeline.run(spark, tmp_path)
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [("precious", "mine")]


def test_a_stream_that_breaks_is_one_sentence(spark, tmp_path, monkeypatch):
    def damaged(name):
        table = sample(name)
        if name == "messages":
            lat = table["lat"].to_pylist()
            lat[-1] = 91.0
            table = table.set_column(table.column_names.index("lat"), "lat", [lat])
        return table

    monkeypatch.setattr(pipeline, "sample", damaged)
    monkeypatch.setattr(config, "DEMO_FILES", 2)
    with pytest.raises(
        NearcastError, match=r"^the stream failed: message row \d+ \(id 'm\d+'\): latitude 91\.0 [^\n]+$"
    ):
        pipeline.run(spark, tmp_path / "out")


def test_the_command_as_a_process(tmp_path):
    """As users start it: a table on stdout, one line on stderr, and nothing from Spark or Java."""
    command = Path(sys.executable).with_name("nearcast")
    result = subprocess.run([command, "demo"], cwd=tmp_path, capture_output=True, text=True, timeout=280)
    assert result.returncode == 0, result.stderr
    for line in (
        "messages                │ 4,000 in 10 micro-batches",
        "latency p50 / p95 / p99",
        "nearcast-demo/report.html",
    ):
        assert line in result.stdout
    assert result.stderr == "open nearcast-demo/report.html in a browser to see it on a map\n"
    assert [child.name for child in tmp_path.iterdir()] == ["nearcast-demo"]
