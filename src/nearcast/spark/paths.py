"""Paths and URIs, as people write them and as Spark takes them.

Spark resolves a path without a scheme in the cluster's default file system (``fs.defaultFS``), relative to the working
directory of the Java process. Here a path without a scheme is always a file of this machine, relative to the working
directory of Python, and Spark is told so.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from urllib.parse import unquote

__all__ = ["has_scheme", "local_path", "spark_path"]

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")  # one letter would be a drive
_FILE = re.compile(r"file:(?://[^/]*)?(/.*)", re.DOTALL)  # file:///a, file:/a


def has_scheme(path: str | os.PathLike[str]) -> bool:
    """Return whether a path names its file system.

    >>> has_scheme("s3a://bucket/a"), has_scheme("dbfs:/a"), has_scheme("file:/a"), has_scheme("a/b:c")
    (True, True, True, False)
    """
    return _SCHEME.match(os.fspath(path)) is not None


def spark_path(path: str | os.PathLike[str]) -> str:
    """Return a path for Spark: one without a scheme gets ``file:``, whatever the default file system is.

    Nothing is encoded, as ``Path.as_uri`` would do: Spark takes ``%20`` literally.

    >>> spark_path("/data/half full/*.parquet"), spark_path("hdfs:/data")
    ('file:///data/half full/*.parquet', 'hdfs:/data')
    """
    where = os.fspath(path)
    return where if has_scheme(where) else f"file://{os.path.abspath(where)}"  # noqa: PTH100  it may be a pattern


def local_path(path: str | os.PathLike[str]) -> Path | None:
    """Return where a path or a ``file:`` URI is on this machine; None if it is in another file system.

    >>> print(local_path("file:/data"), local_path("file:///data"), local_path("s3://bucket/data"))
    /data /data None
    """
    where = os.fspath(path)
    file = _FILE.fullmatch(where)
    if file is not None:
        exact = Path(file[1])
        return exact if exact.exists() else Path(unquote(file[1]))
    return None if has_scheme(where) else Path(where).absolute()
