"""Nearcast delivers geo-tagged, time-limited messages to the people who want them.

It matches by place, by words and by attribute values, for millions of subscriptions, and delivers all matches or the
best k. The first page of the tutorial:

>>> from nearcast import Circle, Engine, Message, Point, Subscription
>>> engine = Engine()
>>> nearby = Circle(lon=-73.99, lat=40.73, radius=800)
>>> _ = engine.subscribe(Subscription("anna", 'coffee AND (discount OR "happy hour") NOT decaf', nearby))
>>> for delivery in engine.publish(Message("m1", "Coffee discount until noon", Point(lon=-73.991, lat=40.731))):
...     print(delivery.subscription_id, delivery.change, delivery.message_id)
anna + m1

Names are loaded at first use. So ``import nearcast`` is fast, and neither Numba nor Spark is imported before it is
needed.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from nearcast._version import __version__

if TYPE_CHECKING:
    from nearcast.clock import ManualClock, SystemClock
    from nearcast.columns import Matches, MessageBatch, SubscriptionTable, Vocabulary
    from nearcast.covering import RelationGraph
    from nearcast.engine import Deliveries, Engine, Explanation, SafeRegions
    from nearcast.errors import (
        ColumnError,
        DuplicateError,
        ExpressionError,
        GeometryError,
        IndexFileError,
        InputError,
        ModelError,
        NearcastError,
        NearcastWarning,
        RuntimeUnavailableError,
        UnknownError,
    )
    from nearcast.geometry import EVERYWHERE, WGS84, Box, Circle, Planar, Point, Polygon
    from nearcast.matching import Index, MessageStore, MovingIndex, build_index, build_store, open_store
    from nearcast.model import Delivery, Message, Subscription
    from nearcast.predicates import ANYTHING, attribute, phrase, word
    from nearcast.ranking import CountWindow, DocumentFrequencies, TimeWindow, TopK
    from nearcast.sharding import open_index

_HOMES = {
    "clock": ("ManualClock", "SystemClock"),
    "columns": ("Matches", "MessageBatch", "SubscriptionTable", "Vocabulary"),
    "covering": ("RelationGraph",),
    "engine": ("Deliveries", "Engine", "Explanation", "SafeRegions"),
    "errors": (
        "ColumnError",
        "DuplicateError",
        "ExpressionError",
        "GeometryError",
        "IndexFileError",
        "InputError",
        "ModelError",
        "NearcastError",
        "NearcastWarning",
        "RuntimeUnavailableError",
        "UnknownError",
    ),
    "geometry": ("EVERYWHERE", "WGS84", "Box", "Circle", "Planar", "Point", "Polygon"),
    "matching": ("Index", "MessageStore", "MovingIndex", "build_index", "build_store", "open_store"),
    "model": ("Delivery", "Message", "Subscription"),
    "predicates": ("ANYTHING", "attribute", "phrase", "word"),
    "ranking": ("CountWindow", "DocumentFrequencies", "TimeWindow", "TopK"),
    "sharding": ("open_index",),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "ANYTHING",
    "EVERYWHERE",
    "WGS84",
    "Box",
    "Circle",
    "ColumnError",
    "CountWindow",
    "Deliveries",
    "Delivery",
    "DocumentFrequencies",
    "DuplicateError",
    "Engine",
    "Explanation",
    "ExpressionError",
    "GeometryError",
    "Index",
    "IndexFileError",
    "InputError",
    "ManualClock",
    "Matches",
    "Message",
    "MessageBatch",
    "MessageStore",
    "ModelError",
    "MovingIndex",
    "NearcastError",
    "NearcastWarning",
    "Planar",
    "Point",
    "Polygon",
    "RelationGraph",
    "RuntimeUnavailableError",
    "SafeRegions",
    "Subscription",
    "SubscriptionTable",
    "SystemClock",
    "TimeWindow",
    "TopK",
    "UnknownError",
    "Vocabulary",
    "__version__",
    "attribute",
    "build_index",
    "build_store",
    "open_index",
    "open_store",
    "phrase",
    "word",
]


def __getattr__(name: str) -> Any:
    if name in _HOME_OF:
        value = getattr(importlib.import_module(f"nearcast.{_HOME_OF[name]}"), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'nearcast' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
