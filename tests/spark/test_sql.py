"""Matching in SQL."""

from collections import Counter

import pyarrow as pa
import pytest
from pyspark.errors import PythonException

from nearcast import Message, Point, Subscription
from nearcast.engine.explain import explain
from nearcast.errors import ExpressionError, GeometryError
from nearcast.spark import build, match, register
from nearcast.spark.sql import MatchTable, matches_rows

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def sql(spark):
    register(spark)
    return spark.sql


def found(deliveries):
    return Counter((int(row["message_id"]), row["subscription_id"]) for row in deliveries.collect())


@pytest.mark.parametrize("shards", [None, 2])
def test_a_table_of_messages(sql, world, tmp_path, shards):
    build(world.subscriptions, tmp_path, shards=shards)
    world.messages.createOrReplaceTempView("messages")
    expected = match(world.messages, tmp_path)
    deliveries = sql(f"SELECT * FROM nearcast_match(TABLE(messages), '{tmp_path}')")
    assert deliveries.columns == expected.columns
    assert found(deliveries) == found(expected)
    told = {tuple(row)[2:] for row in deliveries.collect()}
    assert told == {tuple(row)[2:] for row in expected.collect()}


def test_a_version_in_an_object_store(sql, world, s3):
    version = build(world.subscriptions, s3)
    world.messages.createOrReplaceTempView("messages")
    deliveries = sql(f"SELECT * FROM nearcast_match(TABLE(messages), '{version}')")
    assert found(deliveries) == found(match(world.messages, version))


def test_a_task_keeps_the_version_that_it_began_with(spark, tmp_path):
    def build_for(word):
        build(spark.createDataFrame([(word, word)], "id string, expression string"), tmp_path)

    def matched(table):
        batch = pa.record_batch({"id": [1], "lon": [0.0], "lat": [0.0], "text": ["tea and milk"]})
        (rows,) = table.eval(batch, pa.array([str(tmp_path)]))
        return rows["subscription_id"].to_pylist()

    build_for("tea")
    task = MatchTable()
    assert matched(task) == ["tea"]
    build_for("milk")
    assert matched(task) == ["tea"]
    assert matched(MatchTable()) == ["milk"]


def test_partitions_chosen_columns_and_joins(sql, world, tmp_path):
    """Partitioned by anything, each message is matched once; other names and joins are those of SQL."""
    version = build(world.subscriptions, tmp_path)
    world.messages.withColumnRenamed("id", "nr").createOrReplaceTempView("numbered")
    expected = found(match(world.messages, tmp_path))
    renamed = "TABLE(SELECT nr AS id, * EXCEPT (nr) FROM numbered)"
    assert (
        found(sql(f"SELECT * FROM nearcast_match({renamed} PARTITION BY (brand), '{version}')")) == expected
    )
    joined = sql(
        f"SELECT d.*, n.lon FROM nearcast_match({renamed}, '{version}') AS d JOIN numbered AS n ON n.nr = d.message_id"
    )
    assert found(joined) == expected


def test_no_messages_and_no_matches(sql, spark, world, tmp_path):
    version = build(world.subscriptions, tmp_path)
    world.messages.limit(0).createOrReplaceTempView("nothing")
    assert sql(f"SELECT * FROM nearcast_match(TABLE(nothing), '{version}')").count() == 0
    far = spark.createDataFrame([(1, 170.0, 80.0, "")], "id long, lon double, lat double, text string")
    far.createOrReplaceTempView("far")
    assert sql(f"SELECT * FROM nearcast_match(TABLE(far), '{version}')").count() == 0


