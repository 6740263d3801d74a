"""The stages that run in Spark's Python workers: Arrow batches in, Arrow batches out.

A version with one shard, or one index for all, is matched in one stage. With several shards there are two: the first
reads each message, once, and sends it as codes to its shards; the second matches what was sent. Both follow the deltas
of :class:`~nearcast.spark.Live`; a version whose subscriptions do not change has none.
"""

from __future__ import annotations

from collections import OrderedDict
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from nearcast import Matches, MessageBatch, SubscriptionTable, config, open_index
from nearcast.columns.coding import Coding
from nearcast.columns.from_arrow.names import KEPT
from nearcast.columns.wire import Known, from_wire, pack, to_wire, unpack
from nearcast.errors import InputError
from nearcast.matching import Index
from nearcast.sharding.building import ShardBuilder
from nearcast.sharding.distribution import Distribution, Routes
from nearcast.sharding.distribution.files import open_distribution
from nearcast.sharding.replica import Replica, Router
from nearcast.sharding.version import ShardedVersion
from nearcast.storage.places import place_at

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

__all__ = [
    "CANDIDATES",
    "SENT",
    "SHARD",
    "build_shards",
    "carried",
    "collect_words",
    "delivery_rows",
    "id_type",
    "match_in_portions",
    "match_messages",
    "match_sent",
    "open_version",
    "route_subscriptions",
    "send_messages",
    "spark_ids",
    "without_kept",
]

# Columns of what is on its way to a shard: that shard, and all shards that it is sent to.
SHARD, SENT = "_shard", "_sent"
CANDIDATES = "_nearcast_candidates"  # a column of deliveries that are counted
_NO_ROWS = np.empty(0, np.int32)


class _Whole:
    """One index for all subscriptions, with the methods of a replica that :func:`match_messages` needs."""

    def __init__(self, index: Index) -> None:
        self.version = index
        self._ids = index.store.ids

    def follow(self, deltas: Sequence[str]) -> None:
        """Do nothing: only versions with shards have deltas."""
        assert not deltas

    def messages(self, batch: pa.RecordBatch) -> MessageBatch:
        """Return messages in the coding of the index."""
        return MessageBatch.from_arrow(batch, like=self.version)

    def match(self, batch: MessageBatch, sent: None) -> Matches:
        """Return the rows that each message matches."""
        return self.version.match(batch)

    def ids_of(self, rows: NDArray[np.int32]) -> pa.Array:
        """Return the ids of rows; without ids, the rows are the ids."""
        return pa.array(rows) if self._ids is None else self._ids.take(pa.array(rows))


class _Shards:
    """The router of a version, and the replicas of shards that this process was asked for."""

    def __init__(self, version: ShardedVersion) -> None:
        self.version = version
        self.router = Router(version)
        self.replicas: OrderedDict[int, Replica] = OrderedDict()  # the last one was used last

    def replica(self, number: int) -> Replica:
        """Return a shard; it is opened when it is first asked for."""
        if number not in self.replicas:
            self.replicas[number] = Replica(self.version, number, self.router)
        self.replicas.move_to_end(number)
        _close_replicas()
        return self.replicas[number]


_versions: OrderedDict[tuple[str, str], _Whole | _Shards] = OrderedDict()  # the last one was used last


def _opened(version: str, digest: str) -> _Whole | _Shards:
    """Open the version whose manifest has this digest, once per process.

    A version never changes, so it need not be checked again; one that was damaged and built anew has another digest.
    Workers outlive a micro-batch, and share the pages of the files with one another.
    """
    key = version, digest
    if key not in _versions:
        index = open_index(version)
        _versions[key] = _Whole(index) if isinstance(index, Index) else _Shards(index)
    _versions.move_to_end(key)
    while len(_versions) > config.SPARK_OPEN_INDEXES:
        _versions.popitem(last=False)
    return _versions[key]


def _close_replicas() -> None:
    """Close the replicas that were not used for the longest time, if those that have changed hold too much memory.

    What all processes share as pages of files does not count. The replica that was used last stays.
    """
    sharded = [version for version in _versions.values() if isinstance(version, _Shards)]
    held = [(version, number) for version in sharded for number in version.replicas]
    total = sum(version.replicas[number].private_bytes for version, number in held)
    for version, number in held[:-1]:
        if total <= config.SPARK_REPLICA_BYTES:
            return
        if version.replicas[number].private_bytes:
            total -= version.replicas.pop(number).private_bytes


