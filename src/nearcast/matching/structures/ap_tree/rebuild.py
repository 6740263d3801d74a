"""The reconstruction of a node (section 3.3.5) that has too many clauses for a single call.

The section is that of Wang, Zhang, Zhang, Lin and Wang, "AP-Tree: Efficiently Support Location-Aware Publish/Subscribe"
(2015). A *twin* of the node is built beside it, step by step, while the node still answers and takes changes:

1. The clauses below the node are gathered. Meanwhile a clause that comes or goes is marked or unmarked.
2. A sample of them decides how the twin is partitioned (Algorithm 4).
3. The clauses are inserted into the twin, in the order of their rows. From now on, the twin takes changes, too.
4. Each of its parts is built by Algorithm 4, at once or, if it is large, in the same way as the node itself.
5. Node and twin change places. All it takes is to exchange two rows of numbers.

When the node is the root, the twin is a tree of its own, in new arrays. Words are ranked anew for it, and its region is
that of the clauses of today.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearcast import config
from nearcast.columns.growable import GrowableArray
from nearcast.kernels.slabs import END
from nearcast.matching.structures.ap_tree import layout, maintain
from nearcast.matching.structures.ap_tree.layout import ROOT
from nearcast.matching.structures.ap_tree.nodes import Nodes, Ranking

__all__ = ["Rebuild"]

_PAGE = 2**21 // (4 * layout.POSTING)  # postings on a large page of memory
_GATHERED = 8  # clauses that are gathered in the time that it takes to insert one


class Rebuild:
    """One node that is being rebuilt; :meth:`step` does some of the work."""

    def __init__(
        self,
        old: Nodes,
        node: int,
        ranking: Ranking,
        rank: Callable[[NDArray[np.int64]], Ranking] | None = None,
    ) -> None:
        """Begin with *node*. For the root, *rank* ranks words, given how many clauses have each."""
        self.node, self.ranking = node, ranking
        self.nodes = (
            old if rank is None else Nodes.none(old.store, old.settings, old.store.living, old.travels)
        )
        self.twin = old.twin(node) if rank is None else ROOT
        self.waiting: list[int] = []  # nodes below the twin that need a look when all is done
        self.replaced = False  # whether the twin has taken the place of the node
        self._old, self._rank = old, rank
        self._inner: Rebuild | None = None  # of a part of the twin
        # At first, the clauses below the node, as far as they are known; once all are, those that the twin lacks.
        self._marked = GrowableArray(np.zeros(old.store.rows, np.bool_), borrowed=False)
        self._gathered = False
        self._steps = self._work()

    def step(self) -> int:
        """Do a bounded piece of work; return the number of clauses that it took the time of, or 0 if all is done."""
        return next(self._steps, 0)

    def twins(self) -> list[int]:
        """Return the twin, and those of its parts."""
        return [self.twin, *(self._inner.twins() if self._inner else [])]

    def change(self, kernel: Any, rows: NDArray[np.int64]) -> None:
        """Take note of clauses that came or went below the node."""
        self._marked.fill(max(self._old.store.rows - len(self._marked.values), 0), False)
        marked = self._marked.values
        comes = kernel is maintain.add
        if self._gathered:
            here = rows if comes else rows[~marked[rows]]
            marked[rows] = False
            self.waiting += self._insert(kernel, here)
        else:
            marked[rows] = comes

    def _insert(self, kernel: Any, rows: NDArray[np.int64]) -> list[int]:
        """Run *kernel* over clauses of the twin; return the nodes that it listed."""
        inner = self._inner
        watched = inner.node if inner else -1
        listed, passed = self.nodes.change(kernel, self.twin, self.ranking, rows, watched)
        if inner:
            inner.change(kernel, passed)
        return listed

    def _work(self) -> Iterator[int]:
        """Do everything; yield after each step the number of clauses that it took the time of."""
        count = config.SUCCESSION_ROWS
        yield from self._gather(_GATHERED * count)
        end = int(self.nodes.tree.posting_slabs[END])
        parted = self._partition(np.flatnonzero(self._marked.values))
        yield config.AP_TREE_AT_ONCE
        # The system clears memory when it is first written to. Here that is done page by page, in empty leaves.
        for at in range(end, int(self.nodes.tree.posting_slabs[END]), _PAGE):
            self.nodes.tree.postings[at, 0] = 0
            yield count
        rows = np.flatnonzero(self._marked.values)
        self._gathered = True
        if parted or self._old.tree.nodes[self.node, layout.KIND] != layout.LEAF:
            for first in range(0, len(rows), count):
                some = rows[first : first + count]
                some = some[self._marked.values[some]]
                self._marked.values[some] = False
                self._insert(maintain.add, some)
                yield count
            maintain.take_as_built(self.nodes.tree, self.twin)
            if parted:
                yield from self._build_parts()
            self.replaced = True
        else:  # it was a leaf, and stays one
            maintain.take_as_built(self._old.tree, self.node)
        if self._rank is None:
            if self.replaced:
                pair, nodes = [self.node, self.twin], self.nodes.tree.nodes
                nodes[pair] = nodes[pair[::-1]]
            self.nodes.aside.append(self.twin)

    def _gather(self, count: int) -> Iterator[int]:
        """Mark the clauses below the node, about *count* at a time, and rank their words, if they are to be ranked.

        Very many words keep their ranks, because sorting them takes long.
        """
        frequency = np.zeros(0, np.int64)
        for rows in self._old.rows_by_turns(self.node, count):
            new = rows[~self._marked.values[rows]]
            self._marked.values[new] = True
            if self._rank and len(frequency) <= config.AP_TREE_RANKED:
                more = np.bincount(self._old.store.keywords_of(new), minlength=len(frequency))
                more[: len(frequency)] += frequency
                frequency = more
            yield max(count // _GATHERED, 1)
        if self._rank and len(frequency) <= config.AP_TREE_RANKED:
            self.ranking = self._rank(frequency)
            yield config.AP_TREE_AT_ONCE

    def _partition(self, rows: NDArray[np.int64]) -> bool:
        """Make the twin a k-node or an s-node, as is best for a sample of its clauses; tell whether that pays."""
        nodes = self.nodes
        picks = np.linspace(0, len(rows) - 1, min(len(rows), config.AP_TREE_AT_ONCE)).astype(np.int64)
        sample = nodes.population(rows[picks], self.ranking.ranks)
        if self._rank:
            nodes.enclose(sample)
        scale = len(rows) / max(len(picks), 1)
        return nodes.partition(self.twin, sample, self.ranking.likelihood, scale)

    def _build_parts(self) -> Iterator[int]:
        """Build the parts of the twin."""
        nodes = self.nodes
        first = int(nodes.tree.nodes[self.twin, layout.SLOTS])
        for slot in range(first, first + int(layout.parts_of(nodes.tree.nodes, self.twin)) + 1):
            part = int(nodes.tree.children[slot])
            weight = int(nodes.tree.nodes[part, layout.WEIGHT]) if part >= 0 else 0
            if weight > config.AP_TREE_AT_ONCE:
                self._inner = Rebuild(nodes, part, self.ranking)
                yield from self._inner._work()
                self.waiting += self._inner.waiting
                self._inner = None
            elif weight:
                nodes.reconstruct(part, self.ranking)
                yield max(weight, config.SUCCESSION_ROWS // 4)  # even the least one takes its time
