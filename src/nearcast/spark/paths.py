"""Paths and URIs as Spark takes them.

Spark resolves a path without a scheme in the cluster's default file system (``fs.defaultFS``), relative to the working
directory of the Java process. Here a path without a scheme is always a file of this machine, relative to the working
directory of Python, and Spark is told so.
"""

from __future__ import annotations

import os

from nearcast.storage.paths import has_scheme

__all__ = ["spark_path"]


def spark_path(path: str | os.PathLike[str]) -> str:
    """Return a path for Spark: one without a scheme gets ``file:``, whatever the default file system is.

    Nothing is encoded, as ``Path.as_uri`` would do: Spark takes ``%20`` literally.

    >>> spark_path("/data/half full/*.parquet"), spark_path("hdfs:/data")
    ('file:///data/half full/*.parquet', 'hdfs:/data')
    """
    where = os.fspath(path)
    return where if has_scheme(where) else f"file://{os.path.abspath(where)}"  # noqa: PTH100  it may be a pattern
