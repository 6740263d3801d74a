"""Deliveries as a DataFrame."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions

from nearcast.columns.deliveries import deliveries_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["as_deliveries"]


def as_deliveries(rows: DataFrame) -> DataFrame:
    """Return the columns of deliveries: those that *rows* have, the ids at least, and what is the same for all.

    Workers hand over what differs. The rest is added here, where a constant costs nothing.
    """
    same = {
        "change": functions.lit("+"),
        "reason": functions.lit("publish"),
        "score": functions.lit(None).cast("double"),
        "rank": functions.lit(None).cast("int"),
    }
    names = deliveries_schema(pa.string(), pa.string()).names
    return rows.select(*(name if name in rows.columns else same[name].alias(name) for name in names))
