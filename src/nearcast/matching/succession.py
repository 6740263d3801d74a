"""The replacement of a structure by another one, without any call that has to wait for it.

A structure that holds many times as many rows as it was laid out for answers slowly, and laying it out anew takes as
long as building does. So a successor is filled beside it, some rows with each change, while the old structure still
answers; when the successor has all rows, it takes over.
"""

from __future__ import annotations

from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from nearcast.columns.growable import GrowableArray
from nearcast.columns.rows.base import Rows
from nearcast.matching.structure import Structure

__all__ = ["Succession"]

_Rows = TypeVar("_Rows", bound=Rows)


class Succession(Generic[_Rows]):
    """A structure that is being filled with all rows of its store."""

    def __init__(self, structure: Structure[_Rows, Any]) -> None:
        """Begin with a structure that holds no rows yet."""
        self.structure = structure
        self._holds = GrowableArray(np.zeros(structure.store.rows, np.bool_), borrowed=False)
        self._next = 0  # the first row that has not been looked at

    def add(self, rows: NDArray[np.int64]) -> None:
        """Add rows that the structure does not have."""
        if len(rows):
            self._holds.fill(max(self.structure.store.rows - len(self._holds.values), 0), False)
            self._holds.values[rows] = True
            self.structure.add(rows)

    def drop(self, rows: NDArray[np.int64]) -> None:
        """Take out those of the rows that the structure has."""
        rows = rows[rows < len(self._holds.values)]
        rows = rows[self._holds.values[rows]]
        if len(rows):
            self._holds.values[rows] = False
            self.structure.drop(rows)

    def step(self, count: int) -> bool:
        """Add the next *count* rows; tell whether all rows have been added."""
        store = self.structure.store
        rows = np.arange(self._next, min(self._next + count, store.rows))
        self._next += len(rows)
        rows = rows[store.alive[rows]]
        known = rows[rows < len(self._holds.values)]
        self.add(np.concatenate([known[~self._holds.values[known]], rows[len(known) :]]))
        return self._next >= store.rows
