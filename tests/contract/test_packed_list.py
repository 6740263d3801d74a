"""What the packed list promises beside right answers: blocks that are near in place, and no waste through changes."""

import numpy as np
import pytest

from answers import answers
from nearcast import MessageBatch, SubscriptionTable, build_index, open_index

WORDS = 6


def world(rng, rows, *, most=4, endless=0.02):
    """Few words, so that lists are long; boxes of all sizes, some without end."""
    counts = rng.integers(0, most + 1, rows)
    words = rng.integers(0, WORDS, counts.sum())
    low = rng.random((rows, 2)).round(3)
    boxes = np.hstack([low, low + rng.choice([0, 0.001, 0.02, 0.3], (rows, 2))])
    boxes[rng.random(rows) < endless] = [-np.inf, -np.inf, np.inf, np.inf]
    tests = np.flatnonzero(rng.random(rows) < 0.1)
    offsets = np.searchsorted(tests, np.arange(rows + 1))
    intervals = (offsets, np.zeros(len(tests), np.int32), np.zeros(len(tests)), np.full(len(tests), 0.5))
    return SubscriptionTable.from_arrays(boxes, np.append(0, np.cumsum(counts)), words, intervals)


def batch(rng, rows, *, areas=False):
    counts = rng.integers(0, WORDS + 1, rows)
    words = np.append(0, np.cumsum(counts)), rng.integers(0, WORDS, counts.sum())
    points = rng.random((rows, 2)).round(3)
    values = rng.random((rows, 1))
    if areas:
        return MessageBatch.from_arrays(None, *words, values, boxes=np.hstack([points, points + 0.05]))
    return MessageBatch.from_arrays(points, *words, values)


@pytest.mark.parametrize("areas", [False, True], ids=["points", "areas"])
def test_long_lists_through_many_changes(areas):
    rng = np.random.default_rng(3)
    table = world(rng, 4_000)
    index, scan = build_index("packed-list", table), build_index("scan", table)
    present = np.arange(4_000)
    for _ in range(12):
        more = world(rng, 500)
        gone = rng.choice(present, 400, replace=False)
        rows = [i.insert(more) for i in (index, scan)]
        for i in (index, scan):
            i.remove(gone)
        assert np.array_equal(*rows)
        present = np.append(np.setdiff1d(present, gone), rows[0])
        messages = batch(rng, 60, areas=areas)
        assert answers(index, messages) == answers(scan, messages)
        assert index.check() == []
    stats = index.stats()
    assert stats["packed_lists"] == WORDS + 1  # that of clauses without keywords among them
    assert stats["packed_postings"] == len(present)


def test_a_list_becomes_packed_when_it_is_long_and_blocks_are_full():
    def ones(n):
        points = np.random.default_rng(n).random((n, 2))
        return SubscriptionTable.from_arrays(np.hstack([points, points]), np.arange(n + 1), [0] * n)

    assert build_index("packed-list", ones(64)).stats()["packed_lists"] == 0
    stats = build_index("packed-list", ones(1_000)).stats()
    assert (stats["packed_lists"], stats["blocks"], stats["longest_list"]) == (1, 32, 1_000)
    index = build_index("packed-list", ones(64))
    index.insert(ones(64).take([0]))
    assert index.stats()["packed_lists"] == 1
    assert index.check() == []


def test_blocks_hold_what_is_near():
    """A message reads few blocks: in a list of 10,000 small boxes the boxes around its blocks hardly overlap."""
    rng = np.random.default_rng(4)
    low = rng.random((10_000, 2))
    table = SubscriptionTable.from_arrays(np.hstack([low, low + 0.001]), np.arange(10_001), [0] * 10_000)
    index = build_index("packed-list", table)
    cost = index.structure.expected(batch_of_one_word(rng).probes)
    assert cost.total < 700  # nanoseconds at the model's prices; 10,000 tests alone would be ten times that
    assert cost.words == 0


def batch_of_one_word(rng):
    return MessageBatch.from_arrays(rng.random((200, 2)), np.arange(201), [0] * 200)


def test_sides_that_meet_in_float32_are_decided_in_float64():
    """Of 200 boxes in one list, all equal after rounding, only those that hold the point match."""
    edges = 0.1 + np.arange(200) * 1e-12
    boxes = np.column_stack([np.zeros(200), np.zeros(200), edges, np.ones(200)])
    index = build_index("packed-list", SubscriptionTable.from_arrays(boxes, np.arange(201), [0] * 200))
    found = index.match(MessageBatch.from_arrays([[edges[77], 0.5]], [0, 1], [0])).sorted()
    assert found[0].tolist() == list(range(77, 200))


def test_words_with_the_same_hash_are_told_apart():
    """A message that lacks a word but has one of its hash does not borrow it from the message behind it."""

    def hashed(word):
        return (word * 0x9E3779B97F4A7C15 & (1 << 64) - 1) >> 48

    seen = {}
    low = high = None
    for word in range(1, 200_000):
        if hashed(word) in seen:
            low, high = seen[hashed(word)], word
            break
        seen[hashed(word)] = word
    # Word 0 is the rarer of the clause's two, so that *high* is looked up among the words of the message.
    table = SubscriptionTable.from_arrays([[0, 0, 1, 1]] * 3, [0, 2, 3, 4], [0, high, high, high])
    batch = MessageBatch.from_arrays([[0.5, 0.5]] * 2, [0, 2, 3], [0, low, high])
    assert answers(build_index("packed-list", table), batch) == [set(), {1, 2}]


def test_turnover_does_not_grow_the_pools():
    rng = np.random.default_rng(5)
    index = build_index("packed-list", world(rng, 3_000))
    present = np.arange(3_000)
    sizes = []
    for _ in range(40):
        gone = rng.choice(present, 1_000, replace=False)
        index.remove(gone)
        present = np.append(np.setdiff1d(present, gone), index.insert(world(rng, 1_000)))
        sizes.append(index.stats()["bytes_of_structure"] - 8 * index.store.rows)
    assert max(sizes[20:]) < 1.5 * max(sizes[:5])


def test_changes_after_opening(tmp_path):
    rng = np.random.default_rng(6)
    table = world(rng, 1_000)
    index = open_index(build_index("packed-list", table).save(tmp_path / "index"))
    scan = build_index("scan", table)
    for i in (index, scan):
        i.insert(world(np.random.default_rng(7), 500))
        i.remove(np.arange(0, 1_500, 3))
    messages = batch(rng, 50)
    assert answers(index, messages) == answers(scan, messages)
    assert index.check() == []


def test_check_finds_damage():
    index = build_index("packed-list", world(np.random.default_rng(8), 2_000))
    assert index.check() == []
    index.structure._lists.block_boxes[3] = np.inf, np.inf, -np.inf, -np.inf
    assert "a posting lies outside its block" in index.check()
    index.structure._lists.rows[index.structure._homes.values[5, 1]] = 6
    assert "a posting is not where its clause says" in index.check()
