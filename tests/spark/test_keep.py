"""Deliveries that carry columns of their message and of their subscription along."""

import datetime

import pyarrow as pa
import pytest
import shapely

from nearcast.errors import ColumnError, InputError
from nearcast.spark import Live, build, match

pytestmark = pytest.mark.spark

FORMS = pytest.mark.parametrize("shards", [None, 1, 3])
AT = datetime.datetime(2026, 11, 16, 8, tzinfo=datetime.UTC)


@pytest.fixture
def messages(spark):
    rows = [(1, "Hot tea", 0.0, 0.0, 2.5, AT, [1, 2]), (2, "tea and cake", 0.1, 0.0, None, None, None)]
    return spark.createDataFrame(
        rows,
        "id int, text string, lon double, lat double, `half.price` double, published_at timestamp, tags array<int>",
    )


@pytest.fixture
def subscriptions(spark):
    rows = [("a", "tea", "anna@example.org", 1), ("b", "cake", None, 2), ("c", "`half.price` < 3", "c", 3)]
    return spark.createDataFrame(rows, "id string, expression string, address string, `the.level` int")


@FORMS
def test_columns_of_messages_are_kept(messages, subscriptions, shards):
    kept = ["text", "half.price", "published_at", "tags"]
    found = match(messages, subscriptions.select("id", "expression"), shards=shards, keep=kept)
    assert found.columns[6:] == kept
    assert found.schema["published_at"].dataType.simpleString() == "timestamp"
    rows = sorted(
        (r.subscription_id, r.message_id, r.text, r["half.price"], r.published_at, r.tags)
        for r in found.collect()
    )
    at = AT.astimezone().replace(tzinfo=None)
    one, two = ("Hot tea", 2.5, at, [1, 2]), ("tea and cake", None, None, None)
    assert rows == [("a", 1, *one), ("a", 2, *two), ("b", 2, *two), ("c", 1, *one)]


@FORMS
def test_columns_of_subscriptions_are_kept(messages, subscriptions, shards):
    found = match(
        messages, subscriptions, shards=shards, keep=["text"], keep_subscription=["address", "the.level"]
    )
    assert found.columns[6:] == ["text", "address", "the.level"]
    rows = sorted(
        (r.subscription_id, r.message_id, r.text, r.address, r["the.level"]) for r in found.collect()
    )
    assert rows == [
        ("a", 1, "Hot tea", "anna@example.org", 1),
        ("a", 2, "tea and cake", "anna@example.org", 1),
        ("b", 2, "tea and cake", None, 2),
        ("c", 1, "Hot tea", "c", 3),
    ]


@pytest.mark.parametrize("place", [["lon", "lat", "radius_m"], ["geometry"]])
def test_a_region_that_is_kept_is_still_a_region(spark, messages, place):
    near = {"id": "a", "expression": "tea", "lon": 0.0, "lat": 0.0, "radius_m": 100.0}
    rows = pa.Table.from_pylist([near, near | {"id": "b", "lon": 0.1}, near | {"id": "c", "lon": 9.0}])
    if place == ["geometry"]:
        boxes = [shapely.to_wkb(shapely.box(lon, -0.01, lon + 0.01, 0.01)) for lon in (0.0, 0.1, 9.0)]
        rows = rows.select(["id", "expression"]).append_column("geometry", pa.array(boxes))
    found = match(messages, spark.createDataFrame(rows), keep_subscription=[*place, "expression"])
    told = {row["subscription_id"]: row for row in found.collect()}
    assert sorted(told) == ["a", "b"]
    for row in rows.to_pylist()[:2]:
        assert {name: told[row["id"]][name] for name in place} == {name: row[name] for name in place}


def test_a_stream_keeps_what_the_table_had_at_first(spark, tmp_path, monkeypatch):
    """A row that is deleted loses no delivery, one that is there twice doubles none; tasks build the version."""
    monkeypatch.setattr("nearcast.config.SPARK_DRIVER_ROWS", 1)
    columns = "id string, expression string, address string, seen map<string, int>"
    first = [("a", "tea", "anna", {"x": 1}), ("b", "tea", "ben", None)]
    later = [("b", "tea", "bert", None), ("b", "tea", "bob", None), ("c", "tea", "cleo", None)]
    table = f"parquet.`{tmp_path}/table`"
    spark.createDataFrame(first, columns).write.parquet(f"{tmp_path}/table")
    messages = "id long, lon double, lat double, text string"
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.json").write_text('{"id": 1, "lon": 0, "lat": 0, "text": "tea"}')
    arriving = spark.readStream.schema(messages).json(f"{tmp_path}/in")
    found = match(
        arriving, spark.table(table), keep_subscription=["address", "seen"], index_dir=tmp_path / "versions"
    )
    spark.createDataFrame(later, columns).write.mode("overwrite").parquet(f"{tmp_path}/table")
    rows = []
    writer = found.writeStream.foreachBatch(lambda frame, _: rows.extend(frame.collect()))
    writer.option("checkpointLocation", str(tmp_path / "c")).trigger(
        availableNow=True
    ).start().awaitTermination()
    assert sorted((r.subscription_id, r.address, r.seen) for r in rows) == [
        ("a", "anna", {"x": 1}),
        ("b", "ben", None),
    ]


@pytest.mark.parametrize("shards", [None, 3])
def test_a_version_keeps_columns_for_later(messages, subscriptions, tmp_path, shards):
    version = build(subscriptions.drop("the.level"), tmp_path, shards=shards, keep=["address"])
    found = match(messages, version, keep_subscription=["address", "expression"])
    told = sorted((row.subscription_id, row.address, row.expression) for row in found.collect())
    one, two, three = (("a", "anna@example.org", "tea"), ("b", None, "cake"), ("c", "c", "`half.price` < 3"))
    assert told == [one, one, two, three]


