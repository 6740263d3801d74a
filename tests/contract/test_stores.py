"""What every store of messages answers: exactly what the naive matcher answers, asked the other way round."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import naive
from answers import answers
from nearcast import (
    EVERYWHERE,
    Box,
    Circle,
    Message,
    MessageBatch,
    Planar,
    Point,
    Polygon,
    Subscription,
    SubscriptionTable,
    build_store,
    config,
)
from nearcast.columns import NEVER
from nearcast.columns.coding import Coding
from nearcast.errors import ColumnError, InputError, UnknownError
from nearcast.matching import STORES
from profiles import examples, without_rivals
from strategies import batches, messages, ragged, subscriptions, tables

ALL = sorted(STORES)
TIMES = st.sampled_from([-5, 0, 1, 2, 3, NEVER])


@pytest.fixture(params=without_rivals(STORES))
def name(request):
    return request.param


def asked(table, batch, now=None):
    """Return the set of message rows that each subscription matches, by the naive matcher."""
    found = [set() for _ in range(table.size)]
    for message, rows in enumerate(naive.match(table, batch)):
        if now is None or batch.expires_at[message] > now:
            for row in rows:
                found[row].add(message)
    return found


def points(n, **columns):
    """n messages at the origin, without keywords."""
    return MessageBatch.from_arrays(np.zeros((n, 2)), [0] * (n + 1), [], **columns)


def square(n=1):
    """n subscriptions to the unit square, without keywords."""
    return SubscriptionTable.from_arrays([[0, 0, 1, 1]] * n, [0] * (n + 1), [])


@pytest.mark.parametrize("name", ALL)
@given(
    table=tables(), batch=batches(), now=st.none() | TIMES.filter(lambda time: time < NEVER), data=st.data()
)
def test_equals_naive_on_columns(name, table, batch, now, data):
    ends = [data.draw(TIMES) for _ in range(batch.size)]
    batch = replace(batch, expires_at=np.array(ends, np.int64))
    store = build_store(name, batch)
    expected = asked(table, batch, now)
    assert answers(store, table, now=now) == expected
    assert store.check() == []
    assert answers(store, table, now=now) == expected, "what was removed on the way had expired"
    if now is not None:
        store.expire(now)
        assert len(store) == sum(end > now for end in ends)
        assert answers(store, table) == expected


@pytest.mark.parametrize("name", ALL)
@given(data=st.data())
def test_equals_naive_on_objects(name, data):
    """Circles, polygons and boxes across the antimeridian, words and values that nobody had asked for before."""
    msgs = [data.draw(messages(id=i)) for i in range(data.draw(st.integers(1, 5)))]
    subs = [data.draw(subscriptions(id=i)) for i in range(data.draw(st.integers(1, 4)))]
    like = Coding.new()
    store = build_store(name, MessageBatch.from_messages(msgs[:2], like=like, learn=True))
    store.insert(MessageBatch.from_messages(msgs[2:], like=like, learn=True))
    table = SubscriptionTable.from_subscriptions(subs, like=store)
    expected = [{i for i, message in enumerate(msgs) if naive.wants(sub, message)} for sub in subs]
    assert answers(store, table) == expected
    assert store.check() == []


@pytest.mark.parametrize("name", ALL)
@examples(30)
@given(first=batches(), second=batches(), third=batches(), table=tables(), data=st.data())
def test_rows_are_given_out_again(name, first, second, third, table, data):
    """Inserts and removals in turn: rows are reused, none moves, and the answers are those of what is there."""
    store = build_store(name, first)
    there = dict(enumerate((first, row) for row in range(first.size)))
    most = first.size
    for batch in (second, third):
        gone = data.draw(st.sets(st.sampled_from(sorted(there)))) if there else set()
        store.remove(sorted(gone))
        for row in gone:
            del there[row]
        rows = store.insert(batch).tolist()
        assert not set(rows) & set(there)
        there |= {row: (batch, i) for i, row in enumerate(rows)}
        most = max(most, len(there))
        assert store.rows.size == most
        assert len(store) == len(there)
    wanted = {id(batch): naive.match(table, batch) for batch in (first, second, third)}
    expected = [
        {row for row, (batch, i) in there.items() if sub in wanted[id(batch)][i]} for sub in range(table.size)
    ]
    assert answers(store, table) == expected
    assert store.check() == []


def test_the_instant_of_expiry(name):
    """A message is valid before its end, and not at it."""
    for now, there in ((9, {0, 1, 2}), (10, {1, 2}), (11, {2})):
        store = build_store(name, points(3, expires_at=[10, 11, NEVER]))
        assert answers(store, square(), now=now) == [there]
        assert answers(store, square()) == [there], "the expired ones were met, and removed"
        assert store.stats()["expired"] == 3 - len(there)


def test_expire(name):
    store = build_store(name, points(5, expires_at=[3, 1, NEVER, 2, 1]))
    assert store.expire(0).tolist() == []
    assert store.expire(2).tolist() == [1, 3, 4]
    assert store.expire(2).tolist() == []
    assert answers(store, square()) == [{0, 2}]
    assert sorted(store.insert(points(4)).tolist()) == [1, 3, 4, 5]
    assert store.check() == []


def test_a_sweep_goes_round(name):
    store = build_store(name, points(5, expires_at=[1] * 5))
    assert store.sweep(0, 3).tolist() == []
    assert store.sweep(1, 0).tolist() == []
    assert store.sweep(1, 4).tolist() == [0, 1, 3, 4]  # it went on at row 3
    assert answers(store, square()) == [{2}]
    assert store.sweep(1, 100).tolist() == [2]
    assert store.sweep(1, 100).tolist() == []
    assert len(store) == 0
    assert store.stats()["expired"] == 5
    assert len(build_store(name, points(0)).sweep(1, 5)) == 0


def test_sweeps_bound_the_memory(name):
    """Nobody subscribes, each message lives for ten others: what is kept stays near what is valid."""
    store = build_store(name, points(0))
    for now in range(1_000):
        store.insert(points(1, expires_at=[now + 10]))
        store.sweep(now, config.SWEEP_ROWS)
    assert store.rows.size <= 14
    assert store.rows.rows <= 2 * config.COMPACT_MIN_DEAD
    assert store.check() == []


def test_compaction(name, monkeypatch):
    monkeypatch.setattr(config, "COMPACT_MIN_DEAD", 3)
    rng = np.random.default_rng(2)
    places = rng.random((200, 2))
    words = rng.integers(0, 5, 200)
    store = build_store(name, MessageBatch.from_arrays(places, np.arange(201), words))
    table = SubscriptionTable.from_arrays([[0, 0, 1, 1]] * 5, np.arange(6), np.arange(5))
    gone = rng.permutation(200)[:150]
    for part in np.split(gone, 15):
        store.remove(part)
        assert store.check() == []
    left = np.setdiff1d(np.arange(200), gone)
    assert (store.stats()["compactions"] > 0) == store.structure.lingers
    assert answers(store, table) == [set(left[words[left] == word].tolist()) for word in range(5)]


def test_a_successor_that_is_filled_row_by_row_answers_as_the_first():
    rng = np.random.default_rng(3)
    n, m = 3_000, 100
    values = np.where(rng.random((n, 4)) < 0.3, np.nan, rng.random((n, 4)))
    batch = MessageBatch.from_arrays(rng.random((n, 2)), np.arange(n + 1), rng.integers(0, 3, n), values)
    low, starts = rng.random((m, 2)), rng.random(m)
    table = SubscriptionTable.from_arrays(
        np.hstack([low, low + 0.3]),
        [0] * (m + 1),
        [],
        (np.arange(m + 1), rng.integers(0, 4, m), starts, starts + 0.3),
    )
    store = build_store("mo-tree", batch, subscriptions=table)
    store.remove(np.arange(0, n, 7))
    expected, first = answers(store, table), store.structure
    assert not first.outgrown(config.MO_TREE_GROWTH * n - n)
    assert first.outgrown(config.MO_TREE_GROWTH * n)
    successor = first.successor()
    for row in first.members():
        successor.add(np.array([row]))
    store.structure = successor
    store.insert(points(0))  # publishes
    assert store.check() == []
    assert answers(store, table) == expected
    assert store.stats()["directory"] == first.stats()["directory"]
    assert store.stats()["layouts"] == 2
    assert sum(map(len, expected)) > m


def test_more_expired_than_are_noted(name, monkeypatch):
    """What a search cannot note is left for the next one."""
    monkeypatch.setattr(config, "STORE_EXPIRED_NOTED", 4)
    store = build_store(name, points(10, expires_at=[1] * 9 + [2]))
    for _ in range(9):
        assert answers(store, square(), now=1) == [{9}]
    assert answers(store, square(3), now=2) == [set()] * 3
    store.expire(2)
    assert len(store) == 0
    assert store.check() == []


def test_values(name):
    """Attributes that a message lacks, and that none has; ends open and closed; negated tests."""
    batch = MessageBatch.from_arrays(
        [[0, 0]] * 4, [0] * 5, [], [[1, np.nan, 5], [2, 7, np.nan], [np.nan] * 3, [3, 7, 5]]
    )
    tests = [
        ([(0, 1, 2, 0)], {0, 1}),
        ([(0, 1, 2, 1)], {1}),
        ([(0, 1, 2, 2)], {0}),
        ([(0, 1, 2, 4)], {3}),
        ([(0, 1, 3, 7)], {0, 3}),  # outside of the open interval: its ends
        ([(1, 7, 7, 0), (2, 5, 5, 0)], {3}),
        ([(9, -np.inf, np.inf, 0)], set()),
        ([(9, 0, 0, 4)], set()),
        ([(2, -np.inf, np.inf, 0)], {0, 3}),
        ([], {0, 1, 2, 3}),
    ]
    flat = [test for row, _ in tests for test in row]
    intervals = (
        np.cumsum([0] + [len(row) for row, _ in tests]),
        np.array([t[0] for t in flat], np.int32),
        np.array([t[1] for t in flat], float),
        np.array([t[2] for t in flat], float),
        np.array([t[3] for t in flat], np.uint8),
    )
    table = SubscriptionTable.from_arrays([[0, 0, 0, 0]] * len(tests), [0] * (len(tests) + 1), [], intervals)
    assert answers(build_store(name, batch), table) == [expected for _, expected in tests]


def test_words(name):
    batch = MessageBatch.from_arrays([[0, 0]] * 3, *ragged([[3, 5, 2**31 - 1], [], list(range(0, 80, 2))]))
    table = SubscriptionTable.from_arrays(
        [[0, 0, 0, 0]] * 5,
        *ragged([[], [3, 5], [2, 78], [3, 4], [2**31 - 1]]),
        forbidden=ragged([[3], [], [], [], []]),
    )
    assert answers(build_store(name, batch), table) == [{1, 2}, {0}, {2}, set(), {0}]


@pytest.mark.parametrize(
    ("region", "who"),
    [
        (Box(175, -20, -175, -15), {"dateline", "other name", "strait", "disc"}),
        (Circle(lon=179.9, lat=-17, radius=50_000), {"dateline", "other name", "strait", "disc"}),
        (Polygon("POLYGON ((0 0, 10 0, 0 10, 0 0))"), {"edge", "corner"}),
        (Box(6, 6, 9, 9), {"in the box only"}),
        (Circle(lon=5, lat=5, radius=0), {"edge"}),
        (EVERYWHERE, {"dateline", "other name", "strait", "disc", "edge", "corner", "in the box only"}),
    ],
)
def test_shapes(name, region, who):
    msgs = [
        Message("dateline", "surf", Point(lon=180, lat=-17)),
        Message("other name", "surf", Point(lon=-180, lat=-17)),
        Message("strait", "surf", Box(179, -18, -179, -17)),
        Message("disc", "surf", Circle(lon=-179.9, lat=-17, radius=1_000)),
        Message("edge", "surf", Point(lon=5, lat=5)),
        Message("corner", "surf", Polygon("POLYGON ((-1 -1, 0 -1, 0 0, -1 -1))")),
        Message("in the box only", "surf", Point(lon=7, lat=7)),
    ]
    like = Coding.new()
    store = build_store(name, MessageBatch.from_messages(msgs, like=like, learn=True))
    table = SubscriptionTable.from_subscriptions([Subscription(1, "surf OR swim", region)], like=store)
    assert {msgs[row].id for row in answers(store, table)[0]} == who
    store.remove([2, 3, 5])  # the areas; what is left has no shapes
    assert {msgs[row].id for row in answers(store, table)[0]} == who - {"strait", "disc", "corner"}


def test_boundaries_that_float32_rounds(name):
    places = [[0.1, 0.1], [np.nextafter(0.1, 0), 0.3], [0.7, 0.7], [np.nextafter(0.7, 1), 0.3]]
    store = build_store(name, MessageBatch.from_arrays(places, [0] * 5, []))
    table = SubscriptionTable.from_arrays([[0.1, 0.1, 0.7, 0.7]], [0, 0], [])
    assert answers(store, table) == [{0, 2}]


def test_nothing_stored_and_nothing_asked(name):
    store = build_store(name, points(0))
    assert len(store) == 0
    assert answers(store, square(2)) == [set(), set()]
    assert answers(store, square(0), now=3) == []
    assert store.insert(points(0)).tolist() == []
    store.remove([])
    assert store.insert(points(2)).tolist() == [0, 1]
    assert answers(store, square(0)) == []
    assert answers(store, square(2)) == [{0, 1}] * 2
    without_clauses = replace(square(1), size=3)  # a subscription without clauses wants nothing
    assert answers(store, without_clauses) == [{0, 1}, set(), set()]


def test_threads_and_chunks_change_nothing(name, monkeypatch):
    rng = np.random.default_rng(5)
    n, m = 300, 200
    table = SubscriptionTable.from_arrays(
        np.sort(rng.random((n, 2, 2)), axis=1).reshape(n, 4), np.arange(n + 1), rng.integers(0, 4, n)
    )
    batch = MessageBatch.from_arrays(
        rng.random((m, 2)),
        np.arange(m + 1) * 3,
        rng.integers(0, 4, 3 * m),
        expires_at=rng.integers(0, 10, m),
    )
    expected = asked(table, batch, 5)
    monkeypatch.setattr(config, "MATCH_CHUNK", 64)
    for threads in (1, 3):
        store = build_store(name, batch)
        assert answers(store, table, now=5, threads=threads) == expected
        assert store.check() == []


def test_more_matches_than_the_buffer_holds(name):
    n = 20_000
    store = build_store(name, points(n, expires_at=np.arange(n) % 2 + 1))
    assert store.match(square(2), now=1).counts.tolist() == [n // 2] * 2


def test_wrong_arguments(name):
    store = build_store(name, points(2))
    with pytest.raises(ColumnError, match="SubscriptionTable"):
        store.match("coffee")
    with pytest.raises(ColumnError, match="another vocabulary"):
        store.match(SubscriptionTable.from_subscriptions([Subscription(1, "tea")]))
    with pytest.raises(ColumnError, match="threads must be a whole number from 1, not 0"):
        store.match(square(), threads=0)
    for now in (1.5, "2026-01-01T00:00:00Z", True, 2**63 - 1):
        for call in (store.expire, lambda now: store.match(square(), now), lambda now: store.sweep(now, 1)):
            with pytest.raises(ColumnError, match="microseconds"):
                call(now)
    with pytest.raises(InputError, match="limit must be a whole number from 0, not -1"):
        store.sweep(1, -1)
    with pytest.raises(ColumnError, match="MessageBatch"):
        store.insert(square())
    other = MessageBatch.from_messages([], like=Coding.new())
    with pytest.raises(ColumnError, match=r"like=store"):
        store.insert(other)
    with pytest.raises(ColumnError, match="Planar"):
        store.insert(points(1, space=Planar(0, 0, 9, 9)))
    with pytest.raises(UnknownError, match="row 7"):
        store.remove([7])
    store.remove([0])
    with pytest.raises(UnknownError, match="row 0 holds no message"):
        store.remove([1, 0])
    with pytest.raises(ColumnError, match="twice"):
        store.remove([1, 1])
    assert len(store) == 1
    assert store.check() == []


def test_building_by_name():
    with pytest.raises(UnknownError, match=r"there is no store 'quantum'; there are .*scan"):
        build_store("quantum", points(1))
    with pytest.raises(UnknownError, match="built over a MessageBatch"):
        build_store("scan", square())
    with pytest.raises(UnknownError, match="no parameter 'depth'; it has none"):
        build_store("scan", points(1), depth=3)
    with pytest.raises(UnknownError, match="sample of subscriptions"):
        build_store("scan", points(1), subscriptions=SubscriptionTable.from_subscriptions([]))
    assert build_store(points(1)).name == config.DEFAULT_STORE
    assert repr(build_store("scan", points(1))) == "<MessageStore scan of 1 message>"


def test_spaces_do_not_mix(name):
    store = build_store(name, points(1))
    plane = Planar(0, 0, 9, 9)
    assert answers(store, replace(square(), coding=Coding(space=plane))) == [{0}]
    circle = SubscriptionTable.from_subscriptions(
        [Subscription(1, None, Circle(x=1, y=1, radius=3, space=plane))]
    )
    with pytest.raises(ColumnError, match="Planar"):
        store.match(replace(circle, coding=Coding(space=plane)))
