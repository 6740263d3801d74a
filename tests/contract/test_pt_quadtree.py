"""What the PT-Quadtree promises beside right answers: pivotal tokens, few entries, thresholds, cheap misses."""

import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from answers import answers
from crowds import random_batch, random_table
from nearcast import MessageBatch, SubscriptionTable, build_index, config, open_index
from nearcast.errors import InputError
from nearcast.matching.structures.pt_quadtree.pivots import node_sets, pivotal_tokens
from nearcast.matching.structures.pt_quadtree.quadtree import cell
from nearcast.matching.structures.pt_quadtree.search import least_from
from strategies import batches, ragged, tables


def pivots_of(rows):
    offsets, tokens = ragged(rows)
    items = np.arange(len(rows), dtype=np.int32)
    found = pivotal_tokens(np.array([0, len(rows)]), items, np.array(offsets), np.array(tokens, np.int32))
    return found[1].tolist(), found[2].tolist()


def test_the_greedy_hitting_set_of_a_worked_example():
    """2 is in three of five sets; of {5, 6} and {6, 7}, which are left, 6 is in both; {9} has only itself."""
    assert pivots_of([[1, 2], [2, 5], [2, 6], [5, 6], [6, 7], [9]]) == ([2, 6, 9], [False])
    assert pivots_of([[4], [], [4, 8]]) == ([4], [True])
    assert pivots_of([]) == ([], [False])


@given(st.lists(st.sets(st.integers(0, 8), max_size=4).map(sorted), max_size=12))
def test_every_set_is_hit_and_greed_picks_the_most_frequent_first(rows):
    pivots, bare = pivots_of(rows)
    assert bare == [[] in rows]
    assert all(set(row) & set(pivots) for row in rows if row)
    left, picked = [set(row) for row in rows if row], []
    while left:  # any of the most frequent may be next
        counts = {token: sum(token in row for row in left) for row in left for token in row}
        best = [token for token in pivots if counts.get(token) == max(counts.values())]
        assert best
        token = best[0]
        picked.append(token)
        left = [row for row in left if token not in row]
        if len(best) > 1:
            return  # a tie: from here on, several picks are right
    assert sorted(picked) == pivots


def test_a_token_of_all_children_moves_to_the_cover_set():
    """A root, four leaves with the tokens {1, 2}, {1}, {1, 3}, {1}; the root's own list has 7."""
    first, levels = np.array([1, 0, 0, 0, 0], np.int32), np.array([0, 1, 5])
    offsets, pivots = np.array([0, 1, 3, 4, 6, 7]), np.array([7, 1, 2, 1, 1, 3, 1], np.int32)
    bare, under = np.array([False, False, False, False, True]), np.array([9, 2, 2, 2, 2])
    cover_offsets, cover, rest_offsets, rest, always = node_sets(first, levels, offsets, pivots, bare, under)
    assert (cover_offsets.tolist(), cover.tolist()) == ([0, 1, 1, 1, 1, 1], [1])
    assert (rest_offsets.tolist(), rest.tolist()) == ([0, 3, 4, 4, 5, 5], [2, 3, 7, 2, 3])
    assert always.tolist() == [True, False, False, False, True]


@given(table=tables(), batch=batches(), tau_num=st.integers(1, 5))
def test_any_thresholds_give_the_same_answers(table, batch, tau_num):
    index = build_index("pt-quadtree", table, tau_num=tau_num, tau_area=1e-6)
    assert index.check() == []
    assert answers(index, batch) == answers(build_index("scan", table), batch)


def test_areas_over_many_regions_find_nothing_twice(tmp_path):
    rng = np.random.default_rng(3)
    table = random_table(rng, 3_000)
    index = build_index("pt-quadtree", table, tau_num=8)
    stats = index.stats()
    assert stats["quadtree_height"] >= 4
    assert stats["entries_per_clause"] <= (config.QUADTREE_SPAN + 1) ** 2
    low = rng.random((200, 2)) - 0.2
    boxes = np.hstack([low, low + rng.random((200, 2))])
    batch = MessageBatch.from_arrays(None, np.arange(201) * 3, rng.integers(0, 20, 600), boxes=boxes)
    expected = answers(build_index("scan", table), batch)
    assert answers(index, batch) == expected
    again = open_index(index.save(tmp_path / "index"))
    assert (again.structure.tau_num, again.structure.tau_area) == (8, config.QUADTREE_TAU_AREA)
    assert answers(again, batch) == expected
    assert again.check() == []


def test_an_area_threshold_ends_the_division():
    table = random_table(np.random.default_rng(4), 2_000)
    assert build_index("pt-quadtree", table, tau_num=1, tau_area=1.0).stats()["quadtree_height"] == 1
    assert build_index("pt-quadtree", table, tau_num=10**6).stats()["quadtree_nodes_per_level"] == [1]


