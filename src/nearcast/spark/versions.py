"""Index versions: the subscriptions of one moment in an immutable form that every worker maps into memory.

A version is named by a fingerprint of its subscriptions and of how they are divided. The same subscriptions, in any
order and after any restart, lead to the same version, and nothing is built twice. A version exists when its manifest
does, so two jobs may build the same one at once: the one that finishes second uses that of the first. Beside the
versions, the file ``CURRENT`` names the one that was built last; it is replaced in one step.

**Many subscriptions never meet in one process.** With shards, and more subscriptions than the driver reads itself,
Spark's tasks do everything that touches all of them:

1. Count them, add up their fingerprint, and look for ids that occur twice.
2. Collect the words that they ask for, which become the coding of the version.
3. Choose a sample by a hash of the id; the driver fits the distribution to it.
4. Send each subscription to its shards. Words that the sample lacks have shards by their letters.
5. Build each shard in one task, which takes its rows in the order of their ids and keeps only their coded form.

The driver then joins what the shards have added to the distribution, and writes the manifest.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import functions
from pyspark.sql.types import ArrayType, BinaryType, IntegerType, MapType, StructField, StructType

from nearcast import MessageBatch, SubscriptionTable, __version__, build_index, config, open_index
from nearcast.columns.attributes import AttributeNames
from nearcast.columns.coding import Coding
from nearcast.columns.from_arrow.names import KEPT, SUBSCRIPTION_COLUMNS
from nearcast.columns.vocabulary import Vocabulary
from nearcast.errors import DuplicateError, IndexFileError, InputError, shown
from nearcast.kernels.cache import is_private
from nearcast.matching import Index
from nearcast.sharding.building import BuiltShard, build_sharded, discard_build, finish_version, new_name
from nearcast.sharding.distribution import check_choice, distribute
from nearcast.sharding.distribution.files import save_distribution
from nearcast.sharding.version import ShardedVersion
from nearcast.spark import worker
from nearcast.spark.columns import (
    check_kept,
    map_in_arrow,
    message_columns,
    quoted,
    rename_columns,
    subscription_columns,
    without_rows,
)
from nearcast.spark.compat import spark_schema
from nearcast.spark.parts import read_parts
from nearcast.spark.profiles import Profile
from nearcast.spark.session import quietly
from nearcast.storage.current import switch
from nearcast.storage.manifest import FORMAT, MANIFEST
from nearcast.storage.places import Place, place_at

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import Column, DataFrame, SparkSession

    from nearcast.columns.from_arrow.renaming import Columns

__all__ = [
    "build",
    "build_version",
    "ensure_sharded_version",
    "ensure_version",
    "kept_frame",
    "sample_frame",
    "version_frame",
    "version_name",
]

_SEED = 7  # of the hashes by which samples are chosen


def build(
    subscriptions: DataFrame,
    directory: str | os.PathLike[str] | None = None,
    *,
    index: str = config.DEFAULT_INDEX,
    distribution: str = "auto",
    shards: int | None = None,
    messages: DataFrame | None = None,
    profile: Profile | str | os.PathLike[str] | None = None,
    columns: Columns | None = None,
    keep: Sequence[str] = (),
) -> Path | str:
    """Build the index of *subscriptions* under *directory*, unless it exists already; return where it is.

    :func:`nearcast.spark.match` takes the result in place of the DataFrame, and :func:`nearcast.open_index` opens it in
    any process. It is a path if *directory* is on a disk, and otherwise a URI. With *shards*, Spark's tasks divide the
    subscriptions and build the indexes of the shards in parallel; if there are many, the driver sees only their words
    and a sample.

    Parameters
    ----------
    subscriptions
        A batch DataFrame with the columns that :func:`nearcast.spark.match` describes. It is read several times, and
        must have the same rows each time.
    directory
        Where versions are kept, as a path or a URI: on a cluster, storage that the driver and every worker see. The
        default, a directory of this user under the system's temporary directory, works on a single machine.
    index
        The name of the index, as :func:`nearcast.build_index` takes it.
    distribution
        How subscriptions are divided among shards: a name in ``nearcast.sharding.distribution.DISTRIBUTIONS``, or
        ``auto``.
    shards
        The number of shards, 1 to 1,024. Without it there is one index for all subscriptions, which is built in the
        memory of the driver, and messages stay in their partitions. With *keep* it is 1.
    messages
        A batch DataFrame of messages like those to come. The distribution is fitted to some thousands of them; without
        them, to messages made from the subscriptions.
    profile
        A profile, or its directory. Its sample is used instead of *messages*.
    columns
        If the DataFrames have other names for their columns, a mapping from ours to theirs, as :func:`match` takes it.
    keep
        Columns of the subscriptions that the version keeps, for ``keep_subscription`` of :func:`match`.
    """
    messages, subscriptions = rename_columns(columns, messages=messages, subscriptions=subscriptions)
    check_kept("keep", keep, subscriptions.columns)
    sample = None if messages is None else sample_frame(messages).toArrow()
    if profile is not None:
        sample = (profile if isinstance(profile, Profile) else Profile(profile)).sample
    home = place_at(directory or _default_directory())
    version = build_version(
        subscriptions, home, index=index, distribution=distribution, shards=shards, sample=sample, keep=keep
    )
    switch(home, version.name)
    return version.local or version.uri


def build_version(
    subscriptions: DataFrame,
    directory: str | os.PathLike[str] | Place | None,
    *,
    index: str,
    distribution: str,
    shards: int | None,
    sample: pa.Table | None = None,
    hint: DataFrame | None = None,
    keep: Sequence[str] = (),
) -> Place:
    """Do what :func:`build` does, but do not make the version the current one.

    The *hint* is a sample, too, but not part of what names the version: it is read only if there is none yet.
    """
    if subscriptions.isStreaming:
        raise InputError(
            "subscriptions are a streaming DataFrame, and an index holds those of one moment; read them with "
            "spark.read instead of spark.readStream, and start the query again to pick up changes"
        )
    read = subscription_columns(subscriptions.drop(*set(keep).difference(SUBSCRIPTION_COLUMNS)))
    home = place_at(directory or _default_directory())
    if shards is None and not keep:
        return ensure_version(read.toArrow(), home, index)
    more = [_column(name).alias(f"{KEPT}{name}") for name in keep if name not in read.columns]
    return ensure_sharded_version(
        subscriptions.select(*map(_column, read.columns), *more),
        home,
        index=index,
        distribution=distribution,
        shards=1 if shards is None else shards,
        sample=sample,
        hint=hint,
    )


def ensure_version(table: pa.Table, directory: str | os.PathLike[str] | Place, index: str) -> Place:
    """Return the version of the subscriptions in *table* under *directory*; build it first if it does not exist."""
    table = _sort_by_id(table)
    version = place_at(directory) / f"{index}-{_digest(index, _content(table))}"
    if not _is_sound(version):
        built = build_index(index, SubscriptionTable.from_arrow(table))
        try:
            built.save(version.uri)
        except (IndexFileError, OSError):
            if not version.exists(MANIFEST):  # otherwise another process, on any machine, was faster
                raise
    return version


def ensure_sharded_version(
    subscriptions: DataFrame,
    directory: str | os.PathLike[str] | Place,
    *,
    index: str,
    distribution: str,
    shards: int,
    sample: pa.Table | None = None,
    hint: DataFrame | None = None,
) -> Place:
    """Return the sharded version of *subscriptions*, which have the columns that are read; build it if need be."""
    shards = check_choice("hash" if distribution == "auto" else distribution, shards)
    build_index(index, SubscriptionTable.empty(Coding.new()))  # an unknown one is an error before any job
    home = place_at(directory)
    how = f"{index} {distribution} {shards}" + (
        f" {_digest('', _content(sample))}" if sample is not None else ""
    )
    name = version_name(index=index, distribution=distribution, shards=shards)
    form = {"index": index, "distribution": distribution, "shards": shards}
    with quietly():
        few = subscriptions.limit(config.SPARK_DRIVER_ROWS + 1).toArrow()
        if len(few) <= config.SPARK_DRIVER_ROWS:
            table = _sort_by_id(few)
            version = home / f"{name}-{_digest(how, _content(table))}"
            if not _is_sound(version):
                drawn = _drawn_from(sample, hint)
                build_sharded(version, table, messages=drawn, **form)  # type: ignore[arg-type]
            return version
        del few
        size, content = _fingerprint(subscriptions)
        version = home / f"{name}-{_digest(how, content)}"
        if not _is_sound(version):
            _refuse_duplicates(subscriptions)
            drawn = _drawn_from(sample, hint)
            _build_by_tasks(subscriptions, version, size, sample=drawn, **form)  # type: ignore[arg-type]
    return version


def version_name(*, index: str, distribution: str, shards: int) -> str:
    """Return the start of the names of sharded versions in this form; a dash and the fingerprint follow."""
    return f"{index}-{distribution}-{shards}"


def version_frame(spark: SparkSession, version: ShardedVersion) -> DataFrame:
    """Return the subscriptions of a version, each once, with the columns that it was built from."""
    return read_parts(spark, version.row_files, spark_schema(version.schema))


def kept_frame(spark: SparkSession, version: Index | ShardedVersion, names: Sequence[str]) -> DataFrame:
    """Return columns of the subscriptions of a version, as they were when it was built, with ``subscription_id``."""
    known = version.schema if isinstance(version, ShardedVersion) else pa.schema([])
    columns = {name: name if name in known.names else f"{KEPT}{name}" for name in names}
    missing = next((name for name, column in columns.items() if column not in known.names), None)
    if missing is not None or not isinstance(version, ShardedVersion):
        raise InputError(
            f"keep_subscription has {shown(missing)}, but the version was built without this column; build it with "
            f"keep={list(names)}, or give the subscriptions as a DataFrame"
        )
    read = pa.schema([known.field(column) for column in dict.fromkeys(["id", *columns.values()])])
    rows = read_parts(spark, version.row_files, spark_schema(read))
    others = (_column(column).alias(name) for name, column in columns.items())
    return rows.select(_column("id").alias("subscription_id"), *others)


def sample_frame(messages: DataFrame) -> DataFrame:
    """Return some thousands of messages, to fit a distribution to: those whose ids have the least hashes."""
    if messages.isStreaming:
        raise InputError(
            "a sample of messages must be a batch DataFrame, not a streaming one; read some with spark.read"
        )
    return message_columns(messages).orderBy(_drawn(), "id").limit(config.SHARD_SAMPLE)


def _drawn_from(sample: pa.Table | None, hint: DataFrame | None) -> pa.Table | None:
    return sample if sample is not None or hint is None else hint.toArrow()


def _drawn() -> Column:
    """Return the hash of the column ``id`` by which rows are chosen for a sample."""
    return functions.xxhash64(functions.lit(_SEED), functions.col("id"))


def _column(name: str) -> Column:
    return functions.col(quoted(name))


# --- Building by tasks -----------------------------------------------------------------------------------------------


def _build_by_tasks(
    subscriptions: DataFrame,
    version: Place,
    size: int,
    *,
    index: str,
    distribution: str,
    shards: int,
    sample: pa.Table | None,
) -> None:
    """Build a version as the module docstring describes; *size* is how many subscriptions there are."""
    coding = _coding_of(subscriptions)
    share = config.SHARD_SUBSCRIPTIONS / size
    drawn = functions.pmod(_drawn(), functions.lit(1 << 32)) < functions.lit(int(share * (1 << 32)))
    chosen = SubscriptionTable.from_arrow(_sort_by_id(subscriptions.where(drawn).toArrow()), like=coding)
    messages = None if sample is None else MessageBatch.from_arrow(sample, like=coding)
    weight = size / max(len(chosen), 1)
    fitted = distribute(distribution, chosen, shards, messages=messages, weight=weight)
    build = new_name()
    draft = (version / f"draft-{build}-{new_name()}").uri
    where = version.uri  # tasks get no more than they need

    def route(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return worker.route_subscriptions(batches, draft)

    def build_shards(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return worker.build_shards(batches, where, build, draft, index)

    try:
        save_distribution(fitted, coding, draft)
        more = [StructField(worker.SHARD, IntegerType()), StructField(worker.SENT, BinaryType())]
        sent = map_in_arrow(subscriptions, route, StructType([*subscriptions.schema.fields, *more]))
        divided = sent.repartitionById(shards, worker.SHARD).sortWithinPartitions(worker.SHARD, "id")
        found = map_in_arrow(divided, build_shards, "built string, added binary").toArrow()
        built = [BuiltShard.from_json(row["built"], row["added"]) for row in found.to_pylist()]
        schema = without_rows(subscriptions).schema
        finish_version(version, build, built, fitted, coding, schema, index=index, size=size)
    finally:
        discard_build(version, build)


def _coding_of(subscriptions: DataFrame) -> Coding:
    """Return a coding of all words, strings and attributes that subscriptions ask for."""
    words = map_in_arrow(subscriptions, worker.collect_words, "kind string, word string").distinct().toArrow()
    words = words.sort_by([("kind", "ascending"), ("word", "ascending")])

    def of_kind(kind: str) -> pa.Array:
        return words.filter(pc.equal(words["kind"], kind))["word"].combine_chunks()

    columns = [(name, kind == "text") for kind in ("number", "text") for name in of_kind(kind).to_pylist()]
    return Coding(Vocabulary(of_kind("word")), AttributeNames(columns, Vocabulary(of_kind("string"))))


def _fingerprint(subscriptions: DataFrame) -> tuple[int, bytes]:
    """Return how many subscriptions there are, and what their hashes add up to: in any order, it is the same."""
    sums = [functions.count(functions.lit(1))]
    for seed in range(2):  # 128 bits
        hashed = _row_hash(subscriptions.schema, seed)
        sums.append(functions.sum(functions.shiftright(hashed, 32)))
        sums.append(functions.sum(hashed.bitwiseAND(functions.lit(0xFFFFFFFF))))
    size, *found = subscriptions.agg(*sums).collect()[0]
    return size, f"{subscriptions.schema.simpleString()} {size} {found}".encode()


def _row_hash(schema: StructType, seed: int) -> Column:
    """Return a hash of all columns. Spark's own skips nulls, also inside of lists, so these are written out."""
    columns: list[Column] = []
    for field in schema:
        column = functions.col(quoted(field.name))
        nested = isinstance(field.dataType, ArrayType | MapType | StructType)
        columns += [column.isNull(), functions.to_json(column) if nested else column]
    return functions.xxhash64(functions.lit(seed), *columns)