def _sharded(version: str, digest: str) -> _Shards:
    found = _opened(version, digest)
    assert isinstance(found, _Shards), f"{version} has no shards"
    return found


def open_version(version: str) -> Index | ShardedVersion:
    """Open a version, and check that no file of it is missing."""
    found = open_index(version)
    if isinstance(found, ShardedVersion):
        found.check()
    return found


def id_type(version: Index | ShardedVersion) -> pa.DataType:
    """Return the type that the ids of subscriptions have in deliveries."""
    if isinstance(version, ShardedVersion):
        ids = version.schema.empty_table()["id"].combine_chunks()
    else:
        ids = pa.array([], pa.int64()) if version.store.ids is None else version.store.ids.slice(0, 0)
    return spark_ids(ids).type


def spark_ids(ids: pa.Array) -> pa.Array:
    """Return ids in a type that Spark has: it has no unsigned integers, and only one type of string."""
    return ids.cast(pa.int64() if pa.types.is_integer(ids.type) else pa.string())


# --- Matching --------------------------------------------------------------------------------------------------------


def match_messages(
    batches: Iterable[pa.RecordBatch],
    version: str,
    digest: str = "",
    deltas: Sequence[str] = (),
    *,
    counted: bool = False,
) -> Iterator[pa.RecordBatch]:
    """Match messages against a version of one index or one shard; yield the ids of each delivery.

    With *counted*, each row has a further column: see :class:`_Count`.
    """
    opened = _opened(version, digest)
    reader: _Whole | Router = opened if isinstance(opened, _Whole) else opened.router
    replica: _Whole | Replica = opened if isinstance(opened, _Whole) else opened.replica(0)
    replica.follow(deltas)
    count = _Count() if counted else None
    for part, found in match_in_portions(
        batches, lambda part: replica.match(reader.messages(without_kept(part)), None)
    ):
        yield from _rows(found, _ids_of(replica), carried(part), count)
    if count is not None:
        yield from count.last()


def _ids_of(replica: Replica | _Whole) -> Callable[[NDArray[np.int32]], dict[str, pa.Array]]:
    return lambda rows: {"subscription_id": spark_ids(replica.ids_of(rows))}


def send_messages(
    batches: Iterable[pa.RecordBatch], version: str, digest: str = "", deltas: Sequence[str] = ()
) -> Iterator[pa.RecordBatch]:
    """Yield each message, as codes, once for each shard that it is sent to.

    If some subscriptions are stored in several shards, each row also lists all shards of its message.
    """
    opened = _sharded(version, digest)
    opened.router.follow(deltas)
    lists = opened.version.has_copies or bool(deltas)
    known = opened.version.known if deltas else None
    for batch in batches:
        messages = opened.router.messages(without_kept(batch))
        routes = opened.router.distribution.route_messages(messages)
        kept = {name: batch[name] for name in batch.schema.names if name.startswith(KEPT)}
        coded = pa.RecordBatch.from_pydict({"id": batch["id"], **to_wire(messages, known), **kept})
        yield _send(coded, routes, list_shards=lists)


def match_sent(
    batches: Iterable[pa.RecordBatch],
    version: str,
    digest: str = "",
    deltas: Sequence[str] = (),
    *,
    counted: bool = False,
) -> Iterator[pa.RecordBatch]:
    """Match messages in the shards that they were sent to; yield the ids of the deliveries of these shards.

    With *counted*, each row has a further column: see :class:`_Count`.
    """
    opened = _sharded(version, digest)
    count = _Count() if counted else None
    coding = opened.version.coding
    for batch in batches:
        for number, here in _split_by_shard(batch):
            replica = opened.replica(number)
            replica.follow(deltas)

            def match(part: pa.RecordBatch, replica: Replica = replica) -> Matches:
                return replica.match(from_wire(part, coding), _sent_routes(part))

            for part, found in match_in_portions([here], match):
                yield from _rows(found, _ids_of(replica), carried(part), count)
    if count is not None:
        yield from count.last()


