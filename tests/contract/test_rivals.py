"""What the rivals of the papers promise beside right answers: where clauses stand, by which costs, how often."""

from collections import Counter

import numpy as np
import pytest

from answers import answers
from nearcast import MessageBatch, SubscriptionTable, build_index, config, open_index
from nearcast.matching.rivals.cover import ROOT, cover, place_of, space_over
from strategies import ragged

QUADTREES = ["iq-tree", "rq-tree"]


def table(boxes, words):
    return SubscriptionTable.from_arrays(boxes, *ragged(words))


def random_table(rng, n, words=60, most=4, side=0.2):
    low = rng.random((n, 2))
    boxes = np.hstack([low, low + side * rng.random((n, 2))])
    picks = [rng.choice(words, rng.integers(1, most + 1), replace=False).tolist() for _ in range(n)]
    return table(boxes, picks), picks


def random_batch(rng, n, words=60, most=12, side=0.0):
    low = rng.random((n, 2))
    said = [rng.choice(words, rng.integers(0, most + 1), replace=False).tolist() for _ in range(n)]
    return MessageBatch.from_arrays(
        None, *ragged(said), boxes=np.hstack([low, low + side * rng.random((n, 2))])
    )


@pytest.fixture(params=["iq-tree", "rq-tree", "rt-tree"])
def rival(request):
    return request.param


@pytest.mark.parametrize("side", [0.0, 0.05, 0.9], ids=["points", "small areas", "large areas"])
@pytest.mark.parametrize("most", [3, 55], ids=["few words", "many words"])
def test_equals_the_scan_where_structures_are_deep(rival, side, most, monkeypatch):
    """Thousands of clauses: several levels, split regions, both directions of probing, inserts that split nodes."""
    monkeypatch.setattr(config, "CELL_COST", 1e-6)
    monkeypatch.setattr(config, "RQ_QUADTREE_FROM", 8)
    rng = np.random.default_rng(1)
    pair = [build_index(name, random_table(rng, 0)[0]) for name in (rival, "scan")]
    built = [build_index(name, random_table(np.random.default_rng(2), 2_000)[0]) for name in (rival, "scan")]
    more = random_table(rng, 1_500)[0]
    batch = random_batch(rng, 60, most=most, side=side)
    gone = rng.choice(1_500, 900, replace=False)
    for ours, theirs in (pair, built):
        for index in (ours, theirs):
            for part in np.array_split(np.arange(1_500), 4):
                index.insert(more.take(part))
            index.remove(gone)
        assert answers(ours, batch) == answers(theirs, batch)
        assert ours.check() == []


@pytest.mark.parametrize("name", QUADTREES)
def test_clauses_stand_under_their_rarest_keyword(name):
    subs, words = random_table(np.random.default_rng(3), 500)
    index = build_index(name, subs)
    frequency = Counter(word for row in words for word in row)
    rows, keys = index.structure.postings()
    assert set(rows.tolist()) == set(range(500))
    for row, key in zip(rows.tolist(), keys.tolist()):
        assert (key & 0xFFFFFFFF) - 1 == min(words[row], key=lambda word: (frequency[word], word))


