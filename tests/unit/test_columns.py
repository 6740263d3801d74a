"""Columns: checked on the way in, cut and joined without loss."""

import copy

import numpy as np
import pyarrow as pa
import pytest

from nearcast import (
    EVERYWHERE,
    WGS84,
    Box,
    Circle,
    Deliveries,
    Matches,
    Message,
    MessageBatch,
    Point,
    Polygon,
    Subscription,
    SubscriptionTable,
    build_index,
    build_store,
)
from nearcast.columns import NEVER
from nearcast.columns.growable import GrowableArray
from nearcast.columns.shapes import region_of_boxes
from nearcast.errors import ColumnError

BOX = [[0.0, 0.0, 1.0, 1.0]]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([[0, 0, 1]], [0, 0], []), r"shape \(\w+, 4\)"),
        (("abc", [0, 0], []), "numbers"),
        (([[0, 0, np.nan, 1]], [0, 0], []), "box 0 .* NaN"),
        (([[0, 0, 1, 1], [1, 0, 0, 1]], [0, 0, 0], []), "box 1 .* antimeridian"),
        ((BOX, [0, 2], [1]), "keyword offsets .* from 0 to 1"),
        ((BOX, [0], []), "2 ascending"),
        ((BOX, [1, 1], [1]), "ascending"),
        ((BOX, [0, 1], [-4]), "row 0 has the keyword code -4"),
        ((BOX, [0, 1], [1.5]), "integers"),
        ((BOX, [0, 1], [2**40]), "int32"),
        ((BOX, [0, 0], [], ([0, 1], [0], [2.0], [1.0])), "interval 0 runs from 2.0 to 1.0"),
        ((BOX, [0, 0], [], ([0, 1], [0], [np.nan], [1.0])), "interval 0 runs from nan"),
        ((BOX, [0, 0], [], ([0, 1], [-1], [0.0], [1.0])), "attribute -1"),
        ((BOX, [0, 0], [], ([0, 1], [0], [0.0], [1.0], [9])), "flags 9"),
        ((BOX, [0, 0], [], ([0, 1], [0], [0.0])), "not 3 arrays"),
        ((BOX, [0, 0], [], None, ["a", "b"]), "ids: 2 for 1 row;"),
        ((BOX, [0, 0], [], None, [None]), "row 0"),
        ((BOX, [0, 0], [], None, [1.5]), "strings or integers"),
        ((BOX, [0, 0], [], None, ["a", 1]), "all strings or all integers"),
    ],
)
def test_bad_subscription_arrays(arguments, message):
    with pytest.raises(ColumnError, match=message):
        SubscriptionTable.from_arrays(*arguments)


@pytest.mark.parametrize("owners", [[1], [0, 0], [-1]])
def test_bad_owners(owners):
    with pytest.raises(ColumnError, match="owners"):
        SubscriptionTable.from_arrays(BOX, [0, 0], [], owners=owners)


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        (([[0, np.nan]], [0, 0], []), {}, "message 0 has the coordinates .*nan"),
        (([[np.inf, 0]], [0, 0], []), {}, "finite"),
        (([[0, 0, 0]], [0, 0], []), {}, r"shape \(\w+, 2\)"),
        ((None, [0, 0], []), {}, "either points"),
        (([[0, 0]], [0, 0], []), {"boxes": BOX}, "either points"),
        (([[0, 0]], [0, 0], [], [[1.0], [2.0]]), {}, "2 rows for 1 messages"),
    ],
)
def test_bad_message_arrays(arguments, options, message):
    with pytest.raises(ColumnError, match=message):
        MessageBatch.from_arrays(*arguments, **options)


def test_arrays_of_the_right_type_are_not_copied():
    boxes, offsets, codes = np.array(BOX), np.array([0, 2]), np.array([3, 5], np.int32)
    clauses = SubscriptionTable.from_arrays(boxes, offsets, codes).clauses
    assert clauses.boxes is boxes
    assert clauses.keyword_runs.tolist() == [[0, 2]]
    assert clauses.keywords is codes


def test_rows_become_sets():
    clauses = SubscriptionTable.from_arrays(BOX * 2, [0, 3, 4], [5, 3, 5, 1]).clauses
    assert clauses.keywords.tolist() == [3, 5, 1]
    assert clauses.keyword_runs.tolist() == [[0, 2], [2, 3]]
    long = np.random.default_rng(0).integers(0, 90, 200)
    assert SubscriptionTable.from_arrays(BOX, [0, 200], long).clauses.keywords.tolist() == sorted(
        set(long.tolist())
    )


def test_take():
    table = SubscriptionTable.from_arrays(
        [[i, i, i + 1, i + 1] for i in range(4)],
        [0, 1, 3, 3, 4],
        [9, 7, 8, 6],
        ids=["a", "b", "c"],
        owners=[0, 1, 1, 2],
    )
    taken = table.take([2, 1])
    assert taken.ids.to_pylist() == ["c", "b"]
    assert taken.owners.tolist() == [0, 1, 1]
    assert taken.clauses.keywords.tolist() == [6, 7, 8]
    assert taken.clauses.boxes[:, 0].tolist() == [3, 1, 2]
    assert repr(table) == "<SubscriptionTable of 3 subscriptions in 4 clause rows>"


