"""The process that Spark's Python workers are forked from, with everything loaded that matching needs.

A worker of the ordinary daemon imports Arrow, Numba and Nearcast and loads the compiled kernels after the fork: more
than a second of processor time for each, again whenever workers come back from idleness or after a failure. Here it
happens once, before the first fork, and the workers share the memory too. Spark runs this module when
``spark.python.daemon.module`` names it, as :func:`nearcast.spark.session` does; the package must be installed where
workers run.

Forking after these imports is safe: none of them leaves a thread behind that a worker would miss (Arrow's pools and
its allocators start anew in the child, Numba starts none for kernels of one thread).
"""

from __future__ import annotations

import contextlib
import gc

from pyspark.daemon import manager

__all__ = ["warm"]


def warm() -> None:
    """Import what workers need, and match one message, so that the kernels are loaded."""
    import pandas  # noqa: F401  PySpark's worker imports it at its first Arrow batch
    import pyarrow as pa
    import pyspark.worker  # noqa: F401

    import nearcast.spark.worker  # noqa: F401
    from nearcast import MessageBatch, SubscriptionTable, build_index, config

    circle = {"lon": [0.0], "lat": [0.0], "radius_m": [1.0]}
    subscriptions = SubscriptionTable.from_arrow(
        pa.table({"id": ["s"], "expression": ["tea AND price < 3"], **circle})
    )
    few, many = build_index(config.DEFAULT_INDEX, subscriptions), build_index("packed-list", subscriptions)
    for words in ({"keywords": [["tea"]]}, {"text": ["tea"]}):
        message = pa.table({"id": ["m"], "lon": [0.0], "lat": [0.0], "price": [1.0], **words})
        batch = MessageBatch.from_arrow(message, like=subscriptions)
        few.match(batch)
        many.match(batch)


if __name__ == "__main__":
    # Whatever is broken here is broken in the workers too, and there the error reaches the user.
    with contextlib.suppress(Exception):
        warm()
    gc.collect()
    gc.freeze()  # workers collect garbage after each task; what was loaded before the fork stays out of it, and shared
    manager()
