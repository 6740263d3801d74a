"""Raw files through Spark: typed rows, a quarantine, and nothing lost in between."""

import json
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import shapely
from typer.testing import CliRunner

from nearcast import Engine, text
from nearcast.cli import app
from nearcast.errors import ColumnError, GeometryError, InputError, NearcastWarning
from nearcast.spark import good_rows, match, prepare, quarantined_rows, write_prepared
from nearcast.spark.reading import format_of, read_raw

pytestmark = pytest.mark.spark

CSV = """id, lon,lat,text,published_at,expires_at,price
m1,-73.99,40.73,"Half price ""coffee"",
until noon",2026-11-16T08:00:00Z,2026-11-16T12:00:00Z,2.5
m2,-73.99,north,tea,,,
m3,-73.99,91,tea,,,
,-73.99,40.73,tea,,,
m5,-73.99,40.73,tea,2026-11-16T08:00:00Z,2026-11-16T07:00:00Z,
m6,-73.99,40.73,tea,,,cheap
m1,-73.99,40.73,coffee,2026-11-16T07:00:00Z,,3
short,1
m8,-73.99,40.73,tea,,,1,too,many
"""
JSON = """{"id": "a", "lon": 1, "lat": 2, "keywords": ["Hot tea"], "tags": ["x"], "price": 3}
{"id": "b", "lon": "x", "lat": 2}
{"id": "c", "lon": 1,
{"id": "d", "lon": 1, "lat": 2, "keywords": "Hot tea"}
"""


def rows(frame, *names):
    return sorted((tuple(row[name] for name in names) for row in frame.collect()), key=str)


def run(*arguments):
    return CliRunner().invoke(app, ["prepare", *map(str, arguments)])


@pytest.fixture(scope="module")
def csv(spark, tmp_path_factory):
    """A CSV file prepared by the command."""
    home = tmp_path_factory.mktemp("csv")
    (home / "raw.csv").write_text(CSV, encoding="utf-8-sig")
    ran = run("messages", home / "raw.csv", home / "out", "--number", "price", "--json")
    return SimpleNamespace(
        ran=ran,
        home=home,
        good=spark.read.parquet(str(home / "out" / "good")),
        bad=spark.read.parquet(str(home / "out" / "quarantine")),
    )


def test_good_rows_of_csv(csv):
    (row,) = csv.good.collect()
    assert row.asDict() == {
        "id": "m1",  # the one that was published first
        "lon": -73.99,
        "lat": 40.73,
        "keywords": ["coffee"],
        "published_at": row["published_at"],
        "expires_at": None,
        "price": 3.0,
    }
    assert row["published_at"].isoformat().startswith("2026-11-16T07:00:00")


def test_every_bad_row_of_csv_has_a_reason_and_its_original(csv):
    assert rows(csv.bad, "reason", "id") == [
        ("duplicate-id", "m1"),
        ("expiry", "m5"),
        ("malformed", "m8"),
        ("malformed", "short"),
        ("no-id", None),
        ("place", "m3"),
        ("type", "m2"),
        ("type", "m6"),
    ]
    found = {(row["reason"], row["id"]): row for row in csv.bad.collect()}
    assert found["type", "m2"]["detail"] == "lat is 'north', which is not a number"
    assert found["malformed", "short"]["original"] == "short,1"
    assert found["malformed", "m8"]["original"] == "m8,-73.99,40.73,tea,,,1,too,many"
    assert json.loads(found["duplicate-id", "m1"]["original"])["text"] == 'Half price "coffee",\nuntil noon'
    assert all(row["quarantined_at"] is not None for row in found.values())


def test_the_summary_of_the_command(csv):
    assert csv.ran.exit_code == 0, csv.ran.output
    summary = json.loads(csv.ran.stdout)
    assert (summary["read"], summary["good"], summary["bad"]) == (9, 1, 8)
    assert {entry["reason"]: entry["rows"] for entry in summary["reasons"]} == {
        "duplicate-id": 1, "expiry": 1, "malformed": 2, "no-id": 1, "place": 1, "type": 2,
    }  # fmt: skip


def test_an_output_is_not_replaced_unasked(csv):
    again = run("messages", csv.home / "raw.csv", csv.home / "out")
    assert again.exit_code == 2
    assert "holds an earlier output; give --overwrite to replace it" in again.stderr
    assert len(again.stderr.strip().splitlines()) == 1


@pytest.mark.versions
def test_json_lines(spark, tmp_path):
    (tmp_path / "raw.jsonl").write_text(JSON)
    ran = run("messages", tmp_path / "raw.jsonl", tmp_path / "out", "--column", "price=price * 2")
    assert ran.exit_code == 0, ran.output
    assert ran.stdout == ""
    assert "left out 'tags'; an attribute is a number, a string or a boolean" in ran.stderr
    assert "lon is 'x', which is not a number" in ran.stderr
    good = spark.read.parquet(str(tmp_path / "out" / "good"))
    assert rows(good, "id", "keywords", "price") == [
        ("a", ["hot", "tea"], 6.0),
        ("d", ["hot", "tea"], None),
    ]
    bad = spark.read.parquet(str(tmp_path / "out" / "quarantine"))
    assert rows(bad, "reason", "original") == [
        ("malformed", '{"id": "c", "lon": 1,'),
        ("type", '{"id": "b", "lat": 2, "lon": "x"}'),
    ]


