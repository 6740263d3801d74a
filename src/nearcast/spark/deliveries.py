"""Deliveries as a DataFrame."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions

from nearcast.columns.deliveries import deliveries_schema
from nearcast.spark.columns import quoted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

__all__ = ["as_deliveries"]


def as_deliveries(rows: DataFrame, kept: Sequence[str] = ()) -> DataFrame:
    """Return *rows* with all columns of deliveries; columns that are missing, other than ids, get constant values.

    Workers return only the columns that vary. The others are added here, where a constant costs nothing. The columns
    *kept* follow those of all deliveries.
    """
    constants = {
        "change": functions.lit("+"),
        "reason": functions.lit("publish"),
        "score": functions.lit(None).cast("double"),
        "rank": functions.lit(None).cast("int"),
    }
    names = deliveries_schema(pa.string(), pa.string()).names
    own = (name if name in rows.columns else constants[name].alias(name) for name in names)
    return rows.select(*own, *map(quoted, kept))