@pytest.mark.parametrize("wrong", [{"tau_num": 0}, {"tau_num": 1.5}, {"tau_area": 0}, {"tau_area": 2}])
def test_thresholds_are_checked(wrong):
    with pytest.raises(InputError, match=next(iter(wrong))):
        build_index("pt-quadtree", random_table(np.random.default_rng(0), 3), **wrong)


def test_boxes_without_end_stay_at_the_root():
    n = 500
    rng = np.random.default_rng(5)
    low = rng.random((n, 2))
    boxes = np.hstack([low, low + 0.001])
    boxes[::2] = [-np.inf, -np.inf, np.inf, np.inf]
    table = SubscriptionTable.from_arrays(boxes, np.arange(n + 1), rng.integers(0, 9, n))
    index = build_index("pt-quadtree", table, tau_num=4)
    assert index.structure._tree.starts[1] == n // 2
    batch = random_batch(rng, 50, 9)
    assert answers(index, batch) == answers(build_index("scan", table), batch)


def test_a_message_outside_a_crowd_of_equals_meets_no_node():
    n = 10_000
    table = SubscriptionTable.from_arrays([[0, 0, 1, 1]] * n, np.arange(0, 2 * n + 1, 2), np.tile([3, 5], n))
    index = build_index("pt-quadtree", table)
    batch = MessageBatch.from_arrays([[2, 2]], [0, 3], [3, 4, 5])
    assert answers(index, batch) == [set()]
    assert index.structure._tree.boxes.tolist() == [[0, 0, 1, 1]] * len(index.structure._tree.boxes)


def test_newcomers_are_folded_in_and_the_removed_stay_away():
    rng = np.random.default_rng(6)
    table, batch = random_table(rng, 1_000), random_batch(rng, 50, 40)
    index, scan = build_index("pt-quadtree", table, tau_num=8), build_index("scan", table)
    for _ in range(8):
        more = random_table(rng, config.FOLD_MIN // 2, words=400)
        assert np.array_equal(index.insert(more), scan.insert(more))
        gone = rng.choice(np.flatnonzero(scan.store.present), 60, replace=False)
        index.remove(gone)
        scan.remove(gone)
        assert answers(index, batch) == answers(scan, batch)
    assert index.check() == []
    assert index.stats()["folds"] >= 2


def test_newcomers_that_crowd_a_region_have_it_divided():
    rng = np.random.default_rng(9)
    table = random_table(rng, 2_000)
    index, scan = build_index("pt-quadtree", table, tau_num=16), build_index("scan", table)
    height = index.stats()["quadtree_height"]
    low = 0.3 + 0.01 * rng.random((600, 2))
    crowd = SubscriptionTable.from_arrays(np.hstack([low, low]), np.arange(601), rng.integers(0, 50, 600))
    index.insert(crowd)
    scan.insert(crowd)
    assert index.stats()["folds"] == 1
    assert index.stats()["quadtree_height"] > height
    batch = random_batch(rng, 50, 40)
    assert answers(index, batch) == answers(scan, batch)
    assert index.check() == []


@pytest.mark.parametrize("damage", ["items", "columns", "rest", "first", "cover", "falling"])
def test_damage_is_found(damage):
    index = build_index("pt-quadtree", random_table(np.random.default_rng(7), 400), tau_num=8)
    tree = index.structure._tree
    if damage == "items":
        index.structure._entries.items[3] = index.structure._entries.items[2]
    elif damage == "falling":
        tree.falling[:] = 0
    elif damage == "rest":
        tree.rest[:] = 1
        tree.cover[:] = 1
        tree.always[:] = False
    elif damage == "cover":
        child = int(tree.first[0])
        tree.rest[tree.rest_offsets[child]] = tree.cover[0]
        assert tree.cover_offsets[1] > 0
    else:
        getattr(tree, damage)[1] += 9
    assert index.check() != []


@pytest.mark.parametrize("low", [-1.0, -1 / 3, -0.1, 0.0, 1e-30, 0.3, 100.0, -180.0])
@pytest.mark.parametrize("extent", [1e-6, 0.4, 4 / 3, 2.0, 360.0])
def test_the_first_coordinate_of_a_cell_is_found_soon(low, extent):
    """One float before it is another cell; also where that is near zero, a billion floats from where it should be."""
    low = float(np.float32(low))
    zero = round(-low / extent * (1 << config.QUADTREE_LEVELS))
    last = (1 << config.QUADTREE_LEVELS) - 1
    for target in {1, 2, 1000, last, *(n for n in range(zero - 2, zero + 3) if 1 <= n <= last)}:
        began = time.process_time()
        value = least_from(target, low, extent)
        assert time.process_time() - began < 5  # compiled, in the first one
        assert cell(float(value), low, extent) >= target
        assert cell(float(np.nextafter(value, np.float32(-np.inf))), low, extent) < target