def test_times_without_a_zone_are_not_read(sql, world, tmp_path):
    version = build(world.subscriptions, tmp_path)
    world.messages.selectExpr(
        "*", "timestamp_ntz'2026-11-18 08:00:00' AS expires_at"
    ).createOrReplaceTempView("ntz")
    expected = found(match(world.messages, version))
    assert found(sql(f"SELECT * FROM nearcast_match(TABLE(ntz), '{version}')")) == expected


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("SELECT * FROM nearcast_match(TABLE(SELECT 1 AS nr), '{}')", "messages need a column id; the columns are nr"),
        ("SELECT * FROM nearcast_match(TABLE(SELECT 1 AS id), '/no/such')", "/no/such"),
        ("SELECT * FROM nearcast_match(TABLE(SELECT 1 AS id), '')", "give the path or URI of an index as a string"),
        ("SELECT nearcast_matches('tea', 0, 0, 'tea AND', NULL)", "tea AND"),
        ("SELECT nearcast_matches('tea', 0, 0, 'tea', 'CIRCLE (0 0')", "CIRCLE (0 0"),
        ("SELECT nearcast_matches('tea', 0, 91, 'tea', NULL)", "latitude 91.0 is outside"),
        ("SELECT nearcast_matches('tea', 0, 'north', 'tea', NULL)", "lat of nearcast_matches must be a number"),
        ("SELECT nearcast_matches('tea', date'2026-11-19', 0, '*', NULL)", "lon of nearcast_matches must be"),
        ("SELECT nearcast_matches('tea', 0, 0, 'tea', '')", "'' is not a place"),
        ("SELECT * FROM nearcast_match(TABLE(SELECT 1 AS id), NULL)", "give the path or URI of an index as a string"),
        (
            "SELECT * FROM nearcast_match(TABLE(SELECT 1 AS id, 0D AS lon, 0D AS latitude, 'tea' AS text), '{}')",
            "messages have a column 'latitude' and no lat; did you mean lat?",
        ),
        (
            "SELECT * FROM nearcast_match(TABLE(SELECT 1 AS id, 0D AS lon, 0D AS lat, 'tea' AS txt), '{}')",
            "messages have a column 'txt' and no text; did you mean text?",
        ),
        (
            "SELECT * FROM nearcast_match(TABLE(SELECT CAST(NULL AS INT) AS id, 0D AS lon, 0D AS lat), '{}')",
            "id has no value in row 0",
        ),
    ],
)  # fmt: skip
def test_mistakes_are_told(sql, world, tmp_path, query, said):
    version = build(world.subscriptions, tmp_path)
    with pytest.raises(PythonException) as error:
        sql(query.format(version)).collect()
    assert said in str(error.value)


def test_single_rows(sql, spark):
    rows = [
        ("Hot coffee!", -73.99, 40.73, "coffee NOT decaf", "CIRCLE (-73.99 40.73, 800 m)", True),
        ("Hot coffee!", -73.0, 40.73, "coffee NOT decaf", "CIRCLE (-73.99 40.73, 800 m)", False),
        ("Hot coffee, decaf", -73.99, 40.73, "coffee NOT decaf", None, False),
        ("Tea", 1.0, 1.0, "tea", "POLYGON ((0 0, 2 0, 2 2, 0 2, 0 0))", True),
        ("Tea", 1.0, 1.0, "price < 3", None, False),  # no attributes
        (None, 1.0, 1.0, "*", None, True),
        ("Tea", None, 1.0, "tea", None, None),
        ("Tea", 1.0, 1.0, None, None, None),
    ]
    schema = "text string, lon double, lat double, expression string, region string, expected boolean"
    spark.createDataFrame(rows, schema).createOrReplaceTempView("looks")
    answers = sql(
        "SELECT expected, nearcast_matches(text, lon, lat, expression, region) AS answer FROM looks"
    ).collect()
    assert [row["answer"] for row in answers] == [row["expected"] for row in answers]
    ((answer,),) = sql("SELECT nearcast_matches('tea', 1, 1, 'tea', NULL)").collect()
    assert answer is True


def test_rows_as_one_process_decides(world):
    """Every row of the world with a subscription of its own, more rows than are compared at a time."""
    messages = pa.concat_tables([world.message_table.slice(0, 600)] * 3)
    subscriptions = world.subscription_table.slice(0, 60).select(["id", "expression"])
    expressions = (subscriptions["expression"].to_pylist() * 30)[: len(messages)]
    texts = [" ".join(words) for words in messages["keywords"].to_pylist()]
    regions = [None, "CIRCLE (0 0, 700000 m)", "POLYGON ((-5 -5, 5 -5, 5 5, -5 5, -5 -5))"] * 600
    lon, lat = (messages[name].combine_chunks() for name in ("lon", "lat"))
    answers = matches_rows(pa.array(texts), lon, lat, pa.array(expressions), pa.array(regions)).to_pylist()
    assert {True, False} == set(answers)
    for row in range(0, len(answers), 7):
        point = Point(lon=lon[row].as_py(), lat=lat[row].as_py())
        asked = Subscription(1, expressions[row], regions[row])
        assert explain(asked, Message(1, texts[row], point)).matches == answers[row]


def test_wrong_words_and_regions_are_our_errors():
    one = [pa.array(["tea"]), pa.array([0.0]), pa.array([0.0])]
    with pytest.raises(ExpressionError, match="tea AND"):
        matches_rows(*one, pa.array(["tea AND"]), pa.array([None], pa.string()))
    with pytest.raises(GeometryError, match="is a point, not a region"):
        matches_rows(*one, pa.array(["tea"]), pa.array(["POINT (0 0)"]))
