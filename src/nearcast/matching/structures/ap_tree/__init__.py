"""The AP-Tree: each node partitions its clauses by keywords or by space, whichever the cost model finds cheaper.

This is the stationary part (sections 3.2 to 3.4) of Wang, Zhang, Zhang, Lin and Wang, "AP-Tree: Efficiently Support
Location-Aware Publish/Subscribe" (2015). A *k-node* divides clauses by their next keyword into ordered cuts, an
*s-node* divides them by place into the cells of a grid, and a *leaf* (the paper's l-node) lists them. The modules:

- ``layout``: the arrays (section 3.2.2);
- ``cost``: the cost model and the partitions (equations 1 to 3, Algorithms 2 and 3, section 3.3.3);
- ``build``: construction (Algorithm 4);
- ``search``: matching (Algorithm 1);
- ``maintain``: insertions and removals (section 3.3.5).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from nearcast import config
from nearcast.columns.clauses import words_alone
from nearcast.columns.growable import roomy
from nearcast.columns.ragged import runs_take
from nearcast.columns.rows.clauses import ClauseStore
from nearcast.errors import InputError, shown
from nearcast.kernels.verify import Probes
from nearcast.matching.structure import ClauseStructure, Progress, View, silent
from nearcast.matching.structures.ap_tree import build, layout, maintain
from nearcast.matching.structures.ap_tree.build import Settings
from nearcast.matching.structures.ap_tree.cost import Likelihood
from nearcast.matching.structures.ap_tree.layout import Population, Tree
from nearcast.matching.structures.ap_tree.search import Searched, match_probes
from nearcast.matching.structures.postings import longer

__all__ = ["APTree"]

_PARTITIONS = ("heuristic", "optimal")
_PRIORITIES = ("cost", "keywords", "space")
_SLOT_ARRAYS = ("lows", "highs", "children", "built", "weights")


class APTree(ClauseStructure):
    """The adaptive spatial-textual partition tree.

    Changes are made in place: postings are inserted and removed, and the nodes that are rebuilt are overwritten. A
    reader of an older view might miss a posting or read one twice, so nobody may read while the tree changes.

    Parameters
    ----------
    fanout
        f: the most cuts or cells of a node, not counting the dummy and the open ones.
    leaf
        θ_p: a node with fewer clauses is a leaf.
    divergence
        θ_KL: a node is rebuilt when its weights diverge by more than this from those that it was built for;
        ``math.inf`` for never.
    partition
        How cuts are found: ``"heuristic"`` (Algorithm 3) or ``"optimal"`` (Algorithm 2).
    priority
        The partition of a node where both pay: the cheaper one (``"cost"``), or always ``"keywords"`` or ``"space"``.
    """

    name: ClassVar[str] = "ap-tree"
    parameters: ClassVar[tuple[str, ...]] = ("fanout", "leaf", "divergence", "partition", "priority")

    def __init__(
        self,
        store: ClauseStore,
        *,
        fanout: int = config.AP_TREE_FANOUT,
        leaf: int = config.AP_TREE_LEAF,
        divergence: float = config.AP_TREE_DIVERGENCE,
        partition: str = "heuristic",
        priority: str = "cost",
    ) -> None:
        super().__init__(store)
        _whole("fanout", fanout, 4, 10_000)
        _whole("leaf", leaf, 2, 1_000_000)
        if isinstance(divergence, bool) or not isinstance(divergence, int | float) or not divergence > 0:
            raise InputError(f"divergence must be a number above 0, not {shown(divergence)}")
        _one_of("partition", partition, _PARTITIONS)
        _one_of("priority", priority, _PRIORITIES)
        self._settings = Settings(
            int(fanout),
            int(leaf),
            partition == "optimal",
            _PRIORITIES.index(priority),
            config.AP_TREE_VISIT,
            config.AP_TREE_PART,
        )
        self._divergence = float(divergence)
        self._splits = self._collapses = self._rebuilds = 0
        self._hits = np.empty(0, np.int64)  # by word: how many sampled messages have it
        self._sampled = 0
        self._places = np.empty((0, 2), np.float32)

    # --- Building --------------------------------------------------------------------------------------------------

    def build(self, sample: Probes | None = None, tell: Progress = silent) -> None:
        """Learn from the sample, rank the words, and build the tree from its root (Algorithm 4)."""
        store = self.store
        if sample is not None:
            self._learn(sample)
        tell("rank words", 0.0)
        frequency = np.bincount(store.keywords_of(np.flatnonzero(store.alive)))
        order = np.argsort(-frequency, kind="stable")
        self._ranks = np.empty(len(order), np.int32)
        self._ranks[order] = np.arange(len(order), dtype=np.int32)
        self._likelihood = self._expected(frequency)
        rows = self.members()
        population = self._population(rows)
        n = len(rows)
        self._tree = _arrays_for(nodes=n // 4, postings=int(n * config.AP_TREE_BUDGET))
        self._tree.used[layout.USED_NODES] = 1
        nodes, floats = self._tree.nodes, self._tree.node_floats
        nodes[0] = 0
        nodes[0, layout.FLAGS] = layout.WORDS | layout.SPACE
        floats[0, layout.REGION : layout.REGION + 4] = _bounds(population.boxes)
        floats[0, layout.BUDGET] = config.AP_TREE_BUDGET
        self._construct(0, population, tell)
        self._laid_nodes = int(self._tree.used[layout.USED_NODES])

    def _learn(self, sample: Probes) -> None:
        """Take from a sample of messages what the cost model needs: how often words occur, and some places."""
        self._sampled = len(sample.boxes)
        self._hits = np.bincount(sample.keywords)
        boxes = sample.boxes
        picks = np.linspace(0, len(boxes) - 1, min(len(boxes), config.AP_TREE_PLACES)).astype(np.int64)
        places = ((boxes[picks, :2] + boxes[picks, 2:]) / 2).astype(np.float32)
        self._places = places[np.isfinite(places).all(axis=1)]

    def _expected(self, frequency: NDArray[np.int64]) -> Likelihood:
        """Return how likely a message is to have each word, by rank (p(w) in section 3.3.1).

        The estimate rests on the sample of messages, and on the subscriptions as if they were a few messages more. A
        word that no subscription has yet counts as if one had it, for subscriptions with it may come.
        """
        once = min(config.AP_TREE_MESSAGE_WORDS / max(int(frequency.sum()), 1), 1.0)
        hits = np.zeros(len(frequency))
        known = min(len(self._hits), len(frequency))
        hits[:known] = self._hits[:known]
        seen = self._sampled + config.AP_TREE_PRIOR
        hits = (hits + config.AP_TREE_PRIOR * np.minimum(np.maximum(frequency, 1) * once, 1.0)) / seen
        by_rank = np.empty(len(hits), np.float32)
        by_rank[self._ranks] = hits
        return Likelihood(by_rank, config.AP_TREE_PRIOR * once / seen, self._places)

    def _population(self, clause_rows: NDArray[np.int64]) -> Population:
        """Return the given clauses, whose rows ascend, in the form that the kernels take."""
        clauses = self.store.clauses
        offsets, codes = runs_take(clauses.keyword_runs, clauses.keywords, clause_rows)
        bare = words_alone(clauses, clause_rows)
        words = np.empty(len(codes), np.int32)
        marks = np.empty((len(clause_rows), layout.MARKS), np.int32)
        layout.ranked(self._ranks, offsets, codes, bare, words, marks)
        with np.errstate(over="ignore"):
            boxes = clauses.boxes[clause_rows].astype(np.float32)
        return Population(clause_rows.astype(np.int32), boxes, offsets, words, marks)

    def _construct(self, node: int, population: Population, tell: Progress = silent) -> None:
        """Build a node, which has no children yet, over the given clauses (Algorithm 4)."""
        n = len(population.rows)
        room = int(n * (config.AP_TREE_BUDGET + 0.1)) + 64
        arena, spare = np.empty(room, np.int32), np.empty(room, np.int32)
        arena[:n] = np.arange(n, dtype=np.int32)
        stack = np.empty((4 * (self._settings.fanout + 2), 3), np.int64)
        stack[0] = node, 0, n
        top, step = 1, max(n // 50, 10_000)
        self._make_room(postings=layout.room_for(n))
        while top:
            tell("build nodes", 1 - stack[top - 1, 2] / max(n, 1) if top > 1 else 0.0)
            left = build.construct(
                self._tree, population, self._likelihood, self._settings, arena, spare, stack, top, step
            )
            if left == top:
                self._make_room(postings=layout.room_for(int(stack[top - 1, 2] - stack[top - 1, 1])))
            top = left
            if top + self._settings.fanout + 2 > len(stack):
                stack = np.concatenate([stack, np.empty_like(stack)])

    def _make_room(self, postings: int, nodes: int = 0) -> None:
        """Make room in the arrays for another node with its children, and for so many more postings and nodes."""
        most = self._settings.fanout + 2
        used, slots, edges, held = self._tree.used[: layout.USED_POSTINGS + 1].tolist()
        self._tree = _widened(
            self._tree, used + max(most, nodes), slots + most, edges + most, held + postings
        )

    # --- Changes ---------------------------------------------------------------------------------------------------

    def add(self, rows: NDArray[np.int64]) -> None:
        """Insert clauses into their leaves; then split or rebuild the nodes that need it (section 3.3.5)."""
        self._change(maintain.add, np.sort(rows))

    def drop(self, rows: NDArray[np.int64]) -> None:
        """Remove clauses from their leaves; then collapse or rebuild the nodes that need it (section 3.3.5)."""
        self._change(maintain.drop, np.sort(rows))

    def _change(self, kernel: Any, clause_rows: NDArray[np.int64]) -> None:
        """Run *kernel* over clauses; then look at the nodes that it listed, largest first."""
        population = self._population(clause_rows)
        large = max(self._settings.leaf, int(config.AP_TREE_COVER * (self.store.living)))
        listed = np.empty(len(clause_rows) + 64, np.int32)
        count = 0
        for way in self._ways(population):
            done = 0
            while True:
                done, count = kernel(
                    self._tree, population, way, done, self._settings.leaf, large, listed, count
                )
                if done == len(way):
                    break
                slot = way[done, maintain.SLOT]
                node = self._tree.children[slot] if slot >= 0 else 0
                held = int(self._tree.nodes[node, layout.SIZE]) if node >= 0 else 0
                self._make_room(2 * held + config.POSTING_START)
        nodes = self._tree.nodes
        for node in sorted(listed[:count].tolist(), key=lambda at: -nodes[at, layout.WEIGHT]):
            self._look_at(node)
        self._repack_if_wasteful()

    def _ways(self, population: Population) -> Iterator[NDArray[np.int32]]:
        """Yield the steps that clauses take down the tree, for some clauses at a time."""
        n = len(population.rows)
        room = 8 * min(n, config.AP_TREE_ABREAST)
        way = np.empty((room, maintain.STEP), np.int32)
        for first in range(0, n, config.AP_TREE_ABREAST):
            last = min(first + config.AP_TREE_ABREAST, n)
            while (steps := maintain.route(self._tree, population, first, last, way)) < 0:
                way = np.empty((2 * len(way), maintain.STEP), np.int32)
            yield way[:steps]

    def _look_at(self, node: int) -> None:
        """Split, collapse or rebuild a node if there is reason to (section 3.3.5)."""
        fields = self._tree.nodes[node]
        kind, weight = int(fields[layout.KIND]), int(fields[layout.WEIGHT])
        if kind == layout.FREE:
            return
        if kind == layout.LEAF:
            self._reconstruct(node)
            self._splits += int(self._tree.nodes[node, layout.KIND] != layout.LEAF)
        elif weight < self._settings.leaf:
            self._reconstruct(node)
            self._collapses += 1
        elif kind == layout.K_NODE and 2 * int(self._tree.weights[_open_cut(fields)]) > weight:
            self._reconstruct(node)
            self._splits += 1
        elif maintain.divergence(self._tree, node) > self._divergence:
            self._reconstruct(node)
            self._rebuilds += 1
        else:
            fields[layout.CHECKED] = fields[layout.CHANGES]

    def _reconstruct(self, node: int) -> None:
        """Rebuild the subtree of a node over the clauses that it holds; nothing else changes."""
        tree = self._tree
        stack = np.empty(self._wait, np.int32)
        rows = np.empty(4 * int(tree.nodes[node, layout.WEIGHT]) + 64, np.int32)
        count = maintain.take_out(tree, node, stack, rows)
        if count < 0:
            rows = np.empty(-count, np.int32)
            count = maintain.take_out(tree, node, stack, rows)
        held = np.sort(rows[:count])
        again = np.append(False, held[1:] == held[:-1])[:count]
        self._construct(node, self._population(held[~again].astype(np.int64)))

    def _repack_if_wasteful(self) -> None:
        """Copy the tree to new arrays when too many postings belong to no leaf, or its nodes have doubled since."""
        tree = self._tree
        held, wasted = int(tree.used[layout.USED_POSTINGS]), int(tree.used[layout.WASTED])
        nodes, slots, edges = tree.used[: layout.USED_POSTINGS].tolist()
        if (
            wasted > max(config.COMPACT_MIN_DEAD, config.AP_TREE_WASTE * held)
            or nodes > 2 * self._laid_nodes + config.COMPACT_MIN_DEAD
        ):
            fresh = _arrays_for(nodes, layout.room_for(held) + nodes, slots, edges)
            maintain.repack(tree, fresh, np.empty(nodes, np.int32))
            self._tree = fresh
            self._laid_nodes = int(fresh.used[layout.USED_NODES])

    @property
    def _wait(self) -> int:
        """The most nodes that can be on the stack of a search."""
        return int(self._tree.used[layout.DEEPEST] + 1) * (self._settings.fanout + 2)

    # --- Questions -------------------------------------------------------------------------------------------------

    def view(self) -> View:
        """Return the tree and the ranks of words."""
        return View(match_probes, Searched(self.store.clauses, self._tree, self._ranks, self._wait))

    def stats(self) -> dict[str, Any]:
        """Return the shape of the tree."""
        nodes = self._in_use()
        kinds = nodes[:, layout.KIND]
        sizes = nodes[kinds == layout.LEAF, layout.WEIGHT]
        clauses = self.store.living
        return {
            "k_nodes": int((kinds == layout.K_NODE).sum()),
            "s_nodes": int((kinds == layout.S_NODE).sum()),
            "leaves": len(sizes),
            "height": int(nodes[:, layout.DEPTH].max()),
            "mean_leaf": round(float(sizes.mean()), 1) if len(sizes) else 0.0,
            "largest_leaf": int(sizes.max(initial=0)),
            "postings_per_clause": round(int(sizes.sum()) / max(clauses, 1), 2),
            "splits": self._splits,
            "collapses": self._collapses,
            "rebuilds": self._rebuilds,
            "sampled_messages": self._sampled,
        }

    def _in_use(self) -> NDArray[np.int32]:
        """Return the nodes that are in use."""
        nodes = self._tree.nodes[: self._tree.used[layout.USED_NODES]]
        used: NDArray[np.int32] = nodes[nodes[:, layout.KIND] != layout.FREE]
        return used

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the flat arrays."""
        tree = self._tree
        nodes, slots, edges, postings = tree.used[: layout.USED_POSTINGS + 1].tolist()
        figures = [*self._settings, self._divergence, self._likelihood.unseen, self._sampled]
        figures += [self._splits, self._collapses, self._rebuilds]
        return {
            "nodes": tree.nodes[:nodes],
            **{name: getattr(tree, name)[:slots] for name in _SLOT_ARRAYS},
            "edges": tree.edges[:edges],
            "postings": tree.postings[:postings],
            "used": tree.used,
            "ranks": self._ranks,
            "likely_words": self._likelihood.words,
            "places": self._places,
            "hits": self._hits,
            "figures": np.array(figures, np.float64),
        }

    def restore(self, arrays: dict[str, NDArray[Any]]) -> None:
        """Take the flat arrays."""
        nodes, postings = arrays["nodes"], arrays["postings"]
        self._tree = Tree(
            nodes=nodes,
            node_floats=nodes.view(np.float32),
            **{name: arrays[name] for name in (*_SLOT_ARRAYS, "edges", "used")},
            postings=postings,
            posting_boxes=postings.view(np.float32),
        )
        self._laid_nodes = len(nodes)
        self._ranks, self._places, self._hits = arrays["ranks"], arrays["places"], arrays["hits"]
        fanout, leaf, optimal, priority, visit, part, divergence, unseen, *counts = arrays["figures"].tolist()
        self._settings = Settings(int(fanout), int(leaf), bool(optimal), int(priority), visit, int(part))
        self._divergence = divergence
        self._likelihood = Likelihood(arrays["likely_words"], unseen, self._places)
        self._sampled, self._splits, self._collapses, self._rebuilds = map(int, counts)

    def check(self) -> list[str]:
        """Compare the tree with the clauses; return what is wrong."""
        found = []
        tree = self._tree
        population = self._population(np.flatnonzero(self.store.alive))
        lost = postings = 0
        for way in self._ways(population):
            missing, places = maintain.audit(tree, population, way)
            lost, postings = lost + missing, postings + places
        if lost:
            found.append(f"{lost} times a clause is missing from a leaf that it belongs in")
        nodes = self._in_use()
        leaves = nodes[nodes[:, layout.KIND] == layout.LEAF]
        living = int((leaves[:, layout.SIZE] - leaves[:, layout.DEAD]).sum())
        if living != postings:
            found.append(f"leaves hold {living} living postings, but clauses should have {postings}")
        if int(leaves[:, layout.WEIGHT].sum()) != living:
            found.append("the weights of leaves differ from the numbers of their living postings")
        reached = int(np.count_nonzero(tree.children[: tree.used[layout.USED_SLOTS]] >= 0)) + 1
        rooms = int(leaves[:, layout.ROOM].sum())
        if rooms + int(tree.used[layout.WASTED]) != int(tree.used[layout.USED_POSTINGS]):
            found.append("the room of leaves and the wasted room do not add up to the pool")
        by_words = nodes[nodes[:, layout.KIND] == layout.K_NODE]
        opened = _open_cut(by_words)
        if (tree.lows[opened] <= tree.highs[opened - 1]).any():
            found.append("the open cut of a k-node does not begin after the others")
        later = tree.children[opened]
        if (tree.nodes[later, layout.OFFSET] != by_words[:, layout.OFFSET])[later >= 0].any():
            found.append("the child of an open cut does not divide by the same word again")
        if reached < len(nodes):
            found.append(f"{len(nodes)} nodes are in use, but slots refer to {reached}")
        return found


