"""Every index finds exactly what covers."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import naive
from covering.naive_covering import covers
from nearcast import MessageBatch, SubscriptionTable
from nearcast.covering import RelationGraph
from profiles import examples
from strategies import GRID, batches, ragged, tables

FULL = ["forest", "clause-scan"]
RECTANGLES = ["scan", "kd-tree", "z-curve"]


def joined(*parts):
    """One table of several."""
    offsets = np.cumsum([0] + [len(part) for part in parts])
    c = [part.clauses for part in parts]

    def ragged_parts(name, *values):
        starts = np.concatenate([[0], *(np.diff(getattr(one, name))[:, 0] for one in c)]).cumsum()
        return [starts, *(np.concatenate([getattr(one, value) for one in c]) for value in values)]

    return SubscriptionTable.from_arrays(
        np.concatenate([one.boxes for one in c]),
        *ragged_parts("keyword_runs", "keywords"),
        ragged_parts("test_runs", "test_attributes", "test_lows", "test_highs", "test_flags"),
        forbidden=ragged_parts("forbidden_runs", "forbidden"),
        owners=np.concatenate([part.owners + at for part, at in zip(parts, offsets)]),
    )


def check_covering(graph, stored, asked, k):
    """The k covering rows are covering rows, and there are as many as there can be."""
    rows = graph.subscribe(stored).rows
    found = graph.covering(asked, k)
    both = joined(stored, asked)
    for query in range(len(asked)):
        right = {int(rows[i]) for i in range(len(stored)) if covers(both, i, len(stored) + query)}
        got = found.rows[found.offsets[query] : found.offsets[query + 1]].tolist()
        assert len(got) == len(set(got)) == min(k, len(right))
        assert set(got) <= right
    assert graph.check() == []


@pytest.mark.parametrize("index", FULL)
@given(stored=tables(), asked=tables(4), k=st.sampled_from([1, 2, 50]))
@examples(150)
def test_full_subscriptions(index, stored, asked, k):
    check_covering(RelationGraph(index), stored, asked, k)


@st.composite
def rectangles(draw, axes, max_size):
    """Rectangles with some sides open, and no box but at times."""
    n = draw(st.integers(0, max_size))
    boxed = draw(st.booleans())
    box = st.tuples(GRID, GRID, GRID, GRID).map(
        lambda b: [min(b[0], b[2]), min(b[1], b[3]), max(b[0], b[2]), max(b[1], b[3])]
    )
    boxes = [draw(box) if boxed else [-np.inf, -np.inf, np.inf, np.inf] for _ in range(n)]
    test = st.tuples(
        st.integers(0, axes - 1), GRID, st.sampled_from([0.0, 0.1, 1.0, np.inf]), st.integers(0, 3)
    )
    rows = [draw(st.lists(test, max_size=axes + 1)) for _ in range(n)]
    flat = [one for row in rows for one in row]
    intervals = (
        ragged(rows, object)[0],
        np.array([t[0] for t in flat], np.int32),
        np.array([t[1] if t[2] < np.inf else -np.inf for t in flat], float),
        np.array([t[1] + t[2] if t[2] < np.inf else t[1] for t in flat], float),
        np.array([t[3] for t in flat], np.uint8),
    )
    return SubscriptionTable.from_arrays(np.array(boxes).reshape(-1, 4), [0] * (n + 1), [], intervals)


@pytest.mark.parametrize("index", [*RECTANGLES, *FULL])
@given(data=st.data(), k=st.sampled_from([1, 3, 50]))
@examples(100)
def test_rectangles(index, data, k):
    axes = data.draw(st.integers(1, 5))
    stored, asked = data.draw(rectangles(axes, 14)), data.draw(rectangles(axes, 4))
    # Several tests on one attribute mean their common part to an index of rectangles; each alone to the definition.
    if not single(stored) or not single(asked):
        stored, asked = merged(stored), merged(asked)
    check_covering(RelationGraph(index), stored, asked, k)


def single(table):
    c = table.clauses
    return all(
        len(row) == len(set(row))
        for row in (naive.run(c.test_runs, c.test_attributes, i) for i in range(len(c.boxes)))
    )


def merged(table):
    """Keep the first test of each attribute."""
    c = table.clauses
    rows = []
    for i in range(len(c.boxes)):
        kept = {}
        for test in naive.tests(c, i):
            kept.setdefault(test[0], test)
        rows.append(list(kept.values()))
    flat = [one for row in rows for one in row]
    columns = list(zip(*flat)) or [[], [], [], []]
    kinds = (np.int32, float, float, np.uint8)
    intervals = (
        np.cumsum([0] + [len(row) for row in rows]),
        *(np.array(column, kind) for column, kind in zip(columns, kinds)),
    )
    return SubscriptionTable.from_arrays(c.boxes, [0] * (len(rows) + 1), [], intervals)


def random_rectangles(rng, n, attributes, steps=None):
    """Edges are random segments of the unit interval (section V.A), or of a grid of so many steps."""
    ends = np.sort(rng.random((n, attributes, 2)), axis=2)
    if steps:
        ends = np.round(ends * steps)
    intervals = (
        np.arange(n + 1) * attributes,
        np.tile(np.arange(attributes, dtype=np.int32), n),
        ends[:, :, 0].ravel(),
        ends[:, :, 1].ravel(),
    )
    everywhere = np.tile([-np.inf, -np.inf, np.inf, np.inf], (n, 1))
    return SubscriptionTable.from_arrays(everywhere, np.zeros(n + 1, np.int64), [], intervals)


@pytest.mark.parametrize("index", ["kd-tree", "z-curve", "forest"])
@pytest.mark.parametrize("attributes", [1, 3, 5, 8, 40])
def test_many_rectangles_come_and_go(index, attributes):
    """As the scan, through many splits and merges; 40 attributes have more dimensions than a key has bits."""
    rng = np.random.default_rng(attributes)
    n = 3000
    subs = random_rectangles(rng, n, attributes)
    graphs = [RelationGraph(name, k=2) for name in (index, "scan")]
    for graph in graphs:
        rows = graph.subscribe(subs).rows
        for part in np.array_split(rng_rows(attributes, rows), 5)[:4]:
            graph.unsubscribe(part)
            graph.covering(subs.take(np.arange(50)))
    one, other = graphs
    assert one.forwarded.tolist() == other.forwarded.tolist()
    asked = random_rectangles(rng, 300, attributes)
    found, right = one.covering(asked, 10_000), other.covering(asked, 10_000)
    assert np.array_equal(found.sorted().rows, right.sorted().rows)
    assert np.array_equal(found.offsets, right.offsets)
    assert one.check() == []


@pytest.mark.parametrize("index", ["kd-tree", "z-curve", "forest"])
def test_many_rectangles_on_a_coarse_grid(index):
    """Queries lie on the very values that divide the points."""
    rng = np.random.default_rng(5)
    subs, asked = random_rectangles(rng, 1500, 3, steps=6), random_rectangles(rng, 300, 3, steps=6)
    graphs = [RelationGraph(name) for name in (index, "scan")]
    for graph in graphs:
        graph.subscribe(subs)
    found, right = (graph.covering(asked, 2000) for graph in graphs)
    assert np.array_equal(found.offsets, right.offsets)
    assert np.array_equal(found.sorted().rows, right.sorted().rows)


def rng_rows(seed, rows):
    return np.random.default_rng(seed + 1).permutation(rows)


@pytest.mark.parametrize("index", [*RECTANGLES, *FULL])
def test_rectangles_that_are_all_alike(index):
    """Nothing divides them: buckets grow, and the oldest covers all."""
    subs = random_rectangles(np.random.default_rng(0), 1, 3).take(np.zeros(300, np.int64))
    graph = RelationGraph(index)
    made = graph.subscribe(subs)
    assert made.forward.tolist() == [True] + [False] * 299
    exposed, travels = graph.unsubscribe(made.rows[:100])
    assert travels.tolist() == [0]
    assert exposed.tolist() == [100]
    assert graph.check() == []


@pytest.mark.parametrize("index", ["kd-tree", "forest"])
def test_insertions_in_order_do_not_make_a_list_of_a_tree(index):
    n = 20_000
    low = np.arange(n, dtype=float)
    boxes = np.stack([low, low, low + 0.5, low + 0.5], axis=1)
    graph = RelationGraph(index)
    graph.subscribe(SubscriptionTable.from_arrays(boxes, [0] * (n + 1), []))
    assert graph.stats()["depth"] <= 60
    assert graph.stats()["layouts"] == 1
    assert graph.stats()["rebuilt_subtrees"] > 0
    assert len(graph.forwarded) == n
    inner = boxes + np.array([0.1, 0.1, -0.1, -0.1])
    asked = SubscriptionTable.from_arrays(inner, [0] * (n + 1), [])
    assert graph.covering(asked).rows.tolist() == list(range(n))


def test_an_axis_may_come_later():
    graph = RelationGraph("kd-tree")
    wide = SubscriptionTable.from_arrays(
        [[-np.inf] * 2 + [np.inf] * 2], [0, 0], [], ([0, 1], [0], [0.0], [9.0])
    )
    narrow = SubscriptionTable.from_arrays(
        [[0, 0, 1, 1]], [0, 0], [], ([0, 2], [0, 3], [1.0, 0.0], [2.0, 1.0])
    )
    assert graph.subscribe(wide).forward.tolist() == [True]
    assert graph.subscribe(narrow).forward.tolist() == [False]
    assert graph.check() == []


@given(table=tables(8), batch=batches(8))
@examples(200)
def test_who_covers_matches_whatever_the_other_does(table, batch):
    graph = RelationGraph(k=8)
    graph.subscribe(table)
    matched = naive.match(table, batch)
    for row in range(len(table)):
        for above in graph.covers_of(row).tolist():
            assert all(above in found for found in matched if row in found)


def test_a_message_without_the_attribute_tells_open_from_unbounded():
    """A test that any value satisfies still asks for the value."""
    everywhere = [[-np.inf, -np.inf, np.inf, np.inf]] * 2
    subs = SubscriptionTable.from_arrays(everywhere, [0, 0, 0], [], ([0, 1, 1], [0], [-np.inf], [np.inf]))
    for index in (*RECTANGLES, *FULL):
        assert RelationGraph(index).subscribe(subs).forward.tolist() == [True, True]
        assert RelationGraph(index).subscribe(subs.take([1, 0])).forward.tolist() == [True, False]
    batch = MessageBatch.from_arrays([[0, 0]], [0, 0], [], np.array([[np.nan]]))
    assert naive.match(subs, batch) == [{1}]


@pytest.mark.parametrize("index", [*RECTANGLES, *FULL])
def test_nothing_lies_beyond_infinity(index):
    everywhere = [-np.inf, -np.inf, np.inf, np.inf]
    open_end = SubscriptionTable.from_arrays(
        [everywhere] * 2,
        [0, 0, 0],
        [],
        ([0, 1, 2], [0, 0], [np.inf] * 2, [np.inf] * 2, np.array([1, 0], np.uint8)),
    )
    assert RelationGraph(index).subscribe(open_end).forward.tolist() == [True, True]
    nowhere = SubscriptionTable.from_arrays([[np.inf] * 4, everywhere], [0, 0, 0], [])
    assert RelationGraph(index).subscribe(nowhere).forward.tolist() == [True, True]
