"""The rivals of the MO-Tree paper: exact on many attributes, and built as their papers say."""

import subprocess
import sys

import numpy as np
import pytest

from answers import answers
from nearcast import MessageBatch, SubscriptionTable, build_index, config, open_index
from nearcast.errors import RuntimeUnavailableError
from nearcast.kernels.verify import NEGATED
from nearcast.matching.rivals import op_index, tama
from nearcast.matching.rivals.counting import PLACES
from strategies import ragged

RIVALS = ["tama", "op-index", "r-star-tree"]
ATTRIBUTES = 12
EVERYWHERE = [-np.inf, -np.inf, np.inf, np.inf]


@pytest.fixture(params=RIVALS)
def rival(request):
    return request.param


def intervals(tests):
    """Return CSR arrays of rows of (attribute, low, high, flags)."""
    flat = [test for row in tests for test in row]
    offsets = np.cumsum([0] + [len(row) for row in tests])
    kinds = (np.int32, np.float64, np.float64, np.uint8)
    return (offsets, *(np.array([test[i] for test in flat], kind) for i, kind in enumerate(kinds)))


def table(tests, boxes=None, words=None):
    boxes = [EVERYWHERE] * len(tests) if boxes is None else boxes
    words = [[]] * len(tests) if words is None else words
    return SubscriptionTable.from_arrays(
        np.array(boxes, float).reshape(-1, 4), *ragged(words), intervals(tests)
    )


def random_tests(rng, attributes=ATTRIBUTES):
    """Up to seven tests: wide and narrow, of single values, without ends, open, negated, several on one attribute."""
    tests = []
    for _ in range(rng.integers(0, 8)):
        low, high = np.sort(np.round(rng.random(2), rng.choice([1, 6])))
        kind = rng.random()
        if kind < 0.2:
            high = low
        elif kind < 0.3:
            low = -np.inf
        elif kind < 0.4:
            high = np.inf
        elif kind < 0.45:
            low, high = -np.inf, np.inf
        flags = int(rng.choice([0, 0, 0, 0, 1, 2, 3, 4, 5]))
        tests.append((min(int(rng.zipf(1.5)) - 1, attributes - 1), low, high, flags))
    return tests


def random_table(rng, n, attributes=ATTRIBUTES):
    low = np.round(rng.random((n, 2)), 2)
    boxes = np.hstack([low, low + np.round(rng.choice([0, 0.1, 0.5], (n, 2)), 2)])
    boxes[rng.random(n) < 0.3] = EVERYWHERE
    boxes[rng.random(n) < 0.1, 0] = -np.inf
    words = [rng.choice(5, rng.choice([0, 0, 0, 1]), replace=False).tolist() for _ in range(n)]
    return table([random_tests(rng, attributes) for _ in range(n)], boxes, words)


def random_batch(rng, n, side=0.0, attributes=ATTRIBUTES):
    low = np.round(rng.random((n, 2)), 2)
    boxes = np.hstack([low, low + side * rng.random((n, 2))])
    values = np.where(
        rng.random((n, attributes)) < 0.8, np.round(rng.uniform(-0.2, 1.2, (n, attributes)), 1), np.nan
    )
    words = ragged([rng.choice(5, rng.integers(0, 4), replace=False).tolist() for _ in range(n)])
    return MessageBatch.from_arrays(None, *words, values, boxes=boxes)


@pytest.mark.parametrize("side", [0.0, 0.05, 0.9], ids=["points", "small areas", "large areas"])
def test_equals_the_scan_on_many_attributes(rival, side, monkeypatch):
    """Built, and grown from nothing, past points where structures are laid out again."""
    monkeypatch.setattr(config, "OP_TAIL", 4)
    rng = np.random.default_rng(1)
    first, more = random_table(rng, 900), random_table(rng, 500)
    batch = random_batch(rng, 80, side)
    gone = rng.choice(1_400, 300, replace=False)
    found = []
    for name in (rival, "scan"):
        for index in (build_index(name, first), build_index(name, first.take([]))):
            if not len(index):
                for part in np.array_split(np.arange(900), 9):
                    index.insert(first.take(part))
            for part in np.array_split(np.arange(500), 5):
                index.insert(more.take(part))
            assert index.check() == []
            index.remove(gone)
            assert index.check() == []
            found.append(answers(index, batch))
    assert sum(map(len, found[0])) > 500
    assert found.count(found[0]) == 4


