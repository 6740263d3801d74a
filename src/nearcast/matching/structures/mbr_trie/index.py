"""The index ``mbr-trie``: an MBRTrie over the clauses, and lists of newcomers beside it."""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearcast import config
from nearcast.columns.rows.clauses import ClauseStore
from nearcast.errors import ColumnError, shown
from nearcast.kernels import kernel
from nearcast.kernels.postings import FULL
from nearcast.kernels.verify import Clauses, Probes
from nearcast.matching.structure import Answers, Progress, View, silent
from nearcast.matching.structures.folding import FoldingStructure, named_arrays, taken_arrays
from nearcast.matching.structures.mbr_trie.merge import merge_tries
from nearcast.matching.structures.mbr_trie.search import clear_bits, match_trie, set_bits
from nearcast.matching.structures.mbr_trie.trie import (
    NOWHERE,
    Postings,
    Trie,
    build_trie,
    check_trie,
    clause_rows_of,
    places_of,
    trie_stats,
)
from nearcast.matching.structures.newcomers import NewcomerLists, end_search
from nearcast.matching.structures.packed_list.search import new_scratch
from nearcast.matching.structures.token_order import message_tokens

__all__ = ["PROBING", "MBRTrie"]

PROBING = ("cost", "token-set", "trie")


class MBRTrie(FoldingStructure):
    """A trie over the sorted token sets of the clauses, with a bounding box and an id range at each node.

    It is described in Yu, Li and Feng, "A Cost-based Method for Location-Aware Publish/Subscribe Services" (2015),
    section 3. *probing* says how the children of a node are compared with the tokens of a message: each child is
    looked up in the token set (``"token-set"``, the paper's ProbeTokenSet), each token is looked up among the children
    (``"trie"``, ProbeTrie), or whichever costs less at the node (``"cost"``).
    """

    name: ClassVar[str] = "mbr-trie"
    parameters: ClassVar[tuple[str, ...]] = ("probing",)
    probing = "cost"

    def __init__(
        self,
        store: ClauseStore,
        *,
        probing: str = "cost",
    ) -> None:
        super().__init__(store)
        if probing not in PROBING:
            raise ColumnError(f"probing must be one of {', '.join(PROBING)}, not {shown(probing)}")
        self.probing = probing

    def _lay_out(self, rows: NDArray[np.int64], tell: Progress = silent) -> None:
        tell("trie", 0.0)
        clauses = self.store.clauses
        offsets, tokens = self._order.arranged(clauses, rows)
        self._trie, self._postings = build_trie(clauses, rows, offsets, tokens, self._order.size)
        self._places = places_of(self._laid(), self.store.rows)
        tell("trie", 1.0)

    def _fold(self, rows: NDArray[np.int64]) -> None:
        clauses, ranks = self.store.clauses, self._order.size
        offsets, tokens = self._order.arranged(clauses, rows)
        small = build_trie(clauses, rows, offsets, tokens, ranks, self._postings.curve)
        self._trie, self._postings = merge_tries(self._trie, self._postings, *small, ranks)
        self._places = places_of(self._laid(), self.store.rows)

    def _laid(self) -> NDArray[np.int64]:
        return clause_rows_of(self._postings)

    def _mark(self, rows: NDArray[np.int64]) -> None:
        self._postings.boxes[self._places[rows]] = NOWHERE

    @property
    def trie(self) -> Trie:
        """The trie, for the cost models."""
        return self._trie

    @property
    def ranks(self) -> NDArray[np.int32]:
        """The rank of each word in the order of tokens, or -1 if it has none."""
        return self._order.ranks

    def token_shares(self) -> NDArray[np.float32]:
        """Return the share of each rank in the tokens of all clauses."""
        ranks = self._order.ranks[self.store.keywords_of(np.flatnonzero(self.store.alive))]
        return (np.bincount(ranks, minlength=self._order.size) / max(len(ranks), 1)).astype(np.float32)

    def view(self) -> View:
        """Return the trie, its postings and the newcomers."""
        return View(
            _search,
            _SearchArrays(
                self.store.clauses,
                self._trie,
                self._postings,
                self._order.ranks,
                self._newcomers.lists,
                PROBING.index(self.probing),
            ),
        )

    def stats(self) -> dict[str, Any]:
        """Return the figures of the trie."""
        return super().stats() | {"probing": self.probing} | trie_stats(self._trie)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the flat arrays."""
        return super().arrays() | {
            "probing": np.array([PROBING.index(self.probing)]),
            "places": self._places,
            **named_arrays("node_", self._trie),
            **named_arrays("posting_", self._postings),
        }

    def restore(self, arrays: dict[str, NDArray[Any]]) -> None:
        """Take the flat arrays."""
        super().restore(arrays)
        self.probing = PROBING[int(arrays["probing"][0])]
        self._places = arrays["places"]
        self._trie = Trie(**taken_arrays("node_", Trie._fields, arrays))
        self._postings = Postings(**taken_arrays("posting_", Postings._fields, arrays))

    def check(self) -> list[str]:
        """Compare the trie with the clauses; return what is wrong."""
        found = super().check() + check_trie(self._trie, self._postings)
        laid = self._laid()
        if not np.array_equal(np.isnan(self._postings.boxes[:, 0]), ~self._standing.values[laid]):
            found.append("a removed clause has a living posting, or a living clause has a removed one")
        if not np.array_equal(self._places[laid], np.arange(len(laid))):
            found.append("the place noted for a clause is not that of its posting")
        return found


class _SearchArrays(NamedTuple):
    clauses: Clauses
    trie: Trie
    postings: Postings
    ranks: NDArray[np.int32]
    newcomers: NewcomerLists
    probing: int


@kernel
def _search(
    arrays: _SearchArrays, probes: Probes, start: int, stop: int, answers: Answers, filled: int
) -> int:
    clauses, trie, postings, ranks, newcomers, probing = arrays
    out = answers.rows
    offsets, keywords, probe_boxes = probes.keyword_offsets, probes.keywords, probes.boxes
    bits = np.zeros(config.TOKEN_BITS // 64, np.uint64)
    scratch = new_scratch()
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
        last = end_search(clauses, newcomers, scratch, probes, p, answers, filled, last)
        if last == FULL:
            return p
        filled = last
    return stop
