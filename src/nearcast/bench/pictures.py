"""Plots of the benchmarks: each document as bars."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nearcast.report.plots import draw_bars

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

__all__ = ["draw"]


def draw(report: Mapping[str, Any], path: Path) -> None:
    """Draw the document of a benchmark to *path*, as SVG or PNG by its ending."""
    pictures = {
        "matching": _matching,
        "turnover": _turnover,
        "engine": _engine,
        "safe-regions": _safe_regions,
        "vocabulary": _vocabulary,
        "attributes": _attributes,
        "topk": _topk,
        "dskype": _dskype,
        "covering": _covering,
        "moving": _moving,
        "spark": _spark,
    }
    pictures[report["benchmark"]](report, path)


def _matching(report: Mapping[str, Any], path: Path) -> None:
    """Draw the microseconds a message of each index, with the floor as a line."""
    sizes, workload = report["sizes"], report["workload"]
    draw_bars(
        path,
        names=[result["index"] for result in report["results"]],
        values=[result["microseconds_per_message"] for result in report["results"]],
        title=f"Matching {workload['name']} messages against {sizes['subscriptions']:,} subscriptions",
        axis="µs a message (logarithmic)",
        line=(report["floor"]["microseconds_per_message"], "floor: touching the answers"),
        highlight=lambda name: name != "scan",
    )


def _turnover(report: Mapping[str, Any], path: Path) -> None:
    """Draw the microseconds a message of each index before and after the changes, and of a fresh build."""
    rows = [(result, when) for result in report["results"] for when in ("before", "after", "fresh")]
    draw_bars(
        path,
        names=[f"{result['index']}, {when}" for result, when in rows],
        values=[result[f"microseconds_{when}"] for result, when in rows],
        title=f"Matching before and after {report['sizes']['operations']:,} inserts and removals",
        axis="µs a message (logarithmic)",
        line=None,
        highlight=lambda name: name.endswith("after"),
    )


def _safe_regions(report: Mapping[str, Any], path: Path) -> None:
    """Draw the reports of each way to report."""
    draw_bars(
        path,
        names=[result["index"] for result in report["results"]],
        values=[result["reports"] for result in report["results"]],
        title=f"Reports of {report['sizes']['subscriptions']:,} subscribers in {report['sizes']['seconds']:,} s",
        axis="reports (logarithmic)",
        line=None,
        highlight=lambda name: name == "safe regions",
    )


def _engine(report: Mapping[str, Any], path: Path) -> None:
    """Draw the microseconds of each way to publish, and of the bare index."""
    figures = {
        result["index"]: result.get("microseconds", result.get("p50_microseconds"))
        for result in report["results"]
    }
    shown = {name: figure for name, figure in figures.items() if figure is not None}
    draw_bars(
        path,
        names=list(shown),
        values=list(shown.values()),
        title=f"The engine with {report['sizes']['subscriptions']:,} subscriptions",
        axis="µs each, the median of single calls (logarithmic)",
        line=None,
        highlight=lambda name: not name.startswith("the index"),
    )


def _vocabulary(report: Mapping[str, Any], path: Path) -> None:
    """Draw the million keywords a second of each method."""
    draw_bars(
        path,
        names=[f"{result['index']}, {result['workload']}" for result in report["results"]],
        values=[result["keywords_per_second"] / 1e6 for result in report["results"]],
        title=f"From strings to codes, vocabulary of {report['sizes']['words']:,} words",
        axis="million keywords a second, one core (logarithmic)",
        line=None,
        highlight=lambda name: name.startswith("Vocabulary"),
    )


def _spark(report: Mapping[str, Any], path: Path) -> None:
    """Draw the messages a second of each way to match."""
    rows = [result for result in report["results"] if "messages_per_second" in result]
    draw_bars(
        path,
        names=[result["index"] for result in rows],
        values=[result["messages_per_second"] for result in rows],
        title=f"Matching against {report['sizes']['subscriptions']:,} subscriptions on two cores",
        axis="messages a second (logarithmic)",
        line=None,
        highlight=lambda name: name != "in process",
    )


def _attributes(report: Mapping[str, Any], path: Path) -> None:
    """Draw the microseconds a query of each index and each store."""
    sizes = report["sizes"]
    draw_bars(
        path,
        names=[result["index"] for result in report["results"]],
        values=[result["microseconds"] for result in report["results"]],
        title=f"{sizes['subscriptions']:,} subscriptions, {sizes['messages']:,} stored messages",
        axis="µs a query (logarithmic)",
        line=None,
        highlight=lambda name: name.startswith(("mo-tree", "auto")),
    )


def _topk(report: Mapping[str, Any], path: Path) -> None:
    """Draw the microseconds of an arriving and of an expired message, for each index and each buffer."""
    rows = [
        (f"{result['index']}, {name}", result[f"{name}_microseconds"])
        for result in report["results"]
        for name in ("amp", "emp")
    ]
    draw_bars(
        path,
        names=[name for name, _ in rows],
        values=[value for _, value in rows],
        title=f"{report['sizes']['subscriptions']:,} subscriptions, window of {report['sizes']['window']:,} messages",
        axis="µs a message, arriving (amp) and expired (emp), logarithmic",
        line=None,
        highlight=lambda name: name.startswith("blocks"),
    )


def _dskype(report: Mapping[str, Any], path: Path) -> None:
    """Draw how many shards a message goes to, for each distribution and number of shards, on the first dataset."""
    rows = [result for result in report["results"] if result["side"] == report["workload"]["name"]]
    draw_bars(
        path,
        names=[result["index"] for result in rows],
        values=[result["sent"] for result in rows],
        title=f"{report['sizes']['subscriptions']:,} subscriptions, {report['workload']['name']}",
        axis="shards that a message is sent to (logarithmic)",
        line=None,
        highlight=lambda name: name.startswith("prefix,"),
    )


def _covering(report: Mapping[str, Any], path: Path) -> None:
    """Draw the microseconds of a command, and of a query for a cover, of each index."""
    sizes = report["sizes"]
    draw_bars(
        path,
        names=[result["name"] for result in report["results"]],
        values=[result["microseconds"] for result in report["results"]],
        title=f"{sizes['operations']:,} commands on rectangles; {sizes['subscriptions']:,} full subscriptions",
        axis="µs a command, or a query for a cover (logarithmic)",
        line=None,
        highlight=lambda name: "scan" not in name,
    )


def _moving(report: Mapping[str, Any], path: Path) -> None:
    """Draw the microseconds of a move and of a message, for each index."""
    rows = [
        (f"{result['name']}, {what}", result[f"{name}_median_microseconds"])
        for result in report["results"]
        if result["side"] == "moving"
        for what, name in (("move", "msp"), ("message", "imm"))
    ]
    draw_bars(
        path,
        names=[name for name, _ in rows],
        values=[value for _, value in rows],
        title=f"{report['sizes']['subscriptions']:,} moving subscriptions, "
        f"{report['sizes']['messages']:,} valid messages",
        axis="µs a move, and a message (logarithmic)",
        line=None,
        highlight=lambda name: name.startswith("auto"),
    )