def test_take_keeps_the_shapes():
    regions = [
        Circle(lon=0, lat=0, radius=10),
        Circle(lon=179, lat=0, radius=500_000),
        Box(0, 0, 1, 1),
        Polygon("POLYGON ((0 0, 1 0, 0 1, 0 0))"),
    ]
    table = SubscriptionTable.from_subscriptions(
        [Subscription(i, "tea OR milk", region) for i, region in enumerate(regions)]
    )
    for rows in ([1], [3, 1], [2], [0, 1, 2, 3], []):
        assert [sub.region for sub in table.take(rows).to_subscriptions()] == [regions[row] for row in rows]
    batch = MessageBatch.from_messages(
        [Message(i, "tea", region) for i, region in enumerate(regions)], like=table
    ).take([3, 1])
    found = build_index("scan", table).match(batch)
    assert [set(group.tolist()) for group in found] == [{0, 2, 3}, {1}]


def test_a_row_taken_twice_has_two_shapes():
    """One of the two may leave, and its circle is given to somebody else."""
    subs = [Subscription(i, "tea", Circle(lon=10 * i, lat=0, radius=10_000)) for i in range(3)]
    table = SubscriptionTable.from_subscriptions(subs)
    index = build_index("scan", table.take([1, 1]))
    index.remove([0])
    index.insert(table.take([2]))
    batch = MessageBatch.from_messages([Message(0, "tea", Point(lon=10, lat=0))], like=table)
    assert index.match(batch)[0].tolist() == [1]

    places = [Circle(lon=10 * i, lat=0, radius=10_000) for i in range(3)]
    batch = MessageBatch.from_messages([Message(i, "tea", at) for i, at in enumerate(places)], like=table)
    store = build_store("scan", batch.take([1, 1]))
    store.remove([0])
    store.insert(batch.take([2]))
    assert store.match(table.take([1]))[0].tolist() == [1]


class TestMatches:
    found = Matches(np.array([0, 2, 2, 5]), np.array([5, 3, 9, 1, 4], np.int32))

    def test_groups(self):
        assert [group.tolist() for group in self.found.sorted()] == [[3, 5], [], [1, 4, 9]]
        assert self.found.counts.tolist() == [2, 0, 3]
        assert len(self.found) == 3
        with pytest.raises(IndexError, match="message row 3"):
            self.found[3]

    def test_pairs(self):
        assert self.found.sorted().pairs().tolist() == [[0, 0, 2, 2, 2], [3, 5, 1, 4, 9]]

    def test_as_deliveries(self):
        names = pa.array([f"s{i}" for i in range(10)])
        told = Deliveries.of(self.found, pa.array(["x", "y", "z"]), names)
        assert told.to_arrow().to_pydict() == {
            "subscription_id": ["s5", "s3", "s9", "s1", "s4"],
            "message_id": ["x", "x", "z", "z", "z"],
            "change": ["+"] * 5,
            "reason": ["publish"] * 5,
            "score": [None] * 5,
            "rank": [None] * 5,
        }
        rows = Deliveries.of(self.found, np.array([7, 8, 9])).to_arrow()
        assert rows["subscription_id"].to_pylist() == [5, 3, 9, 1, 4]
        assert rows["message_id"].to_pylist() == [7, 7, 9, 9, 9]


@pytest.mark.parametrize(
    "region",
    [EVERYWHERE, Box(1, 2, 3, 4), Box(170, 0, -170, 9), Box(170, 0, 180, 9), Box(-180, 0, 0, 9), Box(180, 0, 180, 1),
     Box(-180, -90, 180, 90)],
)  # fmt: skip
def test_a_box_comes_back_from_its_index_boxes(region):
    assert region_of_boxes(np.array(region.boxes()), WGS84) == region
    assert region_of_boxes(np.array(region.boxes())[::-1], WGS84) == region


def test_growable_array_leaves_what_it_borrowed():
    mine = np.arange(3)
    column = GrowableArray(mine)
    column.extend([7])
    column.own()[0] = 99
    assert mine.tolist() == [0, 1, 2]
    assert column.values.tolist() == [99, 1, 2, 7]
    column.fill(2, 5)
    assert column.values.tolist() == [99, 1, 2, 7, 5, 5]


def test_expiry_as_an_array():
    batch = MessageBatch.from_arrays([[0, 0]] * 2, [0, 0, 0], [], expires_at=[5, NEVER])
    assert batch.expires_at.dtype == np.int64
    assert batch.take([1]).expires_at.tolist() == [NEVER]
    with pytest.raises(ColumnError, match="expires_at has 1 rows for 2 messages"):
        MessageBatch.from_arrays([[0, 0]] * 2, [0, 0, 0], [], expires_at=[5])
    with pytest.raises(ColumnError, match="expires_at must be one row of integers"):
        MessageBatch.from_arrays([[0, 0]], [0, 0], [], expires_at=[1.5])


def test_a_copy_of_a_growable_array_has_its_own_room():
    column = GrowableArray(np.array([1, 2]), borrowed=False).reserve(8)
    twin = copy.deepcopy(column)
    twin.values[0] = 7
    twin.extend([3])
    assert (column.values.tolist(), twin.values.tolist()) == ([1, 2], [7, 2, 3])
