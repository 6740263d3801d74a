"""Profiles: counts of messages and subscriptions, made by Spark and kept in versions that cost models read.

A version is a directory of Parquet files, and a manifest that lists them; ``CURRENT`` beside the versions names the
latest one. Each row of the counts has a *side* (messages or subscriptions), a *kind*, a *key*, a *count*, and for
attributes the range of values:

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
import uuid
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import functions
from pyspark.sql.types import StructType

from nearcast import config
from nearcast.errors import IndexFileError, InputError, StorageError
from nearcast.spark.columns import map_in_arrow, message_columns, rename_columns, subscription_columns
from nearcast.spark.parts import read_parts, write_parts
from nearcast.spark.session import quietly
from nearcast.spark.tally import MESSAGES, SUBSCRIPTIONS, count_partition
from nearcast.storage.current import CURRENT, current
from nearcast.storage.manifest import MANIFEST, encode_manifest, read_manifest
from nearcast.storage.places import Place, place_at

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from numpy.typing import NDArray
    from pyspark.sql import DataFrame, SparkSession

    from nearcast.columns.from_arrow.renaming import Columns

__all__ = ["Profile", "profile"]

_KIND = "profile"  # of directory
_SCHEMA = "side string, kind string, key string, count long, low double, high double"


class Profile:
    """One version of a profile, or the latest version at a path or URI."""

    def __init__(self, directory: str | os.PathLike[str] | Place) -> None:
        self.place = current(directory)
        try:
            self.manifest = read_manifest(self.place, _KIND).document
        except IndexFileError as error:
            raise IndexFileError(
                f"{directory} is no profile; make one with nearcast.spark.profile ({error})"
            ) from None

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
        return self._table("sample")

    def _counted(self, side: str, kind: str, most: int | None = None) -> pa.Table:
        chosen = (pc.field("side") == side) & (pc.field("kind") == kind)
        columns = ["key", "count", "low", "high"] if kind == "attribute" else ["key", "count"]
        found = self._table("counts").filter(chosen).select(columns)
        found = found.sort_by([("count", "descending"), ("key", "ascending")]).slice(0, most)
        return found.rename_columns([kind if name == "key" else name for name in columns])

    def files(self, part: str) -> dict[str, int]:
        """Return the URIs of the files of ``counts`` or ``sample``, with the number of their rows."""
        return {f"{self.place}/{name}": rows for name, rows in self.manifest[part].items()}

    def _table(self, part: str) -> pa.Table:
        tables = []
        for name in self.manifest[part]:
            with self.place.open(name) as file:
                tables.append(pq.read_table(file))
        return pa.concat_tables(tables, promote_options="default") if tables else _NONE[part].empty_table()


_NONE = {  # the columns of parts without rows
    "counts": pa.schema(
        {
            **dict.fromkeys(("side", "kind", "key"), pa.string()),
            "count": pa.int64(),
            **dict.fromkeys(("low", "high"), pa.float64()),
        }
    ),
    "sample": pa.schema([("id", pa.string()), ("lon", pa.float64()), ("lat", pa.float64())]),
}


def profile(
    directory: str | os.PathLike[str] | Place,
    *,
    messages: DataFrame | None = None,
    subscriptions: DataFrame | None = None,
    columns: Columns | None = None,
) -> Profile:
    """Count *messages* and *subscriptions* into a new version of the profile in *directory*, a path or URI; return it.

    The new version includes the counts of the latest one, so give each row only once. Both arguments are batch
    DataFrames with the columns that :func:`nearcast.spark.match` describes, which may have other names by *columns*, as
    there. Older versions stay as they are; ``CURRENT`` names the new one once it is complete. If two jobs add to the
    same version at once, the second one is refused and leaves nothing behind.
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
    home = place_at(directory)
    latest = home.read_tagged(CURRENT)
    base = None if latest is None else Profile(home)
    number = 1 if base is None else base.version + 1
    spark = next(iter(frames.values())).sparkSession
    place = home / f"profile-{number:06}-{uuid.uuid4().hex[:12]}"
    try:
        with quietly():
            counts = write_parts(_counts(spark, frames, base), place, prefix="counts")
            rows = _sample(spark, frames.get(MESSAGES), base)
            sample = _WRITTEN_NOTHING if rows is None else write_parts(rows, place, prefix="sample")
        document: dict[str, Any] = {
            "version": number,
            "base": None if base is None else base.place.name,
            "counts": dict(zip(counts["name"].to_pylist(), counts["rows"].to_pylist())),
            "sample": dict(zip(sample["name"].to_pylist(), sample["rows"].to_pylist())),
            "schema": None if rows is None else rows.schema.json(),
        }
        document["counted"] = _counted_rows(place, document["counts"])
        place.write(MANIFEST, encode_manifest(_KIND, document, {}))
        swapped = home.swap(CURRENT, f"{place.name}\n".encode(), None if latest is None else latest[1])
        if not swapped and current(home) != place:
            raise StorageError(
                f"another job has added to the profile at {home.local or home} meanwhile, so these counts "
                "are not included; run this one again"
            )
    except BaseException:
        if current(home) != place:  # otherwise the answer was lost, not the profile
            place.clear()
        raise
    return Profile(place)


_WRITTEN_NOTHING = pa.table({"name": pa.array([], pa.string()), "rows": pa.array([], pa.int64())})


def _counted_rows(place: Place, files: Iterable[str]) -> dict[str, int]:
    """Return how many messages and subscriptions these counts are of."""
    counted: dict[str, int] = {}
    for name in files:
        with place.open(name) as file:
            found = pq.read_table(file, filters=pc.field("kind") == "rows", columns=["side", "count"])
        counted |= dict(zip(found["side"].to_pylist(), found["count"].to_pylist()))
    return counted


def _counts(spark: SparkSession, frames: dict[str, DataFrame], base: Profile | None) -> DataFrame:
    """Return the counts of the frames, added to those of the base."""
    fields = cast(StructType, StructType.fromDDL(_SCHEMA))
    counts = [] if base is None else [read_parts(spark, base.files("counts"), fields)]
    for side, frame in frames.items():
        counts.append(map_in_arrow(frame, _counting_stage(side), _SCHEMA))
    together = counts[0]
    for more in counts[1:]:
        together = together.unionByName(more)
    return (
        together.groupBy("side", "kind", "key")
        .agg(
            functions.sum("count").alias("count"),
            functions.min("low").alias("low"),
            functions.max("high").alias("high"),
        )
        .sortWithinPartitions("side", "kind", functions.desc("count"))
    )


def _sample(spark: SparkSession, rows: DataFrame | None, base: Profile | None) -> DataFrame | None:
    """Return the messages with the smallest hashes, from the sample of the base and from *rows*."""
    if base is not None and base.manifest["schema"] is not None:
        fields = StructType.fromJson(json.loads(base.manifest["schema"]))
        earlier = read_parts(spark, base.files("sample"), fields)
        rows = earlier if rows is None else rows.unionByName(earlier, allowMissingColumns=True)
    if rows is None:
        return None
    kept = rows.orderBy(functions.xxhash64(functions.col("id").cast("string"))).limit(config.PROFILE_SAMPLE)
    return kept.coalesce(1)


def _counting_stage(side: str) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def count(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return count_partition(batches, messages=side == MESSAGES)

    return count
