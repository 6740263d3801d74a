"""No command writes over what it reads, however the path is spelled."""

import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from nearcast.cli import app
from nearcast.errors import InputError
from nearcast.storage.apart import keep_apart

DATA = (
    "in/messages_tweets.parquet",
    "in/places_gn.parquet",
    "in/road_nodes.parquet",
    "in/road_edges.parquet",
)
MESSAGES, SUBSCRIPTIONS = "id,text,lon,lat\nm,tea,1,1\n", '{"id": "a", "expression": "tea"}\n'


def run(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A directory with files of messages and subscriptions, and other ways to them."""
    monkeypatch.chdir(tmp_path)
    Path("in").mkdir()
    Path("in/m.csv").write_text(MESSAGES)
    Path("in/s.jsonl").write_text(SUBSCRIPTIONS)
    Path("link.csv").symlink_to("in/m.csv")
    Path("directory").symlink_to("in")
    os.link("in/m.csv", "hard.csv")
    Path("parts").mkdir()
    pq.write_table(pa.table({"id": ["m"], "text": ["tea"], "lon": [1.0], "lat": [1.0]}), "parts/0.parquet")
    Path("parts/1.parquet").symlink_to("../elsewhere.parquet")
    pq.write_table(pa.table({"id": ["n"], "text": ["tea"], "lon": [1.0], "lat": [1.0]}), "elsewhere.parquet")
    return tmp_path


@pytest.mark.parametrize(
    "output",
    ["in/m.csv", "./in/m.csv", "in/../in/m.csv", "{home}/in/m.csv", "link.csv", "directory/m.csv", "hard.csv",
     "in/s.jsonl", "directory/s.jsonl"],
)  # fmt: skip
def test_match_leaves_its_inputs_alone(home, output):
    ran = run("match", "in/m.csv", "in/s.jsonl", "--output", output.format(home=home))
    assert (ran.exit_code, ran.stdout) == (2, "")
    assert "are the same, or one lies in the other; write to another place" in ran.stderr
    assert ran.stderr.count("\n") == 1
    assert (Path("in/m.csv").read_text(), Path("in/s.jsonl").read_text()) == (MESSAGES, SUBSCRIPTIONS)


@pytest.mark.parametrize(
    "output", ["parts/2.parquet", "parts/0.parquet", "elsewhere.parquet", "parts/new/2.csv"]
)
def test_a_directory_is_all_that_is_in_it(home, output):
    """A file that comes to lie among those that are read, or one of them by a link."""
    assert run("match", "parts", "in/s.jsonl", "--output", output).exit_code == 2
    assert sorted(file.name for file in Path("parts").iterdir()) == ["0.parquet", "1.parquet"]


def test_other_places_are_written(home):
    for output in ("in/deliveries.csv", "in2.csv", "m.csv"):
        ran = run("match", "in/m.csv", "in/s.jsonl", "--output", output)
        assert (ran.exit_code, Path(output).exists()) == (0, True), ran.stderr
    assert run("match", "in/m.csv", "in/s.jsonl", "--output", "in/deliveries.csv").exit_code == 0


@pytest.mark.parametrize(
    "arguments",
    [
        ["match", "parts", "in/s.jsonl", "--master", "local[1]", "--output", "parts/out"],
        ["match", "parts", "in/s.jsonl", "--master", "local[1]", "--output", "file://{home}/parts/out"],
        ["prepare", "messages", "out/good", "out", "--overwrite"],
        ["prepare", "messages", "out/good/0.parquet", "out", "--overwrite"],
        ["prepare", "messages", "file:{home}/out/quarantine/0.parquet", "./out", "--overwrite"],
        ["prepare", "messages", "parts", "directory/../parts"],
        ["prepare", "messages", "out", "out", "--overwrite"],
        ["build", "parts", "parts"],
        ["build", "file://{home}/parts", "parts/versions"],
        ["profile", "parts/profile", "--messages", "parts"],
        ["profile", "profiles", "--messages", "m.svg", "--plot", "link.svg"],
        ["shards", "in/s.jsonl", "m.svg", "--plot", "link.svg"],
        ["stream", "in", "parts", "in", "--checkpoint", "c"],
        ["stream", "in", "parts", "out", "--checkpoint", "directory/c"],
        ["stream", "in/*", "parts", "in/out", "--checkpoint", "c"],
        ["stream", "in", "parts", "out2", "--checkpoint", "c", "--quarantine", "parts/q"],
        ["stream", "in", "parts", "out2", "--checkpoint", "c", "--changes", "out2"],
        ["stream", "kafka://h:9092/t?a=b", "parts", "kafka://h:9092/t", "--checkpoint", "c", "--schema", "id long"],
    ],
    ids=" ".join,
)  # fmt: skip
def test_every_command(home, arguments):
    """Before any work is done, and before Spark starts."""
    for name in ("good", "quarantine"):
        Path("out", name).mkdir(parents=True)
        Path("out", name, "0.parquet").touch()
    Path("m.svg").touch()
    Path("link.svg").symlink_to("m.svg")
    before = sorted(home.rglob("*"))
    ran = run(*(argument.format(home=home) for argument in arguments))
    assert (ran.exit_code, ran.stdout) == (2, "")
    assert "write to another place" in ran.stderr
    assert sorted(home.rglob("*")) == before


@pytest.mark.parametrize(
    "arguments",
    [
        ["matching", "--workload", "tweets", "--data", "in", "--json", "in/m.csv"],
        ["matching", "--data", "in", "--plot", "directory/new.svg"],
        ["safe-regions", "--data", "in", "--json", "link.csv"],
        ["turnover", "--data", "in", "--json", "hard.csv"],
        ["topk", "--data", "in", "--json", "in/new.json"],
        ["covering", "--data", "in", "--json", "in/new.json"],
        ["moving", "--data", "in", "--json", "in/new.json"],
        ["engine", "--check", "--floors", "floors.toml", "--json", "./floors.toml"],
    ],
    ids=" ".join,
)
def test_benchmarks(home, arguments):
    for name in ("floors.toml", *DATA):
        Path(name).touch()
    before = {path: path.read_bytes() for path in sorted(home.rglob("*")) if path.is_file()}
    ran = run("bench", *arguments)
    assert (ran.exit_code, ran.stdout) == (2, "")
    assert "write to another place" in ran.stderr
    assert {path: path.read_bytes() for path in sorted(home.rglob("*")) if path.is_file()} == before


@pytest.mark.parametrize("options", [["--json", "in/m.csv"], ["--out", "in/figures"], ["--out", "in"]])
def test_experiments_of_papers(home, options):
    from benchmarks.papers.commands import app as experiments

    for name in DATA:
        Path(name).touch()
    before = sorted(home.rglob("*"))
    ran = CliRunner().invoke(experiments, ["ap-tree", "--data", "in", *options])
    assert (ran.exit_code, ran.stdout) == (2, "")
    assert "write to another place" in ran.stderr
    assert sorted(home.rglob("*")) == before


@pytest.mark.parametrize(
    ("output", "input", "replaced"),
    [
        ("out", "in", True),
        ("in2", "in", True),
        (".", "in", False),  # beside the input, which stays
        ("-", "-", True),
        (None, "in", True),
        ("/dev/null", "/dev/null", True),
        ("in/out", "in/*.csv", False),
        ("s3://bucket/out", "s3://bucket/in", True),
        ("s3://bucket/in2", "s3://bucket/in", True),
        ("kafka://h:9092/out", "kafka://h:9092/in", False),
        ("out", "s3://bucket/out", True),
    ],
)
def test_what_is_apart(home, output, input, replaced):
    keep_apart([output], [input, None, "-"], replaced=replaced)


@pytest.mark.parametrize(
    ("output", "input", "replaced"),
    [
        (".", "in", True),
        ("s3://bucket/in/", "s3://bucket/in", False),
        ("s3://bucket/in/out", "s3://bucket/in", False),
        ("s3a://bucket/in/out", "s3://bucket/in", False),
        ("in/x y", "file://{home}/in", False),
        ("a b/out", "file://{home}/a%20b", False),
        ("in/deep/er.csv", "in/*", False),
    ],
)
def test_what_is_not_apart(home, output, input, replaced):
    with pytest.raises(InputError, match="write to another place"):
        keep_apart([output], [input.format(home=home)], replaced=replaced)
