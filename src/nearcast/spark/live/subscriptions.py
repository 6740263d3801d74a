"""All subscriptions of a version after the deltas, as a DataFrame: they never meet in one process."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import Window, functions

from nearcast import config
from nearcast.sharding.replica import CHANGE, CHANGED_AT
from nearcast.spark.compat import spark_schema, spark_type
from nearcast.spark.live.changes import STAMPS
from nearcast.spark.live.deltas import subscription_schema
from nearcast.spark.parts import read_parts
from nearcast.spark.versions import version_frame

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from nearcast.sharding.version import ShardedVersion

__all__ = ["current_subscriptions"]

_ORDER = "_order"  # the position of a row's delta


def current_subscriptions(
    spark: SparkSession,
    version: ShardedVersion,
    deltas: Mapping[str, int],
    gone: Mapping[str, int],
    now: int,
) -> tuple[DataFrame, pa.Table]:
    """Return the subscriptions of *version* after *deltas*, with their times, and the tombstones that are kept.

    *deltas*, in ascending order, and *gone*, the tombstones of the version, are files by URI with their rows.
    """
    schema = subscription_schema(version)
    full = pa.schema([*schema, (CHANGE, pa.string()), (CHANGED_AT, STAMPS)])
    rows = version_frame(spark, version)
    if CHANGED_AT not in rows.columns:
        rows = rows.withColumn(CHANGED_AT, functions.lit(None).cast(spark_type(STAMPS)))
    rows = rows.select(*schema.names, CHANGED_AT)
    columns = spark_schema(full)
    ended = read_parts(spark, gone, columns)
    if deltas:
        parts = [
            read_parts(spark, {uri: count}, columns).withColumn(_ORDER, functions.lit(position))
            for position, (uri, count) in enumerate(deltas.items())
        ]
        changed = reduce(lambda one, other: one.union(other), parts)
        newest = Window.partitionBy("id").orderBy(functions.desc(_ORDER))
        latest = changed.withColumn("_rank", functions.row_number().over(newest)).where("_rank = 1")
        there = latest.where(functions.col(CHANGE) != "unsubscribe").select(*rows.columns)
        ids = changed.select("id")
        rows = rows.join(ids, "id", "left_anti").select(*rows.columns).unionByName(there)
        ended = ended.join(ids, "id", "left_anti").unionByName(
            latest.where(functions.col(CHANGE) == "unsubscribe").select(*columns.names)
        )
    since = now - int(config.LIVE_LATE_SECONDS * 1e6)
    kept = ended.where(functions.col(CHANGED_AT)["ended"] > since).select("id", CHANGE, CHANGED_AT).toArrow()
    return rows, kept
