"""The tables of a figure, for a terminal and as Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from nearcast.bench.report import thread_count, three_digits
from nearcast.report.plots import label

__all__ = ["figure_markdown", "figure_tables"]


class _SizeNames(NamedTuple):
    """The names of the sizes of a point, by what is stored."""

    heading: str
    size: str
    asking: str
    asked: str
    matches: str
    found: str = "matches"
    each: str = ""  # what the matches are counted for; by default a query


_SIZES = {
    "subscriptions": _SizeNames("subs", "subscriptions", "message", "messages", "matches_per_message"),
    "messages": _SizeNames(
        "messages", "stored_messages", "subscription", "asking_subscriptions", "matches_per_subscription"
    ),
    "ranked": _SizeNames("subs", "subscriptions", "message", "messages", "entered_per_message", "entered"),
    "moving": _SizeNames("subs", "subscriptions", "step", "steps", "came_per_move", "came", "a move"),
    "covered": _SizeNames(
        "subs", "subscriptions", "command", "commands", "forwarded_share", "forwarded", "subs"
    ),
}


def figure_tables(figure: Mapping[str, Any]) -> RenderableType:
    """Return the tables of an experiment: one for each panel and measure, lines as columns."""
    parts: list[RenderableType] = [
        Text(_title(figure), style="bold"),
    ]
    for title, headings, rows in _rows(figure):
        grid = Table(title=title, title_justify="left", title_style="")
        grid.add_column(headings[0], no_wrap=True)
        for heading in headings[1:]:
            grid.add_column(heading, justify="right")
        for row in rows:
            grid.add_row(*row)
        parts.append(grid)
    return Group(*parts, Text("\n".join(_notes(figure)), style="dim"))


def figure_markdown(figure: Mapping[str, Any]) -> str:
    """Return the same tables as Markdown, for a page of documentation."""
    lines = [f"### {_title(figure)}", ""]
    for title, headings, rows in _rows(figure):
        lines += [f"{title}:", "", *(f"| {' | '.join(row)} |" for row in (headings,))]
        lines += [f"|{'|'.join(['---', *['--:'] * (len(headings) - 1)])}|"]
        lines += [*(f"| {' | '.join(row)} |" for row in rows), ""]
    return "\n".join([*lines, *(f"{note}." for note in _notes(figure)), ""])


def _title(figure: Mapping[str, Any]) -> str:
    """Return the number of a figure in its paper, and its title.

    >>> _title({"figure": "8-9", "title": "Changes"}), _title({"figure": "table5a", "title": "α"})
    ('Figure 8-9. Changes', 'Table 5a. α')
    """
    name = figure["figure"]
    if not any(map(str.isdigit, name)):  # an experiment of our own
        return str(figure["title"])
    kind, number = ("Table", name.removeprefix("table")) if name.startswith("table") else ("Figure", name)
    return f"{kind} {number}. {figure['title']}"


def _rows(figure: Mapping[str, Any]) -> Iterator[tuple[str, list[str], list[list[str]]]]:
    """Yield the title, the headings and the rows of each table."""
    points, stored = figure["points"], _SIZES[figure["stored"]]
    for panel in dict.fromkeys(point["panel"] for point in points):
        inside = [point for point in points if point["panel"] == panel]
        lines = list(dict.fromkeys(point["line"] for point in inside))
        for measure, axis in figure["measures"].items():
            rows = []
            for x in dict.fromkeys(point["x"] for point in inside):
                here = {point["line"]: point for point in inside if point["x"] == x}
                base = here[figure["baseline"]][measure] if figure["baseline"] else None
                cells = [_compared(here[line][measure], base) for line in lines]
                sizes = [_range(here.values(), name) for name in (stored.size, stored.matches)]
                rows.append([label(x), *cells, *sizes])
            yield (
                f"{panel}, {axis}" if panel else axis,
                [figure["x"]["axis"], *lines, stored.heading, stored.found],
                rows,
            )


def _compared(value: float | None, base: float | None) -> str:
    """Return a value, and its ratio to the baseline."""
    if value is None or not base:
        return three_digits(value)
    ratio = value / base
    return (
        f"{three_digits(value)} ({ratio:,.0f}×)" if ratio >= 10 else f"{three_digits(value)} ({ratio:.2g}×)"
    )


def _range(points: Iterable[Mapping[str, Any]], name: str) -> str:
    """Return the minimum and maximum of a value over several points, once if they are equal."""
    values = [point[name] for point in points]
    written = label if all(isinstance(value, int) for value in values) else three_digits
    ends = dict.fromkeys(written(value) for value in (min(values), max(values)))
    return "–".join(ends)


def _notes(figure: Mapping[str, Any]) -> list[str]:
    stored = _SIZES[figure["stored"]]
    each = stored.each or f"a {stored.asking}"
    lines = [
        f"{_range(figure['points'], stored.asked)} {stored.asking}s, seed {figure['seed']}, "
        f"the best of {figure['repeat']}, {thread_count(figure['threads'])}; {stored.found}: of {each}"
    ]
    if figure["baseline"]:
        lines[0] += f"; in brackets: times {figure['baseline']}"
    if figure["note"]:
        lines.append(figure["note"])
    if figure["mismatches"]:
        lines.append("the answers DIFFER: see the mismatches")
    return lines
