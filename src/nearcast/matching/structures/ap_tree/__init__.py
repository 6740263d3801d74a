"""The AP-Tree: each node partitions its clauses by keywords or by space, whichever the cost model finds cheaper.

This is the stationary part (sections 3.2 to 3.4) of Wang, Zhang, Zhang, Lin and Wang, "AP-Tree: Efficiently Support
Location-Aware Publish/Subscribe" (2015). A *k-node* divides clauses by their next keyword into ordered cuts, an
*s-node* divides them by place into the cells of a grid, and a *leaf* (the paper's l-node) lists them. The modules:

- ``layout``: the arrays (section 3.2.2);
- ``cost``: the cost model and the partitions (equations 1 to 3, Algorithms 2 and 3, section 3.3.3);
- ``motion``: what the movement of clauses costs (section 4.3.1), for the AP+-Tree;
- ``build``: construction (Algorithm 4);
- ``search``: matching (Algorithm 1);
- ``maintain``: insertions and removals (section 3.3.5);
- ``nodes``: the growing arrays, and what is done with their nodes;
- ``rebuild``: the reconstruction of large nodes, step by step (section 3.3.5).
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from nearcast import config
from nearcast.columns.rows.clauses import ClauseStore
from nearcast.errors import InputError, shown, whole_number
from nearcast.kernels.slabs import END, idle
from nearcast.kernels.verify import Probes
from nearcast.matching.structure import ClauseStructure, Progress, View, silent
from nearcast.matching.structures.ap_tree import layout, maintain
from nearcast.matching.structures.ap_tree.build import Settings
from nearcast.matching.structures.ap_tree.cost import Likelihood
from nearcast.matching.structures.ap_tree.layout import ROOT, Tree
from nearcast.matching.structures.ap_tree.motion import Travels
from nearcast.matching.structures.ap_tree.nodes import SLOT_ARRAYS, Nodes, Ranking
from nearcast.matching.structures.ap_tree.rebuild import Rebuild
from nearcast.matching.structures.ap_tree.search import SearchArrays, match_probes
from nearcast.matching.structures.postings import check_rooms

__all__ = ["APTree"]

_PARTITIONS = ("heuristic", "optimal")
_PRIORITIES = ("cost", "keywords", "space")
_MANY = 2**15 - 1
_LEAST = config.SUCCESSION_ROWS // 4  # a look at a node takes as long as building over this many clauses


class APTree(ClauseStructure):
    """The adaptive spatial-textual partition tree.

    Changes are made in place: postings are inserted and removed, and the nodes that are rebuilt are overwritten. A
    reader of an older view might miss a posting or read one twice, so nobody may read while the tree changes.

    A node that should be split, collapsed or rebuilt waits for its turn. Each change does some of that work: what the
    change of a few clauses does is bounded, however many clauses there are.

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
        fanout = whole_number("fanout", fanout, 4, 10_000)
        leaf = whole_number("leaf", leaf, 2, 1_000_000)
        if isinstance(divergence, bool) or not isinstance(divergence, int | float) or not divergence > 0:
            raise InputError(f"divergence must be a number above 0, not {shown(divergence)}")
        _one_of("partition", partition, _PARTITIONS)
        _one_of("priority", priority, _PRIORITIES)
        self._settings = Settings(
            int(fanout),
            float(leaf),
            partition == "optimal",
            _PRIORITIES.index(priority),
            config.AP_TREE_VISIT,
            float(config.AP_TREE_PART),
        )
        self._divergence = float(divergence)
        self._splits = self._collapses = self._rebuilds = 0
        self._hits = np.empty(0, np.int64)  # by word: how many sampled messages have it
        self._sampled = 0
        self._places = np.empty((0, 2), np.float32)
        self._travels: Travels | None = None

    # --- Building --------------------------------------------------------------------------------------------------

    def build(self, sample: Probes | None = None, tell: Progress = silent) -> None:
        """Learn from the sample, rank the words, and build the tree from its root (Algorithm 4)."""
        store = self.store
        if sample is not None:
            self._learn(sample)
        tell("rank words", 0.0)
        rows = self.members()
        self._ranking = self._rank(np.bincount(store.keywords_of(rows)))
        self._begin(Nodes.none(store, self._settings, len(rows), self._travels))
        population = self._nodes.population(rows, self._ranking.ranks)
        self._nodes.enclose(population)
        self._nodes.construct(ROOT, population, self._ranking.likelihood, snug=True, tell=tell)

    def _begin(self, nodes: Nodes) -> None:
        """Take nodes, none of which is to be rebuilt."""
        self._nodes = nodes
        self._waiting: list[int] = []  # nodes that need a look
        self._rebuild: Rebuild | None = None  # of the node that is being rebuilt

    @property
    def _tree(self) -> Tree:
        return self._nodes.tree

    def _learn(self, sample: Probes) -> None:
        """Take from a sample of messages what the cost model needs: how often words occur, and some places."""
        self._sampled = len(sample.boxes)
        self._hits = np.bincount(sample.keywords)
        boxes = sample.boxes
        picks = np.linspace(0, len(boxes) - 1, min(len(boxes), config.AP_TREE_PLACES)).astype(np.int64)
        places = ((boxes[picks, :2] + boxes[picks, 2:]) / 2).astype(np.float32)
        self._places = places[np.isfinite(places).all(axis=1)]

    def _rank(self, frequency: NDArray[np.int64]) -> Ranking:
        """Rank words by decreasing frequency: how many clauses have each."""
        # NumPy sorts small integers in linear time, and the few words above are then put in order.
        order = np.argsort(-np.minimum(frequency, _MANY).astype(np.int16), kind="stable")
        many = order[: np.count_nonzero(frequency >= _MANY)]
        many[:] = many[np.argsort(-frequency[many], kind="stable")]
        ranks = np.empty(len(order), np.int32)
        ranks[order] = np.arange(len(order), dtype=np.int32)
        return Ranking(ranks, self._expected(frequency, ranks))

    def _expected(self, frequency: NDArray[np.int64], ranks: NDArray[np.int32]) -> Likelihood:
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
        by_rank[ranks] = hits
        return Likelihood(by_rank, config.AP_TREE_PRIOR * once / seen, self._places)

    # --- Changes ---------------------------------------------------------------------------------------------------

    def add(self, rows: NDArray[np.int64]) -> None:
        """Insert clauses into their leaves; then split or rebuild nodes that need it (section 3.3.5)."""
        self._change(maintain.add, rows)

    def drop(self, rows: NDArray[np.int64]) -> None:
        """Remove clauses from their leaves; then collapse or rebuild nodes that need it (section 3.3.5)."""
        self._change(maintain.drop, rows)

    def _change(self, kernel: Any, rows: NDArray[np.int64]) -> None:
        """Run *kernel* over clauses; then do some of the work that waits."""
        rebuild = self._rebuild
        watched = rebuild.node if rebuild else -1
        listed, passed = self._nodes.change(kernel, ROOT, self._ranking, rows, watched)
        if rebuild:
            rebuild.change(kernel, passed)
        if listed:
            self._wait_for_look(listed)
        self._work(config.SUCCESSION_ROWS + config.AP_TREE_SHARE * len(rows))

    def _work(self, budget: int) -> None:
        """Do some of the work that waits, for about as long as it takes to build nodes over *budget* clauses."""
        while budget > 0:
            if self._rebuild is not None:
                budget -= self._continue(self._rebuild)
            elif self._nodes.aside:  # before another look: nodes that wait for one may be among them
                self._nodes.clear_aside(config.SUCCESSION_ROWS)
                budget -= _LEAST
            elif self._waiting:
                budget -= self._look_at(self._waiting.pop(), max(budget, config.AP_TREE_AT_ONCE))
            else:
                break

    def _wait_for_look(self, listed: list[int]) -> None:
        """Let nodes wait; the largest comes first, since all below it may be settled with it."""
        self._waiting = sorted(self._waiting + listed, key=lambda node: self._tree.nodes[node, layout.WEIGHT])

    def _continue(self, rebuild: Rebuild) -> int:
        """Do the next step of a reconstruction; return the number of clauses that it took the time of."""
        step = rebuild.step()
        if not step:
            self._rebuild = None
            if rebuild.replaced:
                if rebuild.node == ROOT:
                    self._begin(rebuild.nodes)
                    self._ranking = rebuild.ranking
                self._wait_for_look(rebuild.waiting)
        return step

    def _look_at(self, node: int, at_once: int = config.AP_TREE_AT_ONCE) -> int:
        """Split, collapse or rebuild a node if there is reason to (section 3.3.5).

        Returns the number of clauses that this took the time of. A node of more than *at_once* clauses is rebuilt
        step by step.
        """
        fields = self._tree.nodes[node]
        kind, weight = int(fields[layout.KIND]), int(fields[layout.WEIGHT])
        if kind == layout.FREE or (kind == layout.LEAF and fields[layout.CHECKED] == 0):
            weight = 0  # the node that was listed is gone
        elif kind == layout.LEAF:
            self._reconstruct(node, at_once)
            self._splits += int(self._tree.nodes[node, layout.KIND] != layout.LEAF)
        elif weight < self._settings.leaf:
            self._reconstruct(node, at_once)
            self._collapses += 1
        elif kind == layout.K_NODE and 2 * int(self._tree.weights[_open_cut(fields)]) > weight:
            self._reconstruct(node, at_once)
            self._splits += 1
        elif maintain.divergence(self._tree, node) > self._divergence:
            self._reconstruct(node, at_once)
            self._rebuilds += 1
        else:
            fields[layout.CHECKED] = fields[layout.CHANGES]
            weight = 0
        return max(weight if self._rebuild is None else 0, _LEAST)

    def _reconstruct(self, node: int, at_once: int) -> None:
        """Rebuild a node, at once or step by step."""
        weight = int(self._tree.nodes[node, layout.WEIGHT])
        if weight > at_once:
            self._rebuild = Rebuild(self._nodes, node, self._ranking, self._rank if node == ROOT else None)
        elif node == ROOT and weight > config.AP_TREE_AT_ONCE:
            self.build()
        else:
            self._nodes.reconstruct(node, self._ranking)

    # --- Questions -------------------------------------------------------------------------------------------------

    def view(self) -> View:
        """Return the tree and the ranks of words."""
        return View(
            match_probes, SearchArrays(self.store.clauses, self._tree, self._ranking.ranks, self._nodes.wait)
        )

    def stats(self) -> dict[str, Any]:
        """Return the shape of the tree."""
        nodes = self._reached([ROOT])
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

    def _reached(self, roots: list[int]) -> NDArray[np.int32]:
        """Return the nodes of the trees with the given roots."""
        tree = self._tree
        level, levels = np.array(roots, np.int64), []
        while len(level):
            levels.append(level)
            inner = tree.nodes[level[tree.nodes[level, layout.KIND] != layout.LEAF]]
            by_space = inner[:, layout.KIND] == layout.S_NODE
            counts = inner[:, layout.SIZE] * np.where(by_space, inner[:, layout.ROOM], 1) + 1
            first = np.repeat(inner[:, layout.SLOTS] - np.cumsum(counts) + counts, counts)
            children = tree.children[first + np.arange(len(first))]
            level = children[children >= 0].astype(np.int64)
        found: NDArray[np.int32] = tree.nodes[np.concatenate([np.empty(0, np.int64), *levels])]
        return found

    def _beside(self) -> list[int]:
        """Return the roots of what is beside the tree: twins that are not ready, and what has to be cleared away."""
        rebuild = self._rebuild
        return self._nodes.aside + (rebuild.twins() if rebuild and rebuild.node != ROOT else [])

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the flat arrays. A reconstruction that is under way is not saved: it begins again later."""
        tree = self._tree
        nodes, slots = int(tree.used[layout.USED_NODES]), int(tree.slot_slabs[END])
        ranks, likelihood = self._ranking
        figures = [*self._settings, self._divergence, likelihood.unseen, self._sampled]
        figures += [self._splits, self._collapses, self._rebuilds]
        return {
            "nodes": tree.nodes[:nodes],
            **{name: getattr(tree, name)[:slots] for name in SLOT_ARRAYS},
            "postings": tree.postings[: tree.posting_slabs[END]],
            "used": tree.used,
            "slot_slabs": tree.slot_slabs,
            "posting_slabs": tree.posting_slabs,
            "aside": np.array(self._beside(), np.int32),
            "waiting": np.array(self._waiting + ([self._rebuild.node] if self._rebuild else []), np.int32),
            "ranks": ranks,
            "likely_words": likelihood.words,
            "places": self._places,
            "hits": self._hits,
            "figures": np.array(figures, np.float64),
        }

    def restore(self, arrays: dict[str, NDArray[Any]]) -> None:
        """Take the flat arrays."""
        nodes, postings = arrays["nodes"], arrays["postings"]
        tree = Tree(
            nodes=nodes,
            node_floats=nodes.view(np.float32),
            **{name: arrays[name] for name in (*SLOT_ARRAYS, "used", "slot_slabs", "posting_slabs")},
            edges=arrays["lows"].view(np.float32),
            postings=postings,
            posting_boxes=postings.view(np.float32),
        )
        self._places, self._hits = arrays["places"], arrays["hits"]
        fanout, leaf, optimal, priority, visit, part, divergence, unseen, *counts = arrays["figures"].tolist()
        self._settings = Settings(int(fanout), leaf, bool(optimal), int(priority), visit, part)
        self._divergence = divergence
        likelihood = Likelihood(arrays["likely_words"], unseen, self._places)
        self._ranking = Ranking(arrays["ranks"], likelihood)
        self._sampled, self._splits, self._collapses, self._rebuilds = map(int, counts)
        self._begin(Nodes(self.store, self._settings, tree))
        self._nodes.aside, self._waiting = arrays["aside"].tolist(), arrays["waiting"].tolist()

    def check(self) -> list[str]:
        """Compare the tree with the clauses; return what is wrong."""
        found = []
        tree = self._tree
        population = self._nodes.population(self.members(), self._ranking.ranks)
        lost = postings = 0
        for way in self._nodes.ways(ROOT, population):
            missing, places = maintain.audit(tree, population, way)
            lost, postings = lost + missing, postings + places
        if lost:
            found.append(f"{lost} times a clause is missing from a leaf that it belongs in")
        nodes, all_nodes = self._reached([ROOT]), self._reached([ROOT, *self._beside()])
        leaves = nodes[nodes[:, layout.KIND] == layout.LEAF]
        living = int((leaves[:, layout.SIZE] - leaves[:, layout.DEAD]).sum())
        if living != postings:
            found.append(f"leaves hold {living} living postings, but clauses should have {postings}")
        if int(leaves[:, layout.WEIGHT].sum()) != living:
            found.append("the weights of leaves differ from the numbers of their living postings")
        by_words = nodes[nodes[:, layout.KIND] == layout.K_NODE]
        opened = _open_cut(by_words)
        if (tree.lows[opened] <= tree.highs[opened - 1]).any():
            found.append("the open cut of a k-node does not begin after the others")
        later = tree.children[opened]
        if (tree.nodes[later, layout.OFFSET] != by_words[:, layout.OFFSET])[later >= 0].any():
            found.append("the child of an open cut does not divide by the same word again")
        return found + self._check_rooms(all_nodes)

    def _check_rooms(self, nodes: NDArray[np.int32]) -> list[str]:
        """Return what is wrong with the memory of all nodes, those beside the tree included."""
        tree, found = self._tree, []
        used = int(tree.used[layout.USED_NODES])
        free = int((tree.nodes[:used, layout.KIND] == layout.FREE).sum())
        if len(nodes) + free != used:
            found.append(f"of {used} nodes, {len(nodes)} are in use and {free} are free")
        leaves = nodes[nodes[:, layout.KIND] == layout.LEAF]
        starts, sizes, rooms = (leaves[:, k] for k in (layout.START, layout.SIZE, layout.ROOM))
        end = int(tree.posting_slabs[END])
        found += check_rooms(starts, sizes, rooms, end)
        if int(rooms.sum()) + idle(tree.posting_slabs, tree.postings[:, layout.ROW]) != end:
            found.append("the rooms of leaves and the free rooms do not add up to the pool")
        return found


def _one_of(name: str, value: Any, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise InputError(f"{name} must be one of {', '.join(map(repr, choices))}, not {shown(value)}")


def _open_cut(k_nodes: NDArray[np.int32]) -> Any:
    """Return the slots of the open cuts."""
    return k_nodes[..., layout.SLOTS] + k_nodes[..., layout.SIZE] - 1
