"""The common part of structures whose layout is written as a whole: an order of tokens, newcomers, and folding."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearcast import config
from nearcast.columns.growable import GrowableArray
from nearcast.columns.ragged import runs_take
from nearcast.columns.rows.clauses import ClauseStore
from nearcast.kernels.verify import Probes
from nearcast.matching.structure import ClauseStructure, Progress, silent
from nearcast.matching.structures.newcomers import Newcomers
from nearcast.matching.structures.token_order import TokenOrder

__all__ = ["FoldingStructure", "named_arrays", "taken_arrays"]


_NEW = "new_"  # the prefix of the names of the newcomers' arrays


def named_arrays(prefix: str, group: Any) -> dict[str, NDArray[Any]]:
    """Return the arrays of a named tuple by name, with a prefix."""
    return {prefix + name: array for name, array in group._asdict().items()}


def taken_arrays(
    prefix: str, names: tuple[str, ...], arrays: dict[str, NDArray[Any]]
) -> dict[str, NDArray[Any]]:
    """Return the arrays that :func:`named_arrays` named, under their own names."""
    return {name: arrays[prefix + name] for name in names}


class FoldingStructure(ClauseStructure):
    """A structure that is laid out as a whole; new clauses wait beside it until they are folded in.

    The layout is never changed, only replaced, so readers of an older view can go on. The newcomers do change in place
    (see :class:`.PackedList`), and so do the marks of dropped clauses.

    A clause that is dropped no longer counts as standing in the layout, though its entries remain until the next fold.
    Meanwhile its row may be given to another clause, which waits among the newcomers.

    A subclass defines :meth:`_lay_out`, :meth:`_fold`, :meth:`_laid` and :meth:`_mark` instead of building, adding and
    dropping.
    """

    def __init__(self, store: ClauseStore) -> None:
        super().__init__(store)
        self._folds = 0

    def build(self, sample: Probes | None = None, tell: Progress = silent) -> None:
        """Order the tokens, and lay out all clauses."""
        rows = self.members()
        self._order = TokenOrder(self.store.keywords_of(np.flatnonzero(self.store.alive)))
        self._ordered = self.store.living  # clauses that the order of the tokens was made for
        self._lay_out(rows, tell)
        self._standing = GrowableArray(np.zeros(self.store.rows, np.bool_), borrowed=False)
        self._standing.values[rows] = True
        self._await_newcomers()

    def add(self, rows: NDArray[np.int64]) -> None:
        """Put clauses among the newcomers."""
        self._reach(rows)
        self._newcomers.add(rows)

    def _reach(self, rows: NDArray[np.int64]) -> None:
        """Give ranks to the words of new clauses."""
        clauses = self.store.clauses
        self._order.reach(runs_take(clauses.keyword_runs, clauses.keywords, rows)[1])

    def outgrown(self, more: int) -> bool:
        """Tell whether the newcomers, with *more* clauses, are so many that it is time to fold them in."""
        return self._newcomers.too_many(more)

    def renew(self, rows: NDArray[np.int64]) -> None:
        """Fold all newcomers and the given clauses into the layout."""
        self._folds += 1
        self._reach(rows)
        if self.store.living > config.REORDER_GROWTH * self._ordered:
            self.build()
        else:
            new = np.sort(np.concatenate([self._newcomers.members(), rows]))
            self._fold(new)
            self._standing.fill(self.store.rows - len(self._standing.values), False)
            self._standing.values[new] = True
            self._await_newcomers()

    def drop(self, rows: NDArray[np.int64]) -> None:
        """Remove clauses from the newcomers, or mark them in the layout."""
        new = self._newcomers.among(rows)
        self._newcomers.drop(rows[new])
        self._standing.values[rows[~new]] = False
        self._mark(rows[~new])

    def _await_newcomers(self) -> None:
        self._newcomers = Newcomers(self.store)
        self._newcomers.build()

    @abstractmethod
    def _lay_out(self, rows: NDArray[np.int64], tell: Progress = silent) -> None:
        """Lay out the given clause rows."""

    @abstractmethod
    def _fold(self, rows: NDArray[np.int64]) -> None:
        """Add ascending clause rows to the layout, and leave out those that were removed."""

    @abstractmethod
    def _laid(self) -> NDArray[np.int64]:
        """Return the clause rows of the layout in its order, including removed ones."""

    @abstractmethod
    def _mark(self, rows: NDArray[np.int64]) -> None:
        """Mark clause rows of the layout as removed."""

    def stats(self) -> dict[str, Any]:
        """Return how many newcomers wait, also as a share of all clauses."""
        waiting = self._newcomers.waiting
        share = round(waiting / max(self.store.living, 1), 3)
        return {"newcomers": waiting, "newcomers_share": share, "folds": self._folds}

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the order of the tokens, and the newcomers."""
        return {
            "ordered": np.array([self._ordered]),
            "ranks": self._order.ranks,
            "standing": self._standing.values,
            **{_NEW + name: array for name, array in self._newcomers.arrays().items()},
        }

    def restore(self, arrays: dict[str, NDArray[Any]]) -> None:
        """Take the order of the tokens, and the newcomers."""
        self._ordered = int(arrays["ordered"][0])
        self._order = TokenOrder.restored(arrays["ranks"])
        self._standing = GrowableArray(arrays["standing"], borrowed=False)
        self._newcomers = Newcomers(self.store)
        self._newcomers.restore(
            {name.removeprefix(_NEW): array for name, array in arrays.items() if name.startswith(_NEW)}
        )

    def check(self) -> list[str]:
        """Compare the layout and the newcomers with the living clauses; return what is wrong."""
        laid = self._laid()
        present = np.sort(np.concatenate([laid[self._standing.values[laid]], self._newcomers.members()]))
        if not np.array_equal(present, self.members()):
            return ["the layout and the newcomers do not hold the living clauses"]
        return [f"newcomers: {damage}" for damage in self._newcomers.check()]
