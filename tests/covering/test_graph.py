"""The relation graph: what is forwarded, covered, exposed, taken over."""

import os
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from covering.naive_covering import Forwarding, covers
from covering.test_indexes import RECTANGLES, joined, merged, rectangles
from nearcast import (
    Box,
    Circle,
    ColumnError,
    InputError,
    Planar,
    Polygon,
    Subscription,
    SubscriptionTable,
    UnknownError,
    build_index,
)
from nearcast.covering import RelationGraph
from profiles import examples
from strategies import tables


class GraphMachine(RuleBasedStateMachine):
    """One graph, one model; every answer is the model's.

    Rows are used again, so the model speaks of *numbers*: the n-th subscription that ever arrived.
    """

    index = "forest"

    @initialize(k=st.integers(1, 3), take_over=st.booleans())
    def begin(self, k, take_over):
        self.graph = RelationGraph(self.index, k, take_over=take_over)
        self.table = None
        self.known = {}
        self.numbers = {}  # by row, of those that are there
        self.model = Forwarding(self.related, take_over)

    def related(self, a, b):
        if (a, b) not in self.known:
            self.known[a, b] = covers(self.table, a, b)
        return self.known[a, b]

    def more(self, data):
        if self.index in RECTANGLES:
            return merged(data.draw(rectangles(2, 4)))
        return data.draw(tables(4))

    def named(self, rows):
        return {self.numbers[row] for row in rows.tolist()}

    @rule(data=st.data())
    def subscribe(self, data):
        subs = self.more(data)
        first = 0 if self.table is None else len(self.table)
        self.table = subs if self.table is None else joined(self.table, subs)
        made = self.graph.subscribe(subs)
        assert not set(made.rows.tolist()) & set(self.numbers)
        assert len(set(made.rows.tolist())) == len(subs)
        numbers = range(first, first + len(subs))
        self.numbers.update(zip(made.rows.tolist(), numbers))
        old = set(self.model.forwarded)
        withdrawn = set()
        for number in numbers:
            withdrawn |= self.model.subscribe(number)[1]
        assert made.forward.tolist() == [self.model.forwarded[number] for number in numbers]
        assert self.named(made.withdrawn) == withdrawn & old

    @rule(data=st.data())
    def unsubscribe(self, data):
        if not self.numbers:
            return
        rows = sorted(data.draw(st.sets(st.sampled_from(sorted(self.numbers)), max_size=4)))
        before = dict(self.model.forwarded)
        exposed, travels = self.graph.unsubscribe(rows)
        assert self.named(travels) == {self.numbers[row] for row in rows if before[self.numbers[row]]}
        for row in rows:
            self.model.unsubscribe(self.numbers.pop(row))
        assert self.named(exposed) == {
            number for number, state in self.model.forwarded.items() if state and not before[number]
        }

    @rule(data=st.data(), k=st.sampled_from([1, 2, 50]))
    def ask(self, data, k):
        asked = self.more(data)
        before = self.graph.stats()
        found = self.graph.covering(asked, k)
        assert self.graph.stats() == before
        both, first = (asked, 0) if self.table is None else (joined(self.table, asked), len(self.table))
        for query in range(len(asked)):
            right = {number for number in self.numbers.values() if covers(both, number, first + query)}
            got = self.named(found.rows[found.offsets[query] : found.offsets[query + 1]])
            assert len(got) == found.offsets[query + 1] - found.offsets[query] == min(k, len(right))
            assert got <= right

    @rule()
    def rest(self):
        with TemporaryDirectory() as directory:
            self.graph = RelationGraph.open(self.graph.save(Path(directory) / "graph"), verify=True)

    @invariant()
    def forwarded_are_those_of_the_model(self):
        assert self.named(self.graph.forwarded) == {
            number for number, state in self.model.forwarded.items() if state
        }
        assert len(self.graph) == len(self.model.forwarded)
        assert self.graph.check() == []


@pytest.mark.parametrize("index", ["forest", "clause-scan", *RECTANGLES])
def test_machine(index, monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda file: None)  # many saves, none of which has to survive
    machine = type("Machine", (GraphMachine,), {"index": index})
    run_state_machine_as_test(machine, settings=examples(25, stateful_step_count=15))


def table(*subscriptions):
    return SubscriptionTable.from_subscriptions(subscriptions)


