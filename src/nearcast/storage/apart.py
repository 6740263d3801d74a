"""Checking that a command does not write to what it reads, however the two paths are spelled."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from nearcast.errors import InputError
from nearcast.storage.paths import local_path
from nearcast.storage.places import uri_of

__all__ = ["keep_apart"]


def keep_apart(
    outputs: Iterable[str | None], inputs: Iterable[str | None], *, replaced: bool = False
) -> None:
    """Raise InputError if an output is an input, or lies in one, where it would be read as part of the input.

    If outputs are *replaced* as a whole, no input may lie in them either. ``-`` and None are ignored.
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
    """Return whether a path is another path or leads into it: through links, relative paths, or as a URL."""
    here, there = _path(inner), _path(outer)
    if here is None or there is None:  # not in this file system: a bucket, a topic
        return here is there and f"{_url(inner)}/".startswith(f"{_url(outer)}/")
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
    """Return the real path that an address leads to, None if it is not in this file system."""
    where = local_path(address)
    return None if where is None else Path(os.path.realpath(where))


def _url(address: str) -> str:
    """Return an address without options, in the one form that all spellings of a place have."""
    url = address.partition("?")[0].rstrip("/")
    try:
        return uri_of(url)
    except InputError:  # a topic, or a file system that only Spark knows
        return url


def _same(one: Path, other: Path) -> bool:
    if one == other:
        return True
    try:
        return one.samefile(other)  # hard links, and file systems that ignore case
    except OSError:  # one of them does not exist
        return False
