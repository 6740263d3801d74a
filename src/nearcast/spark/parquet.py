"""Parquet whose times every program reads alike."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["UTC_TIMES", "write_parquet"]

#: The setting that has times written as microseconds in UTC. Spark's own default, INT96, names no time zone, so that
#: other programs read times which they can only guess the meaning of.
UTC_TIMES = ("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")


def write_parquet(frame: DataFrame, path: str, mode: str = "errorifexists") -> None:
    """Write *frame* to a directory; its times are microseconds in UTC, whatever the session has set.

    The setting has no form that holds for one write alone: it is made before, and taken back afterwards.
    """
    conf = frame.sparkSession.conf
    name, value = UTC_TIMES
    before = conf.get(name)
    conf.set(name, value)
    try:
        frame.write.mode(mode).parquet(path)
    finally:
        if before is not None:
            conf.set(name, before)