class TestFigure1:
    """Theorem 1 and the algorithm on subscriptions that contain each other."""

    def nested(self, sizes):
        boxes = [[-size, -size, size, size] for size in sizes]
        return SubscriptionTable.from_arrays(boxes, [0] * (len(sizes) + 1), [])

    def test_each_new_one_is_covered_by_an_older_one(self):
        graph = RelationGraph("kd-tree", k=2)
        assert graph.subscribe(self.nested([9, 5, 3])).forward.tolist() == [True, False, False]
        assert graph.covers_of(2).tolist() in ([0, 1], [1, 0])

    def test_a_wide_one_that_comes_late_is_forwarded_too(self):
        graph = RelationGraph()
        assert graph.subscribe(self.nested([1, 9])).forward.tolist() == [True, True]

    def test_unless_it_takes_over(self):
        graph = RelationGraph(take_over=True)
        graph.subscribe(self.nested([1]))
        made = graph.subscribe(self.nested([9]))
        assert made.forward.tolist() == [True]
        assert made.withdrawn.tolist() == [0]
        assert graph.unsubscribe([1]).exposed.tolist() == [0]

    def test_two_of_the_same_never_wait_for_each_other(self):
        graph = RelationGraph()
        graph.subscribe(self.nested([9, 1, 1]))
        exposed, travels = graph.unsubscribe([0])
        assert (exposed.tolist(), travels.tolist()) == ([1], [0])
        assert graph.check() == []

    def test_queries_of_g_1_are_at_most_twice_the_least(self):
        """Lemma 1: an unsubscription asks once or less on average, when leavers are random."""
        rng = np.random.default_rng(3)
        n = 4000
        ends = np.sort(rng.random((n, 2, 2)), axis=2)
        boxes = np.concatenate([ends[:, :, 0], ends[:, :, 1]], axis=1)
        graph = RelationGraph("kd-tree")
        rows = graph.subscribe(SubscriptionTable.from_arrays(boxes, [0] * (n + 1), [])).rows
        leavers = rng.permutation(rows)[:2000]
        graph.unsubscribe(leavers)
        assert graph.stats()["queries_subscribe"] == n
        assert 0 < graph.stats()["queries_unsubscribe"] <= 1.1 * len(leavers)


class TestPlaces:
    def forwards(self, *regions, index="forest"):
        subs = table(*(Subscription(i, "coffee", region) for i, region in enumerate(regions)))
        return RelationGraph(index).subscribe(subs).forward.tolist()

    @pytest.mark.parametrize("index", ["forest", "clause-scan"])
    def test_circles(self, index):
        wide, near = Circle(lon=0, lat=0, radius=5000), Circle(lon=0.01, lat=0, radius=3000)
        assert self.forwards(wide, near, index=index) == [True, False]
        assert self.forwards(near, wide, index=index) == [True, True]
        assert self.forwards(wide, wide, index=index) == [True, False]
        assert self.forwards(wide, Circle(lon=0.01, lat=0, radius=4900), index=index) == [True, True]
        assert self.forwards(wide, Box(-0.01, -0.01, 0.01, 0.01), index=index) == [True, False]
        assert self.forwards(wide, Box(-0.04, -0.04, 0.04, 0.04), index=index) == [True, True]
        assert self.forwards(Box(-0.1, -0.1, 0.1, 0.1), wide, index=index) == [True, False]

    @pytest.mark.parametrize("index", ["forest", "clause-scan"])
    def test_polygons(self, index):
        hull = Polygon("POLYGON ((0 0, 8 0, 8 8, 0 8, 0 0))")
        holed = Polygon("POLYGON ((0 0, 8 0, 8 8, 0 8, 0 0), (3 3, 5 3, 5 5, 3 5, 3 3))")
        inner, hidden = Polygon("POLYGON ((1 1, 2 1, 1 2, 1 1))"), Box(3.5, 3.5, 4.5, 4.5)
        assert self.forwards(hull, inner, index=index) == [True, False]
        assert self.forwards(hull, holed, index=index) == [True, False]
        assert self.forwards(holed, hull, index=index) == [True, True]
        assert self.forwards(holed, inner, hidden, index=index) == [True, False, True]
        assert self.forwards(hull, hidden, index=index) == [True, False]
        assert self.forwards(hull, Circle(lon=4, lat=4, radius=100_000), index=index) == [True, False]
        assert self.forwards(holed, Circle(lon=4, lat=4, radius=1000), index=index) == [True, True]

    def test_polygons_that_leave_expose_others(self):
        hull = Polygon("POLYGON ((0 0, 8 0, 8 8, 0 8, 0 0))")
        inner = Polygon("POLYGON ((1 1, 6 1, 1 6, 1 1))")
        subs = table(
            Subscription("a", "coffee", hull),
            Subscription("b", "coffee", inner),
            Subscription("c", "coffee AND tea", Box(1, 1, 2, 2)),
            Subscription("d", "coffee AND tea", Box(7, 7, 7.5, 7.5)),
        )
        graph = RelationGraph()
        assert graph.subscribe(subs).forward.tolist() == [True, False, False, False]
        exposed, travels = graph.unsubscribe([0])
        assert (sorted(exposed.tolist()), travels.tolist()) == ([1, 3], [0])
        assert graph.check() == []

    def test_a_circle_at_the_pole_and_all_longitudes(self):
        cap = Circle(lon=100, lat=80, radius=15 * 111_194.9)
        assert self.forwards(cap, Box(-180, 84, 180, 90)) == [True, True]
        assert self.forwards(Box(-180, 60, 180, 90), cap) == [True, False]

    def test_circles_that_distances_near_the_antipode_cannot_tell_apart(self):
        """They are inside each other by less than what a distance of half the globe errs."""
        outer = Circle(lon=10, lat=31.7183725581192, radius=2_314_803.82912143)
        inner = Circle(lon=10, lat=41.83349876219573, radius=1_190_051.5581868289)
        assert self.forwards(outer, inner) == [True, True]


