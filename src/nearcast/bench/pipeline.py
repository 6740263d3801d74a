"""``nearcast bench spark``: the pipeline on local Spark, compared with the same work in one process.

The subscriptions are those of the AP-Tree paper with smaller regions, so that a message has about ten deliveries. All
contestants read the same Parquet files of messages and throw the deliveries away (Spark's sink ``noop``). No figure
includes starting Spark, building the index, or the first, unmeasured run. The version of the index may be at a URI:
then the time of a machine's first fetch is measured, too, and everything else begins after it.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from nearcast import Deliveries, MessageBatch, config, open_index, workloads
from nearcast.bench.measure import Progress, best_of, timed
from nearcast.columns.clauses import keyword_offsets
from nearcast.columns.deliveries import deliveries_schema
from nearcast.matching import Index
from nearcast.storage.cache import discard, fetched
from nearcast.storage.places import Place, place_at

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["run", "worker"]

THREADS = 2


def run(
    subscriptions: int,
    messages: int,
    *,
    seed: int = 0,
    repeat: int = config.BENCH_REPEAT,
    seconds: float = config.BENCH_STREAM_SECONDS,
    rate: int = config.BENCH_STREAM_RATE,
    versions: str | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Measure batch, stream and workers; return the body of the report.

    The version is written to *versions*, a path or a URI; by default to a temporary directory.
    """
    from nearcast.spark.session import require_pyspark, session

    require_pyspark()
    tell = progress or (lambda _text, _share: None)
    with tempfile.TemporaryDirectory(prefix="nearcast-bench-") as directory:
        home = Path(directory)
        tell("making the workload", 0.0)
        made = workloads.ap_tree(
            subscriptions, messages, seed=seed, recipe=workloads.Recipe(area=config.BENCH_SPARK_AREA)
        )
        table = _messages(made.messages)
        _write(table, home / "messages", config.BENCH_SPARK_FILES)
        tell("building the index", 0.1)
        asked = _subscriptions(made.subscriptions)
        from nearcast.spark.versions import ensure_version

        where = place_at(versions or home / "versions")
        building, place = timed(lambda: ensure_version(asked, where, config.DEFAULT_INDEX))
        version = str(place.local or place.uri)
        fetching = [] if place.local else [_first_fetch(place)]
        tell("workers", 0.2)
        workers = _workers(version, home / "messages")
        tell("in one process", 0.3)
        alone, deliveries = best_of(repeat, lambda: _in_process(version, home / "messages"))
        tell("starting Spark", 0.4)
        spark = session("nearcast bench", cores=THREADS, config=_SETTINGS)
        tell("batch", 0.5)
        batch, found = _batch(spark, version, home / "messages", repeat)
        tell("stream", 0.6)
        sustained = _sustained(spark, version, home)
        tell(f"stream of {rate:,} messages a second", 0.8)
        paced = _paced(spark, version, home, table, seconds, rate)
    results = [
        {"index": "in process", "messages_per_second": messages / alone, "deliveries": deliveries},
        {
            "index": "batch",
            "messages_per_second": messages / batch,
            "deliveries": found,
            "share_of_in_process": alone / batch,
        },
        {"index": "stream", **sustained},
        {"index": "paced stream", **paced},
        {"index": "worker", **workers},
        *fetching,
    ]
    wrong = [] if found == deliveries else [f"Spark delivers {found:,}, one process {deliveries:,}"]
    return {
        "workload": {"name": "ap-tree", "seed": seed, "description": made.description, **made.facts},
        "sizes": {"subscriptions": subscriptions, "messages": messages},
        "threads": THREADS,
        "repeat": repeat,
        "build_seconds": building,
        "results": results,
        "mismatches": wrong,
    }


_SETTINGS = {"spark.sql.streaming.numRecentProgressUpdates": 10_000}