class _Count:
    """Counts the candidates of a task, and tells them in one more row, the last: a delivery of nothing to nobody."""

    def __init__(self) -> None:
        self.candidates = 0
        self._schema: pa.Schema | None = None

    def note(
        self, found: Matches, subscriptions: Mapping[str, pa.Array], messages: Mapping[str, pa.Array]
    ) -> None:
        """Add the candidates of a portion; its columns tell what the last row looks like."""
        self.candidates += found.candidates or 0
        columns = {**subscriptions, **messages}
        self._schema = pa.schema({name: column.type for name, column in columns.items()})

    def last(self) -> Iterator[pa.RecordBatch]:
        """Yield the last row; none if there were no messages."""
        if self._schema is not None:
            nothing = {field.name: pa.nulls(1, field.type) for field in self._schema}
            yield pa.RecordBatch.from_pydict(nothing | {CANDIDATES: pa.array([self.candidates], pa.int64())})


def _rows(
    found: Matches,
    subscriptions: Callable[[NDArray[np.int32]], Mapping[str, pa.Array]],
    messages: Mapping[str, pa.Array],
    count: _Count | None,
) -> Iterator[pa.RecordBatch]:
    """Yield delivery rows, with a column for candidates if they are counted."""
    if count is None:
        yield from delivery_rows(found, subscriptions, messages)
        return
    count.note(found, subscriptions(_NO_ROWS), messages)
    for rows in delivery_rows(found, subscriptions, messages):
        yield rows.append_column(CANDIDATES, pa.nulls(len(rows), pa.int64()))


