"""Subscriptions and messages in one tree, and the store that answers what the tree cannot (Algorithm 5).

The algorithm is that of Wang, Zhang, Zhang, Lin and Wang, "AP-Tree: Efficiently Support Location-Aware
Publish/Subscribe" (2015).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearcast import config
from nearcast.columns import Matches, MessageBatch, SubscriptionTable
from nearcast.columns.clause_rows import Placement
from nearcast.columns.coding import Coding
from nearcast.columns.parts import Arrays, nested, part_of
from nearcast.columns.ragged import ragged_take
from nearcast.columns.regions import regions_of, relocated, single_boxes
from nearcast.columns.rows.clauses import ClauseStore
from nearcast.errors import UnknownError, whole_number
from nearcast.matching.index import Index
from nearcast.matching.messages import build_store
from nearcast.matching.messages.moves import apart, decide, interleaved, moved_clauses
from nearcast.matching.messages.store import MessageStore, checked_time
from nearcast.matching.moving.ap_plus_tree.moving import search
from nearcast.matching.moving.ap_plus_tree.tree import MovingTree
from nearcast.matching.moving.pair import Changes, Pair, kept_of
from nearcast.matching.refine import distinct_owners, resolve_stored
from nearcast.matching.structure import Moves

__all__ = ["APPlusTree"]

_NOWHERE = (np.inf, np.inf, -np.inf, -np.inf)


class APPlusTree(Pair):
    """One tree for moving subscriptions and valid messages.

    All messages are in the store, too. A subscription that meets a list of the tree that is younger than the oldest
    valid message asks the store instead, as one with a region of two boxes does. Lists become complete by themselves,
    as messages expire.

    Parameters
    ----------
    copies
        The most lists that a message is attached to.
    parameters
        Those of the AP-Tree.
    """

    def __init__(
        self,
        subscriptions: SubscriptionTable,
        messages: MessageBatch,
        *,
        copies: int = config.AP_PLUS_COPIES,
        **parameters: Any,
    ) -> None:
        copies = whole_number("copies", copies, 1, 1_000_000)
        unknown = sorted(set(parameters) - set(MovingTree.parameters))
        if unknown:
            raise UnknownError(
                f"the moving index 'ap-plus-tree' has no parameter {unknown[0]!r}; "
                f"it has copies, {', '.join(MovingTree.parameters)}"
            )
        self._parameters = parameters | {"copies": copies}
        self._begin(ClauseStore(subscriptions), build_store("cell-lists", messages))

    def _begin(self, clauses: ClauseStore, store: MessageStore) -> None:
        """Build the tree, and let the messages of the store visit it."""
        self._tree = MovingTree(clauses, store.rows, **self._parameters)
        present = np.flatnonzero(store.rows.present)
        messages = store.rows.batch(present)
        super().__init__(Index.built(self._tree, messages.probes if messages.size else None), store)
        self._questions = self._to_store = 0
        if messages.size:
            self._publish(messages, store.rows.parts(present).astype(np.int32))

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the flat arrays of both sides; the tree is built anew from them."""
        return nested(rows=self.index.store.arrays(), store=self.store.arrays())

    def restore(self, coding: Coding, arrays: Arrays) -> None:
        """Build the tree over what was saved."""
        store = MessageStore.restored(type(self.store.structure), coding, part_of(arrays, "store"))
        self._begin(ClauseStore.restored(coding, part_of(arrays, "rows")), store)

    # --- Messages --------------------------------------------------------------------------------------------------

    def publish(self, batch: MessageBatch, now: int | None) -> tuple[Matches, NDArray[np.int32]]:
        """Match messages (Algorithm 5, line 3); as they go down the tree, those that are kept are attached (line 6)."""
        self.index.check_question(batch)
        rows, kept = np.full(batch.size, -1, np.int32), kept_of(batch, now)
        if not len(kept):
            return self.index.match(batch), rows
        whole = len(kept) == batch.size
        rows[kept] = self.store.insert(batch if whole else batch.take(kept))
        probe_rows = np.full(len(batch.owners), -1, np.int32)
        probe_rows[(rows >= 0)[batch.owners]] = self.store.rows.parts(rows[kept])
        return self._publish(batch, probe_rows), rows

    def _publish(self, batch: MessageBatch, probe_rows: NDArray[np.int32]) -> Matches:
        return self.index.match_by(self._tree.attaching(batch.probes, probe_rows), batch)

    # --- Subscriptions ---------------------------------------------------------------------------------------------

    def insert(self, table: SubscriptionTable, now: int | None) -> tuple[NDArray[np.int32], Matches]:
        """Add subscriptions (Algorithm 7); return their rows, and the message rows that each of them matches."""
        if now is not None:
            checked_time(now)
        rows = self.index.insert_coded(self.index.store.check_insert(table))
        return rows, self._reached(rows.astype(np.int64), now)

    def update(self, picks: NDArray[np.int64], table: SubscriptionTable, now: int | None) -> Changes:
        """Replace the subscriptions in the given rows, which are present."""
        coded = self.index.store.coded(table)
        old = self._reached(picks, now)
        self.index.replace(picks, coded)
        return Changes(*apart(old, self._reached(picks, now)))

    def move(self, picks: NDArray[np.int64], regions: Any, now: int | None) -> Changes:
        """Give the subscriptions in the given rows, which are present, other regions (Algorithm 6)."""
        placed = self.index.placement(regions, len(picks))
        before = self.index.subscriptions(picks)
        after = relocated(before, placed)
        simple = single_boxes(before) & single_boxes(after)
        one, other, rows = before, after, picks
        if not simple.all():
            chosen = np.flatnonzero(simple)
            one, rows = before.take(chosen), picks[chosen]
            # Not ``after.take``, which may have fewer clauses: equal ones are merged where there are several boxes.
            at = placed.offsets[chosen]
            other = relocated(
                one, Placement(np.arange(len(at) + 1), placed.boxes[at], placed.shapes.take(at))
            )
        old, new = regions_of(one), regions_of(other)
        questions, complete = self._tree.ask(self.index.store.parts(rows), moved_clauses(other, old, new))
        with self.store.expiring(now) as look:
            found = look(self._search, questions, len(other.owners), 1)
            came, went = decide(self.store.rows, old, new, other.owners, found)
        changes = _distinct(came), _distinct(went)
        fine = _all_of(other, complete)
        simple[simple] = fine
        if self._count(simple):
            rest = np.flatnonzero(~simple)
            others = self.store.changes(before.take(rest), after.take(rest), now)
            changes = interleaved(simple, (_some(changes[0], fine), _some(changes[1], fine)), others)
        self.index.replace(picks, after)
        return Changes(*changes)

    def _reached(self, picks: NDArray[np.int64], now: int | None) -> Matches:
        """Return the message rows that the subscriptions in the given rows match (Algorithm 7, lines 3 to 5)."""
        table = self.index.subscriptions(picks)
        nowhere = np.tile(_NOWHERE, (len(table.owners), 1))
        moves = Moves(table.clauses, nowhere, table.clauses.boxes, nowhere)
        questions, complete = self._tree.ask(self.index.store.parts(picks), moves, comes=True)
        with self.store.expiring(now) as look:
            found = look(self._search, questions, len(table.owners), 1)
            found = _distinct(resolve_stored(self.store.rows, table, found))
        fine = _all_of(table, complete)
        if self._count(fine):
            others = self.store.match(table.take(np.flatnonzero(~fine)), now)
            found = interleaved(fine, (_some(found, fine),) * 2, (others, others))[0]
        return found

    def _search(self, _: Any, *arguments: Any) -> int:
        """Search the lists of the tree, in the place of the arrays of the store."""
        done: int = search(self._tree.message_view(), *arguments)
        return done

    def _count(self, answered: NDArray[np.bool_]) -> int:
        """Count questions, and those that the tree has not answered; return how many these are."""
        rest = int(np.count_nonzero(~answered))
        self._questions += len(answered)
        self._to_store += rest
        return rest

    def stats(self) -> dict[str, Any]:
        """Return figures of the tree and the store, and how many questions the store had to answer."""
        return super().stats() | {"questions": self._questions, "questions_to_store": self._to_store}


def _all_of(table: SubscriptionTable, complete: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Tell for which subscriptions the lists of all their clauses are complete."""
    fine = np.ones(table.size, np.bool_)
    fine[table.owners[~complete]] = False
    return fine


def _some(found: Matches, chosen: NDArray[np.bool_]) -> Matches:
    """Return some of the groups."""
    return Matches(*ragged_take(found.offsets, found.rows, np.flatnonzero(chosen)))


def _distinct(found: Matches) -> Matches:
    """Return each message of a group once: an area is in several lists, and a row may be in one twice."""
    return distinct_owners(found.offsets, found.rows)