class TestExpressions:
    @pytest.mark.parametrize(
        ("wide", "narrow", "covered"),
        [
            ("coffee", "coffee AND tea", True),
            ("coffee OR tea", "coffee", True),
            ("coffee OR tea", "(coffee AND milk) OR tea", True),
            ("coffee", "coffee OR tea", False),
            ("coffee NOT decaf", "coffee", False),
            ("coffee NOT decaf", "coffee AND hot NOT decaf", True),
            ("price < 5", "price < 3", True),
            ("price <= 5", "price < 5", True),
            ("price < 5", "price <= 5", False),
            ("price < 5", "coffee", False),
            ("coffee", "coffee AND price < 5", True),
            ('brand = "a" OR brand = "b"', 'brand = "a"', True),
        ],
    )
    def test_an_expression_covers_what_implies_it(self, wide, narrow, covered):
        subs = table(Subscription(1, wide), Subscription(2, narrow))
        assert RelationGraph().subscribe(subs).forward.tolist() == [True, not covered]


class TestErrors:
    def test_rectangles_alone(self):
        with pytest.raises(InputError, match="keywords; take index='forest'"):
            RelationGraph("kd-tree").subscribe(table(Subscription(1, "coffee")))

    def test_unknown_index(self):
        with pytest.raises(UnknownError, match="no index 'tree'; there are forest, kd-tree"):
            RelationGraph("tree")

    def test_k(self):
        with pytest.raises(InputError, match="k must be a whole number from 1, not 0"):
            RelationGraph(k=0)

    @pytest.mark.parametrize("k", [0, 1.5, True])
    def test_k_of_a_question(self, k):
        graph = RelationGraph()
        subs = table(Subscription(1, "coffee"))
        graph.subscribe(subs)
        with pytest.raises(InputError, match="k must be a whole number"):
            graph.covering(subs, k)
        assert (len(graph), graph.check()) == (1, [])

    def test_too_many_axes_change_nothing(self):
        graph = RelationGraph("kd-tree")
        graph.subscribe(intervals(1))
        with pytest.raises(InputError, match="at most 64 axes, not 70"):
            graph.subscribe(intervals(70))
        assert graph.subscribe(intervals(2)).forward.tolist() == [False]
        assert (len(graph), graph.check()) == (2, [])

    def test_another_space_changes_nothing(self):
        plane = SubscriptionTable.from_arrays([[0, 0, 1, 1]], [0, 0], [], space=Planar(0, 0, 9, 9))
        graph = RelationGraph()
        graph.subscribe(SubscriptionTable.empty())  # has no space to speak of
        graph.subscribe(plane)
        with pytest.raises(ColumnError, match="live in"):
            graph.subscribe(SubscriptionTable.from_arrays([[0, 0, 1, 1]], [0, 0], []))
        assert (len(graph), graph.check()) == (1, [])

    def test_nothing(self):
        graph = RelationGraph()
        assert graph.unsubscribe([]).exposed.tolist() == []
        assert graph.check() == []

    def test_rows_that_are_not_there(self):
        graph = RelationGraph()
        graph.subscribe(table(Subscription(1, "coffee")))
        graph.unsubscribe([0])
        for row in (0, 1, -1):
            with pytest.raises(UnknownError, match=f"there is no subscription {row}"):
                graph.unsubscribe([row])

    @pytest.mark.parametrize(
        ("log", "message"),
        [([1], "names no row"), ([0, 0], "row 0 arrives twice"), ([~0, 0], "row 0 leaves before it arrives")],
    )
    def test_logs(self, log, message):
        with pytest.raises((InputError, UnknownError), match=message):
            RelationGraph().replay(table(Subscription(1, "coffee")), log)