def _whole(name: str, value: Any, least: int, most: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise InputError(f"{name} must be a whole number from {least} to {most:,}, not {shown(value)}")


def _one_of(name: str, value: Any, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise InputError(f"{name} must be one of {', '.join(map(repr, choices))}, not {shown(value)}")


def _open_cut(k_nodes: NDArray[np.int32]) -> Any:
    """Return the slots of the open cuts."""
    return k_nodes[..., layout.SLOTS] + k_nodes[..., layout.SIZE] - 1


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


def _arrays_for(nodes: int, postings: int, slots: int | None = None, edges: int | None = None) -> Tree:
    """Return empty arrays of a tree."""
    slots = nodes if slots is None else slots
    edges = nodes if edges is None else edges
    rows = roomy(np.empty((0, layout.WIDTH), np.int32), nodes + 1)
    pool = roomy(np.empty((0, layout.POSTING), np.int32), postings + 1)
    return Tree(
        nodes=rows,
        node_floats=rows.view(np.float32),
        **{name: roomy(np.empty(0, np.int32), slots) for name in _SLOT_ARRAYS},
        edges=roomy(np.empty(0, np.float32), edges),
        postings=pool,
        posting_boxes=pool.view(np.float32),
        used=np.zeros(layout.DEEPEST + 1, np.int64),
    )


def _widened(tree: Tree, nodes: int, slots: int, edges: int, postings: int) -> Tree:
    """Return the tree with room for so many nodes, slots, edges and postings in all."""
    rows, pool = longer(tree.nodes, nodes), longer(tree.postings, postings)
    return tree._replace(
        nodes=rows,
        node_floats=rows.view(np.float32),
        **{name: longer(getattr(tree, name), slots) for name in _SLOT_ARRAYS},
        edges=longer(tree.edges, edges),
        postings=pool,
        posting_boxes=pool.view(np.float32),
    )
