"""The store of valid messages: the mirror image of the index, around one structure.

Messages are kept while they are valid, and matched against subscriptions that come later.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray

from nearcast import config
from nearcast.columns import NEVER, Matches, MessageBatch, SubscriptionTable
from nearcast.columns.coding import Coding
from nearcast.columns.parts import Arrays
from nearcast.columns.regions import regions_of, single_boxes
from nearcast.columns.rows.messages import MessageRows
from nearcast.errors import ColumnError, shown, whole_number
from nearcast.geometry import Planar
from nearcast.matching.holder import Holder
from nearcast.matching.messages.moves import apart, decide, interleaved, moved_clauses, strips_of
from nearcast.matching.refine import resolve_stored
from nearcast.matching.structure import Answers, Moment, Structure

__all__ = ["MessageStore", "checked_time"]

_ALWAYS = -NEVER - 1  # before this time nothing expires

# (search, questions, how many, threads) → the probe rows found
Look: TypeAlias = Callable[[Callable[..., int], Any, int, int], Matches]


class MessageStore(Holder[MessageRows]):
    """An exact, changeable store of messages that subscriptions query; :func:`~nearcast.build_store` makes one.

    The answers equal those of a scan on any input. :meth:`insert` returns message rows. A row stays with its message,
    and may be given to another after :meth:`remove`, :meth:`expire` or :meth:`sweep`. A message is valid before the
    instant ``expires_at``. A call succeeds as a whole, or raises an error and changes nothing.

    Matching without a time changes nothing, so several threads may do it at once. All other calls need the store to
    themselves. That includes matching at a time, which removes the expired messages that it finds: lines 13 and 14 of
    Algorithm 1 in Dian, Qian, Cao, Xue, Zhu, Yu and Li, "MO-Tree: An Efficient Forwarding Engine for
    Spatiotemporal-aware Pub/Sub Systems" (2021).
    """

    kind: ClassVar[str] = "messages"
    _what: ClassVar[str] = "message"
    _rows_class: ClassVar[type[MessageRows]] = MessageRows
    _expired = 0
    _swept = 0  # where the next sweep begins

    @property
    def rows(self) -> MessageRows:
        """The probe rows, and the message rows that they belong to."""
        return self._rows

    # --- Questions -------------------------------------------------------------------------------------------------

    def match(self, table: SubscriptionTable, now: int | None = None, threads: int = 1) -> Matches:
        """Return the message rows that each subscription of *table* matches, without duplicates, in no promised order.

        With *now* (microseconds since 1970 UTC), only messages that are valid then are returned, and expired ones that
        the search finds are removed. ``threads`` is as in :meth:`Index.match`.
        """
        self._check_question(table)
        with self.expiring(now) as look:
            found = look(self._view.search, table.clauses, len(table.owners), threads)
            return resolve_stored(self.rows, table, found)

    def changes(
        self, before: SubscriptionTable, after: SubscriptionTable, now: int | None = None, threads: int = 1
    ) -> tuple[Matches, Matches]:
        """Return the message rows that come into reach of each subscription when it moves, and those that go out of it.

        The tables have the same subscriptions before and after the move: only their regions differ. *now* is as in
        :meth:`match`. Only what lies in one of the regions and not in the other is looked for.
        """
        self._check_question(before)
        self._check_question(after)
        simple = single_boxes(before) & single_boxes(after)
        with self.expiring(now) as look:
            if simple.all():
                return self._changes_of_boxes(before, after, look, threads)
            # A region across the antimeridian has two boxes: it is looked up as a whole.
            rows, others = np.flatnonzero(simple), np.flatnonzero(~simple)
            found = [
                resolve_stored(
                    self.rows, each, look(self._view.search, each.clauses, len(each.owners), threads)
                )
                for each in (before.take(others), after.take(others))
            ]
            answers = self._changes_of_boxes(before.take(rows), after.take(rows), look, threads)
            return interleaved(simple, answers, apart(*found))

    def _changes_of_boxes(
        self, before: SubscriptionTable, after: SubscriptionTable, look: Look, threads: int
    ) -> tuple[Matches, Matches]:
        """Return :meth:`changes` for regions that have one box each, before and after."""
        old, new = regions_of(before), regions_of(after)
        moves, whose = moved_clauses(after, old, new), after.owners
        if self._view.search_moves is not None:
            found = look(self._view.search_moves, moves, len(whose), threads)
        else:
            strips, whose = strips_of(moves, after.owners)
            found = look(self._view.search, strips, len(whose), threads)
        return decide(self.rows, old, new, whose, found)

    def _check_question(self, table: SubscriptionTable) -> None:
        if not isinstance(table, SubscriptionTable):
            raise ColumnError(
                f"a store matches a SubscriptionTable, not {shown(table)}; "
                "make one with SubscriptionTable.from_subscriptions, from_arrow or from_arrays"
            )
        if not table.coding.fits(self.rows.coding):
            raise ColumnError(
                "the subscriptions are coded by another vocabulary than this store; "
                "make the table with like=store, or, for bare codes, both sides from arrays"
            )
        if (table.shapes or self.rows.shapes) and (
            isinstance(table.space, Planar) != isinstance(self.rows.space, Planar)
        ):
            raise ColumnError(
                f"the subscriptions live in {table.space!r}, the messages in {self.rows.space!r}"
            )

    @contextmanager
    def expiring(self, now: int | None) -> Iterator[Look]:
        """Give a function that runs searches at *now*; the expired messages that they meet are removed at the end."""
        instant = _ALWAYS if now is None else checked_time(now)
        arrays = self._view.arrays
        met: list[NDArray[np.int32]] = []  # expired probe rows that the searches have noted

        def look(search: Callable[..., int], questions: Any, count: int, threads: int) -> Matches:
            def step(start: int, stop: int, answers: Answers, filled: int) -> int:
                expired = np.empty(config.STORE_EXPIRED_NOTED + 1, np.int32)
                expired[0] = 0
                done = search(arrays, questions, Moment(instant, expired), start, stop, answers, filled)
                if expired[0]:
                    met.append(expired[1 : expired[0] + 1])
                return done

            return self._searches.run(step, count, threads)

        yield look
        if met:
            self.remove_expired(np.unique(self.rows.owners[np.concatenate(met)]))

    def stats(self) -> dict[str, Any]:
        """Return plain figures: what is stored, how, and in how many bytes."""
        rows = self.rows
        return {
            "store": self.name,
            "messages": len(rows),
            "probes": rows.living,
            "free_probes": rows.rows - rows.living,
            "expired": self._expired,
        } | self._figures()

    def check(self) -> list[str]:
        """Look for damage in the structure; return what was found, in words, or an empty list."""
        return self.rows.check() + self.structure.check()

    # --- Changes ---------------------------------------------------------------------------------------------------

    def insert(self, batch: MessageBatch) -> NDArray[np.int32]:
        """Add the messages of *batch*; return their rows. One without ``expires_at`` stays until it is removed."""
        self.rows.check_insert(batch)
        rows, probe_rows = self.rows.insert(batch)
        self._add(probe_rows)
        self._settle(len(probe_rows))
        return rows

    def remove(self, rows: Any) -> None:
        """Remove messages by row; a row that holds no message, or is given twice, is an error."""
        self._remove(self.picks(rows))

    def picks(self, rows: Any) -> NDArray[np.int64]:
        """Return message rows as an array; one that holds no message, or is given twice, is an error."""
        return self._picks(rows, "holds no message in this store")

    def expire(self, now: int) -> NDArray[np.int32]:
        """Remove every message that has expired by *now*; return their rows, ascending."""
        expired = self.rows.present & (self.rows.expires_at <= checked_time(now))
        return self.remove_expired(np.flatnonzero(expired))

    def sweep(self, now: int, limit: int) -> NDArray[np.int32]:
        """Look at the next *limit* message rows and remove those expired by *now*; return the removed rows, ascending.

        Each sweep continues where the last one stopped, and starts over at the end. So expired messages are removed
        even if nobody subscribes, and the time of a call does not depend on how many messages are stored.
        """
        instant = checked_time(now)
        size = self.rows.size
        looked = min(whole_number("limit", limit, 0), size)
        if not looked:
            return np.empty(0, np.int32)
        seen = (self._swept + np.arange(looked)) % size
        self._swept = (self._swept + looked) % size
        expired = self.rows.present[seen] & (self.rows.expires_at[seen] <= instant)
        return self.remove_expired(np.sort(seen[expired]))

    def remove_expired(self, rows: NDArray[Any]) -> NDArray[np.int32]:
        """Remove messages that are present and have expired; return their rows."""
        self._expired += len(rows)
        self._remove(rows)
        return rows.astype(np.int32)

    def _remove(self, rows: NDArray[Any]) -> None:
        """Remove present messages."""
        if not len(rows):
            return
        probe_rows = self.rows.retire(rows)
        self._drop(probe_rows)
        self._settle(len(probe_rows))
        self._release(probe_rows)
        self.rows.forget(rows)

    # --- At rest ---------------------------------------------------------------------------------------------------

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the flat arrays that :meth:`restored` takes."""
        return super().arrays() | {"figures": np.array([self._expired, self._swept])}

    @classmethod
    def restored(
        cls, structure: type[Structure[MessageRows, Any]], coding: Coding, arrays: Arrays
    ) -> MessageStore:
        """Return the store that its :meth:`arrays` came from, on the same arrays."""
        store = super().restored(structure, coding, arrays)
        store._expired, store._swept = arrays["figures"].tolist()
        return store


def checked_time(now: Any) -> int:
    """Return a time in microseconds, or raise."""
    if isinstance(now, bool) or not isinstance(now, int | np.integer) or not -NEVER <= now < NEVER:
        raise ColumnError(
            f"now must be a time in microseconds since 1970 UTC, as an integer, not {shown(now)}"
        )
    return int(now)
