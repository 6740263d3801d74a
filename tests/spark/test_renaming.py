"""The one mapping of column names on Spark and in its commands; tests/unit/test_renaming.py has its rules."""

import json

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from nearcast.cli import app
from nearcast.errors import ColumnError
from nearcast.spark import build, good_rows, match, prepare, profile, quarantined_rows
from spark.worlds import in_process, pairs, write_files

pytestmark = pytest.mark.spark

THEIRS = {"id": "my`id", "lon": "longi.tude", "lat": "latitude", "radius_m": "reach", "geometry": "the_geom"}
ONLY = {"messages": {"text": "body", "keywords": "tags"}, "subscriptions": {"expression": "query"}}


@pytest.fixture(scope="module")
def foreign(world, tmp_path_factory):
    """The tables of the world with other names of columns, as files, and the mapping that leads back to ours."""
    home = tmp_path_factory.mktemp("foreign")
    tables, columns = {}, {}
    for kind, table in (("messages", world.message_table), ("subscriptions", world.subscription_table)):
        own = {ours: theirs for ours, theirs in ONLY[kind].items() if ours in table.column_names}
        columns |= {ours: theirs for ours, theirs in THEIRS.items() if ours in table.column_names}
        columns[kind] = own
        names = {**THEIRS, **own}
        tables[kind] = table.rename_columns([names.get(name, name) for name in table.column_names])
        write_files(tables[kind], home / kind, 2)
    return home, columns


@pytest.fixture
def frames(spark, foreign):
    home, columns = foreign
    return (
        spark.read.parquet(str(home / "messages")),
        spark.read.parquet(str(home / "subscriptions")),
        columns,
    )


@pytest.mark.parametrize("shards", [None, 2])
def test_match_and_build(world, frames, tmp_path, shards):
    messages, subscriptions, columns = frames
    found = match(messages, subscriptions, shards=shards, index_dir=tmp_path, columns=columns)
    assert pairs(found) == world.expected
    own = {"messages": {**columns, **columns["messages"]}, "subscriptions": columns["subscriptions"]}
    own["messages"] = {ours: theirs for ours, theirs in own["messages"].items() if theirs in messages.columns}
    version = build(subscriptions, tmp_path, shards=shards, messages=messages, columns=columns)
    assert pairs(match(messages, version, columns=own)) == world.expected


def test_prepare_and_profile(world, frames, tmp_path):
    messages, subscriptions, columns = frames
    theirs = {ours: name for ours, name in columns.items() if name in messages.columns}
    done = prepare(messages, "messages", columns={**theirs, "messages": columns["messages"]})
    assert quarantined_rows(done).count() == 0
    assert pairs(match(good_rows(done), world.subscriptions, index_dir=tmp_path)) == world.expected
    counted = profile(tmp_path / "p", messages=messages, subscriptions=subscriptions, columns=columns)
    plain = profile(tmp_path / "q", messages=world.messages, subscriptions=world.subscriptions)
    for side in ("messages", "subscriptions"):
        assert counted.words(side).equals(plain.words(side))
        assert counted.attributes(side).equals(plain.attributes(side))


def test_repeated_ids_are_found_under_any_name(spark):
    raw = pa.table({
        "nr": ["a", "a", "b"], "at": ["2026-11-18T09:00:00Z", "2026-11-18T08:00:00Z", None],
        "body": ["later", "first", "third"], "x": ["1", "1", "north"], "lat": [0.0, 0.0, 0.0],
    })  # fmt: skip
    columns = {"id": "nr", "published_at": "at", "text": "body", "lon": "x"}
    done = prepare(spark.createDataFrame(raw), "messages", columns=columns)
    rows = {row["id"]: row for row in done.where("reason IS NULL").collect()}
    assert {id: row["keywords"] for id, row in rows.items()} == {"a": ["first"]}
    reasons = {
        row["reason"]: json.loads(row["original"]) for row in done.where("reason IS NOT NULL").collect()
    }
    assert reasons == {
        "duplicate-id": {"nr": "a", "at": "2026-11-18T09:00:00Z", "body": "later", "x": "1", "lat": 0.0},
        "type": {"nr": "b", "body": "third", "x": "north", "lat": 0.0},
    }


def test_mistakes_are_told_as_in_one_process(frames, tmp_path):
    messages, subscriptions, columns = frames
    wrong = {**columns, "lat": "latitud"}
    said = "have no column 'latitud' to read as lat; did you mean 'latitude'?"
    for door in (
        lambda: match(messages, subscriptions, index_dir=tmp_path, columns=wrong),
        lambda: build(subscriptions, tmp_path, messages=messages, columns=wrong),
        lambda: profile(tmp_path, messages=messages, subscriptions=subscriptions, columns=wrong),
        lambda: prepare(messages, "messages", columns={"lat": "latitud"}),
    ):
        with pytest.raises(ColumnError) as error:
            door()
        assert said in str(error.value)


# --- The commands -----------------------------------------------------------------------------------------------------