def intervals(attributes):
    """One subscription with a test on each of so many attributes."""
    everywhere = [[-np.inf, -np.inf, np.inf, np.inf]]
    tests = ([0, attributes], np.arange(attributes), np.zeros(attributes), np.ones(attributes))
    return SubscriptionTable.from_arrays(everywhere, [0, 0], [], tests)


def test_subscriptions_of_very_many_clauses():
    """The index grows by what one of them needs, also once its buckets are large."""
    many = " OR ".join(f"w{i}" for i in range(64))
    graph = RelationGraph()
    subs = [Subscription(i, many, Box(170, 0, -170, 10)) for i in range(3)]
    assert graph.subscribe(table(*subs)).forward.tolist() == [True, False, False]
    alike = SubscriptionTable.from_arrays([[0, 0, 9, 9]] * 60, [0] * 61, [], owners=np.zeros(60, np.int32))
    other = RelationGraph()
    for number in range(4):
        assert other.subscribe(alike).forward.tolist() == [number == 0]
    assert graph.check() == other.check() == []


@pytest.mark.parametrize("index", ["forest", "clause-scan"])
@pytest.mark.parametrize("gone", [1, 2])
def test_who_asks_for_nothing_covers_nothing_and_is_forwarded(index, gone):
    whole = build_index(
        "scan", SubscriptionTable.from_arrays([[0, 0, 9, 9], [1, 1, 2, 2], [0, 0, 5, 5]], [0] * 4, [])
    )
    whole.remove([gone])
    graph = RelationGraph(index)
    assert graph.subscribe(whole.table).forward.tolist() == [row in (0, gone) for row in range(3)]
    graph.unsubscribe([gone])
    assert graph.check() == []


def test_an_index_of_points_that_are_much_alike_is_not_built_anew_at_every_call():
    rng = np.random.default_rng(0)

    def alike(n, attributes=16):
        low, high = np.zeros((n, attributes)), np.ones((n, attributes))
        rows, which, value = np.arange(n), rng.integers(0, attributes, n), rng.random(n) * 0.5
        lower = rng.random(n) < 0.5
        low[rows[lower], which[lower]] = value[lower]
        high[rows[~lower], which[~lower]] = 1 - value[~lower]
        tests = (
            np.arange(n + 1) * attributes,
            np.tile(np.arange(attributes, dtype=np.int32), n),
            low.ravel(),
            high.ravel(),
        )
        everywhere = np.tile([-np.inf, -np.inf, np.inf, np.inf], (n, 1))
        return SubscriptionTable.from_arrays(everywhere, [0] * (n + 1), [], tests)

    for index in ("forest", "kd-tree"):
        graph = RelationGraph(index)
        graph.subscribe(alike(3000))
        before = graph.stats()
        for _ in range(20):
            graph.subscribe(alike(1))
        for figure in ("layouts", "rebuilt_subtrees"):
            assert graph.stats()[figure] == before[figure]


def test_rows_of_a_log_that_never_arrive_are_not_there():
    graph = RelationGraph()
    done = graph.replay(table(*(Subscription(i, "coffee") for i in range(3))), [1, 0, ~1])
    assert done.rows.tolist() == [1, 0, -1]
    assert (done.forward.tolist(), done.exposed.tolist(), len(graph)) == ([True, False, True], [1], 1)
    assert graph.check() == []


def test_rows_are_used_again():
    graph = RelationGraph(k=2)
    rng = np.random.default_rng(0)

    def some(n):
        x, y = rng.random(n), rng.random(n)
        boxes = np.stack([x, y, x + 0.1, y + 0.1], axis=1)
        return SubscriptionTable.from_arrays(boxes, np.arange(n + 1), rng.integers(0, 5, n))

    graph.subscribe(some(500))
    for _ in range(60):
        graph.unsubscribe(graph.subscribe(some(400)).rows[rng.permutation(400)])
    assert (len(graph), graph._store.size, graph._store.rows) == (500, 900, 900)
    assert graph.check() == []
