"""What the ranked list promises beside right answers: short lists, found again after every change, and no waste."""

from collections import Counter

import numpy as np
import pytest

from answers import answers
from nearcast import MessageBatch, SubscriptionTable, build_index, config, open_index
from nearcast.kernels.slabs import END
from rooms import free_slots
from strategies import ragged

VOCABULARY = 2_000


def zipf(rng, n, most=5):
    """n rows of different words, the r-th most frequent with a weight of 1/r; the frequent codes are drawn anew."""
    weights = 1 / np.arange(1, VOCABULARY + 1)
    codes = rng.permutation(VOCABULARY)
    return [
        codes[
            rng.choice(VOCABULARY, rng.integers(1, most + 1), replace=False, p=weights / weights.sum())
        ].tolist()
        for _ in range(n)
    ]


def everywhere(words):
    return SubscriptionTable.from_arrays([[0, 0, 1, 1]] * len(words), *ragged(words))


def lengths(index):
    """The figures that change when a clause stands under another word."""
    stats = index.stats()
    return {name: stats[name] for name in ("word_lists", "longest_word_list", "mean_word_list")}


def test_each_clause_stands_under_its_rarest_keyword():
    words = zipf(np.random.default_rng(1), 3_000)
    frequency = Counter(word for row in words for word in row)
    sizes = Counter(min(row, key=lambda word: (frequency[word], word)) for row in words)
    stats = build_index("ranked-list", everywhere(words)).stats()
    assert stats["word_lists"] == len(sizes)
    assert stats["longest_word_list"] == max(sizes.values()) < max(frequency.values()) / 3


@pytest.mark.parametrize("opened", [False, True], ids=["built", "opened"])
def test_frequencies_follow_a_turnover(opened, tmp_path):
    """After a removal of everything and an insert of other words, the lists are those of a fresh build."""
    rng = np.random.default_rng(2)
    n = config.COMPACT_MIN_DEAD - 100  # so that no compaction counts the words anew
    before, after = everywhere(zipf(rng, n)), everywhere(zipf(rng, n))
    index = build_index("ranked-list", before)
    if opened:
        index = open_index(index.save(tmp_path / "index"))
    index.remove(np.arange(n))
    index.insert(after)
    assert index.stats()["compactions"] == 0
    assert lengths(index) == lengths(build_index("ranked-list", after))


def test_frequencies_follow_a_move():
    words = zipf(np.random.default_rng(3), 200)
    index = build_index("ranked-list", everywhere(words))
    expected = index.store.rows, index.structure._frequency.values.tolist()
    for row in range(200):
        index.move(row, [2, 2, 3, 3])
    assert (index.stats()["clauses"], index.structure._frequency.values.tolist()) == expected


def pool(lists):
    """Slots of a pool, of the lists' rooms and of free ones."""
    return int(lists._slabs[END]), int(lists.pool.rooms.sum()), free_slots(lists._slabs, lists.pool.rows)


def test_lists_that_grow_and_empty_do_not_grow_the_pool():
    """Words come and go: the room of lists that nobody needs any more is used again."""
    n, lists = 600, 60
    index = build_index("ranked-list", everywhere([]))
    pools = []
    for generation in range(30):
        words = [[generation % 6 * lists + i % lists] for i in range(n)]
        rows = index.insert(everywhere(words))
        used, taken, free = pool(index.structure._by_word)
        assert taken + free == used
        pools.append(used)
        if generation < 29:
            index.remove(rows)
            assert pool(index.structure._by_word) == (used, 0, used)
    assert len(set(pools)) == 1
    assert pools[0] <= 3 * n
    batch = MessageBatch.from_arrays([[0, 0]], [0, 1], [29 % 6 * lists])
    assert answers(index, batch) == [set(rows[::lists].tolist())]
    assert index.check() == []


