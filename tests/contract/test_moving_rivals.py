"""What the rivals for moving subscriptions promise beside right answers: cells, lists, tickets, and how they change."""

from dataclasses import replace

import numpy as np
import pytest

from answers import answers
from nearcast import MessageBatch, MovingIndex, SubscriptionTable, build_index, build_store, config
from nearcast.errors import InputError
from nearcast.matching.rivals.ticketed import TicketedLists
from strategies import ragged

STORES = ["ss-lists", "kk-lists", "iq-tree", "rq-tree"]
INDEXES = ["ss-lists", "kk-lists"]
EVERYWHERE = [-np.inf, -np.inf, np.inf, np.inf]


def words_of(rng, n, most):
    """Return up to *most* words for each of n rows; small codes are frequent."""
    return ragged([np.unique(rng.zipf(1.5, rng.integers(0, most + 1)) % 40).tolist() for _ in range(n)])


def random_batch(rng, n, areas=0.0):
    low = rng.random((n, 2)).round(3)
    extents = np.where(rng.random((n, 1)) < areas, rng.random((n, 2)) ** 4, 0.0)
    boxes = np.hstack([low, low + extents])
    return MessageBatch.from_arrays(None, *words_of(rng, n, 5), boxes=boxes, expires_at=np.full(n, 99))


def random_table(rng, n, side=0.3):
    low = rng.random((n, 2)).round(3)
    boxes = np.hstack([low, low + side * rng.random((n, 2))])
    boxes[::17] = EVERYWHERE
    forbidden = ragged([[int(rng.integers(40))] * (row % 5 == 0) for row in range(n)])
    return SubscriptionTable.from_arrays(boxes, *words_of(rng, n, 3), forbidden=forbidden)


@pytest.fixture(params=STORES)
def store(request):
    return request.param


@pytest.fixture(params=INDEXES)
def index(request):
    return request.param


@pytest.mark.parametrize("areas", [0.0, 0.1], ids=["points", "areas"])
def test_changes_equal_those_of_a_scan_where_cells_are_divided(store, areas):
    """Thousands of messages come and go; small steps, far jumps, and regions that shrink, grow and stay."""
    rng = np.random.default_rng(1)
    batch, table = random_batch(rng, 3_000, areas), random_table(rng, 120)
    pair = [build_store(name, batch) for name in (store, "scan")]
    for step in (0.0, 0.01, 1.0):
        after = replace(table, clauses=table.clauses._replace(boxes=moved(rng, table.clauses.boxes, step)))
        ours, theirs = ([sets(found) for found in each.changes(table, after, 1)] for each in pair)
        assert ours == theirs
        assert (sum(map(len, ours[0])) > 100) == (step > 0)
        more, gone = random_batch(rng, 500, areas), rng.choice(2_000, 300, replace=False)
        present = np.flatnonzero(pair[1].rows.present)[gone]
        for each in pair:
            each.remove(present)
            each.insert(more)
        assert answers(pair[0], table) == answers(pair[1], table)
        assert pair[0].check() == []
        table = after


def moved(rng, boxes, step):
    change = np.hstack([rng.normal(0, step, (len(boxes), 2))] * 2) + rng.normal(0, step / 4, boxes.shape)
    after = boxes + change
    return np.where(after[:, [2, 3, 2, 3]] >= after[:, [0, 1, 0, 1]], after, boxes)


def sets(found):
    for rows in found:
        assert len(set(rows.tolist())) == len(rows)
    return [set(rows.tolist()) for rows in found]


@pytest.mark.parametrize("areas", [0.0, 0.1], ids=["points", "areas"])
def test_grids_of_subscriptions_equal_the_scan(index, areas):
    rng = np.random.default_rng(2)
    table, batch = random_table(rng, 2_000), random_batch(rng, 60, areas)
    pair = [build_index(name, table) for name in (index, "scan")]
    for step in (0.001, 0.5):
        rows = rng.choice(2_000, 700, replace=False)
        boxes = moved(rng, pair[1].table.clauses.boxes[rows], step)
        for each in pair:
            each.move(rows, boxes)
        assert answers(pair[0], batch) == answers(pair[1], batch)
        assert pair[0].check() == []


class TestGridFile:
    def test_the_number_of_cells_is_a_parameter(self, index):
        rng = np.random.default_rng(3)
        table, batch = random_table(rng, 300), random_batch(rng, 300, 0.2)
        figures = []
        for side in (1, 7, 200):
            made, kept = build_index(index, table, side=side), build_store(index, batch, side=side)
            assert (made.stats()["side"], kept.stats()["side"]) == (side, side)
            assert answers(made, batch) == answers(build_index("scan", table), batch)
            assert answers(kept, table) == answers(build_store("scan", batch), table)
            figures.append(made.stats()["replication"])
        assert figures[0] == 1.0 < figures[1]
        with pytest.raises(InputError, match="side must be a whole number from 1 to 1,024, not 0"):
            build_index(index, table, side=0)

    def test_the_paper_has_forty(self, index):
        rng = np.random.default_rng(3)
        assert build_index(index, random_table(rng, 9)).stats()["side"] == 40

    def test_what_is_nearly_everywhere_is_listed_once(self, index):
        table = SubscriptionTable.from_arrays([[0, 0, 1, 1], [0, 0, 0.99, 0.99], EVERYWHERE], [0] * 4, [])
        assert build_index(index, table).stats()["replication"] == 1.0

    def test_a_move_inside_of_its_cells_writes_the_box_only(self, index):
        rng = np.random.default_rng(4)
        made = build_index(index, random_table(rng, 500))
        before = made.structure._lists.directory.used
        boxes = made.table.clauses.boxes
        made.move(np.arange(500), boxes + 1e-9)
        assert made.structure._lists.directory.used == before
        assert made.check() == []


