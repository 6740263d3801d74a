"""The index ``mbr-trie``: an MBRTrie over the clauses, newcomers beside it."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from nearcast import config
from nearcast.columns import MessageBatch, SubscriptionTable
from nearcast.errors import ColumnError, shown
from nearcast.kernels import kernel
from nearcast.kernels.postings import Pool
from nearcast.kernels.verify import Clauses, Probes
from nearcast.matching.matcher import Matcher, Progress
from nearcast.matching.mbr_trie.search import FULL, clear_bits, match_trie, set_bits, settle
from nearcast.matching.mbr_trie.trie import NOWHERE, Postings, Trie, build_trie, check_trie
from nearcast.matching.newcomers import Newcomers, match_newcomers
from nearcast.matching.token_order import TokenOrder, message_tokens

__all__ = ["PROBING", "MBRTrie"]

PROBING = ("cost", "token-set", "trie")


class MBRTrie(Matcher):
    """A trie over the sorted token sets of the clauses, with a bounding box and an id range at each node.

    *probing* says how the children of a node meet the tokens of a message: the children look into the token set
    (ProbeTokenSet), the tokens into the children (ProbeTrie), or for each node what costs less.
    """

    name: ClassVar[str] = "mbr-trie"
    parameters: ClassVar[tuple[str, ...]] = ("probing",)

    def __init__(
        self,
        table: SubscriptionTable,
        *,
        messages: MessageBatch | None = None,
        progress: Progress | None = None,
        probing: str = "cost",
    ) -> None:
        if probing not in PROBING:
            raise ColumnError(f"probing is one of {', '.join(PROBING)}, not {shown(probing)}")
        self.probing = probing
        self._folds = 0
        super().__init__(table, messages=messages, progress=progress)

    def _build(self) -> None:
        self._order = TokenOrder(self.store.clauses.keywords)
        self._ordered = self.store.rows  # clauses that the order of the tokens was made for
        self._lay_out(np.arange(self.store.rows))

    def _lay_out(self, rows: NDArray[np.int64]) -> None:
        """Build the trie over all living clause rows; those that were in the last one come first, in its order."""
        self._tell("trie", 0.0)
        clauses = self.store.clauses
        offsets, tokens = self._order.arranged(clauses, rows)
        self._trie, self._postings = build_trie(clauses, rows, offsets, tokens, self._order.size)
        places = np.full(self.store.rows, -1, np.int32)
        places[_clause_rows(self._postings)] = np.arange(len(rows))
        self._places = places
        self._newcomers = Newcomers(self.store.rows)
        self._tell("trie", 1.0)

    def _add(self, clause_rows: NDArray[np.int64]) -> None:
        clauses = self.store.clauses
        if self._newcomers.too_many(len(clause_rows)):
            self._folds += 1
            if self.store.rows > config.REORDER_GROWTH * self._ordered:
                self._order = TokenOrder(clauses.keywords)
                self._ordered = self.store.rows
            else:
                self._order.reach(clauses.keywords[clauses.keyword_offsets[self._newcomers.first] :])
            old = _clause_rows(self._postings)
            self._lay_out(np.concatenate([old[self.store.alive[old]], self._newcomers.rows(), clause_rows]))
        else:
            self._order.reach(_words_of(clauses, clause_rows))
            self._newcomers.add(clauses, self._order.ranks, clause_rows)

    def _drop(self, clause_rows: NDArray[np.int64]) -> None:
        new = clause_rows >= self._newcomers.first
        self._newcomers.drop(clause_rows[new])
        self._postings.boxes[self._places[clause_rows[~new]]] = NOWHERE

    def _search(
        self,
        probes: Probes,
        start: int,
        stop: int,
        counts: NDArray[np.int64],
        out: NDArray[np.int32],
        filled: int,
    ) -> tuple[int, int]:
        done: tuple[int, int] = _search(
            self.store.clauses,
            self._trie,
            self._postings,
            self._order.ranks,
            self._newcomers.pool,
            self._newcomers.first,
            PROBING.index(self.probing),
            probes,
            start,
            stop,
            counts,
            out,
            filled,
        )
        return done

    def stats(self) -> dict[str, Any]:
        """Return the figures of every index, and those of the trie."""
        trie = self._trie
        lists = (trie.ends - trie.lows)[trie.ends > trie.lows]
        return super().stats() | {
            "probing": self.probing,
            "height": len(trie.levels) - 2,
            "nodes_per_level": np.diff(trie.levels).tolist(),
            "lists": len(lists),
            "longest_list": int(lists.max(initial=0)),
            "newcomers": len(self._newcomers),
            "folds": self._folds,
        }

    def _arrays(self) -> dict[str, NDArray[Any]]:
        return {
            "parameters": np.array([PROBING.index(self.probing), self._ordered]),
            "ranks": self._order.ranks,
            "places": self._places,
            **{f"node_{name}": array for name, array in self._trie._asdict().items()},
            **{f"posting_{name}": array for name, array in self._postings._asdict().items()},
            **self._newcomers.arrays(),
        }

    def _restore(self, arrays: dict[str, NDArray[Any]]) -> None:
        probing, self._ordered = arrays["parameters"].tolist()
        self.probing = PROBING[probing]
        self._folds = 0
        self._order = TokenOrder.restored(arrays["ranks"])
        self._places = arrays["places"]
        self._trie = Trie(**{name: arrays[f"node_{name}"] for name in Trie._fields})
        self._postings = Postings(**{name: arrays[f"posting_{name}"] for name in Postings._fields})
        self._newcomers = Newcomers.restored(arrays)

    def _check(self) -> list[str]:
        old = _clause_rows(self._postings)
        here = ~np.isnan(self._postings.boxes[:, 0])
        found = check_trie(self._trie, self._postings)
        if not np.array_equal(here, self.store.alive[old]):
            found.append("a posting is marked as removed, or is not, against the clause's state")
        if not np.array_equal(self._places[old], np.arange(len(old))):
            found.append("a clause does not know the place of its posting")
        present = np.sort(np.concatenate([old[here], self._newcomers.rows()]))
        if not np.array_equal(present, np.flatnonzero(self.store.alive)):
            found.append("the postings and the newcomers are not the living clauses")
        return found


def _clause_rows(postings: Postings) -> NDArray[np.int64]:
    """Return the clause row of each posting."""
    return np.where(postings.rows < 0, ~postings.rows, postings.rows).astype(np.int64)


def _words_of(clauses: Clauses, rows: NDArray[np.int64]) -> NDArray[np.int32]:
    """Return the keywords of neighbouring clause rows."""
    if not len(rows):
        return np.empty(0, np.int32)
    return clauses.keywords[clauses.keyword_offsets[rows[0]] : clauses.keyword_offsets[rows[-1] + 1]]


@kernel
def _search(
    clauses: Clauses,
    trie: Trie,
    postings: Postings,
    ranks: NDArray[np.int32],
    newcomers: Pool,
    first_new: int,
    probing: int,
    probes: Probes,
    start: int,
    stop: int,
    counts: NDArray[np.int64],
    out: NDArray[np.int32],
    filled: int,
) -> Any:
    offsets, keywords, probe_boxes = probes.keyword_offsets, probes.keywords, probes.boxes
    bits = np.zeros(config.TOKEN_BITS // 64, np.uint64)
    longest = 0
    for p in range(start, stop):
        longest = max(longest, offsets[p + 1] - offsets[p])
    tokens = np.empty(longest, np.int32)
    query = np.empty(4, np.float32)
    for p in range(start, stop):
        count = message_tokens(keywords, offsets[p], offsets[p + 1], ranks, tokens)
        for k in range(4):
            query[k] = probe_boxes[p, k]
        set_bits(bits, tokens, count)
        last = match_trie(trie, postings, probing, tokens, count, bits, query, out, filled)
        clear_bits(bits, tokens, count)
        if last == FULL:
            return p, filled
        last = settle(clauses, probes, p, out, filled, last)
        end = match_newcomers(clauses, newcomers, first_new, probes, p, tokens, count, query, out, last)
        if end == FULL:
            return p, filled
        counts[p - start] = end - filled
        filled = end
    return stop, filled
