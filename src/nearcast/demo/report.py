"""One HTML file that shows messages, regions and deliveries on a map, and opens without a network.

The page (``report.html``) is fixed; runs differ only in the JSON that is inserted into it.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import shapely

from nearcast.demo.page import (
    Shape,
    cards,
    message_columns,
    packed,
    place_columns,
    rings,
    rounded,
    strings,
    values,
    write_page,
)
from nearcast.errors import ColumnError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["write_report"]


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
        "summary": cards(summary),
        "messages": message_columns(messages),
        "subscriptions": _subscriptions(subscriptions.take(pa.array(receivers)))
        | {"total": subscriptions.num_rows},
        "deliveries": {"offsets": packed(offsets), "rows": packed(receiver_rows[order])},
        "places": place_columns(places) if places is not None else None,
    }
    return write_page(path, "report.html", data)


def _subscriptions(table: pa.Table) -> dict[str, Any]:
    circle = [rounded(table, name) for name in ("lon", "lat", "radius_m")]
    box = [rounded(table, name) for name in ("xmin", "ymin", "xmax", "ymax")]
    shapes: list[Shape] = []
    for wkb, centre, corners in zip(values(table, "geometry"), zip(*circle), zip(*box)):
        if wkb is not None:
            shapes.append(rings(shapely.from_wkb(wkb)))
        elif None not in centre:
            shapes.append(list(centre))
        elif None not in corners:
            shapes.append(list(corners))
        else:
            shapes.append(None)
    return {"id": strings(table, "id"), "expression": strings(table, "expression"), "shape": shapes}


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
