"""Index versions: the subscriptions of one moment as an immutable directory that every worker maps into memory.

A version is named by a fingerprint of the subscriptions that it holds. The same subscriptions, in any order, after
any restart, lead to the same directory, and nothing is built twice. A directory appears under its name only when it is
complete, so two jobs that build the same version at once do no harm: the one that comes second uses what is there.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql.pandas.types import to_arrow_schema

from nearcast import SubscriptionTable, __version__, build_index, config, open_index
from nearcast.errors import ColumnError, DuplicateError, IndexFileError, InputError, shown
from nearcast.matching.files import FORMAT

if TYPE_CHECKING:
    from collections.abc import Collection

    from pyspark.sql import DataFrame

__all__ = ["build", "ensure", "require_id", "without_rows"]


def build(
    subscriptions: DataFrame,
    directory: str | os.PathLike[str] | None = None,
    *,
    index: str = config.DEFAULT_INDEX,
) -> Path:
    """Build the index of *subscriptions* under *directory*, unless it is there already; return its own directory.

    The subscriptions pass through the driver's memory. The path that is returned is what :func:`nearcast.spark.match`
    takes in the place of the DataFrame.

    Parameters
    ----------
    subscriptions
        A batch DataFrame with the columns that :func:`nearcast.spark.match` describes, and no others.
    directory
        Where versions are kept: on a cluster, storage that the driver and every worker see under the same path.
        By default a directory of this user under the system's temporary one, which serves a single machine.
    index
        The name of the index, as :func:`nearcast.build_index` takes it.
    """
    if subscriptions.isStreaming:
        raise InputError(
            "subscriptions are a streaming DataFrame, and an index holds those of one moment; read them with "
            "spark.read instead of spark.readStream, and start the query again to pick up changes"
        )
    require_id(subscriptions.columns, "subscriptions")
    SubscriptionTable.from_arrow(
        without_rows(subscriptions)
    )  # checks the columns before the job that collects them
    return ensure(subscriptions.toArrow(), Path(directory or _default_directory()), index)


def ensure(table: pa.Table, directory: Path, index: str) -> Path:
    """Return the version of the subscriptions in *table* under *directory*, and build it first if it is not there."""
    table = _canonical(table)
    version = directory.absolute() / f"{index}-{_fingerprint(table, index)}"
    if not _sound(version):
        built = build_index(index, SubscriptionTable.from_arrow(table))
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Not under its own name at once: another process, on another machine even, may be doing the same.
        draft = version.with_name(f".{version.name}.{uuid.uuid4().hex}")
        try:
            built.save(draft).rename(version)
        except OSError:
            if not version.exists():
                raise
        finally:
            shutil.rmtree(draft, ignore_errors=True)
    return version


def _sound(version: Path) -> bool:
    """Tell whether a version is there and can be opened; one that cannot be opened is cleared away."""
    if not version.exists():
        return False
    try:
        open_index(version)
    except IndexFileError:
        shutil.rmtree(version)
        return False
    return True


def require_id(columns: Collection[str], what: str) -> None:
    """Raise unless there is a column of ids: in a distributed table a row has no number that could stand in for one."""
    if "id" not in columns:
        raise ColumnError(f"{what} need a column id; the columns are {', '.join(columns)}")


def without_rows(frame: DataFrame) -> pa.Table:
    """Return the columns of *frame* without a row, as workers see them: what cannot be read is known before a job."""
    return to_arrow_schema(frame.schema, timezone="UTC").empty_table()


def _canonical(table: pa.Table) -> pa.Table:
    """Return *table* in the order of its ids: Spark promises none, and the fingerprint must not depend on it."""
    table = table.take(pc.sort_indices(table["id"])).combine_chunks()
    ids = table["id"]
    again = pc.equal(ids[1:], ids[:-1])
    if pc.any(again).as_py():
        twice = ids[pc.index(again, True).as_py()].as_py()
        raise DuplicateError(
            f"two subscriptions have the id {shown(twice)}; give each its own, or drop duplicates"
        )
    return table


def _fingerprint(table: pa.Table, index: str) -> str:
    """Return a digest of what *table* says, and of what is made of it.

    It is taken over the table as Parquet: that form holds the values alone, where Arrow's buffers also have whatever
    bytes lie under nulls.
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
