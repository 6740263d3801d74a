"""Messages in the order in which they arrive."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from nearcast.columns import NOT_GIVEN, MessageBatch
from nearcast.columns.ragged import ragged_take
from nearcast.errors import ColumnError, InputError, shown
from nearcast.ranking.scoring import places_of
from nearcast.ranking.windows import TimeWindow

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nearcast.clock import Clock
    from nearcast.columns.coding import Coding
    from nearcast.ranking.replacing import Bearers
    from nearcast.ranking.windows import Messages, Window

__all__ = ["Arrivals", "check_batch"]


@dataclass(frozen=True, slots=True)
class Arrivals:
    """Messages, the first to arrive first. The words of one are ``words[offsets[i]:offsets[i + 1]]``, ascending."""

    places: NDArray[np.float64]  # [messages, 3]
    offsets: NDArray[np.int64]
    words: NDArray[np.int32]
    times: NDArray[np.int64]  # when they count as published
    said: NDArray[np.int64]  # when they say that they were published; NOT_GIVEN where they do not
    ids: NDArray[np.int64]  # integers, or codes of names
    codes: NDArray[np.int32] | None  # of the ids; None: they have none, and are named by their numbers

    def __len__(self) -> int:
        return len(self.said)

    @classmethod
    def of(
        cls, batch: MessageBatch, window: Window, clock: Clock | None, messages: Messages, bearers: Bearers
    ) -> Arrivals:
        """Return the messages of a batch, in order, on their way to those that are there.

        Those that do not say when they were published are published now. Those without ids are named by their numbers.
        """
        said = np.full(len(batch), NOT_GIVEN) if batch.published_at is None else batch.published_at
        times = np.where(said == NOT_GIVEN, _now(said, window, clock, messages), said)
        number, codes = messages.end, bearers.coded(batch)
        new = cls(
            places_of(batch.probes.boxes[:, :2], batch.space),
            batch.probes.keyword_offsets,
            batch.probes.keywords,
            times,
            said,
            np.arange(number, number + len(batch)) if codes is None else _ids(batch.ids, codes),
            codes,
        )
        order = _order(times, said, batch.ids)
        if order is None:
            return new
        ordered = new.take(order)
        return ordered if codes is not None else replace(ordered, ids=new.ids)

    def take(self, rows: NDArray[np.int64]) -> Arrivals:
        """Return some of them, in the order of *rows*."""
        offsets, words = ragged_take(self.offsets, self.words, rows)
        return Arrivals(
            self.places[rows],
            offsets,
            words,
            self.times[rows],
            self.said[rows],
            self.ids[rows],
            None if self.codes is None else self.codes[rows],
        )


def check_batch(batch: MessageBatch, coding: Coding) -> None:
    """Raise where messages cannot be ranked."""
    if not isinstance(batch, MessageBatch):
        raise InputError(f"publish takes a MessageBatch, not {shown(batch)}")
    if batch.space != coding.space:
        raise ColumnError(f"the messages are in {batch.space!r}, the subscriptions in {coding.space!r}")
    if batch.vocabulary is not None and not batch.coding.fits(coding):
        raise ColumnError(
            "the words of the messages are coded otherwise; make the batch with like=top, learn=True"
        )
    boxes = batch.probes.boxes
    if len(boxes) != len(batch) or not np.array_equal(boxes[:, :2], boxes[:, 2:]):
        raise ColumnError("a message that is ranked is at a point; an area has no distance")


def _now(said: NDArray[np.int64], window: Window, clock: Clock | None, messages: Messages) -> int:
    """Return when messages are published that do not say; without a clock, together with the newest one."""
    if clock is not None:
        return clock.now()
    untimed = np.flatnonzero(said == NOT_GIVEN)
    if len(untimed) and isinstance(window, TimeWindow):
        raise ColumnError(
            f"message {untimed[0]} does not say when it was published, and a window of time must know; "
            "give published_at, or give TopK a clock"
        )
    return max(messages.newest, int(said.max(initial=NOT_GIVEN)))


def _ids(ids: Any, codes: NDArray[np.int32]) -> NDArray[np.int64]:
    kept: NDArray[Any] = ids.to_numpy() if pa.types.is_integer(ids.type) else codes
    return kept.astype(np.int64, copy=False)


def _order(
    times: NDArray[np.int64], said: NDArray[np.int64], ids: pa.Array | None
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
        rank = pc.rank(ids, tiebreaker="dense").to_numpy().astype(np.int64)
        rows = np.where(given, -1 - rank, rows)
    order: NDArray[np.int64] = np.lexsort((rows, times))
    return None if (np.diff(order) > 0).all() else order
