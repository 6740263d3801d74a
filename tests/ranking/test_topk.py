"""What `TopK` promises to people: meanings, names, errors."""

import numpy as np
import pytest

from nearcast import (
    ColumnError,
    CountWindow,
    DocumentFrequencies,
    GeometryError,
    InputError,
    ManualClock,
    MessageBatch,
    Planar,
    TimeWindow,
    TopK,
    UnknownError,
)
from nearcast.ranking.blocks import _find
from nearcast.ranking.policies import best_size, cost
from nearcast.ranking.seek import scan
from nearcast.ranking.updates import _tell
from nearcast.ranking.upkeep import arrive, expire, refill

PLANE = Planar(0, 0, 3, 4)  # the farthest distance is 5
SECOND = 1_000_000


def batch(points, words, space=PLANE, **more):
    offsets = np.cumsum([0, *map(len, words)])
    return MessageBatch.from_arrays(
        points, offsets, [word for row in words for word in row], space=space, **more
    )


@pytest.fixture
def top():
    return TopK(CountWindow(10), space=PLANE)


def one(top, point=(0, 0), words=(0, 1), alpha=0.5, k=3):
    return int(top.subscribe([point], [0, len(words)], list(words), alpha=alpha, k=k)[0])


def names(top, row):
    return top.results(row)[0].tolist()


class TestScore:
    def test_equation_1(self, top):
        row = one(top, alpha=0.4)
        top.publish(batch([[3, 0]], [[1, 2]]))
        (score,) = top.results(row)[1]
        assert score == pytest.approx(0.4 * (1 - 3 / 5) + 0.6 * (1 / 2))

    def test_rare_words_weigh_more(self):
        frequencies = DocumentFrequencies([1, 100], 100)
        top = TopK(CountWindow(10), space=PLANE, document_frequency=frequencies)
        row = one(top, alpha=0.0)
        top.publish(batch([[0, 0], [0, 0]], [[0, 2], [1, 2]]))
        rare, common, unseen = np.log1p(100), np.log1p(1), np.log1p(100)
        expected = [w * w / (np.hypot(rare, common) * np.hypot(w, unseen)) for w in (rare, common)]
        np.testing.assert_allclose(top.results(row)[1], expected)

    def test_without_a_common_word_nothing_is_near_enough(self, top):
        row = one(top, alpha=1.0)
        top.publish(batch([[0, 0], [3, 4]], [[5], [1]]))
        assert names(top, row) == [1]
        assert top.results(row)[1].tolist() == [0.0]

    def test_max_distance_is_where_nearness_ends(self):
        top = TopK(CountWindow(10), space=PLANE, max_distance=2)
        row = one(top, alpha=1.0)
        top.publish(batch([[0, 1], [0, 3]], [[0], [0]]))
        assert top.results(row)[1].tolist() == [0.5, 0.0]


class TestTies:
    def test_the_newer_one_wins(self, top):
        row = one(top, k=2)
        top.publish(batch([[0, 0]] * 2, [[0]] * 2, ids=["a", "b"]))
        top.publish(batch([[0, 0]], [[0]], ids=["c"]))
        assert names(top, row) == ["c", "b"]

    def test_of_the_same_time_the_smaller_id(self, top):
        row = one(top, k=2)
        top.publish(batch([[0, 0]] * 3, [[0]] * 3, ids=["b", "a", "c"], published_at=[5, 5, 4]))
        assert names(top, row) == ["a", "b"]


class TestIds:
    def test_are_numbers_until_a_name_comes(self):
        top = TopK(CountWindow(2), space=PLANE, threads=2)
        one(top)
        assert top.publish(batch([], [], ids=[])).schema.field("message").type == "int64"
        assert top.publish(batch([[0, 0]], [[0]], ids=[7]))["message"].to_pylist() == [7]
        named = top.publish(batch([[0, 0]] * 2, [[0]] * 2, ids=["a", "b"]))
        assert named.schema.field("message").type == "string"
        assert named["message"].to_pylist() == ["7", "b", "a"]
        assert top.publish(batch([[0, 0]], [[0]], ids=[8]))["message"].to_pylist() == ["a", "8"]


class TestWindows:
    def test_of_time(self):
        clock = ManualClock()
        top = TopK(TimeWindow(10), space=PLANE, clock=clock)
        row = one(top)
        top.publish(batch([[0, 0]] * 2, [[0]] * 2, ids=[1, 2], published_at=[0, 4 * SECOND]))
        clock.advance(seconds=9.999999)
        assert top.expire().num_rows == 0
        clock.advance(seconds=0.000001)
        (gone,) = top.expire().to_pylist()
        assert (gone["message"], gone["change"], gone["rank"]) == (1, -1, 2)
        assert names(top, row) == [2]

    def test_a_late_message_counts_as_published_with_the_newest(self):
        top = TopK(TimeWindow(10), space=PLANE)
        row = one(top)
        top.publish(batch([[0, 0]], [[0]], ids=[1], published_at=[20 * SECOND]))
        top.publish(batch([[0, 0]], [[0]], ids=[2], published_at=[3 * SECOND]))
        assert names(top, row) == [2, 1]
        top.expire(30 * SECOND)
        assert names(top, row) == []

    def test_time_must_be_known(self):
        with pytest.raises(InputError, match=r"expire\(now\)"):
            TopK(TimeWindow(10), space=PLANE).expire()

    @pytest.mark.parametrize("wrong", [0, -1, 2**30, True, "10"])
    def test_sizes_that_cannot_be(self, wrong):
        with pytest.raises(InputError, match="whole number of messages"):
            CountWindow(wrong)
        with pytest.raises(InputError, match="CountWindow or a TimeWindow"):
            TopK(wrong)


