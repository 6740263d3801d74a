"""Deliveries that carry columns of their message and of their subscription along."""

import datetime

import pytest

from nearcast.errors import ColumnError, InputError
from nearcast.spark import build, match

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
    with pytest.raises(InputError, match="keep_subscription needs the subscriptions as a DataFrame"):
        match(messages, version, keep_subscription=["address"])
    assert match(messages, version, keep=["text"]).count() == 4
