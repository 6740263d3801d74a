"""What the ranked list promises beside right answers: short lists, found again after every change, and no waste."""

from collections import Counter

import numpy as np
import pytest

from answers import answers
from nearcast import MessageBatch, SubscriptionTable, build_index, config, open_index
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


def test_lists_that_grow_and_empty_do_not_grow_the_pool(monkeypatch):
    """Words come and go: the room of lists that nobody needs any more is used again."""
    monkeypatch.setattr(config, "COMPACT_MIN_DEAD", 10**9)  # the pool must help itself
    n, lists = 600, 60
    index = build_index("ranked-list", everywhere([]))
    pools = []
    for generation in range(30):
        words = [[generation % 6 * lists + i % lists] for i in range(n)]
        rows = index.insert(everywhere(words))
        pools.append(len(index.structure._by_word.pool.rows))
        if generation < 29:
            index.remove(rows)
    assert max(pools) <= 4 * n
    batch = MessageBatch.from_arrays([[0, 0]], [0, 1], [29 % 6 * lists])
    assert answers(index, batch) == [set(rows[::lists].tolist())]
    assert index.check() == []


def test_the_structure_stays_small_through_turnovers():
    rng = np.random.default_rng(4)
    n = 1_500
    index = build_index("ranked-list", everywhere(zipf(rng, n)))
    fresh, rows = index.stats()["bytes_of_structure"], np.arange(n)
    for _ in range(6):
        gone, rows = rows, index.insert(everywhere(zipf(rng, n)))
        index.remove(gone)
        assert index.stats()["bytes_of_structure"] < 6 * fresh
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
    assert answers(index, batch) == [set(range(2, 104))]