def test_the_structure_stays_small_through_turnovers():
    rng = np.random.default_rng(4)
    n = 1_500
    index = build_index("ranked-list", everywhere(zipf(rng, n)))
    fresh, rows = index.stats()["bytes_of_structure"], np.arange(n)
    for _ in range(20):
        gone, rows = rows, index.insert(everywhere(zipf(rng, n)))
        index.remove(gone)
        assert index.stats()["bytes_of_structure"] < 4 * fresh
    assert index.check() == []


def test_the_grid_is_laid_out_anew_over_the_living_alone():
    def bare(n):
        return SubscriptionTable.from_arrays([[0, 0, 1, 1]] * n, [0] * (n + 1), [])

    index = build_index("ranked-list", bare(4))
    levels = index.stats()["grid_levels"]
    index.remove([0, 1])
    index.insert(bare(100))
    stats = index.stats()
    assert stats["grid_levels"] > levels
    assert stats["grid_postings"] == 102
    assert index.check() == []
    batch = MessageBatch.from_arrays([[0.5, 0.5]], [0, 0], [])
    assert answers(index, batch) == [set(range(102))]


def places(rng, n):
    """Small boxes, most of them without words."""
    low = rng.random((n, 2))
    words = [[int(word)] if word < 40 else [] for word in rng.integers(0, 200, n)]
    return SubscriptionTable.from_arrays(np.hstack([low, low + 0.02]), *ragged(words))


def test_a_move_writes_the_posting_in_place_or_puts_it_into_another_cell(monkeypatch):
    rng = np.random.default_rng(5)
    table = places(rng, 3_000)
    index, scan = build_index("ranked-list", table), build_index("scan", table)
    before = index.structure._frequency.values.copy()
    dropped = []
    monkeypatch.setattr(index.structure, "drop", dropped.extend)
    for _ in range(3):
        rows = rng.choice(3_000, 500, replace=False)
        moved = scan.table.take(rows)
        moved.clauses.boxes[:] += rng.choice([0, 1e-4, 0.3, 5.0], (500, 1))
        for each in (index, scan):
            each.update(rows, moved)
        assert index.check() == []
    assert not dropped, "nothing is taken out and posted again"
    np.testing.assert_array_equal(index.structure._frequency.values, before)
    batch = MessageBatch.from_arrays(
        rng.random((200, 2)), *ragged([[int(w)] for w in rng.integers(0, 40, 200)])
    )
    found = answers(index, batch)
    assert found == answers(scan, batch)
    assert sum(map(len, found)) > 100


def test_a_successor_that_is_filled_row_by_row_answers_as_the_first(tmp_path):
    rng = np.random.default_rng(6)
    index = build_index("ranked-list", places(rng, 40))
    index.insert(places(rng, 3_000))
    index.remove(np.arange(0, 3_000, 5))
    batch = MessageBatch.from_arrays(
        rng.random((200, 2)), *ragged([[int(w)] for w in rng.integers(0, 40, 200)])
    )
    expected, first = answers(index, batch), index.structure
    successor = first.successor()
    for row in first.members():
        successor.add(np.array([row]))
    index.structure = successor
    index.insert(places(rng, 0))  # publishes
    assert index.check() == []
    assert answers(index, batch) == expected
    bare = successor._by_cell.postings
    assert successor._laid_for == bare
    assert index.stats()["grid_levels"] == build_index("ranked-list", index.table).stats()["grid_levels"]
    opened = open_index(index.save(tmp_path / "index"), verify=True)
    more = places(rng, 500)
    for each in (opened, index):
        each.insert(more)
        assert each.check() == []
    assert answers(opened, batch) == answers(index, batch)


@pytest.mark.parametrize(("bare", "worded"), [(0, 0), (0, 1_000), (500, 1_000)])
def test_the_grid_is_outgrown_by_clauses_without_words_alone(bare, worded):
    words = [[]] * bare + [[1]] * worded
    structure = build_index("ranked-list", everywhere(words)).structure
    assert not structure.outgrown(0)
    assert not structure.outgrown(worded)
    assert structure.outgrown(config.GRID_GROWTH * max(bare, 1) * (bare + worded + 1) + 1)
