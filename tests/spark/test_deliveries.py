"""One kind of delivery: the same columns, types and words wherever there are deliveries."""

import json
from collections import Counter

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import csv
from pyspark.sql.pandas.types import to_arrow_schema
from typer.testing import CliRunner

from nearcast import CountWindow, Deliveries, Engine, MessageBatch, TopK
from nearcast.cli import app
from nearcast.columns.deliveries import CHANGES, REASONS, deliveries_schema
from nearcast.spark import match
from nearcast.spark.kafka import deliveries_to_kafka
from nearcast.spark.live.live import Live

pytestmark = pytest.mark.spark

SCHEMA = deliveries_schema(pa.string(), pa.int64())
MESSAGES = pa.table(
    {"id": [1, 2, 3], "text": ["tea", "tea and cake", "rum"], "lon": [0.0, 0.0, 0.0], "lat": [0.0, 0.0, 0.0]}
)
SUBSCRIPTIONS = pa.table({"id": ["anna", "ben"], "expression": ["tea", "cake"]})
EXPECTED = Counter([("anna", 1), ("anna", 2), ("ben", 2)])


@pytest.fixture
def files(tmp_path):
    """The messages and the subscriptions, as Parquet."""
    for name, table in (("messages", MESSAGES), ("subscriptions", SUBSCRIPTIONS)):
        (tmp_path / name).mkdir()
        pq.write_table(table, tmp_path / name / "0.parquet")
    return tmp_path / "messages", tmp_path / "subscriptions"


def engine():
    engine = Engine()
    engine.subscribe(SUBSCRIPTIONS)
    return engine.publish(MESSAGES)


def top_k():
    top = TopK(CountWindow(9))
    top.subscribe([[0, 0]] * 2, words=[["tea"], ["cake"]], alpha=0.5, k=2, ids=["anna", "ben"])
    return top.publish(MessageBatch.from_arrow(MESSAGES, like=top, learn=True))


@pytest.mark.parametrize("tell", [engine, top_k])
def test_in_this_process(tell):
    told = tell()
    assert isinstance(told, Deliveries)
    table = told.to_arrow()
    assert [values(field.type) for field in table.schema] == [pa.large_string(), *SCHEMA.types[1:]]
    check(table.cast(SCHEMA), ranked=tell is top_k)
    assert [vars_of(delivery) for delivery in told] == table.to_pylist()


def values(kind):
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def vars_of(delivery):
    return {name: getattr(delivery, name) for name in SCHEMA.names}


def test_on_spark(spark, files, tmp_path):
    messages, subscriptions = (spark.read.parquet(str(path)) for path in files)
    for how in ({}, {"shards": 2}):
        found = match(messages, subscriptions, index_dir=tmp_path / "versions", **how)
        assert to_arrow_schema(found.schema).remove_metadata().equals(nullable_ids(found)), how
        check(found.toArrow().cast(SCHEMA))
    record = json.loads(deliveries_to_kafka(found).first()["value"])
    assert list(record) == SCHEMA.names


def nullable_ids(frame):
    """Return the one schema; columns that a DataFrame knows to have no nulls are not nullable."""
    given = to_arrow_schema(frame.schema)
    return pa.schema([field.with_nullable(given.field(field.name).nullable) for field in SCHEMA])


def test_while_subscriptions_change(spark, files, tmp_path):
    """Every reason, from one micro-batch to the next."""
    arriving, told = tmp_path / "arriving", []
    schemas = {
        "messages": "id long, text string, lon double, lat double, expires_at long",
        "changes": "id string, expression string, lon double, lat double, radius_m double, "
        "change string, changed_at long",
    }
    for name in schemas:
        (arriving / name).mkdir(parents=True)
    lasting = MESSAGES.append_column("expires_at", pa.array([10**18] * 3))
    pq.write_table(lasting, arriving / "messages" / "0.parquet")
    place = {"lon": None, "lat": None, "radius_m": None}
    here = {"lon": 0.0, "lat": 0.0, "radius_m": 1.0}
    steps = [
        [{"id": "cleo", "expression": "rum", **place, "change": "subscribe"}],
        [{"id": "ben", "expression": "cake OR rum", **place, "change": "update"}],
        [{"id": "dan", "expression": "tea", **here, "lat": 80.0, "change": "subscribe"}],
        [{"id": "dan", "expression": None, **here, "change": "move"}],
        [{"id": "dan", "expression": None, **place, "change": "unsubscribe"}],
    ]
    subscriptions = spark.read.parquet(str(files[1]))

    def run():
        live = Live(tmp_path / "live", subscriptions)
        streams = [
            spark.readStream.schema(schema).parquet(str(arriving / name)) for name, schema in schemas.items()
        ]

        def write(frame, number):
            assert to_arrow_schema(frame.schema).remove_metadata().equals(nullable_ids(frame))
            told.append(frame.toArrow().cast(SCHEMA))

        live.start(*streams, write, checkpoint=tmp_path / "checkpoint", availableNow=True).awaitTermination()

    run()
    check(told[0])
    for number, records in enumerate(steps):
        made = pa.Table.from_pylist([{**record, "changed_at": number} for record in records])
        kinds = {
            "id": pa.string(),
            "expression": pa.string(),
            "change": pa.string(),
            "changed_at": pa.int64(),
        }
        schema = pa.schema([(name, kinds.get(name, pa.float64())) for name in made.column_names])
        pq.write_table(made.cast(schema), arriving / "changes" / f"{number}.parquet")
        run()
    rows = [row for table in told[1:] for row in table.sort_by("message_id").to_pylist()]
    assert [(row["subscription_id"], row["message_id"], row["reason"]) for row in rows] == [
        ("cleo", 3, "subscribe"),
        ("ben", 3, "update"),
        ("dan", 1, "move"),
        ("dan", 2, "move"),
    ]
    assert {row["change"] for row in rows} == {"+"}


@pytest.mark.parametrize("master", [None, "local[2]"])
@pytest.mark.parametrize("format", ["parquet", "csv", "jsonl"])
def test_in_files(spark, files, tmp_path, format, master):
    out = tmp_path / (f"deliveries.{format}" if master is None else "deliveries")
    inputs = [path / "0.parquet" if master is None else path for path in files]
    arguments = [*map(str, inputs), "--output", str(out), "--format", format]
    result = CliRunner().invoke(app, ["match", *arguments, *(["--master", master] if master else [])])
    assert result.exit_code == 0, result.stderr
    parts = [out] if master is None else [path for path in out.iterdir() if path.name.startswith("part-")]
    read = {"parquet": pq.read_table, "csv": csv.read_csv, "jsonl": read_lines}[format]
    tables = [read(path) for path in parts]
    if format == "parquet":
        assert tables[0].schema.remove_metadata().types == SCHEMA.types
    check(pa.concat_tables([table.cast(SCHEMA) for table in tables if len(table)]))


def read_lines(path):
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert all(list(row) == SCHEMA.names for row in rows)
    return pa.Table.from_pylist(rows, SCHEMA)


def check(table, ranked=False):
    """Raise unless these are the deliveries of the three messages, in the one form."""
    assert table.schema.equals(SCHEMA)
    rows = table.to_pylist()
    assert Counter((row["subscription_id"], row["message_id"]) for row in rows) == EXPECTED
    assert {row["change"] for row in rows} == {"+"} < set(CHANGES)
    assert {row["reason"] for row in rows} == {"publish"} < set(REASONS)
    assert all((row["score"] is None, row["rank"] is None) == (not ranked, not ranked) for row in rows)
