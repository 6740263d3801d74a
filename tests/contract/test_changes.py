"""Insert, remove and move: the index that changed equals the index that was built so."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import naive
from answers import answers
from nearcast import (
    Box,
    Circle,
    Message,
    MessageBatch,
    Planar,
    Point,
    Subscription,
    SubscriptionTable,
    build_index,
)
from nearcast.errors import ColumnError, UnknownError
from nearcast.matching import INDEXES
from profiles import is_rival
from strategies import batches, tables

ALL = sorted(INDEXES)


@pytest.mark.parametrize("name", ALL)
@given(table=tables(), batch=batches())
def test_build_equals_inserts_one_by_one(name, table, batch):
    built = build_index(name, table)
    grown = build_index(name, table.take([]))
    for row in range(table.size):
        assert grown.insert(table.take([row])).tolist() == [row]
    assert answers(grown, batch) == answers(built, batch)
    assert len(grown) == len(built) == table.size
    assert grown.check() == []


@pytest.mark.parametrize("name", ALL)
@given(table=tables(), batch=batches(), data=st.data())
def test_remove(name, table, batch, data):
    index = build_index(name, table)
    gone = data.draw(st.sets(st.integers(0, table.size - 1)) if table.size else st.just(set()))
    index.remove(sorted(gone))
    assert answers(index, batch) == [rows - gone for rows in naive.match(table, batch)]
    assert len(index) == table.size - len(gone)
    assert index.check() == []


def words(n=1):
    return SubscriptionTable.from_arrays([[0, 0, 1, 1]] * n, np.arange(n + 1), np.zeros(n, np.int32))


HERE = MessageBatch.from_arrays([[0.5, 0.5]], [0, 1], [0])
THERE = MessageBatch.from_arrays([[7.5, 7.5]], [0, 1], [0])


def test_rows_are_given_out_again(name):
    """The others keep theirs, and a subscription that takes a row over has nothing of the one before."""
    index = build_index(name, words(3))
    index.remove([1])
    elsewhere = SubscriptionTable.from_arrays([[7, 7, 8, 8], [0, 0, 8, 8]], [0, 1, 2], [0, 0])
    assert index.insert(elsewhere).tolist() == [1, 3]
    assert answers(index, HERE) == [{0, 2, 3}]
    assert answers(index, THERE) == [{1, 3}]
    index.remove([0, 3])
    assert sorted(index.insert(words(3)).tolist()) == [0, 3, 4]
    assert answers(index, HERE) == [{0, 2, 3, 4}]
    assert answers(index, THERE) == [{1}]
    assert index.check() == []


def test_ids_follow_their_rows(name):
    def named(*ids):
        return SubscriptionTable.from_arrays(
            [[0, 0, 1, 1]] * len(ids), [0] * (len(ids) + 1), [], ids=list(ids)
        )

    index = build_index(name, named("a", "b", "c"))
    index.remove([1])
    assert index.insert(named("d", "e")).tolist() == [1, 3]
    index.remove([0])
    assert index.insert(named("f")).tolist() == [0]
    assert index.table.ids.to_pylist() == ["f", "d", "c", "e"]
    index.remove([2])
    index.insert(named("g"))
    assert index.table.ids.to_pylist() == ["f", "d", "g", "e"]


def test_move_with_a_box(name):
    index = build_index(name, words(3))
    index.move(1, [7, 7, 8, 8])
    assert answers(index, HERE) == [{0, 2}]
    assert answers(index, THERE) == [{1}]
    index.move(1, np.array([0, 0, 9, 9]))
    assert answers(index, HERE) == [{0, 1, 2}]
    assert answers(index, THERE) == [{1}]
    assert index.check() == []


def test_move_between_shapes(name):
    """From a circle to a box across the antimeridian, with two clauses, and back."""
    subs = [Subscription("a", "tea OR milk", Circle(lon=0, lat=0, radius=1000)), Subscription("b", "tea")]
    table = SubscriptionTable.from_subscriptions(subs)
    index = build_index(name, table)

    def at(lon, lat, text="tea and milk"):
        batch = MessageBatch.from_messages([Message(1, text, Point(lon=lon, lat=lat))], like=table)
        return answers(index, batch)[0]

    assert at(0, 0) == {0, 1}
    index.move(0, Box(170, -10, -170, 10))
    assert at(0, 0) == {1}
    assert at(175, 0) == at(-175, 0) == at(180, 0) == {0, 1}
    assert at(175, 0, "milk") == {0}
    index.move(0, Circle(lon=10, lat=10, radius=50_000))
    assert at(175, 0) == {1}
    assert at(10.1, 10.1) == {0, 1}
    assert at(10.4, 10.4) == {1}  # in the circle's box only
    assert index.check() == []


def test_moving_does_not_multiply_clauses(name):
    index = build_index(name, SubscriptionTable.from_subscriptions([Subscription("a", "tea OR milk")]))
    for _ in range(3):
        index.move(0, Box(170, 0, -170, 1))
        assert index.stats()["clauses"] == 4  # two conjunctions, two boxes
    index.move(0, Box(0, 0, 1, 1))
    assert index.stats()["clauses"] == 2
    assert index.table.to_subscriptions()[0].region == Box(0, 0, 1, 1)


PRODUCT = [name for name in ALL if not is_rival(INDEXES, name)]
# Their lists belong to places and have room for what comes: they follow where subscriptions are, and then stay.
FOLLOWING = {"ap-tree": 1.02, "mo-tree": 1.1}


@pytest.mark.parametrize("name", PRODUCT)
def test_a_move_overwrites_in_place(name):
    """Moves that keep the clauses take no rows and no memory: 5,000 of them after another 5,000; all stays sound."""
    rng = np.random.default_rng(3)
    n = 1_000
    offsets, lows = np.arange(n + 1), rng.uniform(0, 0.5, n)
    table = SubscriptionTable.from_arrays(
        _drawn_boxes(rng, n),
        2 * offsets,
        np.sort(rng.integers(0, 60, (n, 2))).ravel(),
        (offsets, rng.integers(0, 3, n), lows, lows + 0.4),
    )
    index, figures = build_index(name, table), []
    for _ in range(2):
        for _ in range(500):
            index.move(rng.choice(n, 10, replace=False), _drawn_boxes(rng, 10))
        assert index.check() == []
        figures.append(index.stats())
    before, after = figures
    assert after["free_clauses"] == before["free_clauses"] == 0
    assert index.store.rows == n
    own = "bytes_of_structure"
    assert after["bytes"] - after[own] == before["bytes"] - before[own]
    assert after[own] <= before[own] * FOLLOWING.get(name, 1)
    batch = MessageBatch.from_arrays(
        rng.uniform(0, 92, (200, 2)), np.arange(201) * 30, rng.integers(0, 60, 6_000), rng.random((200, 3))
    )
    assert answers(index, batch) == naive.match(index.table, batch)
    assert any(answers(index, batch))


def _drawn_boxes(rng, n):
    low = rng.uniform(0, 90, (n, 2))
    return np.hstack([low, low + 2])


def test_moving_one_owner_of_different_boxes(name):
    """Rows of arrays may differ in both words and place: all conjunctions move, each once."""
    table = SubscriptionTable.from_arrays(
        [[0, 0, 1, 1], [2, 2, 3, 3], [4, 4, 5, 5]], [0, 1, 2, 3], [0, 1, 0], owners=[0, 0, 0]
    )
    index = build_index(name, table)
    index.move(0, [7, 7, 8, 8])
    batch = MessageBatch.from_arrays(
        [[7.5, 7.5]] * 3 + [[0.5, 0.5], [2.5, 2.5]], np.arange(6), [0, 1, 2, 0, 1]
    )
    assert answers(index, batch) == [{0}, {0}, set(), set(), set()]
    assert index.stats()["clauses"] == 2
    assert index.check() == []


def test_moving_does_not_touch_the_table_it_was_built_from(name):
    table = words(2)
    before = table.clauses.boxes.copy()
    index = build_index(name, table)
    index.move(0, [5, 5, 6, 6])
    index.insert(words(1))
    index.remove([1])
    np.testing.assert_array_equal(table.clauses.boxes, before)
    assert answers(build_index(name, table), HERE) == [{0, 1}]


@pytest.mark.parametrize(
    ("rows", "error", "words_"),
    [
        ([5], UnknownError, "row 5"),
        ([-1], UnknownError, "row -1"),
        ([0, 0], ColumnError, "twice"),
        ([0.5], ColumnError, "integers"),
        ([1, 99], UnknownError, "row 99"),
    ],
)
def test_a_refused_removal_changes_nothing(name, rows, error, words_):
    index = build_index(name, words(2))
    with pytest.raises(error, match=words_):
        index.remove(rows)
    assert answers(index, HERE) == [{0, 1}]
    assert index.check() == []


@pytest.mark.parametrize("table", [None, HERE, {"id": ["a"], "expression": ["*"]}])
def test_what_is_no_table_is_refused(name, table):
    index = build_index(name, words(2))
    with pytest.raises(ColumnError, match="insert takes a SubscriptionTable"):
        index.insert(table)
    assert answers(index, HERE) == [{0, 1}]


def test_a_removed_row_is_gone(name):
    index = build_index(name, words(2))
    index.remove([0])
    for change in (lambda: index.remove([0]), lambda: index.move(0, [0, 0, 1, 1])):
        with pytest.raises(UnknownError, match="row 0"):
            change()


@pytest.mark.parametrize("region", [[1, 1, 0, 0], [0, 0, np.nan, 1], "nowhere", [0, 0, 1]])
def test_a_refused_move_changes_nothing(name, region):
    index = build_index(name, words(2))
    with pytest.raises(ValueError):
        index.move(0, region)
    assert answers(index, HERE) == [{0, 1}]


def test_a_table_with_its_own_vocabulary_is_translated(name):
    first = SubscriptionTable.from_subscriptions([Subscription("a", 'tea AND price < 3 AND brand = "x"')])
    index = build_index(name, first)
    other = SubscriptionTable.from_subscriptions(
        [
            Subscription("b", 'milk AND brand = "y"'),
            Subscription("c", 'tea NOT milk AND brand != "y" AND weight > 1'),
        ]
    )
    index.insert(other)
    here = Point(lon=0, lat=0)
    cases = [
        ("tea", {"price": 1, "brand": "x"}, {"a"}),
        ("milk tea", {"price": 1, "brand": "y"}, {"b"}),
        ("tea", {"price": 5, "brand": "x", "weight": 2}, {"c"}),
        ("tea", {"brand": "z", "weight": 2}, {"c"}),
        ("tea", {"weight": 2}, set()),  # without a brand, brand != "y" does not hold
    ]
    batch = MessageBatch.from_messages(
        [Message(i, *c[:1], here, c[1]) for i, c in enumerate(cases)], like=index.table
    )
    ids = index.table.ids.to_pylist()
    assert [{ids[row] for row in rows} for rows in answers(index, batch)] == [case[2] for case in cases]


def test_bare_codes_and_words_do_not_mix(name):
    index = build_index(name, SubscriptionTable.from_subscriptions([Subscription("a", "tea")]))
    with pytest.raises(ColumnError, match="bare codes"):
        index.insert(SubscriptionTable.from_arrays([[0, 0, 1, 1]], [0, 1], [0], ids=["b"]))
    assert len(index) == 1


def test_a_batch_of_another_vocabulary_is_refused(name):
    """Its codes mean other words; bare codes mean none."""
    index = build_index(name, SubscriptionTable.from_subscriptions([Subscription("a", "tea")]))
    other = SubscriptionTable.from_subscriptions([Subscription("b", "milk")])
    batch = MessageBatch.from_messages([Message(1, "milk", Point(lon=0, lat=0))], like=other)
    for wrong in (batch, batch.take([0]), MessageBatch.from_arrays([[0, 0]], [0, 1], [0])):
        with pytest.raises(ColumnError, match="another vocabulary"):
            index.match(wrong)
    with pytest.raises(ColumnError, match="another vocabulary"):
        build_index(name, words()).match(batch)


def test_spaces_do_not_mix(name):
    index = build_index(name, SubscriptionTable.from_subscriptions([Subscription("a", "tea")]))
    plane = Planar(0, 0, 9, 9)
    with pytest.raises(ColumnError, match="Planar"):
        index.insert(SubscriptionTable.from_subscriptions([Subscription("b", "tea", Box(0, 0, 1, 1, plane))]))
    assert len(index) == 1


@pytest.mark.parametrize(("ids", "message"), [(None, "either all"), ([7], "int64")])
def test_ids_of_another_kind_are_refused(name, ids, message):
    def square(ids):
        return SubscriptionTable.from_arrays([[0, 0, 1, 1]], [0, 0], [], ids=ids)

    index = build_index(name, square(["a"]))
    with pytest.raises(ColumnError, match=message):
        index.insert(square(ids))
    assert len(index) == 1
    assert index.table.ids.to_pylist() == ["a"]


def test_several_clauses_are_one_match_after_inserting(name):
    """An index of single clauses notices when the first subscription with several comes."""
    index = build_index(name, SubscriptionTable.from_subscriptions([Subscription("a", "tea")]))
    index.insert(SubscriptionTable.from_subscriptions([Subscription("b", "tea OR milk")], like=index.table))
    batch = MessageBatch.from_messages([Message(1, "tea milk", Point(lon=0, lat=0))], like=index.table)
    assert answers(index, batch) == [{0, 1}]


def test_turnover_does_not_grow_the_index(name):
    """Ten full turnovers: what was given back is used again, and answers stay right."""
    rng = np.random.default_rng(1)
    n = 4_000

    def generation():
        low = rng.random((n, 2))
        counts = rng.integers(0, 3, n)
        return SubscriptionTable.from_arrays(
            np.hstack([low, low + 0.2]), np.append(0, np.cumsum(counts)), rng.integers(0, 50, counts.sum())
        )

    table = generation()
    index = build_index(name, table)
    rows = np.arange(n)
    sizes = []
    for _ in range(10):
        table = generation()
        fresh = index.insert(table)
        index.remove(rows)
        rows = fresh
        sizes.append(index.stats()["bytes"])
    assert max(sizes[1:]) < 1.5 * sizes[0]
    assert index.store.size == 2 * n  # the newcomers come before the others go
    assert index.check() == []
    batch = MessageBatch.from_arrays(rng.random((50, 2)), np.arange(51) * 8, rng.integers(0, 50, 400))
    fresh_index = build_index(name, table)
    number = {row: i for i, row in enumerate(rows.tolist())}
    assert [{number[row] for row in group} for group in answers(index, batch)] == answers(fresh_index, batch)


def test_the_grid_follows_what_is_inserted(name):
    """An index built empty, then filled with clauses that have only a place, far from each other."""
    index = build_index(name, SubscriptionTable.from_arrays(np.empty((0, 4)), [0], []))
    rng = np.random.default_rng(2)
    low = rng.normal(size=(5_000, 2)) * 1e6
    boxes = np.hstack([low, low + rng.random((5_000, 2)) * 10.0 ** rng.integers(-3, 6, (5_000, 1))])
    for part in np.split(boxes, 50):
        index.insert(SubscriptionTable.from_arrays(part, [0] * (len(part) + 1), []))
    batch = MessageBatch.from_arrays(low[::50], [0] * 101, [])
    expected = answers(build_index("scan", SubscriptionTable.from_arrays(boxes, [0] * 5_001, [])), batch)
    assert answers(index, batch) == expected
    assert index.check() == []