def _degrees(unit: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return coordinates of the unit square as degrees."""
    out: NDArray[np.float64] = unit * 100 - 50
    return out


def _words(offsets: NDArray[np.int64], codes: NDArray[np.int32]) -> pa.Array:
    """Return codes as words."""
    names = pa.array([f"w{code}" for code in range(int(codes.max(initial=0)) + 1)])
    return pa.ListArray.from_arrays(offsets.astype(np.int32), names.take(pa.array(codes)))


def _messages(batch: MessageBatch) -> pa.Table:
    place = _degrees(batch.probes.boxes)
    return pa.table(
        {
            "id": np.arange(len(batch)),
            "lon": place[:, 0],
            "lat": place[:, 1],
            "keywords": _words(batch.probes.keyword_offsets, batch.probes.keywords),
        }
    )


def _subscriptions(table: Any) -> pa.Table:
    boxes = _degrees(table.clauses.boxes)
    return pa.table(
        {
            "id": np.arange(len(table)),
            "keywords": _words(keyword_offsets(table.clauses), table.clauses.keywords),
            **{name: boxes[:, k] for k, name in enumerate(("xmin", "ymin", "xmax", "ymax"))},
        }
    )


def _write(table: pa.Table, directory: Path, files: int) -> None:
    directory.mkdir(parents=True)
    for number, rows in enumerate(np.array_split(np.arange(len(table)), files)):
        pq.write_table(table.slice(rows[0], len(rows)), directory / f"{number:04}.parquet")


def _first_fetch(place: Place) -> dict[str, Any]:
    """Open a version of which this machine has no copy yet."""
    discard(place)
    seconds, _ = timed(lambda: open_index(place))
    return {"index": "first fetch", "seconds": seconds, "megabytes": _size(place) / 1e6}


def _size(place: Place) -> int:
    return sum(entry.size for entry in place.entries())


def _matcher(version: str) -> Index:
    index = open_index(version)
    assert isinstance(index, Index)
    return index


def _in_process(version: str, directory: Path) -> int:
    """Read the files and match them with two threads; return the number of deliveries."""
    index = _matcher(version)
    found = 0
    for file in sorted(directory.iterdir()):
        batch = MessageBatch.from_arrow(pq.read_table(file), like=index)
        assert batch.ids is not None
        assert index.store.ids is not None
        deliveries = Deliveries.of(index.match(batch, threads=THREADS), batch.ids, index.store.ids).to_arrow()
        plain = deliveries_schema(index.store.ids.type, batch.ids.type)  # as Spark has them
        found += len(deliveries.cast(plain))
    return found


def _batch(spark: SparkSession, version: str, directory: Path, repeat: int) -> tuple[float, int]:
    from nearcast.spark import match

    deliveries = match(spark.read.parquet(str(directory)), version)
    found = deliveries.count()  # this is also the unmeasured run
    seconds, _ = best_of(repeat, lambda: deliveries.write.format("noop").mode("overwrite").save())
    return seconds, found


def _streamed(spark: SparkSession, version: str, directory: Path, files: int) -> DataFrame:
    from nearcast.spark import match

    schema = spark.read.parquet(str(next(iter(sorted(directory.iterdir()))))).schema
    source = spark.readStream.schema(schema).option("maxFilesPerTrigger", files)
    return match(source.parquet(str(directory)), version)


def _batches(query: StreamingQuery) -> list[tuple[int, float]]:
    """Return the number of messages and the seconds of each micro-batch that had any."""
    return [
        (int(progress["numInputRows"]), progress["durationMs"]["triggerExecution"] / 1e3)
        for progress in query.recentProgress
        if progress["numInputRows"]
    ]


def _sustained(spark: SparkSession, version: str, home: Path) -> dict[str, Any]:
    """Return the messages per second of a stream that always has more to read."""
    files = max(1, config.BENCH_SPARK_FILES // config.BENCH_SPARK_BATCHES)
    stream = _streamed(spark, version, home / "messages", files)
    query = (
        stream.writeStream.format("noop")
        .option("checkpointLocation", str(home / "sustained"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    done = _batches(query)[1:]  # the first one warms up
    return {
        "messages_per_second": sum(rows for rows, _ in done) / sum(seconds for _, seconds in done),
        "batches": len(done),
    }


def _paced(
    spark: SparkSession, version: str, home: Path, table: pa.Table, seconds: float, rate: int
) -> dict[str, Any]:
    """Return the time of a micro-batch from its trigger to the sink while messages arrive at a given rate."""
    arriving = home / "arriving"
    arriving.mkdir()
    each = max(1, round(rate * config.BENCH_STREAM_STEP))
    pq.write_table(table.slice(0, each), arriving / "warm.parquet")
    query = (
        _streamed(spark, version, arriving, 1_000)
        .writeStream.format("noop")
        .option("checkpointLocation", str(home / "paced"))
        .start()
    )
    query.processAllAvailable()
    warm = len(_batches(query))
    stop = threading.Event()
    sent = [0]

    def send() -> None:
        started = time.perf_counter()
        while not stop.is_set():
            number = sent[0]
            start = number * each % max(1, len(table) - each)
            draft = arriving / f".{number:06}"
            pq.write_table(table.slice(start, each), draft)
            draft.rename(arriving / f"{number:06}.parquet")
            sent[0] += 1
            stop.wait(max(0.0, started + sent[0] * config.BENCH_STREAM_STEP - time.perf_counter()))

    sender = threading.Thread(target=send, daemon=True)
    started = time.perf_counter()
    sender.start()
    time.sleep(seconds)
    stop.set()
    sender.join()
    lasted = time.perf_counter() - started
    query.processAllAvailable()
    done = _batches(query)[warm:]
    query.stop()
    took = np.array([spent for _, spent in done])
    return {
        "messages_per_second": sent[0] * each / lasted,
        "batches": len(done),
        "p50_milliseconds": float(np.percentile(took, 50) * 1e3),
        "p99_milliseconds": float(np.percentile(took, 99) * 1e3),
    }


def _workers(version: str, directory: Path) -> dict[str, Any]:
    """Return what two fresh processes need to open the index and match: time, compilations, private memory."""
    code = "import sys; from nearcast.bench.pipeline import worker; worker(*sys.argv[1:])"
    command = [sys.executable, "-c", code, version, str(directory)]
    running = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(2)
    ]
    figures = []
    for process in running:
        assert process.stdout is not None
        process.stdout.readline()  # it is ready
    for process in running:  # both are still alive, with everything they have read in memory
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("tell\n")
        process.stdin.flush()
        figures.append(json.loads(process.stdout.readline()))
    for process in running:
        process.communicate("end\n", timeout=60)
    return {
        "open_seconds": max(one["open_seconds"] for one in figures),
        "compiled_kernels": max(one["compiled"] for one in figures),
        "index_megabytes": _size(place_at(version)) / 1e6,
        "resident_megabytes": max(one["rss"] for one in figures) / 1e6,
        "proportional_megabytes": max(one["pss"] for one in figures) / 1e6,
        "proportional_share": max(one["pss"] / one["rss"] for one in figures),
    }


def worker(version: str, directory: str) -> None:
    """Open an index, match a file, and print the cost, as for a Spark worker whose daemon is warm."""
    from numba.core import event

    from nearcast.spark import daemon
    from nearcast.spark import worker as spark_worker

    daemon.warm()
    first = pq.read_table(sorted(Path(directory).iterdir())[0]).to_batches()
    with event.install_recorder("numba:compile") as recorder:
        opening, _ = timed(lambda: spark_worker.open_version(version))
        matching, _ = timed(lambda: list(spark_worker.match_messages(first, version)))
    _say("ready")
    sys.stdin.readline()
    figures = {
        "open_seconds": opening,
        "match_seconds": matching,
        "compiled": len(recorder.buffer),
        **_mapped(place_at(version)),
    }
    _say(json.dumps(figures))
    sys.stdin.readline()


def _mapped(place: Place) -> dict[str, int]:
    """Return the bytes of a version's files that this process has in memory, and its share of them (PSS)."""
    with ExitStack() as stack:
        directory = str(place.local or stack.enter_context(fetched(place)))
    found = {"rss": 0, "pss": 0}
    inside = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        name, *values = line.split()
        if not name.endswith(":"):  # the first line of a mapping: its addresses, and the file
            inside = line.partition("/")[2].startswith(directory.lstrip("/"))
        elif inside and name[:-1].lower() in found:
            found[name[:-1].lower()] += 1024 * int(values[0])
    return found


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
