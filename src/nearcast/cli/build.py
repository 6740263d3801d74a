"""``nearcast build``: write subscriptions as an index directory that every worker maps."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from nearcast import config
from nearcast.cli import renaming, spark_session, talk
from nearcast.cli.renaming import Rename
from nearcast.cli.spark_session import Conf, Master, Verbose
from nearcast.errors import counted
from nearcast.storage.apart import keep_apart
from nearcast.storage.places import place_at

__all__ = ["build"]


def build(
    subscriptions: Annotated[
        str,
        typer.Argument(
            metavar="SUBSCRIPTIONS",
            help="Parquet, or the output of nearcast prepare subscriptions.",
            show_default=False,
        ),
    ],
    directory: Annotated[
        str, typer.Argument(metavar="DIRECTORY", help="Where versions are kept.", show_default=False)
    ],
    index: Annotated[str, typer.Option(metavar="NAME", help="The index to build.")] = config.DEFAULT_INDEX,
    shards: Annotated[
        int | None, typer.Option(metavar="N", help="Number of shards; by default there is one index.")
    ] = None,
    distribution: Annotated[
        str, typer.Option(metavar="NAME", help="How shards divide subscriptions; see nearcast shards.")
    ] = "auto",
    profile: Annotated[
        str | None, typer.Option(metavar="DIR", help="A profile to fit the distribution to.")
    ] = None,
    rename: Rename = None,
    json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False,
    master: Master = None,
    conf: Conf = None,
    verbose: Verbose = False,
) -> None:
    """Build a version of the index in DIRECTORY, and make it the current one.

    A version never changes. The same subscriptions give the same version, which is not built twice. nearcast stream and
    match, nearcast.spark.match and nearcast.open_index take DIRECTORY, or one version in it.
    """
    columns = renaming.parse(rename)
    keep_apart([directory], [spark_session.rows_of(subscriptions), profile])
    started = time.perf_counter()
    with talk.progress() as show:
        show("starting Spark", None)
        with spark_session.open_session("nearcast build", master, conf, verbose) as spark:
            from nearcast import open_index
            from nearcast.sharding.version import ShardedVersion
            from nearcast.spark import build as build_version

            rows = spark_session.typed_rows(spark, subscriptions, "subscriptions")
            show("building", None)
            version = build_version(
                rows,
                directory,
                index=index,
                distribution=distribution,
                shards=shards,
                profile=profile,
                columns=columns,
            )
    opened, place = open_index(version), place_at(version)
    size = sum(entry.size for entry in place.entries())
    summary = {
        "version": str(version),
        "subscriptions": len(opened),
        "index": index,
        "distribution": opened.distribution.name if isinstance(opened, ShardedVersion) else None,
        "shards": opened.distribution.shards if isinstance(opened, ShardedVersion) else None,
        "bytes": size,
        "seconds": round(time.perf_counter() - started, 3),
    }
    if json:
        talk.print_json(summary)
    else:
        how = f" in {summary['shards']} shards by {summary['distribution']}" if summary["shards"] else ""
        talk.tell(
            f"{counted(len(opened), 'subscription')}{how}, {size / 1e6:,.1f} MB, in {summary['seconds']:.1f} s"
        )
        talk.tell(f"the current version of {directory} is {place.name}")
