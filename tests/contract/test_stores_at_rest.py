"""Saved stores of messages: opened they answer alike, and go on alike."""

import numpy as np
import pytest

from answers import answers
from nearcast import (
    Box,
    Circle,
    Message,
    MessageBatch,
    Point,
    Polygon,
    Subscription,
    SubscriptionTable,
    build_store,
    open_index,
    open_store,
)
from nearcast.columns.coding import Coding
from nearcast.errors import IndexFileError
from nearcast.matching import STORES
from nearcast.storage.directory import read, write
from nearcast.storage.manifest import read_manifest, write_manifest
from profiles import without_rivals

MESSAGES = [
    Message(1, "tea milk", Point(lon=0, lat=0), {"price": 1, "brand": "Huawei"}),
    Message(2, "tea", Box(170, 0, -170, 9), {"price": 1}),
    Message(3, "happy hour tea", Circle(lon=3, lat=1, radius=1000), {"brand": ""}),
    Message(4, "größe", Polygon("POLYGON ((0 0, 5 0, 5 5, 0 0))")),
]
SUBS = [
    Subscription("a", "tea", Box(-1, -1, 4, 4)),
    Subscription("b", "tea NOT milk AND price < 3"),
    Subscription("c", 'brand = "Huawei" OR brand = ""'),
    Subscription("d", "größe", Circle(lon=4, lat=1, radius=1000)),
]


@pytest.fixture(params=without_rivals(STORES))
def store(request):
    batch = MessageBatch.from_messages(MESSAGES, like=Coding.new(), learn=True)
    return build_store(request.param, batch)


def who(store, now=None):
    return answers(store, SubscriptionTable.from_subscriptions(SUBS, like=store), now=now)


def test_opened_answers_alike(store, tmp_path):
    opened = open_store(store.save(tmp_path / "store"), verify=True)
    assert who(opened) == who(store) == [{0, 2}, {1}, {0, 2}, {3}]
    assert (opened.name, len(opened), opened.check()) == (store.name, 4, [])


def test_changes_after_opening_are_private(store, tmp_path):
    expected = who(store)
    saved = store.save(tmp_path / "store")
    opened = open_store(saved)
    opened.remove([0])
    rows = opened.insert(
        MessageBatch.from_messages([Message(5, "tea new", Point(lon=1, lat=1))], like=opened, learn=True)
    )
    assert rows.tolist() == [0]
    assert who(opened) == [{0, 2}, {1}, {2}, {3}]
    assert opened.check() == []
    assert who(open_store(saved, verify=True)) == expected


def test_a_crowd_goes_on_alike(store, tmp_path):
    """The same rows are given out, the same messages expire, the same are swept."""

    def batch(seed, n):
        rng = np.random.default_rng(seed)
        return MessageBatch.from_arrays(
            rng.random((n, 2)),
            np.arange(n + 1),
            rng.integers(0, 9, n),
            np.where(rng.random((n, 3)) < 0.5, rng.random((n, 3)), np.nan),
            expires_at=rng.integers(10, 90, n),
        )

    rng = np.random.default_rng(7)
    low = rng.random((60, 2))
    table = SubscriptionTable.from_arrays(
        np.hstack([low, low + 0.3]),
        np.arange(61),
        rng.integers(0, 9, 60),
        (np.arange(61), rng.integers(0, 3, 60), np.zeros(60), rng.random(60)),
    )
    store = build_store(store.name, batch(0, 3_000))
    store.sweep(20, 777)
    opened = open_store(store.save(tmp_path / "store"), verify=True)
    for step in range(3):
        assert store.stats()["expired"] == opened.stats()["expired"]
        assert np.array_equal(store.sweep(40, 333), opened.sweep(40, 333))
        assert np.array_equal(store.insert(batch(step + 1, 500)), opened.insert(batch(step + 1, 500)))
        assert answers(store, table, now=45) == answers(opened, table, now=45)
        assert np.array_equal(store.expire(46 + step), opened.expire(46 + step))
    assert opened.check() == []
    assert answers(open_store(opened.save(tmp_path / "again")), table) == answers(store, table)


def test_an_empty_store(store, tmp_path):
    empty = build_store(store.name, MessageBatch.from_messages([], like=Coding.new()))
    opened = open_store(empty.save(tmp_path / "empty"), verify=True)
    assert len(opened) == 0
    opened.insert(MessageBatch.from_messages(MESSAGES, like=opened, learn=True))
    assert who(opened) == [{0, 2}, {1}, {0, 2}, {3}]


@pytest.mark.parametrize("value", [-2, 10**9])
def test_columns_that_do_not_fit_together(store, tmp_path, value):
    document, arrays = read(store.save(tmp_path / "store"), "messages")
    for name in (
        "keyword_runs",
        "value_runs",
        "owners",
        "keywords",
        "value_attributes",
        "first",
        "shape",
    ):
        wrong = arrays[f"rows/{name}"].copy()
        wrong[len(wrong) // 2] = value
        for number, array in enumerate((wrong, wrong[:-1])):
            written = write(
                tmp_path / f"{name}{number}", "messages", arrays | {f"rows/{name}": array}, document
            )
            with pytest.raises(IndexFileError, match="should"):
                open_store(written)


def test_what_is_no_store(store, tmp_path):
    saved = store.save(tmp_path / "store")
    with pytest.raises(IndexFileError, match="'messages', not 'index'"):
        open_index(saved)
    with pytest.raises(IndexFileError, match="exists already"):
        store.save(saved)
    manifest = read_manifest(saved)
    write_manifest(saved, manifest.kind, manifest.document | {"structure": "heap"}, manifest.files)
    with pytest.raises(IndexFileError, match="no structure 'heap'"):
        open_store(saved)
