"""The relation graph: which subscriptions need not be forwarded, since another one already asks for as much.

The upper layer of Shen, Tirthapura and Aluru, "Indexing for Subscription Covering in Publish-Subscribe Systems" (2005),
section I.A; :mod:`.g_k` has its algorithm, and :mod:`.index` the lower layer.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from nearcast import config
from nearcast.columns import Matches, SubscriptionTable
from nearcast.columns.coding import Coding
from nearcast.columns.parts import nested, part_of
from nearcast.columns.ragged import integers, offsets_of
from nearcast.columns.rows.clauses import ClauseStore
from nearcast.covering.clause_forest import ClauseForest
from nearcast.covering.clause_scan import ClauseScan
from nearcast.covering.edges import EdgeArrays
from nearcast.covering.g_k import (
    COMMAND,
    DONE,
    EXPOSED,
    NEED,
    PENDING,
    SURE,
    WAITING,
    WITHDRAWN,
    Outcome,
    new_state,
)
from nearcast.covering.growing import GrowingArrays
from nearcast.covering.kd_tree import KDTree
from nearcast.covering.questions import question_store
from nearcast.covering.regions import subscription_covers
from nearcast.covering.scan import Scan
from nearcast.covering.subscriptions import YOUNGEST, Subscriptions
from nearcast.covering.z_curve import ZCurve
from nearcast.errors import InputError, UnknownError, shown, whole_number
from nearcast.storage.directory import read, restoring, write

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from nearcast.covering.index import CoveringIndex

__all__ = ["INDEXES", "Arrivals", "Departures", "LogOutcome", "RelationGraph"]

INDEXES: dict[str, type[CoveringIndex]] = {
    one.name: one for one in (ClauseForest, KDTree, ZCurve, Scan, ClauseScan)
}
_NONE = np.empty(0, np.int32)
_KIND = "relation-graph"  # of a saved directory


class Arrivals(NamedTuple):
    """What became of new subscriptions."""

    rows: NDArray[np.int32]  # their rows, until they leave; then the rows may be given to others
    forward: NDArray[np.bool_]  # of each: nothing covers it, so it must be forwarded
    # Older rows that a new one took over, so their unsubscription must be forwarded.
    withdrawn: NDArray[np.int32]


class Departures(NamedTuple):
    """What follows from unsubscriptions."""

    #: Rows that nothing covers any more. They must be forwarded, before any unsubscription is.
    exposed: NDArray[np.int32]
    travels: NDArray[np.int32]  # the rows that left whose unsubscription must be forwarded


class LogOutcome(NamedTuple):
    """What a log of commands led to."""

    rows: NDArray[np.int32]  # of the subscriptions of the table; -1 for one that never arrived
    forward: NDArray[np.bool_]  # of each command: the subscription, or the unsubscription, must be forwarded
    exposed: NDArray[np.int32]  # rows that had to be forwarded later,
    exposed_by: NDArray[np.int64]  # and the command that exposed each
    withdrawn: NDArray[np.int32]  # rows that a new subscription took over,
    withdrawn_by: NDArray[np.int64]  # and the command of each


class RelationGraph:
    """The relation graph G_k of subscriptions, kept up to date while they come and go.

    A subscription that another one covers is not forwarded: every message that it wants arrives already. When the
    other one leaves, the graph says which subscriptions are exposed. Of subscriptions that cover each other only the
    older one covers.

    >>> subs = SubscriptionTable.from_arrays([[0, 0, 9, 9], [1, 1, 2, 2]], [0, 1, 3], [7, 7, 8])
    >>> graph = RelationGraph()
    >>> graph.subscribe(subs).forward.tolist()
    [True, False]
    >>> exposed, travels = graph.unsubscribe([0])
    >>> exposed.tolist(), travels.tolist()
    ([1], [0])

    Parameters
    ----------
    index
        How covers are found: ``"forest"`` for subscriptions of every kind; ``"kd-tree"``, ``"z-curve"`` or ``"scan"``
        for rectangles (boxes and tests on attributes, without words); ``"clause-scan"`` to compare with.
    k
        How many covers of each subscription are remembered. One is nearly always best (Theorem 1 of the paper).
    take_over
        Whether a new subscription that must be forwarded takes over the ones that it covers and that were forwarded
        before, so that their unsubscription is forwarded. Off by default: it looks at everything that was forwarded,
        and it sends messages now to save some later. Where only the outline of a polygon can tell, nothing is taken
        over.
    """

    def __init__(self, index: str = "forest", k: int = 1, *, take_over: bool = False) -> None:
        self.k, self.take_over = whole_number("k", k, 1), take_over
        self._index = _chosen(index)
        self._store: ClauseStore | None = None
        self._edges = EdgeArrays(self.k)
        self._ages = GrowingArrays(ages=np.empty(0, np.int64))  # by row: the number of its arrival
        self._arrivals = 0
        self._queries = np.zeros(2, np.int64)
        self._counters = np.zeros((2, 2), np.int64)
        self._layouts = 0

    def __len__(self) -> int:
        """Return how many subscriptions there are."""
        return 0 if self._store is None else len(self._store)

    def __repr__(self) -> str:
        some = f"{len(self):,} subscription{'s' * (len(self) != 1)}"
        return f"<RelationGraph of {some}, {len(self.forwarded):,} forwarded>"

    @property
    def forwarded(self) -> NDArray[np.int32]:
        """The rows that were forwarded, since the graph knows nothing that covers them."""
        return np.flatnonzero(self._edges.view.degrees == 0).astype(np.int32)

    def covers_of(self, row: int) -> NDArray[np.int32]:
        """Return the rows that the graph knows to cover a row."""
        self._check_rows(np.array([row], np.int64))
        known = self._edges.view.covers[row * self.k : (row + 1) * self.k]
        return known[known >= 0].copy()

    # --- Commands --------------------------------------------------------------------------------------------------

    def subscribe(self, subs: SubscriptionTable) -> Arrivals:
        """Add subscriptions, in their order; say which of them must be forwarded."""
        rows = self._added(subs)
        done = self._commanded(rows.astype(np.int64))
        if not len(done.withdrawn):
            return Arrivals(rows, done.forward, done.withdrawn)
        # Subscriptions that this very call added and took over need not be forwarded at all.
        fleeting = np.isin(rows, done.withdrawn)
        return Arrivals(rows, done.forward & ~fleeting, done.withdrawn[~np.isin(done.withdrawn, rows)])

    def unsubscribe(self, rows: Any) -> Departures:
        """Remove subscriptions; say which others must be forwarded now, and which unsubscriptions must be."""
        gone = np.unique(integers(rows, np.int64, "subscription rows"))
        self._check_rows(gone)
        done = self._commanded(~gone)
        travels = gone[done.forward].astype(np.int32)
        if len(gone) == 1:
            return Departures(done.exposed, travels)
        # Subscriptions that are exposed and leave in the same call need not be forwarded at all.
        fleeting = np.isin(travels, done.exposed)
        return Departures(done.exposed[~np.isin(done.exposed, gone)], travels[~fleeting])

    def replay(self, subs: SubscriptionTable, commands: Any) -> LogOutcome:
        """Follow a log: *i* >= 0 is the arrival of row i of *subs*, ``~i`` its departure.

        No two subscriptions of the table get the same row, even if one leaves before the other arrives.

        >>> subs = SubscriptionTable.from_arrays([[0, 0, 9, 9], [1, 1, 2, 2]], [0, 0, 0], [])
        >>> RelationGraph("kd-tree").replay(subs, [0, 1, ~0]).exposed.tolist()
        [1]
        """
        _check_table(subs)
        log = integers(commands, np.int64, "commands")
        size, arrivals = len(subs), log[log >= 0]
        _check_log(log, size)
        if not np.array_equal(arrivals, np.arange(size)):
            subs = subs.take(arrivals)
        rows = np.full(size, -1, np.int32)
        rows[arrivals] = self._added(subs)
        named = np.where(log >= 0, rows[log], ~rows[~log]).astype(np.int64)
        return self._commanded(named)._replace(rows=rows)

    def covering(self, subs: SubscriptionTable, k: int | None = None) -> Matches:
        """Return up to *k* rows that cover each of some subscriptions, cov_k(S, s).

        This is a question: nothing is subscribed, no row is used, and no word is learned.
        """
        k = self.k if k is None else whole_number("k", k, 1)
        _check_table(subs)
        self._index.check_question(subs)
        found, counts = np.full((len(subs), k), -1, np.int32), np.zeros(len(subs), np.int64)
        if len(self):
            self._search(question_store(subs, self._stored()), k, found, counts)
        return Matches(offsets_of(counts), found[np.arange(k) < counts[:, None]])

    def _search(
        self, store: ClauseStore, k: int, found: NDArray[np.int32], counts: NDArray[np.int64]
    ) -> None:
        """Write the covers of each question in a store to *found*, and their number to *counts*."""
        ages = np.full(store.size, YOUNGEST)
        asked = Subscriptions(self._index.content_of_question(store), store.owners, *store.chains, ages)
        held, pending = self._held(), self._pending()
        counters, row = np.zeros(2, np.int64), 0
        while True:
            row = self._index.kernels.search(
                self._index.arrays,
                held,
                asked,
                k,
                row,
                found,
                counts,
                pending,
                self._index.scratch(),
                counters,
            )
            if row == len(counts):
                return
            counts[row] = self._decided(store, ages, row, found[row], int(counts[row]), pending)
            row += 1

    # --- Figures ---------------------------------------------------------------------------------------------------

    def use_index(self, index: str) -> None:
        """Find covers by another index from now on, named as in the constructor; for measurements."""
        made = _chosen(index)
        if self._store is not None:
            made.check(self._store.table.take(np.flatnonzero(self._store.present)))
        self._index = made
        if self._store is not None:
            self._lay_out()

    def stats(self) -> dict[str, Any]:
        """Return figures since the beginning: q_s, q_u, nodes visited and points compared, as in the paper's tables."""
        (nodes_s, points_s), (nodes_u, points_u) = self._counters.tolist()
        forwarded = len(self.forwarded)
        store = self._store if self._store is not None and self._store.size else None
        return {
            "subscriptions": len(self),
            "forwarded": forwarded,
            "covered": len(self) - forwarded,
            "queries_subscribe": int(self._queries[0]),
            "queries_unsubscribe": int(self._queries[1]),
            "nodes_subscribe": nodes_s,
            "nodes_unsubscribe": nodes_u,
            "comparisons_subscribe": points_s,
            "comparisons_unsubscribe": points_u,
            "layouts": self._layouts,
            "memory": {
                "subscriptions": 0 if store is None else store.nbytes,
                "index": 0 if store is None else self._index.nbytes,
                "graph": sum(array.nbytes for array in self._edges.view) + self._ages["ages"].nbytes,
            },
            **({} if store is None else self._index.stats()),
        }

    def check(self) -> list[str]:
        """Look for damage, and return what was found, in words; an empty list if all is well.

        Every edge must be true, and from every subscription a path of edges must lead up to one that was forwarded.
        """
        if self._store is None:
            return []
        present = np.flatnonzero(self._store.present).tolist()
        degrees, forwarded = self._edges.view.degrees, set(self.forwarded.tolist())
        found = [f"row {row} is not in the graph" for row in present if degrees[row] < 0]
        found += [f"row {row} is gone, and forwarded" for row in sorted(forwarded - set(present))]
        above: dict[int, list[int]] = {row: self.covers_of(row).tolist() for row in present}
        for row, known in above.items():
            if len(known) != max(0, degrees[row]):
                found.append(f"row {row} has {len(known)} edges, not {degrees[row]}")
            for other in known:
                if not self._store.present[other]:
                    found.append(f"row {other} is gone, and covers row {row}")
                elif not subscription_covers(self._store, other, self._store, row):
                    found.append(f"row {other} does not cover row {row}")
        found += self._store.check()
        safe = set(forwarded)
        for row in present:
            path: dict[int, None] = {}
            while row not in safe and row not in path and above.get(row):
                path[row] = None
                row = above[row][0]
            if row not in safe:
                found.append(f"row {row} is neither forwarded nor covered by a row that is")
            safe.update(path)
        return found

    # --- At rest ---------------------------------------------------------------------------------------------------

    def save(self, directory: str | Path) -> Path | str:
        """Write the graph to a new directory, which appears whole or not at all; return its path or URI."""
        store = self._store if self._store is not None and self._store.size else None
        document = {
            "index": self._index.name,
            "k": self.k,
            "take_over": self.take_over,
            "layouts": self._layouts,
            "arrivals": self._arrivals,
            "coding": None if store is None else store.coding.document(),
        }
        arrays: dict[str, NDArray[Any]] = {"queries": self._queries, "counters": self._counters}
        if store is not None:
            arrays |= {"ages": self._ages["ages"]} | nested(
                coding=store.coding.arrays(),
                rows=store.arrays(),
                edges=self._edges.view._asdict(),
                index=self._index.at_rest(),
            )
        return write(directory, _KIND, arrays, document)

    @classmethod
    def open(cls, directory: str | Path, *, verify: bool = False) -> RelationGraph:
        """Open a saved graph, as :func:`~nearcast.open_index` opens an index: it goes on where it was."""
        document, arrays = read(directory, _KIND, verify=verify)
        with restoring(directory):
            graph = cls(document["index"], document["k"], take_over=document["take_over"])
            graph._queries, graph._counters = arrays["queries"], arrays["counters"]
            graph._layouts, graph._arrivals = document["layouts"], document["arrivals"]
            if document["coding"] is not None:
                coding = Coding.restored(document["coding"], part_of(arrays, "coding"))
                graph._store = ClauseStore.restored(coding, part_of(arrays, "rows"))
                graph._edges = EdgeArrays(graph.k, part_of(arrays, "edges"))
                graph._ages = GrowingArrays(ages=arrays["ages"])
                graph._index.restore(graph._store, part_of(arrays, "index"))
        return graph

    # --- Inside ----------------------------------------------------------------------------------------------------

    def _stored(self) -> ClauseStore:
        assert self._store is not None
        return self._store

    def _held(self) -> Subscriptions:
        """Return the subscriptions of the graph, for kernels."""
        store = self._stored()
        return Subscriptions(self._index.content(store), store.owners, *store.chains, self._ages["ages"])

    def _pending(self) -> NDArray[np.int32]:
        """Return room for rows that polygons must decide on; the first entry is their number."""
        return np.zeros(1 + (self._stored().rows if self._stored().shapes else 0), np.int32)

    def _check_rows(self, rows: NDArray[np.int64]) -> None:
        size = 0 if self._store is None else self._store.size
        unknown = (rows < 0) | (rows >= size)
        if not unknown.any() and self._store is not None:
            unknown = ~self._store.present[rows]
        if unknown.any():
            raise UnknownError(f"there is no subscription {rows[unknown][0]}")

    def _added(self, subs: SubscriptionTable) -> NDArray[np.int32]:
        """Give rows to new subscriptions, which are in neither the index nor the graph yet."""
        _check_table(subs)
        subs = replace(subs, ids=None)  # rows are all that the graph speaks of
        fresh = self._store is None or not self._store.size
        if fresh:
            self._store = ClauseStore(subs.take(np.empty(0, np.int64)))
        store = self._stored()
        table = store.check_insert(subs)
        self._index.check(table)
        rows, clauses = store.insert(table)
        if fresh or not self._index.follow(store, clauses):
            self._lay_out()
        self._edges.reach(store.size)
        self._ages.reach("ages", store.size)[rows] = np.arange(self._arrivals, self._arrivals + len(rows))
        self._arrivals += len(rows)
        return rows

    def _forget(self, rows: NDArray[np.int64]) -> None:
        """Give the rows of subscriptions that have left back to the store."""
        store = self._stored()
        store.release(store.retire(rows))
        store.forget(rows)

    def _lay_out(self) -> None:
        """Lay the index out anew, with all rows of the graph in it."""
        self._index.load(self._stored())
        self._layouts += 1
        state, rows, held = new_state(), np.flatnonzero(self._edges.view.degrees >= 0), self._held()
        while state[COMMAND] < len(rows):
            self._index.grow(int(state[NEED]))
            self._index.kernels.add_all(self._index.arrays, held, rows, state, self._index.scratch())

    def _commanded(self, commands: NDArray[np.int64]) -> LogOutcome:
        """Let rows arrive, or leave (complements), a chunk of commands at a time."""
        chunks = [
            self._chunk(commands[at : at + config.COVERING_CHUNK], at)
            for at in range(0, len(commands), config.COVERING_CHUNK)
        ]
        if chunks and self._index.outgrown():
            self._lay_out()
        if len(chunks) == 1:
            return chunks[0]
        return LogOutcome(
            _NONE,
            *(
                np.concatenate([chunk[i] for chunk in chunks]) if chunks else np.empty(0, kind)
                for i, kind in enumerate((np.bool_, np.int32, np.int64, np.int32, np.int64), 1)
            ),
        )

    def _chunk(self, commands: NDArray[np.int64], at: int) -> LogOutcome:
        """Follow some commands, of which the first has the number *at*."""
        state, held, edges = new_state(), self._held(), self._edges.view
        room = 2 * (len(commands) + len(edges.degrees)) if self.take_over else 0
        outcome = Outcome(
            np.zeros(len(commands), np.bool_),
            np.empty(config.COVERING_CHUNK, np.int32),
            np.empty(config.COVERING_CHUNK, np.int64),
            np.empty(room, np.int32),
            np.empty(room, np.int64),
            self._queries,
            self._counters,
        )
        copied: list[tuple[NDArray[Any], ...]] = []
        out, pending, known = np.empty(self.k, np.int32), self._pending(), -1
        while True:
            answer = self._index.kernels.step(
                self._index.arrays,
                held,
                edges,
                self.k,
                self.take_over,
                commands,
                state,
                known,
                out,
                pending,
                self._index.scratch(),
                outcome,
            )
            known = -1
            if answer == PENDING:
                subject = int(state[WAITING] if state[WAITING] >= 0 else commands[state[COMMAND]])
                known = self._decided(self._stored(), held.ages, subject, out, int(state[SURE]), pending)
                continue
            copied.append(
                (
                    outcome.exposed[: state[EXPOSED]].copy(),
                    outcome.exposed_by[: state[EXPOSED]] + at,
                    outcome.withdrawn[: state[WITHDRAWN]].copy(),
                    outcome.withdrawn_by[: state[WITHDRAWN]] + at,
                )
            )
            state[EXPOSED] = state[WITHDRAWN] = 0
            if answer == DONE:
                break
            self._index.grow(int(state[NEED]))
        self._forget(~commands[commands < 0])
        return LogOutcome(_NONE, outcome.forward, *(np.concatenate(parts) for parts in zip(*copied)))

    def _decided(
        self,
        asked: ClauseStore,
        ages: NDArray[np.int64],
        subject: int,
        out: NDArray[np.int32],
        count: int,
        pending: NDArray[np.int32],
    ) -> int:
        """Let polygons decide on what is *pending*; return how many rows of *out* cover the subject.

        *count* of them were certain before, and there is room for k. The subject is a row of *asked*.
        """
        held, held_ages = self._stored(), self._ages["ages"]
        for other in dict.fromkeys(pending[1 : 1 + pending[0]].tolist()):
            if count == len(out):
                break
            if other in out[:count] or not subscription_covers(held, other, asked, subject):
                continue
            if held_ages[other] > ages[subject] and subscription_covers(asked, subject, held, other):
                continue
            out[count] = other
            count += 1
        return count


