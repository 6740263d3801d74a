"""Reads tables of moves: an ``id`` and the columns of a region for each subscription that moves.

``lon`` and ``lat`` alone move the centre of a circle, which keeps its radius.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from nearcast.columns.clause_rows import Placement
from nearcast.columns.from_arrow.names import check_moves, require
from nearcast.columns.from_arrow.places import CIRCLE, given_regions, regions
from nearcast.columns.from_arrow.renaming import Columns, rename_table
from nearcast.columns.from_arrow.source import Source, arrow_table
from nearcast.errors import ColumnError
from nearcast.geometry import Space

__all__ = ["MoveTable"]


class MoveTable:
    """A table of moves. Its regions are laid out by :meth:`placed`, once the radii that it lacks are known."""

    def __init__(self, table: Any, space: Space, columns: Columns | None = None) -> None:
        self._source = Source(rename_table(arrow_table(table), columns, "moves"), "move")
        self._space = space
        require(("id",), self._source.names, "moves")
        check_moves(self._source.names)
        self.ids: pa.Array = self._source.ids
        self._circles = self._read_circles()
        missing = ~given_regions(self._source, space)
        #: The rows that name the new centre of a circle, and not its radius.
        self.bare: NDArray[np.int64] = np.empty(0, np.int64)
        if self._circles is not None:
            lon, _, radius = self._circles.T
            self.bare = np.flatnonzero(missing & ~np.isnan(lon) & np.isnan(radius))
            missing &= np.isnan(self._circles).all(axis=1)
        if missing.any():
            name = self._source.name_of(int(missing.argmax()))
            raise ColumnError(
                f"{name} has no region; give lon and lat, lon, lat and radius_m, geometry, or xmin, ymin, xmax, ymax"
            )

    def __len__(self) -> int:
        return self._source.size

    def _read_circles(self) -> NDArray[np.float64] | None:
        """Return lon, lat and radius of each row, NaN for what is not given; None if there is no position at all."""
        centres = self._source.numbers(CIRCLE[:2])
        if centres is None:
            return self._source.numbers(CIRCLE)
        circles = np.full((self._source.size, 3), np.nan)
        circles[:, :2] = centres
        if CIRCLE[2] in self._source:
            circles[:, 2] = self._source.floats([self._source[CIRCLE[2]]], CIRCLE[2])[:, 0]
        return circles

    def placed(self, radii: NDArray[np.float64]) -> Placement:
        """Return the region of each row, where the circles of :attr:`bare` have the given *radii*."""
        if self._circles is not None:
            self._circles[self.bare, 2] = radii
        return regions(self._source, self._space, self._circles)
