"""The engine of a single process: each of its verbs returns the deliveries that it causes."""

from nearcast.columns.deliveries import Deliveries
from nearcast.engine.engine import Engine
from nearcast.engine.explain import Explanation
from nearcast.engine.safe_regions import SafeRegions

__all__ = ["Deliveries", "Engine", "Explanation", "SafeRegions"]