def _refuse_duplicates(subscriptions: DataFrame) -> None:
    """Raise if an id occurs twice; only hashes of ids are exchanged, unless two of them are equal."""
    hashed = functions.xxhash64("id")
    counted = subscriptions.groupBy(hashed.alias("hash")).count().where("count > 1")
    suspects = counted.limit(config.SPARK_SUSPECTS).toArrow()["hash"].to_pylist()
    if suspects:
        twice = subscriptions.where(hashed.isin(suspects)).groupBy("id").count().where("count > 1")
        for duplicate, _ in twice.orderBy("id").limit(1).collect():
            raise _duplicate(duplicate)


# --- Steps that all share --------------------------------------------------------------------------------------------


def _is_sound(version: Place) -> bool:
    """Tell whether a version exists and is as it was written; remove a damaged one.

    What is not on a disk of this machine is checked when it is fetched.
    """
    if not version.exists(MANIFEST):
        return False
    try:
        found = open_index(version, verify=version.local is not None)
        if isinstance(found, ShardedVersion):
            found.check()
    except IndexFileError:
        version.remove([MANIFEST])  # from now on it does not exist
        version.clear()
        return False
    return True


def _sort_by_id(table: pa.Table) -> pa.Table:
    """Return *table* in the order of its ids: Spark promises no order, and the fingerprint must not depend on it."""
    table = table.take(pc.sort_indices(table["id"])).combine_chunks()
    ids = table["id"]
    repeated = pc.equal(ids[1:], ids[:-1])
    if pc.any(repeated).as_py():
        raise _duplicate(ids[pc.index(repeated, True).as_py()].as_py())
    return table


def _duplicate(key: object) -> DuplicateError:
    return DuplicateError(
        f"two subscriptions have the id {shown(key)}; give each its own id, or drop duplicates"
    )


def _content(table: pa.Table) -> memoryview:
    """Return the values in *table* as Parquet, which holds nothing else: Arrow's buffers have bytes under nulls."""
    content = pa.BufferOutputStream()
    pq.write_table(
        table, content, compression="none", use_dictionary=False, write_statistics=False, store_schema=False
    )
    return memoryview(content.getvalue())


def _digest(how: str, content: bytes | memoryview) -> str:
    """Return a digest of subscriptions, and of the form that they are built into."""
    digest = hashlib.blake2b(f"{how} {FORMAT} {__version__} ".encode(), digest_size=10)
    digest.update(content)
    return digest.hexdigest()


def _default_directory() -> Path:
    """Return a directory of this user alone; any other directory is as readable as the user's umask says."""
    user = os.getuid() if hasattr(os, "getuid") else "user"
    directory = Path(tempfile.gettempdir()) / f"nearcast-{user}"
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not is_private(directory):
        raise InputError(
            f"{directory}, where versions are kept by default, belongs to another user, or others can write to it; "
            "name a directory of your own"
        )
    return directory
