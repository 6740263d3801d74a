"""Pictures of a benchmark: bars on a logarithmic axis, as SVG or PNG by the ending of the file's name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nearcast.errors import InputError, RuntimeUnavailableError, shown

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

__all__ = ["check", "draw"]

_ENDINGS = (".svg", ".png")
_BAR, _OTHER, _LINE, _INK = "#2f6f9f", "#b8c4ce", "#c2402f", "#3b3b3b"


def check(path: Path) -> None:
    """Refuse a file that could not be drawn, before the long measurement rather than after it."""
    if path.suffix.lower() not in _ENDINGS:
        raise InputError(
            f"a plot is written as {' or '.join(_ENDINGS)}, not {shown(path.name)}; choose an ending"
        )
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise RuntimeUnavailableError(
            "plots need matplotlib, which is not installed; pip install nearcast[bench]"
        ) from None


def draw(report: Mapping[str, Any], path: Path) -> None:
    """Draw the document of a benchmark into *path*."""
    check(path)
    {"matching": _matching, "vocabulary": _vocabulary}[report["benchmark"]](report, path)


def _matching(report: Mapping[str, Any], path: Path) -> None:
    """Draw the microseconds a message of each index, with the floor as a line."""
    sizes, workload = report["sizes"], report["workload"]
    _bars(
        path,
        names=[result["index"] for result in report["results"]],
        values=[result["microseconds_per_message"] for result in report["results"]],
        title=f"Matching {workload['name']} messages against {sizes['subscriptions']:,} subscriptions",
        axis="µs a message (logarithmic)",
        line=(report["floor"]["microseconds_per_message"], "floor: touching the answers"),
        highlight=lambda name: name != "scan",
    )


def _vocabulary(report: Mapping[str, Any], path: Path) -> None:
    """Draw the million keywords a second of each method."""
    _bars(
        path,
        names=[f"{result['index']}, {result['workload']}" for result in report["results"]],
        values=[result["keywords_per_second"] / 1e6 for result in report["results"]],
        title=f"From strings to codes, vocabulary of {report['sizes']['words']:,} words",
        axis="million keywords a second, one core (logarithmic)",
        line=None,
        highlight=lambda name: name.startswith("Vocabulary"),
    )


def _bars(
    path: Path,
    *,
    names: Sequence[str],
    values: Sequence[float],
    title: str,
    axis: str,
    line: tuple[float, str] | None,
    highlight: Callable[[str], bool],
) -> None:
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 1.6 + 0.42 * len(names)), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)  # draws without a display
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
    axes.tick_params(length=0, labelsize=9, colors=_INK)
    axes.grid(axis="x", color="#e6e6e6", linewidth=0.8)
    axes.set_axisbelow(True)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    # neither date nor random names in the file: the same figures give the same picture
    with matplotlib.rc_context({"svg.hashsalt": "nearcast"}):
        figure.savefig(path, metadata={"Date": None} if path.suffix.lower() == ".svg" else None)
