"""What the packed list promises beside right answers: blocks that are near in place, and no waste through changes."""

import gc
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from answers import answers
from nearcast import MessageBatch, SubscriptionTable, build_index, open_index
from nearcast.columns import growable
from nearcast.kernels import slabs

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


def rooms(lists, bits):
    """Return how often each slot and each super-block is in a list or free: once, if none is lost."""
    heads = lists.heads[: int(lists.state[0])]
    slots, supers = np.zeros(lists.slot_slabs[slabs.END], int), np.zeros(lists.super_slabs[slabs.END], int)
    for first, _, room, count in heads.tolist():
        if room >= 0:
            slots[first : first + room] += 1
        else:
            supers[first : first - room] += 1
            for s in range(first, first + count):
                for chunk in lists.blocks[s << bits : (s << bits) + lists.super_counts[s], 0].tolist():
                    slots[chunk << bits : (chunk + 1) << bits] += 1
    for uses, allocator, links in (
        (slots, lists.slot_slabs, lists.rows),
        (supers, lists.super_slabs, lists.super_changes),
    ):
        for k, at in enumerate(allocator[slabs.FREE :].tolist()):
            while at >= 0:
                uses[at : at + (1 << k)] += 1
                at = int(links[at])
    return slots, supers


def test_nodes_split_empty_and_are_tidied():
    """With blocks of four postings and super-blocks of four blocks, which no kernel has to be compiled for."""
    code = (
        "from nearcast import config; config.PACKED_BLOCK_BITS, config.PACKED_FILL = 2, 3; "
        "import test_packed_list as tests; [tests.waves(seed) for seed in range(4)]"
    )
    path = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    environment = os.environ | {"PYTHONPATH": path, "NUMBA_DISABLE_JIT": "1"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def waves(seed):
    """Inserts, removals, moves and updates, in one place or everywhere, until nothing is left."""
    rng = np.random.default_rng(seed)
    table = world(rng, int(rng.choice([0, 30, 400])))
    index, scan = build_index("packed-list", table), build_index("scan", table)
    most = [0, 0]  # lists and super-blocks, at any time
    for step in range(60):
        present = np.flatnonzero(index.store.present)
        growing = (step // 12 + seed) % 2 == 0
        more = narrowed(rng, world(rng, int(rng.integers(0, 150 if growing else 8))))
        some = rng.permutation(present)[: int(rng.integers(0, 8 if growing else 60))]
        if rng.random() < 0.15 and len(present):  # all that lie on one side leave
            lefts = index.table.clauses.boxes[np.searchsorted(index.table.owners, present), 0]
            some = present[lefts <= np.quantile(lefts, 0.3)]
        moved = rng.permutation(np.setdiff1d(present, some))[:20]
        near = rng.permutation(np.setdiff1d(present, some))[:10]
        places, others = world(rng, len(moved)).clauses.boxes, narrowed(rng, world(rng, len(near)))
        for i in (index, scan):
            i.remove(some)
            for row, box in zip(moved.tolist(), places.tolist()):
                i.move(row, box)
            i.update(near, others)
            i.insert(more)
        assert index.check() == []
        stats = index.stats()
        most = np.maximum(most, [stats["packed_lists"], stats["super_blocks"]])
        if step % 6 == 5:
            messages = batch(rng, 20, areas=step % 4 == 1)
            assert answers(index, messages) == answers(scan, messages)
            for uses in rooms(index.structure._lists, 2):
                assert (uses == 1).all()
    assert most[0] == WORDS + 1
    assert most[1] > 30
    index.remove(np.flatnonzero(index.store.present))
    assert index.check() == []
    lists = index.structure._lists
    assert index.stats()["super_blocks"] == 0
    assert not lists.heads[: int(lists.state[0]), 1:].any()  # everything was given back


def narrowed(rng, table):
    """Return *table*, or the same with all places in a corner."""
    if rng.random() < 0.5:
        table.clauses.boxes[:] = table.clauses.boxes / 8
    return table


@pytest.mark.parametrize("words", [1, 0], ids=["one word", "no words"])
def test_no_single_change_of_a_long_list_takes_long(words):
    """A list of 200,000 postings: each insert, move and removal touches a few blocks. Processor time counts."""
    rng = np.random.default_rng(9)

    def ones(n):
        low = rng.random((n, 2))
        return SubscriptionTable.from_arrays(
            np.hstack([low, low + 0.001]), np.arange(n + 1) * words, [0] * (n * words)
        )

    index = build_index("packed-list", ones(200_000))
    new, places = [ones(1) for _ in range(2_000)], ones(2_000).clauses.boxes.tolist()
    moved, gone = np.split(rng.permutation(200_000)[:4_000], 2)
    longest = {}

    def measure(name, calls):
        times = []
        for call in calls:
            started = time.process_time()
            call()
            times.append(time.process_time() - started)
        longest[name] = max(times[20:])  # the first ones compile

    gc.disable()
    try:
        measure("insert", [lambda t=t: index.insert(t) for t in new])
        measure("move", [lambda r=r, p=p: index.move(r, p) for r, p in zip(moved.tolist(), places)])
        measure("remove", [lambda r=r: index.remove([r]) for r in gone.tolist()])
    finally:
        gc.enable()
    assert max(longest.values()) < 0.02, longest
    assert index.check() == []


def test_moves_stay_in_place_where_they_can():
    """A posting that moves within the box of its block keeps its slot; one that leaves it goes to another block."""
    rng = np.random.default_rng(10)
    low = rng.random((2_000, 2))
    table = SubscriptionTable.from_arrays(np.hstack([low, low + 0.01]), np.arange(2_001), [0] * 2_000)
    index, scan = build_index("packed-list", table), build_index("scan", table)
    homes = index.structure._homes.values
    slot, (xmin, ymin, xmax, ymax) = int(homes[7, 1]), table.clauses.boxes[7]
    for i in (index, scan):
        i.move(7, [(xmin + xmax) / 2, (ymin + ymax) / 2, xmax, ymax])
    assert homes[7, 1] == slot
    for i in (index, scan):
        i.move(7, [5, 5, 6, 6])
        for row in range(1_000):
            i.move(row, [*low[row - 1], *low[row - 1] + 0.001])
    assert index.check() == []
    messages = batch_of_one_word(rng)
    assert answers(index, messages) == answers(scan, messages)


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


def test_the_same_subscriptions_give_the_same_bytes(monkeypatch):
    """Whatever was in memory before: room that no posting and no block takes is saved, too."""
    table, allocate, saved = world(np.random.default_rng(8), 5_000), growable._allocate, []
    for old in (0x00, 0x5A):

        def used_before(shape, kind, old=old):
            array = allocate(shape, kind)
            array.reshape(-1).view(np.uint8)[: 1 << 22] = old
            return array

        monkeypatch.setattr(growable, "_allocate", used_before)
        saved.append(build_index("packed-list", table).arrays())
    assert build_index("packed-list", table).stats()["packed_lists"] > 0
    for name, array in saved[0].items():
        assert array.tobytes() == saved[1][name].tobytes(), name
