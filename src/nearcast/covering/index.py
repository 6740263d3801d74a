"""What finds the subscriptions that cover another one: the interface of all indexes, and what some of them share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from nearcast.columns.parts import nested, part_of
from nearcast.covering.balance import balance
from nearcast.covering.buckets import LARGEST, NUMBERS
from nearcast.covering.forest import DEEPEST, MOVING, REBUILDS, ForestArrays
from nearcast.covering.growing import array_bytes
from nearcast.covering.rectangles import Corners, Rectangles, refusal
from nearcast.covering.regions import content_of
from nearcast.covering.subscriptions import Scratch, new_scratch
from nearcast.errors import InputError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nearcast.columns import SubscriptionTable
    from nearcast.columns.parts import Arrays
    from nearcast.columns.rows.clauses import ClauseStore
    from nearcast.covering.g_k import Kernels

__all__ = ["CoveringIndex", "RectangleIndex", "TreeIndex"]


class CoveringIndex(ABC):
    """An index over the clause rows of a store: the lower layer of section I.A, which answers cov_k(S, s) exactly.

    Its :attr:`kernels` work on its :attr:`arrays`. Python makes room, and kernels fill it.
    """

    name: ClassVar[str]
    kernels: ClassVar[Kernels]
    arrays: Any  # the index as its kernels see it: a named tuple

    def check(self, table: SubscriptionTable) -> None:  # noqa: B027
        """Raise if the index cannot hold a table; most hold any."""

    def check_question(self, table: SubscriptionTable) -> None:  # noqa: B027
        """Raise if the index cannot be asked about a table."""

    @abstractmethod
    def load(self, store: ClauseStore) -> None:
        """Begin anew with an empty index for the clause rows of a store."""

    @abstractmethod
    def follow(self, store: ClauseStore, clauses: NDArray[np.int64]) -> bool:
        """Make room for new clause rows, wherever they are; return False if the index must be loaded anew."""

    @abstractmethod
    def grow(self, points: int) -> None:
        """Make room for this many more points. Kernels ask for this between two commands, when they run out of it."""

    def content(self, store: ClauseStore) -> Any:
        """Return what kernels compare, for the clause rows of the graph's store."""
        return content_of(store)

    def content_of_question(self, store: ClauseStore) -> Any:
        """Return what kernels compare, for the clause rows of a question."""
        return content_of(store)

    def scratch(self) -> Scratch:
        """Return room for kernels to work in."""
        return new_scratch(1, 1, 1)

    def outgrown(self) -> bool:
        """Tell whether the index was laid out for much less than it holds now, and should be laid out anew."""
        return False

    def at_rest(self) -> dict[str, NDArray[Any]]:
        """Return the flat arrays that :meth:`restore` takes: what is in use, without the store's arrays."""
        return {}

    def restore(self, store: ClauseStore, arrays: Arrays) -> None:
        """Take the index from its arrays, for the clause rows of a store."""
        self.load(store)

    @property
    def nbytes(self) -> int:
        """Memory in use, without the store."""
        return array_bytes(self.at_rest())

    def stats(self) -> dict[str, Any]:
        """Return figures about the structure."""
        return {}


class TreeIndex(CoveringIndex):
    """An index whose points are in k-d trees."""

    _trees: ForestArrays

    def scratch(self) -> Scratch:
        """Return room for a search."""
        forest = self._trees.view
        depth = int(forest.used[DEEPEST] + forest.used[MOVING])
        return new_scratch(forest.low.size, depth + 64, 2 * int(forest.buckets.used[LARGEST]))

    def grow(self, points: int) -> None:
        """Make room; before that, rebuild a subtree that became too deep."""
        balance(self._trees)
        self._trees.make_room(0, 0, points)
        self._see()

    def at_rest(self) -> dict[str, NDArray[Any]]:
        """Return the trees."""
        return super().at_rest() | nested(forest=self._trees.at_rest())

    def restore(self, store: ClauseStore, arrays: Arrays) -> None:
        """Take the trees."""
        super().restore(store, arrays)
        self._trees.restore(part_of(arrays, "forest"))
        self._see()

    def stats(self) -> dict[str, Any]:
        """Return the depth of the deepest tree so far, the buckets, and the subtrees that were rebuilt."""
        used, buckets = self._trees.view.used, self._trees.view.buckets
        return {
            "depth": int(used[DEEPEST]),
            "buckets": int(buckets.used[NUMBERS]),
            "rebuilt_subtrees": int(used[REBUILDS]),
        }

    @abstractmethod
    def _see(self) -> None:
        """Set :attr:`arrays` to the trees as they are now."""


class RectangleIndex(CoveringIndex):
    """An index of rectangles: subscriptions of one clause, without words."""

    def __init__(self) -> None:
        self.rectangles = Rectangles()

    def check(self, table: SubscriptionTable) -> None:
        """Raise if there is anything but rectangles, or if they have too many axes."""
        self.check_question(table)
        self.rectangles.check(table.clauses)

    def check_question(self, table: SubscriptionTable) -> None:
        """Raise if there is anything but rectangles."""
        reason = refusal(table)
        if reason is not None:
            raise InputError(
                f"the index {self.name!r} holds rectangles, and these subscriptions have {reason}; "
                "take index='forest'"
            )

    def load(self, store: ClauseStore) -> None:
        """Begin anew."""
        self.rectangles.load(store.clauses, np.flatnonzero(store.alive))
        self._empty(store.rows)

    def follow(self, store: ClauseStore, clauses: NDArray[np.int64]) -> bool:
        """Take new clause rows; another axis means more dimensions, and another layout."""
        if not self.rectangles.fits(store.clauses, clauses):
            return False
        self.rectangles.put(store.clauses, clauses)
        self._reach(store.rows)
        return True

    def content(self, store: ClauseStore) -> Corners:
        """Return the points of the graph's rectangles."""
        return self.rectangles.corners

    def content_of_question(self, store: ClauseStore) -> Corners:
        """Return the points of a question's rectangles."""
        return self.rectangles.corners_of(store.clauses, np.arange(store.rows))

    def at_rest(self) -> dict[str, NDArray[Any]]:
        """Return the axes; the points follow from the store."""
        return super().at_rest() | {"axes": np.array(self.rectangles.axes, np.int64)}

    def restore(self, store: ClauseStore, arrays: Arrays) -> None:
        """Take the axes."""
        self.rectangles.axes = arrays["axes"].tolist()
        super().restore(store, arrays)

    @property
    def nbytes(self) -> int:
        """Memory in use, with the points of all clause rows."""
        return super().nbytes + array_bytes(self.rectangles.corners._asdict())

    @abstractmethod
    def _empty(self, rows: int) -> None:
        """Begin without points, for this many clause rows."""

    @abstractmethod
    def _reach(self, rows: int) -> None:
        """Make room for this many clause rows in all."""
