"""The data pipeline: DataFrame in, DataFrame out.

:func:`session` starts a local Spark, :func:`prepare` makes typed rows of raw ones, :func:`build` makes the index of
subscriptions, :func:`match` finds the deliveries of messages, in batch and in a stream. Nothing here needs a
SparkContext or the Java gateway, so all of it runs under Spark Connect; ``session`` is for a machine of your own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nearcast.spark.session import session

if TYPE_CHECKING:
    from nearcast.spark.matching import match
    from nearcast.spark.preparing import Prepared, good_rows, prepare, quarantined_rows, write_prepared
    from nearcast.spark.reading import read_raw
    from nearcast.spark.versions import build

__all__ = [
    "Prepared",
    "build",
    "good_rows",
    "match",
    "prepare",
    "quarantined_rows",
    "read_raw",
    "session",
    "write_prepared",
]


def __getattr__(name: str) -> Any:
    # `session` explains a missing PySpark, so it must be there without one; the others import it.
    if name == "build":
        from nearcast.spark.versions import build

        return build
    if name == "match":
        from nearcast.spark.matching import match

        return match
    if name in ("Prepared", "good_rows", "prepare", "quarantined_rows", "write_prepared"):
        from nearcast.spark import preparing

        return getattr(preparing, name)
    if name == "read_raw":
        from nearcast.spark.reading import read_raw

        return read_raw
    raise AttributeError(f"module 'nearcast.spark' has no attribute {name!r}")
