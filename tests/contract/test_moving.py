"""Every moving index tells exactly what came into reach and what went out of it, and matches as the scan does."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import naive
import strategies as ours
from lives import Lives, with_ends
from nearcast import MessageBatch, MovingIndex, Planar, SubscriptionTable
from nearcast.errors import ColumnError, UnknownError
from nearcast.matching import MOVING
from profiles import is_rival, shortened

NAMES = sorted(MOVING)
# Rivals of which every run takes the long tests, too: they have the searches that the others share.
SHORT = ("ss-index", "iq-plus-tree")
SOME = shortened(NAMES, lambda name: name in SHORT or not is_rival(MOVING, name))


@pytest.mark.parametrize("name", NAMES)
@given(data=st.data())
def test_everything_that_happens(name, data):
    """Random verbs on bare codes: boxes, words, tests, several clauses; points and areas; time passes."""
    lives = Lives(name, data.draw(ours.tables(6)))
    now = 0
    for _ in range(data.draw(st.integers(1, 8))):
        verb = data.draw(
            st.sampled_from(["publish", "publish", "move", "move", "update", "insert", "remove", "wait"])
        )
        rows = sorted(lives.model.subs)
        some = data.draw(st.lists(st.sampled_from(rows), unique=True, max_size=3)) if rows else []
        if verb == "publish":
            batch = data.draw(ours.batches(4))
            ends = [data.draw(st.sampled_from([now, now + 1, now + 3, 2**62])) for _ in range(batch.size)]
            lives.publish(with_ends(batch, ends), now)
        elif verb == "move" and some:
            lives.move(some, [data.draw(ours.boxes()) for _ in some], now)
        elif verb == "update" and some:
            table = data.draw(ours.tables(5))
            some = some[: table.size]
            lives.update(some, table.take(np.arange(len(some))), now)
        elif verb == "insert":
            lives.insert(data.draw(ours.tables(3)), now)
        elif verb == "remove":
            lives.remove(some)
        else:
            now += data.draw(st.integers(1, 2))
            lives.live.expire(now)
            lives.forget_expired(now)
    assert lives.live.check() == []


REGIONS = st.one_of(ours.areas(), st.just(ours.EVERYWHERE))


@pytest.mark.parametrize("name", SOME)
@given(data=st.data())
def test_regions_on_the_globe(name, data):
    """Boxes across the antimeridian, circles over the poles, polygons; messages that are points and areas."""
    subs = [data.draw(ours.subscriptions(row)) for row in range(data.draw(st.integers(1, 4)))]
    table = SubscriptionTable.from_subscriptions(subs)
    live = MovingIndex(name, table)
    messages = [data.draw(ours.messages(number)) for number in range(data.draw(st.integers(1, 6)))]
    batch = MessageBatch.from_messages(messages, like=table, learn=True)
    live.publish(with_ends(batch, [10] * batch.size), 0)
    for _ in range(3):
        moving = data.draw(st.lists(st.sampled_from(range(len(subs))), unique=True, min_size=1))
        regions = [data.draw(REGIONS) for _ in moving]
        changes = live.move(moving, regions, 0)
        for number, (row, region) in enumerate(zip(moving, regions)):
            old, new = subs[row], type(subs[row])(row, subs[row].expression, region)
            reach = [{m.id for m in messages if naive.wants(sub, m)} for sub in (old, new)]
            ids = [
                {int(np.flatnonzero(live.published == key)[0]) for key in found[number]} for found in changes
            ]
            assert ids == [reach[1] - reach[0], reach[0] - reach[1]]
            subs[row] = new
    assert live.check() == []


@pytest.mark.parametrize("name", SOME)
def test_many_small_moves(name):
    """Thousands of messages in cells, lists and blocks, and circles and boxes that go step by step."""
    rng = np.random.default_rng(5)
    plane = Planar(0, 0, 1, 1)
    n, m = 60, 6_000
    centres, half = rng.random((n, 2)), rng.uniform(0.01, 0.2, (n, 1))
    words = rng.integers(0, 5, n).astype(np.int32)
    low, high = np.maximum(centres - half, 0), np.minimum(centres + half, 1)
    table = SubscriptionTable.from_arrays(np.hstack([low, high]), np.arange(n + 1), words, space=plane)
    live = MovingIndex(name, table)
    points, has = rng.random((m, 2)).round(3), rng.integers(0, 5, m).astype(np.int32)
    batch = MessageBatch.from_arrays(points, np.arange(m + 1), has, expires_at=np.full(m, 99), space=plane)
    for start in range(0, m, 1000):
        live.publish(batch.take(np.arange(start, start + 1000)), 0)
        assert live.published.tolist() == list(range(start, start + 1000))

    def reached(row, box):
        inside = ((points >= box[:2]) & (points <= box[2:])).all(axis=1)
        return set(np.flatnonzero(inside & (has == words[row])).tolist())

    boxes = np.hstack([low, high])
    for _ in range(15):
        new = np.clip(boxes + np.tile(rng.normal(0, 0.03, (n, 2)), 2), 0, 1).round(3)
        changes = live.move(np.arange(n), new, 1)
        for row in range(n):
            before, after = reached(row, boxes[row]), reached(row, new[row])
            assert set(changes.came[row].tolist()) == after - before
            assert set(changes.went[row].tolist()) == before - after
        boxes = new
    assert live.check() == []


def test_a_message_in_two_strips_comes_once():
    """The right and the upper strip share a corner, and there are as many strips as subscriptions."""
    table = SubscriptionTable.from_arrays([[-2, -2, 0, 1], [5, 5, 6, 6]], [0, 1, 2], [3, 3])
    live = MovingIndex("scan", table)
    live.publish(MessageBatch.from_arrays([[0, 2]], [0, 1], [3], expires_at=[9]), 0)
    came, went = live.move([0, 1], [[-2, -2, 1, 2], [5, 5, 6, 6]], 0)
    assert [came[0].tolist(), went[0].tolist()] == [[0], []]


@pytest.mark.parametrize("name", NAMES)
def test_what_was_saved_goes_on(name, tmp_path):
    rng = np.random.default_rng(3)
    n, m = 40, 3_000
    low = rng.random((n, 2))
    table = SubscriptionTable.from_arrays(np.hstack([low, low + 0.2]), np.arange(n + 1), np.arange(n) % 3)
    batch = MessageBatch.from_arrays(
        rng.random((m, 2)), np.arange(m + 1), np.arange(m) % 3, expires_at=np.full(m, 9)
    )
    live = MovingIndex(name, table)
    live.publish(batch, 0)
    opened = MovingIndex.open(live.save(tmp_path / "live"), verify=True)
    assert opened.name == name
    assert opened.check() == []
    boxes = np.hstack([low, low + 0.2]) + 0.05
    for one in (live, opened):
        one.publish(batch.take(np.arange(100)), 1)
    changes = [one.move(np.arange(n), boxes, 2) for one in (live, opened)]
    for mine, theirs in zip(*changes):
        assert [set(rows) for rows in mine] == [set(rows) for rows in theirs]
        assert len(mine.rows) > 0
    with pytest.raises(UnknownError):
        opened.move([n], [[0, 0, 1, 1]])


@pytest.mark.parametrize(("name", "parameters"), [("ap-plus-tree", {"copies": 1}), ("ss-index", {"side": 3})])
def test_what_was_saved_has_its_parameters(name, parameters, tmp_path):
    rng = np.random.default_rng(4)
    n, low = 2_000, rng.random((2_000, 2))
    boxes, words = np.hstack([low, low + 0.1]), (np.arange(n + 1), np.arange(n) % 3)
    table = SubscriptionTable.from_arrays(boxes, *words)
    batch = MessageBatch.from_arrays(None, *words, boxes=boxes)
    live, default = MovingIndex(name, table, batch, **parameters), MovingIndex(name, table, batch)
    opened = MovingIndex.open(live.save(tmp_path / "live"))
    again = MovingIndex.open(opened.save(tmp_path / "again"))
    assert figures(live) == figures(opened) == figures(again) != figures(default)


def figures(live):
    """Return what stats() tells, without times."""
    stats = live.stats()
    for side in ("index", "store"):
        del stats[side]["build_seconds"]
    return stats


@pytest.mark.parametrize("name", NAMES)
def test_mistakes_are_refused(name):
    live = MovingIndex(name, SubscriptionTable.from_arrays([[0, 0, 1, 1]], [0, 1], [3]))
    with pytest.raises(UnknownError):
        live.move([1], [[0, 0, 1, 1]])
    with pytest.raises(ColumnError, match="2 regions for 1 subscription;"):
        live.move([0], [[0, 0, 1, 1], [0, 0, 1, 1]])
    with pytest.raises(ColumnError, match="twice"):
        live.move([0, 0], [[0, 0, 1, 1], [0, 0, 1, 1]])
    message = MessageBatch.from_arrays([[1, 1]], [0, 1], [3], expires_at=[9])
    table = SubscriptionTable.from_arrays([[0, 0, 1, 1]], [0, 1], [3])
    for wrong in (None, table):
        with pytest.raises(ColumnError, match="come as a MessageBatch"):
            live.publish(wrong, now=1)
    with pytest.raises(ColumnError, match="insert takes a SubscriptionTable"):
        live.insert(message)
    for verb in (
        lambda now: live.publish(message, now),
        lambda now: live.insert(table, now),
        lambda now: live.move([0], [[0, 0, 1, 1]], now),
        lambda now: live.update([0], table, now),
    ):
        with pytest.raises(ColumnError, match="now must be a time in microseconds"):
            verb("now")
    assert (len(live), live.stats()["store"]["messages"]) == (1, 0)
    assert live.check() == []


@pytest.mark.parametrize("name", NAMES)
def test_an_unknown_parameter_is_refused(name):
    with pytest.raises(UnknownError, match="has no parameter 'sides'"):
        MovingIndex(name, SubscriptionTable.from_arrays([[0, 0, 1, 1]], [0, 1], [3]), sides=3)


def test_first_messages_that_are_none():
    table = SubscriptionTable.from_arrays([[0, 0, 1, 1]], [0, 1], [3])
    with pytest.raises(ColumnError, match="come as a MessageBatch"):
        MovingIndex("auto", table, table)


def test_an_unknown_name_is_refused():
    with pytest.raises(UnknownError, match="there are auto"):
        MovingIndex("ap-tree", SubscriptionTable.from_arrays([[0, 0, 1, 1]], [0, 1], [3]))
