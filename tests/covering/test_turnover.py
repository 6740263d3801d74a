"""Subscriptions that come and go all the time: rows are used again, memory is bounded, and answers stay right."""

import numpy as np
import pytest

from covering.naive_covering import Forwarding, covers
from covering.test_indexes import FULL, RECTANGLES, joined, random_rectangles
from crowds import random_table
from nearcast import Circle, ColumnError, InputError, Planar, Polygon, Subscription, SubscriptionTable
from nearcast.covering import RelationGraph

LIVING = 60


def pool(index, n=150):
    """Contents that many subscriptions share: some cover each other, some are the same."""
    rng = np.random.default_rng(1)
    if index in RECTANGLES:
        return random_rectangles(rng, n, 2, steps=5)
    wide = random_table(rng, n)
    return joined(wide, wide.take(np.arange(0, n, 3)))


@pytest.mark.parametrize("take_over", [False, True])
@pytest.mark.parametrize("index", [*RECTANGLES, *FULL])
def test_a_long_life(index, take_over, tmp_path):
    """Every answer is that of the model, which knows each subscription by the number of its arrival."""
    rng = np.random.default_rng(7)
    contents = pool(index)
    size = len(contents)
    related = [[covers(contents, a, b) for b in range(size)] for a in range(size)]
    content_of = []  # by number
    model = Forwarding(lambda a, b: related[content_of[a]][content_of[b]], take_over)
    graph = RelationGraph(index, int(rng.integers(1, 3)), take_over=take_over)
    numbers = {}  # by row
    for turn in range(1500):
        if len(numbers) < LIVING or rng.random() < 0.5:
            content = int(rng.integers(size))
            content_of.append(content)
            made = graph.subscribe(contents.take([content]))
            (row,), number = made.rows.tolist(), len(content_of) - 1
            assert row not in numbers
            numbers[row] = number
            forward, withdrawn = model.subscribe(number)
            assert made.forward.tolist() == [forward]
            assert {numbers[one] for one in made.withdrawn.tolist()} == withdrawn
        else:
            row = list(numbers)[int(rng.integers(len(numbers)))]
            exposed, travels = graph.unsubscribe([row])
            left, shown = model.unsubscribe(numbers.pop(row))
            assert bool(len(travels)) == left
            assert {numbers[one] for one in exposed.tolist()} == shown
        if turn % 10 == 0:
            asked = rng.integers(0, size, 3)
            found = graph.covering(contents.take(asked), 2)
            for i, one in enumerate(asked.tolist()):
                right = {row for row, number in numbers.items() if related[content_of[number]][one]}
                got = found.rows[found.offsets[i] : found.offsets[i + 1]].tolist()
                assert len(got) == len(set(got)) == min(2, len(right))
                assert set(got) <= right
        if turn % 250 == 249:
            assert graph.check() == []
            graph = RelationGraph.open(graph.save(tmp_path / f"graph-{turn}"), verify=True)
    assert graph._store.size < 3 * LIVING < len(content_of)
    assert graph.stats()["layouts"] <= 2


@pytest.mark.parametrize("index", [*RECTANGLES, "forest"])
def test_memory_is_bounded(index):
    """After many pairs there is no more memory in use than after some."""
    rng = np.random.default_rng(3)
    some = (
        (lambda n: random_rectangles(rng, n, 2)) if index in RECTANGLES else (lambda n: random_table(rng, n))
    )
    graph = RelationGraph(index)
    graph.subscribe(some(1000))
    levels = []
    for _ in range(12):
        for _ in range(5):
            rows = graph.subscribe(some(500)).rows
            graph.unsubscribe(rng.permutation(rows)[:250])
            graph.unsubscribe(rng.permutation(np.flatnonzero(graph._store.present))[:250])
        levels.append(sum(graph.stats()["memory"].values()))
    assert levels[-1] <= 1.05 * levels[3]
    assert len(graph) == 1000
    assert graph._store.size <= 1500
    assert graph.check() == []


def shape_of(graph):
    """Everything that a question must not touch."""
    store = graph._store
    sizes = (store.size, store.rows, len(store), store.living) if store is not None else ()
    words = (
        () if store is None else (len(store.vocabulary), len(store.attributes), len(store.attributes.strings))
    )
    return sizes, words, graph.stats(), graph._arrivals