def options(columns):
    for name, theirs in columns.items():
        if isinstance(theirs, dict):
            yield from (f"--rename={name}.{ours}={other}" for ours, other in theirs.items())
        else:
            yield f"--rename={name}={theirs}"


def run(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_commands(spark, world, foreign, tmp_path):
    home, columns = foreign
    messages, subscriptions = home / "messages", home / "subscriptions"
    both = list(options(columns))
    out = tmp_path / "deliveries"
    ran = run("match", messages, subscriptions, "--master", "local[2]", "--output", out, *both)
    assert ran.exit_code == 0, ran.stderr
    assert pairs(spark.read.parquet(str(out))) == world.expected

    ran = run("profile", tmp_path / "p", "--messages", messages, "--subscriptions", subscriptions, *both)
    assert ran.exit_code == 0, ran.stderr

    one = {
        ours: name for ours, name in columns.items() if name in spark.read.parquet(str(subscriptions)).columns
    }
    own = list(options({**one, "subscriptions": columns["subscriptions"]}))
    ran = run("build", subscriptions, tmp_path / "versions", *own)
    assert ran.exit_code == 0, ran.stderr

    for raw in ([], ["--prepare"]):
        stream = ("stream", messages, subscriptions, tmp_path / f"out{len(raw)}", *raw, "--trigger", "once")
        ran = run(*stream, "--checkpoint", tmp_path / f"checkpoint{len(raw)}", *both)
        assert ran.exit_code == 0, ran.stderr
        assert pairs(spark.read.parquet(str(tmp_path / f"out{len(raw)}"))) == world.expected


def test_prepare_command(spark, tmp_path):
    (tmp_path / "raw.csv").write_text("nr,body,x,y\na,tea,1,2\nb,tea,1,north\n")
    names = ["--rename=id=nr", "--rename=text=body", "--rename=lon=x", "--rename=lat=y"]
    ran = run("prepare", "messages", tmp_path / "raw.csv", tmp_path / "out", *names, "--column", "y=y || ''")
    assert ran.exit_code == 0, ran.stderr
    good = spark.read.parquet(str(tmp_path / "out" / "good")).collect()
    assert [(row["id"], row["lon"], row["lat"], row["keywords"]) for row in good] == [
        ("a", 1.0, 2.0, ["tea"])
    ]
    (bad,) = spark.read.parquet(str(tmp_path / "out" / "quarantine")).collect()
    assert json.loads(bad["original"]) == {"nr": "b", "body": "tea", "x": "1", "y": "north"}
    ran = run(
        "prepare", "messages", tmp_path / "raw.csv", tmp_path / "two", *names[1:], "--column", "id=`nr`"
    )
    assert (ran.exit_code, ran.stderr) == (
        2,
        "nearcast: --column id=`nr` would copy a column; to read it under another name, give --rename id=nr\n",
    )


@pytest.mark.parametrize("form", ["jsonl", "csv", "parquet"])
def test_changes_have_the_names_of_the_subscriptions(spark, tmp_path, form):
    columns = {"id": "user", "expression": "query", "lon": "x", "lat": "y", "radius_m": "reach"}
    rows = pa.table({"user": ["a"], "query": ["tea"], "x": [0.0], "y": [0.0], "reach": [500.0]})
    subscriptions = write_files(rows, tmp_path / "subscriptions", 1)
    arriving = pa.table({"nr": [1], "body": ["tea and milk"], "x": [0.0], "y": [0.0]})
    messages = write_files(arriving, tmp_path / "messages", 1)
    changed = pa.table({
        "change": ["subscribe"], "changed_at": [1], "user": ["b"], "query": ["milk"], "x": [0.0], "y": [0.0],
        "reach": [500.0],
    })  # fmt: skip
    home = tmp_path / "changes"
    if form == "parquet":
        write_files(changed, home, 1)
    else:
        home.mkdir()
        frame = changed.to_pandas()
        text = frame.to_csv(index=False) if form == "csv" else frame.to_json(orient="records", lines=True)
        (home / f"1.{form}").write_text(text)
    names = [f"--rename=messages.{each}" for each in ("id=nr", "text=body")]
    names += [
        f"--rename={'subscriptions.' if ours == 'id' else ''}{ours}={name}" for ours, name in columns.items()
    ]
    ran = run(
        "stream", messages, subscriptions, tmp_path / "out", "--changes", home, "--trigger", "once",
        "--checkpoint", tmp_path / "checkpoint", *names,
    )  # fmt: skip
    assert ran.exit_code == 0, ran.stderr
    found = spark.read.parquet(str(tmp_path / "out")).select("message_id", "subscription_id").collect()
    assert sorted(map(tuple, found)) == [(1, "a"), (1, "b")]


def test_the_world_needs_the_mapping(world, frames):
    """Without it nothing above could pass."""
    messages, subscriptions, columns = frames
    assert world.expected == in_process(world.message_table, world.subscription_table)
    for ours, theirs in columns.items():
        if isinstance(theirs, str):
            assert ours not in messages.columns + subscriptions.columns
