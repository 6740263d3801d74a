"""Index versions: the subscriptions of one moment as an immutable directory that every worker maps into memory.

A version is named by a fingerprint of its subscriptions and of how they are divided. The same subscriptions, in any
order and after any restart, lead to the same directory, and nothing is built twice. A directory appears under its name
only when it is complete, so two jobs may build the same version at once: the one that finishes second uses the
directory of the first. Beside the versions, the file ``CURRENT`` names the one that was built last; it is replaced in
one step.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import uuid
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql.functions import explode

from nearcast import SubscriptionTable, __version__, build_index, config, open_index
from nearcast.errors import DuplicateError, IndexFileError, InputError, shown
from nearcast.sharding.version import SHARDS, SUBSCRIPTIONS, finish_version, start_version
from nearcast.spark import worker
from nearcast.spark.columns import message_columns, subscription_columns
from nearcast.spark.profiles import Profile
from nearcast.spark.session import quietly
from nearcast.storage.atomic import rename_durably, sync_directory
from nearcast.storage.current import switch
from nearcast.storage.manifest import FORMAT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession

__all__ = ["build", "build_version", "ensure_sharded_version", "ensure_version", "sample_of", "version_name"]


def build(
    subscriptions: DataFrame,
    directory: str | os.PathLike[str] | None = None,
    *,
    index: str = config.DEFAULT_INDEX,
    distribution: str = "auto",
    shards: int | None = None,
    messages: DataFrame | None = None,
    profile: Profile | str | os.PathLike[str] | None = None,
) -> Path:
    """Build the index of *subscriptions* under *directory*, unless it exists already; return its own directory.

    :func:`nearcast.spark.match` takes the returned path in place of the DataFrame, and :func:`nearcast.open_index`
    opens it in any process. With *shards*, Spark's tasks build the indexes of the shards in parallel; the subscriptions
    pass through the memory of the driver, which fits the distribution to them.

    Parameters
    ----------
    subscriptions
        A batch DataFrame with the columns that :func:`nearcast.spark.match` describes.
    directory
        Where versions are kept: on a cluster, storage that the driver and every worker see under the same path.
        The default, a directory of this user under the system's temporary directory, works on a single machine.
    index
        The name of the index, as :func:`nearcast.build_index` takes it.
    distribution
        How subscriptions are divided among shards: a name in ``nearcast.sharding.distribution.DISTRIBUTIONS``, or
        ``auto``.
    shards
        The number of shards, 1 to 1,024. Without it there is one index for all subscriptions, and messages stay in
        their partitions.
    messages
        A batch DataFrame of messages like those to come. The distribution is fitted to some thousands of them; without
        them, to messages made from the subscriptions.
    profile
        A profile, or its directory. Its sample is used instead of *messages*.
    """
    sample = None if messages is None else sample_of(messages)
    if profile is not None:
        sample = (profile if isinstance(profile, Profile) else Profile(profile)).sample
    home = Path(directory or _default_directory())
    version = build_version(
        subscriptions, home, index=index, distribution=distribution, shards=shards, sample=sample
    )
    switch(home, version.name)
    return version


def build_version(
    subscriptions: DataFrame,
    directory: Path | None,
    *,
    index: str,
    distribution: str,
    shards: int | None,
    sample: pa.Table | None,
) -> Path:
    """Do what :func:`build` does, but do not make the version the current one."""
    if subscriptions.isStreaming:
        raise InputError(
            "subscriptions are a streaming DataFrame, and an index holds those of one moment; read them with "
            "spark.read instead of spark.readStream, and start the query again to pick up changes"
        )
    subscriptions = subscription_columns(subscriptions)
    home = directory or _default_directory()
    if shards is None:
        return ensure_version(subscriptions.toArrow(), home, index)
    return ensure_sharded_version(
        subscriptions.sparkSession,
        subscriptions.toArrow(),
        home,
        index=index,
        distribution=distribution,
        shards=shards,
        sample=sample,
    )


def ensure_version(table: pa.Table, directory: Path, index: str) -> Path:
    """Return the version of the subscriptions in *table* under *directory*; build it first if it does not exist."""
    table = _sort_by_id(table)
    version = directory.absolute() / f"{index}-{_fingerprint(table, index)}"
    if not _is_sound(version):
        built = build_index(index, SubscriptionTable.from_arrow(table))
        with _draft(version) as draft:
            built.save(draft)
    return version


def ensure_sharded_version(
    spark: SparkSession,
    table: pa.Table,
    directory: Path,
    *,
    index: str,
    distribution: str,
    shards: int,
    sample: pa.Table | None,
) -> Path:
    """Return the sharded version of the subscriptions in *table*; build it first if it does not exist."""
    table = _sort_by_id(table)
    how = f"{distribution} {shards}" + (f" {_fingerprint(sample, '')}" if sample is not None else "")
    name = version_name(index=index, distribution=distribution, shards=shards)
    version = directory.absolute() / f"{name}-{_fingerprint(table, f'{index} {how}')}"
    if _is_sound(version):
        return version
    with _draft(version) as draft:
        start_version(draft, table, distribution=distribution, shards=shards, messages=sample)
        rows = spark.read.parquet(str(draft / SUBSCRIPTIONS))
        divided = rows.withColumn(worker.SHARD, explode(SHARDS)).repartitionById(shards, worker.SHARD)

        def build_shards(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            return worker.build_shards(batches, str(draft), index)

        with quietly():
            divided.mapInArrow(build_shards, "shard int, subscriptions long").collect()
        finish_version(draft, index)
    return version


def version_name(*, index: str, distribution: str, shards: int) -> str:
    """Return the start of the names of sharded versions in this form; a dash and the fingerprint follow."""
    return f"{index}-{distribution}-{shards}"


@contextmanager
def _draft(version: Path) -> Iterator[Path]:
    """Provide a directory to write to; it becomes *version*, unless another process, on any machine, was faster."""
    version.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = version.with_name(f".{version.name}.{uuid.uuid4().hex}")
    try:
        yield draft
        sync_directory(draft)
        rename_durably(draft, version)
    except OSError:
        if not version.exists():
            raise
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def sample_of(messages: DataFrame) -> pa.Table:
    """Return some thousands of messages, to fit a distribution to."""
    if messages.isStreaming:
        raise InputError(
            "a sample of messages must be a batch DataFrame, not a streaming one; read some with spark.read"
        )
    return message_columns(messages).limit(config.SHARD_SAMPLE).toArrow()


def _is_sound(version: Path) -> bool:
    """Tell whether a version exists and is exactly as it was written; remove a damaged one."""
    if not version.exists():
        return False
    try:
        open_index(version, verify=True)
    except IndexFileError:
        shutil.rmtree(version)
        return False
    return True


def _sort_by_id(table: pa.Table) -> pa.Table:
    """Return *table* in the order of its ids: Spark promises no order, and the fingerprint must not depend on it."""
    table = table.take(pc.sort_indices(table["id"])).combine_chunks()
    ids = table["id"]
    repeated = pc.equal(ids[1:], ids[:-1])
    if pc.any(repeated).as_py():
        duplicate = ids[pc.index(repeated, True).as_py()].as_py()
        raise DuplicateError(
            f"two subscriptions have the id {shown(duplicate)}; give each its own id, or drop duplicates"
        )
    return table


def _fingerprint(table: pa.Table, index: str) -> str:
    """Return a digest of the values in *table*, and of the form that they are built into.

    The digest is taken over the table as Parquet, which holds nothing but the values: Arrow's buffers also have
    arbitrary bytes under nulls.
    """
    content = pa.BufferOutputStream()
    pq.write_table(
        table, content, compression="none", use_dictionary=False, write_statistics=False, store_schema=False
    )
    digest = hashlib.blake2b(f"{index} {FORMAT} {__version__} ".encode(), digest_size=10)
    digest.update(content.getvalue())
    return digest.hexdigest()


def _default_directory() -> Path:
    user = os.getuid() if hasattr(os, "getuid") else "user"
    return Path(tempfile.gettempdir()) / f"nearcast-{user}"
