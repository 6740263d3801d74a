"""What the MBRTrie promises beside right answers: its shape, its three ways of probing, cheap changes."""

import numpy as np
import pytest
from hypothesis import given

from answers import answers
from crowds import random_batch, random_table
from nearcast import MessageBatch, SubscriptionTable, build_index, config, open_index
from nearcast.errors import ColumnError
from nearcast.matching.structures.mbr_trie.index import PROBING
from strategies import batches, ragged, tables


def test_token_sets_with_a_common_beginning_share_their_nodes():
    """Ranks by decreasing frequency: 1, 2, 3, 4. The rarest token comes first on every path."""
    rows = [[1], [1], [1, 2], [1, 2], [1, 2, 3], [1, 2, 3, 4], [1, 3]]
    index = build_index("mbr-trie", SubscriptionTable.from_arrays([[0, 0, 1, 1]] * 7, *ragged(rows)))
    trie = index.structure._trie
    assert index.stats()["nodes_per_level"] == [1, 4, 4, 2, 1]  # 4 3 2 1 / 43 32 31 21 / 432 321 / 4321
    assert index.stats()["height"] == 4
    ranges = [(int(low), int(high)) for low, high in zip(trie.lows, trie.highs)]
    assert ranges[:5] == [(0, 7), (0, 1), (1, 3), (3, 5), (5, 7)]
    assert index.structure._postings.rows.tolist() == [5, 4, 6, 2, 3, 0, 1]


@given(table=tables(), batch=batches())
def test_every_way_of_probing_gives_the_same_answers(table, batch):
    expected = answers(build_index("scan", table), batch)
    for probing in PROBING:
        assert answers(build_index("mbr-trie", table, probing=probing), batch) == expected


@pytest.mark.parametrize("probing", PROBING)
def test_probing_on_wide_nodes_and_long_messages(probing, tmp_path):
    rng = np.random.default_rng(3)
    table, batch = random_table(rng, 4_000), random_batch(rng, 100, 150)
    index = build_index("mbr-trie", table, probing=probing)
    assert index.check() == []
    assert answers(index, batch) == answers(build_index("scan", table), batch)
    again = open_index(index.save(tmp_path / "index"))
    assert again.structure.probing == probing


def test_an_unknown_way_of_probing():
    with pytest.raises(ColumnError, match=r"cost, token-set, trie, not 'guess'"):
        build_index("mbr-trie", random_table(np.random.default_rng(0), 3), probing="guess")


def test_newcomers_are_folded_in():
    rng = np.random.default_rng(4)
    table, batch = random_table(rng, 1_000), random_batch(rng, 50, 40)
    index, scan = build_index("mbr-trie", table), build_index("scan", table)
    seen = set()
    for _ in range(12):
        more = random_table(rng, config.FOLD_MIN // 3, words=400)
        assert np.array_equal(index.insert(more), scan.insert(more))
        gone = rng.choice(np.flatnonzero(scan.store.present), 60, replace=False)
        index.remove(gone)
        scan.remove(gone)
        assert answers(index, batch) == answers(scan, batch)
        assert index.check() == []
        stats = index.stats()
        assert stats["newcomers_share"] == round(stats["newcomers"] / stats["clauses"], 3)
        seen.add(stats["newcomers"] > 0)
    assert index.stats()["folds"] >= 3
    assert seen == {True, False}


@pytest.mark.parametrize("name", ["mbr-trie", "pt-quadtree", "lfilter"])
def test_a_fold_leaves_nothing_of_what_was_removed(name):
    rng = np.random.default_rng(8)
    table, batch = random_table(rng, 2_000), random_batch(rng, 50, 40)
    index, scan = build_index(name, table), build_index("scan", table)
    more = random_table(rng, 300, words=400)
    for matcher in (index, scan):
        matcher.remove(np.arange(1_000))
        matcher.insert(more)
    assert index.stats()["folds"] == 1
    assert index.stats()["newcomers"] == 0
    assert np.array_equal(np.sort(index.structure._laid()), np.flatnonzero(index.store.alive))
    assert answers(index, batch) == answers(scan, batch)
    assert index.check() == []


def test_a_message_outside_a_crowd_of_equals_looks_at_one_box():
    n = 10_000
    table = SubscriptionTable.from_arrays([[0, 0, 1, 1]] * n, np.arange(0, 2 * n + 1, 2), np.tile([3, 5], n))
    index = build_index("mbr-trie", table)
    assert index.stats()["lists"] == 1
    batch = MessageBatch.from_arrays([[2, 2], [0.5, 0.5]], [0, 3, 6], [3, 4, 5, 3, 4, 5])
    index.structure._postings.boxes[:] = np.nan  # nobody may look here for the first message
    assert [len(rows) for rows in answers(index, batch)] == [0, 0]
    assert index.structure._trie.boxes.tolist() == [[0, 0, 1, 1]] * 3


@pytest.mark.parametrize("damage", ["tokens", "lows", "highs", "boxes", "posting", "tops"])
def test_damage_is_found(damage):
    rng = np.random.default_rng(5)
    index = build_index("mbr-trie", random_table(rng, 300))
    trie = index.structure._trie
    if damage == "posting":
        index.structure._postings.boxes[7] = [-9, -9, 9, 9]
    elif damage == "boxes":
        trie.boxes[len(trie.boxes) // 2] = [-9, -9, 9, 9]
    elif damage == "tokens":
        trie.tokens[1], trie.tokens[2] = trie.tokens[2], trie.tokens[1]
    else:
        getattr(trie, damage)[0 if damage == "tops" else 5] += 1
    assert index.check() != []
