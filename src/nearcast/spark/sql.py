"""Matching in SQL: a table function for many messages, and a scalar function to look at single rows.

:func:`register` gives a session both of them::

    SELECT * FROM nearcast_match(TABLE(messages), '/data/versions')
    SELECT nearcast_matches(text, lon, lat, 'coffee NOT decaf', 'CIRCLE (-73.99 40.73, 800 m)') FROM messages
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F  # noqa: N812  its usual name

from nearcast import MessageBatch, Subscription, SubscriptionTable, build_index, config, open_index
from nearcast.columns.from_arrow.names import TIMES, require
from nearcast.errors import InputError, RuntimeUnavailableError, shown
from nearcast.matching import Index
from nearcast.spark.session import quietly
from nearcast.spark.worker import delivery_rows, match_in_portions
from nearcast.storage.current import current

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray
    from pyspark.sql import SparkSession

    from nearcast import Matches
    from nearcast.sharding.version import ShardedVersion

__all__ = ["DELIVERIES", "MatchTable", "matches_rows", "register"]

#: The columns of ``nearcast_match``: those of all deliveries, with ids as strings.
DELIVERIES = "subscription_id string, message_id string, change string, reason string, score double, rank int"


def register(spark: SparkSession) -> None:
    """Register ``nearcast_match`` and ``nearcast_matches`` in a session.

    ``nearcast_match(TABLE(messages), 'versions')`` returns the deliveries of a table of messages, with the columns that
    all deliveries have. The second argument is what :func:`nearcast.spark.build` returned, or the directory that it
    built in, whose latest version each task takes when it begins: name a version to be sure that all take the same.
    A table function over Arrow has the same columns whatever it is given, so both ids are strings.

    ``nearcast_matches(text, lon, lat, expression, region)`` tells whether a message with this text at this point
    matches. The region is WKT, a written place or WKB; null is everywhere. The message has no attributes. The answer is
    null if there is no point or no expression.
    """
    functions: Any = F  # its type hints lack some of them
    if not hasattr(functions, "arrow_udtf"):
        raise RuntimeUnavailableError(
            "nearcast_match is a table function over Arrow, which PySpark has since 4.1; use nearcast.spark.match"
        )
    with quietly():
        spark.udtf.register("nearcast_match", functions.arrow_udtf(MatchTable, returnType=DELIVERIES))
        spark.udf.register("nearcast_matches", functions.arrow_udf(matches_rows, "boolean"))


class MatchTable:
    """The table function ``nearcast_match``; each task has one."""

    def __init__(self) -> None:
        # What is built while the task runs changes nothing for it.
        self._version = lru_cache(maxsize=None)(_version)

    def eval(self, batch: pa.RecordBatch, versions: pa.Array) -> Iterator[pa.Table]:
        """Yield the deliveries of some messages."""
        if not len(batch):
            return
        messages = batch.drop_columns([name for name in TIMES if name in batch.schema.names])
        require(["id"], messages.schema.names, "messages")
        index, ids = _open(self._version(versions[0].as_py()))

        def match(part: pa.RecordBatch) -> Matches:
            return index.match(MessageBatch.from_arrow(part, like=index))

        for part, found in match_in_portions([messages], match):
            named = {"message_id": part["id"].cast(pa.string())}
            for rows in delivery_rows(found, ids, named):
                yield _with_constants(rows)


@lru_cache(maxsize=config.SPARK_OPEN_INDEXES)
def _open(version: str) -> tuple[Index | ShardedVersion, Callable[[NDArray[np.int32]], dict[str, pa.Array]]]:
    """Open a version, once per process; return it with the ids of its subscriptions, which are strings."""
    index = open_index(version)
    ids = index.store.ids if isinstance(index, Index) else index.ids

    def ids_of(rows: NDArray[np.int32]) -> dict[str, pa.Array]:
        taken = pa.array(rows)
        return {"subscription_id": (taken if ids is None else ids.take(taken)).cast(pa.string())}

    return index, ids_of


def _version(versions: object) -> str:
    if not isinstance(versions, str) or not versions:
        raise InputError(
            f"the second argument of nearcast_match is {shown(versions)}; give the path or URI of an index as a string"
        )
    return current(versions).uri


def _with_constants(rows: pa.RecordBatch) -> pa.Table:
    n = len(rows)
    return pa.table(
        {
            "subscription_id": rows["subscription_id"],
            "message_id": rows["message_id"],
            "change": pa.repeat("+", n),
            "reason": pa.repeat("publish", n),
            "score": pa.nulls(n, pa.float64()),
            "rank": pa.nulls(n, pa.int32()),
        }
    )


def matches_rows(
    text: pa.Array, lon: pa.Array, lat: pa.Array, expression: pa.Array, region: pa.Array
) -> pa.Array:
    """Return whether each message matches the subscription in its own row: the function ``nearcast_matches``.

    >>> matches_rows(*map(pa.array, (["Hot tea"] * 2, [0.0] * 2, [0.0] * 2, ["tea", "milk"], [None, None]))).to_pylist()
    [True, False]
    """
    numbers = [_numbers(name, column) for name, column in (("lon", lon), ("lat", lat))]
    known = pc.and_(pc.and_(numbers[0].is_valid(), numbers[1].is_valid()), expression.is_valid())
    answers = np.zeros(len(text), bool)
    rows = np.flatnonzero(known)
    for start in range(0, len(rows), config.SQL_ROWS):
        part = rows[start : start + config.SQL_ROWS]
        taken = pa.array(part)
        written = list(zip(expression.take(taken).to_pylist(), region.take(taken).to_pylist()))
        numbered = {pair: number for number, pair in enumerate(dict.fromkeys(written))}
        wanted = np.array([numbered[pair] for pair in written])
        table = SubscriptionTable.from_subscriptions([_subscription(*pair) for pair in numbered])
        messages = {"text": text.take(taken), "lon": numbers[0].take(taken), "lat": numbers[1].take(taken)}
        found = build_index("scan", table).match(MessageBatch.from_arrow(messages, like=table))
        own = found.rows == wanted[found.messages]
        answers[part[found.messages[own]]] = True
    return pa.array(answers, mask=~np.asarray(known))


def _numbers(name: str, column: pa.Array) -> pa.Array:
    try:
        return column.cast(pa.float64())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise InputError(f"{name} of nearcast_matches must be a number: {error}") from None


@lru_cache(maxsize=config.SQL_EXPRESSIONS)
def _subscription(expression: str, region: str | bytes | None) -> Subscription:
    return Subscription(0, expression, region)