def without_kept(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the columns that matching reads."""
    return batch.drop_columns([name for name in batch.schema.names if name.startswith(KEPT)])


def carried(part: pa.RecordBatch) -> dict[str, pa.Array]:
    """Return the columns of messages that deliveries have: the id, and those that they keep."""
    kept = (name for name in part.schema.names if name.startswith(KEPT))
    return {"message_id": part["id"]} | {name: part[name] for name in kept}


def match_in_portions(
    batches: Iterable[pa.RecordBatch], match: Callable[[pa.RecordBatch], Matches]
) -> Iterator[tuple[pa.RecordBatch, Matches]]:
    """Match messages in portions whose matches fit into little memory; yield each portion with its matches.

    A few messages, spread over the batch, are matched first: they tell how many matches to expect.
    """
    for batch in (each for whole in batches for each in _chunks(whole)):
        most = len(batch)
        if most > config.SPARK_PROBED:
            probed = batch.take(pa.array(np.arange(0, most, most // config.SPARK_PROBED)))
            most = _fitting(len(probed), len(match(probed).rows))
        start, size = 0, most
        while start < len(batch):
            part = batch.slice(start, size)
            found = match(part)
            count = len(found.rows)
            yield part, found
            del found  # before the next portion is matched
            start += len(part)
            size = min(most, _fitting(len(part), count))


def _chunks(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield a batch in pieces for which a few messages can speak."""
    for start in range(0, len(batch), config.SPARK_MOST_MESSAGES):
        yield batch.slice(start, config.SPARK_MOST_MESSAGES)


def _fitting(messages: int, matches: int) -> int:
    """Return how many messages may be matched at once, if as many as these have as many matches."""
    return max(1, config.SPARK_MATCHES * messages // max(matches, 1))


def delivery_rows(
    found: Matches,
    subscriptions: Callable[[NDArray[np.int32]], Mapping[str, pa.Array]],
    messages: Mapping[str, pa.Array],
) -> Iterator[pa.RecordBatch]:
    """Yield a row for each match, in batches of bounded size: columns of its subscription and of its message.

    *subscriptions* returns those of subscriptions, given their rows.
    """
    for start in range(0, len(found.rows), config.SPARK_OUTPUT_ROWS):
        stop = min(start + config.SPARK_OUTPUT_ROWS, len(found.rows))
        first = int(np.searchsorted(found.offsets, start, side="right")) - 1
        last = int(np.searchsorted(found.offsets, stop, side="left"))
        ends = np.clip(found.offsets[first : last + 1], start, stop)
        owners = pa.array(np.repeat(np.arange(first, last), ends[1:] - ends[:-1]))
        columns = dict(subscriptions(found.rows[start:stop]))
        columns |= {name: column.take(owners) for name, column in messages.items()}
        yield pa.RecordBatch.from_pydict(columns)


# --- Building --------------------------------------------------------------------------------------------------------


def collect_words(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the words, strings and attributes that subscriptions ask for, each once: its kind, and the word itself."""
    coding = Coding.new()
    for batch in batches:
        SubscriptionTable.from_arrow(batch, like=coding)
    vocabulary, attributes = coding.words()
    kinds = {
        "word": vocabulary.words,
        "string": attributes.strings.words,
        "number": pa.array([name for name, text in attributes if not text], pa.string()),
        "text": pa.array([name for name, text in attributes if text], pa.string()),
    }
    for kind, words in kinds.items():
        for start in range(0, len(words), config.SPARK_OUTPUT_ROWS):
            part = words.slice(start, config.SPARK_OUTPUT_ROWS).cast(pa.string())
            yield pa.RecordBatch.from_pydict({"kind": pa.array([kind] * len(part)), "word": part})


@lru_cache(maxsize=1)
def _draft(uri: str) -> tuple[Distribution, Coding, Known]:
    """Open the distribution that a build has fitted, once per process."""
    distribution, coding = open_distribution(uri)
    return distribution, coding, Known.of(coding)


def _read_subscriptions(rows: pa.RecordBatch, draft: str) -> SubscriptionTable:
    """Return rows as subscriptions, in the coding of a build."""
    _, coding, known = _draft(draft)
    table = SubscriptionTable.from_arrow(rows, like=coding)
    if Known.of(coding) != known:
        raise InputError(
            "the subscriptions have words that they did not have a moment ago: they changed while they were read; "
            "write them to a table first, and build from it"
        )
    return table


def route_subscriptions(batches: Iterable[pa.RecordBatch], draft: str) -> Iterator[pa.RecordBatch]:
    """Yield each subscription once for each shard that stores it, with all of its shards."""
    distribution = _draft(draft)[0]
    for batch in batches:
        table = _read_subscriptions(batch, draft)
        distribution = distribution.grown(table, np.arange(len(table.owners)))
        yield _send(batch, distribution.route_subscriptions(table), list_shards=True)


def build_shards(
    batches: Iterable[pa.RecordBatch], version: str, build: str, draft: str, index: str
) -> Iterator[pa.RecordBatch]:
    """Build the shards of the subscriptions that were sent to them, in the order of shards and ids; yield each."""
    place, (distribution, coding, _) = place_at(version), _draft(draft)
    builder: ShardBuilder | None = None
    current = -1

    def finished(builder: ShardBuilder) -> pa.RecordBatch:
        with builder:
            built = builder.finish(index)
        return pa.RecordBatch.from_pydict({"built": [built.to_json()], "added": [built.added.tobytes()]})

    for batch in batches:
        for number, here in _split_by_shard(batch):
            rows = pa.Table.from_batches([here.drop_columns([SHARD, SENT])])
            if number != current:
                if builder is not None:
                    yield finished(builder)
                current = number
                schema = rows.schema.remove_metadata()
                builder = ShardBuilder(place, build, number, schema, distribution, coding)
            assert builder is not None
            routes = _sent_routes(here)
            assert routes is not None
            builder.add(rows, _read_subscriptions(rows, draft), routes)
    if builder is not None:
        yield finished(builder)


# --- Sending ---------------------------------------------------------------------------------------------------------


def _send(batch: pa.RecordBatch, routes: Routes, *, list_shards: bool) -> pa.RecordBatch:
    """Return a row for each row and each of its shards; with *list_shards*, it lists the other shards too."""
    rows = pa.array(routes.rows)
    sent = batch.take(rows).append_column(SHARD, pa.array(routes.shards))
    if list_shards:
        sent = sent.append_column(SENT, pack(*routes).take(rows))
    return sent


def _sent_routes(sent: pa.RecordBatch) -> Routes | None:
    """Return all shards of each row, as :func:`_send` listed them; None if it did not."""
    return Routes(*unpack(sent[SENT], np.int32)) if SENT in sent.schema.names else None


def _split_by_shard(rows: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield each shard in the column ``_shard``, with the rows that it gets."""
    numbers = pc.unique(rows[SHARD]).to_pylist()
    for number in numbers:
        yield number, rows if len(numbers) == 1 else rows.filter(pc.equal(rows[SHARD], number))
