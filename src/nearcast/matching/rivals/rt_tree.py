"""The R^t++-Tree: an R-tree over the regions of subscriptions, whose nodes carry token filters.

The family is described, after Li et al., in Wang, Zhang, Zhang, Lin and Wang, "AP-Tree: Efficiently Support
Location-Aware Publish/Subscribe" (2015), section 3.1, and in Yu, Li and Feng, "A Cost-based Method for Location-Aware
Publish/Subscribe Services" (2015), section 2.2. A node of the R^t-Tree records all tokens of the subscriptions below,
and is entered if its rectangle touches the message and the message has one of the tokens. The R^t+-Tree records one
representative token of each subscription, the least frequent, which a message must have to match it. The R^t++-Tree
records several.

Here "++" means: the filter of every node above a clause has the clause's k least frequent keywords (all of them, but at
most ``config.RT_REPRESENTATIVES``), and each token of a filter has the least k of the clauses that it comes from. A
message that matches a clause has all its k representatives. So a node is entered only if, for some j, the message has j
tokens of the filter with a k of at most j: one token of clauses with one representative, or two tokens of clauses with
at most two, and so on. Nodes above a clause without keywords are always entered. In a leaf, a clause whose box touches
the message is verified if the message has its rarest token.
"""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearcast import config
from nearcast.columns.growable import GrowableArray
from nearcast.kernels import kernel
from nearcast.kernels.verify import Clauses, Probes, keep_satisfied
from nearcast.matching.rivals.ranking import NO_WORD, Frequencies
from nearcast.matching.rivals.rtree import FREE, NO_NODE, ROOT, USED, Tree, attach, insert, refill, remove
from nearcast.matching.rivals.tokens import Filters, has, passes, put
from nearcast.matching.structure import Answers, ClauseStructure, Progress, View, silent

__all__ = ["RTTree"]

_FANOUT = config.RT_FANOUT
_HITS = config.RT_REPRESENTATIVES + 1


