"""The index ``lfilter``: an MBRTrie and a PT-Quadtree over the same clauses; a cost model chooses between them.

This is Algorithm 3 of Yu, Li and Feng, "A Cost-based Method for Location-Aware Publish/Subscribe Services" (2015).
"""

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
from nearcast.matching.structures.lfilter.cost import SHARE, costs, token_figures, tops_in
from nearcast.matching.structures.lfilter.hybrid import hybrid_prune
from nearcast.matching.structures.mbr_trie.merge import merge_tries
from nearcast.matching.structures.mbr_trie.search import COST, clear_bits, match_trie, set_bits
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
from nearcast.matching.structures.pt_quadtree.fold import fold_quadtree
from nearcast.matching.structures.pt_quadtree.quadtree import (
    Entries,
    Frame,
    Quadtree,
    build_quadtree,
    check_quadtree,
    check_thresholds,
    crowded,
    quadtree_stats,
)
from nearcast.matching.structures.pt_quadtree.search import (
    filter_nodes,
    mark_ranks,
    query_cells,
    unmark_ranks,
)
from nearcast.matching.structures.token_order import LAST, message_tokens

__all__ = ["FILTERS", "VERIFICATIONS", "LFilter"]

FILTERS = ("cost", "mbr-trie", "pt-quadtree")
VERIFICATIONS = ("cost", "direct", "list-pruning")


