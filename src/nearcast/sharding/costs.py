"""What a shard costs on this machine: processor time, memory, and bytes on the wire, measured in about a second.

The same data is matched by two indexes, one over a part of the subscriptions and one over all of them. More
subscriptions bring more matches, and more candidates that are looked at in vain. What a message costs by itself, and
what each match adds, candidates included, follow from the two times. Writing deliveries is measured apart.
"""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from nearcast import config
from nearcast.columns import MessageBatch, SubscriptionTable
from nearcast.matching import build_index
from nearcast.sharding.distribution.base import Distribution, Sample

__all__ = ["Costs", "calibrate", "routing_ns"]


class Costs(NamedTuple):
    """What one message, one delivery and one subscription cost a shard; times are of one core."""

    message_ns: float  # looking at a message
    match_ns: float  # finding one match of the data, and the candidates that are looked at in vain on the way
    delivery_ns: float  # writing a delivery
    subscription_bytes: float  # of the index and of the ids
    message_bytes: float  # on the wire: coded words and values, the place and the id
    delivery_bytes: float  # on the wire: two ids


def calibrate(sample: Sample) -> Costs:
    """Measure the costs on the subscriptions and messages of *sample*."""
    table, batch = sample.table, sample.batch
    rows = np.random.default_rng(0).permutation(len(table))[: max(len(table) // config.PLAN_PART, 1)]
    part = _timed(table.take(np.sort(rows)), batch)
    whole = _timed(table, batch)
    more = whole.matches - part.matches
    match_ns = max(whole.matching_ns - part.matching_ns, 0.0) / more if more > 0 else 0.0
    return Costs(
        message_ns=max(whole.matching_ns - match_ns * whole.matches, 0.0),
        match_ns=match_ns,
        delivery_ns=whole.writing_ns / whole.matches if whole.matches else 0.0,
        subscription_bytes=whole.bytes / max(len(table), 1),
        message_bytes=_wire_bytes(batch) / max(len(batch), 1),
        delivery_bytes=whole.written / max(whole.matches * len(batch), 1.0),
    )


class _Timed(NamedTuple):
    """What it took to match all messages: averages for one message, and bytes written for all."""

    bytes: int  # of the index and the ids
    matching_ns: float
    writing_ns: float
    matches: float
    written: int


def _timed(table: SubscriptionTable, batch: MessageBatch) -> _Timed:
    index, ids, size = build_index(table), _ids(table), max(len(batch), 1)
    names = pa.array([f"m{row}" for row in range(config.PLAN_BATCH)])
    starts = range(0, len(batch), config.PLAN_BATCH)
    chunks = [batch.take(np.arange(start, min(start + config.PLAN_BATCH, len(batch)))) for start in starts]
    best = np.full((2, len(chunks)), np.inf)
    for _ in range(config.PLAN_REPEAT):
        matches = written = 0
        for number, chunk in enumerate(chunks):
            started = time.thread_time_ns()
            found = index.match(chunk)
            between = time.thread_time_ns()
            told = [ids.take(pa.array(found.rows)), names.take(pa.array(found.messages))]
            written += _ipc_bytes(pa.table(told, ["subscription_id", "message_id"]))
            ended = time.thread_time_ns()
            best[:, number] = np.minimum(best[:, number], [between - started, ended - between])
            matches += len(found.rows)
    matching, writing = best.sum(axis=1).tolist()
    held = index.stats()["bytes"] + ids.nbytes
    return _Timed(held, matching / size, writing / size, matches / size, written)


def _ids(table: SubscriptionTable) -> pa.Array:
    if table.ids is not None:
        return table.ids
    return pa.array([f"s{row}" for row in range(len(table))])


def _wire_bytes(batch: MessageBatch) -> int:
    """Return the bytes of all messages as a router sends them: coded, in batches."""
    probes = batch.probes
    boxes: NDArray[Any] = probes.boxes
    points = bool((boxes[:, :2] == boxes[:, 2:]).all())
    columns: dict[str, Any] = {"id": [f"m{row}" for row in range(len(batch))]}
    columns |= {f"place{side}": boxes[batch.probe_offsets[:-1], side] for side in range(2 if points else 4)}
    table = pa.table(columns)
    ragged: list[NDArray[Any]] = [
        probes.keyword_offsets,
        probes.keywords,
        probes.value_offsets,
        probes.value_attributes,
        probes.values,
    ]
    return _ipc_bytes(table) + sum(array.nbytes for array in ragged) + batch.shapes.nbytes


def _ipc_bytes(table: pa.Table) -> int:
    sink = pa.MockOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return int(sink.size())


def routing_ns(distribution: Distribution, batch: MessageBatch) -> float:
    """Return the processor time that it takes to tell the shards of a message."""
    best = np.inf
    for _ in range(config.PLAN_REPEAT):
        started = time.thread_time_ns()
        distribution.route_messages(batch)
        best = min(best, time.thread_time_ns() - started)
    return float(best) / max(len(batch), 1)
