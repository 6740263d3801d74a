"""The relation graph: which subscriptions need not be forwarded, since another one already asks for as much."""

from __future__ import annotations

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
from nearcast.covering.edges import Edges, empty_edges, grown_edges
from nearcast.covering.kd_tree import KDTree
from nearcast.covering.operations import Rows
from nearcast.covering.regions import subscription_covers
from nearcast.covering.replay import (
    COMMAND,
    DONE,
    EXPOSED,
    NEED,
    PENDING,
    SURE,
    WAITING,
    WITHDRAWN,
    Told,
    add_all,
    search,
    step,
)
from nearcast.covering.scan import Scan
from nearcast.covering.z_curve import ZCurve
from nearcast.errors import InputError, UnknownError, shown
from nearcast.storage.directory import read, restoring, write

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from nearcast.covering.index import CoveringIndex

__all__ = ["INDEXES", "RelationGraph", "Replayed", "Subscribed", "Unsubscribed"]

INDEXES: dict[str, type[CoveringIndex]] = {
    one.name: one for one in (ClauseForest, KDTree, ZCurve, Scan, ClauseScan)
}
_NONE = np.empty(0, np.int32)
_KIND = "relation-graph"  # of directory


class Subscribed(NamedTuple):
    """What became of new subscriptions."""

    rows: NDArray[np.int32]  # their numbers
    forward: NDArray[np.bool_]  # of each: nothing covers it, it must be forwarded
    withdrawn: NDArray[np.int32]  # older rows that a new one took over: their unsubscription travels


class Unsubscribed(NamedTuple):
    """What follows from unsubscriptions."""

    #: Rows that nothing covers any more: forward them, before anything is withdrawn.
    exposed: NDArray[np.int32]
    travels: NDArray[np.int32]  # of the rows that left, those whose unsubscription travels


class Replayed(NamedTuple):
    """What a log of commands led to."""

    rows: NDArray[np.int32]  # of the subscriptions of the table; -1 where one never arrived
    forward: NDArray[np.bool_]  # of each command: the subscription, or the unsubscription, travels
    exposed: NDArray[np.int32]  # rows that had to be forwarded later,
    exposed_by: NDArray[np.int64]  # and the command that exposed each
    withdrawn: NDArray[np.int32]  # rows that a new subscription took over,
    withdrawn_by: NDArray[np.int64]  # and the command of each