def test_messages_with_other_attributes(rival):
    """Messages that know fewer attributes than the clauses, or more, and clauses that bring new ones."""
    rng = np.random.default_rng(2)
    ours, theirs = (
        build_index(name, random_table(np.random.default_rng(3), 100, 4)) for name in (rival, "scan")
    )
    more = random_table(rng, 50, 20)
    for width in (0, 2, 4, 30):
        batch = random_batch(rng, 30, attributes=width)
        assert answers(ours, batch) == answers(theirs, batch)
    ours.insert(more), theirs.insert(more)
    batch = random_batch(rng, 60, attributes=20)
    assert answers(ours, batch) == answers(theirs, batch)
    assert ours.check() == []


@pytest.mark.parametrize(
    ("lows", "highs"),
    [
        ([-1e308, 0.0, 1e308], [1e308, 1e300, 1e308]),
        ([0.0, 5e-324, 0.0], [5e-324, 5e-324, 0.0]),
        ([7.0, 7.0, 7.0], [7.0, 7.0, 7.0]),
        ([1.0, 1 + 2**-40, 1 - 2**-40], [1.0, 1 + 2**-40, 1 - 2**-40]),
    ],
    ids=["huge", "tiny", "one value", "equal as float32"],
)
def test_domains_of_any_size(rival, lows, highs):
    subs = table([[(0, low, high, 0)] for low, high in zip(lows, highs)])
    values = sorted({*lows, *highs, -np.inf, np.inf, 0.5, 1e305, -1e305})
    batch = MessageBatch.from_arrays(
        np.zeros((len(values), 2)), np.zeros(len(values) + 1, int), [], np.array(values).reshape(-1, 1)
    )
    expected = [{i for i in range(3) if lows[i] <= value <= highs[i]} for value in values]
    assert answers(build_index(rival, subs), batch) == expected


def test_touching_edges_belong_to_both(rival):
    subs = table([[(0, 0.1, 0.7, 0)], [(0, 0.1, 0.7, 3)]], [[0.1, 0.2, 0.3, 0.7]] * 2)
    corners = np.array([[x, y] for x in (0.1, 0.3) for y in (0.2, 0.7)])
    for value in (0.1, 0.7):
        batch = MessageBatch.from_arrays(corners, np.zeros(5, int), [], np.full((4, 1), value))
        assert answers(build_index(rival, subs), batch) == [{0}] * 4
    beyond = np.nextafter(corners, [[-1, -1], [-1, 1], [1, -1], [1, 1]])
    batch = MessageBatch.from_arrays(beyond, np.zeros(5, int), [], np.full((4, 1), 0.5))
    assert answers(build_index(rival, subs), batch) == [set()] * 4


def test_more_tests_than_are_counted(rival):
    tests = [(a % 3, 0.0, 1.0 + a, 0) for a in range(300)]
    subs = table([tests, [*tests, (0, 0.4, 0.6, 0)]])
    batch = MessageBatch.from_arrays(
        np.zeros((3, 2)), np.zeros(4, int), [], np.array([[0.5] * 3, [0.2] * 3, [0.5, 0.5, np.nan]])
    )
    index = build_index(rival, subs)
    assert answers(index, batch) == [{0, 1}, {0}, set()]
    assert index.check() == []


def test_tests_that_exclude_each_other(rival):
    subs = table([[(0, 0.0, 0.2, 0), (0, 0.8, 1.0, 0)], [(0, 0.0, 1.0, 0)]])
    batch = MessageBatch.from_arrays(np.zeros((3, 2)), np.zeros(4, int), [], np.array([[0.1], [0.5], [0.9]]))
    assert answers(build_index(rival, subs), batch) == [{1}] * 3


def test_many_candidates_for_one_message(rival):
    """More than there is room for at first."""
    subs = table([[(0, 0.0, 1.0, 0)]] * 9_000 + [[]] * 9_000)
    batch = MessageBatch.from_arrays(np.zeros((3, 2)), np.zeros(4, int), [], np.full((3, 1), 0.5))
    index = build_index(rival, subs)
    assert [len(rows) for rows in answers(index, batch)] == [18_000] * 3
    assert len(answers(index, batch.take([0]))[0]) == 18_000


