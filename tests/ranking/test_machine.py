"""Subscriptions come and go while messages flow: the results equal the naive ones after every step."""

import json
import math
import os

import numpy as np
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from nearcast import WGS84, ManualClock, MessageBatch, Planar
from nearcast.columns import NOT_GIVEN
from nearcast.ranking import CountWindow, DocumentFrequencies, TimeWindow, TopK
from nearcast.ranking.choices import FINDERS, POLICIES
from profiles import examples
from ranking.naive_topk import NaiveTopK

PLANE = Planar(0, 0, 8, 8)
WORDS = 7
SECOND = 1_000_000
ID = 1_000_000  # ids that are given are larger than the numbers of messages without one

coordinates = st.integers(0, 8)  # few places and few words: ties are many
points = st.tuples(coordinates, coordinates)
word_sets = st.sets(st.integers(0, WORDS - 1), min_size=1, max_size=4)
contents = st.tuples(points, st.sets(st.integers(0, WORDS - 1), max_size=5))
waits = st.one_of(st.none(), st.integers(-1, 3))  # none: it does not say when it was published
#: Few ids; or one of the messages before, once more, as it was or with another time.
messages = st.one_of(
    st.tuples(st.integers(0, 9), contents, waits),
    st.tuples(st.integers(1, 12)),
    st.tuples(st.integers(1, 12), waits),
)
subscriptions = st.tuples(points, word_sets, st.sampled_from([0.0, 0.2, 0.5, 0.9, 1.0]), st.integers(1, 4))


def ragged(sets):
    offsets = np.concatenate([[0], np.cumsum([len(one) for one in sets])]).astype(np.int64)
    return offsets, np.array([word for one in sets for word in sorted(one)], np.int32)