class TestQuadtrees:
    @pytest.mark.parametrize("name", ["iq-tree", "rq-tree"])
    def test_messages_are_in_all_cells_that_they_pass(self, name):
        """Ten times as many messages in one quarter: only it is divided further."""
        rng = np.random.default_rng(5)
        places = np.concatenate([rng.random((6_000, 2)) / 2, [[0, 0], [1, 1]]])
        made = build_store(name, MessageBatch.from_arrays(places, np.arange(6_003), np.zeros(6_002, int)))
        lists = made.structure._lists
        _, rows = lists.lists.pairs()
        copies = np.bincount(rows)
        assert copies[-1] == 2 * 2  # the last message is alone in its quarter, under its word and under none
        assert copies[:-1].min() >= 2 * 3
        assert made.stats()["divided"] > 0
        assert made.check() == []

    def test_few_messages_stay_at_the_root(self):
        rng = np.random.default_rng(6)
        for name, full in (("iq-tree", config.IQ_MESSAGES_CELL), ("rq-tree", config.RQ_MESSAGES_CELL)):
            batch = MessageBatch.from_arrays(rng.random((full, 2)), np.arange(full + 1), np.zeros(full, int))
            made = build_store(name, batch)
            assert (made.stats()["divided"], made.stats()["postings_per_message"]) == (0, 2.0)
            made.insert(batch.take([0]))
            assert made.stats()["divided"] > 0
            assert made.check() == []


def test_lists_that_nothing_has_any_more_are_forgotten(store):
    """Words that never come back: the directory is laid out anew."""
    rng = np.random.default_rng(7)
    made = build_store(store, MessageBatch.from_arrays(rng.random((500, 2)), np.arange(501), np.arange(500)))
    rows = np.arange(500)
    for round_ in range(1, 30):
        words = np.arange(500) + 500 * round_
        fresh = made.insert(MessageBatch.from_arrays(rng.random((500, 2)), np.arange(501), words))
        made.remove(rows)
        rows = fresh
    assert made.structure._lists.directory.used < 8_000
    assert made.check() == []


def test_a_successor_answers_alike(store):
    rng = np.random.default_rng(8)
    batch, table = random_batch(rng, 3_000, 0.1), random_table(rng, 50)
    made = build_store(store, batch)
    expected, first = answers(made, table), made.structure
    successor = first.successor()
    for part in np.array_split(first.members(), 7):
        successor.add(part)
    made.structure = successor
    made.compact()
    assert made.check() == []
    assert answers(made, table) == expected


class TestTickets:
    def test_postings_leave_all_their_lists(self):
        rng = np.random.default_rng(9)
        lists, boxes = TicketedLists(), rng.random((200, 4))
        there = set()
        for _ in range(30):
            rows = rng.choice(200, 40, replace=False)
            gone = [row for row in rows.tolist() if any(row == known for _, known in there)]
            lists.remove_all(np.array(gone, np.int64))
            there = {pair for pair in there if pair[1] not in gone}
            pairs = {(int(rng.integers(30)), int(row)) for row in rows for _ in range(4)}
            targets, posted = np.array(sorted(pairs)).T
            lists.post(boxes, posted, targets.astype(np.int32))
            there |= pairs
            assert lists.check() == []
            assert set(zip(*lists.pairs().tolist())) == there
        lists.remove_all(np.arange(200))
        assert (lists.postings, lists.check()) == (0, [])

    def test_room_is_used_again(self):
        rng = np.random.default_rng(10)
        lists, boxes = TicketedLists(), rng.random((500, 4))
        sizes = []
        for _ in range(20):
            lists.post(boxes, np.repeat(np.arange(500), 3), rng.integers(0, 99, 1_500).astype(np.int32))
            lists.remove_all(np.arange(500))
            sizes.append(sum(array.nbytes for array in lists.arrays("").values()))
        assert max(sizes[5:]) <= 1.2 * sizes[4]


@pytest.mark.parametrize("name", STORES)
@pytest.mark.parametrize(
    "damage",
    [
        lambda made: made._lists.lists.pool.rows.__setitem__(0, 1),
        lambda made: made._lists.lists._tickets.values.__setitem__((0, 1), 99),
        lambda made: made._lists.directory.arrays.slots.fill(0),
        lambda made: setattr(made, "_spread", 7),
    ],
)
def test_damage_is_found(name, damage):
    rng = np.random.default_rng(11)
    made = build_store(name, random_batch(rng, 200))
    assert made.check() == []
    damage(made.structure)
    assert made.check() != []


def test_from_scratch_is_a_removal_and_an_insertion(monkeypatch):
    rng = np.random.default_rng(12)
    live = MovingIndex("scratch", random_table(rng, 50), random_batch(rng, 200))
    calls = []
    index = live._pair.index
    for name in ("_drop", "_add"):
        original = getattr(index, name)
        monkeypatch.setattr(index, name, lambda rows, f=original, n=name: (calls.append(n), f(rows)))
    live.move([3, 1], [[0, 0, 1, 1], [0, 0, 0.5, 0.5]], 1)
    assert calls == ["_drop", "_add"]
    assert live.check() == []
