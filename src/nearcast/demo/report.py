"""One HTML file that shows messages, regions and deliveries on a map, and opens without a network.

The page (``template.html``) is fixed; runs differ only in the JSON that is inserted into it. The text of messages
reaches the page as JSON data and, from there, as text nodes, so that no message is ever read as markup.
"""

from __future__ import annotations

import base64
import json
import math
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import shapely

from nearcast.errors import ColumnError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["write_report"]

_DECIMALS = 6  # of coordinates: a tenth of a metre
_SLOT = "__NEARCAST_DATA__"

# A shape as the page reads it: [lon, lat, radius_m], [xmin, ymin, xmax, ymax], [[lon, lat, lon, lat, …], …]
# for rings, or None for everywhere.
Shape = list[Any] | None


def write_report(
    path: str | Path,
    *,
    messages: pa.Table,
    subscriptions: pa.Table,
    deliveries: pa.Table,
    summary: Mapping[str, str | float | int],
    places: pa.Table | None = None,
) -> Path:
    """Write the report and return its path.

    The file is self-contained: it loads nothing from the network or from disk. It has all messages, and the
    subscriptions that received one. Deliveries of messages or subscriptions that are not in the tables are left out.

    Parameters
    ----------
    path
        The file to write; an existing file is replaced.
    messages
        ``id``, and any of ``text``, ``category``, ``price``, ``rating``, ``published_at``, ``expires_at``,
        with a place as ``lon``, ``lat`` or as ``geometry`` (WKB; if it is null, the point is used).
    subscriptions
        ``id``, and any of ``expression`` and a region: ``geometry`` (WKB), ``lon``, ``lat``, ``radius_m``, or
        ``xmin``, ``ymin``, ``xmax``, ``ymax``; with none of them, everywhere.
    deliveries
        ``message_id``, ``subscription_id``.
    summary
        The cards at the top: a mapping of labels to figures, in this order.
    places
        ``name``, ``feature_class``, ``lon``, ``lat``, most prominent first: the names on the base map.
    """
    message_rows = _positions(deliveries, "message_id", messages)
    subscription_rows = _positions(deliveries, "subscription_id", subscriptions)
    known = (message_rows >= 0) & (subscription_rows >= 0)
    message_rows, subscription_rows = message_rows[known], subscription_rows[known]

    receivers, receiver_rows = np.unique(subscription_rows, return_inverse=True)
    order = np.lexsort((receiver_rows, message_rows))
    offsets = np.concatenate([[0], np.cumsum(np.bincount(message_rows, minlength=messages.num_rows))])
    data = {
        "summary": [[label, _figure(value)] for label, value in summary.items()],
        "messages": _messages(messages),
        "subscriptions": _subscriptions(subscriptions.take(pa.array(receivers)))
        | {"total": subscriptions.num_rows},
        "deliveries": {"offsets": _base64(offsets), "rows": _base64(receiver_rows[order])},
        "places": _places(places) if places is not None else None,
    }
    written = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    # Data could leave its <script> element only through "<"; escaped, it is the same JSON.
    written = written.replace("<", "\\u003c")
    template = files("nearcast.demo").joinpath("template.html").read_text(encoding="utf-8")
    path = Path(path)
    path.write_text(template.replace(_SLOT, written, 1), encoding="utf-8")
    return path


def _messages(table: pa.Table) -> dict[str, Any]:
    categories = _strings(table, "category")
    names = sorted(set(categories), key=lambda name: (-categories.count(name), name))
    lon, lat = _rounded(table, "lon"), _rounded(table, "lat")
    areas: dict[int, Shape] = {}
    for row, wkb in enumerate(_values(table, "geometry")):
        if wkb is not None:
            geometry = shapely.from_wkb(wkb)
            lon[row], lat[row] = (
                round(value, _DECIMALS) for value in geometry.representative_point().coords[0]
            )
            if geometry.area > 0:
                areas[row] = _rings(geometry)
    return {
        "id": _strings(table, "id"),
        "text": _strings(table, "text"),
        "categories": names,
        "category": [names.index(name) for name in categories],
        "lon": lon,
        "lat": lat,
        "areas": areas,
        "price": _rounded(table, "price"),
        "rating": _rounded(table, "rating"),
        "from": _seconds(table, "published_at"),
        "until": _seconds(table, "expires_at"),
    }