class TestTAMA:
    def cover(self, low, high):
        """Return the cells (level, number) of an interval of [0, 1]."""
        domains = tama.Domains(np.zeros(3), np.ones(3))
        predicates = tama.Predicates(
            np.zeros(1, np.int32), np.array([2], np.int32), np.array([low]), np.array([high])
        )
        targets, items = np.empty(100, np.int64), np.empty(100, np.int32)
        count = tama._cover(domains, predicates, np.zeros(1, np.int64), targets, items)
        cells = targets[:count] - 2 * tama._CELLS
        assert len(set(cells.tolist())) == count
        levels = np.log2(cells).astype(int)
        return sorted(zip(levels.tolist(), (cells - (1 << levels)).tolist()))

    def test_intervals_are_made_of_few_cells(self):
        """Coarse ones inside, fine ones at the ends; at most two on a level; disjoint, and all of the interval."""
        finest = config.TAMA_LEVEL
        assert self.cover(0.0, 1.0) == [(0, 0)]
        assert self.cover(0.5, 1.0) == [(1, 1)]
        assert self.cover(0.25, 0.75 - 2**-finest) == [(2, 1), (2, 2)]
        rng = np.random.default_rng(4)
        for low, high in np.sort(rng.random((200, 2)), axis=1):
            cells = self.cover(low, high)
            levels = [level for level, _ in cells]
            assert max(map(levels.count, levels)) <= 2
            fine = [
                (number << finest - level) + k for level, number in cells for k in range(1 << finest - level)
            ]
            assert sorted(fine) == list(range(int(low * 2**finest), int(high * 2**finest) + 1))

    def test_figures(self):
        stats = build_index("tama", table([[(0, 0, 1, 0)], [(3, 0, 1, 0)], [(3, 0, 1, 4)], []])).stats()
        assert stats["attributes"] == 2
        assert stats["postings"] == 2 + stats["uncounted_clauses"]
        assert stats["uncounted_clauses"] == 2  # the negated test and the clause without any
        assert stats["levels"] == config.TAMA_LEVEL + 1

    def test_domains_are_measured_again_while_the_index_grows(self):
        rng = np.random.default_rng(5)
        subs = random_table(rng, 600)
        index = build_index("tama", subs.take([]))
        for part in np.array_split(np.arange(600), 20):
            index.insert(subs.take(part))
        assert index.stats()["lists"] > 0.5 * build_index("tama", subs).stats()["lists"]


class TestOpIndex:
    def pivots(self, index):
        """Return the pivot of each clause row, as the attribute of a test (-2 and -1: x and y)."""
        lists, places = index.structure._lists.flat()
        key_of = dict(zip(index.structure._groups.lists.tolist(), index.structure._groups.keys.tolist()))
        rows = index.structure._slot_rows.values[index.structure._lists.pool.items[places]]
        return {
            row: (key_of[target] >> op_index._PIVOT_SHIFT) - PLACES
            for target, row in zip(lists.tolist(), rows.tolist())
            if target in key_of
        }

    def test_the_pivot_is_the_least_frequent_attribute(self):
        often, rare = (0, 0.1, 0.5, 0), (1, 0.2, 0.6, 0)
        box = [0, 0, 1, 1]
        index = build_index(
            "op-index",
            table([[often], [often, rare], [often], [], []], [box, box, EVERYWHERE, box, EVERYWHERE]),
        )
        assert self.pivots(index) == {0: 0, 1: 1, 2: 0, 3: -2}
        stats = index.stats()
        assert stats["pivots"] == 3
        assert stats["uncounted_clauses"] == 1

    def test_an_interval_is_two_operators_and_a_value_is_one(self):
        inf = np.inf
        for test, count in [
            ((0, 0.1, 0.5, 0), 2),
            ((0, 0.1, 0.1, 0), 1),
            ((0, -inf, 0.5, 0), 1),
            ((0, 0.1, inf, 0), 1),
            ((0, -inf, inf, 0), 1),
        ]:
            assert build_index("op-index", table([[test]])).stats()["postings"] == count

    def test_newcomers_are_sorted_in_when_they_are_many(self, monkeypatch):
        monkeypatch.setattr(config, "OP_TAIL", 10)
        index = build_index("op-index", table([]))
        for k in range(1, 12):
            index.insert(table([[(0, 1.0 / k, np.inf, 0)]]))
            assert index.stats()["unsorted_postings"] == k % 11
        assert index.check() == []

    def test_lists_are_in_order(self):
        index = build_index("op-index", random_table(np.random.default_rng(6), 800))
        assert index.stats()["unsorted_postings"] == 0
        assert index.stats()["groups"] > 50
        assert index.check() == []


