"""The data pipeline: DataFrame in, DataFrame out.

:func:`session` starts a local Spark, :func:`prepare` turns raw rows into typed ones, :func:`profile` counts the words,
places and attributes of messages and subscriptions, :func:`build` builds the index of subscriptions, :func:`match`
finds the deliveries of messages, in batch or in a stream, and :class:`Live` does so while subscriptions change.
:func:`register` gives SQL the functions ``nearcast_match`` and ``nearcast_matches``.
:mod:`~nearcast.spark.kafka` and :mod:`~nearcast.spark.sinks` bring messages in and deliveries out. Nothing here needs a
SparkContext or the Java gateway, so all of it runs under Spark Connect; ``session`` is for your own machine.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from nearcast.spark.session import require_pyspark, session

if TYPE_CHECKING:
    from nearcast.spark.live.live import Live
    from nearcast.spark.matching import match
    from nearcast.spark.preparing import Prepared, good_rows, prepare, quarantined_rows, write_prepared
    from nearcast.spark.profiles import Profile, profile
    from nearcast.spark.reading import read_raw
    from nearcast.spark.sql import register
    from nearcast.spark.versions import build

__all__ = [
    "Live",
    "Prepared",
    "Profile",
    "build",
    "good_rows",
    "match",
    "prepare",
    "profile",
    "quarantined_rows",
    "read_raw",
    "register",
    "session",
    "write_prepared",
]

_MODULES = {
    "live.live": ("Live",),
    "matching": ("match",),
    "preparing": ("Prepared", "good_rows", "prepare", "quarantined_rows", "write_prepared"),
    "profiles": ("Profile", "profile"),
    "reading": ("read_raw",),
    "sql": ("register",),
    "versions": ("build",),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name in _MODULE_OF:
        require_pyspark()  # the module imports it
        return getattr(importlib.import_module(f"nearcast.spark.{_MODULE_OF[name]}"), name)
    raise AttributeError(f"module 'nearcast.spark' has no attribute {name!r}")
