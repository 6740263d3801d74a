"""Profiles: counts of messages and subscriptions, made by Spark and kept in versions that cost models read.

A version is a directory: ``counts`` (Parquet), ``sample`` (Parquet), ``manifest.json``. Each row of the counts has a
*side* (messages or subscriptions), a *kind*, a *key*, a *count*, and for attributes the range of values:

=============  ======================================  ==========================================================
kind           key                                     count
=============  ======================================  ==========================================================
``rows``       empty                                   messages, or subscriptions
``word``       the keyword                             messages that have it; clauses that ask for it
``place``      ``column,row`` of a grid of the world   messages in it; clauses whose boxes have their middle in it
``attribute``  its name                                messages that have it; clauses that test it; *low*, *high*
=============  ======================================  ==========================================================

Counts add up, so new data is added to the latest version to make a new one, and nothing is counted twice. The sample
consists of the messages whose ids have the smallest hashes: its size is bounded, and it does not depend on the order.
"""

from __future__ import annotations

import json
import os
import shutil
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import functions

from nearcast import __version__, config
from nearcast.errors import IndexFileError, InputError, UnknownError, shown
from nearcast.spark.columns import map_in_arrow, message_columns, rename_columns, subscription_columns
from nearcast.spark.session import quietly
from nearcast.spark.tally import MESSAGES, SUBSCRIPTIONS, count_partition
from nearcast.storage.atomic import rename_durably, sync_tree
from nearcast.storage.current import CURRENT, switch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from numpy.typing import NDArray
    from pyspark.sql import DataFrame, SparkSession

    from nearcast.columns.from_arrow.renaming import Columns

__all__ = ["Profile", "profile"]

FORMAT = 1
_SCHEMA = "side string, kind string, key string, count long, low double, high double"


class Profile:
    """One version of a profile, or the latest version in a directory."""

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        home = Path(directory).absolute()
        latest = home / CURRENT
        self.directory = home / latest.read_text(encoding="utf-8").strip() if latest.exists() else home
        try:
            self.manifest: dict[str, Any] = json.loads((self.directory / "manifest.json").read_bytes())
            version = self.manifest["format"]
        except (OSError, ValueError, KeyError):
            raise IndexFileError(f"{home} is no profile; make one with nearcast.spark.profile") from None
        if version != FORMAT:
            raise IndexFileError(f"{home} has format {shown(version)}; this version reads format {FORMAT}")

    def __repr__(self) -> str:
        messages, subscriptions = self.count(MESSAGES), self.count(SUBSCRIPTIONS)
        return f"<Profile {self.version}: {messages:,} messages, {subscriptions:,} subscriptions>"

    @property
    def version(self) -> int:
        """The number of this version; the first is 1."""
        return int(self.manifest["version"])

    def count(self, side: str) -> int:
        """Return how many messages or subscriptions were counted."""
        return int(self.manifest["counted"].get(side, 0))

    def words(self, side: str = MESSAGES, most: int | None = None) -> pa.Table:
        """Return ``word`` and ``count``, the most frequent words first."""
        return self._counted(side, "word", most)

    def places(self, side: str = MESSAGES) -> NDArray[np.int64]:
        """Return the counts of the cells of the grid: int64[rows, columns], from the south-west."""
        grid = np.zeros((config.PROFILE_CELLS, 2 * config.PROFILE_CELLS), np.int64)
        found = self._counted(side, "place")
        for key, count in zip(found["place"].to_pylist(), found["count"].to_pylist()):
            column, row = map(int, key.split(","))
            grid[row, column] = count
        return grid

    def attributes(self, side: str = MESSAGES) -> pa.Table:
        """Return ``attribute``, ``count``, ``low`` and ``high``; the last two are null for strings."""
        return self._counted(side, "attribute")

    @property
    def sample(self) -> pa.Table:
        """The sampled messages, with the columns that matching reads."""
        return pq.read_table(self.directory / "sample")

    def _counted(self, side: str, kind: str, most: int | None = None) -> pa.Table:
        chosen = (pc.field("side") == side) & (pc.field("kind") == kind)
        columns = ["key", "count", "low", "high"] if kind == "attribute" else ["key", "count"]
        found = pq.read_table(self.directory / "counts", filters=chosen, columns=columns)
        found = found.sort_by([("count", "descending"), ("key", "ascending")]).slice(0, most)
        return found.rename_columns([kind if name == "key" else name for name in columns])