class TestWords:
    def test_strings(self):
        frequencies = DocumentFrequencies([5, 50], 100, words=["tea", "sale"])
        top = TopK(CountWindow(10), document_frequency=frequencies)
        (row,) = top.subscribe([[0, 0]], words=[["Tea", "sale"]], alpha=0.0, k=5)
        table = {"id": ["a", "b", "c"], "lon": [0, 0, 0], "lat": [0, 0, 0], "text": ["SALE!", "tea", "milk"]}
        top.publish(MessageBatch.from_arrow(table, like=top, learn=True))
        assert names(top, row) == ["b", "a"]

    def test_those_of_others_are_refused(self):
        table = {"id": ["a"], "lon": [0], "lat": [0], "text": ["tea"]}
        like = TopK(CountWindow(10))
        with pytest.raises(ColumnError, match=r"like=top"):
            TopK(CountWindow(10)).publish(MessageBatch.from_arrow(table, like=like, learn=True))

    def test_codes_and_words_at_once(self, top):
        with pytest.raises(InputError, match="not both"):
            top.subscribe([[0, 0]], [0, 1], [1], words=[["tea"]], alpha=0, k=1)

    def test_frequencies_that_cannot_be(self):
        with pytest.raises(ColumnError, match="11 of 10 documents"):
            DocumentFrequencies([1, 11], 10)
        with pytest.raises(ColumnError, match="none of them twice"):
            DocumentFrequencies([1, 1], 10, words=["a", "a"])


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"k": 0}, ColumnError, "k must be from 1"),
        ({"k": 2.0}, ColumnError, "k must be numbers"),
        ({"alpha": 1.5}, ColumnError, r"alpha must be from 0.0 to 1.0, not 1\.5"),
        ({"alpha": float("nan")}, ColumnError, "alpha must be"),
        ({"words": []}, ColumnError, "subscription 0 has no keywords"),
        ({"point": (9, 9)}, GeometryError, "outside"),
    ],
)
def test_subscriptions_that_cannot_be(top, changes, error, message):
    with pytest.raises(error, match=message):
        one(top, **changes)
    assert len(top) == 0


def test_messages_that_cannot_be(top):
    with pytest.raises(ColumnError, match="at a point"):
        top.publish(
            MessageBatch.from_arrays(boxes=[[0, 0, 1, 1]], keyword_offsets=[0, 0], keywords=[], space=PLANE)
        )
    with pytest.raises(ColumnError, match="the messages are in WGS84"):
        top.publish(MessageBatch.from_arrays([[0, 0]], [0, 0], []))
    with pytest.raises(InputError, match="takes a MessageBatch"):
        top.publish([])


def test_unknown_rows_and_names(top):
    row = one(top)
    top.unsubscribe([row])
    for call in (top.results, lambda it: top.unsubscribe([it])):
        with pytest.raises(UnknownError, match=f"no subscription {row}"):
            call(row)
    with pytest.raises(UnknownError, match="there are blocks"):
        TopK(CountWindow(1), index="nope")


def test_stats_and_memory_are_told(top):
    one(top)
    top.publish(batch([[0, 0]], [[0]]))
    stats = top.stats()
    assert (stats["subscriptions"], stats["window"], stats["messages"], stats["entered"]) == (1, 1, 1, 1)
    assert stats["average_buffer"] == 1
    assert all(size >= 0 for size in stats["memory"].values())


def test_memory_does_not_grow_with_messages_that_have_left():
    top = TopK(CountWindow(100), space=PLANE)
    one(top)
    for _ in range(60):
        top.publish(batch([[0, 0]] * 100, [[0, 1, 2]] * 100))
    used = sum(top.stats()["memory"].values())
    for _ in range(120):
        top.publish(batch([[0, 0]] * 100, [[0, 1, 2]] * 100))
    assert sum(top.stats()["memory"].values()) < 1.5 * used


def test_the_cost_model_has_a_minimum_between_few_and_many():
    """Equation 13: with k entries it re-evaluates all the time, with many it pays for each of them."""
    best = best_size(20)
    assert 20 < best < 40
    assert cost(best, 20) < min(cost(20, 20), cost(80, 20))


def test_one_subscription_and_one_message_compile_nothing_anew():
    """A column with one entry is contiguous, which Numba takes for another type."""

    def turn_over(count):
        top = TopK(CountWindow(count), space=PLANE)
        for _ in range(count):
            one(top, k=1)
        for _ in range(2):
            top.publish(batch([(1, 1)] * count, [[0]] * count))

    turn_over(3)
    kernels = (arrive, expire, refill, _tell, _find, scan)
    known = [set(kernel.signatures) for kernel in kernels]
    turn_over(1)
    assert [set(kernel.signatures) for kernel in kernels] == known
