"""``nearcast match``: match files of messages and subscriptions, in this process or on Spark."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from nearcast import config
from nearcast.cli import renaming, spark_session, talk
from nearcast.cli.renaming import Rename
from nearcast.cli.spark_session import Conf, Master, Verbose
from nearcast.errors import InputError, UnknownError, counted, shown
from nearcast.storage.apart import keep_apart
from nearcast.storage.paths import local_path

if TYPE_CHECKING:
    import pyarrow as pa

    from nearcast import Index, MessageBatch
    from nearcast.columns.from_arrow.renaming import Columns
    from nearcast.sharding.version import ShardedVersion

__all__ = ["match"]

_FORMATS = ("jsonl", "csv", "parquet", "table")


def match(
    messages: Annotated[
        str, typer.Argument(metavar="MESSAGES", help="A file of messages; - is JSON lines on stdin.")
    ],
    subscriptions: Annotated[
        str,
        typer.Argument(
            metavar="SUBSCRIPTIONS|INDEX",
            help="A file of subscriptions, or the output of nearcast build; - is JSON lines on stdin.",
        ),
    ],
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="FILE", help="Where the deliveries go; - is stdout.")
    ] = "-",
    format: Annotated[
        str | None,
        typer.Option(
            "--format",
            "-f",
            metavar="|".join(_FORMATS),
            help="Format of the deliveries; by default that of the ending of --output, and jsonl on stdout.",
        ),
    ] = None,
    index: Annotated[str, typer.Option(metavar="NAME", help="The index to build.")] = config.DEFAULT_INDEX,
    threads: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Threads that match; by default one per core.")
    ] = None,
    rename: Rename = None,
    json: Annotated[
        bool, typer.Option("--json", help="Print the summary as JSON on stdout; needs --output FILE.")
    ] = False,
    master: Master = None,
    conf: Conf = None,
    verbose: Verbose = False,
) -> None:
    """Match a file of messages against a file of subscriptions.

    Words, values and places decide. Times are not read: expired messages are matched, too.

    Files are Parquet or GeoParquet (.parquet, or a directory of them), CSV (.csv), JSON lines (.jsonl, .ndjson) or
    GeoJSON (.geojson, .json), the latter three optionally followed by .gz or .zst. The deliveries have the columns
    subscription_id, message_id, change, reason, score and rank, and follow the order of the two files. A summary goes
    to stderr.

    With --master it runs on Spark. Then the messages are Parquet, SUBSCRIPTIONS is Parquet or the output of nearcast
    build, and --output is a new directory of Parquet, CSV or JSON lines.
    """
    columns = renaming.parse(rename)
    if master is not None:
        _on_spark(messages, subscriptions, output, format, index, columns, json, master, conf, verbose)
        return
    if conf or verbose:
        raise InputError("--conf and --verbose are for Spark; give --master too, local[*] for this machine")
    _check(messages, subscriptions, output, format, index, json)

    started = time.perf_counter()
    with _deliveries_to(output, format) as write, talk.progress() as show:
        show("reading the files (the first run also compiles its kernels)", None)
        matcher, batch = _matcher(messages, subscriptions, index, columns, show)
        ready = time.perf_counter()
        deliveries = 0
        for found, done in _matched(matcher, batch, threads or os.cpu_count() or 1):
            write(found)
            deliveries += len(found)
            show(f"matching: {done:,} of {len(batch):,} messages", done / max(len(batch), 1))
    ended = time.perf_counter()
    summary = {
        "messages": len(batch),
        "subscriptions": len(matcher),
        "deliveries": deliveries,
        "index": None if spark_session.is_index(subscriptions) else index,
        "seconds": round(ended - started, 6),
        "matching_seconds": round(ended - ready, 6),
        "messages_per_second": round(len(batch) / (ended - ready), 1),
    }
    talk.tell(
        f"{counted(len(batch), 'message')}, {counted(len(matcher), 'subscription')}: "
        f"{counted(deliveries, 'delivery')} in "
        f"{ended - started:.2f} s "
        f"(matched and written in {ended - ready:.2f} s, {summary['messages_per_second']:,.0f} messages/s)"
    )
    if json:
        talk.print_json(summary)


def _on_spark(
    messages: str,
    subscriptions: str,
    output: str,
    format: str | None,
    index: str,
    columns: Columns | None,
    json: bool,
    master: str,
    conf: list[str] | None,
    verbose: bool,
) -> None:
    """Match on Spark, from directories to a directory."""
    written = {"jsonl": "json", "csv": "csv", "parquet": "parquet"}.get(format or "parquet")
    if output == "-" or written is None:
        raise InputError(
            "on Spark, deliveries go to a directory; give --output DIR, and --format parquet, csv or jsonl"
        )
    keep_apart([output], map(spark_session.rows_of, (messages, subscriptions)))
    here = local_path(output)
    if here is not None and os.path.lexists(here):
        raise InputError(f"{output} exists already; give a new directory for the deliveries")
    started = time.perf_counter()
    with talk.progress() as show:
        show("starting Spark", None)
        with spark_session.open_session("nearcast match", master, conf, verbose) as spark:
            from nearcast.spark import match as match_on_spark
            from nearcast.spark.paths import spark_path

            rows = spark_session.typed_rows(spark, messages, "messages")
            show("building the index", None)
            found = match_on_spark(
                rows, spark_session.index_or_rows(spark, subscriptions), index=index, columns=columns
            )
            show("matching", None)
            ready = time.perf_counter()
            # As in one process: CSV has a line of column names, and JSON has all columns.
            how = {"header": "true", "ignoreNullFields": "false"}
            found.write.format(written).options(**how).save(spark_path(output))
            ended = time.perf_counter()
            reader = spark.read.format(written).options(**how).schema(found.schema)
            deliveries = reader.load(spark_path(output)).count()
            count = rows.count()
    summary = {
        "messages": count,
        "deliveries": deliveries,
        "output": output,
        "seconds": round(ended - started, 6),
        "matching_seconds": round(ended - ready, 6),
        "messages_per_second": round(count / (ended - ready), 1),
    }
    talk.tell(
        f"{counted(count, 'message')}: {counted(deliveries, 'delivery')} in {ended - started:.2f} s "
        f"(matched and written in {ended - ready:.2f} s, {summary['messages_per_second']:,.0f} messages/s)"
    )
    if json:
        talk.print_json(summary)


def _check(
    messages: str, subscriptions: str, output: str, format: str | None, index: str, json: bool
) -> None:
    """Raise before any work is done if the options cannot work."""
    from nearcast.matching import INDEXES

    keep_apart([output], [messages, subscriptions])
    if messages == subscriptions == "-":
        raise InputError(
            "stdin cannot be both the messages and the subscriptions; give a file for one of them"
        )
    if format is not None and format not in _FORMATS:
        raise InputError(f"there is no format {shown(format)}; there are {', '.join(_FORMATS)}")
    if format == "table" and output != "-":
        raise InputError("a table can only go to stdout; for a file, give --format jsonl, csv or parquet")
    if format == "parquet" and output == "-" and sys.stdout.isatty():
        raise InputError("Parquet cannot go to a terminal; give --output FILE, or pipe it somewhere")
    if json and output == "-":
        raise InputError(
            "--json prints the summary to stdout, where the deliveries go; send these to a file with --output FILE"
        )
    if index not in INDEXES:
        raise UnknownError(f"there is no index {shown(index)}; there are {', '.join(INDEXES)}")


def _matcher(
    messages: str, subscriptions: str, index: str, columns: Columns | None, show: talk.Show
) -> tuple[Index | ShardedVersion, MessageBatch]:
    """Return an index of the subscriptions, which may be built already, and the messages coded like it."""
    from nearcast import build_index, files, open_index
    from nearcast.columns.from_arrow.renaming import Renaming

    if spark_session.is_index(subscriptions):
        opened = open_index(local_path(subscriptions) or subscriptions)
        return opened, files.read_messages(messages, like=opened, columns=columns)
    names = Renaming(columns, "subscriptions", "messages")
    table = files.read_subscriptions(subscriptions, columns=names)
    batch = files.read_messages(messages, like=table, columns=names)
    show("building the index", None)
    made = build_index(index, table, progress=lambda step, share: show(f"building the index: {step}", share))
    return made, batch


def _matched(
    matcher: Index | ShardedVersion, batch: MessageBatch, threads: int
) -> Iterator[tuple[pa.Table, int]]:
    """Yield the deliveries of each chunk of messages, with the number of messages done so far."""
    import numpy as np

    from nearcast import Deliveries
    from nearcast.sharding.version import ShardedVersion

    subscription_ids = matcher.ids if isinstance(matcher, ShardedVersion) else matcher.store.ids
    for start in range(0, max(len(batch), 1), config.CLI_CHUNK):
        rows = np.arange(start, min(start + config.CLI_CHUNK, len(batch)))
        part = batch.take(rows)
        found = matcher.match(part, threads=threads).sorted()
        deliveries = Deliveries.of(found, rows if part.ids is None else part.ids, subscription_ids)
        yield deliveries.to_arrow(), int(rows[-1]) + 1 if len(rows) else 0


@contextmanager
def _deliveries_to(output: str, format: str | None) -> Iterator[Callable[[pa.Table], None]]:
    """Yield the function that writes deliveries to a file, or shows them."""
    if format != "table":
        from nearcast import files

        with files.writing(output, format) as write:
            yield write
        return
    pieces: list[pa.Table] = []
    yield pieces.append
    _show(pieces)


def _show(pieces: list[pa.Table]) -> None:
    """Print the first deliveries as a table, and say how many more there are."""
    import pyarrow as pa
    from rich.table import Table

    deliveries = pa.concat_tables(pieces)
    shown_rows = deliveries.slice(0, config.CLI_TABLE_ROWS)
    table = Table(*deliveries.column_names)
    for row in zip(*(column.to_pylist() for column in shown_rows.columns)):
        table.add_row(*("" if value is None else str(value) for value in row))
    talk.console().print(table)
    if len(deliveries) > len(shown_rows):
        talk.tell(
            f"these are the first {len(shown_rows):,} of {len(deliveries):,} deliveries; --format jsonl prints all"
        )
