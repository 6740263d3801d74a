"""Whether something that a person wrote is a path or a URI, and where on this machine it leads.

There is one rule for all commands and functions: what has a scheme names its file system, and is never a path.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from urllib.parse import unquote

__all__ = ["has_scheme", "local_path"]

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")  # one letter would be a drive
_FILE = re.compile(r"file:(?://[^/]*)?(/.*)", re.DOTALL)  # file:///a, file:/a


def has_scheme(path: str | os.PathLike[str]) -> bool:
    """Return whether a path names its file system.

    >>> has_scheme("s3a://bucket/a"), has_scheme("dbfs:/a"), has_scheme("file:/a"), has_scheme("a/b:c")
    (True, True, True, False)
    """
    return _SCHEME.match(os.fspath(path)) is not None


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