class TestCostModel:
    """Costs are balanced for each clause: p(cell) · p(word) for every cell, and what a cell more takes."""

    def cells(self, box, weight, cell_cost, points=None):
        rng = np.random.default_rng(4)
        corners = np.array([[0, 0, 0, 0], [1, 1, 1, 1]], float)
        boxes = np.concatenate([corners, np.repeat(rng.random((4_000, 2)), 2, axis=0).reshape(-1, 4)])
        points = rng.random((50_000, 2)) if points is None else points
        space = space_over(boxes, points)
        offsets = np.empty(2, np.int64)
        found = cover(space, np.array([box]), np.array([0]), np.array([weight]), cell_cost, offsets)
        assert offsets.tolist() == [0, len(found)]
        return found.tolist()

    def test_a_region_in_one_cell_goes_down_with_it(self):
        (cell,) = self.cells([0.3, 0.3, 0.3, 0.3], 1e-9, 1.0)
        assert (
            place_of(cell)[0]
            == space_over(np.random.default_rng(0).random((4_000, 4)), np.empty((0, 2))).grid.levels - 1
        )

    def test_across_the_middle_it_pays_to_part_only_what_is_verified_often(self):
        box = [0.45, 0.45, 0.51, 0.51]
        assert self.cells(box, 1.0, 1.0) == [ROOT]  # cells are dear
        assert self.cells(box, 1e-6, 1e-5) == [ROOT]  # the word is rare
        parted = self.cells(box, 1.0, 1e-2)
        assert len(parted) == 4
        assert len(self.cells(box, 1.0, 1e-4)) > len(parted)

    def test_the_whole_space_is_not_parted(self):
        assert self.cells([-np.inf, -np.inf, np.inf, np.inf], 1.0, 1e-9) == [ROOT]
        assert self.cells([0, 0, 1, 1], 1.0, 1e-9) == [ROOT]

    def test_the_total_cost_is_the_least(self):
        """Against all ways to part a region, two levels deep, by brute force."""
        rng = np.random.default_rng(5)
        points = rng.beta(2, 5, (20_000, 2))
        corners = np.array([[0, 0, 0, 0], [1, 1, 1, 1.0]])
        space = space_over(np.concatenate([corners, rng.random((20, 2))[:, [0, 1, 0, 1]]]), points)
        assert space.grid.levels == 3
        starts = [0, 1, 5]

        def least(level, row, column, box, weight, cell_cost):
            side = 1 << level
            x, y = ([min(int(v * side), side - 1) for v in box[axis::2]] for axis in (0, 1))
            if not (x[0] <= column <= x[1] and y[0] <= row <= y[1]):
                return 0.0
            own = weight * float(space.shares[starts[level] + row * side + column]) + cell_cost
            if level == 2:
                return own
            parts = [
                least(level + 1, 2 * row + i, 2 * column + j, box, weight, cell_cost)
                for i in (0, 1)
                for j in (0, 1)
            ]
            return min(own, sum(parts))

        for _ in range(100):
            box = np.sort(rng.random((2, 2)), axis=0).ravel()
            weight, cell_cost = rng.random(), 10 ** -rng.uniform(0, 4)
            found = cover(
                space, box[None], np.array([0]), np.array([weight]), cell_cost, np.empty(2, np.int64)
            )
            cost = sum(weight * float(space.shares[cell]) + cell_cost for cell in found)
            assert cost == pytest.approx(least(0, 0, 0, box.tolist(), weight, cell_cost), rel=1e-6)

    @pytest.mark.parametrize("name", QUADTREES)
    def test_cheaper_cells_mean_more_of_them(self, name, monkeypatch):
        monkeypatch.setattr(config, "RQ_QUADTREE_FROM", 1)
        subs, _ = random_table(np.random.default_rng(6), 3_000)
        figures = []
        for cost in (1.0, 1e-4, 1e-6):
            monkeypatch.setattr(config, "CELL_COST", cost)
            figures.append(build_index(name, subs).stats())
        replication = [figure["replication"] for figure in figures]
        assert replication[0] == 1.0 < replication[1] < replication[2]
        assert figures[2]["longest_list"] < figures[0]["longest_list"]

    @pytest.mark.parametrize("name", QUADTREES)
    def test_a_sample_of_messages_tells_where_and_what(self, name, tmp_path, monkeypatch):
        """Regions are parted where the messages of the sample come, under words that these have."""
        monkeypatch.setattr(config, "CELL_COST", 1e-3)
        rng = np.random.default_rng(7)
        low = np.concatenate([0.4 * rng.random((500, 2)), 0.5 + 0.4 * rng.random((500, 2))])
        subs = table(np.hstack([low, low + 0.1]), [[row % 2] for row in range(1_000)])
        sample = MessageBatch.from_arrays(
            0.5 * rng.random((2_000, 2)), np.arange(2_001), np.zeros(2_000, int)
        )
        index = build_index(name, subs, messages=sample)
        for one in (index, open_index(index.save(tmp_path / "index"))):
            pieces = np.bincount(one.structure.postings()[0])
            here_and_said, here = pieces[:500][::2].mean(), pieces[:500][1::2].mean()
            assert here_and_said > 1.5 * here
            assert here_and_said > 1.5 * pieces[500:].mean()
            one.structure.build()  # as after a compaction, when the sample is gone
            np.testing.assert_array_equal(np.bincount(one.structure.postings()[0]), pieces)


