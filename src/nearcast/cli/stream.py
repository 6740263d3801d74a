"""``nearcast stream``: messages that arrive in files or in a topic, matched until it is told to stop."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nearcast.cli import ends, following, sparked, talk
from nearcast.cli.apart import keep_apart
from nearcast.cli.sparked import Conf, Master, Verbose
from nearcast.errors import InputError, NearcastError, shown

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = ["stream"]


def stream(
    messages: Annotated[
        str,
        typer.Argument(
            metavar="MESSAGES",
            help="Where messages arrive: a directory or a pattern of files (Parquet, JSON lines, CSV), or "
            "kafka://HOST:PORT/TOPIC with JSON objects.",
            show_default=False,
        ),
    ],
    subscriptions: Annotated[
        str,
        typer.Argument(
            metavar="INDEX|SUBSCRIPTIONS",
            help="What nearcast build made, or Parquet of subscriptions.",
            show_default=False,
        ),
    ],
    output: Annotated[
        str,
        typer.Argument(
            metavar="OUTPUT",
            help="Where deliveries go: a directory (Parquet, each delivery exactly once), or kafka://HOST:PORT/TOPIC "
            "(JSON, each at least once, with headers that tell repeats).",
            show_default=False,
        ),
    ],
    checkpoint: Annotated[
        str,
        typer.Option(
            metavar="DIR",
            help="What is done is noted here, with all that belongs to this stream; a restart goes on from it.",
        ),
    ],
    schema: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMNS",
            help='Of the messages, as in "id long, lon double, lat double, text string"; needed for Kafka. '
            "Files that are there tell it otherwise.",
        ),
    ] = None,
    prepare: Annotated[
        bool,
        typer.Option(
            "--prepare",
            help="Messages are raw: those that cannot be used go to a quarantine instead of stopping the stream. "
            "JSON, CSV and Kafka always are.",
        ),
    ] = False,
    quarantine: Annotated[
        str | None,
        typer.Option(
            metavar="DIR",
            help="Where that is, each row with its reason and as it came; CHECKPOINT/quarantine unless given.",
        ),
    ] = None,
    changes: Annotated[
        str | None,
        typer.Option(
            metavar="CHANGES",
            help="Where records that subscribe, update, move and unsubscribe arrive, in forms like MESSAGES. "
            "SUBSCRIPTIONS are then rows, those to begin with.",
        ),
    ] = None,
    trigger: Annotated[
        str,
        typer.Option(metavar="TIME|once", help="A micro-batch so often (500ms, 10s), or all there is, once."),
    ] = "500ms",
    json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON at the end.")] = False,
    master: Master = None,
    conf: Conf = None,
    verbose: Verbose = False,
) -> None:
    """Match messages as they arrive; stop by Ctrl-C or SIGTERM.

    Told to stop, it finishes the micro-batch it is at, and exits with 0. Broken off in any other way, it goes on from
    the checkpoint when it is started again: no delivery is lost, and none is twice in a directory. For a topic, a
    session fetches Spark's Kafka connector, unless --conf spark.jars.packages=… names another.
    """
    every = _trigger(trigger)
    topics = [ends.topic_of(address) for address in (messages, output, changes or "")]
    _check(messages, subscriptions, output, checkpoint, schema, quarantine, changes)
    with following.told_to_stop() as stop:
        with talk.progress() as show:
            show("starting Spark", None)
            with sparked.opened("nearcast stream", master, conf, verbose, kafka=any(topics)) as spark:
                from nearcast.cli.pipeline import Pipeline
                from nearcast.spark.columns import subscription_columns
                from nearcast.spark.reading import spark_path

                arriving, raw = ends.arriving_messages(spark, messages, _columns(schema))
                checkpoint = spark_path(checkpoint)
                aside = quarantine or f"{checkpoint}/quarantine"
                raw = raw or prepare or quarantine is not None
                pipeline = Pipeline(
                    arriving,
                    write=ends.sink(output),
                    quarantine=ends.quarantine(aside) if raw else None,
                    checkpoint=checkpoint,
                    trigger=every,
                )
                if changes is None:
                    pipeline.match(sparked.index_or_rows(spark, subscriptions))
                else:
                    rows = subscription_columns(sparked.typed_rows(spark, subscriptions, "subscriptions"))
                    pipeline.live(rows, ends.arriving_changes(spark, changes, rows))
                failure = following.follow(
                    pipeline.queries, stop, lambda: show(_sentence(pipeline.summary()), None)
                )
                summary = {**pipeline.summary(), "stopped": stop.is_set()}
        if failure is not None:
            hint = _PREPARE if not raw and "\nnearcast.errors." in failure else ""
            raise NearcastError(f"the stream failed: {sparked.first_sentence(failure)}{hint}")
        if json:
            talk.print_json(summary)
        else:
            talk.tell(f"{_sentence(summary)}, {summary['seconds']:.1f} s")
            if summary["quarantined"]:
                talk.tell(f"messages that cannot be used are in {aside}")


_PREPARE = " (with --prepare, messages that cannot be used go to a quarantine, and the stream goes on)"


def _sentence(summary: Mapping[str, Any]) -> str:
    parts = [f"{summary['messages']:,} messages", f"{summary['deliveries']:,} deliveries"]
    parts += [
        f"{summary[name]:,} {name}" for name in ("quarantined", "changes", "refused") if summary.get(name)
    ]
    return f"{', '.join(parts)} in {summary['batches']:,} micro-batches"


def _check(
    messages: str,
    subscriptions: str,
    output: str,
    checkpoint: str,
    schema: str | None,
    quarantine: str | None,
    changes: str | None,
) -> None:
    """Raise before Spark starts if the options cannot be."""
    keep_apart(
        [output, checkpoint, quarantine],
        [None if path is None else sparked.rows_of(path) for path in (messages, subscriptions, changes)],
    )
    if schema is None and ends.topic_of(messages) is not None:
        raise InputError(
            'messages from Kafka need --schema, such as --schema "id long, lon double, lat double, text string"'
        )
    if changes is not None and sparked.is_index(subscriptions):
        raise InputError(
            f"{subscriptions} is a built index, and with --changes subscriptions change; give the rows it was built of"
        )
    if changes is not None and "://" in checkpoint:
        raise InputError(
            f"with --changes, the checkpoint {checkpoint} must be a directory that all machines see: the state of "
            "subscriptions is kept in it"
        )
    if "://" in checkpoint or Path(checkpoint, "offsets").exists():
        return
    for directory in filter(None, (output, quarantine)):
        if "://" not in directory and any(Path(directory).glob("batch=*")):
            raise InputError(
                f"{directory} has micro-batches of another checkpoint, which those of a new one would replace; "
                "give another directory, or that checkpoint"
            )


def _columns(schema: str | None) -> StructType | None:
    """Return the columns that --schema lists."""
    from pyspark.errors import ParseException
    from pyspark.sql.types import StructType

    if schema is None:
        return None
    try:
        columns = StructType.fromDDL(schema)
    except ParseException as error:
        raise InputError(
            f"--schema {shown(schema)} cannot be read: {sparked.first_sentence(str(error))}"
        ) from None
    if not isinstance(columns, StructType):
        raise InputError(f"--schema lists columns, as in id long, text string; {shown(schema)} does not")
    return columns


def _trigger(written: str) -> dict[str, Any]:
    if written == "once":
        return {"availableNow": True}
    number = re.fullmatch(r"(\d+)\s*(ms|s|min)", written)
    if not number:
        raise InputError(f"--trigger is a time such as 500ms, 10s or 1min, or once, not {shown(written)}")
    unit = {"ms": "milliseconds", "s": "seconds", "min": "minutes"}[number[2]]
    return {"processingTime": f"{number[1]} {unit}"}
