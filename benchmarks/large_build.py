"""``python -m benchmarks build``: how much time, memory and storage it takes to build shards of many subscriptions.

Spark runs as a small cluster on this machine: a driver with 2 GB, and one executor. Once a second, the memory of each
process is read from ``/proc`` as its proportional share (PSS): pages that several processes map count once. What a few
messages find, each made from a subscription, is compared with an SQL query over all subscriptions.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import threading
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions
from rich.table import Table

from nearcast.bench.measure import Progress, timed
from nearcast.spark import build, match, session
from nearcast.storage.manifest import read_manifest
from nearcast.storage.places import place_at

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Memory", "compare", "measured", "run", "table"]

_WORDS = 200_000
_DRIVER = "2g"
_CHECKED = 20  # messages whose matches an SQL query finds, too,
_FREQUENT = 20  # and which have as many of the most frequent words
_FILE = 800_000  # subscriptions in each file of the input
_BATCH = 2_000  # messages in each partition

# One to three words, the n-th most frequent one with a share of about 1/n, and a box with sides of about 0.01 degrees.
_SUBSCRIPTION = f"""
    concat('subscription-', id) AS id,
    array_distinct(transform(sequence(1, 1 + CAST(pmod(xxhash64(id, 0), 3) AS int)), n ->
        concat('w', CAST(pow({_WORDS}, pmod(xxhash64(id, n), 1000003) / 1000003) AS int)))) AS keywords,
    x AS xmin, y AS ymin, x + 0.01 AS xmax, y + 0.01 AS ymax
"""
_MESSAGE = f"""
    concat('message-', id) AS id,
    array_distinct(transform(sequence(1, 9), n ->
        concat('w', CAST(pow({_WORDS}, pmod(xxhash64(id, n, 'm'), 1000003) / 1000003) AS int)))) AS keywords,
    x AS lon, y AS lat
"""


def run(
    home: Path,
    subscriptions: int,
    messages: int,
    shards: int,
    distribution: str,
    cores: int,
    executor: int,
    tell: Progress,
) -> dict[str, Any]:
    """Build, match and check; return the figures. *executor* is the megabytes of the executor's Java process."""
    spark = session(
        "large build",
        memory=_DRIVER,
        master=f"local-cluster[1,{cores},{executor}]",
        config={"spark.executor.memory": f"{executor}m", "spark.local.dir": str(home / "spark")},
    )
    spark.sparkContext.setLogLevel("ERROR")
    try:
        figures = measured(spark, home, subscriptions, messages, shards, distribution, tell)
    finally:
        spark.stop()
    return figures | {"cores": cores}