def profile(
    directory: str | os.PathLike[str],
    *,
    messages: DataFrame | None = None,
    subscriptions: DataFrame | None = None,
    columns: Columns | None = None,
) -> Profile:
    """Count *messages* and *subscriptions* into a new version of the profile in *directory*; return it.

    The new version includes the counts of the latest one, so give each row only once. Both arguments are batch
    DataFrames with the columns that :func:`nearcast.spark.match` describes, which may have other names by *columns*, as
    there. Older versions stay as they are; ``CURRENT`` names the new one once it is complete.
    """
    messages, subscriptions = rename_columns(columns, messages=messages, subscriptions=subscriptions)
    given = {MESSAGES: messages, SUBSCRIPTIONS: subscriptions}
    frames = {side: frame for side, frame in given.items() if frame is not None}
    if not frames:
        raise InputError("give messages or subscriptions, or both, to count")
    for side, frame in frames.items():
        if frame.isStreaming:
            raise InputError(
                f"{side} are a streaming DataFrame, which has no end to count; read them with spark.read"
            )
        frames[side] = message_columns(frame) if side == MESSAGES else subscription_columns(frame)
    home = Path(directory).absolute()
    base = Profile(home) if (home / CURRENT).exists() else None
    number = 1 if base is None else base.version + 1
    spark = next(iter(frames.values())).sparkSession
    version = home / f"profile-{number:06}"
    if version.exists():
        raise UnknownError(
            f"{version} exists, but {home / CURRENT} does not name it: another job may be writing it; "
            "if none is, remove the directory"
        )
    home.mkdir(parents=True, exist_ok=True)
    draft = home / f".{version.name}.{uuid.uuid4().hex}"
    try:
        with quietly():
            _write_counts(spark, frames, base, draft / "counts")
            _write_sample(spark, frames.get(MESSAGES), base, draft / "sample")
        rows = pq.read_table(draft / "counts", filters=pc.field("kind") == "rows", columns=["side", "count"])
        manifest = {
            "format": FORMAT,
            "nearcast": __version__,
            "version": number,
            "counted": dict(zip(rows["side"].to_pylist(), rows["count"].to_pylist())),
            "base": base.directory.name if base else None,
        }
        (draft / "manifest.json").write_text(json.dumps(manifest, indent=1), encoding="utf-8")
        sync_tree(draft)
        rename_durably(draft, version)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    switch(home, version)
    return Profile(home)


def _write_counts(
    spark: SparkSession, frames: dict[str, DataFrame], base: Profile | None, path: Path
) -> None:
    counts = [] if base is None else [spark.read.parquet(str(base.directory / "counts"))]
    for side, frame in frames.items():
        counts.append(map_in_arrow(frame, _counting_stage(side), _SCHEMA))
    together = counts[0]
    for more in counts[1:]:
        together = together.unionByName(more)
    (
        together.groupBy("side", "kind", "key")
        .agg(
            functions.sum("count").alias("count"),
            functions.min("low").alias("low"),
            functions.max("high").alias("high"),
        )
        .sortWithinPartitions("side", "kind", functions.desc("count"))
        .write.parquet(str(path))
    )


def _write_sample(spark: SparkSession, rows: DataFrame | None, base: Profile | None, path: Path) -> None:
    """Write the messages with the smallest hashes, from the sample of the base and from *rows*."""
    if base is not None:
        earlier = spark.read.parquet(str(base.directory / "sample"))
        rows = earlier if rows is None else rows.unionByName(earlier, allowMissingColumns=True)
    if rows is None:
        empty = pa.schema([("id", pa.string()), ("lon", pa.float64()), ("lat", pa.float64())]).empty_table()
        path.mkdir()
        pq.write_table(empty, path / "none.parquet")
        return
    kept = rows.orderBy(functions.xxhash64(functions.col("id").cast("string"))).limit(config.PROFILE_SAMPLE)
    kept.coalesce(1).write.parquet(str(path))


def _counting_stage(side: str) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def count(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return count_partition(batches, messages=side == MESSAGES)

    return count
