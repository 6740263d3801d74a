"""Plots: bars or lines on a logarithmic axis, and maps; as SVG or PNG, by the ending of the file's name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nearcast.errors import InputError, RuntimeUnavailableError, shown

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

__all__ = ["check", "draw_bars", "draw_experiment", "draw_places", "label"]

_ENDINGS = (".svg", ".png")
_BAR, _OTHER, _LINE, _INK = "#2f6f9f", "#b8c4ce", "#c2402f", "#3b3b3b"
# Lines differ in both colour and marker.
_COLOURS = ("#2f6f9f", "#c2402f", "#5b8c3a", "#d08c2f", "#7a5ea8", "#7f7f7f")
_MARKERS = "osD^vP"


def check(path: Path) -> None:
    """Refuse a plot that could not be drawn, before the long measurement rather than after it."""
    if path.suffix.lower() not in _ENDINGS:
        raise InputError(
            f"a plot cannot be written to {shown(path.name)}; end the name in {' or '.join(_ENDINGS)}"
        )
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise RuntimeUnavailableError(
            "plots need matplotlib, which is not installed; install it with pip install nearcast[bench]"
        ) from None


def draw_bars(
    path: Path,
    *,
    names: Sequence[str],
    values: Sequence[float],
    title: str,
    axis: str,
    line: tuple[float, str] | None,
    highlight: Callable[[str], bool],
) -> None:
    """Draw a bar for each name, and a line across the bars if one is given."""
    check(path)
    figure = _figure(8, 1.6 + 0.42 * len(names))
    axes = figure.subplots()
    colours = [_BAR if highlight(name) else _OTHER for name in names]
    bars = axes.barh(names, values, color=colours, height=0.62)
    labels = [f"{value:,.3g}" if value < 1000 else f"{value:,.0f}" for value in values]
    axes.bar_label(bars, labels=labels, padding=4, color=_INK, fontsize=9)
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter("{x:,g}")
    everything = [*values, line[0]] if line else list(values)
    axes.set_xlim(min(everything) / 2.5, max(everything) * 3)
    if line:
        axes.axvline(line[0], color=_LINE, linewidth=1.4, linestyle="--", label=f"{line[1]}, {line[0]:.3g}")
        axes.legend(loc="lower right", frameon=False, fontsize=9, labelcolor=_INK)
    axes.invert_yaxis()
    axes.set_title(title, loc="left", fontsize=11, color=_INK)
    axes.set_xlabel(axis, fontsize=9, color=_INK)
    axes.spines["left"].set_visible(False)
    _style(axes, "x")
    _save(figure, path)


def draw_experiment(report: Mapping[str, Any], path: Path) -> None:
    """Draw an experiment into *path*: a column for each panel, a row for each measure, a line for each index."""
    check(path)
    points, measures = report["points"], report["measures"]
    panels = list(dict.fromkeys(point["panel"] for point in points))
    figure = _figure(max(6.4, 0.8 + 3.6 * len(panels)), 0.8 + 3.0 * len(measures))
    grid = figure.subplots(len(measures), len(panels), squeeze=False)
    lines = list(dict.fromkeys(point["line"] for point in points))
    for row, measure in enumerate(measures):
        for column, panel in enumerate(panels):
            axes = grid[row][column]
            inside = [point for point in points if point["panel"] == panel]
            _panel(axes, inside, lines, measure, report["x"]["logarithmic"])
            axes.set_title(panel, loc="left", fontsize=10, color=_INK)
            if row == len(measures) - 1:
                axes.set_xlabel(report["x"]["axis"], fontsize=9, color=_INK)
            if column == 0:
                axes.set_ylabel(measures[measure], fontsize=9, color=_INK)
            _style(axes, "y")
    handles, labels = grid[0][0].get_legend_handles_labels()
    figure.legend(
        handles,
        labels,
        loc="outside lower center",
        ncols=len(lines),
        frameon=False,
        fontsize=9,
        labelcolor=_INK,
    )
    figure.suptitle(report["title"], x=0.01, ha="left", fontsize=11, color=_INK)
    _save(figure, path)


def draw_places(counts: Any, title: str, path: Path) -> None:
    """Draw the counts in a grid over the world, as a map of the part that has any."""
    import numpy as np
    from matplotlib.colors import LogNorm

    check(path)
    rows, columns = np.nonzero(counts)
    figure = _figure(8, 5)
    axes = figure.subplots()
    if len(rows):
        south, north, west, east = rows.min(), rows.max() + 1, columns.min(), columns.max() + 1
        part = np.ma.masked_equal(counts[south:north, west:east], 0)
        degrees = 180 / counts.shape[0]
        extent = (west * degrees - 180, east * degrees - 180, south * degrees - 90, north * degrees - 90)
        norm = LogNorm(1, max(2, int(counts.max())))
        shown_map = axes.imshow(part, origin="lower", extent=extent, norm=norm, cmap="viridis", aspect="auto")
        bar = figure.colorbar(shown_map, ax=axes)
        bar.outline.set_visible(False)
    axes.set_title(title, loc="left", fontsize=11, color=_INK)
    axes.set_xlabel("longitude", fontsize=9, color=_INK)
    axes.set_ylabel("latitude", fontsize=9, color=_INK)
    _style(axes, "both")
    _save(figure, path)


def label(value: float | str) -> str:
    """Return a value on an axis as people write it.

    >>> label(200_000), label(1e-08), label(0.5), label(float("inf")), label("places")
    ('200,000', '1e-08', '0.5', 'inf', 'places')
    """
    if isinstance(value, str):
        return value
    return f"{value:,.0f}" if isinstance(value, int) or value.is_integer() else f"{value:g}"


def _panel(
    axes: Any, points: Sequence[Mapping[str, Any]], lines: Sequence[str], measure: str, logarithmic: bool
) -> None:
    """Draw one panel: lines if the axis has numbers, groups of bars if it has names."""
    from matplotlib.ticker import LogLocator

    xs = list(dict.fromkeys(point["x"] for point in points))
    names = any(isinstance(x, str) for x in xs)
    width = 0.8 / len(lines)
    for number, line in enumerate(lines):
        values = {point["x"]: point[measure] for point in points if point["line"] == line}
        heights = [values[x] for x in xs]
        colour = _COLOURS[number % len(_COLOURS)]
        if names:
            places = [place + (number - (len(lines) - 1) / 2) * width for place in range(len(xs))]
            axes.bar(places, heights, width, color=colour, label=line)
        else:
            marker = _MARKERS[number % len(_MARKERS)]
            axes.plot(xs, heights, color=colour, marker=marker, markersize=4, linewidth=1.4, label=line)
    if logarithmic:
        axes.set_xscale("log")
    axes.set_xticks(range(len(xs)) if names else xs, [label(x) for x in xs])
    if all(point[measure] > 0 for point in points):
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter("{x:,g}")
    axes.minorticks_off()


def _figure(width: float, height: float) -> Any:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)  # draws without a display
    return figure


def _style(axes: Any, grid: str) -> None:
    axes.tick_params(length=0, labelsize=9, colors=_INK, which="both")
    axes.grid(axis=grid, color="#e6e6e6", linewidth=0.8)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def _save(figure: Any, path: Path) -> None:
    """Write the plot without a date or random names, so that the same figures give the same file."""
    import matplotlib

    with matplotlib.rc_context({"svg.hashsalt": "nearcast"}):
        figure.savefig(path, metadata={"Date": None} if path.suffix.lower() == ".svg" else None)
