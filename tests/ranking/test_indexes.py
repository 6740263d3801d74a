"""Worlds large enough for blocks to split, segments to merge and buffers to be cut: all indexes agree with the scan."""

import copy

import numpy as np
import pytest

from nearcast import WGS84, MessageBatch, Planar
from nearcast.ranking import CountWindow, DocumentFrequencies, TopK
from nearcast.ranking.blocks import _summarize_all
from nearcast.ranking.choices import FINDERS, POLICIES
from nearcast.ranking.igpt import IGPT, PRUNINGS
from nearcast.ranking.postings import GROUP

PLANE = Planar(0, 0, 1, 1)


class World:
    """Clustered places and Zipf words; subscriptions are made of messages."""

    def __init__(self, space=PLANE, seed=0, vocabulary=300):
        self.rng, self.space = np.random.default_rng(seed), space
        self.shares = 1 / np.arange(1, vocabulary + 1)
        self.shares /= self.shares.sum()
        self.centres = self.rng.random((20, 2))
        counts = np.round(self.shares * 10_000).astype(int)
        self.frequencies = DocumentFrequencies(counts, 10_000)

    def places(self, count):
        near = self.centres[self.rng.integers(0, 20, count)] + self.rng.normal(0, 0.02, (count, 2))
        points = np.clip(near, 0, 1)
        return points if self.space is PLANE else points * [300, 140] - [150, 70]

    def words(self, count, most):
        drawn = [
            np.unique(self.rng.choice(len(self.shares), self.rng.integers(1, most + 1), p=self.shares))
            for _ in range(count)
        ]
        return np.concatenate([[0], np.cumsum([len(one) for one in drawn])]), np.concatenate(drawn)

    def batch(self, count):
        return MessageBatch.from_arrays(self.places(count), *self.words(count, 9), space=self.space)

    def subscriptions(self, count):
        return (self.places(count), *self.words(count, 5)), {
            "alpha": self.rng.random(count),
            "k": self.rng.integers(1, 9, count),
        }

    def top(self, **how):
        return TopK(CountWindow(800), space=self.space, document_frequency=self.frequencies, **how)


def same(tops, rows):
    """All have the same results, to the last bit."""
    for row in rows:
        first = tops[0].results(row)
        for other in tops[1:]:
            np.testing.assert_array_equal(other.results(row), first)


def rows_of(updates):
    return sorted(zip(*updates.to_arrow().to_pydict().values()))


@pytest.mark.parametrize("space", [PLANE, WGS84], ids=["plane", "globe"])
def test_all_indexes_and_buffers_agree(space, monkeypatch):
    monkeypatch.setattr("nearcast.config.RANKING_BULK", 500)
    monkeypatch.setattr("nearcast.config.RANKING_WAITING", 100)
    world = World(space)
    tops = [world.top(index="scan")]
    tops += [world.top(index=index) for index in FINDERS if index != "scan"]
    tops += [world.top(buffer=buffer, threads=2) for buffer in POLICIES]
    alive, subscribed = [], 0
    for step in range(12):
        arrived, taken = world.batch(300), world.subscriptions(700 if step == 2 else 60)
        gone = [alive.pop(i) for i in world.rng.integers(0, 50, 20)] if len(alive) > 100 else []
        for top in tops:
            updates = top.publish(arrived)
            if top is tops[0]:
                expected = updates
            assert rows_of(updates) == rows_of(expected)
            top.unsubscribe(gone)
            top.subscribe(*taken[0], **taken[1])
        alive += range(subscribed, subscribed := subscribed + len(taken[0][0]))
        same(tops, alive)
    stats = [top.stats() for top in tops]
    assert min(one["re_evaluations"] for one in stats) > 0
    assert stats[1]["blocks"] > 300  # words have more than one


def city(space, far):
    """A city in a large space: single precision knows its places by metres only, or worse."""
    rng = np.random.default_rng(1)
    tops = [
        TopK(CountWindow(2000), space=space, max_distance=far, index=index) for index in ("scan", "blocks")
    ]
    streets = rng.random((3000, 2)) * (0.02 if space is WGS84 else 2000)
    places = streets + ([13.38, 52.51] if space is WGS84 else [4_390_000, 5_820_000])
    words = rng.integers(0, 3, 3000)
    updates = []
    for top in tops:
        for half in (slice(0, 1000), slice(1000, 2000)):
            batch = MessageBatch.from_arrays(places[half], np.arange(1001), words[half], space=space)
            updates.append(rows_of(top.publish(batch)))
            if half.start == 0:
                top.subscribe(places[2000:], np.arange(1001), words[2000:], alpha=1.0, k=3)
    return tops, range(1000), updates


