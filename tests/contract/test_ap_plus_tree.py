"""The AP+-Tree finds all messages, whatever happens to the leaves that they visited."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import strategies as ours
from lives import Lives, with_ends
from nearcast import MessageBatch, MovingIndex, Planar, SubscriptionTable, config
from nearcast.errors import InputError, UnknownError
from nearcast.matching.structures.ap_tree.layout import Motion
from nearcast.matching.structures.ap_tree.motion import movement_cost, time_to_rebuild

PLANE = Planar(0, 0, 1, 1)


@pytest.fixture(autouse=True, scope="module")
def bushy():
    """Let visits cost nothing, so that small trees have many nodes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(config, "AP_TREE_VISIT", 0.0)
        patch.setattr(config, "AP_TREE_PART", 2)
        yield


def boxes_around(centres, half):
    return np.hstack([np.maximum(centres - half, 0), np.minimum(centres + half, 1)])


def words_of(rng, counts, vocabulary):
    """Return random words, some of them frequent: ascending in a row, each once."""
    rows = [np.unique(np.minimum(rng.geometric(4 / vocabulary, count), vocabulary) - 1) for count in counts]
    return np.cumsum([0, *map(len, rows)]), np.concatenate([np.empty(0, np.int64), *rows]).astype(np.int32)


def some_subscriptions(rng, n, vocabulary, half=0.05):
    offsets, words = words_of(rng, rng.integers(0, 4, n), vocabulary)
    return SubscriptionTable.from_arrays(boxes_around(rng.random((n, 2)), half), offsets, words, space=PLANE)


def some_messages(rng, m, vocabulary, ends, areas=0.0):
    offsets, words = words_of(rng, rng.integers(1, 8, m), vocabulary)
    points = rng.random((m, 2))
    places = boxes_around(points, np.where(rng.random((m, 1)) < areas, 0.1, 0.0))
    batch = MessageBatch.from_arrays(points, offsets, words, expires_at=np.full(m, ends), space=PLANE)
    return replace(batch, probes=batch.probes._replace(boxes=places))


class Twins:
    """An AP+-Tree beside the default: both are told the same, and must tell the same."""

    def __init__(self, table, **parameters):
        self.tree = MovingIndex("ap-plus-tree", table, **parameters)
        self.other = MovingIndex("auto", table)
        self.names = {}  # of messages: their rows here and there
        self.there = {}

    def publish(self, batch, now):
        here, there = self.tree.publish(batch, now), self.other.publish(batch, now)
        for one, other in zip(here, there):
            assert sorted(one) == sorted(other)
        self.there |= dict(zip(self.other.published.tolist(), self.tree.published.tolist()))

    def same(self, one, other):
        assert len(one) == len(other)
        for found, expected in zip(one, other):
            assert sorted(found) == sorted(self.there[row] for row in expected.tolist())

    def move(self, rows, boxes, now):
        here, there = self.tree.move(rows, boxes, now), self.other.move(rows, boxes, now)
        self.same(here.came, there.came)
        self.same(here.went, there.went)

    def insert(self, table, now):
        rows, found = self.tree.insert(table, now)
        others, expected = self.other.insert(table, now)
        assert rows.tolist() == others.tolist()
        self.same(found, expected)
        return rows

    def remove(self, rows):
        self.tree.remove(rows)
        self.other.remove(rows)

    def expire(self, now):
        gone = self.tree.expire(now)
        there = self.other.expire(now)
        assert sorted(gone) == sorted(self.there.pop(row) for row in there.tolist())

    def stats(self):
        return self.tree.stats()


@given(data=st.data())
def test_small_leaves_and_few_copies(data):
    """Random verbs on a tree whose nodes divide at once, are rebuilt often, and have few copies of messages."""
    small = {
        "leaf": data.draw(st.integers(2, 4)),
        "fanout": 4,
        "divergence": data.draw(st.sampled_from([1e-9, math.inf])),
        "copies": data.draw(st.sampled_from([1, 2, 32])),
        "priority": data.draw(st.sampled_from(["cost", "keywords", "space"])),
    }
    lives = Lives("ap-plus-tree", data.draw(ours.tables(12)), **small)
    now = 0
    for _ in range(data.draw(st.integers(1, 8))):
        verb = data.draw(
            st.sampled_from(["publish", "publish", "move", "move", "update", "insert", "remove"])
        )
        rows = sorted(lives.model.subs)
        some = data.draw(st.lists(st.sampled_from(rows), unique=True, max_size=4)) if rows else []
        if verb == "publish":
            batch = data.draw(ours.batches(5))
            ends = [data.draw(st.sampled_from([now + 1, now + 3, 2**62])) for _ in range(batch.size)]
            lives.publish(with_ends(batch, ends), now)
        elif verb == "move" and some:
            lives.move(some, [data.draw(ours.boxes()) for _ in some], now)
        elif verb == "update" and some:
            table = data.draw(ours.tables(6))
            some = some[: table.size]
            lives.update(some, table.take(np.arange(len(some))), now)
        elif verb == "insert":
            lives.insert(data.draw(ours.tables(6)), now)
        elif verb == "remove":
            lives.remove(some)
            now += data.draw(st.integers(0, 1))
        assert lives.live.check() == []