class TopKMachine(RuleBasedStateMachine):
    """One TopK, one naive."""

    index, buffer = "blocks", "cost-based"

    @initialize(
        window=st.one_of(st.integers(1, 12), st.sampled_from([2.0, 5.0])),
        weighted=st.booleans(),
        globe=st.booleans(),
        clocked=st.booleans(),
        threads=st.sampled_from([1, 2]),
    )
    def begin(self, window, weighted, globe, clocked, threads):
        frequencies = DocumentFrequencies([1, 2, 3, 5, 8, 13, 13], 20) if weighted else None
        counted = isinstance(window, int)
        self.globe, self.clocked, self.untimed = globe, clocked, clocked or counted
        self.clock, self.threads = ManualClock(), threads
        self.top = TopK(
            CountWindow(window) if counted else TimeWindow(window),
            space=WGS84 if globe else PLANE,
            document_frequency=frequencies,
            clock=self.clock if clocked else None,
            threads=threads,
            index=self.index,
            buffer=self.buffer,
        )
        idf = frequencies.idf(WORDS) if weighted else np.ones(WORDS)
        far = math.pi * 6_371_008.8 if globe else math.hypot(8, 8)
        self.naive = NaiveTopK(
            count=window if counted else None,
            seconds=None if counted else window,
            idf=idf.tolist(),
            sphere=globe,
            max_distance=far,
        )
        self.now = 0
        self.published = []  # with ids: id, point, words, the time that it says
        self.told = {}  # the results of each row, kept up to date by what is told alone
        self.subscribed = 0

    def place(self, point):
        """On the globe, places in general position: ties of distances would be decided by the last bit."""
        x, y = point
        return (x * 11.3 + 0.37 * x**2 + 0.01 * y**2, y * 7.7 - 30) if self.globe else point

    @rule(
        many=st.lists(messages, min_size=1, max_size=6),
        named=st.booleans(),
        ended=st.one_of(st.just(set()), st.sets(st.integers(0, 5))),
    )
    def publish(self, many, named, ended):
        """Publish messages; those in the rows of *ended* have expired, which only a clock can tell."""
        made = []  # id, point, words, the time that it says
        for message in many:
            if len(message) == 3:
                number, (point, words), wait = message
                made.append((ID + number, self.place(point), frozenset(words), self.said(wait)))
            elif named and len(self.published) >= message[0]:
                *content, said = self.published[-message[0]]
                made.append((*content, self.said(message[1]) if len(message) > 1 else said))
        batch = MessageBatch.from_arrays(
            np.array([message[1] for message in made], float).reshape(-1, 2),
            *ragged([message[2] for message in made]),
            ids=[message[0] for message in made] if named else None,
            published_at=[NOT_GIVEN if message[3] is None else message[3] for message in made],
            expires_at=[self.now + (row not in ended) for row in range(len(made))],
            space=self.top.space,
        )
        if named:
            self.published += made
        before, number = self.ranked(), self.top._messages.end
        updates = self.top.publish(batch)
        arrived = [
            (name if named else number + i, *message)
            for i, (name, *message) in enumerate(self.order(made, named, ended if self.clocked else set()))
        ]
        self.naive.publish(arrived)
        new = {name for name, *_, gone in arrived if not gone}
        self.apply(updates, before, {"publish", "replace", "expire"}, new)

    def said(self, wait):
        """Return the time that a message says: not one that lies ahead, if there is a clock."""
        if self.clocked and wait is not None:
            wait = -abs(wait)
        return None if wait is None and self.untimed else self.now + (wait or 0) * SECOND

    def order(self, made, named, ended):
        """Return (id, point, words, time, said, whether it has expired) of messages in the order of their arrival.

        Those that have no ids and have expired are left out.
        """
        now = self.now
        if not self.clocked:
            now = max([self.naive.newest, *(said for *_, said in made if said is not None)])
        order = [
            (now if said is None else said, -name if named and said is not None else i, i)
            for i, (name, *_, said) in enumerate(made)
            if named or i not in ended
        ]
        return [(*made[i][:3], time, made[i][3], i in ended) for time, _, i in sorted(order)]

    @rule(seconds=st.integers(0, 4))
    def wait(self, seconds):
        self.now += seconds * SECOND
        self.clock.advance(seconds=seconds)
        before = self.ranked()
        updates = self.top.expire(self.now)
        self.naive.expire(self.now)
        self.apply(updates, before, {"expire"})

    @rule(many=st.lists(subscriptions, min_size=1, max_size=5))
    def subscribe(self, many):
        first = self.subscribed
        self.subscribed += len(many)
        updates = self.top.subscribe(
            [self.place(point) for point, *_ in many],
            *ragged([words for _, words, *_ in many]),
            alpha=[alpha for *_, alpha, _ in many],
            k=[k for *_, k in many],
        )
        for row, (point, words, alpha, k) in enumerate(many, first):
            self.naive.subscriptions[row] = (self.place(point), words, alpha, k)
            self.told[row] = {}
        self.apply(updates, {}, {"subscribe"})

    @rule(data=st.data())
    def unsubscribe(self, data):
        if self.naive.subscriptions:
            rows = data.draw(st.lists(st.sampled_from(sorted(self.naive.subscriptions)), max_size=3))
            before = self.ranked()
            self.apply(self.top.unsubscribe(rows), before, {"unsubscribe"})
            for row in set(rows):
                assert not self.told.pop(row)
                del self.naive.subscriptions[row]

    @rule()
    def rest(self):
        """Saved and opened, it goes on where it was."""
        document, arrays = self.top._at_rest()
        self.top = TopK._restored(
            json.loads(json.dumps(document)), {name: array.copy() for name, array in arrays.items()}
        )
        self.top._run_by(self.clock if self.clocked else None, self.threads)

    def ranked(self):
        return {row: self.top.results(row)[0].tolist() for row in self.told}

    def apply(self, updates, before, reasons, published=()):
        """Bring what was told up to date, and check what is told now."""
        valid = {message[1] for message in self.naive.messages}
        for each in updates:
            assert each.reason in reasons
            results = self.told[each.subscription_id]
            if each.change == "-":
                assert results.pop(each.message_id) == each.score
                assert before[each.subscription_id][each.rank - 1] == each.message_id
                assert each.reason != "publish" or each.message_id in valid
            else:
                assert each.message_id not in results
                results[each.message_id] = each.score
                assert self.top.results(each.subscription_id)[0][each.rank - 1] == each.message_id
                assert each.reason != "publish" or each.message_id in published

    @invariant()
    def equal(self):
        for row in getattr(self, "naive", NaiveTopK(idf=[], max_distance=1)).subscriptions:
            names, scores = self.top.results(row)
            expected = self.naive.results(row)
            assert names.tolist() == [name for name, _ in expected]
            np.testing.assert_allclose(scores, [score for _, score in expected], rtol=1e-12, atol=1e-13)
            assert self.told[row] == dict(zip(names.tolist(), scores.tolist()))