class RelationGraph:
    """Covering relations G_k between subscriptions, kept up to date while they come and go.

    A subscription that another one covers is not forwarded: every message that it wants arrives already. When the
    other one leaves, the graph tells who is exposed. Of subscriptions that cover each other the older one covers.

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
        How subscriptions that cover are found: ``"forest"`` for all kinds of them; ``"kd-tree"``, ``"z-curve"`` or
        ``"scan"`` for rectangles (boxes and tests on attributes, without words), ``"clause-scan"`` to compare with.
    k
        How many covering subscriptions are remembered of each. One is nearly always best (Theorem 1).
    take_over
        Whether a new subscription that must be forwarded takes those over that were forwarded and that it covers, so
        that their unsubscription travels. Off by default: it looks at every subscription that was forwarded, and it
        sends messages now to save some later.
    """

    def __init__(self, index: str = "forest", k: int = 1, *, take_over: bool = False) -> None:
        self.k, self.take_over = _checked_k(k), take_over
        self._index = _chosen(index)
        self._store: ClauseStore | None = None
        self._edges = empty_edges()
        self._queries = np.zeros(2, np.int64)
        self._counters = np.zeros((2, 2), np.int64)
        self._rebuilds = 0

    def __len__(self) -> int:
        """How many subscriptions there are."""
        return 0 if self._store is None else len(self._store)

    def __repr__(self) -> str:
        some = f"{len(self):,} subscription{'s' * (len(self) != 1)}"
        return f"<RelationGraph of {some}, {len(self.forwarded):,} forwarded>"

    @property
    def forwarded(self) -> NDArray[np.int32]:
        """The rows that nothing covers, as far as anybody looked: what a neighbour must know."""
        return np.flatnonzero(self._edges.degrees == 0).astype(np.int32)

    def covers_of(self, row: int) -> NDArray[np.int32]:
        """Return the rows that the graph knows to cover a row."""
        self._check_rows(np.array([row], np.int64))
        known = self._edges.covers[row * self.k : (row + 1) * self.k]
        return known[known >= 0].copy()

    # --- Commands --------------------------------------------------------------------------------------------------

    def subscribe(self, subs: SubscriptionTable) -> Subscribed:
        """Take subscriptions, in their order; tell which of them must be forwarded."""
        rows = self._added(subs)
        done = self._commanded(rows.astype(np.int64))
        if not len(done.withdrawn):
            return Subscribed(rows, done.forward, done.withdrawn)
        # What this very call brought and took over was never forwarded.
        fleeting = np.isin(rows, done.withdrawn)
        return Subscribed(rows, done.forward & ~fleeting, done.withdrawn[~np.isin(done.withdrawn, rows)])

    def unsubscribe(self, rows: Any) -> Unsubscribed:
        """Let subscriptions go; tell which others must be forwarded now, and whose unsubscription travels."""
        gone = np.unique(integers(rows, np.int64, "subscription rows"))
        self._check_rows(gone)
        done = self._commanded(~gone)
        travels = gone[done.forward].astype(np.int32)
        if len(gone) == 1:
            return Unsubscribed(done.exposed, travels)
        # Who is exposed and leaves in the same call was never forwarded.
        fleeting = np.isin(travels, done.exposed)
        return Unsubscribed(done.exposed[~np.isin(done.exposed, gone)], travels[~fleeting])

    def replay(self, subs: SubscriptionTable, commands: Any) -> Replayed:
        """Follow a log: *i* >= 0 is the arrival of row i of *subs*, ``~i`` its departure.

        >>> subs = SubscriptionTable.from_arrays([[0, 0, 9, 9], [1, 1, 2, 2]], [0, 0, 0], [])
        >>> RelationGraph("kd-tree").replay(subs, [0, 1, ~0]).exposed.tolist()
        [1]
        """
        _check_table(subs)
        log = integers(commands, np.int64, "commands")
        size, arrivals = len(subs), log[log >= 0]
        _check_log(log, size)
        if not np.array_equal(arrivals, np.arange(size)):
            subs = subs.take(
                arrivals
            )  # rows are numbered in the order of arrival: of equal ones the older covers
        rows = np.full(size, -1, np.int32)
        rows[arrivals] = self._added(subs)
        named = np.where(log >= 0, rows[log], ~rows[~log]).astype(np.int64)
        return self._commanded(named)._replace(rows=rows)

    def covering(self, subs: SubscriptionTable, k: int | None = None) -> Matches:
        """Return for each of some subscriptions up to *k* rows that cover it, cov_k(S, s); nothing is subscribed."""
        k = self.k if k is None else _checked_k(k)
        rows = self._added(subs).astype(np.int64)
        try:
            return self._covered(rows, k)
        finally:
            self._forget(rows)

    def _covered(self, rows: NDArray[np.int64], k: int) -> Matches:
        found, counts = np.full((len(rows), k), -1, np.int32), np.zeros(len(rows), np.int64)
        pending, counters = self._pending(), np.zeros(2, np.int64)
        begin = 0
        while True:
            begin = search(
                self._index.arrays,
                self._rows(),
                rows,
                k,
                begin,
                found,
                counts,
                pending,
                self._index.scratch(),
                counters,
            )
            if begin == len(rows):
                break
            counts[begin] = self._decided(int(rows[begin]), k, found[begin], int(counts[begin]), pending)
            begin += 1
        return Matches(offsets_of(counts), found[np.arange(k) < counts[:, None]])

    # --- Figures ---------------------------------------------------------------------------------------------------

    def use_index(self, index: str) -> None:
        """Find covers by another index from now on, as in the constructor; for measurements."""
        made = _chosen(index)
        if self._store is not None:
            made.check(self._store.table)
        self._index = made
        if self._store is not None:
            self._rebuild(np.flatnonzero(self._edges.degrees >= 0))

    def stats(self) -> dict[str, Any]:
        """Return figures since the beginning: q_s, q_u, nodes visited and points compared as in the paper's tables."""
        (nodes_s, points_s), (nodes_u, points_u) = self._counters.tolist()
        forwarded = len(self.forwarded)
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
            "rebuilds": self._rebuilds,
            "memory": {
                "subscriptions": 0 if self._store is None else self._store.nbytes,
                "index": self._index.nbytes,
                "graph": sum(array.nbytes for array in self._edges),
            },
            **(self._index.stats() if self._store is not None else {}),
        }

    def check(self) -> list[str]:
        """Look for damage; return what was found, in words (nothing: an empty list).

        Every edge must be true, and everybody forwarded or covered by somebody who is, at the end of the path.
        """
        if self._store is None:
            return []
        present = np.flatnonzero(self._store.present).tolist()
        degrees, forwarded = self._edges.degrees, set(self.forwarded.tolist())
        found = [f"row {row} is not in the graph" for row in present if degrees[row] < 0]
        found += [f"row {row} is gone, and forwarded" for row in sorted(forwarded - set(present))]
        above: dict[int, list[int]] = {row: self.covers_of(row).tolist() for row in present}
        for row, known in above.items():
            if len(known) != max(0, degrees[row]):
                found.append(f"row {row} has {len(known)} edges, not {degrees[row]}")
            for other in known:
                if not self._store.present[other]:
                    found.append(f"row {other} is gone, and covers row {row}")
                elif not subscription_covers(self._store, other, row):
                    found.append(f"row {other} does not cover row {row}")
        safe = set(forwarded)
        for row in present:
            path: dict[int, None] = {}
            while row not in safe and row not in path and above.get(row):
                path[row] = None
                row = above[row][0]
            if row not in safe:
                found.append(f"row {row} is neither forwarded nor covered by anybody who is")
            safe.update(path)
        return found

    # --- At rest ---------------------------------------------------------------------------------------------------

    def save(self, directory: str | Path) -> Path:
        """Write the graph to a new directory of flat arrays, which appears whole or not at all; return its path."""
        store = self._store if self._store is not None and self._store.size else None
        document = {
            "index": self._index.name,
            "k": self.k,
            "take_over": self.take_over,
            "rebuilds": self._rebuilds,
            "coding": None if store is None else store.coding.document(),
        }
        arrays: dict[str, NDArray[Any]] = {"queries": self._queries, "counters": self._counters}
        if store is not None:
            lengths = (store.size * self.k,) * 3 + (store.size,) * 2
            edges = {
                name: array[:length] for (name, array), length in zip(self._edges._asdict().items(), lengths)
            }
            arrays |= nested(
                coding=store.coding.arrays(), rows=store.arrays(), edges=edges, index=self._index.at_rest()
            )
        return write(directory, _KIND, arrays, document)

    @classmethod
    def open(cls, directory: str | Path, *, verify: bool = False) -> RelationGraph:
        """Open a saved graph, as :func:`~nearcast.open_index` opens an index: it goes on where it was."""
        document, arrays = read(directory, _KIND, verify=verify)
        with restoring(directory):
            graph = cls(document["index"], document["k"], take_over=document["take_over"])
            graph._queries, graph._counters = arrays["queries"], arrays["counters"]
            graph._rebuilds = document["rebuilds"]
            if document["coding"] is not None:
                coding = Coding.restored(document["coding"], part_of(arrays, "coding"))
                graph._store = ClauseStore.restored(coding, part_of(arrays, "rows"))
                graph._edges = Edges(**part_of(arrays, "edges"))
                graph._index.restore(graph._store, part_of(arrays, "index"))
        return graph

    # --- Inside ----------------------------------------------------------------------------------------------------

    def _stored(self) -> ClauseStore:
        assert self._store is not None
        return self._store

    def _rows(self) -> Rows:
        store = self._stored()
        return Rows(store.owners, *store.chains)

    def _pending(self) -> NDArray[np.int32]:
        """Return room for those that polygons decide; the first entry is their number."""
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
        if self._store is None or not self._store.size:
            self._store = ClauseStore(subs.take(np.empty(0, np.int64)))
        store = self._store
        table = store.check_insert(subs)
        self._index.check(table)
        begin = store.rows
        rows, _ = store.insert(table)
        if not self._index.follow(store, begin):
            self._rebuild(np.flatnonzero(self._edges.degrees >= 0))
        self._edges = grown_edges(self._edges, store.size, self.k)
        return rows

    def _forget(self, rows: NDArray[Any]) -> None:
        store = self._stored()
        store.retire(rows)
        store.present[rows] = False

    def _rebuild(self, rows: NDArray[np.int64]) -> None:
        """Lay the index out anew, with the given rows in it."""
        self._index.load(self._stored())
        self._rebuilds += 1
        state = _new_state()
        while state[COMMAND] < len(rows):
            self._index.grow(int(state[NEED]))
            add_all(self._index.arrays, self._rows(), rows, state, self._index.scratch())
        if len(rows):
            self._index.built()

    def _commanded(self, commands: NDArray[np.int64]) -> Replayed:
        """Let rows arrive and leave (complements), part by part."""
        parts = [
            self._part(commands[at : at + config.COVERING_CHUNK], at)
            for at in range(0, len(commands), config.COVERING_CHUNK)
        ]
        if parts and self._index.degenerate():
            present = np.flatnonzero(self._edges.degrees >= 0)
            self._rebuild(np.random.default_rng(len(present)).permutation(present))
        if len(parts) == 1:
            return parts[0]
        return Replayed(
            _NONE,
            *(
                np.concatenate([part[i] for part in parts]) if parts else np.empty(0, kind)
                for i, kind in enumerate((np.bool_, np.int32, np.int64, np.int32, np.int64), 1)
            ),
        )

    def _part(self, commands: NDArray[np.int64], at: int) -> Replayed:
        state = _new_state()
        room = len(commands) + len(self._edges.degrees)
        told = Told(
            np.zeros(len(commands), np.bool_),
            np.empty(room, np.int32),
            np.empty(room, np.int64),
            np.empty(2 * room if self.take_over else 0, np.int32),
            np.empty(2 * room if self.take_over else 0, np.int64),
            self._queries,
            self._counters,
        )
        drained: list[tuple[NDArray[Any], ...]] = []
        out, pending, known = np.empty(self.k, np.int32), self._pending(), -1
        while True:
            answer = step(
                self._index.arrays,
                self._rows(),
                self._edges,
                self.k,
                self.take_over,
                commands,
                state,
                known,
                out,
                pending,
                self._index.scratch(),
                told,
            )
            known = -1
            if answer == PENDING:
                subject = state[WAITING] if state[WAITING] >= 0 else commands[state[COMMAND]]
                known = self._decided(int(subject), self.k, out, int(state[SURE]), pending)
                continue
            drained.append(
                (
                    told.exposed[: state[EXPOSED]].copy(),
                    told.exposed_by[: state[EXPOSED]] + at,
                    told.withdrawn[: state[WITHDRAWN]].copy(),
                    told.withdrawn_by[: state[WITHDRAWN]] + at,
                )
            )
            state[EXPOSED] = state[WITHDRAWN] = 0
            if answer == DONE:
                break
            self._index.grow(int(state[NEED]))
        gone = ~commands[commands < 0]
        self._forget(gone)
        return Replayed(_NONE, told.forward, *(np.concatenate(parts) for parts in zip(*drained)))

    def _decided(
        self, subject: int, k: int, out: NDArray[np.int32], count: int, pending: NDArray[np.int32]
    ) -> int:
        """Let polygons decide; return how many of *out* cover the subject, of which *count* were sure before."""
        store = self._stored()
        for other in dict.fromkeys(pending[1 : 1 + pending[0]].tolist()):
            if count == k:
                break
            if other in out[:count] or not subscription_covers(store, other, subject):
                continue
            if other > subject and subscription_covers(store, subject, other):
                continue
            out[count] = other
            count += 1
        return count


def _new_state() -> NDArray[np.int64]:
    """Return the state of commands of which none was followed, and no row waits."""
    state = np.zeros(NEED + 1, np.int64)
    state[WAITING] = -1
    return state


def _chosen(index: str) -> CoveringIndex:
    if index not in INDEXES:
        raise UnknownError(f"no index {shown(index)}; there are {', '.join(INDEXES)}")
    return INDEXES[index]()


def _checked_k(k: Any) -> int:
    if isinstance(k, bool) or not isinstance(k, int) or k < 1:
        raise InputError(f"k must be a whole number from 1, not {shown(k)}")
    return k


def _check_table(subs: Any) -> None:
    if not isinstance(subs, SubscriptionTable):
        raise InputError(f"a SubscriptionTable is expected, not {shown(subs)}")


def _check_log(log: NDArray[np.int64], size: int) -> None:
    """Raise unless every row arrives at most once, and leaves once it is there."""
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
