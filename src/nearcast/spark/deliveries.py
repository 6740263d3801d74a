"""Deliveries as a DataFrame."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions

from nearcast.columns.deliveries import deliveries_schema
from nearcast.spark.columns import quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["as_deliveries"]


def as_deliveries(rows: DataFrame) -> DataFrame:
    """Return *rows* with all columns of deliveries; columns that are missing, other than ids, get constant values.

    Workers return only the columns that vary. The others are added here, where a constant costs nothing. Columns that
    deliveries do not have stay behind them.
    """
    constants = {
        "change": functions.lit("+"),
        "reason": functions.lit("publish"),
        "score": functions.lit(None).cast("double"),
        "rank": functions.lit(None).cast("int"),
    }
    names = deliveries_schema(pa.string(), pa.string()).names
    more = [quoted(name) for name in rows.columns if name not in names]
    own = (name if name in rows.columns else constants[name].alias(name) for name in names)
    return rows.select(*own, *more)
