"""What the AP-Tree promises beside right answers: the partitions of its paper, and a tree that keeps its shape."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from answers import answers
from nearcast import MessageBatch, SubscriptionTable, build_index, config, open_index
from nearcast.errors import InputError
from nearcast.matching.structures.ap_tree import layout, maintain
from nearcast.matching.structures.ap_tree.cost import (
    evenly,
    heuristic_cuts,
    optimal_cuts,
    partition_cost,
    strips,
)

WORDS = 300


def world(rng, n, words=(0, WORDS), place=(0.0, 1.0), side=0.1, most=3):
    """n subscriptions with Zipf words of a range, and boxes whose corners lie between two numbers."""
    ranks = np.arange(1, words[1] - words[0] + 1)
    counts = rng.integers(1, most + 1, n)
    codes = rng.choice(ranks, counts.sum(), p=1 / ranks / (1 / ranks).sum()) - 1 + words[0]
    low = rng.uniform(*place, (n, 2))
    boxes = np.hstack([low, low + rng.uniform(0, side, (n, 2))])
    return SubscriptionTable.from_arrays(boxes, np.append(0, np.cumsum(counts)), codes.astype(np.int32))


def messages(rng, n, extent=0.0):
    low = rng.random((n, 2)) * 1.2 - 0.1
    codes = (rng.zipf(1.3, n * 6) % WORDS).astype(np.int32)
    return MessageBatch.from_arrays(
        None, np.arange(0, n * 6 + 1, 6), codes, boxes=np.hstack([low, low + extent])
    )


def assert_right(index, rng):
    assert index.check() == []
    scan = build_index("scan", index.table)
    for extent in (0.0, 0.3):
        batch = messages(rng, 60, extent)
        assert answers(index, batch) == answers(scan, batch)


def kinds(index):
    stats = index.stats()
    return stats["k_nodes"], stats["s_nodes"], stats["leaves"]


# --- Partitions ----------------------------------------------------------------------------------------------------

numbers = st.floats(0, 8).map(lambda value: round(value, 2))


@st.composite
def words_to_cut(draw):
    n = draw(st.integers(1, 9))
    weights = draw(st.lists(st.integers(1, 9), min_size=n, max_size=n))
    hits = draw(st.lists(numbers, min_size=n, max_size=n))
    return np.array(weights, np.float64), np.array(hits), draw(st.integers(1, n))


@given(words_to_cut())
def test_optimal_cuts_are_optimal_and_the_heuristic_never_beats_them(case):
    weights, hits, cuts = case
    n = len(weights)
    best = min(
        partition_cost(weights, hits, np.array([0, *inner]), 0.0)
        for inner in itertools.combinations(range(1, n), cuts - 1)
    )
    optimal, heuristic = optimal_cuts(weights, hits, cuts), heuristic_cuts(weights, hits, cuts)
    for firsts in (optimal, heuristic, evenly(weights, cuts)):
        assert firsts[0] == 0
        assert len(firsts) == cuts
        assert (np.diff(firsts) > 0).all()
        assert firsts[-1] < n
    assert partition_cost(weights, hits, optimal, 0.0) == pytest.approx(best)
    assert partition_cost(weights, hits, heuristic, 0.0) >= best - 1e-9


def test_equal_shares_are_cut_evenly():
    """The special case of Eq. 4: where hits are proportional to weights, equal weights are the optimum."""
    weights = np.full(12, 5.0)
    assert optimal_cuts(weights, weights / 60, 4).tolist() == [0, 3, 6, 9]
    assert heuristic_cuts(weights, weights / 60, 4).tolist() == [0, 3, 6, 9]


def test_borders_move_to_where_boxes_end():
    starts = np.sort(np.float32([0.40, 0.41, 0.42, 0.43]))
    ends = starts + np.float32(0.1)
    borders = strips(starts, ends, (starts + ends) / 2, np.empty(0, np.float32), 0.0, 1.0, 3)
    assert (np.diff(borders) > 0).all()
    assert borders[0] == starts[0]  # what lies left of all boxes is a strip without any


def test_cuts_cover_all_words():
    index = build_index("ap-tree", world(np.random.default_rng(1), 4_000), fanout=20, priority="keywords")
    tree = index.structure._tree
    k_nodes = np.flatnonzero(tree.nodes[: tree.used[0], layout.KIND] == layout.K_NODE)
    assert len(k_nodes)
    for node in k_nodes:
        first, size = tree.nodes[node, [layout.SLOTS, layout.SIZE]]
        lows, highs = tree.lows[first : first + size], tree.highs[first : first + size]
        assert size - 1 <= 20
        assert (lows <= highs)[:-1].all()
        assert (highs[:-1] < lows[1:]).all()
        assert (tree.children[first + size - 1], tree.highs[first + size - 1]) == (-1, -1)  # open, for later
    assert index.check() == []


# --- The tree ------------------------------------------------------------------------------------------------------

SHAPES = [
    {},
    {"partition": "optimal", "fanout": 10},
    {"priority": "keywords", "leaf": 5},
    {"priority": "space", "fanout": 16},
    {"divergence": math.inf},
    {"fanout": 4, "leaf": 2},
]


@pytest.mark.parametrize("parameters", SHAPES, ids=str)
def test_every_shape_gives_the_right_answers(parameters):
    rng = np.random.default_rng(2)
    index = build_index("ap-tree", world(rng, 3_000, side=0.3), **parameters)
    assert_right(index, rng)
    index.remove(np.arange(0, 3_000, 3))
    index.insert(world(rng, 1_500, words=(0, 2 * WORDS), place=(0.3, 1.5)))
    assert_right(index, rng)


@pytest.mark.parametrize("priority", ["cost", "keywords", "space"])
def test_places_on_borders(priority):
    """Coordinates of one decimal, which float32 cannot hold: all meet on edges, of boxes and of cells."""
    rng = np.random.default_rng(14)
    low = rng.integers(-5, 15, (3_000, 2)) / 10
    boxes = np.hstack([low, low + rng.integers(0, 4, (3_000, 2)) / 10])
    boxes[rng.random(boxes.shape) < 0.01] = np.inf
    boxes[:, :2][np.isinf(boxes[:, :2])] = -np.inf
    words = rng.zipf(1.4, 3_000) % 30
    words[:200] = 0
    table = SubscriptionTable.from_arrays(boxes, np.append(0, np.cumsum(words > 0)), words[words > 0])
    index, scan = build_index("ap-tree", table, priority=priority, leaf=4), build_index("scan", table)
    assert sum(kinds(index)[:2]) > 0
    low = rng.integers(-8, 18, (400, 2)) / 10
    for extent in (0.0, 0.1, 0.5, 9.0):
        batch = MessageBatch.from_arrays(
            None,
            np.arange(0, 2_001, 5),
            (rng.zipf(1.4, 2_000) % 30).astype(np.int32),
            boxes=np.hstack([low, low + extent]),
        )
        assert answers(index, batch) == answers(scan, batch)


def test_priorities_shape_the_tree():
    table = world(np.random.default_rng(3), 5_000)
    by_words = build_index("ap-tree", table, priority="keywords").structure._tree.nodes[0, layout.KIND]
    by_space = build_index("ap-tree", table, priority="space").structure._tree.nodes[0, layout.KIND]
    assert (by_words, by_space) == (layout.K_NODE, layout.S_NODE)


def test_stats_tell_the_shape():
    n = 5_000
    stats = build_index("ap-tree", world(np.random.default_rng(4), n, side=0.2)).stats()
    assert stats["k_nodes"] + stats["s_nodes"] > 0
    assert stats["leaves"] > 20
    assert 1 <= stats["height"] <= 12
    assert 1 <= stats["postings_per_clause"] <= config.AP_TREE_BUDGET
    assert stats["mean_leaf"] * stats["leaves"] == pytest.approx(n * stats["postings_per_clause"], rel=0.05)
    assert stats["bytes_of_structure"] / n < 200
    assert (stats["splits"], stats["collapses"], stats["rebuilds"], stats["sampled_messages"]) == (0, 0, 0, 0)


def test_boxes_of_any_size_stay_within_the_budget():
    rng = np.random.default_rng(5)
    boxes = np.hstack([rng.random((4_000, 2)), rng.random((4_000, 2)) + 1])
    boxes[:50] = [-np.inf, -np.inf, np.inf, np.inf]
    table = SubscriptionTable.from_arrays(boxes, np.arange(4_001), rng.integers(0, 50, 4_000))
    index = build_index("ap-tree", table, priority="space")
    assert index.stats()["postings_per_clause"] <= config.AP_TREE_BUDGET
    assert_right(index, rng)


def test_a_message_beside_a_crowd_reads_nothing_of_it():
    """Thousands of the same subscription are one leaf, whose bounds turn away a message that misses."""
    n = 10_000
    table = SubscriptionTable.from_arrays([[0, 0, 1, 1]] * n, np.arange(n + 1), [7] * n)
    index = build_index("ap-tree", table)
    inside, outside = (MessageBatch.from_arrays([place], [0, 1], [7]) for place in ([0.5, 0.5], [1.5, 0.5]))
    assert answers(index, inside) == [set(range(n))]
    assert answers(index, outside) == [set()]
    index.remove(np.arange(0, n, 2))
    assert answers(index, inside) == [set(range(1, n, 2))]
    assert index.check() == []


def test_a_sample_changes_the_tree_but_not_the_answers():
    rng = np.random.default_rng(6)
    table = world(rng, 5_000)
    corner = MessageBatch.from_arrays(
        rng.random((500, 2)) * 0.1, np.arange(501), rng.integers(200, WORDS, 500)
    )
    index, taught = build_index("ap-tree", table), build_index("ap-tree", table, messages=corner)
    assert taught.stats()["sampled_messages"] == 500
    assert not np.array_equal(index.structure._tree.edges, taught.structure._tree.edges) or kinds(
        index
    ) != kinds(taught)
    assert_right(taught, rng)
    assert taught.structure._tree.used.tolist() != index.structure._tree.used.tolist()


def test_what_was_learnt_outlives_another_build_and_saving(tmp_path):
    rng = np.random.default_rng(7)
    index = build_index("ap-tree", world(rng, 600), messages=messages(rng, 50), leaf=10, divergence=0.5)
    index = open_index(index.save(tmp_path / "index"))
    index.remove(np.arange(200))
    index.structure.build()
    index.remove(np.arange(200, 400))
    assert index.stats()["sampled_messages"] == 50
    assert (index.structure._settings.leaf, index.structure._divergence) == (10, 0.5)
    assert_right(index, rng)


# --- Maintenance ---------------------------------------------------------------------------------------------------


def test_leaves_split_when_they_grow_and_nodes_collapse_when_they_shrink():
    rng = np.random.default_rng(8)
    index = build_index("ap-tree", world(rng, 0), divergence=math.inf)
    rows = np.concatenate([index.insert(world(rng, 100)) for _ in range(40)])
    grown = index.stats()
    assert grown["splits"] > 0
    assert grown["leaves"] > 10
    assert_right(index, rng)
    for part in np.array_split(rows[20:], 40):
        index.remove(part)
    shrunk = index.stats()
    assert shrunk["collapses"] > 0
    assert (shrunk["k_nodes"], shrunk["s_nodes"], shrunk["leaves"]) == (0, 0, 1)
    assert_right(index, rng)


def test_a_drift_rebuilds_only_its_subtree(monkeypatch):
    rng = np.random.default_rng(9)
    index = build_index("ap-tree", world(rng, 20_000, most=2), priority="keywords", fanout=20)
    tree = index.structure._tree
    first = tree.nodes[0, layout.SLOTS]
    child = next(
        node
        for node in tree.children[first : first + 20]
        if tree.nodes[node, layout.KIND] != layout.LEAF and tree.nodes[node, layout.WEIGHT] > 500
    )
    monkeypatch.setattr(maintain, "divergence", lambda _tree, node: float(node == child))
    before = index.structure._tree.children[first : first + 20].copy()
    below = lambda node: set(_subtree(index.structure._tree, int(node)))  # noqa: E731
    others = {int(node): below(node) for node in before if node != child}
    tree.nodes[child, layout.CHANGES] = 1
    index.structure._look_at(int(child))
    assert index.stats()["rebuilds"] == 1
    assert index.structure._tree.children[first : first + 20].tolist() == before.tolist()
    assert all(below(node) == members for node, members in others.items())
    assert index.structure._tree.nodes[child, layout.CHANGES] == 0
    assert_right(index, rng)


def _subtree(tree, node):
    yield node
    fields = tree.nodes[node]
    if fields[layout.KIND] != layout.LEAF:
        parts = fields[layout.SIZE] * (fields[layout.ROOM] if fields[layout.KIND] == layout.S_NODE else 1)
        first = fields[layout.SLOTS]
        for child in tree.children[first : first + parts + 1]:
            if child >= 0:
                yield from _subtree(tree, int(child))


@pytest.mark.parametrize("drift", [False, True], ids=["same", "drift"])
def test_rebuilds_come_with_drift_alone(drift):
    rng = np.random.default_rng(10)
    index = build_index("ap-tree", world(rng, 4_000))
    for _ in range(10):
        new = world(rng, 400, words=(100, 200), place=(0.8, 0.9)) if drift else world(rng, 400)
        index.insert(new)
    assert (index.stats()["rebuilds"] > 0) == drift
    assert_right(index, rng)


def test_words_that_come_later_are_divided_without_a_rebuild():
    rng = np.random.default_rng(16)
    index = build_index("ap-tree", world(rng, 4_000, words=(0, 100)), priority="keywords")
    for _ in range(5):
        index.insert(world(rng, 200, words=(0, 100)))
        index.insert(world(rng, 100, words=(100, WORDS), most=1))
    root, weights = index.structure._tree.nodes[0], index.structure._tree.weights
    opened = root[layout.SLOTS] + root[layout.SIZE] - 1
    assert weights[opened] == 500
    below = index.structure._tree.nodes[index.structure._tree.children[opened]]
    assert (below[layout.KIND], below[layout.OFFSET]) == (layout.K_NODE, root[layout.OFFSET])
    assert index.stats()["rebuilds"] == 0
    assert_right(index, rng)


def test_ever_new_words_make_no_chain_of_open_cuts():
    rng = np.random.default_rng(17)
    index = build_index("ap-tree", world(rng, 500, words=(0, 50)), divergence=math.inf, priority="keywords")
    for first in range(50, 20_050, 400):
        index.insert(world(rng, 400, words=(first, first + 400), most=1))
    assert index.stats()["height"] < 12
    assert_right(index, rng)


def test_without_a_limit_on_divergence_nothing_is_rebuilt():
    rng = np.random.default_rng(11)
    index = build_index("ap-tree", world(rng, 2_000), divergence=math.inf)
    index.insert(world(rng, 4_000, words=(100, 200), place=(0.8, 0.9)))
    assert index.stats()["rebuilds"] == 0
    assert_right(index, rng)


def test_turnovers_leave_no_waste():
    rng = np.random.default_rng(12)
    n = 2_000
    index = build_index("ap-tree", world(rng, n))
    rows, sizes = np.arange(n), []
    for _ in range(24):
        gone, rows = rows, index.insert(world(rng, n))
        index.remove(gone)
        sizes.append(index.structure.nbytes)
    assert sizes[-1] < 1.1 * max(sizes[:8])
    assert sizes[-1] < 6 * build_index("ap-tree", index.table).structure.nbytes
    assert_right(index, rng)


@pytest.mark.parametrize("priority", ["cost", "keywords", "space"])
def test_large_nodes_are_rebuilt_step_by_step(priority, monkeypatch, tmp_path):
    """Nothing is built at once here, and all that is built beside the tree takes changes, too."""
    monkeypatch.setattr(config, "AP_TREE_AT_ONCE", 30)
    monkeypatch.setattr(config, "SUCCESSION_ROWS", 20)
    monkeypatch.setattr(config, "AP_TREE_SHARE", 1)
    rng = np.random.default_rng(18)
    index = build_index("ap-tree", world(rng, 2_000), priority=priority, leaf=10, fanout=9)
    rows, steps, deepest = np.arange(2_000), 0, 0
    for turn in range(1_200):
        new = world(rng, 2, words=(turn // 4, turn // 4 + 100), place=(turn / 600, turn / 600 + 1))
        if turn % 5 == 0:
            index.update(rows[50:52], new)
        else:
            gone = rng.permutation(len(rows))[:2]
            index.remove(rows[gone])
            rows = np.append(np.delete(rows, gone), index.insert(new))
        rebuild = index.structure._rebuild
        steps += rebuild is not None
        deepest = max(deepest, len(rebuild.twins()) if rebuild else 0)
        if turn % 40 == 0:
            assert_right(index, rng)
        if turn in (400, 800):
            index = open_index(index.save(tmp_path / str(turn)))
            assert_right(index, rng)
    assert index.stats()["rebuilds"] > 0
    assert steps > 200
    assert deepest > 1
    while index.structure._rebuild or index.structure._nodes.aside or index.structure._waiting:
        index.remove(index.insert(world(rng, 1)))
    assert_right(index, rng)


def test_words_are_ranked_anew_with_the_root(monkeypatch):
    monkeypatch.setattr(config, "AP_TREE_AT_ONCE", 100)
    rng = np.random.default_rng(19)
    index = build_index("ap-tree", world(rng, 3_000, words=(0, 100)), priority="keywords")
    for _ in range(30):
        index.insert(world(rng, 100, words=(200, WORDS)))
    index.remove(np.arange(2_900))
    for _ in range(40):
        index.remove(index.insert(world(rng, 200, words=(200, WORDS))))
    assert index.structure._ranking.ranks[200] < 20  # the most frequent word of today
    assert_right(index, rng)


@pytest.mark.parametrize("priority", ["cost", "keywords", "space"])
def test_a_bushy_tree_through_a_long_life(priority, monkeypatch):
    """Visits that cost nothing make many small nodes, which split, collapse and are built anew all the time."""
    monkeypatch.setattr(config, "AP_TREE_VISIT", 0.0)
    monkeypatch.setattr(config, "AP_TREE_PART", 2)
    rng = np.random.default_rng(15)
    monkeypatch.setattr(maintain, "divergence", lambda _tree, _node: rng.random())

    def some(n):
        low = rng.random((n, 2)).round(1) * rng.choice([0.3, 1.0])
        boxes = np.hstack([low, low + rng.choice([0, 0.1, 0.2, 3.0], (n, 2))])
        counts = rng.integers(0, 5, n)
        words = (rng.zipf(1.4, counts.sum()) * rng.choice([1, 3]) % 50).astype(np.int32)
        forbidden = np.append(0, np.cumsum(rng.random(n) < 0.2))
        return SubscriptionTable.from_arrays(
            boxes,
            np.append(0, np.cumsum(counts)),
            words,
            forbidden=(forbidden, rng.integers(0, 50, forbidden[-1])),
        )

    table = some(500)
    parameters = {"leaf": 3, "fanout": 9, "divergence": 0.5, "priority": priority}
    pair = build_index("ap-tree", table, **parameters), build_index("scan", table)
    alive = np.arange(500)
    for turn in range(60):
        new, gone = some(rng.integers(1, 80)), rng.permutation(alive)[: rng.integers(1, 80)]
        for index in pair:
            index.remove(gone)
            rows = index.insert(new)
        alive = np.append(np.setdiff1d(alive, gone), rows)
        low = rng.random((30, 2)).round(1)
        codes = (rng.zipf(1.4, 240) % 50).astype(np.int32)
        boxes = np.hstack([low, low + (turn % 2) * rng.choice([0.1, 0.5, 2.0], (30, 2))])
        batch = MessageBatch.from_arrays(None, np.arange(0, 241, 8), codes, boxes=boxes)
        ours, theirs = (answers(index, batch) for index in pair)
        assert ours == theirs
        assert pair[0].check() == []
    stats = pair[0].stats()
    assert min(stats[name] for name in ("splits", "collapses", "rebuilds", "height")) > 0


# --- Parameters ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value", "way_out"),
    [
        ("fanout", 3, "from 4"),
        ("fanout", 2.5, "whole number"),
        ("leaf", 0, "from 2"),
        ("leaf", True, "whole number"),
        ("divergence", 0, "above 0"),
        ("divergence", "0.1", "above 0"),
        ("partition", "best", "'heuristic', 'optimal'"),
        ("priority", None, "'cost', 'keywords', 'space'"),
    ],
)
def test_parameters_are_checked(name, value, way_out):
    with pytest.raises(InputError, match=name) as error:
        build_index("ap-tree", SubscriptionTable.from_arrays([], [0], []), **{name: value})
    assert way_out in str(error.value)
    assert repr(value) in str(error.value)


def test_progress_is_told():
    told = []
    build_index(
        "ap-tree",
        world(np.random.default_rng(13), 2_000),
        progress=lambda step, share: told.append((step, share)),
    )
    assert {step for step, _ in told} >= {"rank words", "build nodes"}
    assert all(0 <= share <= 1 for _, share in told)
