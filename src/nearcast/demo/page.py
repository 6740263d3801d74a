"""What the pages of the demonstrations share: one HTML file each, which opens without a network.

A page is a template into which the common style (``page.css``), the common map (``map.js``) and the data of a run are
inserted. The text of messages reaches a page as JSON data and, from there, as text nodes, so that no message is ever
read as markup.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import shapely

__all__ = [
    "Shape",
    "cards",
    "message_columns",
    "packed",
    "place_columns",
    "rings",
    "rounded",
    "strings",
    "values",
    "write_page",
]

_DECIMALS = 6  # of coordinates: a tenth of a metre
_FILES = {"__NEARCAST_STYLE__": "page.css", "__NEARCAST_MAP__": "map.js"}
_SLOT = "__NEARCAST_DATA__"

# A shape as the pages read it: [lon, lat, radius_m], [xmin, ymin, xmax, ymax], [[lon, lat, lon, lat, …], …]
# for rings, or None for everywhere.
Shape = list[Any] | None


def write_page(path: str | Path, template: str, data: Mapping[str, Any]) -> Path:
    """Write the page that is *template*, a file of this package, with *data* in it; return its path."""
    page = _read(template)
    for slot, name in _FILES.items():
        page = page.replace(slot, _read(name), 1)
    written = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    # Data could leave its <script> element only through "<"; escaped, it is the same JSON.
    written = written.replace("<", "\\u003c")
    path = Path(path)
    path.write_text(page.replace(_SLOT, written, 1), encoding="utf-8")
    return path


def _read(name: str) -> str:
    return files("nearcast.demo").joinpath(name).read_text(encoding="utf-8")


def cards(summary: Mapping[str, str | float | int]) -> list[list[str | float | None]]:
    """Return the figures at the top of a page: labels and values, in their order."""
    return [[label, value if isinstance(value, str) else _short(value)] for label, value in summary.items()]


def message_columns(table: pa.Table) -> dict[str, Any]:
    """Return the columns of messages that a page reads; each message with an area gets a point in it."""
    categories = strings(table, "category")
    names = sorted(set(categories), key=lambda name: (-categories.count(name), name))
    lon, lat = rounded(table, "lon"), rounded(table, "lat")
    areas: dict[int, Shape] = {}
    for row, wkb in enumerate(values(table, "geometry")):
        if wkb is not None:
            geometry = shapely.from_wkb(wkb)
            lon[row], lat[row] = (
                round(value, _DECIMALS) for value in geometry.representative_point().coords[0]
            )
            if geometry.area > 0:
                areas[row] = rings(geometry)
    return {
        "id": strings(table, "id"),
        "text": strings(table, "text"),
        "categories": names,
        "category": [names.index(name) for name in categories],
        "lon": lon,
        "lat": lat,
        "areas": areas,
        "price": rounded(table, "price"),
        "rating": rounded(table, "rating"),
        "from": _seconds(table, "published_at"),
        "until": _seconds(table, "expires_at"),
    }


def place_columns(table: pa.Table) -> dict[str, Any]:
    """Return the names on the base map."""
    kinds = strings(table, "feature_class")
    names = sorted(set(kinds))
    return {
        "name": strings(table, "name"),
        "kinds": names,
        "kind": [names.index(kind) for kind in kinds],
        "lon": rounded(table, "lon"),
        "lat": rounded(table, "lat"),
    }


def rings(geometry: shapely.Geometry) -> list[list[float]]:
    """Return the outlines of one or several polygons, including their holes."""
    outlines = shapely.get_rings(shapely.get_parts(geometry))
    return [
        [round(value, _DECIMALS) for value in shapely.get_coordinates(ring)[:-1].ravel().tolist()]
        for ring in outlines
    ]


def values(table: pa.Table, name: str) -> list[Any]:
    """Return an optional column; if it is missing, nulls."""
    return table[name].to_pylist() if name in table.column_names else [None] * table.num_rows


def strings(table: pa.Table, name: str) -> list[str]:
    """Return an optional column as text; what is missing is empty."""
    return ["" if value is None else str(value) for value in values(table, name)]


def rounded(table: pa.Table, name: str) -> list[float | None]:
    """Return a numeric column for JSON: whole numbers without a decimal point, null for NaN."""
    return [_short(value) for value in values(table, name)]


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


def packed(rows: np.ndarray[Any, Any]) -> str:
    """Return integers as base64 of 32 bits each, which is shorter than JSON and faster to read."""
    return base64.b64encode(np.ascontiguousarray(rows, dtype="<i4").tobytes()).decode("ascii")