class TestRStarTree:
    def test_dimensions_are_the_most_frequent_attributes(self, monkeypatch):
        monkeypatch.setattr(config, "R_STAR_ATTRIBUTES", 2)
        tests = [(0, 0, 1, 0), (4, 0, 1, 0), (2, 0, 1, 0)]
        index = build_index("r-star-tree", table([tests[:1], tests[:2], tests, tests[:2]]))
        assert index.stats()["dimensions"] == 4
        assert np.flatnonzero(index.structure._tree.dimension_of >= 0).tolist() == [0, 1, PLACES, PLACES + 4]

    def test_twenty_attributes(self):
        rng = np.random.default_rng(7)
        tests = [
            [(a, 0.0, float(rng.random()), 0) for a in rng.choice(20, 6, replace=False)] for _ in range(300)
        ]
        ours, theirs = (build_index(name, table(tests)) for name in ("r-star-tree", "scan"))
        batch = random_batch(rng, 40, attributes=20)
        assert ours.stats()["dimensions"] == 22
        assert answers(ours, batch) == answers(theirs, batch)

    def test_a_saved_index_is_packed_anew(self, tmp_path):
        rng = np.random.default_rng(8)
        index = build_index("r-star-tree", random_table(rng, 200))
        index.remove(np.arange(0, 200, 3))
        opened = open_index(index.save(tmp_path / "index"))
        batch = random_batch(rng, 40)
        assert list(opened.structure.arrays()) == ["packed"]
        assert opened.check() == []
        assert answers(opened, batch) == answers(index, batch)

    def test_without_the_package_the_error_names_the_extra(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "rtree.index", None)
        with pytest.raises(RuntimeUnavailableError, match=r"pip install nearcast\[bench\]"):
            build_index("r-star-tree", table([]))

    def test_the_package_is_imported_when_it_is_needed(self):
        code = "import sys, nearcast; assert 'rtree' not in sys.modules"
        subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("tama", lambda index: index.structure._lists.pool.items.fill(0)),
        ("tama", lambda index: index.structure._needs.values.__setitem__(0, 9)),
        ("tama", lambda index: index.structure._lists.pool.sizes.__setitem__(3 * tama._CELLS + 1, 0)),
        ("op-index", lambda index: index.structure._lists.pool.items.fill(0)),
        ("op-index", lambda index: index.structure._lists.pool.keys.__setitem__(slice(None, None, 3), 7.0)),
        ("op-index", lambda index: index.structure._needs.values.__setitem__(0, 9)),
        ("op-index", lambda index: index.structure._groups.keys.__setitem__(0, 1 << 60)),
        ("op-index", lambda index: index.structure._slots.values.__setitem__(0, 1)),
        (
            "r-star-tree",
            lambda index: index.structure._tree.tree.insert(99, [0.0] * index.structure._tree.dimensions),
        ),
    ],
)
def test_damage_is_found(name, damage):
    tests = [[(0, 0.1 * k, 0.1 * k + 0.5, 0), (1, 0.0, 1.0, 0)] for k in range(10)]
    index = build_index(name, table(tests, [[0, 0, 1, 1]] * 10))
    assert index.check() == []
    damage(index)
    assert index.check() != []


def test_negated_tests_are_left_to_verification(rival):
    subs = table([[(0, 0.2, 0.4, NEGATED)], [(0, 0.2, 0.4, NEGATED), (1, 0.0, 0.5, 0)]])
    batch = MessageBatch.from_arrays(
        np.zeros((4, 2)), np.zeros(5, int), [], np.array([[0.1, 0.1], [0.3, 0.1], [np.nan, 0.1], [0.9, 0.9]])
    )
    assert answers(build_index(rival, subs), batch) == [{0, 1}, set(), set(), {0}]