class LFilter(FoldingStructure):
    """The cost-based filter: it chooses the trie or the quadtree for each message, and how to verify for each node.

    For comparisons, *filter* and *verification* can fix one choice in place of the cost model. *tau_num* and *tau_area*
    are those of the quadtree.
    """

    name: ClassVar[str] = "lfilter"
    parameters: ClassVar[tuple[str, ...]] = ("filter", "verification", "tau_num", "tau_area")

    def __init__(
        self,
        store: ClauseStore,
        *,
        filter: str = "cost",
        verification: str = "cost",
        tau_num: int = config.QUADTREE_TAU_NUM,
        tau_area: float = config.QUADTREE_TAU_AREA,
    ) -> None:
        super().__init__(store)
        if filter not in FILTERS:
            raise ColumnError(f"filter must be one of {', '.join(FILTERS)}, not {shown(filter)}")
        if verification not in VERIFICATIONS:
            raise ColumnError(
                f"verification must be one of {', '.join(VERIFICATIONS)}, not {shown(verification)}"
            )
        self.filter, self.verification = filter, verification
        self.tau_num, self.tau_area = check_thresholds(tau_num, tau_area)

    def _lay_out(self, rows: NDArray[np.int64], tell: Progress = silent) -> None:
        tell("trie", 0.0)
        clauses = self.store.clauses
        offsets, tokens = self._order.arranged(clauses, rows)
        self._trie, self._postings = build_trie(clauses, rows, offsets, tokens, self._order.size)
        self._places = places_of(self._laid(), self.store.rows)
        self._figures = token_figures(self._trie, self._shares(tokens))
        tell("quadtree", 0.3)
        offsets, tokens = self._order.arranged(clauses, self._laid())
        self._frame, self._tree, self._entries = build_quadtree(
            self._postings.rows, self._postings.boxes, offsets, tokens, self.tau_num, self.tau_area
        )
        tell("quadtree", 1.0)

    def _fold(self, rows: NDArray[np.int64]) -> None:
        clauses, order, old = self.store.clauses, self._order, self._laid()
        standing = self._standing.values[old]
        offsets, tokens = order.arranged(clauses, rows)
        small, new = build_trie(clauses, rows, offsets, tokens, order.size, self._postings.curve)
        self._trie, self._postings = merge_tries(self._trie, self._postings, small, new, order.size)
        self._places = places_of(self._laid(), self.store.rows)
        before = self._figures[: self._order.size, SHARE]
        total = len(self.store.keywords_of(np.flatnonzero(self.store.alive)))
        shares = self._shares(tokens) * np.float32(len(tokens) / max(total, 1))
        shares[: len(before)] += before * (1 - shares.sum())
        self._figures = token_figures(self._trie, shares)
        rows = clause_rows_of(new)
        self._tree, self._entries = fold_quadtree(
            self._frame,
            self._tree,
            self._entries,
            np.where(standing, self._places[old], np.int32(-1)),
            self._places[rows],
            new.rows,
            new.boxes,
            *order.arranged(clauses, rows),
        )
        if crowded(self._tree, self.tau_num, self.tau_area):
            self._lay_out(self.members())

    def _shares(self, tokens: NDArray[np.int32]) -> NDArray[np.float32]:
        """Return the share of each rank in the given tokens."""
        counts = np.bincount(LAST - tokens, minlength=self._order.size)
        return (counts / max(len(tokens), 1)).astype(np.float32)

    def _laid(self) -> NDArray[np.int64]:
        return clause_rows_of(self._postings)

    def _mark(self, rows: NDArray[np.int64]) -> None:
        self._postings.boxes[self._places[rows]] = NOWHERE

    def costs(self, probes: Probes) -> NDArray[np.float64]:
        """Return Cost_T and Cost_Q for each probe, in nanoseconds: float64[probes, 2]."""
        out = np.empty((len(probes.boxes), 2))
        _costs(self._trie, self._figures, self._frame, self._tree, self._order.ranks, probes, out)
        return out

    def choices(self, probes: Probes) -> list[str]:
        """Return the filter that the cost model picks for each probe."""
        if self.filter != "cost":
            return [self.filter] * len(probes.boxes)
        return [FILTERS[1 + bool(trie > quadtree)] for trie, quadtree in self.costs(probes)]

    def view(self) -> View:
        """Return the trie, the quadtree, the figures of the cost model and the newcomers."""
        return View(
            _search,
            _SearchArrays(
                self.store.clauses,
                self._standing.values,
                self._trie._replace(tops=tops_in(self._figures)),
                self._postings,
                self._frame,
                self._tree,
                self._entries,
                self._order.ranks,
                self._order.size,
                self._figures,
                self._newcomers.lists,
                FILTERS.index(self.filter),
                VERIFICATIONS.index(self.verification),
            ),
        )

    def stats(self) -> dict[str, Any]:
        """Return the figures of the trie and of the quadtree."""
        return (
            super().stats()
            | {"filter": self.filter, "verification": self.verification}
            | trie_stats(self._trie)
            | quadtree_stats(self._tree, len(self._postings.rows))
        )

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the flat arrays."""
        return super().arrays() | {
            "choices": np.array([FILTERS.index(self.filter), VERIFICATIONS.index(self.verification)]),
            "thresholds": np.array([self.tau_num, self.tau_area]),
            "figures": self._figures,
            "places": self._places,
            "frame": np.array(self._frame),
            **named_arrays("trie_", self._trie),
            **named_arrays("posting_", self._postings),
            **named_arrays("quadtree_", self._tree),
            **named_arrays("entry_", self._entries),
        }

    def restore(self, arrays: dict[str, NDArray[Any]]) -> None:
        """Take the flat arrays."""
        super().restore(arrays)
        ours, verification = arrays["choices"].tolist()
        self.filter, self.verification = FILTERS[ours], VERIFICATIONS[verification]
        self.tau_num, self.tau_area = check_thresholds(*arrays["thresholds"].tolist())
        self._figures, self._places = arrays["figures"], arrays["places"]
        self._frame = Frame(*arrays["frame"].tolist())
        self._trie = Trie(**taken_arrays("trie_", Trie._fields, arrays))
        self._postings = Postings(**taken_arrays("posting_", Postings._fields, arrays))
        self._tree = Quadtree(**taken_arrays("quadtree_", Quadtree._fields, arrays))
        self._entries = Entries(**taken_arrays("entry_", Entries._fields, arrays))

    def check(self) -> list[str]:
        """Compare the trie and the quadtree with the clauses; return what is wrong."""
        laid = self._laid()
        tokens, standing = self._order.arranged(self.store.clauses, laid), self._standing.values[laid]
        return (
            super().check()
            + check_trie(self._trie, self._postings)
            + check_quadtree(self._frame, self._tree, self._entries, *tokens, standing)
        )


@kernel
def _costs(
    trie: Trie,
    figures: NDArray[np.float32],
    frame: Frame,
    tree: Quadtree,
    ranks: NDArray[np.int32],
    probes: Probes,
    out: NDArray[np.float64],
) -> None:
    offsets, keywords, probe_boxes = probes.keyword_offsets, probes.keywords, probes.boxes
    query, cells = np.empty(4, np.float32), np.empty(4, np.int64)
    for p in range(out.shape[0]):
        tokens = np.empty(offsets[p + 1] - offsets[p], np.int32)
        count = message_tokens(keywords, offsets[p], offsets[p + 1], ranks, tokens)
        for k in range(4):
            query[k] = probe_boxes[p, k]
        query_cells(frame, query, cells)
        by_trie, by_quadtree, _ = costs(trie, figures, frame, tree, tokens, count, query, cells)
        out[p, 0] = by_trie
        out[p, 1] = by_quadtree


class _SearchArrays(NamedTuple):
    clauses: Clauses
    alive: NDArray[np.bool_]
    trie: Trie
    postings: Postings
    frame: Frame
    tree: Quadtree
    entries: Entries
    ranks: NDArray[np.int32]
    size: int  # of the order of the tokens
    figures: NDArray[np.float32]
    newcomers: NewcomerLists
    filter: int  # its place in FILTERS
    verification: int  # its place in VERIFICATIONS


@kernel
def _search(
    arrays: _SearchArrays, probes: Probes, start: int, stop: int, answers: Answers, filled: int
) -> int:
    """Match probes by LFILTER (Algorithm 3); the comments name its lines."""
    clauses, alive, trie, postings, frame, tree, entries, ranks, size, figures, newcomers = arrays[:11]
    forced, how = arrays.filter, arrays.verification
    out = answers.rows
    offsets, keywords, probe_boxes = probes.keyword_offsets, probes.keywords, probes.boxes
    bits, present = np.zeros(config.TOKEN_BITS // 64, np.uint64), np.zeros((size >> 6) + 1, np.uint64)
    scratch = new_scratch()
    longest = 0
    for p in range(start, stop):
        longest = max(longest, offsets[p + 1] - offsets[p])
    tokens = np.empty(longest, np.int32)
    query, cells = np.empty(4, np.float32), np.empty(4, np.int64)
    nodes = np.empty(tree.first.size, np.int32)
    for p in range(start, stop):
        count = message_tokens(keywords, offsets[p], offsets[p + 1], ranks, tokens)
        for k in range(4):
            query[k] = probe_boxes[p, k]
        query_cells(frame, query, cells)
        by_trie, by_quadtree, share = costs(trie, figures, frame, tree, tokens, count, query, cells)
        set_bits(bits, tokens, count)
        if forced == 1 or (forced == 0 and by_trie <= by_quadtree):  # lines 4 and 5
            last = match_trie(trie, postings, COST, tokens, count, bits, query, out, filled)
        else:
            # Lines 7 to 9.
            lists = filter_nodes(tree, query, cells, tokens, count, bits, nodes)
            mark_ranks(present, tokens, count)
            last = hybrid_prune(
                trie,
                postings,
                frame,
                tree,
                entries,
                alive,
                nodes,
                lists,
                how,
                share,
                tokens,
                count,
                bits,
                present,
                query,
                cells,
                out,
                filled,
            )
            unmark_ranks(present, tokens, count)
        clear_bits(bits, tokens, count)
        last = end_search(clauses, newcomers, scratch, probes, p, answers, filled, last)
        if last == FULL:
            return p
        filled = last
    return stop
