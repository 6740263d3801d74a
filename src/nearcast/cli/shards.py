"""``nearcast shards``: what each distribution would do to subscriptions and messages, before anything runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nearcast import config
from nearcast.cli import talk
from nearcast.cli.apart import keep_apart
from nearcast.errors import InputError, shown

if TYPE_CHECKING:
    from rich.table import Table

    from nearcast import MessageBatch, SubscriptionTable

__all__ = ["shards"]

_MEASURES = {
    "replication": "copies of a subscription",
    "messages_sent_per_message": "shards that a message goes to",
    "load_skew": "busiest shard / mean",
    "bottleneck_ns_per_message": "ns a message, busiest shard",
}


def shards(
    subscriptions: Annotated[
        str | None,
        typer.Argument(metavar="[SUBSCRIPTIONS]", help="A file of subscriptions; made up unless given."),
    ] = None,
    messages: Annotated[
        str | None,
        typer.Argument(metavar="[MESSAGES]", help="A file of messages; the subscriptions stand for them."),
    ] = None,
    distribution: Annotated[
        str,
        typer.Option(
            "--distribution",
            "-d",
            metavar="NAME[,NAME…]",
            help="hash, location, keyword, location-keyword, keyword-location; all unless given.",
        ),
    ] = "all",
    count: Annotated[
        str, typer.Option("--shards", "-n", metavar="N[,N…]", help="How many shards, 1 to 1,024.")
    ] = config.CLI_SHARDS,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw the figures, as .svg or .png.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the figures as JSON on stdout.")] = False,
) -> None:
    """Compare the ways to divide subscriptions and messages between shards.

    For each distribution and number of shards: how often a subscription is stored, to how many shards a message goes,
    how unevenly the work falls, and what the busiest shard spends on a message of the stream. The shards are
    simulated; the messages are matched exactly. Without files, subscriptions and messages are made up (seed 0).
    """
    from nearcast.sharding.distribution import DISTRIBUTIONS, draw_sample, fit, measure, preference

    names = list(DISTRIBUTIONS) if distribution in ("all", "auto") else distribution.split(",")
    counts = _counts(count)
    keep_apart([str(plot) if plot else None], [subscriptions, messages])
    if plot:
        from nearcast.report import plots

        plots.check(plot)
    with talk.progress() as show:
        show("reading the files" if subscriptions else "making up subscriptions and messages", None)
        table, batch = _data(subscriptions, messages)
        sample = draw_sample(table, batch)
        fit(names[0], sample, counts[0])  # a name or number that cannot be is told before the work
        show("matching the messages", None)
        sample.found  # noqa: B018
        figures = []
        for done, (each, name) in enumerate((each, name) for each in counts for name in names):
            show(f"{name}, {each:,} shards", done / (len(counts) * len(names)))
            figures.append(measure(fit(name, sample, each), sample))
    document = {
        "subscriptions": len(table),
        "messages": len(sample.batch),
        "deliveries": len(sample.found.rows),
        "distributions": [figure.to_dict() for figure in figures],
    }
    if plot:
        _draw(document, plot)
    if json:
        talk.print_json(document)
        return
    talk.console().print(_shown(document))
    for each in counts:
        best = min((figure for figure in figures if figure.shards == each), key=preference)
        talk.tell(f"{each:,} shards: auto takes {best.distribution}")


def _counts(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise InputError(f"--shards takes numbers such as 4,16,64, not {shown(text)}") from None


def _data(subscriptions: str | None, messages: str | None) -> tuple[SubscriptionTable, MessageBatch | None]:
    from nearcast import files, workloads

    if subscriptions is None:
        made = workloads.ap_tree(config.CLI_SHARD_SUBSCRIPTIONS, config.SHARD_SAMPLE)
        return made.subscriptions, made.messages
    table = files.read_subscriptions(subscriptions)
    return table, None if messages is None else files.read_messages(messages, like=table)


def _shown(document: dict[str, Any]) -> Table:
    from rich.table import Table

    table = Table(
        "shards",
        "distribution",
        *_MEASURES.values(),
        title=f"{document['subscriptions']:,} subscriptions, {document['messages']:,} messages, "
        f"{document['deliveries']:,} deliveries",
        title_justify="left",
        title_style="",
    )
    for column in table.columns[2:]:
        column.justify = "right"
    last = None
    for figures in document["distributions"]:
        if last not in (None, figures["shards"]):
            table.add_section()
        table.add_row(
            "" if last == figures["shards"] else f"{figures['shards']:,}",
            figures["distribution"],
            *(f"{figures[measure]:,.2f}" for measure in list(_MEASURES)[:3]),
            f"{figures['bottleneck_ns_per_message']:,.0f}",
        )
        last = figures["shards"]
    return table


def _draw(document: dict[str, Any], path: Path) -> None:
    from nearcast.report import plots

    points = [
        {"panel": "", "x": figures["shards"], "line": figures["distribution"], **figures}
        for figures in document["distributions"]
    ]
    report = {
        "title": f"{document['subscriptions']:,} subscriptions, {document['messages']:,} messages",
        "x": {"axis": "shards", "logarithmic": True},
        "measures": _MEASURES,
        "points": points,
    }
    plots.draw_experiment(report, path)