def _chosen(index: str) -> CoveringIndex:
    if index not in INDEXES:
        raise UnknownError(f"no index {shown(index)}; there are {', '.join(INDEXES)}")
    return INDEXES[index]()


def _check_table(subs: Any) -> None:
    if not isinstance(subs, SubscriptionTable):
        raise InputError(f"a SubscriptionTable is expected, not {shown(subs)}")


def _check_log(log: NDArray[np.int64], size: int) -> None:
    """Raise unless every row arrives at most once, and leaves at most once, after it arrived."""
    named = np.where(log >= 0, log, ~log)
    if len(named) and (named.max() >= size):
        raise UnknownError(f"command {log[named.argmax()]} names no row of {size:,} subscriptions")
    arrivals, departures = log[log >= 0], ~log[log < 0]
    for rows, what in ((arrivals, "arrives"), (departures, "leaves")):
        if len(np.unique(rows)) < len(rows):
            twice = int(np.flatnonzero(np.bincount(rows) > 1)[0])
            raise InputError(f"row {twice} {what} twice")
    since = np.full(size, len(log))
    since[arrivals] = np.flatnonzero(log >= 0)
    early = np.flatnonzero(log < 0)[since[departures] > np.flatnonzero(log < 0)]
    if len(early):
        raise InputError(f"row {~log[early[0]]} leaves before it arrives")
