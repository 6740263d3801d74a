"""What a command writes is not what it reads, however the two are spelled."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import unquote

from nearcast.errors import InputError

__all__ = ["keep_apart"]

_FILE = re.compile(r"file:(?://[^/]*)?(/.*)")  # file:///a, file:/a


def keep_apart(
    outputs: Iterable[str | None], inputs: Iterable[str | None], *, replaced: bool = False
) -> None:
    """Raise InputError if an output is an input, or lies in one, where it would be read as a part of it.

    Where outputs are *replaced* as wholes, no input may lie in them either. ``-`` and None are neither.
    """
    read = [path for path in inputs if path not in (None, "-")]
    for output in outputs:
        for input in read if output not in (None, "-") else ():
            assert output is not None
            assert input is not None
            if _lies_in(output, input) or (replaced and _lies_in(input, output)):
                raise InputError(
                    f"the output {output} and the input {input} are the same, or one lies in the other; "
                    "write to another place"
                )


def _lies_in(inner: str, outer: str) -> bool:
    """Tell whether a path is another, or leads into it: through links, by relative paths, as a URL."""
    here, there = _path(inner), _path(outer)
    if here is None or there is None:  # not of this file system: a bucket, a topic
        url, other = (address.partition("?")[0].rstrip("/") for address in (inner, outer))
        return here is there and f"{url}/".startswith(f"{other}/")
    ways = (here, *here.parents)
    if set("*?[") & set(outer) and not there.exists():
        return any(way.match(str(there)) for way in ways)
    if there.exists() and not (there.is_file() or there.is_dir()):
        return False  # a device, a pipe
    if any(_same(way, there) for way in ways):
        return True
    linked = there.rglob("*") if there.is_dir() and here.is_file() else ()
    return any(_same(here, file) for file in linked)


def _path(address: str) -> Path | None:
    """Return the real path that an address leads to, None where it is not of this file system."""
    file = _FILE.fullmatch(address)
    if file is not None:
        exact = Path(file[1])
        return Path(os.path.realpath(exact if exact.exists() else unquote(file[1])))
    return None if "://" in address else Path(os.path.realpath(address))


def _same(one: Path, other: Path) -> bool:
    if one == other:
        return True
    try:
        return one.samefile(other)  # hard links, and names that differ by case where that makes no difference
    except OSError:  # one of them is not there
        return False
