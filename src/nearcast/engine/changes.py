"""What a call that changes subscriptions tells them: in order, and nothing that the same call takes back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from nearcast.columns.deliveries import Deliveries
from nearcast.columns.ids import IdColumn
from nearcast.model import Id

__all__ = ["CAME", "WENT", "Changes", "settled"]

CAME, WENT = np.int8(0), np.int8(1)  # positions in nearcast.columns.deliveries.CHANGES


class Changes(NamedTuple):
    """Changes for the subscriptions of a call, as columns."""

    positions: NDArray[np.int64]  # whose: the position of the subscription in the call
    messages: IdColumn
    numbers: NDArray[np.int64]  # of the messages, in the order of publication
    changes: NDArray[np.int8]  # CAME or WENT

    def take(self, entries: NDArray[np.bool_] | NDArray[np.int64]) -> Changes:
        """Return some of the changes."""
        positions, messages, numbers, changes = self
        ids = IdColumn(messages.codes[entries], messages.words)
        return Changes(positions[entries], ids, numbers[entries], changes[entries])

    @classmethod
    def in_order(cls, parts: Sequence[Changes]) -> Changes:
        """Return all changes, subscription by subscription and in the order of publication."""
        every = parts[0]
        if len(parts) > 1:
            every = cls(
                np.concatenate([part.positions for part in parts]),
                IdColumn.joined([part.messages for part in parts]),
                np.concatenate([part.numbers for part in parts]),
                np.concatenate([part.changes for part in parts]),
            )
        return every.take(np.lexsort((every.numbers, every.positions)))


def settled(due: Deliveries, own: Deliveries, ids: IdColumn) -> Deliveries:
    """Return what has come due, and then what a call told its own subscribers, without what cancels out.

    *ids* are those whom the call changes. If a message that has come due was told to one of them, and the call takes it
    back, neither is told; the same holds for one that was replaced and then came into reach again. Who was asked to
    report has just done so, or left.
    """
    told: dict[tuple[Id, Id], tuple[int, str]] = {}
    theirs = _among(due, ids)
    for at, d in zip(theirs.tolist(), due.take(theirs), strict=True):
        if d.reason != "expire":  # another message may have the id since then
            told[d.subscription_id, d.message_id] = at, d.change
    pairs = []
    for at, d in enumerate(own if told else ()):
        earlier, change = told.get((d.subscription_id, d.message_id), (0, d.change))
        if change != d.change:
            pairs.append((earlier, at))
    before, after = np.array(pairs, np.int64).reshape(-1, 2).T
    parts = [
        due.take(np.delete(np.arange(len(due)), before)),
        own.take(np.delete(np.arange(len(own)), after)),
    ]
    reported = set(ids.to_pylist())
    asked = [key for key in due.to_report if key not in reported]
    if asked:
        nothing = IdColumn(ids.codes[:0], ids.words)
        parts.append(Deliveries(nothing, nothing, to_report=IdColumn(np.arange(len(asked)), asked)))
    return Deliveries.joined(parts)


def _among(deliveries: Deliveries, ids: IdColumn) -> NDArray[np.int64]:
    """Return the positions of the deliveries to the subscriptions with the given ids."""
    found = pc.is_in(deliveries.to_arrow()["subscription_id"], value_set=ids.plain())
    return np.flatnonzero(found.to_numpy(zero_copy_only=False))