@pytest.mark.parametrize("space", [Planar(4e6, 5.5e6, 5e6, 6.5e6), WGS84], ids=["plane", "globe"])
def test_no_rounding_loses_a_result(space):
    tops, rows, updates = city(space, far=500)
    assert updates[1] == updates[3]
    same(tops, rows)
    scan, blocks = (top.stats()["entered"] for top in tops)
    assert scan == blocks > 10_000  # what is no result yet is there as well


def test_words_with_many_blocks_are_searched_in_groups():
    """StaticFinder out, inserted and removed: a word has far more than two groups of blocks."""
    world = World(seed=5, vocabulary=3)
    tops = [world.top(index="scan"), world.top(index="blocks")]
    warm, first, more, last = (
        world.batch(800),
        world.subscriptions(5000),
        world.subscriptions(900),
        world.batch(400),
    )
    for top in tops:
        top.publish(warm)
        top.subscribe(*first[0], **first[1])
        top.subscribe(*more[0], **more[1])  # fewer than an eighth: one by one
        top.unsubscribe(np.arange(0, 5000, 3))
    assert rows_of(tops[0].publish(last)) == rows_of(tops[1].publish(last))
    scan, blocks = (top.stats() for top in tops)
    assert scan["entered"] == blocks["entered"] > 0
    assert blocks["blocks"] > 3 * 4 * 16
    assert blocks["leaves_visited"] < blocks["leaves"]


@pytest.mark.parametrize("without", [*PRUNINGS, "all"])
def test_no_pruning_changes_an_answer(without):
    world = World(seed=3)
    used = [name for name in PRUNINGS if name != without] if without != "all" else []
    tops = [world.top(index="scan"), world.top(index="igpt")]
    tops[1]._finder = IGPT(tops[1]._metric, used, leaf=50, groups=4)
    warm, (given, asked), more = world.batch(900), world.subscriptions(3000), world.batch(600)
    for top in tops:
        top.publish(warm)
        top.subscribe(*given, **asked)
        top.publish(more)
    same(tops, range(3000))


def test_each_pruning_prunes():
    """Left out one by one, more postings or candidates are looked at."""
    world = World(seed=4)
    warm, (given, asked), more = world.batch(900), world.subscriptions(4000), world.batch(300)

    def work(prunings):
        top = world.top(index="igpt")
        top._finder = IGPT(top._metric, prunings, leaf=50, groups=4)
        top.publish(warm)
        top.subscribe(*given, **asked)
        top.publish(more)
        return top.stats()

    looked = ("leaves_visited", "postings_visited", "candidates")
    # Met first, a subscription is skipped by Theorem 2 wherever Theorem 1 would; Theorem 4 ends a group at its first
    # posting wherever Theorem 3 would skip it.
    stronger = {"prefix": "unseen", "max-weight": "unseen", "group": "early"}
    for name in PRUNINGS:
        others = [one for one in PRUNINGS if one not in (name, stronger.get(name))]
        more_work, less_work = work(others), work([*others, name])
        assert any(more_work[key] > less_work[key] for key in looked), name
        assert more_work["entered"] == less_work["entered"]


@pytest.mark.parametrize("threads", [1, 2])
def test_the_reach_of_blocks_follows_thresholds(threads):
    """Both ways: it is what it would be if all headers were computed anew."""
    rng = np.random.default_rng(0)

    def words(count, least, most):
        counts = rng.integers(least, most, count)
        return np.append(0, np.cumsum(counts)), (40 * rng.random(counts.sum()) ** 2).astype(np.int32)

    top = TopK(CountWindow(500), space=PLANE, threads=threads)
    top.subscribe(rng.random((3_000, 2)), *words(3_000, 1, 5), alpha=0.2 + 0.8 * rng.random(3_000), k=3)
    before, fell, rose = None, False, False
    for least, most in ((1, 4), (6, 12), (1, 4), (6, 12)):  # long messages score less than short ones
        top.publish(MessageBatch.from_arrays(rng.random((500, 2)), *words(500, least, most), space=PLANE))
        blocks = top._finder
        fresh = copy.deepcopy(blocks)
        _summarize_all(fresh._lists, fresh._words)
        headers = np.concatenate(
            [
                np.arange(first, first + count)
                for first, count in zip(blocks._lists.first[: blocks._words], blocks._lists.blocks)
            ]
        )
        reach = blocks._lists.reach[:, headers]
        np.testing.assert_array_equal(reach, fresh._lists.reach[:, headers])
        long = np.flatnonzero(blocks._lists.room[: blocks._words] >= GROUP)
        groups = np.unique(
            np.concatenate([np.arange(blocks._lists.blocks[w]) + blocks._lists.first[w] for w in long])
            // GROUP
        )
        np.testing.assert_array_equal(
            blocks._lists.group_reach[:, groups], fresh._lists.group_reach[:, groups]
        )
        if before is not None:
            fell, rose = fell or bool((reach < before).any()), rose or bool((reach > before).any())
        before = reach.copy()
    assert (fell, rose) == (True, True)
