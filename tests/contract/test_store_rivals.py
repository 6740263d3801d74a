"""The structure of the rival stores: cells, sorted lists and trees, before and after changes."""

import sys

import numpy as np
import pytest

from answers import answers
from nearcast import MessageBatch, SubscriptionTable, build_index, build_store, config
from nearcast.errors import RuntimeUnavailableError
from nearcast.matching.rivals.beq_tree import keys_of
from nearcast.matching.rivals.blocks import Blocks

RIVALS = ["beq-tree", "r-star-tree"]
ATTRIBUTES = 5


def random_batch(rng, n, *, areas=0.0):
    """n messages with some of the attributes, a share of them areas."""
    places = rng.random((n, 2))
    extents = np.where(rng.random((n, 1)) < areas, rng.random((n, 2)) ** 3, 0.0)
    values = np.where(rng.random((n, ATTRIBUTES)) < 0.7, rng.normal(size=(n, ATTRIBUTES)), np.nan)
    boxes = np.hstack([places, places + extents])
    return MessageBatch.from_arrays(None, [0] * (n + 1), [], values, boxes=boxes)


def random_table(rng, n):
    """n subscriptions with up to four tests, some of them negated, on small and large regions."""
    corners = rng.random((n, 2))
    sides = rng.random((n, 2)) ** 2
    counts = rng.integers(0, 5, n)
    total = int(counts.sum())
    ends = np.sort(rng.normal(size=(total, 2)), axis=1)
    tests = (
        np.concatenate([[0], np.cumsum(counts)]),
        rng.integers(0, ATTRIBUTES + 1, total).astype(np.int32),
        ends[:, 0],
        ends[:, 1],
        rng.choice(np.array([0, 0, 0, 3, 4], np.uint8), total),
    )
    return SubscriptionTable.from_arrays(np.hstack([corners, corners + sides]), [0] * (n + 1), [], tests)


@pytest.fixture(params=RIVALS)
def name(request):
    return request.param


def test_changes_keep_structure_and_answers(name):
    """Points and areas come and go, few and many at once."""
    rng = np.random.default_rng(1)
    first = random_batch(rng, 300, areas=0.3)
    parameters = {"leaf": 16} if name == "beq-tree" else {}
    ours, oracle = build_store(name, first, **parameters), build_store("scan", first)
    table = random_table(rng, 60)
    for n in (1, 1, 3, 40, 200):
        batch = random_batch(rng, n, areas=0.3)
        for store in (ours, oracle):
            store.insert(batch)
        gone = rng.choice(np.flatnonzero(oracle.rows.present), n, replace=False)
        for store in (ours, oracle):
            store.remove(gone)
        assert ours.check() == []
        assert answers(ours, table) == answers(oracle, table)


def test_a_tree_that_is_built_by_inserts_answers_alike():
    """As the MO-Tree paper builds it; the progress is told."""
    rng = np.random.default_rng(2)
    batch, table, told = random_batch(rng, 300, areas=0.3), random_table(rng, 60), []
    ours = build_store(
        "r-star-tree", batch, packed=False, progress=lambda step, share: told.append((step, share))
    )
    assert answers(ours, table) == answers(build_store("scan", batch), table)
    assert ours.check() == []
    assert told == [("inserting into the tree", 0.0)]
    index = build_index("r-star-tree", table, packed=False)
    assert index.check() == []
    assert answers(index, batch) == answers(build_index("scan", table), batch)


def test_values_beyond_the_range_seen_at_build(name):
    rng = np.random.default_rng(2)
    first = random_batch(rng, 50)
    ours, oracle = build_store(name, first), build_store("scan", first)
    huge = [[1e300, 0.0, -1e300, np.inf, -np.inf], [-0.0, 1e-300, -1e-300, 5e-324, np.nan]]
    far = MessageBatch.from_arrays([[-1e6, 9.0], [1e300, -1e300]], [0, 0, 0], [], huge)
    tests = [(a, low, high, 0) for a in range(ATTRIBUTES) for low, high in ((0, 0), (-1e301, 0), (0, np.inf))]
    flat = (np.arange(len(tests) + 1), *(np.array(column) for column in zip(*tests)))
    everywhere = [[-np.inf, -np.inf, np.inf, np.inf]] * len(tests)
    table = SubscriptionTable.from_arrays(everywhere, [0] * (len(tests) + 1), [], flat)
    for store in (ours, oracle):
        store.insert(far)
    assert answers(ours, table) == answers(oracle, table)
    assert ours.check() == []