@pytest.mark.parametrize("at_once", [False, True], ids=["inserted", "laid out"])
@pytest.mark.parametrize("buffer", POLICIES)
@pytest.mark.parametrize("index", FINDERS)
def test_results_equal_the_naive_ones(index, buffer, at_once, monkeypatch):
    if at_once:  # every newcomer leads to a new layout
        monkeypatch.setattr("nearcast.config.RANKING_BULK", 0)
        monkeypatch.setattr("nearcast.config.RANKING_WAITING", 0)
    monkeypatch.setattr("nearcast.config.RANKING_SEGMENT", 3)  # so that a small window has segments
    monkeypatch.setattr("nearcast.config.RANKING_MERGE", 2)
    monkeypatch.setattr("nearcast.config.RANKING_GAPS", 0)
    if not at_once:  # events are put together, and their room grows
        monkeypatch.setattr("nearcast.config.RANKING_EVENTS", 16)
        monkeypatch.setattr("nearcast.ranking.blocks.SHARED", 1)  # threads share the words of few rows, too
    machine = type("Machine", (TopKMachine,), {"index": index, "buffer": buffer})
    steps = int(os.environ.get("NEARCAST_RANKING_STEPS", "30"))
    run_state_machine_as_test(machine, settings=examples(30, stateful_step_count=steps))


@pytest.mark.parametrize("weighted", [False, True])
def test_threads_and_sizes_of_calls_change_nothing(weighted):
    """Thousands of buffers, so that every thread has work in every loop, and that most of an index is pruned.

    First come messages of one to three words, then long ones that score less: thresholds rise, fall and rise again.
    """
    rng, plane = np.random.default_rng(0), Planar(0, 0, 1, 1)

    def words(counts):
        return np.append(0, np.cumsum(counts)), (60 * rng.random(counts.sum()) ** 3).astype(np.int32)

    counts = np.concatenate([rng.integers(low, low + 3, 1_000) for low in (1, 7, 1)])
    stream = MessageBatch.from_arrays(rng.random((3_000, 2)), *words(counts), space=plane)
    places, wishes, alpha = (
        rng.random((4_000, 2)),
        words(rng.integers(1, 5, 4_000)),
        rng.random(4_000).round(1),
    )
    frequencies = DocumentFrequencies.of(stream) if weighted else None
    idf = frequencies.idf(60) if weighted else np.ones(60)
    rows = range(0, 4_000, 40)
    naive = NaiveTopK(count=1_000, idf=idf.tolist(), max_distance=math.hypot(1, 1))
    for row in rows:
        mine = wishes[1][wishes[0][row] : wishes[0][row + 1]].tolist()
        naive.subscriptions[row] = (tuple(places[row].tolist()), set(mine), float(alpha[row]), 4)
    offsets, codes = stream.probes.keyword_offsets.tolist(), stream.probes.keywords.tolist()
    points = stream.probes.boxes[:, :2].tolist()
    expected = []
    for end in range(1_000, 3_001, 500):
        begin = naive.arrived
        naive.publish(
            (i, tuple(points[i]), codes[offsets[i] : offsets[i + 1]], i, None, False)
            for i in range(begin, end)
        )
        expected.append({row: naive.results(row) for row in rows})
    told = {}
    for threads, size in ((1, 500), (2, 500), (3, 500), (2, 1_000), (1, 100)):
        top = TopK(CountWindow(1_000), space=plane, document_frequency=frequencies, threads=threads)
        top.publish(stream.take(range(1_000)))
        top.subscribe(places, *wishes, alpha=alpha, k=4)
        updates = []
        for end in range(1_000, 3_001, size):
            if end > 1_000:
                updates.append(top.publish(stream.take(range(end - size, end))))
            if end % 500 == 0:
                for row, best in expected[end // 500 - 2].items():
                    names, scores = top.results(row)
                    assert names.tolist() == [name for name, _ in best], (threads, size, end, row)
                    np.testing.assert_allclose(scores, [score for _, score in best], rtol=1e-12, atol=1e-13)
        told[threads, size] = [sorted(map(str, one.to_arrow().to_pylist())) for one in updates]
        assert top.stats()["re_evaluations"] > 1_000
    assert told[1, 500] == told[2, 500] == told[3, 500]
