"""One process: each verb returns the deliveries that it causes."""

from nearcast.engine.engine import Deliveries, Engine
from nearcast.engine.explain import Explanation

__all__ = ["Deliveries", "Engine", "Explanation"]
