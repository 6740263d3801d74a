"""``nearcast prepare``: turn raw files into typed ones, with a quarantine for rows that cannot be used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from nearcast.cli import renaming, spark_session, talk
from nearcast.cli.renaming import Rename
from nearcast.cli.spark_session import Conf, Master, Verbose
from nearcast.errors import InputError, shown
from nearcast.storage.apart import keep_apart
from nearcast.storage.paths import local_path

if TYPE_CHECKING:
    from rich.table import Table

    from nearcast.preparation import Kind
    from nearcast.spark.preparing import Prepared

__all__ = ["prepare"]


def prepare(
    kind: Annotated[
        str, typer.Argument(metavar="messages|subscriptions", help="What the rows are.", show_default=False)
    ],
    input: Annotated[
        str, typer.Argument(metavar="INPUT", help="A file or a directory of files.", show_default=False)
    ],
    output: Annotated[
        str,
        typer.Argument(
            metavar="OUTPUT",
            help="A new directory; Parquet files go to good/ and quarantine/ in it.",
            show_default=False,
        ),
    ],
    format: Annotated[
        str | None,
        typer.Option(
            "--format",
            "-f",
            metavar="json|csv|parquet|geoparquet",
            help="Format of the input; by default that of its ending. json means one object per line.",
        ),
    ] = None,
    rename: Rename = None,
    column: Annotated[
        list[str] | None,
        typer.Option(
            "--column",
            metavar="NAME=SQL",
            help="Compute a column by a Spark SQL expression, before --rename, or drop it by an empty one; "
            "may be repeated.",
        ),
    ] = None,
    number: Annotated[
        list[str] | None,
        typer.Option(
            "--number", metavar="NAME", help="Read this attribute of strings as numbers; may be repeated."
        ),
    ] = None,
    keep_text: Annotated[
        bool, typer.Option("--keep-text", help="Keep the text of messages in addition to the keywords.")
    ] = False,
    timezone: Annotated[
        str | None,
        typer.Option(
            metavar="ZONE", help="The zone of times that have none in Parquet, such as Europe/Lisbon."
        ),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an earlier output.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False,
    master: Master = None,
    conf: Conf = None,
    verbose: Verbose = False,
) -> None:
    """Turn raw rows into typed ones; rows that cannot be used go to a quarantine, each with the reason.

    Columns are recognised by name: id; lon, lat, radius_m, or xmin, ymin, xmax, ymax, or geometry (WKB or WKT); text,
    keywords or expression; published_at, expires_at. --rename reads columns with other names. Every other column of
    messages is an attribute. No row is dropped, and none stops the job. The exit code is 0, or 1 if no row can be used.
    """
    columns = renaming.parse(rename)
    expressions = spark_session.parse_pairs(column, "--column", "NAME=SQL")
    if kind not in ("messages", "subscriptions"):
        raise InputError(f"nearcast prepare does not know {shown(kind)}; give messages or subscriptions")
    keep_apart([f"{output}/{name}" for name in ("good", "quarantine")], [input], replaced=True)
    here = local_path(output)  # elsewhere, Spark looks
    if here is not None and not overwrite and any((here / name).exists() for name in ("good", "quarantine")):
        raise InputError(f"{output} holds an earlier output; give --overwrite to replace it")
    what: Kind = "messages" if kind == "messages" else "subscriptions"
    with talk.progress() as show:
        show("starting Spark", None)
        with spark_session.open_session("nearcast prepare", master, conf, verbose) as spark:
            from pyspark.sql.functions import expr

            from nearcast.spark.preparing import write_prepared
            from nearcast.spark.reading import read_raw

            show(f"looking at {input}", None)
            raw = read_raw(spark, input, format)
            for name, expression in expressions.items():
                if expression.strip("`") in raw.columns:
                    raise InputError(
                        f"--column {name}={expression} would copy a column; to read it under another name, "
                        f"give --rename {name}={expression.strip('`')}"
                    )
                raw = raw.withColumn(name, expr(expression)) if expression else raw.drop(name)
            summary = write_prepared(
                raw,
                what,
                output,
                numbers=number or (),
                keep_text=keep_text,
                timezone=timezone,
                columns=columns,
                overwrite=overwrite,
                progress=show,
            )
    # Columns of subscriptions that are left out have been reported already.
    for name, why in summary.left_out.items() if what == "messages" else ():
        talk.tell(f"left out {name!r}; {why}")
    if json:
        talk.print_json({**summary.to_dict(), "output": output})
    else:
        talk.console(stderr=True).print(_table(summary))
        talk.tell(
            f"in {summary.seconds:.1f} s; good rows are in {output}/good, others in {output}/quarantine"
        )
    if summary.read and not summary.good:
        talk.tell(
            f"nearcast: none of the {summary.read:,} rows can be used; {output}/quarantine has all of them"
        )
        raise typer.Exit(1)


def _table(summary: Prepared) -> Table:
    from rich.table import Table

    table = Table("rows", "", "for example")
    table.columns[0].justify = "right"
    table.add_row(f"{summary.read:,}", "read", "")
    table.add_row(f"{summary.good:,}", "good", "")
    for reason, rows in summary.bad.items():
        table.add_row(f"{rows:,}", reason, summary.examples[reason])
    return table
