"""Types that Spark has and Arrow has not: geometries, times without a zone, types that users define."""

from collections import Counter

import pyarrow as pa
import pytest
import shapely
from pyspark.sql.types import LongType, StringType, StructField, StructType

from nearcast import EVERYWHERE, Box, SubscriptionTable
from nearcast.errors import ColumnError, GeometryError, InputError
from nearcast.spark import build, good_rows, match, prepare, register
from spark.opaque import GeometryUDT

pytestmark = pytest.mark.spark


def found(deliveries):
    return Counter((int(row["message_id"]), row["subscription_id"]) for row in deliveries.collect())


def geometries(spark, *more):
    """Return messages with columns in Spark's own types; skip where the version lacks them."""
    rows = [(id, shapely.to_wkb(shapely.Point(id, id))) for id in (1, 9)]
    wkb = spark.createDataFrame(rows, "id long, wkb binary")
    try:
        made = wkb.selectExpr("id", "'tea' AS text", *more)
        made.collect()
    except Exception as error:
        if "GEOSPATIAL_DISABLED" in str(error):
            pytest.skip("this version of Spark has GEOMETRY turned off")
        raise
    return made


@pytest.mark.parametrize(
    "made",
    [
        "st_geomfromwkb(wkb)",
        "st_setsrid(st_geomfromwkb(wkb), 4326)",
        "st_geogfromwkb(wkb)",
        "CAST(st_setsrid(st_geomfromwkb(wkb), 4326) AS GEOMETRY(ANY))",
    ],
)
def test_geometry_of_spark(spark, tmp_path, made):
    messages = geometries(spark, f"{made} AS geometry")
    box = f"X'{shapely.to_wkb(shapely.box(0, 0, 2, 2), hex=True)}'"
    region = made.replace("wkb)", f"{box})")
    subscriptions = spark.sql(f"SELECT 'a' AS id, 'tea' AS expression, {region} AS geometry")
    for shards in (None, 2):
        deliveries = match(messages, subscriptions, index_dir=tmp_path, shards=shards)
        assert found(deliveries) == {(1, "a"): 1}
    done = prepare(messages, "messages")
    assert done.where("reason IS NOT NULL").count() == 0
    assert found(match(good_rows(done), subscriptions, index_dir=tmp_path)) == {(1, "a"): 1}
    version = build(subscriptions, tmp_path / "built")
    messages.createOrReplaceTempView("shapes")
    register(spark)
    assert found(spark.sql(f"SELECT * FROM nearcast_match(TABLE(shapes), '{version}')")) == {(1, "a"): 1}


def test_geometry_in_other_coordinates(spark, tmp_path):
    subscriptions = spark.sql("SELECT 'a' AS id, 'tea' AS expression")
    foreign = geometries(spark, "st_setsrid(st_geomfromwkb(wkb), 3857) AS geometry")
    for door in (
        lambda: match(foreign, subscriptions, index_dir=tmp_path),
        lambda: prepare(foreign, "messages"),
    ):
        with pytest.raises(GeometryError, match="the coordinates are 'EPSG:3857'; transform them to WGS84"):
            door()
    mixed = foreign.selectExpr(
        "id",
        "text",
        "CAST(IF(id = 1, geometry, NULL) AS GEOMETRY(ANY)) AS geometry",
        "0D AS lon",
        "0D AS lat",
    )
    with pytest.raises(Exception, match=r"message row 0 \(id 1\): the coordinates are 'EPSG:3857'"):
        match(mixed, subscriptions, index_dir=tmp_path).collect()
    done = prepare(mixed, "messages").collect()
    assert {row["id"]: row["reason"] for row in done} == {1: "type", 9: None}


def test_a_user_defined_type_is_not_taken_for_wkb(spark, tmp_path):
    """Sedona's geometries are a user-defined type over bytes that are not WKB."""

    for name, columns in (("geometry", None), ("shape", {"geometry": "shape"})):
        schema = StructType(
            [
                StructField("id", LongType()),
                StructField("text", StringType()),
                StructField(name, GeometryUDT()),
            ]
        )
        frame = spark.createDataFrame([], schema)
        subscriptions = spark.sql("SELECT 'a' AS id, 'tea' AS expression")
        with pytest.raises(
            ColumnError, match=f"{name} is a column of GeometryUDT, .* ST_AsBinary\\({name}\\)"
        ):
            prepare(frame, "messages", columns=columns)
        with pytest.raises(ColumnError, match=r"geometry is a column of GeometryUDT, .* ST_AsBinary"):
            match(frame, subscriptions, index_dir=tmp_path, columns=columns)


def test_times_without_a_zone(spark, tmp_path):
    made = "SELECT 1 AS id, 'tea' AS text, 0D AS lon, 0D AS lat, timestamp_ntz'2026-07-01 12:00:00' AS published_at"
    messages = spark.sql(made)
    with pytest.raises(
        ColumnError, match=r"published_at has no time zone; name the one that is meant \(timezone="
    ):
        prepare(messages, "messages")
    with pytest.raises(InputError, match="there is no time zone 'Lisbon'; give one such as UTC"):
        prepare(messages, "messages", timezone="Lisbon")
    (row,) = (
        good_rows(prepare(messages, "messages", timezone="Europe/Lisbon"))
        .selectExpr("unix_micros(published_at) AS at")
        .collect()
    )
    (same,) = spark.sql("SELECT unix_micros(timestamp'2026-07-01 11:00:00Z') AS at").collect()
    assert row["at"] == same["at"]
    subscriptions = spark.sql("SELECT 'a' AS id, 'tea' AS expression")
    assert found(match(messages, subscriptions, index_dir=tmp_path)) == {(1, "a"): 1}  # it reads no times


def test_a_table_with_the_structs_of_spark():
    """What Spark's geometries are in Arrow, read without Spark."""
    kind = pa.struct([pa.field("srid", pa.int32()), pa.field("wkb", pa.binary())])
    box = shapely.to_wkb(shapely.box(0, 0, 2, 2))
    good = pa.array([{"srid": 4326, "wkb": box}, None], kind)
    table = SubscriptionTable.from_arrow({"id": [1, 2], "expression": ["tea", "tea"], "geometry": good})
    assert [each.region for each in table.to_subscriptions()] == [Box(0, 0, 2, 2), EVERYWHERE]