class TestStats:
    def test_quadtrees(self):
        boxes = [[0, 0, 1, 1], [0.1, 0.1, 0.1, 0.1], [0.9, 0.9, 0.9, 0.9]] + [[0.9, 0.9, 0.9, 0.9]] * 20
        for name in QUADTREES:
            stats = build_index(name, table(boxes, [[1], [1], [2]] + [[2]] * 20)).stats()
            assert stats["replication"] == 1.0
            assert stats["longest_list"] == 21
            assert sum(stats["cells_by_level"]) == stats["cells"]
        assert stats["words"] == 2

    def test_short_lists_have_no_quadtree(self, monkeypatch):
        monkeypatch.setattr(config, "RQ_QUADTREE_FROM", 50)
        rng = np.random.default_rng(8)
        low = rng.random((300, 2))
        subs = table(np.hstack([low, low + 0.01]), [[0]] * 260 + [[1]] * 40)
        index = build_index("rq-tree", subs)
        assert index.stats()["words_with_quadtree"] == 1
        assert index.stats()["lists"] > 20
        index.insert(subs.take(np.arange(260, 300)))
        assert index.stats()["words_with_quadtree"] == 2
        assert index.check() == []

    def test_rt_tree(self):
        subs, _ = random_table(np.random.default_rng(9), 2_000)
        stats = build_index("rt-tree", subs).stats()
        fill = int(config.RT_FILL * config.RT_FANOUT)
        assert stats["leaves"] == -(-2_000 // fill)
        assert stats["height"] == 3
        assert stats["mean_leaf"] == pytest.approx(2_000 / stats["leaves"], abs=0.1)
        assert stats["tokens_by_level"] == sorted(stats["tokens_by_level"])
        assert stats["open_nodes"] == 0


class TestTokenFilters:
    """A node is refused when it has too few of the message's words."""

    def refused(self, words, said):
        """Tell whether the root of a tree over clauses with these words refuses a message."""
        from nearcast.matching.rivals.tokens import passes, put

        index = build_index("rt-tree", table([[0, 0, 1, 1]] * len(words), words))
        filters, root = index.structure._filters, int(index.structure._tree.state[0])
        said = np.array(sorted(said), np.int32)
        outcomes = set()
        for width in (
            said,
            np.concatenate([said, np.arange(1_000, 1_300, dtype=np.int32)]),
        ):  # both directions
            message = np.empty(1_024, np.int32)
            put(message, 10, width, 0, len(width))
            hits = np.empty(config.RT_REPRESENTATIVES + 1, np.int64)
            outcomes.add(
                passes(
                    filters.starts,
                    filters.bits,
                    filters.tokens,
                    filters.needs,
                    root,
                    width,
                    0,
                    len(width),
                    message,
                    10,
                    hits,
                )
            )
        assert len(outcomes) == 1
        return not outcomes.pop()

    def test_one_of_two_representatives_is_too_few(self):
        words = [[1, 2], [3, 4], [5, 6, 7]]
        assert self.refused(words, [1])
        assert self.refused(words, [8, 9])
        assert not self.refused(words, [1, 2])
        assert not self.refused(words, [5, 6])  # the two rarest of three
        assert not self.refused(words, [1, 4])  # two of different clauses: the filter cannot tell

    def test_a_clause_with_one_word_needs_one(self):
        assert not self.refused([[1, 2], [3]], [3])
        assert not self.refused([[1, 2], [1]], [1])
        assert self.refused([[1, 2], [3]], [2])

    def test_clauses_without_words_leave_nodes_open(self):
        index = build_index("rt-tree", table([[0, 0, 1, 1]] * 2, [[1, 2], []]))
        assert index.stats()["open_nodes"] == 1
        assert answers(index, MessageBatch.from_arrays([[0.5, 0.5]], [0, 0], [])) == [{1}]


def test_the_r_tree_grows_and_shrinks():
    rng = np.random.default_rng(10)
    index = build_index("rt-tree", random_table(rng, 0)[0])
    assert index.stats()["height"] == 1
    rows = [index.insert(random_table(rng, 200)[0]) for _ in range(10)]
    grown = index.stats()
    assert grown["height"] >= 3
    assert grown["mean_leaf"] >= config.RT_FANOUT / 2 - 1
    assert index.check() == []
    for some in rows[:-1]:
        index.remove(some)
        assert index.check() == []
    index.remove(rows[-1])
    assert index.stats()["height"] == 1
    assert index.stats()["open_nodes"] == 0
    index.insert(random_table(rng, 100)[0])
    assert index.check() == []


def test_emptied_nodes_are_used_again(monkeypatch):
    monkeypatch.setattr(config, "COMPACT_MIN_DEAD", 10**9)  # the tree must help itself
    rng = np.random.default_rng(11)
    index = build_index("rt-tree", random_table(rng, 0)[0])
    rooms = []
    for _ in range(12):
        index.remove(index.insert(random_table(rng, 1_000)[0]))
        rooms.append((len(index.structure._tree.counts), len(index.structure._filters.tokens)))
    assert rooms[-1][0] <= 1.5 * rooms[1][0]
    assert rooms[-1][1] <= 4 * rooms[1][1]
    assert index.check() == []


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("iq-tree", lambda index: index.structure._lists.pool.rows.__setitem__(0, 1)),
        ("iq-tree", lambda index: index.structure._directory.arrays.slots.fill(0)),
        ("iq-tree", lambda index: index.structure._directory.arrays.groups.__setitem__((0, 2), 99)),
        ("rq-tree", lambda index: index.structure._directory.arrays.groups.__setitem__((2, 2), 0)),
        ("rq-tree", lambda index: index.structure._held.values.__setitem__(3, 99)),
        ("rt-tree", lambda index: index.structure._filters.tokens.fill(-1)),
        ("rt-tree", lambda index: index.structure._tree.boxes.fill(9)),
        ("rt-tree", lambda index: index.structure._tree.entries.fill(0)),
        ("rt-tree", lambda index: index.structure._tree.parents.__setitem__(0, -1)),
    ],
)
def test_damage_is_found(name, damage):
    index = build_index(name, table([[0, 0, 1, 1], [0, 0, 0.5, 0.5]] * 30, [[1, 2], [2, 3]] * 30))
    assert index.check() == []
    damage(index)
    assert index.check() != []