@pytest.mark.parametrize("copies", [1, 4, 32])
@pytest.mark.parametrize(
    ("priority", "divergence"), [("cost", 0.001), ("keywords", math.inf), ("space", 0.01)]
)
@pytest.mark.parametrize("at_once", [30, 8_192])
def test_a_long_life(copies, priority, divergence, at_once, monkeypatch):
    """Thousands of messages and subscriptions come, go and move, among words that are new and cells that are empty."""
    monkeypatch.setattr(config, "AP_TREE_AT_ONCE", at_once)
    monkeypatch.setattr(config, "SUCCESSION_ROWS", at_once)
    rng = np.random.default_rng(copies)
    n, vocabulary = 600, 30
    parameters = {"copies": copies, "priority": priority, "divergence": divergence, "leaf": 8, "fanout": 16}
    twins = Twins(some_subscriptions(rng, n, vocabulary), **parameters)
    rows = np.arange(n)
    for now in range(12):
        twins.expire(now)
        # Words come that nobody has asked for, and are asked for later.
        twins.publish(some_messages(rng, 400, vocabulary + 4 * now, now + 4, areas=0.1), now)
        moving = rng.choice(rows, len(rows) // 3, replace=False)
        centres = rng.random((len(moving), 2)) ** (1 + now / 4)  # they gather in a corner
        twins.move(moving, boxes_around(centres, 0.04), now)
        rows = np.append(rows, twins.insert(some_subscriptions(rng, 60, vocabulary + 4 * now), now))
        gone = rng.choice(len(rows), 40, replace=False)
        twins.remove(rows[gone])
        rows = np.delete(rows, gone)
        assert twins.tree.check() == []
    stats = twins.stats()
    assert 0 < stats["questions_to_store"] < stats["questions"]
    assert stats["index"]["copies_per_message"] <= copies


def test_small_steps_read_few_entries():
    """Subscriptions that go step by step in a tree that does not change ask nothing of the store."""
    rng = np.random.default_rng(2)
    n, vocabulary = 4_000, 20
    table = some_subscriptions(rng, n, vocabulary, np.where(rng.random((n, 1)) < 0.05, 0.25, 0.02))
    twins = Twins(table, divergence=math.inf, priority="space", fanout=64)
    twins.publish(some_messages(rng, 4_000, vocabulary, 99), 0)
    boxes = table.clauses.boxes.copy()
    for now in range(1, 4):
        boxes = np.clip(boxes + np.tile(rng.normal(0, 0.001, (n, 2)), 2), 0, 1)
        twins.move(np.arange(n), boxes, now)
    stats = twins.stats()
    index = stats["index"]
    assert stats["questions"] == 3 * n
    assert stats["questions_to_store"] < 0.05 * stats["questions"]
    assert index["leaves_of_case_3"] > index["leaves_of_case_2"] + index["leaves_of_case_4"]
    assert index["leaves_of_case_1"] > 0
    assert twins.tree.check() == []


def test_a_subscription_comes_into_an_empty_cell():
    """What lies in a cell that no leaf was made for is found by the first subscription that comes there."""
    rng = np.random.default_rng(3)
    corners = rng.random((400, 2)) * 0.3 + np.repeat([[0.0], [0.7]], 200, axis=0)
    table = SubscriptionTable.from_arrays(
        boxes_around(corners, 0.01), np.zeros(401, np.int64), [], space=PLANE
    )
    twins = Twins(table, leaf=4, fanout=16, priority="space")
    twins.publish(some_messages(rng, 500, 10, 9), 0)
    twins.move([7], [[0.05, 0.75, 0.1, 0.95]], 0)
    assert twins.stats()["questions_to_store"] == 1
    # The messages from before expire; from now on, the leaf has them all.
    twins.expire(9)
    twins.publish(some_messages(rng, 500, 10, 19), 10)
    twins.move([7], [[0.05, 0.8, 0.1, 1]], 11)
    twins.move([8], [[0.05, 0.8, 0.1, 1]], 11)
    assert twins.stats()["questions_to_store"] == 1
    assert twins.tree.check() == []


def test_equal_clauses_move_beside_a_region_of_two_boxes():
    """Where one subscription has two boxes, the equal clauses of another one are merged by the move."""
    everywhere, corner = [-np.inf, -np.inf, np.inf, np.inf], [-1, -1, -1, -1]
    table = SubscriptionTable.from_arrays(
        [everywhere, everywhere, everywhere, corner], np.zeros(5, np.int64), [], owners=[0, 0, 1, 1]
    )
    lives = Lives("ap-plus-tree", table)
    lives.publish(MessageBatch.from_arrays([[-1, -1], [3, 3]], [0, 0, 0], [], expires_at=[9, 9]), 0)
    lives.move([0, 1], [[0, 0, 4, 4], corner], 1)
    assert lives.live.check() == []


def test_cells_at_the_border_have_no_end():
    """A message beyond all that the tree was built for lies in a cell whose region does not contain it."""
    rng = np.random.default_rng(10)
    middle = boxes_around(0.3 + 0.4 * rng.random((400, 2)), 0.01)
    table = SubscriptionTable.from_arrays(middle, np.zeros(401, np.int64), [], space=PLANE)
    twins = Twins(table, leaf=4, fanout=16, priority="space")
    twins.move([0], [[0.1, 0.1, 0.9, 0.9]], 0)
    twins.publish(some_messages(rng, 500, 10, 9), 0)
    for left in (0.2, 0.05, 0.15):
        twins.expire(9)
        twins.publish(some_messages(rng, 500, 10, 19), 10)
        twins.move([0], [[left, 0.1, 0.95, 0.9]], 11)
    assert twins.stats()["questions_to_store"] <= 1


def test_a_keyword_that_nobody_asked_for():
    """Messages with a word that no subscription has are found by the first one that has it."""
    rng = np.random.default_rng(4)
    n = 300
    table = SubscriptionTable.from_arrays(
        boxes_around(rng.random((n, 2)), 0.2), np.arange(n + 1), rng.integers(0, 40, n) * 2, space=PLANE
    )
    twins = Twins(table, leaf=4, fanout=8, priority="keywords")
    batch = some_messages(rng, 800, 90, 99)
    twins.publish(batch, 0)
    for word in (1, 7, 41, 79, 85, 89):
        twins.insert(SubscriptionTable.from_arrays([[0, 0, 1, 1]], [0, 1], [word], space=PLANE), 1)
    assert twins.stats()["questions_to_store"] > 0
    assert twins.tree.check() == []


def test_a_leaf_is_split_and_collapses():
    """A leaf that is split hands nothing down, and what is below finds its messages above."""
    rng = np.random.default_rng(5)
    half = 0.05
    table = SubscriptionTable.from_arrays(
        boxes_around(rng.random((30, 2)), half), np.zeros(31, np.int64), [], space=PLANE
    )
    twins = Twins(table, leaf=32, fanout=16)
    twins.publish(some_messages(rng, 1_000, 10, 99), 0)
    many = SubscriptionTable.from_arrays(
        boxes_around(rng.random((600, 2)), half), np.zeros(601, np.int64), [], space=PLANE
    )
    rows = twins.insert(many, 1)
    assert twins.stats()["index"]["splits"] > 0
    asked = twins.stats()["questions_to_store"]
    twins.move(rows, boxes_around(rng.random((600, 2)), half), 2)
    assert twins.stats()["questions_to_store"] - asked < 60
    twins.remove(rows[20:])
    twins.move(rows[:20], boxes_around(rng.random((20, 2)), half), 3)
    assert twins.tree.check() == []


def test_the_first_messages_are_attached():
    rng = np.random.default_rng(6)
    table, batch = some_subscriptions(rng, 500, 20), some_messages(rng, 500, 20, 99)
    live = MovingIndex("ap-plus-tree", table, batch)
    other = MovingIndex("auto", table, batch)
    new = boxes_around(rng.random((500, 2)), 0.1)
    for one, two in zip(live.move(np.arange(500), new, 1), other.move(np.arange(500), new, 1)):
        for found, expected in zip(one, two):
            assert sorted(found) == sorted(expected)
    assert live.stats()["index"]["copies_per_message"] > 0
    assert live.stats()["questions_to_store"] < 250
    assert live.check() == []


def test_lists_do_not_grow_without_end():
    """Messages come and expire; what is left of them is dropped."""
    rng = np.random.default_rng(7)
    live = MovingIndex("ap-plus-tree", some_subscriptions(rng, 300, 10), leaf=8, fanout=16)
    sizes = []
    for now in range(40):
        live.expire(now)
        live.publish(some_messages(rng, 200, 10, now + 3), now)
        sizes.append(live.stats()["index"]["entries"])
    assert max(sizes[20:]) < 3 * max(sizes[:8])
    assert live.check() == []


def test_bad_parameters_are_refused():
    table = SubscriptionTable.from_arrays([[0, 0, 1, 1]], [0, 1], [3])
    with pytest.raises(InputError, match="copies must be"):
        MovingIndex("ap-plus-tree", table, copies=0)
    with pytest.raises(UnknownError, match="no parameter 'depth'"):
        MovingIndex("ap-plus-tree", table, depth=3)


# --- The cost of movement (section 4.3.1) ---------------------------------------------------------------------------


def cells_of_ten(n, velocity):
    """Return clauses on a line, in ten columns, that all have the same velocity."""
    x = np.linspace(0.001, 0.999, n, dtype=np.float32)
    boxes = np.column_stack([x, np.full(n, 0.5), x, np.full(n, 0.5)]).astype(np.float32)
    motion = Motion(np.tile(np.float32(velocity), (n, 1)), 0.01, 0.001)
    columns = np.linspace(0.1, 0.9, 9, dtype=np.float32)
    return motion, boxes, np.arange(n, dtype=np.int32), columns, np.empty(0, np.float32)


def test_what_stands_still_is_never_rebuilt():
    assert time_to_rebuild(*cells_of_ten(200, (0, 0))) == config.AP_PLUS_HORIZON


def test_what_moves_faster_is_rebuilt_sooner():
    times = [time_to_rebuild(*cells_of_ten(200, (speed, 0))) for speed in (0.0001, 0.003, 0.02, 0.5)]
    assert times == sorted(times, reverse=True)
    assert times[0] == config.AP_PLUS_HORIZON
    assert times[-1] == 1


def test_the_cost_of_movement_is_that_of_the_equations():
    n, fanout, leaf, depth, words = 200, 100, 40.0, 2, 50
    motion, boxes, members, columns, rows = cells_of_ten(n, (0.02, 0))
    region = np.array([0, 0, 1, 1], np.float32)
    found = movement_cost(motion, boxes, members, region, columns, rows, depth, words, fanout, leaf)
    zeta = 0.02 / 0.1  # a cell is 0.1 wide
    update = n * 2 * min(1, zeta) * (depth + 1) * math.log2(fanout)  # equation 9
    size = n * math.log2(fanout) + n * math.sqrt(fanout) + fanout * words
    levels = math.log(n / leaf, fanout) + 1
    rebuild = size * levels / time_to_rebuild(motion, boxes, members, columns, rows)  # equation 13
    assert found == pytest.approx(motion.moves * config.AP_PLUS_STEP * (update + rebuild), rel=1e-4)
    still = motion._replace(velocities=np.zeros_like(motion.velocities))
    assert movement_cost(still, boxes, members, region, columns, rows, depth, words, fanout, leaf) == 0


def test_fast_subscriptions_are_divided_by_keywords():
    """An s-node pays for movement (equation 15), a k-node does not (equation 14)."""
    rng = np.random.default_rng(8)
    n = 3_000
    table = some_subscriptions(rng, n, 40)
    live = MovingIndex("ap-plus-tree", table, divergence=math.inf)
    shape = live.stats()["index"]
    assert shape["s_nodes"] > 0
    centres = rng.random((n, 2))
    for _ in range(10):
        centres = (centres + rng.choice([-0.2, 0.2], (n, 2))) % 1
        live.move(np.arange(n), boxes_around(centres, 0.05))
    live.publish(some_messages(rng, 100, 40, 99), 0)
    index = live._pair.index
    index.compact()
    fast = live.stats()["index"]
    assert fast["moves_per_message"] == pytest.approx(10 * n / 100, rel=1e-3)
    assert fast["s_nodes"] < shape["s_nodes"] / 2
    assert live.check() == []


def test_weights_follow_the_moves():
    """A crowd that walks across the plane is noticed by the nodes, which are rebuilt for it (section 4.3.2)."""
    rng = np.random.default_rng(9)
    n = 4_000
    table = some_subscriptions(rng, n, 10, 0.01)
    twins = Twins(table, divergence=0.01, leaf=20, fanout=36, priority="space")
    centres = table.clauses.boxes[:, :2] + 0.01
    for now in range(6):
        twins.publish(some_messages(rng, 200, 10, now + 3), now)
        centres = centres * 0.8  # towards a corner
        twins.move(np.arange(n), boxes_around(centres, 0.01), now)
    assert twins.stats()["index"]["rebuilds"] > 0
    assert twins.tree.check() == []
