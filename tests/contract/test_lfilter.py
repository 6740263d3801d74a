"""What LFILTER promises beside right answers: each way through it gives them, and the model uses both filters."""

import numpy as np
import pytest
from hypothesis import given

from answers import answers
from crowds import random_batch, random_table
from nearcast import MessageBatch, SubscriptionTable, build_index, config, open_index
from nearcast.errors import InputError
from nearcast.matching.structures.lfilter.index import FILTERS, VERIFICATIONS
from strategies import batches, ragged, tables

WAYS = [
    (filter, how) for filter in FILTERS for how in VERIFICATIONS if filter == "pt-quadtree" or how == "cost"
]


def each_way(index):
    """Let the index go every way, one after the other."""
    for index.structure.filter, index.structure.verification in WAYS:
        index._publish()
        yield


@given(table=tables(), batch=batches())
def test_every_way_gives_the_same_answers(table, batch):
    expected = answers(build_index("scan", table), batch)
    index = build_index("lfilter", table, tau_num=2)
    for _ in each_way(index):
        assert answers(index, batch) == expected
    assert index.check() == []


def test_every_way_on_long_lists_and_long_messages(tmp_path):
    rng = np.random.default_rng(3)
    table = random_table(rng, 4_000)
    index = build_index("lfilter", table, tau_num=16)
    for most in (10, 150):
        batch = random_batch(rng, 100, most)
        expected = answers(build_index("scan", table), batch)
        for _ in each_way(index):
            assert answers(index, batch) == expected
    index.remove(np.arange(0, 4_000, 7))
    expected = [{row for row in rows if row % 7} for rows in expected]
    for _ in each_way(index):
        assert answers(index, batch) == expected
    again = open_index(index.save(tmp_path / "index"))
    own = again.structure
    assert (own.filter, own.verification, own.tau_num) == (*WAYS[-1], 16)
    assert answers(again, batch) == expected


def test_the_model_picks_the_quadtree_for_long_points_and_the_trie_for_short_areas():
    """Small boxes: a point reads a short list; an area over everything would read all lists."""
    rng = np.random.default_rng(4)
    n = 20_000
    low = rng.random((n, 2))
    words = [np.unique(rng.integers(0, 2_000, 3)).tolist() for _ in range(n)]
    table = SubscriptionTable.from_arrays(np.hstack([low, low + 0.01]), *ragged(words))
    index = build_index("lfilter", table)
    long = MessageBatch.from_arrays([[0.5, 0.5]], [0, 1_500], np.arange(1_500))
    short = MessageBatch.from_arrays(None, [0, 3], [5, 6, 7], boxes=[[0, 0, 1, 1]])
    lfilter = index.structure
    assert lfilter.choices(long.probes) == ["pt-quadtree"]
    assert lfilter.choices(short.probes) == ["mbr-trie"]
    by_point, by_area = lfilter.costs(long.probes)[0], lfilter.costs(short.probes)[0]
    assert (by_point > 0).all()
    assert by_point[0] > by_area[0]
    assert by_area[1] > by_point[1]
    for batch in (long, short):
        assert answers(index, batch) == answers(build_index("scan", table), batch)
    lfilter.filter = "mbr-trie"
    assert lfilter.choices(long.probes) == ["mbr-trie"]


@pytest.mark.parametrize("wrong", [{"filter": "none"}, {"verification": "guess"}, {"tau_num": 0}])
def test_parameters_are_checked(wrong):
    with pytest.raises(InputError, match=next(iter(wrong))):
        build_index("lfilter", random_table(np.random.default_rng(0), 3), **wrong)


def test_newcomers_are_folded_in():
    rng = np.random.default_rng(6)
    table, batch = random_table(rng, 1_000), random_batch(rng, 50, 40)
    index, scan = build_index("lfilter", table, tau_num=8), build_index("scan", table)
    for _ in range(6):
        more = random_table(rng, config.FOLD_MIN // 2, words=400)
        assert np.array_equal(index.insert(more), scan.insert(more))
        gone = rng.choice(np.flatnonzero(scan.store.present), 60, replace=False)
        index.remove(gone)
        scan.remove(gone)
        assert answers(index, batch) == answers(scan, batch)
    assert index.check() == []
    assert index.stats()["folds"] >= 2


def test_stats_tell_of_both_structures():
    stats = build_index("lfilter", random_table(np.random.default_rng(7), 500), tau_num=8).stats()
    assert stats["nodes_per_level"][0] == stats["quadtree_nodes_per_level"][0] == 1
    assert stats["lists"] > 0 < stats["quadtree_leaves"]
    assert (stats["filter"], stats["verification"]) == ("cost", "cost")