def test_nothing_good_is_a_failure(tmp_path):
    (tmp_path / "raw.csv").write_text("id,expression\n1,(tea\n2,tea AND\n")
    ran = run("subscriptions", tmp_path / "raw.csv", tmp_path / "out")
    assert ran.exit_code == 1
    assert f"none of the 2 rows can be used; {tmp_path}/out/quarantine has all of them" in ran.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("people", "raw.csv", "out"), "does not know 'people'; give messages or subscriptions"),
        (("messages", "raw.txt", "out"), "the ending of raw.txt tells no format"),
        (("messages", "raw.txt", "out", "--format", "xml"), "there is no format 'xml'"),
        (("messages", "missing.csv", "out"), "missing.csv"),
        (
            ("messages", "missing.csv", "out", "--column", "id"),
            "--column 'id' has the wrong form; write NAME=SQL",
        ),
        (
            ("messages", "missing.csv", "out", "--conf", "x"),
            "--conf 'x' has the wrong form; write NAME=VALUE",
        ),
    ],
)
def test_a_mistake_is_one_line(spark, tmp_path, monkeypatch, arguments, said):
    monkeypatch.chdir(tmp_path)
    ran = run(*arguments)
    assert ran.exit_code == 2
    assert said in ran.stderr
    assert len(ran.stderr.strip().splitlines()) == 1


def test_geoparquet(spark, tmp_path):
    geo = {"primary_column": "where", "columns": {"where": {"encoding": "WKB"}}}
    table = pa.table({"id": [1, 2], "where": [shapely.Point(1, 2).wkb, shapely.Point(1, 99).wkb]})
    pq.write_table(table.replace_schema_metadata({"geo": json.dumps(geo)}), tmp_path / "raw.parquet")
    done = prepare(read_raw(spark, tmp_path / "raw.parquet", "geoparquet"), "messages")
    assert rows(good_rows(done), "id", "geometry") == [(1, bytearray(shapely.Point(1, 2).wkb))]
    assert rows(quarantined_rows(done), "id", "reason") == [(2, "place")]
    geo["columns"]["where"]["crs"] = {"name": "RD New", "id": {"authority": "EPSG", "code": 28992}}
    pq.write_table(table.replace_schema_metadata({"geo": json.dumps(geo)}), tmp_path / "rd.parquet")
    with pytest.raises(GeometryError, match="RD New"):
        read_raw(spark, tmp_path / "rd.parquet")
    pq.write_table(table, tmp_path / "plain.parquet")
    with pytest.raises(ColumnError, match="no GeoParquet metadata"):
        read_raw(spark, tmp_path / "plain.parquet", "geoparquet")
    assert read_raw(spark, tmp_path / "plain.parquet").columns == ["id", "where"]


