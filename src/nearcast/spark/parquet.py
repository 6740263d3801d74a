"""Parquet files with times that every program reads in the same way."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["UTC_TIMES", "write_parquet"]

#: The setting for writing times as microseconds in UTC. Spark's default, INT96, names no time zone, so that other
#: programs have to guess it.
UTC_TIMES = ("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")


def write_parquet(frame: DataFrame, path: str, mode: str = "error") -> None:
    """Write *frame* to a directory; its times are microseconds in UTC, whatever the settings of the session.

    Spark has no such option for a single write: the setting of the session is changed, and restored afterwards.
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