class TestBEQTree:
    def test_leaves_are_split_when_they_are_over_full(self):
        rng = np.random.default_rng(3)
        store = build_store("beq-tree", MessageBatch.from_arrays([[0, 0], [1, 1]], [0] * 3, []), leaf=8)
        store.insert(random_batch(rng, 6))
        assert (store.stats()["cells"], store.stats()["longest_list"]) == (1, 8)
        store.insert(random_batch(rng, 1))
        stats = store.stats()
        assert stats["cells"] > 1
        assert stats["cells"] == 4 * (stats["cells"] - stats["leaves"]) + 1
        store.insert(random_batch(rng, 500))
        assert store.stats()["longest_list"] <= 8
        assert store.stats()["in_inner_cells"] == 0
        assert store.check() == []

    def test_the_same_place_is_not_split_for_ever(self):
        store = build_store("beq-tree", MessageBatch.from_arrays([[3, 4]] * 50, [0] * 51, []), leaf=8)
        assert store.stats()["levels"] == config.BEQ_DEPTH + 1
        assert store.stats()["longest_list"] == 50
        assert store.check() == []

    def test_areas_stand_in_the_smallest_cell_that_contains_them(self):
        corners = [[0, 0, 0, 0], [8, 8, 8, 8], [1, 1, 1.5, 1.5], [3, 3, 5, 5], [1, 1, 3, 3], [5, 1, 5, 7]]
        store = build_store("beq-tree", MessageBatch.from_arrays(None, [0] * 7, [], boxes=corners), leaf=1)
        cells = store.structure._boxes.values[store.structure._homes.values].tolist()
        assert cells[3] == [0, 0, 8, 8]  # over the middle
        assert cells[4] == [0, 0, 4, 4]  # over the middle of a quarter
        assert cells[5] == [0, 0, 8, 8]  # a line
        assert store.stats()["in_inner_cells"] == 3
        table = SubscriptionTable.from_arrays([[2, 2, 3, 3], [5, 5, 9, 9], [1, 1, 1, 1]], [0] * 4, [])
        assert answers(store, table) == [{3, 4}, {1, 3, 5}, {2, 4}]

    def test_lists_are_sorted_by_attribute_and_value(self):
        values = [[5, np.nan], [-3, 2], [np.nan, -2], [0.5, 2]]
        store = build_store("beq-tree", MessageBatch.from_arrays([[0, 0]] * 4, [0] * 5, [], values))
        slots = store.structure._postings.first[: store.stats()["postings"]].tolist()
        assert slots[:4] == [1, 3, 0, 2]
        assert sorted(slots[4:]) == [1, 3]
        store.remove([3])
        store.insert(MessageBatch.from_arrays([[0, 0]], [0, 0], [], [[1, 0]]))
        assert store.structure._postings.first[: store.stats()["postings"]].tolist() == [1, 3, 0, 2, 3, 1]
        assert store.check() == []

    def test_the_cells_are_laid_out_anew_after_growth(self, monkeypatch):
        monkeypatch.setattr(config, "BEQ_FIRST", 64)
        rng = np.random.default_rng(4)
        store = build_store("beq-tree", random_batch(rng, 0), leaf=8)
        for _ in range(10):
            store.insert(random_batch(rng, 20))
        assert (store.structure._boxes.values[0] != [0, 0, 1, 1]).all()
        assert store.check() == []

    def test_more_tests_than_are_counted(self):
        n = config.BEQ_COUNTED + 9
        batch = MessageBatch.from_arrays([[0, 0]] * 300, [0] * 301, [], np.arange(300.0)[:, None])
        tests = (np.array([0, n]), np.zeros(n, np.int32), np.arange(n, dtype=float), np.full(n, 280.0))
        table = SubscriptionTable.from_arrays([[0, 0, 0, 0]], [0, 0], [], (*tests, np.zeros(n, np.uint8)))
        assert answers(build_store("beq-tree", batch), table) == [set(range(n - 1, 281))]

    def test_keys_keep_the_order_of_values(self):
        values = np.array([-np.inf, -1e300, -1.5, -1e-300, -0.0, 0.0, 1e-300, 0.5, 7.0, 1e300, np.inf])
        keys = keys_of(np.zeros(len(values), np.int32), values)
        assert (np.diff(keys.astype(np.int64)) >= 0).all()
        assert keys[4] == keys[5]
        assert keys_of(np.array([1], np.int32), values[:1])[0] > keys[-1]

    @pytest.mark.parametrize(
        "damage",
        [
            lambda store: store.structure._homes.values.__setitem__(0, 1),
            lambda store: store.structure._entries.second.fill(0),
            lambda store: store.structure._entries.heads.__setitem__((slice(None), 1), 0),
            lambda store: store.structure._postings.first.fill(0),
            lambda store: store.structure._postings.second.__setitem__(slice(None, None, 3), 7),
            lambda store: setattr(store.structure, "leaf", 2),
        ],
    )
    def test_damage_is_found(self, damage):
        store = build_store("beq-tree", random_batch(np.random.default_rng(5), 100), leaf=8)
        assert store.check() == []
        damage(store)
        assert store.check() != []