def test_the_first_of_an_id_does_not_depend_on_files_and_partitions(spark):
    raw = spark.createDataFrame(
        [(i % 50, float(i % 7), 0.0, f"word{i}", 100 - i // 50) for i in range(200)],
        "id long, lon double, lat double, text string, published_at long",
    )
    first = rows(good_rows(prepare(raw, "messages")), "id", "keywords")
    assert len(first) == 50
    assert first == sorted(((i, [f"word{150 + i}"]) for i in range(50)), key=str)
    tied = raw.drop("published_at")
    kept = rows(good_rows(prepare(tied, "messages")), "id", "keywords")
    again = prepare(tied.repartition(7).orderBy("text"), "messages")
    assert rows(good_rows(again), "id", "keywords") == kept
    assert again.where("reason = 'duplicate-id'").count() == 150


def test_a_stream_gives_what_a_batch_gives(spark, world, tmp_path):
    """Prepare and match in one stream; duplicates within a micro-batch are found when it is written."""
    hard = ["Straße İstanbul", "ｃｏｆｆｅｅ", "cafe\u0301", "日本 tea", None]
    raw = spark.createDataFrame(
        [(i, 0.0, 0.0 if i % 5 else 99.0, hard[i % 5]) for i in range(20)],
        "id long, lon double, lat double, text string",
    )
    raw.union(raw.limit(3)).coalesce(1).write.json(str(tmp_path / "input"))
    stream = spark.readStream.schema(raw.schema).json(str(tmp_path / "input"))
    deliveries = stream.transform(prepare, "messages").transform(good_rows)
    deliveries = match(deliveries, world.subscriptions, index_dir=tmp_path / "versions")

    def write(batch, number):
        write_prepared(batch, "messages", f"{tmp_path}/out/{number}", overwrite=True)

    def finish(writer, name):
        writer = writer.option("checkpointLocation", str(tmp_path / name)).trigger(availableNow=True)
        assert writer.start().awaitTermination(60)

    finish(stream.writeStream.foreachBatch(write), "a")
    finish(deliveries.writeStream.format("parquet").option("path", str(tmp_path / "deliveries")), "b")
    good = spark.read.parquet(f"{tmp_path}/out/*/good")
    assert rows(good, "id", "keywords") == sorted(
        ((i, sorted(text.keywords(hard[i % 5] or ""))) for i in range(20) if i % 5), key=str
    )
    bad = spark.read.parquet(f"{tmp_path}/out/*/quarantine")
    assert bad.where("reason = 'duplicate-id'").count() == 2  # the third is bad both times
    assert bad.where("reason = 'place'").count() == 5
    found = spark.read.parquet(str(tmp_path / "deliveries")).distinct()
    assert rows(found, "message_id", "subscription_id") == rows(
        match(good, world.subscriptions, index_dir=tmp_path / "versions"), "message_id", "subscription_id"
    )


def test_subscriptions(spark, world):
    with pytest.warns(NearcastWarning, match="left out 'age'"):
        done = prepare(world.subscriptions.withColumn("age", world.subscriptions.lon), "subscriptions")
    assert done.where("reason IS NOT NULL").count() == 0
    assert done.columns == [*sorted_columns(world.subscriptions.columns), "reason", "detail", "original"]


def sorted_columns(names):
    order = ["id", "geometry", "lon", "lat", "radius_m", "xmin", "ymin", "xmax", "ymax", "expression"]
    assert set(names) == set(order)
    return order


def test_what_cannot_be_prepared(spark, world):
    with pytest.raises(InputError, match="not a Spark DataFrame"):
        prepare(world.message_table, "messages")
    with pytest.raises(ColumnError, match="need a column id"):
        prepare(world.messages.drop("id"), "messages")
    stream = spark.readStream.schema(world.messages.schema).parquet(str(world.home / "messages"))
    with pytest.raises(InputError, match="foreachBatch"):
        write_prepared(stream, "messages", "nowhere")


@pytest.mark.versions
def test_what_is_prepared_can_be_matched_without_spark(spark, tmp_path):
    """Times are marked as UTC, whatever the setting of the session, which stays as it was."""
    (tmp_path / "m.csv").write_text(
        "id,text,lon,lat,published_at,expires_at\nm,tea,1,1,2026-11-16T08:00:00+01:00,2126-11-16T08:00:00Z\n"
    )
    (tmp_path / "s.csv").write_text("id,expression\na,tea\n")
    name = "spark.sql.parquet.outputTimestampType"
    before = spark.conf.get(name)
    spark.conf.set(name, "INT96")
    try:
        assert run("messages", tmp_path / "m.csv", tmp_path / "messages").exit_code == 0
        assert run("subscriptions", tmp_path / "s.csv", tmp_path / "subscriptions").exit_code == 0
        assert spark.conf.get(name) == "INT96"
    finally:
        spark.conf.set(name, before)
    good = pq.read_table(tmp_path / "messages" / "good")
    assert good.schema.field("expires_at").type == pa.timestamp("us", "UTC")
    kept = pq.read_schema(next((tmp_path / "messages" / "quarantine").glob("*.parquet")))
    assert kept.field("quarantined_at").type == pa.timestamp("us", "UTC")
    engine = Engine("scan", store="scan")
    engine.subscribe(pq.read_table(tmp_path / "subscriptions" / "good"))
    assert len(engine.publish(good)) == 1
    matched = ["match", tmp_path / "messages" / "good", tmp_path / "subscriptions" / "good"]
    ran = CliRunner().invoke(app, [str(argument) for argument in matched])
    told = json.loads(ran.stdout)
    assert (told["subscription_id"], told["message_id"]) == ("a", "m")


def test_a_session_writes_times_in_utc(spark):
    assert spark.conf.get("spark.sql.parquet.outputTimestampType") == "TIMESTAMP_MICROS"


@pytest.mark.parametrize("codec", ["gz", "zst"])
def test_compressed_files(spark, tmp_path, codec):
    """They are read as on the command line without Spark; the files in a directory decide its format."""
    lines = '{"id": "a", "lon": 1, "lat": 2, "text": "Hot tea"}\n{oops\n'
    cells = "id,lon,lat,text\na,1,2,Hot tea\nb,x,2,tea\n"
    (tmp_path / "in").mkdir()
    for name, content in (("raw.jsonl", lines), ("raw.csv", cells), ("in/1.csv", cells)):
        packed = tmp_path / f"{name}.{codec}"
        with pa.output_stream(packed, compression={"gz": "gzip", "zst": "zstd"}[codec]) as file:
            file.write(content.encode())
        if "raw" in name:
            done = prepare(read_raw(spark, packed), "messages")
            assert rows(good_rows(done), "id", "keywords") == [("a", ["hot", "tea"])]
            assert quarantined_rows(done).count() == 1
    assert format_of(tmp_path / "in") == "csv"
