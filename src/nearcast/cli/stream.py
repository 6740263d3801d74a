"""``nearcast stream``: match messages that arrive in files or in a topic, until it is stopped."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nearcast.cli import endpoints, monitor, renaming, spark_session, talk
from nearcast.cli.renaming import Rename
from nearcast.cli.spark_session import Conf, Master, Verbose
from nearcast.errors import InputError, NearcastError, shown
from nearcast.storage.apart import keep_apart
from nearcast.storage.paths import local_path
from nearcast.storage.places import place_at

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from nearcast.columns.from_arrow.renaming import Columns, Kind

__all__ = ["stream"]


def stream(
    messages: Annotated[
        str,
        typer.Argument(
            metavar="MESSAGES",
            help="Where messages arrive: a directory or a file pattern (Parquet, JSON lines, CSV), or "
            "kafka://HOST:PORT/TOPIC with JSON objects.",
            show_default=False,
        ),
    ],
    subscriptions: Annotated[
        str,
        typer.Argument(
            metavar="INDEX|SUBSCRIPTIONS",
            help="The output of nearcast build, or Parquet of subscriptions.",
            show_default=False,
        ),
    ],
    output: Annotated[
        str,
        typer.Argument(
            metavar="OUTPUT",
            help="Where deliveries go: a directory (Parquet, each delivery exactly once), or kafka://HOST:PORT/TOPIC "
            "(JSON, each at least once, with headers that identify repeats).",
            show_default=False,
        ),
    ],
    checkpoint: Annotated[
        str,
        typer.Option(
            metavar="DIR",
            help="A directory for the progress and state of this stream; a restart continues from it.",
        ),
    ],
    schema: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMNS",
            help='Columns of the messages, as in "id long, lon double, lat double, text string"; needed for Kafka. '
            "By default they are taken from the files that exist.",
        ),
    ] = None,
    prepare: Annotated[
        bool,
        typer.Option(
            "--prepare",
            help="Messages are raw: those that cannot be used go to a quarantine instead of stopping the stream. "
            "Messages from JSON, CSV and Kafka are always raw.",
        ),
    ] = False,
    quarantine: Annotated[
        str | None,
        typer.Option(
            metavar="DIR",
            help="Directory of the quarantine: each row as it arrived, with the reason; default CHECKPOINT/quarantine.",
        ),
    ] = None,
    changes: Annotated[
        str | None,
        typer.Option(
            metavar="CHANGES",
            help="Where records that subscribe, update, move and unsubscribe arrive, in the same forms as MESSAGES. "
            "SUBSCRIPTIONS are then rows: the initial subscriptions.",
        ),
    ] = None,
    home: Annotated[
        str | None,
        typer.Option(
            metavar="URI",
            help="Where Nearcast keeps the index of SUBSCRIPTIONS and the state of --changes, as a path or a URI; "
            "default CHECKPOINT.",
        ),
    ] = None,
    shards: Annotated[
        int, typer.Option(metavar="N", min=1, help="With --changes: number of shards of the subscriptions.")
    ] = 1,
    distribution: Annotated[
        str, typer.Option(metavar="NAME", help="With --changes: how shards divide subscriptions.")
    ] = "auto",
    most: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            help="How many micro-batches stay in OUTPUT, a directory; when one more is written, the oldest goes. "
            "By default all stay.",
        ),
    ] = None,
    trigger: Annotated[
        str,
        typer.Option(
            metavar="TIME|once", help="Time between micro-batches (500ms, 10s), or all messages at once."
        ),
    ] = "500ms",
    name: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Name of the query, in Spark's web page and for listeners."),
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option(
            "--option",
            metavar="NAME=VALUE",
            help="An option of Spark's source of messages, such as maxFilesPerTrigger=10; may be repeated.",
        ),
    ] = None,
    rename: Rename = None,
    json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON at the end.")] = False,
    master: Master = None,
    conf: Conf = None,
    verbose: Verbose = False,
) -> None:
    """Match messages as they arrive; stop with Ctrl-C or SIGTERM.

    When stopped, it finishes the current micro-batch and exits with 0. If it is interrupted in any other way, it
    continues from the checkpoint when it is started again: no delivery is lost, and none appears twice in a directory.
    For a topic, the session fetches Spark's Kafka connector, unless --conf spark.jars.packages=… names another.
    """
    every = _trigger(trigger)
    columns = renaming.parse(rename)
    topics = [endpoints.topic_of(address) for address in (messages, output, changes or "")]
    home = home or checkpoint
    _check(messages, subscriptions, output, checkpoint, schema, quarantine, changes, home)
    if changes is None and (shards, distribution) != (1, "auto"):
        raise InputError(
            "--shards and --distribution are for subscriptions that change; give --changes too, or run nearcast build"
        )
    if most is not None and topics[1] is not None:
        raise InputError(
            "--most is for an output that is a directory; Kafka removes records by the topic's retention"
        )
    with monitor.stop_on_signal() as stop:
        with talk.progress() as show:
            show("starting Spark", None)
            with spark_session.open_session(
                "nearcast stream", master, conf, verbose, kafka=any(topics)
            ) as spark:
                from nearcast.cli.pipeline import Pipeline
                from nearcast.spark.columns import subscription_columns
                from nearcast.spark.compat import refuse_remote

                refuse_remote(spark, "nearcast stream")
                arriving, raw = endpoints.arriving_messages(
                    spark,
                    messages,
                    _columns(schema),
                    spark_session.parse_pairs(option, "--option", "NAME=VALUE"),
                )
                initial = spark_session.index_or_rows(spark, subscriptions)
                theirs, initial = _named(columns, arriving, initial)
                aside = quarantine or f"{checkpoint}/quarantine"
                raw = raw or prepare or quarantine is not None
                pipeline = Pipeline(
                    arriving,
                    write=endpoints.sink(output, most),
                    quarantine=endpoints.quarantine(aside) if raw else None,
                    checkpoint=checkpoint,
                    home=home,
                    trigger=every,
                    name=name,
                    columns={"messages": theirs["messages"]},
                )
                if changes is None:
                    pipeline.match(initial)
                else:
                    assert not isinstance(initial, str)
                    rows = subscription_columns(initial)
                    arriving = endpoints.arriving_changes(spark, changes, rows, theirs["subscriptions"])
                    pipeline.live(rows, arriving, shards=shards, distribution=distribution)
                failure = monitor.follow(
                    pipeline.queries, stop, lambda: show(_sentence(pipeline.summary()), None)
                )
                summary = {**pipeline.summary(), "stopped": stop.is_set()}
        if failure is not None:
            hint = _PREPARE if not raw and "\nnearcast.errors." in failure else ""
            raise NearcastError(f"the stream failed: {spark_session.first_sentence(failure)}{hint}")
        if json:
            talk.print_json(summary)
        else:
            talk.tell(f"{_sentence(summary)}, {summary['seconds']:.1f} s")
            if summary["quarantined"]:
                talk.tell(f"messages that cannot be used are in {aside}")


def _named(
    columns: Columns | None, messages: DataFrame, subscriptions: DataFrame | str
) -> tuple[dict[Kind, dict[str, str]], DataFrame | str]:
    """Return the names that both tables have for ours, and the subscriptions, if they are rows, with our names."""
    from nearcast.columns.from_arrow.renaming import Renaming

    tables: dict[Kind, DataFrame] = {"messages": messages}
    if not isinstance(subscriptions, str):
        tables["subscriptions"] = subscriptions
    names = Renaming(columns, *tables)
    ours = {kind: names.apply(kind, table.columns) for kind, table in tables.items()}
    theirs = {
        kind: {own: name for own, name in zip(ours[kind], table.columns) if own != name}
        for kind, table in tables.items()
    }
    if isinstance(subscriptions, str):
        return theirs, subscriptions
    return theirs, subscriptions.toDF(*ours["subscriptions"])


_PREPARE = " (with --prepare, messages that cannot be used go to a quarantine, and the stream continues)"


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
    home: str,
) -> None:
    """Raise before Spark starts if the options cannot work."""
    keep_apart(
        [output, checkpoint, quarantine, home],
        [
            None if path is None else spark_session.rows_of(path)
            for path in (messages, subscriptions, changes)
        ],
    )
    if schema is None and endpoints.topic_of(messages) is not None:
        raise InputError(
            'messages from Kafka need --schema, such as --schema "id long, lon double, lat double, text string"'
        )
    built = spark_session.is_index(subscriptions)
    if changes is not None and built:
        raise InputError(
            f"{subscriptions} is a built index, but with --changes subscriptions change; give the rows behind it"
        )
    if not built:
        try:
            place_at(home)
        except InputError as error:  # the checkpoint may be in a file system that only Spark knows
            raise InputError(f"subscriptions cannot be kept there: {error}, as --home") from None
    progress = local_path(checkpoint)
    if progress is None or (progress / "offsets").exists():
        return
    for directory in filter(None, (output, quarantine)):
        written = [] if endpoints.topic_of(directory) else place_at(directory).children()
        if any(name.startswith("batch=") for name in written):
            raise InputError(
                f"{directory} holds micro-batches of another checkpoint, which those of a new one would replace; "
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
            f"--schema {shown(schema)} cannot be read: {spark_session.first_sentence(str(error))}"
        ) from None
    if not isinstance(columns, StructType):
        raise InputError(
            f"--schema {shown(schema)} does not list columns; write them as id long, text string"
        )
    return columns


def _trigger(written: str) -> dict[str, Any]:
    if written == "once":
        return {"availableNow": True}
    number = re.fullmatch(r"(\d+)\s*(ms|s|min)", written)
    if not number:
        raise InputError(
            f"--trigger {shown(written)} is not a time; give one such as 500ms, 10s or 1min, or once"
        )
    unit = {"ms": "milliseconds", "s": "seconds", "min": "minutes"}[number[2]]
    return {"processingTime": f"{number[1]} {unit}"}