class RTTree(ClauseStructure):
    """An R-tree with filters of several representative tokens.

    Entries come and go in place, and nodes are split in place. A reader of an older view might miss an entry or read
    one twice, so nobody may read while the tree changes.
    """

    name: ClassVar[str] = "rt-tree"
    lingers: ClassVar[bool] = True

    def build(self, sample: Probes | None = None, tell: Progress = silent) -> None:
        """Pack the tree, and fill the filters."""
        clauses = self.store.clauses
        rows = np.flatnonzero(self.store.alive)
        self._frequencies = Frequencies(np.zeros(0, np.int64))
        self._frequencies.add(clauses, rows)
        self._leaves = GrowableArray(np.full(self.store.rows, NO_NODE, np.int32), borrowed=False)
        fill = max(2, int(config.RT_FILL * _FANOUT))
        widths = [max(-(-len(rows) // fill), 1)]
        while widths[-1] > 1:
            widths.append(-(-widths[-1] // fill))
        nodes = sum(widths)
        self._tree = _no_nodes(nodes)
        self._filters = _no_filters(nodes, 0)
        self._tree.state[:] = nodes - 1, nodes, NO_NODE
        # Sort-tile-recursive: level by level, entries in tiles of like place.
        entries, boxes = rows.astype(np.int32), clauses.boxes[rows].astype(np.float32)
        keys = self._frequencies.rarest(clauses, rows)
        first = 0
        for level, width in enumerate(widths):
            tell(f"level {level}", level / len(widths))
            order = _tiles(boxes, fill)
            bounds = np.empty((width, 4), np.float32)
            _pack(
                self._tree,
                self._leaves.values,
                level,
                first,
                fill,
                entries[order],
                boxes[order],
                keys[order],
                bounds,
            )
            self._refill(first, first + width)
            entries, boxes = np.arange(first, first + width, dtype=np.int32), bounds
            keys = np.full(width, NO_WORD, np.int32)
            first += width

    def _refill(self, first: int, last: int) -> None:
        """Fill the filters of packed nodes; the pool grows as needed."""
        while first < last:
            first = _fill_filters(
                self._tree, self._filters, self.store.clauses, self._frequencies.values, first, last
            )
            if first < last:
                free = len(self._filters.tokens) - int(self._filters.used[0])
                self._widen(0, free + config.RT_FILTER_ROOM)

    def add(self, rows: NDArray[np.int64]) -> None:
        """Insert clauses."""
        self._frequencies.add(self.store.clauses, rows)
        self._leaves.fill(self.store.rows - len(self._leaves.values), NO_NODE)
        done = 0
        while True:
            done, nodes, slots = insert(
                self._tree,
                self._filters,
                self.store.clauses,
                self._frequencies.values,
                self._leaves.values,
                rows,
                done,
            )
            if done == len(rows):
                return
            self._widen(nodes, slots)

    def drop(self, rows: NDArray[np.int64]) -> None:
        """Remove clauses from their leaves."""
        self._frequencies.drop(self.store.clauses, rows)
        remove(self._tree, self._filters, self._leaves.values, rows)

    def _widen(self, nodes: int, slots: int) -> None:
        """Make room for more nodes and slots of filters; arrays that are too short grow by at least half."""
        tree, filters = self._tree, self._filters
        if tree.state[USED] + nodes > len(tree.counts):
            more = max(nodes, len(tree.counts) // 2)
            self._tree = Tree._make([*map(_joined, tree[:-1], _no_nodes(more)[:-1]), tree.state])
            fresh = _no_filters(more, 0)
            filters = filters._replace(
                starts=_joined(filters.starts, fresh.starts),
                bits=_joined(filters.bits, fresh.bits),
                sizes=_joined(filters.sizes, fresh.sizes),
            )
        if filters.used[0] + slots > len(filters.tokens):
            fresh = _no_filters(0, max(slots, len(filters.tokens) // 2))
            filters = filters._replace(
                tokens=_joined(filters.tokens, fresh.tokens), needs=_joined(filters.needs, fresh.needs)
            )
        self._filters = filters

    def view(self) -> View:
        """Return the tree and its filters."""
        return View(_search, _Searched(self.store.clauses, self._tree, self._filters))

    def stats(self) -> dict[str, Any]:
        """Return the figures of nodes and filters."""
        tree, filters = self._tree, self._filters
        used = int(tree.state[USED])
        levels, counts, sizes = tree.levels[:used], tree.counts[:used], filters.sizes[:used]
        there = levels != NO_NODE
        height = int(levels[tree.state[ROOT]]) + 1
        leaves = levels == 0
        return {
            "nodes": int(np.count_nonzero(there)),
            "leaves": int(np.count_nonzero(leaves)),
            "height": height,
            "mean_leaf": round(float(counts[leaves].mean()), 1),
            "tokens_by_level": [round(float(sizes[levels == level].mean()), 1) for level in range(height)],
            "open_nodes": int(np.count_nonzero(tree.open[:used] & there)),
        }

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the flat arrays."""
        used, slots = int(self._tree.state[USED]), int(self._filters.used[0])
        tree = {
            name: array if name == "state" else array[:used] for name, array in self._tree._asdict().items()
        }
        cut = {"starts": used, "bits": used, "sizes": used, "tokens": slots, "needs": slots, "used": 1}
        filters = {"filter_" + name: getattr(self._filters, name)[:size] for name, size in cut.items()}
        return {
            "frequency": self._frequencies.values,
            "leaf_of": self._leaves.values,
            **{"node_" + name: array for name, array in tree.items()},
            **filters,
        }

    def restore(self, arrays: dict[str, NDArray[Any]]) -> None:
        """Take the flat arrays."""
        self._frequencies = Frequencies(arrays["frequency"])
        self._leaves = GrowableArray(arrays["leaf_of"], borrowed=False)
        self._tree = Tree(**{name: arrays["node_" + name] for name in Tree._fields})
        self._filters = Filters(**{name: arrays["filter_" + name] for name in Filters._fields})

    def check(self) -> list[str]:
        """Compare the tree with the clauses; return what is wrong."""
        found = []
        tree, used = self._tree, int(self._tree.state[USED])
        alive, leaves = np.flatnonzero(self.store.alive), self._leaves.values
        held = [
            tree.entries[node, : tree.counts[node]]
            for node in np.flatnonzero(tree.levels[:used] == 0).tolist()
        ]
        if not np.array_equal(np.sort(np.concatenate([np.empty(0, np.int32), *held])), alive):
            found.append("the leaves do not hold each clause once")
        elif not _reaches(self.store.clauses, tree, self._filters, leaves, alive):
            found.append(
                "a clause is not in its leaf, or a box or a filter above it would refuse its messages"
            )
        free, at = 0, int(tree.state[FREE])
        while at != NO_NODE and free <= used:
            free, at = free + 1, int(tree.parents[at])
        if free != np.count_nonzero(tree.levels[:used] == NO_NODE):
            found.append("the chain of free nodes is broken")
        return found


def _no_nodes(nodes: int) -> Tree:
    return Tree(
        np.empty((nodes, _FANOUT, 4), np.float32),
        np.zeros((nodes, _FANOUT), np.int32),
        np.full((nodes, _FANOUT), NO_WORD, np.int32),
        np.zeros(nodes, np.int32),
        np.zeros(nodes, np.int32),
        np.full(nodes, NO_NODE, np.int32),
        np.zeros(nodes, np.bool_),
        np.array([0, 0, NO_NODE], np.int64),
    )


def _no_filters(nodes: int, slots: int) -> Filters:
    """Return filters without room; they get some with their first token."""
    return Filters(
        np.zeros(nodes, np.int64),
        np.full(nodes, -1, np.int32),
        np.zeros(nodes, np.int32),
        np.empty(slots, np.int32),
        np.empty(slots, np.uint8),
        np.zeros(1, np.int64),
    )


def _joined(old: NDArray[Any], more: NDArray[Any]) -> NDArray[Any]:
    return np.concatenate([old, more])


def _tiles(boxes: NDArray[np.float32], fill: int) -> NDArray[np.int64]:
    """Return the order of sort-tile-recursive packing: vertical slices by x, and by y within a slice."""
    finite = np.where(np.isfinite(boxes), boxes, 0.0).astype(np.float64)
    x, y = finite[:, 0] + finite[:, 2], finite[:, 1] + finite[:, 3]
    nodes = -(-len(boxes) // fill)
    slices = max(int(np.ceil(np.sqrt(nodes))), 1)
    by_x = np.argsort(x, kind="stable")
    slice_of = np.arange(len(boxes)) // (fill * -(-max(nodes, 1) // slices))
    order: NDArray[np.int64] = by_x[np.lexsort([y[by_x], slice_of])]
    return order


@kernel
def _pack(
    tree: Tree,
    leaves: NDArray[np.int32],
    level: int,
    first: int,
    fill: int,
    entries: NDArray[np.int32],
    boxes: NDArray[np.float32],
    keys: NDArray[np.int32],
    bounds: NDArray[np.float32],
) -> None:
    """Put entries into the nodes of a level from node *first* on, *fill* in each; write the boxes of the nodes."""
    tree.levels[first : first + bounds.shape[0]] = level
    for i in range(entries.size):
        node = first + i // fill
        box = bounds[i // fill]
        if i % fill == 0:
            box[:] = boxes[i]
        for k in range(2):
            box[k] = min(box[k], boxes[i, k])
            box[k + 2] = max(box[k + 2], boxes[i, k + 2])
        attach(tree, node, entries[i], boxes[i], keys[i])
        if level == 0:
            leaves[entries[i]] = node
        else:
            tree.parents[entries[i]] = node


@kernel
def _fill_filters(
    tree: Tree, filters: Filters, clauses: Clauses, frequency: NDArray[np.int64], first: int, last: int
) -> int:
    """Fill the filters of the nodes from *first* to *last*; return the next one when the pool is full."""
    for node in range(first, last):
        if not refill(tree, filters, clauses, frequency, node):
            return node
    return last


@kernel
def _reaches(
    clauses: Clauses, tree: Tree, filters: Filters, leaves: NDArray[np.int32], rows: NDArray[np.int64]
) -> bool:
    """Tell whether a message with the words and the place of each clause comes down to it."""
    message, hits = np.empty(1, np.int32), np.empty(_HITS, np.int64)
    starts, bits, _, tokens, needs, _ = filters
    for c in rows:
        first, last = clauses.keyword_runs[c, 0], clauses.keyword_runs[c, 1]
        message_bits = 1
        while 1 << message_bits < 2 * (last - first):
            message_bits += 1
        if message.size < 1 << message_bits:
            message = np.empty(1 << message_bits, np.int32)
        put(message, message_bits, clauses.keywords, first, last)
        entry, node = c, leaves[c]
        while node != NO_NODE:
            at = 0
            while at < tree.counts[node] and tree.entries[node, at] != entry:
                at += 1
            if at == tree.counts[node]:
                return False
            for k in range(2):
                if tree.boxes[node, at, k] > np.float32(clauses.boxes[c, k]) or tree.boxes[
                    node, at, k + 2
                ] < np.float32(clauses.boxes[c, k + 2]):
                    return False
            if not tree.open[node] and not passes(
                starts, bits, tokens, needs, node, clauses.keywords, first, last, message, message_bits, hits
            ):
                return False
            entry, node = node, tree.parents[node]
        if entry != tree.state[ROOT]:
            return False
    return True


class _Searched(NamedTuple):
    clauses: Clauses
    tree: Tree
    filters: Filters


@kernel
def _search(searched: _Searched, probes: Probes, start: int, stop: int, answers: Answers, filled: int) -> int:
    clauses, tree, filters = searched
    ends, out = answers
    boxes, entries, keys, sizes, levels, _, is_open, state = tree
    starts, bits, _, tokens, needs, _ = filters
    probe_boxes, keyword_offsets, keywords = probes.boxes, probes.keyword_offsets, probes.keywords
    root = state[ROOT]
    most = 1
    for p in range(start, stop):
        most = max(most, keyword_offsets[p + 1] - keyword_offsets[p])
    message, hits = np.empty(4 * most, np.int32), np.empty(_HITS, np.int64)
    stack = np.empty((levels[root] + 1) * _FANOUT, np.int64)
    for p in range(start, stop):
        xmin, ymin = np.float32(probe_boxes[p, 0]), np.float32(probe_boxes[p, 1])
        xmax, ymax = np.float32(probe_boxes[p, 2]), np.float32(probe_boxes[p, 3])
        first, end = keyword_offsets[p], keyword_offsets[p + 1]
        message_bits = 1
        while 1 << message_bits < 2 * (end - first):
            message_bits += 1
        put(message, message_bits, keywords, first, end)
        last = filled
        stack[0] = root
        waiting = 1
        while waiting > 0:
            waiting -= 1
            node = stack[waiting]
            leaf = levels[node] == 0
            if leaf and last + sizes[node] > out.size:
                return p
            for i in range(sizes[node]):
                if not (
                    (boxes[node, i, 0] <= xmax)
                    & (boxes[node, i, 2] >= xmin)
                    & (boxes[node, i, 1] <= ymax)
                    & (boxes[node, i, 3] >= ymin)
                ):
                    continue
                entry = entries[node, i]
                if leaf:
                    key = keys[node, i]
                    if key == NO_WORD or has(message, 0, message_bits, key):
                        out[last] = entry
                        last += 1
                elif is_open[entry] or passes(
                    starts, bits, tokens, needs, entry, keywords, first, end, message, message_bits, hits
                ):
                    stack[waiting] = entry
                    waiting += 1
        filled = keep_satisfied(clauses, probes, p, out, filled, last)
        ends[p] = filled
    return stop
