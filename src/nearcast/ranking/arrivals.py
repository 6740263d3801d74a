"""Messages in the order in which they arrive."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from nearcast.columns import NOT_GIVEN
from nearcast.columns.ragged import ragged_take
from nearcast.ranking.scoring import places_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nearcast.columns import MessageBatch

__all__ = ["Arrivals"]


@dataclass(frozen=True, slots=True)
class Arrivals:
    """Messages, the first to arrive first. The words of one are ``words[offsets[i]:offsets[i + 1]]``, ascending."""

    places: NDArray[np.float64]  # [messages, 3]
    offsets: NDArray[np.int64]
    words: NDArray[np.int32]
    times: NDArray[np.int64]  # when they count as published
    said: NDArray[np.int64]  # when they say that they were published; NOT_GIVEN where they do not
    ids: NDArray[Any]  # numbers, or names

    def __len__(self) -> int:
        return len(self.said)

    @classmethod
    def of(cls, batch: MessageBatch, said: NDArray[np.int64], now: int, number: int) -> Arrivals:
        """Return the messages of a batch, in order.

        Those that do not say when they were published are published *now*; those without ids are numbered from
        *number* on.
        """
        times = np.where(said == NOT_GIVEN, now, said)
        new = cls(
            places_of(batch.probes.boxes[:, :2], batch.space),
            batch.probes.keyword_offsets,
            batch.probes.keywords,
            times,
            said,
            np.arange(number, number + len(batch)) if batch.ids is None else _ids(batch.ids),
        )
        order = _order(times, said, None if batch.ids is None else new.ids)
        if order is None:
            return new
        ordered = new.take(order)
        return ordered if batch.ids is not None else replace(ordered, ids=new.ids)

    def take(self, rows: NDArray[np.int64]) -> Arrivals:
        """Return some of them, in the order of *rows*."""
        offsets, words = ragged_take(self.offsets, self.words, rows)
        return Arrivals(self.places[rows], offsets, words, self.times[rows], self.said[rows], self.ids[rows])


def _ids(ids: Any) -> NDArray[Any]:
    values = ids.to_numpy(zero_copy_only=False)
    kind: Any = np.int64 if values.dtype.kind in "iu" else object
    named: NDArray[Any] = values.astype(kind)
    return named


def _order(
    times: NDArray[np.int64], said: NDArray[np.int64], ids: NDArray[Any] | None
) -> NDArray[np.int64] | None:
    """Return the order in which messages arrive; None: as they are.

    By time. At the same time the later row is newer, so that it wins a tie; but of messages that say when they were
    published the one with the smaller id is, whatever order they came in, and they are older than those that do not.
    """
    if (np.diff(times) > 0).all():
        return None
    rows = np.arange(len(times))
    given = said != NOT_GIVEN
    if ids is not None and given.any():
        _, rank = np.unique(ids, return_inverse=True)
        rows = np.where(given, -1 - rank, rows)
    order: NDArray[np.int64] = np.lexsort((rows, times))
    return None if (np.diff(order) > 0).all() else order
