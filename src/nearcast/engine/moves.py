"""Reading moves: which subscriptions get which regions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearcast.columns.clause_rows import Placement
from nearcast.columns.from_arrow.moves import MoveTable
from nearcast.columns.from_arrow.renaming import Columns
from nearcast.columns.ids import Ids
from nearcast.columns.regions import radii_of, take_regions
from nearcast.errors import ColumnError, GeometryError, counted, shown
from nearcast.geometry import Circle, Planar, Point
from nearcast.geometry.crs import require_wgs84
from nearcast.matching import Index

__all__ = ["last_of_each", "read_moves"]


def read_moves(
    given: Any, regions: Any, ids: Ids, index: Index, columns: Columns | None = None
) -> tuple[NDArray[np.int64], Placement]:
    """Return the rows of the subscriptions that move, each once, and their regions; the last move of each counts.

    *given* is an id with a region in *regions*, several ids with as many regions, or a table without *regions*.
    """
    if regions is None:
        rows, placed = _read_table(given, ids, index, columns)
    elif columns is not None:
        raise ColumnError(f"{shown(given)} is not a table; leave columns= out")
    else:
        rows, placed = _read_objects(given, regions, ids, index)
    last = last_of_each(rows)
    return (rows, placed) if len(last) == len(rows) else (rows[last], take_regions(placed, last))


def last_of_each(rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the positions of rows that do not come again, ascending.

    >>> last_of_each(np.array([7, 5, 7]))
    array([1, 2])
    """
    _, from_the_end = np.unique(rows[::-1], return_index=True)
    return np.sort(len(rows) - 1 - from_the_end)


def _read_table(
    given: Any, ids: Ids, index: Index, columns: Columns | None
) -> tuple[NDArray[np.int64], Placement]:
    if isinstance(given, str | Integral) or (isinstance(given, Sequence) and not hasattr(given, "keys")):
        raise ColumnError(
            f"move takes ids and their regions, or a table of both; there are no regions for {shown(given)}"
        )
    moves = MoveTable(given, index.coding.space, columns)
    rows = ids.rows(moves.ids)
    return rows, moves.placed(_radii(rows[moves.bare], ids, index))


def _read_objects(given: Any, regions: Any, ids: Ids, index: Index) -> tuple[NDArray[np.int64], Placement]:
    rows = ids.rows(given)
    if isinstance(given, str | Integral):
        regions = [regions]
    elif not isinstance(regions, Iterable) or isinstance(regions, str):
        raise ColumnError(f"several ids take as many regions, not {shown(regions)}; give a list of them")
    if not isinstance(index.coding.space, Planar):
        require_wgs84(getattr(regions, "crs", None))  # of a GeoSeries
    places = list(regions)
    if len(places) != len(rows):
        subscriptions = counted(len(rows), "subscription")
        raise ColumnError(f"{counted(len(places), 'region')} for {subscriptions}; give one for each")
    bare = np.array([at for at, region in enumerate(places) if isinstance(region, Point)], np.int64)
    for at, radius in zip(bare.tolist(), _radii(rows[bare], ids, index).tolist()):
        centre = places[at]
        places[at] = Circle(x=centre.x, y=centre.y, radius=radius, space=centre.space)
    return rows, index.placement(places, len(rows))


def _radii(rows: NDArray[np.int64], ids: Ids, index: Index) -> NDArray[np.float64]:
    """Return the radii of the circles of subscriptions; one that has no circle is an error."""
    if not len(rows):
        return np.empty(0)
    radii = radii_of(index.subscriptions(rows))
    if np.isnan(radii).any():
        other = ids.column(rows[np.isnan(radii)][:1]).to_pylist()[0]
        raise GeometryError(
            f"a position alone moves a circle, and subscription {shown(other)} has no circle; "
            "give it a whole region"
        )
    return radii
