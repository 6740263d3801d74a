"""The attribute values of messages, as ragged rows: most messages lack most attributes."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearcast.columns.ragged import offsets_of, ragged_take

__all__ = ["Values"]


class Values(NamedTuple):
    """The attributes that each row has, in ascending order, and their values.

    >>> Values.from_matrix(np.array([[np.nan, 2.5], [1.0, 3.0]]))
    Values(offsets=array([0, 1, 3]), attributes=array([1, 0, 1], dtype=int32), values=array([2.5, 1. , 3. ]))
    """

    offsets: NDArray[np.int64]
    attributes: NDArray[np.int32]
    values: NDArray[np.float64]  # no NaN

    @classmethod
    def none(cls, rows: int) -> Values:
        """Return the given number of rows, without values."""
        return cls(np.zeros(rows + 1, np.int64), np.empty(0, np.int32), np.empty(0))

    @classmethod
    def from_matrix(cls, matrix: NDArray[np.float64]) -> Values:
        """Return the values of a float64[n, A], which is NaN where a value is absent."""
        if not matrix.size:
            return cls.none(len(matrix))
        there = ~np.isnan(matrix)
        attributes = np.flatnonzero(there) % matrix.shape[1]
        return cls(offsets_of(np.count_nonzero(there, axis=1)), attributes.astype(np.int32), matrix[there])

    @classmethod
    def from_cells(
        cls, rows: int, row: NDArray[Any], attribute: NDArray[Any], value: NDArray[np.float64]
    ) -> Values:
        """Return the given number of rows from cells, each a row, an attribute and a value; NaN is left out."""
        given = ~np.isnan(value)
        order = np.flatnonzero(given)
        order = order[np.lexsort((attribute[order], row[order]))]
        counts = np.bincount(row[order], minlength=rows)
        return cls(offsets_of(counts), attribute[order].astype(np.int32), value[order])

    def take(self, rows: NDArray[np.int64]) -> Values:
        """Return the given rows."""
        if not len(self.values):
            return Values.none(len(rows))
        offsets, attributes = ragged_take(self.offsets, self.attributes, rows)
        return Values(offsets, attributes, ragged_take(self.offsets, self.values, rows)[1])
