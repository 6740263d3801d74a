"""What is done with nodes: they are built over clauses, clauses come and go below them, and they are cleared away.

The arrays hold a tree, and beside it, under roots of their own, what will replace some of its nodes (``rebuild``).
Algorithms are those of Wang, Zhang, Zhang, Lin and Wang, "AP-Tree: Efficiently Support Location-Aware
Publish/Subscribe" (2015).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearcast import config
from nearcast.columns.clauses import words_alone
from nearcast.columns.growable import roomy
from nearcast.columns.ragged import runs_take
from nearcast.columns.rows.clauses import ClauseStore
from nearcast.kernels.slabs import END, empty_slabs
from nearcast.matching.structure import Progress, silent
from nearcast.matching.structures.ap_tree import build, layout, maintain
from nearcast.matching.structures.ap_tree.build import Settings
from nearcast.matching.structures.ap_tree.cost import Likelihood
from nearcast.matching.structures.ap_tree.layout import Population, Tree
from nearcast.matching.structures.ap_tree.motion import STILL, Travels, rounded
from nearcast.matching.structures.postings import longer

__all__ = ["SLOT_ARRAYS", "Nodes", "Ranking"]

SLOT_ARRAYS = ("lows", "highs", "children", "built", "weights")
_NOWHERE = (np.inf, np.inf, -np.inf, -np.inf)
_LARGEST = 30  # a run has at most 2^30 slots or postings


class Ranking(NamedTuple):
    """The order of words, and how likely messages have them."""

    ranks: NDArray[np.int32]  # by word
    likelihood: Likelihood


class Nodes:
    """The arrays of nodes, which grow as needed."""

    def __init__(
        self, store: ClauseStore, settings: Settings, tree: Tree, travels: Travels | None = None
    ) -> None:
        self.store = store
        self.settings = settings
        self.tree = tree
        self.travels = travels  # where clauses are and how they move, if they do
        self.aside: list[int] = []  # nodes that belong to no tree any more, and have not been cleared away

    @classmethod
    def none(
        cls, store: ClauseStore, settings: Settings, clauses: int, travels: Travels | None = None
    ) -> Nodes:
        """Return a root that is an empty leaf, and room to build it over this many clauses."""
        nodes = cls(store, settings, _empty_tree(clauses // 4, int(clauses * config.AP_TREE_BUDGET)), travels)
        tree = nodes.tree
        tree.used[layout.USED_NODES] = 1
        tree.nodes[layout.ROOT] = 0
        tree.nodes[layout.ROOT, layout.FLAGS] = layout.WORDS | layout.SPACE
        tree.node_floats[layout.ROOT, layout.BUDGET] = config.AP_TREE_BUDGET
        tree.node_floats[layout.ROOT, layout.BOUNDS : layout.BOUNDS + 4] = _NOWHERE
        return nodes

    def enclose(self, population: Population) -> None:
        """Make the region of the root a box around clauses."""
        self.tree.node_floats[layout.ROOT, layout.REGION :] = _bounds(population.boxes)

    def population(self, rows: NDArray[np.int64], ranks: NDArray[np.int32]) -> Population:
        """Return the given clauses, whose rows ascend, in the form that the kernels take."""
        clauses = self.store.clauses
        offsets, codes = runs_take(clauses.keyword_runs, clauses.keywords, rows)
        bare = words_alone(clauses, rows)
        words = np.empty(len(codes), np.int32)
        marks = np.empty((len(rows), layout.MARKS), np.int32)
        layout.ranked(ranks, offsets, codes, bare, words, marks)
        if self.travels is not None:
            boxes, motion = self.travels.of(rows)
        else:
            boxes, motion = rounded(clauses.boxes[rows]), STILL
        return Population(rows.astype(np.int32), boxes, offsets, words, marks, motion)

    # --- Building --------------------------------------------------------------------------------------------------

    def construct(
        self,
        node: int,
        population: Population,
        likelihood: Likelihood,
        *,
        snug: bool = False,
        tell: Progress = silent,
    ) -> None:
        """Build a node, which owns nothing yet, over the given clauses (Algorithm 4)."""
        n = len(population.rows)
        room = int(n * (config.AP_TREE_BUDGET + 0.1)) + 64
        arena, spare = np.empty(room, np.int32), np.empty(room, np.int32)
        arena[:n] = np.arange(n, dtype=np.int32)
        stack = np.empty((4 * (self.settings.fanout + 2), 3), np.int64)
        stack[0] = node, 0, n
        top, step = 1, max(n // 50, 10_000)
        self.make_room(n)
        while top:
            tell("build nodes", 1 - stack[top - 1, 2] / max(n, 1) if top > 1 else 0.0)
            left = build.construct(
                self.tree, population, likelihood, self.settings, arena, spare, stack, top, step, snug
            )
            if left == top:
                self.make_room(int(stack[top - 1, 2] - stack[top - 1, 1]))
            top = left
            if top + self.settings.fanout + 2 > len(stack):
                stack = np.concatenate([stack, np.empty_like(stack)])

    def reconstruct(self, node: int, ranking: Ranking) -> None:
        """Build a node anew over the clauses that it holds; nothing else changes."""
        rows = self.rows_below(node)
        stack = self.stack(node)
        maintain.clear(self.tree, stack, 1, len(self.tree.nodes), node)
        self.tree.nodes[node, [layout.CHANGES, layout.CHECKED]] = 0
        self.construct(node, self.population(rows, ranking.ranks), ranking.likelihood)

    def partition(self, node: int, sample: Population, likelihood: Likelihood, scale: float) -> bool:
        """Make a node a k-node or an s-node, as is best for a sample; tell whether either pays.

        Each clause of the sample stands for *scale* clauses. So the limits and the price of a visit, all in clauses,
        are divided by it. The parts are empty leaves with room for the clauses that are expected.
        """
        settings = self.settings
        settings = settings._replace(
            leaf=settings.leaf / scale, visit=settings.visit / scale, part=settings.part / scale
        )
        self.make_room(0)
        members = np.arange(len(sample.rows), dtype=np.int32)
        parted = bool(build.partition(self.tree, sample, likelihood, settings, members, node))
        self.tree.nodes[node, [layout.BUILT, layout.WEIGHT]] = 0
        if parted:
            steps = np.concatenate([way[way[:, maintain.PARENT] == node] for way in self.ways(node, sample)])
            slots = steps[:, maintain.SLOT]
            self.make_room(int((scale + config.POSTING_START) * len(slots)))
            maintain.open_parts(self.tree, node, slots, scale)
        return parted

    def twin(self, node: int) -> int:
        """Return a new, empty leaf that could stand where *node* stands."""
        self.make_room(0)
        twin = int(layout.allot_node(self.tree))
        nodes = self.tree.nodes
        nodes[twin] = 0
        for field in (layout.OFFSET, layout.FLAGS, layout.DEPTH, layout.BUDGET):
            nodes[twin, field] = nodes[node, field]
        nodes[twin, layout.REGION :] = nodes[node, layout.REGION :]
        self.tree.node_floats[twin, layout.BOUNDS : layout.BOUNDS + 4] = _NOWHERE
        return twin

    # --- Changes ---------------------------------------------------------------------------------------------------

    def change(
        self, kernel: Any, root: int, ranking: Ranking, rows: NDArray[np.int64], watched: int = -1
    ) -> tuple[list[int], NDArray[np.int64]]:
        """Run *kernel* over clauses; return the nodes that it listed, and the clauses that passed a *watched* node."""
        rows = np.sort(rows)
        population = self.population(rows, ranking.ranks)
        leaf = int(self.settings.leaf)
        large = max(leaf, int(config.AP_TREE_COVER * self.store.living))
        listed = np.empty(len(rows) + 64, np.int32)
        count = 0
        passed = [np.empty(0, np.int32)]
        for way in self.ways(root, population):
            count = self.run(kernel, root, population, way, leaf, large, listed, count)
            if watched >= 0:
                passed.append(way[way[:, maintain.NODE] == watched, maintain.CLAUSE])
        return listed[:count].tolist(), rows[np.concatenate(passed)]

    def run(
        self,
        kernel: Any,
        root: int,
        population: Population,
        way: NDArray[np.int32],
        leaf: int,
        large: int,
        listed: NDArray[np.int32],
        count: int,
    ) -> int:
        """Run *kernel* over the steps of a way, and make room where it needs some; return how many nodes are listed."""
        done = 0
        while True:
            done, count = kernel(self.tree, population, way, done, leaf, large, listed, count)
            if done == len(way):
                return count
            slot = way[done, maintain.SLOT]
            node = self.tree.children[slot] if slot >= 0 else root
            self.make_room(int(self.tree.nodes[node, layout.SIZE]) if node >= 0 else 0)

    def ways(self, root: int, population: Population) -> Iterator[NDArray[np.int32]]:
        """Yield the steps that clauses take down from a root, for some clauses at a time."""
        n = len(population.rows)
        room = 8 * min(n, config.AP_TREE_ABREAST)
        way = np.empty((room, maintain.STEP), np.int32)
        for first in range(0, n, config.AP_TREE_ABREAST):
            last = min(first + config.AP_TREE_ABREAST, n)
            while (steps := maintain.route(self.tree, population, root, first, last, way)) < 0:
                way = np.empty((2 * len(way), maintain.STEP), np.int32)
            yield way[:steps]

    def make_room(self, postings: int) -> None:
        """Make room in the arrays for another node with its children, and for a leaf of this many postings."""
        tree, most = self.tree, self.settings.fanout + 2
        rows = longer(tree.nodes, int(tree.used[layout.USED_NODES]) + most)
        slots = int(tree.slot_slabs[END]) + 2 * most
        room = 2 * layout.room_for(postings) + config.POSTING_START
        pool = longer(tree.postings, int(tree.posting_slabs[END]) + room)
        runs = {name: longer(getattr(tree, name), slots) for name in SLOT_ARRAYS}
        self.tree = tree._replace(
            nodes=rows,
            node_floats=rows.view(np.float32),
            **runs,
            edges=runs["lows"].view(np.float32),
            postings=pool,
            posting_boxes=pool.view(np.float32),
        )

    # --- What is below a node --------------------------------------------------------------------------------------

    @property
    def wait(self) -> int:
        """The most nodes that can be on the stack of a search."""
        return int(self.tree.used[layout.DEEPEST] + 1) * (self.settings.fanout + 2)

    def stack(self, node: int) -> NDArray[np.int32]:
        """Return a stack that begins with a node, and has room for what is below."""
        stack = np.empty(self.wait, np.int32)
        stack[0] = node
        return stack

    def clear_aside(self, limit: int) -> None:
        """Clear away at most this many nodes that belong to no tree, or are below such a node."""
        stack = np.append(np.array(self.aside, np.int32), np.empty(self.wait, np.int32))
        top = maintain.clear(self.tree, stack, len(self.aside), limit, -1)
        self.aside = stack[:top].tolist()

    def rows_below(self, node: int) -> NDArray[np.int64]:
        """Return the rows of all clauses below a node, ascending."""
        found = [np.empty(0, np.int64)]
        found.extend(self.rows_by_turns(node, int(self.tree.nodes[node, layout.WEIGHT])))
        return np.unique(np.concatenate(found))

    def rows_by_turns(self, node: int, count: int) -> Iterator[NDArray[np.int64]]:
        """Yield the rows of the clauses below a node, about *count* at a time, some of them more than once.

        Between two turns clauses may come and go, but no node below may be rebuilt.
        """
        stack, top = self.stack(node), 1
        out = np.empty(count + 64, np.int32)
        while top:
            top, found = maintain.rows_below(self.tree, stack, top, out, 0)
            if top and not found:
                out = np.empty(int(self.tree.nodes[stack[top - 1], layout.SIZE]), np.int32)
            yield out[:found].astype(np.int64)


def _empty_tree(nodes: int, postings: int) -> Tree:
    """Return the arrays of a tree without nodes, with room for this many nodes and postings."""
    rows = roomy(np.empty((0, layout.WIDTH), np.int32), nodes + 1)
    pool = roomy(np.empty((0, layout.POSTING), np.int32), postings + 1)
    slots = {name: roomy(np.empty(0, np.int32), nodes) for name in SLOT_ARRAYS}
    return Tree(
        nodes=rows,
        node_floats=rows.view(np.float32),
        **slots,
        edges=slots["lows"].view(np.float32),
        postings=pool,
        posting_boxes=pool.view(np.float32),
        used=np.zeros(layout.DEEPEST + 1, np.int64),
        slot_slabs=empty_slabs(_LARGEST),
        posting_slabs=empty_slabs(_LARGEST),
    )


def _bounds(boxes: NDArray[np.float32]) -> tuple[float, float, float, float]:
    """Return a box around the finite ends of the given boxes: the region of the root."""
    low, high = boxes[:, :2], boxes[:, 2:]
    ends = []
    for axis in range(2):
        values = np.concatenate([low[:, axis], high[:, axis]])
        values = values[np.isfinite(values)]
        ends.append((values.min(), values.max()) if len(values) else (0.0, 1.0))
    (x0, x1), (y0, y1) = ends
    return float(x0), float(y0), float(x1), float(y1)
