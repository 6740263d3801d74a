"""What the indexes share that lie in memory in one order: the order of tokens, newcomers, and folding them in."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearcast import config
from nearcast.matching.index import Matcher
from nearcast.matching.structures.newcomers import Newcomers
from nearcast.matching.structures.token_order import TokenOrder

__all__ = ["FoldingMatcher", "named_arrays", "taken_arrays"]


def named_arrays(prefix: str, group: Any) -> dict[str, NDArray[Any]]:
    """Return the arrays of a named tuple by prefixed name."""
    return {prefix + name: array for name, array in group._asdict().items()}


def taken_arrays(
    prefix: str, names: tuple[str, ...], arrays: dict[str, NDArray[Any]]
) -> dict[str, NDArray[Any]]:
    """Return the arrays that :func:`named_arrays` named, under their own names."""
    return {name: arrays[prefix + name] for name in names}


class FoldingMatcher(Matcher):
    """An index that is laid out as a whole; new clauses wait beside it until they are folded in.

    A subclass supplies :meth:`_lay_out`, :meth:`_fold`, :meth:`_laid` and :meth:`_mark` in place of building, adding
    and dropping.
    """

    _folds = 0

    def _build(self) -> None:
        self._order = TokenOrder(self.store.clauses.keywords)
        self._ordered = self.store.rows  # clauses that the order of the tokens was made for
        self._lay_out(self._members())
        self._newcomers = Newcomers.awaited(self.store)

    def _add(self, clause_rows: NDArray[np.int64]) -> None:
        clauses = self.store.clauses
        if len(clause_rows):
            offsets = clauses.keyword_offsets
            self._order.reach(clauses.keywords[offsets[clause_rows[0]] : offsets[clause_rows[-1] + 1]])
        if not self._newcomers.too_many(len(clause_rows)):
            self._newcomers.add(clause_rows)
            return
        self._folds += 1
        if self.store.rows > config.REORDER_GROWTH * self._ordered:
            self._build()
        else:
            self._fold(np.concatenate([self._newcomers.rows(), clause_rows]))
            self._newcomers = Newcomers.awaited(self.store)

    def _drop(self, clause_rows: NDArray[np.int64]) -> None:
        new = clause_rows >= self._newcomers.first
        self._newcomers.drop(clause_rows[new])
        self._mark(clause_rows[~new])

    @abstractmethod
    def _lay_out(self, rows: NDArray[np.int64]) -> None:
        """Build over the given clause rows."""

    @abstractmethod
    def _fold(self, rows: NDArray[np.int64]) -> None:
        """Take more clause rows into the layout, ascending, and leave out those that were removed."""

    @abstractmethod
    def _laid(self) -> NDArray[np.int64]:
        """Return the clause rows of the layout, removed ones included, in its order."""

    @abstractmethod
    def _mark(self, clause_rows: NDArray[np.int64]) -> None:
        """Mark clause rows of the layout as removed."""

    def stats(self) -> dict[str, Any]:
        """Return the figures of every index, and how many newcomers wait."""
        return super().stats() | {"newcomers": self._newcomers.waiting, "folds": self._folds}

    def _arrays(self) -> dict[str, NDArray[Any]]:
        return {
            "ordered": np.array([self._ordered]),
            "ranks": self._order.ranks,
            **self._newcomers.arrays(),
        }

    def _restore(self, arrays: dict[str, NDArray[Any]]) -> None:
        self._ordered = int(arrays["ordered"][0])
        self._order = TokenOrder.restored(arrays["ranks"])
        self._newcomers = Newcomers.taken(self.store, arrays)

    def _check(self) -> list[str]:
        laid = self._laid()
        present = np.sort(np.concatenate([laid[self.store.alive[laid]], self._newcomers.rows()]))
        if not np.array_equal(present, self._members()):
            return ["the layout and the newcomers do not hold the living clauses"]
        return [f"newcomers: {damage}" for damage in self._newcomers.damage()]
