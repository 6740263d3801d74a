"""Construction (Algorithm 4, section 3.3.4).

The paper is Wang, Zhang, Zhang, Lin and Wang, "AP-Tree: Efficiently Support Location-Aware Publish/Subscribe" (2015).
Each node is partitioned by keyword or by space, whichever costs less. Three questions that the paper leaves open are
settled here:

- *Leaves.* A node is partitioned only if that is expected to cost less than to verify all its clauses. Its parts hold
  at least ``config.AP_TREE_PART`` clauses on average, so a small node has fewer than f parts.
- *Replication.* Equation 1 does not charge for clauses that are in many cells. So each node has a budget: the most
  postings that its clauses may have, on average. A grid that puts each clause into r cells on average is taken only if
  r is at most the square root of the budget (otherwise a coarser grid is tried), and the budget of its cells is that of
  the node divided by r. So a clause has at most ``config.AP_TREE_BUDGET`` postings on average, and no grid uses up what
  the grids below it need.
- *Large boxes.* A clause that reaches into more than ``config.AP_TREE_SPREAD`` cells goes to the dummy cell, like one
  that contains the node's region.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearcast import config
from nearcast.kernels import kernel
from nearcast.kernels.slabs import END
from nearcast.matching.structures.ap_tree.cost import (
    Likelihood,
    evenly,
    heuristic_cuts,
    optimal_cuts,
    partition_cost,
    share,
    strips,
)
from nearcast.matching.structures.ap_tree.layout import (
    BOUNDS,
    BUDGET,
    BUILT,
    DEAD,
    DEPTH,
    FLAGS,
    K_NODE,
    KIND,
    LEAF,
    MARKS,
    OFFSET,
    REGION,
    ROOM,
    ROW,
    S_NODE,
    SIGNATURE,
    SIZE,
    SLOTS,
    SPACE,
    START,
    USED_NODES,
    WEIGHT,
    WORDS,
    Population,
    Tree,
    allot_leaf,
    allot_node,
    allot_slots,
    cut_of,
    open_child,
    room_for,
    strip_of,
)
from nearcast.matching.structures.ap_tree.motion import movement_cost

__all__ = ["COST", "KEYWORDS", "SPACE_FIRST", "Settings", "construct", "dummy", "partition"]

_START = config.POSTING_START
_SPREAD = config.AP_TREE_SPREAD
_SAMPLE = config.AP_TREE_SAMPLE
_LEAST_BUDGET = config.AP_TREE_LEAST_BUDGET
_DP_WORDS = config.AP_TREE_DP_WORDS

COST, KEYWORDS, SPACE_FIRST = 0, 1, 2  # which partition is taken where both pay


class Settings(NamedTuple):
    """The parameters, in the form that kernels take."""

    fanout: int  # f
    leaf: float  # θ_p
    optimal: bool
    priority: int
    visit: float  # v of the cost model
    part: float  # the least clauses that a part may have, on average


@kernel
def construct(
    tree: Tree,
    population: Population,
    likelihood: Likelihood,
    settings: Settings,
    arena: NDArray[np.int32],
    spare: NDArray[np.int32],
    stack: NDArray[np.int64],
    top: int,
    limit: int,
    snug: bool,
) -> Any:
    """Build the nodes on the stack, each over the clauses arena[a:b] (Algorithm 4); return the new stack height.

    A stack of (node, a, b), by ascending a, takes the place of the recursion; the clauses of a node are replaced by
    those of its children. The kernel ends when the stack is empty, when the tree's arrays have no room for another
    node, or when *limit* postings have been written. *snug* leaves have no more room than they need.
    """
    widest = settings.fanout + 2
    written = 0
    while top > 0 and written < limit:
        node, a, b = stack[top - 1, 0], stack[top - 1, 1], stack[top - 1, 2]
        if (
            tree.used[USED_NODES] + widest > tree.nodes.shape[0]
            or tree.slot_slabs[END] + 2 * widest > tree.children.size
            or tree.posting_slabs[END] + 2 * room_for(b - a) + _START > tree.postings.shape[0]
            or top + widest > stack.shape[0]
        ):
            return top
        top -= 1
        members = arena[a:b]
        if partition(tree, population, likelihood, settings, members, node):
            top = _descend(tree, population, node, arena, a, b, spare, stack, top)
        else:
            _fill_leaf(tree, population, members, node, snug)
            written += members.size
    return top


@kernel
def partition(
    tree: Tree,
    population: Population,
    likelihood: Likelihood,
    settings: Settings,
    members: NDArray[np.int32],
    node: int,
) -> Any:
    """Make a node a k-node or an s-node without children, whichever costs less; tell whether either pays.

    These are the lines of Algorithm 4 that decide.
    """
    nodes = tree.nodes
    flags = nodes[node, FLAGS]
    lows = highs = np.empty(0, np.int32)
    columns = rows = np.empty(0, np.float32)
    words_cost = space_cost = np.inf  # line 4
    if members.size >= settings.leaf:
        if flags & WORDS:  # lines 5 and 6
            lows, highs, words_cost = _cuts(population, members, nodes[node, OFFSET], likelihood, settings)
        # Lines 7 and 8.
        skip = settings.priority == KEYWORDS and words_cost < members.size
        if flags & SPACE and not skip and tree.node_floats[node, BUDGET] > _LEAST_BUDGET:
            columns, rows, space_cost = _grid(tree, population, members, node, likelihood, settings)
            if population.motion.moves > 0.0 and space_cost < members.size:
                region = tree.node_floats[node, REGION : REGION + 4]
                words = min(members.size, likelihood.words.size)
                space_cost += movement_cost(
                    population.motion,
                    population.boxes,
                    members,
                    region,
                    columns,
                    rows,
                    nodes[node, DEPTH],
                    words,
                    settings.fanout,
                    settings.leaf,
                )
    nodes[node, BUILT] = members.size
    nodes[node, WEIGHT] = members.size
    if not min(words_cost, space_cost) < members.size:  # line 1, or neither partition pays
        return False
    if words_cost < space_cost and not (settings.priority == SPACE_FIRST and space_cost < members.size):
        _make_k_node(tree, node, lows, highs)  # lines 9 and 10
    else:
        _make_s_node(tree, node, columns, rows)  # lines 17 and 18
    return True


@kernel
def _fill_leaf(tree: Tree, population: Population, members: NDArray[np.int32], node: int, snug: bool) -> None:
    """Make a node a leaf with a posting for each of its members (line 2 of Algorithm 4)."""
    nodes, floats = tree.nodes, tree.node_floats
    postings, posting_boxes = tree.postings, tree.posting_boxes
    rows, boxes, marks = population.rows, population.boxes, population.marks
    allot_leaf(tree, node, room_for(members.size), snug)
    start = nodes[node, START]
    nodes[node, KIND] = LEAF
    nodes[node, SIZE] = members.size
    nodes[node, DEAD] = 0
    for k in range(2):
        floats[node, BOUNDS + k] = np.inf
        floats[node, BOUNDS + 2 + k] = -np.inf
    for i in range(members.size):
        c = members[i]
        for k in range(4):
            posting_boxes[start + i, k] = boxes[c, k]
        for k in range(2):
            floats[node, BOUNDS + k] = min(floats[node, BOUNDS + k], boxes[c, k])
            floats[node, BOUNDS + 2 + k] = max(floats[node, BOUNDS + 2 + k], boxes[c, 2 + k])
        postings[start + i, ROW] = rows[c]
        for k in range(MARKS):
            postings[start + i, SIGNATURE + k] = marks[c, k]


@kernel
def _cuts(
    population: Population,
    members: NDArray[np.int32],
    offset: int,
    likelihood: Likelihood,
    settings: Settings,
) -> Any:
    """Partition by the next keyword: return the least and the greatest word of each cut, and the cost (3.3.2)."""
    offsets, words = population.offsets, population.words
    found = np.empty(members.size, np.int32)
    n = 0
    for c in members:
        at = offsets[c] + offset
        if at < offsets[c + 1]:
            found[n] = words[at]
            n += 1
    exhausted = members.size - n
    found = found[:n]
    found.sort()
    weights, hits = np.empty(n), np.empty(n)
    distinct = 0
    for i in range(n):
        word = found[i]
        if distinct == 0 or found[distinct - 1] != word:
            found[distinct] = word
            weights[distinct] = 0.0
            hits[distinct] = likelihood.words[word] if word < likelihood.words.size else likelihood.unseen
            distinct += 1
        weights[distinct - 1] += 1.0
    weights, hits = weights[:distinct], hits[:distinct]
    cuts = min(settings.fanout, distinct, max(int(n / settings.part), 2))
    if cuts == 0:
        return found[:0], found[:0], np.inf
    if cuts == distinct:
        firsts = np.arange(distinct)
    elif settings.optimal:
        firsts = _grouped_optimum(weights, hits, cuts)
    else:
        firsts = heuristic_cuts(weights, hits, cuts)
    cost = partition_cost(weights, hits, firsts, settings.visit)
    if exhausted > 0:
        cost += exhausted + settings.visit
    lows, highs = np.empty(cuts, np.int32), np.empty(cuts, np.int32)
    for i in range(cuts):
        lows[i] = found[firsts[i]]
        highs[i] = found[(firsts[i + 1] if i + 1 < cuts else distinct) - 1]
    return lows, highs, cost


@kernel
def _grouped_optimum(weights: NDArray[np.float64], hits: NDArray[np.float64], cuts: int) -> Any:
    """Return the optimal cuts. Where words are many, neighbours are first grouped into groups of even weight."""
    groups = min(weights.size, max(_DP_WORDS, cuts))
    if groups == weights.size:
        return optimal_cuts(weights, hits, cuts)
    begins = evenly(weights, groups)
    grouped_weights, grouped_hits = np.zeros(groups), np.zeros(groups)
    for i in range(groups):
        end = begins[i + 1] if i + 1 < groups else weights.size
        for k in range(begins[i], end):
            grouped_weights[i] += weights[k]
            grouped_hits[i] += hits[k]
    return begins[optimal_cuts(grouped_weights, grouped_hits, cuts)]


@kernel
def _grid(
    tree: Tree,
    population: Population,
    members: NDArray[np.int32],
    node: int,
    likelihood: Likelihood,
    settings: Settings,
) -> Any:
    """Partition by space: return the inner borders of columns and of rows, and the cost (3.3.3)."""
    floats, boxes = tree.node_floats, population.boxes
    x0, y0 = floats[node, REGION], floats[node, REGION + 1]
    x1, y1 = floats[node, REGION + 2], floats[node, REGION + 3]
    none = np.empty(0, np.float32)
    # The heuristic looks at some of the boxes, clipped to the region, and at the sampled places in the region.
    step = max(members.size // _SAMPLE, 1)
    m = (members.size + step - 1) // step
    starts, ends, centres = (
        np.empty((2, m), np.float32),
        np.empty((2, m), np.float32),
        np.empty((2, m), np.float32),
    )
    reach = np.zeros(2)  # the mean width and height of a box, as shares of the region's
    for i in range(m):
        c = members[i * step]
        for d in range(2):
            low, high = (x0, x1) if d == 0 else (y0, y1)
            starts[d, i] = min(max(boxes[c, d], low), high)
            ends[d, i] = min(max(boxes[c, 2 + d], low), high)
            centres[d, i] = (starts[d, i] + ends[d, i]) / 2
            reach[d] += (ends[d, i] - starts[d, i]) / max(high - low, np.float32(1e-30)) / m
    limit = np.sqrt(floats[node, BUDGET])
    side = int(np.sqrt(min(float(settings.fanout), members.size / settings.part)))
    while side >= 2 and (1 + reach[0] * (side - 1)) * (1 + reach[1] * (side - 1)) > limit:
        side -= 1  # even a grid of equal cells would put the clauses into too many of them
    if side < 2:
        return none, none, np.inf
    for d in range(2):
        starts[d].sort()
        ends[d].sort()
        centres[d].sort()
    places = likelihood.places
    xs, ys = np.empty(len(places), np.float32), np.empty(len(places), np.float32)
    seen = 0
    for i in range(len(places)):
        if x0 <= places[i, 0] <= x1 and y0 <= places[i, 1] <= y1:
            xs[seen], ys[seen] = places[i, 0], places[i, 1]
            seen += 1
    xs, ys = xs[:seen], ys[:seen]
    xs.sort()
    ys.sort()
    while side >= 2:
        columns = strips(starts[0], ends[0], centres[0], xs, x0, x1, side)
        rows = strips(starts[1], ends[1], centres[1], ys, y0, y1, side)
        nx, ny = columns.size + 1, rows.size + 1
        if nx * ny == 1:
            return none, none, np.inf
        edges = np.concatenate((columns, rows))
        # Count each clause at the corners of the cells that it covers; sums over rows and columns give the weights.
        corners = np.zeros((ny + 1, nx + 1), np.int64)
        whole = copies = 0
        for c in members:
            left, right = strip_of(edges, 0, nx, boxes[c, 0]), strip_of(edges, 0, nx, boxes[c, 2])
            low, high = strip_of(edges, nx - 1, ny, boxes[c, 1]), strip_of(edges, nx - 1, ny, boxes[c, 3])
            if dummy(boxes, c, floats, node, (right - left + 1) * (high - low + 1)):
                whole += 1
            else:
                copies += (right - left + 1) * (high - low + 1)
                corners[low, left] += 1
                corners[low, right + 1] -= 1
                corners[high + 1, left] -= 1
                corners[high + 1, right + 1] += 1
        if whole + copies <= limit * members.size:
            break
        side = side * 3 // 4
    if side < 2:
        return none, none, np.inf
    cost = whole + settings.visit if whole > 0 else 0.0
    across, up = np.empty(nx), np.empty(ny)
    for i in range(nx):
        across[i] = share(
            xs, x0, x1, columns[i - 1] if i > 0 else -np.inf, columns[i] if i < nx - 1 else np.inf
        )
    for j in range(ny):
        up[j] = share(ys, y0, y1, rows[j - 1] if j > 0 else -np.inf, rows[j] if j < ny - 1 else np.inf)
    for j in range(ny):
        for i in range(nx):
            if j > 0:
                corners[j, i] += corners[j - 1, i]
        weight = 0
        for i in range(nx):
            weight += corners[j, i]
            if weight > 0:
                cost += (weight + settings.visit) * across[i] * up[j]
    return columns, rows, cost


@kernel
def dummy(boxes: NDArray[np.float32], c: int, floats: NDArray[np.float32], node: int, cells: int) -> Any:
    """Tell whether a clause belongs in the dummy cell: it contains the region or reaches into too many cells."""
    return cells > _SPREAD or (
        boxes[c, 0] <= floats[node, REGION]
        and boxes[c, 1] <= floats[node, REGION + 1]
        and boxes[c, 2] >= floats[node, REGION + 2]
        and boxes[c, 3] >= floats[node, REGION + 3]
    )


@kernel
def _make_k_node(tree: Tree, node: int, lows: NDArray[np.int32], highs: NDArray[np.int32]) -> None:
    nodes = tree.nodes
    first = allot_slots(tree, lows.size + 2)
    nodes[node, KIND] = K_NODE
    nodes[node, SIZE] = lows.size + 1
    nodes[node, SLOTS] = first
    opened = first + lows.size
    tree.lows[first:opened] = lows
    tree.highs[first:opened] = highs
    tree.lows[opened] = highs[-1] + 1
    tree.highs[opened] = -1


@kernel
def _make_s_node(tree: Tree, node: int, columns: NDArray[np.float32], rows: NDArray[np.float32]) -> None:
    nodes, edges = tree.nodes, tree.edges
    first = allot_slots(tree, (columns.size + 1) * (rows.size + 1) + 1)
    nodes[node, KIND] = S_NODE
    nodes[node, START] = first
    nodes[node, SIZE] = columns.size + 1
    nodes[node, ROOM] = rows.size + 1
    nodes[node, SLOTS] = first
    edges[first : first + columns.size] = columns
    edges[first + columns.size : first + columns.size + rows.size] = rows


@kernel
def _descend(
    tree: Tree,
    population: Population,
    node: int,
    arena: NDArray[np.int32],
    a: int,
    b: int,
    spare: NDArray[np.int32],
    stack: NDArray[np.int64],
    top: int,
) -> Any:
    """Hand the clauses arena[a:b] of a new k-node or s-node to its children; return the new stack height.

    These are lines 11 to 16 of Algorithm 4 for a k-node, and lines 19 to 24 for an s-node. The last part is the
    dummy cut or dummy cell.
    """
    nodes, floats, edges = tree.nodes, tree.node_floats, tree.edges
    lows, built, weights = tree.lows, tree.built, tree.weights
    boxes, offsets, words = population.boxes, population.offsets, population.words
    by_words = nodes[node, KIND] == K_NODE
    first, offset = nodes[node, SLOTS], nodes[node, OFFSET]
    nx, ny, start = nodes[node, SIZE], nodes[node, ROOM], nodes[node, START]
    parts = nx if by_words else nx * ny
    ends = np.zeros(parts + 1, np.int64)
    for turn in range(2):  # count, then hand out
        for i in range(a, b):
            c = arena[i]
            left = right = low = high = 0
            if by_words:
                at = offsets[c] + offset
                left = right = (
                    cut_of(lows, first, first + nx, words[at]) - first if at < offsets[c + 1] else parts
                )
            else:
                left, right = (
                    strip_of(edges, start, nx, boxes[c, 0]),
                    strip_of(edges, start, nx, boxes[c, 2]),
                )
                low = strip_of(edges, start + nx - 1, ny, boxes[c, 1])
                high = strip_of(edges, start + nx - 1, ny, boxes[c, 3])
                if dummy(boxes, c, floats, node, (right - left + 1) * (high - low + 1)):
                    left = right = parts
                    low = high = 0
            for j in range(low, high + 1):
                for part in range(j * nx + left, j * nx + right + 1):
                    if turn == 1:
                        spare[ends[part]] = c
                    ends[part] += 1
        if turn == 0:
            total = 0
            for part in range(parts + 1):
                slot = first + part
                built[slot] = weights[slot] = ends[part]
                total += ends[part]
                ends[part] = total - ends[part]
    copies = ends[parts]
    arena[a : a + copies] = spare[:copies]
    if not by_words:
        floats[node, BUDGET], kept = floats[node, BUDGET] / np.float32(copies / (b - a)), floats[node, BUDGET]
    else:
        kept = floats[node, BUDGET]
    begin = a
    for part in range(parts + 1):
        slot = first + part
        end = a + ends[part]
        if end == begin:
            continue
        child = allot_node(tree)
        open_child(tree, node, slot, child)
        stack[top, 0], stack[top, 1], stack[top, 2] = child, begin, end
        top += 1
        begin = end
    floats[node, BUDGET] = kept
    return top