def test_a_stream_keeps_columns_and_takes_a_watermark(spark, subscriptions, tmp_path):
    values = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load()
    messages = values.selectExpr(
        "value AS id", "'tea' AS text", "0.0D AS lon", "0.0D AS lat", "timestamp AS published_at"
    )
    found = match(
        messages, subscriptions.drop("the.level"), keep=["published_at"], keep_subscription=["address"]
    )
    counted = found.withWatermark("published_at", "1 minute").groupBy("published_at", "address").count()
    query = (
        counted.writeStream.format("memory")
        .queryName("kept")
        .outputMode("update")
        .option("checkpointLocation", str(tmp_path))
        .start()
    )
    while query.lastProgress is None or query.lastProgress["batchId"] < 1:
        query.awaitTermination(0.1)
    query.stop()
    rows = spark.table("kept").collect()
    assert rows
    assert {(row["address"], row["count"]) for row in rows} == {("anna@example.org", 10)}


def test_names_that_cannot_be_kept_are_refused(messages, subscriptions, tmp_path):
    plain = subscriptions.select("id", "expression")
    with pytest.raises(ColumnError, match=r"keep: the rows need a column texts; .*did you mean 'text'"):
        match(messages, plain, keep=["texts"])
    with pytest.raises(InputError, match=r"keep is a list of columns, not 'text'; write \['text'\]"):
        match(messages, plain, keep="text")
    with pytest.raises(ColumnError, match="keep has 'text', but it is named twice"):
        match(messages, plain, keep=["text", "text"])
    named = subscriptions.withColumnRenamed("address", "rank")
    with pytest.raises(
        ColumnError, match="keep_subscription has 'rank', but deliveries have a column of this name"
    ):
        match(messages, named, keep_subscription=["rank"])
    version = build(plain, tmp_path)
    with pytest.raises(InputError, match=r"without this column; build it with keep=\['address'\]"):
        match(messages, version, keep_subscription=["address"])
    with pytest.raises(ColumnError, match="keep and keep_subscription both have 'id'"):
        match(messages, plain, keep=["id"], keep_subscription=["id"])
    with pytest.raises(ColumnError, match="keep: the rows need a column addres"):
        build(subscriptions, tmp_path, keep=["addres"])
    assert match(messages, version, keep=["text"]).count() == 4


@pytest.mark.parametrize("shards", [1, 2])
def test_while_subscriptions_change(spark, tmp_path, shards):
    """New messages and earlier ones have the columns, across a merge; those from before a column was kept have none."""
    start = 1_700_000_000_000_000
    columns = "id long, text string, lon double, lat double, `half.price` double, published_at timestamp, "
    columns += "expires_at timestamp, tags array<int>, _at string"
    ends = AT + datetime.timedelta(days=1)
    made = lambda number, text: (number, text, 0.0, 0.0, 2.5, AT, ends, [number], "noon")  # noqa: E731
    arrived = 0

    def arrive(messages, changes):
        nonlocal arrived
        arrived += 1
        named = "change string, id string, changed_at long, expression string"
        for name, rows, schema in (("messages", messages, columns), ("changes", changes, named)):
            directory = tmp_path / name / str(arrived)
            spark.createDataFrame(rows, schema).coalesce(1).write.parquet(str(directory))

    def run(keep):
        told = []
        first = spark.createDataFrame([("a", "tea")], "id string, expression string")
        live = Live(tmp_path / "live", first, shards=shards, distribution="hash", clock=lambda: start)
        read = lambda name: spark.readStream.schema(spark.read.parquet(f"{tmp_path}/{name}/1").schema)  # noqa: E731
        streams = (read(name).parquet(f"{tmp_path}/{name}/*") for name in ("messages", "changes"))
        how = {"checkpoint": tmp_path / "checkpoint", "keep": keep, "availableNow": True}
        query = live.start(*streams, lambda frame, _: told.extend(frame.collect()), **how)
        query.awaitTermination()
        assert all(list(row.asDict())[6:] == keep for row in told)
        return sorted((row.subscription_id, row.message_id, row.reason, *row[6:]) for row in told)

    at = AT.astimezone().replace(tzinfo=None)
    arrive([made(1, "tea")], [])
    assert run(["text"]) == [("a", 1, "publish", "tea")]
    both = ["text", "half.price", "published_at", "tags", "_at"]
    arrive([made(2, "tea and cake")], [("subscribe", "b", 1, "tea"), ("subscribe", "c", 1, "cake")])
    two = ("tea and cake", 2.5, at, [2], "noon")
    assert run(both) == [
        ("a", 2, "publish", *two),
        ("b", 1, "subscribe", "tea", None, None, None, None),
        ("b", 2, "publish", *two),
        ("c", 2, "publish", *two),
    ]
    arrive([], [("update", "c", 2, "tea"), ("subscribe", "d", 2, "cake")])
    assert run(both) == [
        ("c", 1, "update", "tea", None, None, None, None),
        ("d", 2, "subscribe", *two),
    ]
    arrive([], [("subscribe", "e", 3, "tea")])
    assert run(["tags"]) == [("e", 1, "subscribe", None), ("e", 2, "subscribe", [2])]
    for wrong, said in ((["texts"], "did you mean 'text'"), (["text", "text"], "it is named twice")):
        with pytest.raises(ColumnError, match=said):
            run(wrong)
