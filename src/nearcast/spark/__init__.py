"""The data pipeline: DataFrame in, DataFrame out."""

from nearcast.spark.session import session

__all__ = ["session"]