def _subscriptions(table: pa.Table) -> dict[str, Any]:
    circle = [_rounded(table, name) for name in ("lon", "lat", "radius_m")]
    box = [_rounded(table, name) for name in ("xmin", "ymin", "xmax", "ymax")]
    shapes: list[Shape] = []
    for wkb, centre, corners in zip(_values(table, "geometry"), zip(*circle), zip(*box)):
        if wkb is not None:
            shapes.append(_rings(shapely.from_wkb(wkb)))
        elif None not in centre:
            shapes.append(list(centre))
        elif None not in corners:
            shapes.append(list(corners))
        else:
            shapes.append(None)
    return {"id": _strings(table, "id"), "expression": _strings(table, "expression"), "shape": shapes}


def _places(table: pa.Table) -> dict[str, Any]:
    kinds = _strings(table, "feature_class")
    names = sorted(set(kinds))
    return {
        "name": _strings(table, "name"),
        "kinds": names,
        "kind": [names.index(kind) for kind in kinds],
        "lon": _rounded(table, "lon"),
        "lat": _rounded(table, "lat"),
    }


def _rings(geometry: shapely.Geometry) -> list[list[float]]:
    """Return the outlines of one or several polygons, including their holes."""
    rings = shapely.get_rings(shapely.get_parts(geometry))
    return [
        [round(value, _DECIMALS) for value in shapely.get_coordinates(ring)[:-1].ravel().tolist()]
        for ring in rings
    ]


def _positions(deliveries: pa.Table, column: str, table: pa.Table) -> np.ndarray[Any, Any]:
    """Return the row of *table* that each delivery refers to, or -1."""
    found = pc.index_in(_column(deliveries, column), value_set=_column(table, "id").combine_chunks())
    return np.asarray(found.fill_null(-1).to_numpy())


def _column(table: pa.Table, name: str) -> pa.ChunkedArray:
    """Return a required column, as strings."""
    if name not in table.column_names:
        raise ColumnError(
            f"the report needs a column {name!r}; the table has {', '.join(table.column_names) or 'none'}"
        )
    return table[name].cast(pa.string())


def _values(table: pa.Table, name: str) -> list[Any]:
    """Return an optional column; if it is missing, nulls."""
    return table[name].to_pylist() if name in table.column_names else [None] * table.num_rows


def _strings(table: pa.Table, name: str) -> list[str]:
    return ["" if value is None else str(value) for value in _values(table, name)]


def _rounded(table: pa.Table, name: str) -> list[float | None]:
    """Return a numeric column for JSON: whole numbers without a decimal point, null for NaN."""
    return [_short(value) for value in _values(table, name)]


def _short(value: float | None) -> float | None:
    if value is None or not math.isfinite(value):
        return None
    value = round(float(value), _DECIMALS)
    return int(value) if value.is_integer() else value


def _seconds(table: pa.Table, name: str) -> list[int | None]:
    """Return times as seconds since the epoch."""
    if name not in table.column_names:
        return [None] * table.num_rows
    return list(
        pc.divide(table[name].cast(pa.timestamp("us", tz="UTC")).cast(pa.int64()), 1_000_000).to_pylist()
    )


def _figure(value: str | float | int) -> str | float | None:
    return value if isinstance(value, str) else _short(value)


def _base64(rows: np.ndarray[Any, Any]) -> str:
    return base64.b64encode(np.ascontiguousarray(rows, dtype="<i4").tobytes()).decode("ascii")
