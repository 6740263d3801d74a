"""`nearcast bench spark`: the figures that it measures; a wrong answer stops it."""

import json

import pytest
from typer.testing import CliRunner

from nearcast.bench import pipeline
from nearcast.cli import app
from stores import BUCKET

pytestmark = pytest.mark.spark

SIZES = "--subscriptions 3000 --messages 4000 --seconds 2 --rate 1000 --repeat 1 --seed 4"


def bench(*more):
    return CliRunner().invoke(app, ["bench", "spark", *SIZES.split(), *map(str, more)])


@pytest.fixture(scope="module")
def run(spark, s3_server, tmp_path_factory):
    """One run on the session of the tests, from an object store: its report and its picture."""
    home = tmp_path_factory.mktemp("bench")
    floors = home / "floors.toml"
    limits = {"batch": "share_of_in_process", "worker": "open_seconds", "first fetch": "seconds"}
    floors.write_text(
        "".join(
            f'[[floor]]\nbenchmark = "spark"\nindex = "{index}"\nmeasure = "{measure}"\nat_least = 0\n'
            for index, measure in limits.items()
        )
    )
    files = ["--json", home / "run.json", "--plot", home / "run.svg", "--floors", floors]
    result = bench("--check", *files, "--versions", f"s3://{BUCKET}/bench")
    assert result.exit_code == 0, result.output
    return result.stdout, json.loads((home / "run.json").read_text()), home / "run.svg"


def test_the_table_and_the_picture(run):
    text, _, picture = run
    parts = "3,000 subscriptions × 4,000 messages", "in process", "paced stream", "fetches", "its share (PSS)"
    for said in parts:
        assert said in text
    assert picture.stat().st_size > 2000


def test_the_figures(run):
    _, document, _ = run
    figures = {result["index"]: result for result in document["results"]}
    assert figures["batch"]["deliveries"] == figures["in process"]["deliveries"] > 0
    assert figures["stream"]["batches"] > 1
    paced = figures["paced stream"]
    assert 500 < paced["messages_per_second"] < 2000
    assert 0 < paced["p50_milliseconds"] <= paced["p99_milliseconds"]


def test_workers_compile_nothing_and_share_the_index(run):
    _, document, _ = run
    *_, worker, fetch = document["results"]
    assert 0 < fetch["seconds"] < 60
    assert fetch["megabytes"] == worker["index_megabytes"] > 0.1
    assert worker["compiled_kernels"] == 0
    assert worker["open_seconds"] > 0
    assert 0.4 < worker["proportional_share"] < 0.7


def test_a_wrong_answer_is_told(spark, monkeypatch):
    monkeypatch.setattr(pipeline, "_batch", lambda *_: (1.0, 7))
    for name in ("_sustained", "_paced", "_workers"):
        monkeypatch.setattr(pipeline, name, lambda *_: {})
    (mismatch,) = pipeline.run(300, 400, repeat=1)["mismatches"]
    assert mismatch.startswith("Spark delivers 7, one process ")
