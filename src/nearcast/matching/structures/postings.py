"""Posting lists that grow and shrink with an index."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from nearcast import config
from nearcast.columns.growable import GrowableArray, roomy
from nearcast.columns.ragged import offsets_of
from nearcast.kernels import postings
from nearcast.kernels.postings import Homes, Pool
from nearcast.kernels.slabs import END, empty_slabs

__all__ = ["ClauseHomes", "PostingLists", "check_rooms", "longer"]

_HEADS = (np.int64, np.int32, np.int32)  # starts, sizes and rooms of lists
_LARGEST = 30  # a room has at most 2^30 postings
_Self = TypeVar("_Self", bound="PostingLists")


class PostingLists:
    """Numbered lists of clause rows; each clause has at most one posting."""

    def __init__(self, lists: int) -> None:
        self._heads = tuple(GrowableArray(np.zeros(lists, kind), borrowed=False) for kind in _HEADS)
        self._boxes, self._rows = np.empty((0, 4), np.float32), np.empty(0, np.int32)
        self._slabs = empty_slabs(_LARGEST)
        self.postings = 0  # in all lists
        self._view()

    def build(
        self, homes: Homes, boxes: NDArray[np.float64], rows: NDArray[np.int64], targets: NDArray[np.int64]
    ) -> None:
        """Post all *rows* at once; each list has just the room that it needs."""
        self._lay_out(np.bincount(targets, minlength=len(self.pool.starts)))
        self.add(homes, boxes, rows, targets)

    def add(
        self, homes: Homes, boxes: NDArray[np.float64], rows: NDArray[np.int64], targets: NDArray[np.int64]
    ) -> None:
        """Post more rows; lists and pool grow as needed."""
        self._more_lists(targets)
        self.postings += len(rows)
        done = 0
        while done < len(rows):
            done = postings.add(self.pool, self._slabs, self._room, homes, boxes, rows, targets, done)
            if done < len(rows):
                self._make_room(int(targets[done]))

    def remove(self, homes: Homes, rows: NDArray[np.int64]) -> None:
        """Remove the postings of clause rows."""
        postings.remove(self.pool, self._slabs, self._room, homes, rows)
        self.postings -= len(rows)

    def shift(
        self, homes: Homes, boxes: NDArray[np.float64], rows: NDArray[np.int64], targets: NDArray[np.int64]
    ) -> None:
        """Write the boxes of rows to their postings; those whose list has changed move to the new one."""
        stay = homes.lists[rows] == targets
        postings.rewrite(self.pool, homes, boxes, rows[stay])
        if not stay.all():
            self.remove(homes, rows[~stay])
            self.add(homes, boxes, rows[~stay], targets[~stay])

    def some(self, count: int) -> NDArray[np.int64]:
        """Return at most *count* of the rows that have a posting, spread evenly over the lists."""
        starts, sizes = self.pool.starts, self.pool.sizes
        ends = np.cumsum(sizes, dtype=np.int64)
        picks = np.linspace(0, self.postings - 1, min(count, self.postings)).astype(np.int64)
        lists = np.searchsorted(ends, picks, side="right")
        rows: NDArray[np.int64] = self._rows[starts[lists] + picks - ends[lists] + sizes[lists]].astype(
            np.int64
        )
        return rows

    def arrays(self, prefix: str) -> dict[str, NDArray[Any]]:
        """Return the flat arrays that :meth:`restored` takes."""
        used = self._slabs[END]
        pool = self.pool._replace(boxes=self._boxes[:used], rows=self._rows[:used])
        arrays = pool._asdict() | {"slabs": self._slabs}
        return {prefix + name: array for name, array in arrays.items()}

    @classmethod
    def restored(cls: type[_Self], arrays: dict[str, NDArray[Any]], prefix: str) -> _Self:
        """Restore on mapped arrays."""
        lists = cls(0)
        pool = Pool(**{name: arrays[prefix + name] for name in Pool._fields})
        lists._heads = tuple(GrowableArray(array, borrowed=False) for array in pool[: len(_HEADS)])
        lists._boxes, lists._rows, lists._slabs = pool.boxes, pool.rows, arrays[prefix + "slabs"]
        lists.postings = int(pool.sizes.sum())
        lists._view()
        return lists

    def check(self) -> list[str]:
        """Return what is wrong with the rooms of the lists."""
        return check_rooms(self.pool.starts, self.pool.sizes, self.pool.rooms, int(self._slabs[END]))

    def _lay_out(self, sizes: NDArray[np.int64]) -> None:
        """Give each empty list room for its number of postings."""
        self._more_lists(np.array([len(sizes) - 1]))
        for array in self._heads:
            array.reserve(len(array.values))  # so that it need not be copied when more words come
        self._view()
        self.pool.starts[: len(sizes)] = offsets_of(sizes)[:-1]
        self.pool.rooms[: len(sizes)] = sizes
        self._slabs[END] = sizes.sum()
        self._reach(int(self._slabs[END]))

    def _more_lists(self, targets: NDArray[Any]) -> None:
        """Add lists until all *targets* exist."""
        more = int(targets.max(initial=-1)) + 1 - len(self.pool.starts)
        if more > 0:
            for array in self._heads:
                array.fill(more, 0)
            self._view()

    def _make_room(self, target: int) -> None:
        """Make room in the pool for a list to double."""
        need = 2 * max(int(self.pool.sizes[target]), config.POSTING_START)
        self._reach(int(self._slabs[END]) + need)

    def _reach(self, room: int) -> None:
        """Make sure that the pool has room for this many postings in all."""
        if room > self._room:
            self._boxes, self._rows = longer(self._boxes, room), longer(self._rows, room)
            self._view()

    def _view(self) -> None:
        """Make the pool that kernels take."""
        starts, sizes, rooms = (array.values for array in self._heads)
        self.pool = Pool(starts, sizes, rooms, self._boxes, self._rows)
        self._room = min(len(self._boxes), len(self._rows))  # long arrays get more than was asked for


def longer(array: NDArray[Any], rows: int) -> NDArray[Any]:
    """Return *array* with room for at least this many rows; if it must grow, it grows by half or more."""
    if rows <= len(array):
        return array
    room = roomy(array, max(rows, len(array) * 3 // 2))
    room[: len(array)] = array
    return room


def check_rooms(starts: NDArray[Any], sizes: NDArray[Any], rooms: NDArray[Any], used: int) -> list[str]:
    """Return what is wrong with the rooms of lists in a pool whose first *used* slots are handed out."""
    own = np.flatnonzero(rooms)
    first, end = starts[own].astype(np.int64), starts[own].astype(np.int64) + rooms[own]
    if (sizes > rooms).any() or (first < 0).any() or (end > used).any():
        return ["a list extends beyond its room, or a room beyond the pool"]
    order = np.argsort(first)
    return ["two lists share a room"] if (first[order][1:] < end[order][:-1]).any() else []


class ClauseHomes:
    """Growing arrays that hold where the posting of each clause is."""

    def __init__(self, lists: NDArray[np.int32], positions: NDArray[np.int32]) -> None:
        self._lists = GrowableArray(lists, borrowed=False)
        self._positions = GrowableArray(positions, borrowed=False)

    @classmethod
    def none(cls, clauses: int) -> ClauseHomes:
        """Return the homes of this many clauses, none of which has a posting."""
        homes = cls(np.empty(0, np.int32), np.empty(0, np.int32))
        homes._lists.reserve(clauses)
        homes._positions.reserve(clauses)
        homes.reach(clauses)
        return homes

    @property
    def arrays(self) -> Homes:
        """The arrays, in the form that kernels take."""
        return Homes(self._lists.values, self._positions.values)

    def reach(self, clauses: int) -> Homes:
        """Grow to *clauses* rows."""
        more = clauses - len(self._lists.values)
        if more > 0:
            self._lists.fill(more, -1)
            self._positions.fill(more, 0)
        return self.arrays
