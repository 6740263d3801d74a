"""A saved graph goes on where it was: the same answers to the same commands, edge by edge."""

import numpy as np
import pytest

from crowds import random_table
from nearcast import Circle, Polygon, Subscription, SubscriptionTable
from nearcast.covering import RelationGraph
from nearcast.covering.graph import INDEXES
from nearcast.errors import IndexFileError, InputError


def some(index, seed, n=400):
    """Subscriptions that the index can hold."""
    rng = np.random.default_rng(seed)
    if index in ("forest", "clause-scan"):
        return random_table(rng, n)
    low = rng.random((n, 2))
    boxes = np.hstack([low, low + rng.choice([0.01, 0.1, 0.5], (n, 2))])
    tested = rng.random(n) < 0.5
    lows = rng.random(n)
    intervals = (
        np.concatenate([[0], np.cumsum(tested)]),
        np.zeros(tested.sum(), np.int32),
        lows[tested],
        lows[tested] + 0.3,
    )
    return SubscriptionTable.from_arrays(boxes, np.zeros(n + 1, np.int64), [], intervals)


def same(one, other):
    """Check two answers: named tuples of arrays."""
    for mine, its in zip(one, other):
        assert np.array_equal(mine, its)


@pytest.mark.parametrize("take_over", [False, True])
@pytest.mark.parametrize("index", sorted(INDEXES))
def test_it_goes_on_where_it_was(index, take_over, tmp_path):
    graph = RelationGraph(index, 2, take_over=take_over)
    rows = graph.subscribe(some(index, 1)).rows
    graph.unsubscribe(rows[::5])
    opened = RelationGraph.open(graph.save(tmp_path / "graph"), verify=True)
    assert opened.check() == []
    assert opened.stats() | {"memory": 0} == graph.stats() | {"memory": 0}
    assert np.array_equal(opened.forwarded, graph.forwarded)
    same(opened.covering(some(index, 2, 50)), graph.covering(some(index, 2, 50)))
    for step in range(3):
        same(opened.subscribe(some(index, 3 + step)), graph.subscribe(some(index, 3 + step)))
        gone = np.random.default_rng(step).choice(graph.forwarded, 40, replace=False)
        same(opened.unsubscribe(gone), graph.unsubscribe(gone))
    present = np.flatnonzero(graph._store.present).tolist()
    assert [opened.covers_of(row).tolist() for row in present] == [
        graph.covers_of(row).tolist() for row in present
    ]
    assert opened.check() == []
    again = RelationGraph.open(opened.save(tmp_path / "again"), verify=True)
    assert np.array_equal(again.forwarded, graph.forwarded)


def test_words_and_shapes(tmp_path):
    graph = RelationGraph()
    wide = Subscription("a", "tea OR milk", Circle(lon=0, lat=0, radius=10_000))
    area = Subscription("b", 'brand = "x"', Polygon("POLYGON ((-1 -1, 1 -1, 0 1, -1 -1))"))
    graph.subscribe(SubscriptionTable.from_subscriptions([wide, area]))
    opened = RelationGraph.open(graph.save(tmp_path / "graph"))
    narrow = Subscription("c", "tea", Circle(lon=0, lat=0, radius=10))
    part = Subscription("d", 'brand = "x" AND tea', Polygon("POLYGON ((0 -0.5, 0.1 -0.5, 0 0, 0 -0.5))"))
    made = opened.subscribe(SubscriptionTable.from_subscriptions([narrow, part]))
    assert made.forward.tolist() == [False, False]
    assert opened.unsubscribe([0]).exposed.tolist() == [2]


def test_a_graph_without_subscriptions(tmp_path):
    graph = RelationGraph("kd-tree", 3, take_over=True)
    with pytest.raises(InputError):
        graph.subscribe(SubscriptionTable.from_arrays([[0, 0, 1, 1]], [0, 1], [7]))
    opened = RelationGraph.open(graph.save(tmp_path / "graph"))
    assert (len(opened), opened.k, opened.take_over) == (0, 3, True)
    assert opened.subscribe(some("kd-tree", 0, 5)).rows.tolist() == [0, 1, 2, 3, 4]


def test_a_directory_of_another_kind(tmp_path):
    from nearcast import build_index, open_index

    directory = build_index("scan", SubscriptionTable.from_subscriptions([])).save(tmp_path / "index")
    with pytest.raises(IndexFileError, match="'index', not 'relation-graph'"):
        RelationGraph.open(directory)
    with pytest.raises(IndexFileError, match="'relation-graph', not 'index'"):
        open_index(RelationGraph().save(tmp_path / "graph"))
