"""What finds subscriptions that cover another one: the interface."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from nearcast.columns.parts import nested, part_of
from nearcast.covering.buckets import LARGEST, NUMBERS
from nearcast.covering.forest import DEEPEST, forest_arrays, forest_from_arrays, too_deep
from nearcast.covering.operations import Scratch, new_scratch
from nearcast.covering.rectangles import Rectangles, refusal
from nearcast.errors import InputError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nearcast.columns import SubscriptionTable
    from nearcast.columns.parts import Arrays
    from nearcast.columns.rows.clauses import ClauseStore

__all__ = ["CoveringIndex", "RectangleIndex", "TreeIndex", "array_bytes"]


class CoveringIndex(ABC):
    """An index over the clause rows of a store; exact.

    Kernels work on :attr:`arrays`, by the operations that are registered for them.
    """

    name: ClassVar[str]

    def __init__(self) -> None:
        self._arrays: Any = None

    @property
    def arrays(self) -> Any:
        """The index, for kernels."""
        return self._arrays

    def check(self, table: SubscriptionTable) -> None:  # noqa: B027
        """Raise where the index cannot hold a table; most hold any."""

    @abstractmethod
    def load(self, store: ClauseStore) -> None:
        """Begin anew, empty, on the clause rows of a store."""

    @abstractmethod
    def follow(self, store: ClauseStore, begin: int) -> bool:
        """Make room for the clause rows from *begin* on; False where the index must be loaded anew."""

    @abstractmethod
    def grow(self, points: int) -> None:
        """Make room for so many more points, whatever that takes; see the store's arrays as they are now."""

    def scratch(self) -> Scratch:
        """Return room for kernels to work in."""
        return new_scratch(1, 1, 1)

    def built(self) -> None:  # noqa: B027
        """Learn that all subscriptions are in, after the index was loaded anew."""

    def degenerate(self) -> bool:
        """Tell whether the index should be built anew, in another order."""
        return False

    def at_rest(self) -> dict[str, NDArray[Any]]:
        """Return the flat arrays that :meth:`restore` takes; not those of the store."""
        return {}

    def restore(self, store: ClauseStore, arrays: Arrays) -> None:
        """Take the index from its arrays, on the clause rows of a store."""
        self.load(store)

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """Memory, without the store."""

    def stats(self) -> dict[str, Any]:
        """Figures about the structure."""
        return {}


class TreeIndex(CoveringIndex):
    """An index whose points are in k-d trees: ``arrays.forest``."""

    _depth = 0  # of the trees when they were built anew

    def scratch(self) -> Scratch:
        """Return room for a search."""
        forest = self._arrays.forest
        return new_scratch(
            forest.low.size, int(forest.used[DEEPEST]) + 64, 2 * int(forest.buckets.used[LARGEST])
        )

    def built(self) -> None:
        """Remember how deep the trees have to be."""
        self._depth = int(self._arrays.forest.used[DEEPEST])

    def degenerate(self) -> bool:
        """Tell whether a tree is too deep."""
        return too_deep(self._arrays.forest, self._depth)

    def at_rest(self) -> dict[str, NDArray[Any]]:
        """Return the trees."""
        trees = nested(forest=forest_arrays(self._arrays.forest))
        return super().at_rest() | trees | {"depth": np.array([self._depth])}

    def restore(self, store: ClauseStore, arrays: Arrays) -> None:
        """Take the trees."""
        super().restore(store, arrays)
        self._arrays = self._arrays._replace(forest=forest_from_arrays(part_of(arrays, "forest")))
        self._depth = int(arrays["depth"][0])

    def stats(self) -> dict[str, Any]:
        """Tell the depth of the deepest tree, and the buckets."""
        forest = self._arrays.forest
        return {"depth": int(forest.used[DEEPEST]), "buckets": int(forest.buckets.used[NUMBERS])}


class RectangleIndex(CoveringIndex):
    """An index of rectangles: subscriptions of one clause, without words."""

    def __init__(self) -> None:
        super().__init__()
        self.rectangles = Rectangles()

    def check(self, table: SubscriptionTable) -> None:
        """Raise where there is more than rectangles, or where they have too many axes."""
        self.rectangles.check(table.clauses)
        reason = refusal(table)
        if reason is not None:
            raise InputError(
                f"the index {self.name!r} holds rectangles, and these subscriptions have {reason}; "
                "take index='forest'"
            )

    def load(self, store: ClauseStore) -> None:
        """Begin anew."""
        self.rectangles.load(store.clauses)
        self._emptied()
        self.grow(1)

    def follow(self, store: ClauseStore, begin: int) -> bool:
        """Take new clause rows; another axis means another number of dimensions."""
        if begin == 0 or not self.rectangles.fits(store.clauses, begin):
            return False
        self.rectangles.extend(store.clauses, begin)
        self.grow(1)
        return True

    def at_rest(self) -> dict[str, NDArray[Any]]:
        """Return the axes; the points follow from the store."""
        return super().at_rest() | {"axes": np.array(self.rectangles.axes, np.int64)}

    def restore(self, store: ClauseStore, arrays: Arrays) -> None:
        """Take the axes."""
        self.rectangles.axes = arrays["axes"].tolist()
        super().restore(store, arrays)

    @property
    def nbytes(self) -> int:
        """Memory."""
        return array_bytes(self._arrays)

    @abstractmethod
    def _emptied(self) -> None:
        """Begin with no points."""


def array_bytes(arrays: Any) -> int:
    """Return the memory of a named tuple of arrays, and of those in it."""
    if arrays is None:
        return 0
    return sum(
        array_bytes(part) if isinstance(part, tuple) else getattr(part, "nbytes", 0) for part in arrays
    )
