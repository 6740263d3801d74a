"""The report of a benchmark: one JSON document, and a table for people."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from nearcast import config
from nearcast.bench.measure import machine, versions

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from nearcast.bench.floors import Verdict

__all__ = [
    "SCHEMA_VERSION",
    "document",
    "floors_as_json",
    "floors_table",
    "machine_line",
    "markdown",
    "table",
    "thread_count",
    "three_digits",
    "to_json",
]

SCHEMA_VERSION = 1


class _Sides(NamedTuple):
    """A table with two sides; the first cell of each row is a name."""

    title: str
    headings: list[str]
    sides: dict[str, list[list[str]]]
    notes: list[str]


def document(benchmark: str, command: str, body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the whole report of a run: the benchmark's own *body*, the command, the versions and the machine.

    The document has no paths and does not name the machine, so it may be shown to anybody.
    """
    return {
        "schema_version": SCHEMA_VERSION,
        "benchmark": benchmark,
        "command": command,
        "versions": versions(),
        "machine": machine(),
        **body,
    }


def to_json(report: Mapping[str, Any]) -> str:
    """Return the document as indented JSON that ends with a line break."""
    return json.dumps(report, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def floors_as_json(verdicts: Sequence[Verdict]) -> list[dict[str, Any]]:
    """Return the floors that applied, in the form of the document."""
    return [
        {
            **verdict.floor.conditions,
            "measure": verdict.floor.measure,
            "at_least": verdict.floor.at_least,
            "at_most": verdict.floor.at_most,
            "measured": verdict.measured,
            "passed": verdict.passed,
        }
        for verdict in verdicts
    ]


def table(report: Mapping[str, Any]) -> RenderableType:
    """Return the document for people: title, table, and notes with the machine."""
    tables = {
        "matching": _matching_table,
        "engine": _engine_table,
        "safe-regions": _safe_regions_table,
        "turnover": _turnover_table,
        "vocabulary": _vocabulary_table,
        "attributes": _sided_table,
        "topk": _sided_table,
        "dskype": _sided_table,
        "topk-calls": _calls_table,
        "covering": _sided_table,
        "moving": _sided_table,
        "spark": _spark_table,
    }
    return tables[report["benchmark"]](report)


def _spark_table(report: Mapping[str, Any]) -> RenderableType:
    """Return a table with a row for each way to match, and below it what a worker needs."""
    sizes = report["sizes"]
    by_name = {result["index"]: result for result in report["results"]}
    table = Table()
    table.add_column("", no_wrap=True)
    for heading in ("messages/s", "of one\nprocess", "micro-\nbatches", "trigger to sink ms\np50", "\np99"):
        table.add_column(heading, justify="right", no_wrap=True)
    for name in ("in process", "batch", "stream", "paced stream"):
        result = by_name[name]
        share = result.get("share_of_in_process")
        table.add_row(
            name,
            f"{result['messages_per_second']:,.0f}",
            f"{share:.0%}" if share else "",
            f"{result['batches']:,}" if "batches" in result else "",
            *(
                f"{result[key]:,.0f}" if key in result else ""
                for key in ("p50_milliseconds", "p99_milliseconds")
            ),
        )
    worker, fetch = by_name["worker"], by_name.get("first fetch")
    fetched = f"a machine fetches the version once, in {fetch['seconds']:.2f} s\n" if fetch else ""
    return Group(
        Text(
            f"{sizes['subscriptions']:,} subscriptions × {sizes['messages']:,} messages, "
            f"{by_name['batch']['deliveries'] / sizes['messages']:.1f} deliveries a message, two cores, "
            f"seed {report['workload']['seed']}"
        ),
        table,
        Text(
            f"{fetched}a worker opens the index ({worker['index_megabytes']:,.0f} MB) "
            f"in {worker['open_seconds'] * 1e3:,.0f} ms and compiles {worker['compiled_kernels']} kernels"
        ),
        Text(
            f"of two workers each has {worker['resident_megabytes']:,.0f} MB in memory, "
            f"its share (PSS) is {worker['proportional_megabytes']:,.0f} MB"
        ),
        Text(machine_line(report)),
    )


def _matching_table(report: Mapping[str, Any]) -> RenderableType:
    """Return a table with a row for each index, and the floor as the last row."""
    sizes, workload = report["sizes"], report["workload"]
    threads = report["threads"]
    title = (
        f"{sizes['subscriptions']:,} subscriptions × {sizes['messages']:,} messages, "
        f"{workload['name']}, seed {workload['seed']}, {threads} thread{'s' * (threads > 1)}"
    )
    table = Table()
    table.add_column("index", no_wrap=True)
    for heading in ("build s", "bytes/\nsub", "µs/\nmessage", "faster\nthan scan", "× the\nfloor",
                    "single µs\np50", "\np99", "insert µs\neach", "remove µs\neach"):  # fmt: skip
        table.add_column(heading, justify="right", no_wrap=True)
    if threads > 1:
        table.add_column("× one\nthread", justify="right", no_wrap=True)
    for result in report["results"]:
        single = result["single_message_microseconds"]
        faster = result["speedup_over"]["scan"]
        table.add_row(
            result["index"] + ("*" if result["messages_matched"] < sizes["messages"] else ""),
            three_digits(result["build_seconds"]),
            three_digits(result["bytes_per_subscription"]),
            three_digits(result["microseconds_per_message"]),
            f"{three_digits(faster)}×",
            f"{three_digits(result['over_floor'])}×",
            three_digits(single["p50"]),
            three_digits(single["p99"]),
            three_digits(result["insert_microseconds"]),
            three_digits(result["remove_microseconds"]),
            *([three_digits(result["speedup_over_one_thread"])] if threads > 1 else []),
        )
    table.add_section()
    floor = report["floor"]["microseconds_per_message"]
    table.add_row(
        "floor",
        "",
        "",
        three_digits(floor),
        f"{three_digits(report['floor']['speedup_over']['scan'])}×",
        "1×",
    )
    return _titled(title, table, _matching_notes(report))


def _matching_notes(report: Mapping[str, Any]) -> list[str]:
    checked = report["checked_messages"]
    lines = [
        f"{three_digits(report['matches_per_message'])} matches a message; the answers of all indexes "
        + (
            "DIFFER: see the mismatches"
            if report["mismatches"]
            else f"equal the scan's on {checked:,} messages"
        ),
        "floor: the time to verify and write matches that are known beforehand",
    ]
    if checked < report["sizes"]["messages"]:
        lines.append(f"* scan matched only the first {checked:,} messages, to keep the run short")
    return [*lines, machine_line(report)]


def _engine_table(report: Mapping[str, Any]) -> RenderableType:
    """Return a table with a row for each way to use the engine, and for the bare index."""
    sizes = report["sizes"]
    table = Table()
    table.add_column("", no_wrap=True)
    for heading in ("seconds", "messages/s", "µs each", "× the\nindex", "p50 µs", "p99 µs", "longest µs"):
        table.add_column(heading, justify="right", no_wrap=True)
    measures = (
        "seconds",
        "messages_per_second",
        "microseconds",
        "over_index",
        "p50_microseconds",
        "p99_microseconds",
        "longest_microseconds",
    )
    for result in report["results"]:
        figures = (three_digits(result[name]) if name in result else "" for name in measures)
        table.add_row(result["index"], *figures)
    title = (
        f"{sizes['subscriptions']:,} subscriptions × {sizes['messages']:,} messages, "
        f"seed {report['workload']['seed']}, one thread, ids are strings"
    )
    matches = f"{report['matches_per_message']:.0f} matches a message"
    return _titled(title, table, [matches, machine_line(report)])


def _safe_regions_table(report: Mapping[str, Any]) -> RenderableType:
    """Return a table with a row for each way to report: what was sent, and what it cost."""
    sizes, facts = report["sizes"], report["workload"]["facts"]
    table = Table()
    table.add_column("", no_wrap=True)
    for heading in (
        "reports",
        "spared",
        "of these\nasked for",
        "spared,\ncalls too",
        "messages\nmissed or late",
        "engine s\nin all",
        "µs a\npublish",
        "µs a\nmove",
        "µs a\nsafe_region",
    ):
        table.add_column(heading, justify="right", no_wrap=True)
    for result in report["results"]:
        table.add_row(
            result["index"],
            f"{result['reports']:,}",
            f"{result['spared']:.1%}",
            f"{result['requests']:,}",
            f"{result['spared_both_ways']:.1%}",
            f"{result['differences']:,}",
            three_digits(result["seconds"]),
            *(
                three_digits(result.get(f"{verb}_microseconds")) if f"{verb}_microseconds" in result else ""
                for verb in ("publish", "move", "safe_region")
            ),
        )
    title = (
        f"{sizes['subscriptions']:,} subscribers of radius {facts['radius_m']:,.0f} m ({report['workload']['name']}), "
        f"{sizes['seconds']:,} s; {sizes['messages']:,} valid messages, of which {facts['fitting']} fit each, "
        f"{facts['rate']} a second arrive; seed {report['workload']['seed']}"
    )
    notes = [
        "spared: of the reports of those who report every step; reports that were asked for are reports, too",
        "spared, calls too: as if a report that was asked for were two messages, the request and the answer",
        "engine s: processor time of all calls; µs: for each message, and for each subscriber of a call for several",
        machine_line(report),
    ]
    return _titled(title, table, notes)


def _turnover_table(report: Mapping[str, Any]) -> RenderableType:
    """Return a table with a row for each index: the cost of changes, and of matching before and after them."""
    sizes, workload = report["sizes"], report["workload"]
    title = (
        f"{sizes['operations']:,} inserts and removals on {sizes['subscriptions']:,} subscriptions, "
        f"{workload['name']}, seed {workload['seed']}, one thread"
    )
    table = Table()
    table.add_column("index", no_wrap=True)
    for heading in ("insert µs\neach", "remove µs\neach", "longest\ncall ms", "µs/message\nbefore", "\nafter",
                    "fresh\nbuild", "after /\nfresh", "bytes/sub\nafter"):  # fmt: skip
        table.add_column(heading, justify="right", no_wrap=True)
    for result in report["results"]:
        table.add_row(
            result["index"],
            three_digits(result["insert_microseconds"]),
            three_digits(result["remove_microseconds"]),
            three_digits(result["longest_call_milliseconds"]),
            three_digits(result["microseconds_before"]),
            three_digits(result["microseconds_after"]),
            three_digits(result["microseconds_fresh"]),
            three_digits(result["after_over_fresh"]),
            three_digits(result["bytes_per_subscription"]),
        )
    agree = "DIFFER: see the mismatches" if report["mismatches"] else "are those of a fresh build"
    notes = [f"after all changes the answers {agree}", machine_line(report)]
    return _titled(title, table, notes)


def _vocabulary_table(report: Mapping[str, Any]) -> RenderableType:
    """Return a table with a row for each method and each way of drawing words."""
    sizes = report["sizes"]
    title = f"{sizes['keywords']:,} keywords, {sizes['words']:,} words, seed {report['seed']}, one core"
    table = Table()
    table.add_column("words drawn")
    table.add_column("method", no_wrap=True)
    table.add_column("million keywords/s", justify="right")
    last = None
    for result in report["results"]:
        if last not in (None, result["workload"]):
            table.add_section()
        first = result["workload"] != last
        last = result["workload"]
        table.add_row(
            last if first else "", result["index"], three_digits(result["keywords_per_second"] / 1e6)
        )
    return _titled(title, table, [machine_line(report)])


def _calls_table(report: Mapping[str, Any]) -> RenderableType:
    """Return a table with a row for each way to call ``TopK``."""
    sizes = report["sizes"]
    table = Table()
    table.add_column("", no_wrap=True)
    headings = {
        "µs each": "microseconds",
        "alone": "single_microseconds",
        "messages/s": "messages_per_second",
        "× one thread": "speedup_over_one_thread",
        "Arrow µs": "arrow_microseconds",
    }
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
    for result in report["results"]:
        table.add_row(
            result["index"],
            *(three_digits(result[name]) if name in result else "" for name in headings.values()),
        )
    title = (
        f"{sizes['subscriptions']:,} subscriptions, window of {sizes['window']:,} messages, k = {report['k']}, "
        f"{report['workload']['name']}, seed {report['workload']['seed']}"
    )
    agree = "DIFFER: see the mismatches" if report["mismatches"] else "are right on a sample"
    notes = [
        f"publish N: in calls of N messages, from the batch to the columns of deliveries; the results {agree}",
        "× one thread: of the best size; Arrow: the deliveries as a table; alone: in a call for one subscription",
        machine_line(report),
    ]
    return _titled(title, table, notes)


def _sided_table(report: Mapping[str, Any]) -> RenderableType:
    """Return a table with a row for each index, then one for each store or each buffer."""
    title, headings, sides, notes = _SIDED[report["benchmark"]](report)
    table = Table()
    table.add_column("", no_wrap=True)
    for heading in headings:
        table.add_column(heading.replace(" ", "\n", 1), justify="right", no_wrap=True)
    for side, rows in sides.items():
        table.add_row(f"[bold]{side}[/]")
        for row in rows:
            table.add_row(*row)
        table.add_section()
    return _titled(title, table, notes)


def markdown(report: Mapping[str, Any]) -> str:
    """Return the document of a benchmark with two sides as Markdown, for a page of documentation."""
    title, headings, sides, notes = _SIDED[report["benchmark"]](report)
    lines = [f"{title}:", ""]
    for side, rows in sides.items():
        lines += [f"| {' | '.join([side, *headings])} |", f"|---{'|--:' * len(headings)}|"]
        lines += [*(f"| {' | '.join(row)} |" for row in rows), ""]
    return "\n".join([*lines, *(f"{note}." for note in notes), ""])


def _attributes(report: Mapping[str, Any]) -> _Sides:
    """Return the title, the headings, the rows of indexes and those of stores, and the notes."""
    sizes, workload = report["sizes"], report["workload"]
    title = (
        f"{sizes['subscriptions']:,} subscriptions, {sizes['messages']:,} messages, "
        f"{workload['name']}, seed {workload['seed']}, one thread"
    )
    headings = {  # beside the number of queries
        "µs each": "microseconds",
        "times mo-tree": "",
        "matches": "matches_per_query",
        "build s": "build_seconds",
        "insert µs": "insert_microseconds",
        "remove µs": "remove_microseconds",
        "update µs": "update_microseconds",
        "MB over the data": "megabytes_of_structure",
        "MB in all": "megabytes",
    }
    sides: dict[str, list[list[str]]] = {"index": [], "store": []}
    for result in report["results"]:
        slower = f"{three_digits(1 / result['speedup_over']['mo-tree'])}×"
        figures = [three_digits(result[name]) if name else slower for name in headings.values()]
        sides[result["side"]].append([result["name"], f"{result['queries']:,}", *figures])
    agree = (
        "DIFFER: see the mismatches" if report["mismatches"] else "equal those of the others and the scan's"
    )
    notes = [
        "messages ask an index of subscriptions, subscriptions ask a store of messages; matches: of a query",
        f"the answers of all {agree}; a slow one gets fewer queries, the first of the same",
        "r-star-tree: the boxes and numbers of its entries, the least memory that it takes",
        machine_line(report),
    ]
    return _Sides(title, ["queries", *headings], sides, notes)


def _topk(report: Mapping[str, Any]) -> _Sides:
    """Return the rows of indexes, all with the same buffers, and those of buffers, all with the same index."""
    sizes, workload = report["sizes"], report["workload"]
    title = (
        f"{sizes['subscriptions']:,} subscriptions, window of {sizes['window']:,} messages, k = {report['k']}, "
        f"{workload['name']}, seed {workload['seed']}, {thread_count(report['threads'])}"
    )
    headings = {  # beside the number of messages
        "AMP µs": "amp_microseconds",
        "EMP µs": "emp_microseconds",
        "messages/s": "messages_per_second",
        "average buffer": "average_buffer",
        "re- evaluations": "re_evaluations_per_message",
        "candi- dates": "candidates_per_message",
        "entered": "entered_per_message",
        "init µs": "initialisation_microseconds",
        "MB index": "index_megabytes",
        "MB in all": "megabytes",
    }
    sides: dict[str, list[list[str]]] = {"index": [], "buffer": []}
    for result in report["results"]:
        figures = [three_digits(result[name]) for name in headings.values()]
        sides[result["side"]].append([result["name"], f"{result['messages']:,}", *figures])
    agree = "DIFFER: see the mismatches" if report["mismatches"] else "are the same, and right on a sample"
    notes = [
        "AMP, EMP: of an arriving and of an expired message; re-evaluations, candidates, entered: of a message",
        f"indexes with {report['buffer']} buffers, buffers with the index {report['index']}; the results {agree}",
        "a slow one gets fewer messages, the first of the same",
        machine_line(report),
    ]
    return _Sides(title, ["messages", *headings], {side: rows for side, rows in sides.items() if rows}, notes)


def _dskype(report: Mapping[str, Any]) -> _Sides:
    """Return the rows of distributions for top-k, dataset by dataset."""
    sizes = report["sizes"]
    title = (
        f"{sizes['subscriptions']:,} subscriptions, window of {sizes['window']:,} messages, "
        f"then {sizes['messages']:,}, k = {report['k']}, seed {report['workload']['seed']}, shards are simulated"
    )
    headings = {
        "copies of a subscription": "replication",
        "shards a message": "sent",
        "share of hashing": "sent_share",
        "found a message": "work",
        "busiest / mean": "skew",
        "fit s": "fit_seconds",
    }
    sides: dict[str, list[list[str]]] = {}
    for result in report["results"]:
        figures = [
            f"{result[name]:.1%}" if name == "sent_share" else three_digits(result[name])
            for name in headings.values()
        ]
        sides.setdefault(result["side"], []).append([result["name"], f"{result['shards']:,}", *figures])
    notes = [
        "found: subscriptions that shards find by a word of the message; busiest: the shard that finds the most",
        machine_line(report),
    ]
    return _Sides(title, ["shards", *headings], sides, notes)


def _covering(report: Mapping[str, Any]) -> _Sides:
    """Return the rows of indexes of rectangles, and those of full subscriptions, which have other figures."""
    sizes = report["sizes"]
    title = (
        f"{sizes['operations']:,} commands on rectangles, p = {report['leaving']:.0%}; "
        f"{sizes['subscriptions']:,} full subscriptions; seed {report['workload']['seed']}, one thread"
    )
    headings = {
        "seconds": "total_seconds",
        "µs each": "microseconds",
        "times scan": "",
        "for- warded": "forwarded_share",
        "nodes": "nodes_per_command",
        "points": "comparisons_per_command",
        "insert µs": "insert_microseconds",
        "remove µs": "remove_microseconds",
        "single µs": "single_microseconds",
        "MB": "megabytes",
    }
    sides: dict[str, list[list[str]]] = {"rectangles": [], "full": []}
    for result in report["results"]:
        over = result["speedup_over"]
        faster = f"{three_digits(over.get('scan', over.get('clause-scan')))}×"
        figures = [three_digits(result.get(name)) if name else faster for name in headings.values()]
        sides[result["side"]].append([result["name"], f"{result['subscriptions']:,}", *figures])
    agree = "DIFFER: see the mismatches" if report["mismatches"] else "are the same"
    notes = [
        "µs each: of a command; of full subscriptions, of a question for one that covers (cov_1)",
        "times scan: how many times faster than a scan; nodes, points: visited and compared for a command",
        "insert, remove: of a full subscription, many at once, with what it asks for; single: subscribing one alone",
        f"what is forwarded, and who is exposed, {agree}",
        machine_line(report),
    ]
    return _Sides(title, ["subs", *headings], sides, notes)


def _moving(report: Mapping[str, Any]) -> _Sides:
    """Return the rows of moving indexes, and those of what they are compared with, which have only times."""
    sizes, workload = report["sizes"], report["workload"]
    title = (
        f"{sizes['subscriptions']:,} subscriptions, {sizes['messages']:,} valid messages, "
        f"{workload['facts']['mobility']:.0%} move and {workload['facts']['arrivals']:,} arrive in a step, "
        f"{workload['name']}, seed {workload['seed']}, one thread"
    )
    headings = {
        "steps": "steps",
        "MSP µs": "msp_median_microseconds",
        "× auto": "msp_speedup_over",
        "MB": "megabytes",
        "MB × auto": "memory_of",
        "SLU µs": "slu_microseconds",
        "IMM µs": "imm_median_microseconds",
        "MI µs": "mi_microseconds",
        "IMM × still": "imm_over_stationary",
        "came": "came_per_move",
        "MB growth": "bytes_growth",
        "RSS growth": "resident_growth",
    }
    sides: dict[str, list[list[str]]] = {"moving": [], "stationary": [], "engine": []}
    for result in report["results"]:
        if result["side"] == "moving":
            figures = [
                three_digits(_times("auto", value) if isinstance(value, dict) else value)
                for value in map(result.get, headings.values())
            ]
            figures[0] = f"{result['steps']:,}"
        else:
            figures = [""] * len(headings)
            at = list(headings).index("IMM µs" if result["side"] == "stationary" else "MSP µs")
            figures[at] = three_digits(result["median_microseconds"])
        sides[result["side"]].append([result["name"], *figures])
    agree = "DIFFER: see the mismatches" if report["mismatches"] else "are the same, and right on a sample"
    notes = [
        f"medians of calls with {report['moves']:,} moves or {config.BENCH_BATCH:,} messages; "
        f"the answers {agree}",
        "MSP: a move; SLU: a move without messages; came: messages of a move; MB: subscriptions, messages and indexes",
        "scratch: removed, inserted and matched again in the structures of auto; mo-tree-scratch: with messages that "
        "are found by place, and then tested for their words",
        "IMM: a message that is kept; MI: without matching; × still: times matching (and inserting) without moves",
        f"growth: from step {config.MOVING_SETTLED} to the end, a factor; RSS: of the process, a share of the index",
        machine_line(report),
    ]
    return _Sides(title, list(headings), {side: rows for side, rows in sides.items() if rows}, notes)


def _times(name: str, others: Mapping[str, float]) -> float | None:
    """Return what is shown as a multiple of *name*; None if it was not measured. *others* are multiples of it."""
    return 1 / others[name] if name in others else None


_SIDED = {
    "attributes": _attributes,
    "topk": _topk,
    "dskype": _dskype,
    "covering": _covering,
    "moving": _moving,
}


def floors_table(verdicts: Sequence[Verdict]) -> Table:
    """Return the floors that applied, each with the figure that the run measured."""
    table = Table("floor", "must be", title="Floors", title_justify="left")
    table.add_column("measured", justify="right")
    table.add_column("")
    for verdict in verdicts:
        floor = verdict.floor
        table.add_row(
            " ".join(part for part in (verdict.workload, verdict.index, floor.measure) if part),
            floor.limit,
            three_digits(verdict.measured),
            "[green]reached[/]" if verdict.passed else "[bold red]MISSED[/]",
        )
    return table


def thread_count(count: int) -> str:
    """Return the number of threads in words."""
    return "one thread" if count == 1 else f"{count} threads"


def _titled(title: str, table: Table, notes: Sequence[str]) -> RenderableType:
    return Group(Text(title, style="bold"), table, Text("\n".join(notes), style="dim"))


def machine_line(report: Mapping[str, Any]) -> str:
    """Return a line with the machine and the versions that made the document."""
    version, host = report["versions"], report["machine"]
    memory = host["memory_bytes"]
    parts = [
        host["processor"],
        f"{host['cores']} cores",
        *([f"{memory / 2**30:.0f} GiB"] if memory else []),
        f"Python {version['python']}",
        f"NumPy {version['numpy']}",
        f"Numba {version['numba']}",
        f"Nearcast {version['nearcast']}",
    ]
    return ", ".join(parts)


def three_digits(value: float | None) -> str:
    """Return a number with about three digits, for tables.

    >>> three_digits(0.01234), three_digits(3.14159), three_digits(61.72), three_digits(12345.6), three_digits(None)
    ('0.0123', '3.14', '61.7', '12,346', '–')
    """
    if value is None:
        return "–"
    size = abs(value)
    if size >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if size >= 10 else f"{value:.2f}" if size >= 1 else f"{value:.3g}"
