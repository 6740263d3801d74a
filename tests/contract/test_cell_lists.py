"""Messages in lists by cell: where areas go, that the store answers as the scan does, and that the AP+-Tree has it."""

from dataclasses import replace

import numpy as np
import pytest

from nearcast import MessageBatch, MovingIndex, Planar, SubscriptionTable, build_store, config

PLANE = Planar(0, 0, 1, 1)


@pytest.fixture(autouse=True)
def small_cells(monkeypatch):
    monkeypatch.setattr(config, "CELL_LISTS_CELL", 8)
    monkeypatch.setattr(config, "PACKED_MESSAGES_FIRST", 64)


def some_messages(rng, count, large):
    """Return points, and a share of areas: most of them small, and some as wide as half the plane."""
    points = rng.random((count, 2))
    sizes = np.where(rng.random((count, 1)) < large, 0.5, 0.001) * (rng.random((count, 1)) < 0.5)
    offsets, words = np.arange(0, 2 * count + 1, 2), rng.integers(0, 30, 2 * count)
    words = np.sort(words.reshape(-1, 2), axis=1)
    words[:, 1] += words[:, 0] == words[:, 1]
    batch = MessageBatch.from_arrays(
        points, offsets, words.ravel(), expires_at=rng.integers(5, 9, count), space=PLANE
    )
    return replace(
        batch, probes=batch.probes._replace(boxes=np.hstack([points, np.minimum(points + sizes, 1)]))
    )


def some_subscriptions(rng, count):
    low = rng.random((count, 2)) * 0.95
    boxes = np.hstack([low, np.minimum(low + rng.choice([0.001, 0.05, 0.9], (count, 1)), 1)])
    return SubscriptionTable.from_arrays(boxes, np.arange(count + 1), rng.integers(0, 30, count), space=PLANE)


def same(found, expected):
    assert len(found) == len(expected)
    for one, other in zip(found, expected):
        assert sorted(one) == sorted(other)


@pytest.mark.parametrize("large", [0.0, 0.1, 1.0])
def test_a_life_of_messages(large):
    """Messages come, expire and outgrow their cells; questions and moves have the answers of a scan."""
    rng = np.random.default_rng(3)
    store, scan = (build_store(name, some_messages(rng, 0, large)) for name in ("cell-lists", "scan"))
    lists = set()
    for now in range(12):
        batch = some_messages(rng, 300, large)
        batch = replace(batch, expires_at=batch.expires_at + now)
        assert store.insert(batch).tolist() == scan.insert(batch).tolist()
        lists.add(store.stats()["lists"])
        before = some_subscriptions(rng, 60)
        after = replace(
            before, clauses=before.clauses._replace(boxes=some_subscriptions(rng, 60).clauses.boxes)
        )
        same(store.match(before), scan.match(before))
        for found, expected in zip(store.changes(before, after), scan.changes(before, after)):
            same(found, expected)
        assert store.expire(now).tolist() == scan.expire(now).tolist()
        assert store.check() == []
    assert len(lists) > 1  # the cells were chosen again


def test_only_large_areas_are_read_by_all():
    """Cells are not widened by what is larger than they are, except at the border, where they have no end."""
    rng = np.random.default_rng(4)
    batch = some_messages(rng, 4_000, 0.2)
    store = build_store("cell-lists", batch)
    structure = store.structure
    sides = batch.probes.boxes[:, 2:] - batch.probes.boxes[:, :2]
    apart = structure._homes.values[:, 0] == len(structure._list_boxes) - 1
    assert not apart[(sides == 0).all(axis=1)].any()
    assert apart[(sides > 0.4).all(axis=1)].mean() > 0.8
    widths = np.ptp(structure._list_boxes[:-1, ::2], axis=1)
    assert np.median(widths) < 3 / len(structure._column_boxes)


def test_damage_is_found():
    rng = np.random.default_rng(5)
    for damage in (
        lambda made: made._buckets.pool.codes.__setitem__(slice(None), 0),
        lambda made: made._buckets.pool.boxes.__setitem__((slice(None), 0), 0.5),
        lambda made: made._list_boxes.__setitem__(slice(None), 0.5),
        lambda made: made._column_boxes.__setitem__(slice(None), 0.5),
        lambda made: made._homes.values.__setitem__(3, -1),
        lambda made: made._homes.values.__setitem__((slice(None), 1), 0),
    ):
        store = build_store("cell-lists", some_messages(rng, 300, 0.1))
        assert store.check() == []
        damage(store.structure)
        assert store.check() != []


def test_the_ap_plus_tree_keeps_its_messages_there():
    rng = np.random.default_rng(6)
    live = MovingIndex("ap-plus-tree", some_subscriptions(rng, 50), some_messages(rng, 50, 0.1))
    assert live.stats()["store"]["store"] == "cell-lists"
