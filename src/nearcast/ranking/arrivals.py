"""New messages, in the order in which they arrive."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from nearcast.clock import iso
from nearcast.columns import NOT_GIVEN, MessageBatch
from nearcast.columns.ragged import ragged_take
from nearcast.errors import ColumnError, InputError, shown
from nearcast.ranking.scoring import places_of
from nearcast.ranking.windows import TimeWindow

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nearcast.columns.coding import Coding
    from nearcast.ranking.message_ids import MessageIds
    from nearcast.ranking.windows import Messages, Window

__all__ = ["Arrivals", "check_batch"]


@dataclass(frozen=True, slots=True)
class Arrivals:
    """Messages in order of arrival. The words of message i are ``words[offsets[i]:offsets[i + 1]]``, ascending."""

    places: NDArray[np.float64]  # [messages, 3]
    offsets: NDArray[np.int64]
    words: NDArray[np.int32]
    times: NDArray[np.int64]  # when each counts as published
    given_times: NDArray[np.int64]  # the published_at of each, or NOT_GIVEN
    ids: NDArray[np.int64]  # integers, or codes of strings
    # Of the ids; None where messages have no ids and are called by their numbers.
    codes: NDArray[np.int32] | None
    expired: NDArray[np.bool_]  # which reach nobody, and only end what was published under their ids

    def __len__(self) -> int:
        return len(self.given_times)

    @classmethod
    def of(
        cls, batch: MessageBatch, window: Window, now: int | None, messages: Messages, ids: MessageIds
    ) -> Arrivals:
        """Return the messages of a batch in the order in which they join *messages*; *now* is None without a clock.

        A message without a published_at is published now. Messages without ids are called by their numbers.
        """
        expired = np.zeros(len(batch), np.bool_)
        if now is not None:
            _refuse_early(batch, now)
            if batch.expires_at is not None:
                expired = batch.expires_at <= now
        if batch.ids is None and expired.any():
            batch = batch.take(np.flatnonzero(~expired))
            expired = expired[~expired]
        given_times = np.full(len(batch), NOT_GIVEN) if batch.published_at is None else batch.published_at
        times = np.where(given_times == NOT_GIVEN, _now(given_times, window, now, messages), given_times)
        number, codes = messages.end, ids.coded(batch)
        new = cls(
            places_of(batch.probes.boxes[:, :2], batch.space),
            batch.probes.keyword_offsets,
            batch.probes.keywords,
            times,
            given_times,
            np.arange(number, number + len(batch)) if codes is None else _ids(batch.ids, codes),
            codes,
            expired,
        )
        order = _order(times, given_times, batch.ids)
        if order is None:
            return new
        ordered = new.take(order)
        return ordered if codes is not None else replace(ordered, ids=new.ids)

    def take(self, rows: NDArray[np.int64]) -> Arrivals:
        """Return the messages at *rows*, in that order."""
        offsets, words = ragged_take(self.offsets, self.words, rows)
        return Arrivals(
            self.places[rows],
            offsets,
            words,
            self.times[rows],
            self.given_times[rows],
            self.ids[rows],
            None if self.codes is None else self.codes[rows],
            self.expired[rows],
        )


def check_batch(batch: MessageBatch, coding: Coding) -> None:
    """Raise unless the messages of a batch can be ranked."""
    if not isinstance(batch, MessageBatch):
        raise InputError(f"publish takes a MessageBatch, not {shown(batch)}")
    if batch.space != coding.space:
        raise ColumnError(f"the messages are in {batch.space!r}, the subscriptions in {coding.space!r}")
    if batch.vocabulary is not None and not batch.coding.fits(coding):
        raise ColumnError(
            "the words of the messages have the codes of another vocabulary; make the batch with like=top, learn=True"
        )
    boxes = batch.probes.boxes
    if len(boxes) != len(batch) or not np.array_equal(boxes[:, :2], boxes[:, 2:]):
        raise ColumnError("a message to be ranked must be at a point, not an area: an area has no distance")


def _refuse_early(batch: MessageBatch, now: int) -> None:
    """Raise if a message is to be published later than *now*.

    A window ends at its newest message, so one from the future would push out all that has been published until then.
    """
    if batch.published_at is not None and batch.published_at.max(initial=now) > now:
        row = int((batch.published_at > now).argmax())
        name = row if batch.ids is None else batch.ids[row].as_py()
        raise ColumnError(
            f"message {shown(name)} is published at {iso(int(batch.published_at[row]))}, "
            f"and the clock says {iso(now)}; publish it when its time has come, "
            "or give TopK no clock, and the messages tell the time"
        )


def _now(given_times: NDArray[np.int64], window: Window, now: int | None, messages: Messages) -> int:
    """Return the time of messages without a published_at: *now* or, without a clock, that of the newest message."""
    if now is not None:
        return now
    untimed = np.flatnonzero(given_times == NOT_GIVEN)
    if len(untimed) and isinstance(window, TimeWindow):
        raise ColumnError(
            f"message {untimed[0]} does not say when it was published, and a TimeWindow must know; "
            "give published_at, or give TopK a clock"
        )
    return max(messages.newest, int(given_times.max(initial=NOT_GIVEN)))


def _ids(ids: Any, codes: NDArray[np.int32]) -> NDArray[np.int64]:
    kept: NDArray[Any] = ids.to_numpy() if pa.types.is_integer(ids.type) else codes
    return kept.astype(np.int64, copy=False)


def _order(
    times: NDArray[np.int64], given_times: NDArray[np.int64], ids: pa.Array | None
) -> NDArray[np.int64] | None:
    """Return the order in which messages arrive, or None if that is the order of their rows.

    They arrive by time. Messages of one time arrive in this order: first those with a published_at, the one with the
    smaller id last, whatever order their rows are in; then the others, row by row. Of equal scores the later arrival
    ranks higher.
    """
    if (np.diff(times) > 0).all():
        return None
    rows = np.arange(len(times))
    given = given_times != NOT_GIVEN
    if ids is not None and given.any():
        rank = pc.rank(ids, tiebreaker="dense").to_numpy().astype(np.int64)
        rows = np.where(given, -1 - rank, rows)
    order: NDArray[np.int64] = np.lexsort((rows, times))
    return None if (np.diff(order) > 0).all() else order