def test_blocks_grow_and_move():
    blocks = Blocks(np.empty(0, np.int32), np.empty((0, 2)))
    blocks.open(3)
    rng = np.random.default_rng(6)
    expected = [[], [], []]
    for value in range(200):
        chosen = rng.choice(3, rng.integers(1, 4), replace=False).astype(np.int64)
        blocks.reserve(chosen, np.ones(len(chosen), np.int64))
        for block in chosen.tolist():
            start, size, room = blocks.heads[block].tolist()
            assert size < room
            blocks.first[start + size], blocks.second[start + size] = value, (value, -value)
            blocks.heads[block, 1] += 1
            expected[block].append(value)
        if value == 100:
            blocks.clear(1)
            expected[1] = []
    for block, values in enumerate(expected):
        start, size, _ = blocks.heads[block].tolist()
        assert blocks.first[start : start + size].tolist() == values
        assert blocks.second[start : start + size, 1].tolist() == [-value for value in values]
    assert len(blocks.first) < 4 * sum(map(len, expected))


class TestRStarTreeStore:
    def test_missing_attributes_span_the_domain(self):
        values = [[1, np.nan], [3, 8], [2, 4]]
        store = build_store("r-star-tree", MessageBatch.from_arrays(np.eye(3, 2), [0] * 4, [], values))
        lows, highs = store.structure._tree.boxes(3, store.structure._predicates(np.arange(3)))
        assert store.stats()["dimensions"] == 4
        assert lows[:, 2:].tolist() == [[0, 0], [1, 1], [0.5, 0]]
        assert highs[:, 2:].tolist() == [[0, 1], [1, 1], [0.5, 0]]

    def test_the_tiniest_areas_keep_their_extent(self):
        """libspatialindex would take them for their lower corner."""
        places = [[0, 0, 0, 0], [1, 1, 1, 1]]
        store = build_store("r-star-tree", MessageBatch.from_arrays(None, [0] * 3, [], boxes=places))
        store.insert(MessageBatch.from_arrays(None, [0, 0], [], boxes=[[1e-20, 1e-20, 3e-20, 3e-20]]))
        table = SubscriptionTable.from_arrays([[2e-20, 2e-20, 1, 1]], [0, 0], [])
        assert answers(store, table) == [{1, 2}]

    def test_without_the_package_the_error_names_the_extra(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "rtree.index", None)
        with pytest.raises(RuntimeUnavailableError, match=r"pip install nearcast\[bench\]"):
            build_store("r-star-tree", random_batch(np.random.default_rng(7), 3))

    def test_damage_is_found(self):
        store = build_store("r-star-tree", random_batch(np.random.default_rng(8), 20))
        assert store.check() == []
        store.structure._tree.tree.insert(99, [0.0] * 2 * store.structure._tree.dimensions)
        assert store.check() != []