class TestQuestions:
    def graph(self):
        graph = RelationGraph()
        hull = Polygon("POLYGON ((0 0, 8 0, 8 8, 0 8, 0 0))")
        subs = [
            Subscription("a", "coffee"),
            Subscription("b", "tea AND price < 5"),
            Subscription("c", 'brand != "x" NOT decaf', hull),
            Subscription("d", "milk", Circle(lon=0, lat=0, radius=5000)),
        ]
        graph.subscribe(SubscriptionTable.from_subscriptions(subs))
        return graph

    def asked(self, graph, expression, region=None):
        one = Subscription("q", expression, *([] if region is None else [region]))
        found = graph.covering(SubscriptionTable.from_subscriptions([one]), 9)
        return sorted(found.rows.tolist())

    def test_words_that_nobody_asked_for(self):
        graph = self.graph()
        before = shape_of(graph)
        assert self.asked(graph, "coffee AND unheard") == [0]
        assert self.asked(graph, "unheard") == []
        assert self.asked(graph, "coffee NOT unheard") == [0]
        assert self.asked(graph, "tea AND price < 3 AND weight > 7") == [1]
        assert self.asked(graph, "tea AND weight < 3") == []
        area = Polygon("POLYGON ((1 1, 2 1, 1 2, 1 1))")
        assert self.asked(graph, 'brand = "unheard" NOT decaf', area) == [2]
        assert self.asked(graph, 'brand = "x" NOT decaf', area) == []
        assert self.asked(graph, 'brand != "unheard" NOT decaf', area) == []
        assert self.asked(graph, "milk AND foam", Circle(lon=0, lat=0, radius=50)) == [3]
        assert shape_of(graph) == before

    def test_ten_thousand_leave_everything_as_it_was(self):
        graph = self.graph()
        before = shape_of(graph)
        many = SubscriptionTable.from_subscriptions(
            [Subscription(i, f"coffee AND w{i} AND a{i % 50} < 3") for i in range(10_000)]
        )
        assert graph.covering(many).rows.tolist() == [0] * 10_000
        for i in range(100):
            assert graph.covering(many.take([i])).rows.tolist() == [0]
        assert shape_of(graph) == before
        assert graph.check() == []

    @pytest.mark.parametrize(
        ("question", "error"),
        [
            (SubscriptionTable.from_arrays([[0, 0, 1, 1]], [0, 1], [7]), ColumnError),
            (
                SubscriptionTable.from_arrays([[0, 0, 1, 1]], [0, 0], [], space=Planar(0, 0, 9, 9)),
                ColumnError,
            ),
            ("coffee", InputError),
        ],
    )
    def test_one_that_raises_does_so_too(self, question, error):
        graph = self.graph()
        before = shape_of(graph)
        with pytest.raises(error):
            graph.covering(question)
        assert shape_of(graph) == before

    def test_a_graph_without_subscriptions(self):
        graph = RelationGraph()
        one = SubscriptionTable.from_subscriptions([Subscription(1, "coffee")])
        assert graph.covering(one).offsets.tolist() == [0, 0]
        assert graph._store is None
        row = graph.subscribe(one).rows
        graph.unsubscribe(row)
        assert graph.covering(one).offsets.tolist() == [0, 0]

    def test_axes_that_no_rectangle_has(self):
        graph = RelationGraph("kd-tree")
        everywhere = [[-np.inf, -np.inf, np.inf, np.inf]]
        graph.subscribe(SubscriptionTable.from_arrays(everywhere, [0, 0], [], ([0, 1], [0], [0.0], [9.0])))
        axes = list(graph._index.rectangles.axes)
        tests = (np.array([0, 100]), np.arange(100), np.full(100, 1.0), np.full(100, 2.0))
        asked = SubscriptionTable.from_arrays([[0, 0, 1, 1]], [0, 0], [], tests)
        assert graph.covering(asked).rows.tolist() == [0]
        assert graph._index.rectangles.axes == axes
        with pytest.raises(InputError, match="keywords; take index='forest'"):
            graph.covering(SubscriptionTable.from_arrays(everywhere, [0, 1], [3]))
