"""The process that Spark's Python workers are forked from; it has loaded everything that matching needs.

With Spark's own daemon, each worker imports Arrow, Numba and Nearcast and loads the compiled kernels after the fork:
more than a second of processor time, spent again whenever idle workers were stopped or a worker failed. Here it happens
once, before the first fork, and the workers share the memory too. Spark runs this module if
``spark.python.daemon.module`` names it, as :func:`nearcast.spark.session` does; the package must be installed where the
workers run.

Forking after these imports is safe: none of them leaves a thread behind that a worker would miss (Arrow's thread pools
and allocators start afresh in the child, and Numba starts no threads for single-threaded kernels).
"""

from __future__ import annotations

import contextlib
import gc

from pyspark.daemon import manager

__all__ = ["warm"]


def warm() -> None:
    """Import the modules that workers need, and match a message, so that the kernels are loaded."""
    with contextlib.suppress(ImportError):  # some versions do without it
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
    # If something fails here, it fails in the workers too, and from there the error reaches the user.
    with contextlib.suppress(Exception):
        warm()
    gc.collect()
    # Workers collect garbage after each task. Objects from before the fork are left out, so that they stay shared.
    gc.freeze()
    manager()