def measured(
    spark: SparkSession,
    home: Path,
    subscriptions: int,
    messages: int,
    shards: int,
    distribution: str,
    tell: Progress,
) -> dict[str, Any]:
    """Do the work of :func:`run` in a session."""
    tell("writing subscriptions", 0.0)
    rows = home / "subscriptions"
    if not rows.exists():
        draft = home / "draft"
        made = _points(spark, subscriptions, subscriptions // _FILE + 1).selectExpr(*_split(_SUBSCRIPTION))
        made.write.parquet(f"file://{draft}")
        draft.rename(rows)
    subs = spark.read.parquet(f"file://{rows}")
    tell("building shards", 0.2)
    shutil.rmtree(home / "versions", ignore_errors=True)
    with Memory() as building:
        seconds, version = timed(
            lambda: build(subs, home / "versions", distribution=distribution, shards=shards)
        )
    asked = _points(spark, messages, max(messages // _BATCH, 2)).selectExpr(*_split(_MESSAGE)).cache()
    # This computes them; they are there for `nearcast shards`.
    asked.write.mode("overwrite").parquet(f"file://{home / 'messages'}")
    found = match(asked, version)
    tell("matching", 0.7)
    found.write.format("noop").mode("overwrite").save()
    with Memory() as matching:
        took, _ = timed(lambda: found.write.format("noop").mode("overwrite").save())
    tell("checking", 0.9)
    checked, mismatches = compare(subs, version)
    document = read_manifest(place_at(version)).document
    return {
        "subscriptions": subscriptions,
        "shards": shards,
        "distribution": document["distribution"],
        "stored": document["stored"],
        "input_bytes": _size(rows),
        "build_seconds": seconds,
        "version_bytes": _size(Path(version)),
        "messages": messages,
        "messages_per_second": messages / took,
        "building": dict(building.peaks),
        "matching": dict(matching.peaks),
        "checked": checked,
        "mismatches": mismatches,
    }


def compare(subscriptions: DataFrame, version: Path | str) -> tuple[int, list[str]]:
    """Compare what a few messages find in a version with what SQL finds; return how many matches there are.

    Each message is made from one of the subscriptions, so it matches that one, and some of its neighbours.
    """
    frequent = ", ".join(f"'w{rank}'" for rank in range(1, _FREQUENT + 1))
    few = subscriptions.orderBy(functions.xxhash64("id"), "id").limit(_CHECKED)
    messages = few.selectExpr(
        "id",
        f"array_union(keywords, array({frequent})) AS keywords",
        "(xmin + xmax) / 2 AS lon",
        "(ymin + ymax) / 2 AS lat",
    ).localCheckpoint()
    found, expected = _pairs(match(messages, version)), _pairs(_by_sql(messages, subscriptions))
    return len(expected), [] if found == expected else ["match differs from SQL"]


def table(report: Mapping[str, Any]) -> Table:
    """Return the figures of a run as a table for people."""
    shown = Table(show_header=False)
    gb = 1e9
    for name, value in (
        ("subscriptions", f"{report['subscriptions']:,}"),
        ("shards", f"{report['shards']}, {report['distribution']}"),
        ("cores of the executor", f"{report['cores']}"),
        ("stored, copies included", f"{report['stored']:,}"),
        ("input (Parquet)", f"{report['input_bytes'] / gb:.2f} GB"),
        ("version", f"{report['version_bytes'] / gb:.2f} GB"),
        ("build", f"{report['build_seconds']:,.0f} s"),
        ("messages/s", f"{report['messages_per_second']:,.0f}"),
        ("matches compared with SQL", f"{report['checked']:,}"),
        *(
            (f"{work}: {name}, at most", f"{size / gb:.2f} GB")
            for work in ("building", "matching")
            for name, size in sorted(report[work].items())
        ),
    ):
        shown.add_row(name, value)
    return shown


def _points(spark: SparkSession, count: int, parts: int) -> DataFrame:
    """Return rows with an id and a place: three in four are near one of 1,000 towns."""
    town = "pmod(xxhash64(id, 'town'), 1000)"
    share = "pmod(xxhash64(id, '{}'), 1000003) / 1000003"
    near = "IF(pmod(id, 4) = 0, {low} + {size} * {share}, {centre} + {share} - 0.5)"

    def axis(name: str, low: int, size: int) -> str:
        centre = f"{low + 1} + {size - 2} * pmod(xxhash64({town}, '{name}'), 1000003) / 1000003"
        return near.format(low=low, size=size, centre=centre, share=share.format(name)) + f" AS {name}"

    return spark.range(0, count, 1, parts).selectExpr("id", axis("x", -120, 60), axis("y", 25, 24))


def _by_sql(messages: DataFrame, subscriptions: DataFrame) -> DataFrame:
    """Return what matches, found by comparing every subscription with every message."""
    few = functions.broadcast(messages.selectExpr("id AS message_id", "keywords AS words", "lon", "lat"))
    fits = (
        "lon BETWEEN xmin AND xmax AND lat BETWEEN ymin AND ymax AND size(array_except(keywords, words)) = 0"
    )
    return subscriptions.crossJoin(few).where(fits).withColumnRenamed("id", "subscription_id")


def _pairs(frame: DataFrame) -> list[tuple[str, str]]:
    return sorted(map(tuple, frame.select("message_id", "subscription_id").collect()))


def _split(columns: str) -> list[str]:
    """Return the columns of a select list; commas inside parentheses do not count."""
    found, depth = [""], 0
    for letter in columns:
        depth += (letter == "(") - (letter == ")")
        if letter == "," and not depth:
            found.append("")
        else:
            found[-1] += letter
    return found


def _size(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())


class Memory:
    """While entered, records the largest memory of the driver and of the executor: Java, Python, and all at once."""

    def __init__(self) -> None:
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self.peaks: dict[str, int] = defaultdict(int)

    def __enter__(self) -> Memory:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        over = False
        while not over:
            over = self._over.wait(1.0)
            now: dict[str, int] = defaultdict(int)
            for name, size in _shares():
                now[name] += size
                if name.startswith("executor"):
                    now["executor, all"] += size
                    self.peaks[f"{name}, largest"] = max(self.peaks[f"{name}, largest"], size)
            for name, size in now.items():
                self.peaks[name] = max(self.peaks[name], size)


def _shares() -> list[tuple[str, int]]:
    """Return the role and the memory of each process of this cluster, in bytes."""
    found = []
    for number in _descendants(os.getpid()):
        process = Path("/proc", str(number))
        try:
            command = (process / "cmdline").read_bytes().decode(errors="replace")
            lines = (process / "smaps_rollup").read_text().splitlines()
        except OSError:  # it has ended
            continue
        name = _role(number, command)
        size = next((line for line in lines if line.startswith("Pss:")), None)
        if name and size:
            found.append((name, 1024 * int(size.split()[1])))
    return found


def _role(process: int, command: str) -> str | None:
    """Return what a process of this cluster is; the master and the worker are in the driver's Java."""
    if process == os.getpid():
        return "driver's Python"
    if "CoarseGrainedExecutorBackend" in command:
        return "executor's Java"
    if "SparkSubmit" in command:  # its settings name the daemon, too
        return "driver's Java"
    return "executor's Python" if "nearcast.spark.daemon" in command or "pyspark.daemon" in command else None


def _descendants(first: int) -> set[int]:
    """Return a process and all that it has started: other clusters may run on this machine, too."""
    parents = {}
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            # The name of the program, in parentheses, may have spaces.
            parents[int(process.name)] = int((process / "stat").read_text().rpartition(")")[2].split()[1])
    found: set[int] = set()
    more = {first}
    while more:
        found |= more
        more = {child for child, parent in parents.items() if parent in more} - found
    return found
