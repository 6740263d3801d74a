"""A graph in a steady state: no call takes long, however many subscriptions there are and in whatever order they come.

``pytest --long tests/covering/test_steady.py -s`` runs it at a million subscriptions.
"""

import gc
import time

import numpy as np
import pytest

from nearcast import SubscriptionTable
from nearcast.covering import RelationGraph
from nearcast.covering.forest import MOVING, NODES, POINTS
from profiles import allowed_ms

WORDS = 5_000


def subscriptions(rng, size, start, order):
    """Return full subscriptions: a box, one or two words, and an interval of one of two attributes.

    *order* is "random", or "rising": then intervals go up from *start* on, and all have the same attribute and word. If
    it is "diagonal", boxes go up as well, which is the worst order for k-d trees.
    """
    low = rng.random((size, 2)) * 50
    boxes = np.hstack([low, low + rng.choice([0.01, 0.1, 1.0], (size, 2))])
    if order != "random":
        lows = np.arange(start, start + size, dtype=float)
        if order == "diagonal":
            boxes = np.stack([lows, lows, lows + 0.5, lows + 0.5], axis=1)
        tests = (np.arange(size + 1), np.zeros(size, np.int32), lows, lows + 0.5)
        return SubscriptionTable.from_arrays(boxes, np.arange(size + 1), np.zeros(size, np.int32), tests)
    counts = rng.integers(1, 3, size)
    words = rng.integers(0, WORDS, counts.sum()).astype(np.int32)
    lows = rng.random(size)
    tests = (np.arange(size + 1), rng.integers(0, 2, size).astype(np.int32), lows, lows + 0.2)
    return SubscriptionTable.from_arrays(boxes, np.append(0, np.cumsum(counts)), words, tests)


def longest_calls(index, order, size, calls):
    """Return the processor time of the longest call of each verb in milliseconds, and the graph; kernels are warm."""
    longest = dict.fromkeys(("subscribe", "unsubscribe"), 0.0)
    for begin, count in ((6_000, 300), (size, calls)):  # the first round warms the kernels up
        rng = np.random.default_rng(0)
        graph = RelationGraph(index)
        rows = graph.subscribe(subscriptions(rng, begin, 0, order)).rows.tolist()
        coming = subscriptions(rng, count, begin, order)
        ones = [coming.take([i]) for i in range(count)]
        longest = dict.fromkeys(longest, 0.0)
        gc.collect()
        gc.disable()
        try:
            for one in ones:
                leaving = int(rng.integers(len(rows)))
                steps = [("subscribe", one)]
                if rng.random() < 0.5:
                    steps.append(("unsubscribe", [rows[leaving]]))
                for verb, given in steps:
                    started = time.thread_time()
                    done = getattr(graph, verb)(given)
                    longest[verb] = max(longest[verb], 1e3 * (time.thread_time() - started))
                    if verb == "subscribe":
                        rows.append(int(done.rows[0]))
                    else:
                        rows[leaving] = rows[-1]
                        rows.pop()
        finally:
            gc.enable()
    return longest, graph


@pytest.mark.parametrize(
    ("order", "size", "calls"),
    [
        ("random", 50_000, 1_500),
        ("diagonal", 20_000, 1_500),
        pytest.param("random", 1_000_000, 40_000, marks=pytest.mark.long),
        pytest.param("rising", 1_000_000, 40_000, marks=pytest.mark.long),
        pytest.param("diagonal", 100_000, 20_000, marks=pytest.mark.long),
    ],
)
def test_no_call_takes_long(order, size, calls):
    longest, graph = longest_calls("forest", order, size, calls)
    print(  # noqa: T201
        f"{size:,} subscriptions, {order}, longest of {calls:,} calls in ms:", longest, graph.stats()["depth"]
    )
    assert max(longest.values()) < allowed_ms(size)


def check_forest(graph):
    """Check that all nodes know how many points are below them, and that all points are where they belong."""
    forest = graph._index._trees.view
    moving = points = 0

    def below(node, low, high):
        nonlocal moving, points
        if forest.dimension[node] < 0:
            number = forest.bucket[node]
            size, at = forest.buckets.size[number], int(forest.buckets.at[number])
            capacity, width = forest.buckets.capacity[number], len(forest.low)
            block = forest.buckets.coordinates[at * width : (at + capacity) * width].reshape(width, capacity)
            assert (block[:, :size] > low[:, None]).all() or np.isneginf(low).any()
            assert (block[:, :size] <= high[:, None]).all()
            assert (forest.buckets.homes[forest.buckets.rows[at : at + size]] == number).all()
            assert forest.buckets.node[number] == node
            points += size
        else:
            d, split = forest.dimension[node], forest.split[node]
            moving += split == np.inf
            size = 0
            for child, right in ((forest.left[node], False), (forest.right[node], True)):
                inner_low, inner_high = low.copy(), high.copy()
                if right and split < np.inf:
                    inner_low[d] = max(low[d], split)
                elif not right:
                    inner_high[d] = min(high[d], split)
                assert forest.parent[child] == node
                size += below(child, inner_low, inner_high)
        assert forest.points[node] == size
        return size

    width = len(forest.low)
    for tree, root in enumerate(forest.roots.tolist()):
        if root >= 0:
            assert forest.parent[root] == -1 - tree
            below(root, np.full(width, -np.inf), np.full(width, np.inf))
    assert (moving, points) == (forest.used[MOVING], forest.used[POINTS])
    assert forest.used[NODES] <= len(forest.dimension)
    return moving


@pytest.mark.parametrize("index", ["kd-tree", "forest"])
def test_a_large_subtree_is_rebuilt_by_and_by(index, tmp_path):
    """While points move, questions are answered as ever; a graph that is saved meanwhile goes on in the same way."""
    n, step, rng = 24_000, 1_500, np.random.default_rng(3)
    low = np.arange(n, dtype=float)
    boxes = np.stack([low, low, low + 0.5, low + 0.5], axis=1)
    inner = boxes + np.array([0.1, 0.1, -0.1, -0.1])
    table, asked = (SubscriptionTable.from_arrays(one, [0] * (n + 1), []) for one in (boxes, inner))
    graph, moving = RelationGraph(index), 0
    row_of = np.full(n, -1)
    for begin in range(0, n, step):
        row_of[begin : begin + step] = graph.subscribe(table.take(np.arange(begin, begin + step))).rows
        there = np.flatnonzero(row_of >= 0)
        gone = rng.choice(there, step // 4, replace=False)
        graph.unsubscribe(row_of[gone])
        row_of[gone] = -1
        moving += check_forest(graph) > 0
        found = graph.covering(asked.take(np.arange(begin + step)))
        assert np.diff(found.offsets).tolist() == (row_of[: begin + step] >= 0).tolist()
        assert found.rows.tolist() == row_of[row_of >= 0].tolist()
        if begin == n // 2:
            graph = RelationGraph.open(graph.save(tmp_path / "graph"), verify=True)
    assert moving > 0
    assert graph.stats()["depth"] <= 60
