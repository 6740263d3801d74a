"""The data pipeline: DataFrame in, DataFrame out.

:func:`session` starts a local Spark, :func:`profile` counts what messages and subscriptions are like, :func:`build`
makes the index of subscriptions, :func:`match` finds the deliveries of messages, in batch and in a stream,
:mod:`~nearcast.spark.kafka` and :mod:`~nearcast.spark.sinks` bring messages in and deliveries out. Nothing here
needs a SparkContext or the Java gateway, so all of it runs under Spark Connect; ``session`` is for a machine of your
own.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from nearcast.spark.session import session

if TYPE_CHECKING:
    from nearcast.spark.matching import match
    from nearcast.spark.profiles import Profile, profile
    from nearcast.spark.versions import build

__all__ = ["Profile", "build", "match", "profile", "session"]

_ROOMS = {"match": "matching", "build": "versions", "profile": "profiles", "Profile": "profiles"}


def __getattr__(name: str) -> Any:
    # `session` explains a missing PySpark, so it must be there without one; the others import it.
    if name in _ROOMS:
        return getattr(importlib.import_module(f"nearcast.spark.{_ROOMS[name]}"), name)
    raise AttributeError(f"module 'nearcast.spark' has no attribute {name!r}")
