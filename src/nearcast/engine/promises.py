"""Promises to subscribers that nothing changes for them inside a circle, and what breaks a promise.

Whoever has a promise need not report its position while it stays in its *safe region*: it may be anywhere inside. A new
message that is in reach from everywhere in there, or from nowhere, does no harm. For any other message the position
decides: it lies in the *impact region*, which is the safe region widened by the reach. Then the subscriber is asked to
report, and the message waits until it has done so.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearcast import config
from nearcast.columns import NEVER, Matches, MessageBatch, SubscriptionTable
from nearcast.columns.circles import place_circles
from nearcast.columns.coding import Coding
from nearcast.columns.from_objects import ids_of
from nearcast.columns.growable import GrowableArray
from nearcast.columns.ids import IdColumn
from nearcast.columns.ragged import offsets_of
from nearcast.columns.regions import region_at, regions_of, relocated
from nearcast.engine.changes import CAME, Changes
from nearcast.engine.safe_regions import margins, safe_radii
from nearcast.engine.valid_messages import ValidMessages
from nearcast.engine.waiting import Momentary, Waiting
from nearcast.errors import ColumnError
from nearcast.geometry import Planar, touches
from nearcast.matching import Index, build_index
from nearcast.matching.distances import distances
from nearcast.matching.refine import batch_side, place_at
from nearcast.model import Id

__all__ = ["Promises"]

# A promise: the subscription's circle, the radius inside which nothing changes, whether its subscriber was asked to
# report, and the row of the subscription.
_PROMISE = np.dtype(
    [("circle", np.float64, 3), ("safe", np.float64), ("asked", np.bool_), ("whose", np.int32)]
)


class Promises:
    """Promises, an index of their impact regions, and the messages that wait for reports."""

    def __init__(self, coding: Coding) -> None:
        self.waiting = Waiting()
        self._coding = coding
        self._index: Index | None = None  # made for the first promise
        # By row of the index, which is also that of the promise.
        self._promises = GrowableArray(np.empty(0, _PROMISE), borrowed=False, spare=1.0)
        # By subscription row: the row of its promise, -1 for none.
        self._rows = GrowableArray(np.empty(0, np.int32), borrowed=False, spare=1.0)

    #: What finds the radii of safe regions; the benchmark also measures that of the paper.
    _radii = staticmethod(safe_radii)

    def __len__(self) -> int:
        """Return how many promises there are."""
        return 0 if self._index is None else len(self._index)

    # --- Safe regions ----------------------------------------------------------------------------------------------

    def make(
        self,
        rows: NDArray[np.int64],
        table: SubscriptionTable,
        circles: NDArray[np.float64],
        valid: ValidMessages,
        now: int,
        at_most: float | None,
    ) -> NDArray[np.float64]:
        """Promise safe regions to the subscriptions in *rows*, which are those of *table*; return the safe regions.

        Whoever has a promise keeps it, unless a larger one can be made by now. Whoever was asked to report gets the
        radius 0 until it has.
        """
        found, whose = np.unique(rows, return_index=True)
        if not np.array_equal(found, rows):
            table, circles = table.take(whose), circles[whose]
        own = self._of(found)
        before = np.zeros(len(found), _PROMISE)
        before[own >= 0] = self._promises.values[own[own >= 0]]
        asked = before["asked"]
        # It may be anywhere in the earlier circle, so this one must not be smaller.
        safe = np.maximum(self._radii(valid.store, table, circles, now, at_most), before["safe"])
        new = np.flatnonzero((safe > before["safe"]) & ~asked)
        self._remove(found[new])
        self._insert(found[new], table.take(new), circles[new], safe[new])
        regions = np.column_stack([circles[:, :2], np.where(asked, 0.0, safe)])
        return regions[np.searchsorted(found, rows)]

    def _of(self, rows: NDArray[np.int64]) -> NDArray[np.int32]:
        """Return the rows of the promises to subscriptions; -1 for none."""
        self._rows.fill(max(int(rows.max(initial=-1)) + 1 - len(self._rows.values), 0), -1)
        own: NDArray[np.int32] = self._rows.values[rows]
        return own

    def _insert(
        self,
        rows: NDArray[np.int64],
        table: SubscriptionTable,
        circles: NDArray[np.float64],
        safe: NDArray[np.float64],
    ) -> None:
        """Note promises for subscription rows that have none."""
        if not len(rows):
            return
        self._of(rows)  # so that there is room for all
        if self._index is None:
            self._index = build_index(config.DEFAULT_INDEX, SubscriptionTable.empty(self._coding))
        space = table.space
        impact = circles[:, 2] + safe + margins(circles, space)
        if not isinstance(space, Planar):
            impact += config.OUTLINE_DOUBT_M
        placed = place_circles(np.column_stack([circles[:, :2], impact]), space)
        own = self._index.insert_coded(relocated(table, placed))
        promises = np.empty(len(rows), _PROMISE)
        promises["circle"], promises["safe"], promises["asked"], promises["whose"] = (
            circles,
            safe,
            False,
            rows,
        )
        self._promises.reach(int(own.max()) + 1)[own] = promises
        self._rows.values[rows] = own

    def _remove(self, rows: NDArray[np.int64]) -> None:
        """Forget the promises of the given subscription rows, where there are any."""
        own = self._of(rows)
        given = np.flatnonzero(own >= 0)
        if self._index is not None and len(given):
            self._index.remove(own[given])
            self._rows.values[rows[given]] = -1

    def end(self, rows: NDArray[np.int64]) -> None:
        """End the promises of subscriptions: they have reported, or left."""
        self._remove(rows)
        if self.waiting:
            self.waiting.drop(rows.tolist())

    # --- New messages ----------------------------------------------------------------------------------------------

    def sift(self, found: Matches, batch: MessageBatch) -> tuple[Matches, Matches]:
        """Return the matches of a batch that are certain, and those that depend on where subscribers are by now.

        *found* are the matches of the last known positions. Whoever is in reach for certain is among them.
        """
        unsure = self._unsure(batch)
        if not len(unsure.rows):
            return found, unsure
        sure = ~np.isin(_keys(found), _keys(unsure))
        return Matches(offsets_of(sure)[found.offsets], found.rows[sure]), unsure

    def _unsure(self, batch: MessageBatch) -> Matches:
        """Return the subscription rows to which each message matters or not, depending on where they are by now."""
        assert self._index is not None
        found = self._index.match(batch)
        promises = self._promises.values[found.rows]
        circles = np.ascontiguousarray(promises["circle"])
        far, doubt = distances(circles, batch_side(batch), batch.probe_offsets[found.messages])
        rim = promises["safe"] + doubt + margins(circles, batch.space)
        unsure = np.abs(far - circles[:, 2]) <= rim
        return Matches(offsets_of(unsure)[found.offsets], promises["whose"][unsure])

    def ask(
        self,
        unsure: Matches,
        batch: MessageBatch,
        ids: list[Id],
        numbers: NDArray[np.int64],
        valid: ValidMessages,
        now: int,
    ) -> NDArray[np.int64]:
        """Let messages wait for those who are unsure; return the rows of those who were not asked to report before.

        *numbers* are those of the messages in the order of publication.
        """
        side, ends = batch_side(batch), batch.expires_at
        for at in np.flatnonzero(unsure.counts).tolist():
            momentary = None
            if ends is None or ends[at] == NEVER:
                place: Any = place_at(side, int(batch.probe_offsets[at]))
                momentary = Momentary(int(numbers[at]), place)
            self.waiting.put(unsure[at].tolist(), ids[at], momentary)
        some = self.waiting.some_kept(config.WAITING_LOOKS * int(np.count_nonzero(unsure.counts)))
        gone = valid.rows(ids_of(some), now) < 0
        self.waiting.supersede([key for key, expired in zip(some, gone.tolist(), strict=True) if expired])
        rows = np.unique(unsure.rows).astype(np.int64)
        own = self._rows.values[rows]
        new: NDArray[np.int64] = rows[~self._promises.values["asked"][own]]
        self._promises.values["asked"][own] = True
        return new

    # --- Reports ---------------------------------------------------------------------------------------------------

    def decided(
        self, rows: NDArray[np.int64], table: SubscriptionTable, valid: ValidMessages, now: int
    ) -> list[Changes]:
        """Return what waited for the subscriptions in *rows* and is in reach, now that they are those of *table*.

        The words of a momentary message are not looked at again.
        """
        at = np.array([i for i, row in enumerate(rows.tolist()) if self.waiting.of(row)], np.int64)
        if not len(at):
            return []
        table, parts = table.take(at), []
        if any(None in self.waiting.of(row).values() for row in rows[at].tolist()):
            kept = valid.changes(valid.store.match(table, now), CAME)
            kept = kept.take(self.waiting.waits(rows[at][kept.positions], kept.messages))
            parts.append(kept._replace(positions=at[kept.positions]))
        momentary = list(self._momentary(rows[at], table))
        if momentary:
            own, ids, numbers = zip(*momentary, strict=True)
            messages = IdColumn(np.arange(len(ids)), list(ids))
            changes = np.full(len(ids), CAME)
            parts.append(Changes(at[list(own)], messages, np.array(numbers, np.int64), changes))
        return parts

    def _momentary(self, rows: NDArray[np.int64], table: SubscriptionTable) -> Iterator[tuple[int, Id, int]]:
        """Yield the momentary messages that waited for subscriptions and are in reach: position, id and number."""
        placed = regions_of(table)
        for at, row in enumerate(rows.tolist()):
            waited = [(key, one) for key, one in self.waiting.of(row).items() if one is not None]
            if waited:
                region = region_at(placed, at, table.space)
                yield from ((at, key, one.number) for key, one in waited if touches(region, one.place))

    # --- Other codes, and at rest ----------------------------------------------------------------------------------

    def follow(self, coding: Coding) -> None:
        """Go on in a coding in which all words that are in use have the same codes."""
        self._coding = coding
        if self._index is not None:
            self._index.store.coding = coding

    def recoded(self, rows: NDArray[np.int64], index: Index) -> Promises:
        """Return the same promises where subscription ``rows[i]`` is row i of *index*, in its coding."""
        promises = Promises(index.coding)
        if not self:
            return promises
        own = self._of(rows)
        given = np.flatnonzero(own >= 0)
        promises._take(given, self._promises.values[own[given]], index)
        new = dict(zip(rows[given].tolist(), given.tolist(), strict=True))
        for row, message, momentary in self.waiting:
            promises.waiting.put([new[row]], message, momentary)
        return promises

    def array(self) -> NDArray[np.float64]:
        """Return what :meth:`restored` takes: row, x, y, radius, safe radius, and whether asked, for each promise."""
        rows = np.flatnonzero(self._rows.values >= 0)
        own = self._promises.values[self._rows.values[rows]]
        return np.column_stack([rows, own["circle"], own["safe"], own["asked"]]).astype(np.float64)

    @classmethod
    def restored(cls, array: NDArray[np.float64], waiting: list[Any], index: Index) -> Promises:
        """Return the promises that the array came from."""
        promises = cls(index.coding)
        promises.waiting = Waiting.restored(waiting, index.coding.space)
        rows = array[:, 0].astype(np.int64)
        if len(rows):
            if rows.min() < 0 or rows.max() >= index.store.size or not index.store.present[rows].all():
                raise ColumnError(f"a promise to subscription row {rows.max()}, which is not there")
            given = np.zeros(len(rows), _PROMISE)
            given["circle"], given["safe"], given["asked"] = array[:, 1:4], array[:, 4], array[:, 5] > 0
            promises._take(rows, given, index)
        return promises

    def _take(self, rows: NDArray[np.int64], given: NDArray[Any], index: Index) -> None:
        """Note promises that were made elsewhere."""
        circles = np.ascontiguousarray(given["circle"])
        self._insert(rows, index.subscriptions(rows), circles, given["safe"])
        self._promises.values["asked"][self._of(rows)] = given["asked"]


def _keys(found: Matches) -> NDArray[np.int64]:
    return (found.messages << 32) | found.rows
