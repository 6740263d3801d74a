"""The posting lists of an index, growing and shrinking with it."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from nearcast import config
from nearcast.columns.growable import GrowableArray
from nearcast.columns.ragged import offsets_of
from nearcast.kernels import postings
from nearcast.kernels.postings import Homes, Pool

__all__ = ["ClauseHomes", "PostingLists"]

_Self = TypeVar("_Self", bound="PostingLists")


class PostingLists:
    """Numbered lists of clause rows; each clause has at most one posting."""

    def __init__(self, lists: int) -> None:
        self.pool = Pool(
            np.zeros(lists, np.int64),
            np.zeros(lists, np.int32),
            np.zeros(lists, np.int32),
            np.empty((0, 4), np.float32),
            np.empty(0, np.int32),
        )
        self._used = 0

    @property
    def postings(self) -> int:
        """How many postings there are."""
        return int(self.pool.sizes.sum())

    def build(
        self, homes: Homes, boxes: NDArray[np.float64], rows: NDArray[np.int64], targets: NDArray[np.int64]
    ) -> None:
        """Post all *rows* at once, each list as long as it must be."""
        sizes = np.bincount(targets, minlength=len(self.pool.starts))
        self._used = len(rows)
        self.pool = Pool(
            offsets_of(sizes)[:-1],
            np.zeros(len(sizes), np.int32),
            sizes.astype(np.int32),
            np.empty((len(rows), 4), np.float32),
            np.empty(len(rows), np.int32),
        )
        self.add(homes, boxes, rows, targets)

    def add(
        self, homes: Homes, boxes: NDArray[np.float64], rows: NDArray[np.int64], targets: NDArray[np.int64]
    ) -> None:
        """Post more rows; lists and pool grow as needed."""
        if len(targets) and targets.max() >= len(self.pool.starts):
            self._more_lists(int(targets.max()) + 1)
        done = 0
        while done < len(rows):
            done, self._used = postings.add(
                self.pool, homes, boxes, rows, targets, done, self._used, config.POSTING_START
            )
            if done < len(rows):
                self._make_room(int(self.pool.sizes[targets[done]]))

    def remove(self, homes: Homes, rows: NDArray[np.int64]) -> None:
        """Take the postings of clause rows out."""
        postings.remove(self.pool, homes, rows)

    def arrays(self, prefix: str) -> dict[str, NDArray[Any]]:
        """Return the flat arrays that :meth:`restored` takes."""
        pool = self.pool._replace(boxes=self.pool.boxes[: self._used], rows=self.pool.rows[: self._used])
        return {prefix + name: array for name, array in pool._asdict().items()}

    @classmethod
    def restored(cls: type[_Self], arrays: dict[str, NDArray[Any]], prefix: str) -> _Self:
        """Restore on mapped arrays."""
        lists = cls(0)
        lists.pool = Pool(**{name: arrays[prefix + name] for name in Pool._fields})
        lists._used = len(lists.pool.rows)
        return lists

    def _more_lists(self, lists: int) -> None:
        pool = self.pool
        more = max(lists - len(pool.starts), len(pool.starts) // 2)
        self.pool = pool._replace(
            starts=np.append(pool.starts, np.zeros(more, np.int64)),
            sizes=np.append(pool.sizes, np.zeros(more, np.int32)),
            rooms=np.append(pool.rooms, np.zeros(more, np.int32)),
        )

    def _make_room(self, size: int) -> None:
        """Make room for a list of *size* postings to double: compact when that frees enough, else grow by half."""
        pool = self.pool
        unused = self._used - self.postings  # left behind by lists that moved, or room that lists do not fill
        need = max(config.POSTING_START, 2 * size)
        room = len(pool.rows)
        if unused <= config.COMPACT_WASTE * room or room - self.postings < need:
            room += max(room // 2, need)
        boxes, rows = np.empty((room, 4), np.float32), np.empty(room, np.int32)
        self._used = postings.compact(pool, boxes, rows)
        self.pool = pool._replace(boxes=boxes, rows=rows)


class ClauseHomes:
    """Growing arrays of where each clause's posting stands."""

    def __init__(self, lists: NDArray[np.int32], positions: NDArray[np.int32]) -> None:
        self._lists = GrowableArray(lists, borrowed=False)
        self._positions = GrowableArray(positions, borrowed=False)

    @property
    def arrays(self) -> Homes:
        """What kernels take."""
        return Homes(self._lists.values, self._positions.values)

    def reach(self, clauses: int) -> Homes:
        """Grow to *clauses* rows."""
        more = clauses - len(self._lists.values)
        if more > 0:
            self._lists.fill(more, -1)
            self._positions.fill(more, 0)
        return self.arrays
