"""What differs between the versions and the sessions of PySpark that Nearcast runs on: 4.1, 4.2 and 4.3."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from pyspark.sql.pandas import types

from nearcast.errors import RuntimeUnavailableError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession
    from pyspark.sql.types import DataType, StructType

__all__ = ["arrow_schema", "refuse_remote", "spark_schema", "spark_type"]

# How to ask for times in UTC: "timezone" took the place of "timestamp_utc" in 4.3.
_IN_UTC: dict[str, Any] = (
    {"timezone": "UTC"}
    if "timezone" in inspect.signature(types.to_arrow_schema).parameters
    else {"timestamp_utc": True}
)


def arrow_schema(schema: StructType) -> pa.Schema:
    """Return the columns of a DataFrame as its workers see them; times are in UTC."""
    return types.to_arrow_schema(schema, **_IN_UTC)


def spark_schema(schema: pa.Schema) -> StructType:
    """Return Arrow's columns as Spark's; a time without a zone is ``timestamp_ntz``, in every version."""
    return types.from_arrow_schema(schema, prefer_timestamp_ntz=True)


def spark_type(kind: pa.DataType) -> DataType:
    """Return Arrow's type as Spark's; a time without a zone is ``timestamp_ntz``, in every version."""
    return types.from_arrow_type(kind, prefer_timestamp_ntz=True)


def refuse_remote(session: SparkSession, name: str) -> None:
    """Raise if this is a session of Spark Connect: *name* keeps state that functions on a server cannot reach."""
    # It may be impossible to import the class here.
    if type(session).__module__.startswith("pyspark.sql.connect."):
        raise RuntimeUnavailableError(
            f"{name} keeps its state in this program, where a Spark Connect server cannot reach it; run the program "
            "with spark-submit, or with nearcast.spark.session() on the cluster, without SPARK_REMOTE"
        )
