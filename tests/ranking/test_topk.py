"""What `TopK` promises to people: meanings, names, errors."""

import numpy as np
import pyarrow as pa
import pytest

from nearcast import (
    ColumnError,
    CountWindow,
    DocumentFrequencies,
    DuplicateError,
    ExpressionError,
    GeometryError,
    InputError,
    ManualClock,
    Message,
    MessageBatch,
    ModelError,
    Planar,
    Point,
    TimeWindow,
    TopK,
    UnknownError,
)
from nearcast.columns import NOT_GIVEN
from nearcast.ranking.blocks import _find
from nearcast.ranking.choices import POLICIES
from nearcast.ranking.policies import best_size, cost
from nearcast.ranking.segments import scan
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
    """Subscribe; return the id: the n-th is n where none is given."""
    name = top.stats()["initialised"]
    assert len(top.subscribe([point], [0, len(words)], list(words), alpha=alpha, k=k)) == 0
    return name


def names(top, row):
    return top.results(row)[0].tolist()


def tables(top, times):
    """Messages m0, m1, … that differ in nothing but their times."""
    count = len(times)
    table = {
        "id": [f"m{i}" for i in range(count)],
        "lon": [0.0] * count,
        "lat": [0.0] * count,
        "text": ["tea"] * count,
        "published_at": pa.array(times, pa.timestamp("us", "UTC")),
    }
    if not any(times):
        del table["published_at"]
    return MessageBatch.from_arrow(table, like=top, learn=True)


def objects(top, times):
    """The same, of objects."""
    made = [Message(f"m{i}", "tea", Point(lon=0, lat=0), published_at=time) for i, time in enumerate(times)]
    return MessageBatch.from_messages(made, like=top, learn=True)


def told(updates):
    """What changed: change, message, rank, reason."""
    return [(each.change, each.message_id, each.rank, each.reason) for each in updates]


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

    def test_without_a_time_the_later_row(self):
        """Of tables and of objects, which have a column of times all the same."""
        for made in (tables, objects):
            top = TopK(CountWindow(10))
            top.subscribe([[0, 0]], words=[["tea"]], alpha=0.5, k=2)
            top.publish(made(top, [None, None, None]))
            assert names(top, 0) == ["m2", "m1"]

    def test_what_says_no_time_is_newer_than_what_was_published_now(self):
        top = TopK(CountWindow(10), clock=ManualClock(5))
        top.subscribe([[0, 0]], words=[["tea"]], alpha=0.5, k=4)
        top.publish(tables(top, [None, 5, None, 4]))
        assert names(top, 0) == ["m2", "m0", "m1", "m3"]


class TestIds:
    def test_are_those_that_were_given(self):
        for threads in (1, 2):
            top = TopK(CountWindow(2), space=PLANE, threads=threads)
            top.subscribe([[0, 0]] * 3, [0, 1, 2, 3], [0, 0, 5], alpha=0.5, k=1, ids=["anna", "ben", "cleo"])
            updates = top.publish(batch([[0, 0]], [[0]], ids=["m"])).to_arrow()
            assert sorted(updates["subscription_id"].to_pylist()) == ["anna", "ben"]
            assert updates["message_id"].to_pylist() == ["m", "m"]
            assert names(top, "ben") == ["m"]
            assert {told.subscription_id for told in top.unsubscribe(["anna", "cleo"])} == {"anna"}
            assert len(top) == 1

    def test_are_numbers_where_none_were_given(self, top):
        """Also those of subscriptions that have the memory of others."""
        for _ in range(3):
            one(top)
        top.unsubscribe([0, 2])
        assert one(top) == 3
        told = top.publish(batch([[0, 0]], [[0]])).to_arrow()
        assert sorted(told["subscription_id"].to_pylist()) == [1, 3]
        assert told.schema.field("subscription_id").type == pa.int64()
        assert told["message_id"].to_pylist() == [0, 0]

    def test_are_in_use_until_they_unsubscribe(self, top):
        point = {"points": [[0, 0]], "keyword_offsets": [0, 1], "keywords": [0], "alpha": 0.5, "k": 1}
        top.subscribe(**point, ids=["anna"])
        with pytest.raises(DuplicateError, match="subscription 'anna' exists already"):
            top.subscribe(**point, ids=["anna"])
        top.unsubscribe("anna")
        top.subscribe(**point, ids=["anna"])
        for wrong, error in (
            (["a", "b"], "ids: 2 for 1 row;"),
            ([1.5], "strings or integers"),
            ([""], "empty"),
        ):
            with pytest.raises(ColumnError, match=error):
                top.subscribe(**point, ids=wrong)
        assert len(top) == 1

    @pytest.mark.parametrize(("first", "other"), [([7], ["7"]), (["7"], [7]), (None, ["7"]), (["7"], None)])
    def test_of_messages_are_of_one_type(self, top, first, other):
        top.publish(batch([[0, 0]], [[0]], ids=first))
        with pytest.raises(ColumnError, match="the ids of messages are"):
            top.publish(batch([[0, 0]], [[0]], ids=other))
        top.publish(batch([], [], ids=[]))
        assert top.stats()["window"] == 1

    def test_of_subscriptions_are_of_one_type(self, top):
        one(top)
        with pytest.raises(
            ColumnError, match="the ids of subscriptions are integers here, and 'a' is not one"
        ):
            top.subscribe([[0, 0]], [0, 1], [0], alpha=0.5, k=1, ids=["a"])

    def test_types_do_not_depend_on_what_is_told(self):
        top = TopK(CountWindow(2), space=PLANE, subscription_ids=int, message_ids=str)
        empty = [top.expire(), top.unsubscribe([]), top.subscribe([], [0], [], alpha=0.5, k=1)]
        one(top)
        some = top.publish(batch([[0, 0]], [[0]], ids=["a"]))
        assert {told.to_arrow().schema for told in empty} == {some.to_arrow().schema}
        with pytest.raises(ColumnError, match="message_ids are str or int"):
            TopK(CountWindow(2), message_ids=float)

    def test_of_messages_that_come_and_go_stay_right(self):
        """Names of messages that have left are forgotten, and the others get other codes."""
        top = TopK(CountWindow(20), space=PLANE)
        one(top, k=5)
        told = {}
        for turn in range(60):
            ids = [f"{turn} {i}" for i in range(50)]
            for each in top.publish(batch([[0, 0]] * 50, [[0]] * 50, ids=ids)):
                if each.change == "-":
                    del told[each.message_id]
                else:
                    told[each.message_id] = each.rank
            assert sorted(told, key=told.get) == names(top, 0) == ids[:-6:-1]
        assert top.stats()["memory"]["ids"] < 100_000


class TestReasons:
    def test_what_a_better_one_puts_out(self, top):
        one(top, k=1)
        assert told(top.publish(batch([[1, 0]], [[0]]))) == [("+", 0, 1, "publish")]
        assert told(top.publish(batch([[0, 0]], [[0]]))) == [("-", 0, 1, "publish"), ("+", 1, 1, "publish")]

    def test_what_leaves_the_window_and_what_moves_up(self):
        top = TopK(CountWindow(2), space=PLANE)
        one(top, k=1)
        top.publish(batch([[0, 0], [1, 0]], [[0], [0]]))
        assert told(top.publish(batch([[3, 4]], [[0]]))) == [("-", 0, 1, "expire"), ("+", 1, 1, "expire")]

    def test_of_one_row_may_differ(self):
        """One is replaced, one leaves, one comes, and one moves up."""
        top = TopK(CountWindow(5), space=PLANE)
        one(top, k=3)
        places = [[0, 0], [0, 1], [0, 2], [0, 3], [0, 4]]
        top.publish(batch(places, [[0]] * 5, ids=list("abcde")))
        updates = top.publish(batch([[3, 4], [0, 0.5]], [[9], [0]], ids=["b", "f"]))
        assert sorted(told(updates)) == [
            ("+", "d", 3, "expire"),
            ("+", "f", 1, "publish"),
            ("-", "a", 1, "expire"),
            ("-", "b", 2, "replace"),
        ]

    def test_who_comes_is_told_what_there_is_and_who_goes_what_there_was(self, top):
        top.publish(batch([[1, 0], [0, 0], [2, 0]], [[0]] * 3))
        given = ([[0, 0], [3, 0]], [0, 1, 2], [0, 0])
        came = top.subscribe(*given, alpha=1.0, k=[2, 1], ids=["anna", "ben"])
        assert [(each.subscription_id, *each_told) for each, each_told in zip(came, told(came))] == [
            ("anna", "+", 1, 1, "subscribe"),
            ("anna", "+", 0, 2, "subscribe"),
            ("ben", "+", 2, 1, "subscribe"),
        ]
        assert [each.score for each in came][:2] == top.results("anna")[1].tolist()
        went = top.unsubscribe("anna")
        assert told(went) == [("-", 1, 1, "unsubscribe"), ("-", 0, 2, "unsubscribe")]
        assert "anna" not in {each.subscription_id for each in top.expire()}


class TestReplacing:
    """A message under an id that is there already."""

    def test_the_same_content_is_no_news(self, top):
        row = one(top)
        same = {"ids": ["a"], "published_at": [7]}
        top.publish(batch([[0, 0]], [[0, 1]], **same))
        top.publish(batch([[1, 0]], [[0]], ids=["b"], published_at=[8]))
        assert told(top.publish(batch([[0, 0]], [[1, 0]], **same))) == []
        assert names(top, row) == ["a", "b"]
        assert top.stats()["window"] == 2

    @pytest.mark.parametrize(
        "other",
        [
            {"points": [[1, 0]]},
            {"words": [[0]]},
            {"words": [[0, 1, 2]]},
            {"published_at": [8]},
            {"published_at": None},
        ],
        ids=str,
    )
    def test_other_content_replaces_it(self, top, other):
        row = one(top)
        given = {"points": [[0, 0]], "words": [[0, 1]], "ids": ["a"], "published_at": [7]}
        top.publish(batch(**given))
        (before,) = top.results(row)[1]
        updates = top.publish(batch(**given | other))
        (after,) = top.results(row)[1]
        assert told(updates) == [("-", "a", 1, "replace"), ("+", "a", 1, "publish")]
        assert [each.score for each in updates] == [before, after]
        assert (top.stats()["window"], top.stats()["replaced"]) == (1, 1)

    def test_it_may_be_nobodys_any_more(self, top):
        row = one(top, k=1)
        top.publish(batch([[0, 0], [0, 0]], [[0], [0, 1]], ids=["b", "a"]))
        assert told(top.publish(batch([[0, 0]], [[5]], ids=["a"]))) == [
            ("-", "a", 1, "replace"),
            ("+", "b", 1, "replace"),
        ]
        assert names(top, row) == ["b"]

    def test_what_it_dominated_comes_back(self, top):
        """Two newer and better messages had put it out of the buffer for two results."""
        row = one(top, k=2)
        top.publish(batch([[1, 0]], [[0, 1]], ids=["old"]))
        top.publish(batch([[0, 0]] * 2, [[0, 1]] * 2, ids=["a", "b"]))
        assert top.stats()["average_buffer"] == 2
        top.publish(batch([[3, 4]], [[0]], ids=["a"]))
        assert names(top, row) == ["b", "old"]

    def test_what_ranked_behind_it_comes_back_in_its_turn(self):
        """It was no result, but the buffer knows nothing of what ranks behind it any more."""
        top = TopK(CountWindow(5), space=PLANE)
        row = one(top, alpha=1.0, k=1)
        top.publish(batch([[0, y] for y in range(4)], [[0]] * 4, ids=["a", "b", "c", "d"]))
        top.publish(batch([[0, 1], [0, 2.5]], [[5], [0]], ids=["b", "e"]))
        top.publish(batch([[0, 0]], [[5]], ids=["f"]))
        assert names(top, row) == ["c"]

    def test_the_place_in_the_window_is_that_of_the_new_one(self):
        top = TopK(CountWindow(2), space=PLANE)
        row = one(top)
        top.publish(batch([[0, 0]] * 2, [[0]] * 2, ids=["a", "b"]))
        top.publish(batch([[1, 0]], [[0]], ids=["a"]))
        assert names(top, row) == ["b", "a"]  # nobody left
        top.publish(batch([[1, 0]], [[0]], ids=["c"]))
        assert names(top, row) == ["c", "a"]

    def test_within_a_batch_the_last_counts(self, top):
        row = one(top)
        updates = top.publish(
            batch([[0, 0], [1, 0], [1, 0], [0, 1]], [[0], [0], [0], [0]], ids=["a", "b", "b", "a"])
        )
        assert told(updates) == [("+", "a", 1, "publish"), ("+", "b", 2, "publish")]
        assert names(top, row) == ["a", "b"]

    def test_an_id_is_free_when_its_message_has_left(self):
        """Also within one batch: the first message leaves when the others come, and comes again."""
        top = TopK(CountWindow(2), space=PLANE)
        row = one(top)
        top.publish(batch([[0, 0]], [[0]], ids=["a"]))
        top.publish(batch([[0, 0]] * 3, [[0]] * 3, ids=["b", "c", "a"]))
        assert names(top, row) == ["a", "c"]

    def test_without_ids_all_are_new(self, top):
        row = one(top)
        for _ in range(2):
            top.publish(batch([[0, 0]], [[0]]))
        assert names(top, row) == [1, 0]

    def test_memory_does_not_grow_with_messages_that_were_replaced(self):
        """One that nobody replaces is the oldest of the window for a long time."""
        top = TopK(CountWindow(1000), space=PLANE)
        row = one(top, k=200)
        top.publish(batch([[0, 0]], [[0, 1]], ids=["stays"]))
        replaced, used = [f"m{i}" for i in range(100)], []
        for turn in range(300):
            new = [f"{turn} {i}" for i in range(9)]
            top.publish(batch([[turn % 3, 1]] * 109, [[0, 1]] * 109, ids=replaced + new))
            late = top.subscribe([[0, 0]], [0, 2], [0, 1], alpha=0.5, k=200).to_arrow()
            assert late["message_id"].to_pylist() == names(top, row)
            top.unsubscribe([late["subscription_id"][0].as_py()])
            used.append(sum(top.stats()["memory"].values()))
        assert max(used[200:]) < 1.2 * max(used[:200])
        assert top.stats()["replaced"] > 10_000


class TestWindows:
    def test_of_time(self):
        clock = ManualClock()
        top = TopK(TimeWindow(10), space=PLANE, clock=clock)
        row = one(top)
        top.publish(batch([[0, 0]], [[0]], ids=[1], published_at=[0]))
        clock.advance(seconds=4)
        top.publish(batch([[0, 0]], [[0]], ids=[2], published_at=[4 * SECOND]))
        clock.advance(seconds=5.999999)
        assert len(top.expire()) == 0
        clock.advance(seconds=0.000001)
        assert told(top.expire()) == [("-", 1, 2, "expire")]
        assert names(top, row) == [2]

    def test_a_late_message_counts_as_published_with_the_newest(self):
        top = TopK(TimeWindow(10), space=PLANE)
        row = one(top)
        top.publish(batch([[0, 0]], [[0]], ids=[1], published_at=[20 * SECOND]))
        top.publish(batch([[0, 0]], [[0]], ids=[2], published_at=[3 * SECOND]))
        assert names(top, row) == [2, 1]
        top.expire(30 * SECOND)
        assert names(top, row) == []

    @pytest.mark.parametrize("times", [[None, None], [None, "now"]], ids=["no time", "one time"])
    @pytest.mark.parametrize("made", [tables, objects])
    def test_what_says_no_time_is_published_when_it_is_published(self, made, times):
        clock = ManualClock("2026-11-16T08:00:00Z")
        top = TopK(TimeWindow(3600), clock=clock)
        top.subscribe([[0, 0]], words=[["tea"]], alpha=0.5, k=2)
        top.publish(made(top, [clock.now() if time else None for time in times]))
        clock.advance(seconds=3599)
        assert len(top.expire()) == 0
        clock.advance(seconds=1)
        assert len(top.expire()) == 2

    def test_a_message_is_late_whoever_has_left(self):
        """That the newest one has left, and its memory with it, changes nothing."""
        for many in (1, 3000):
            top = TopK(TimeWindow(10), space=PLANE)
            row = one(top)
            top.publish(batch([[0, 0]] * many, [[0]] * many, published_at=[90 * SECOND] * many))
            top.expire(200 * SECOND)
            top.publish(batch([[0, 0]], [[0]], ids=[9999], published_at=[50 * SECOND]))
            top.expire(99 * SECOND)
            assert names(top, row) == [9999]

    @pytest.mark.parametrize("window", [TimeWindow(3600), CountWindow(3)])
    def test_what_is_published_ahead_of_the_clock_is_refused(self, window):
        """It would push out of the window all that is published until then."""
        clock = ManualClock("2026-11-16T08:00:00Z")
        top, hours = TopK(window, space=PLANE, clock=clock), 3600 * SECOND
        row = one(top)
        top.publish(batch([[0, 0]] * 2, [[0]] * 2, ids=[1, 2]))
        early = batch([[0, 0]] * 2, [[0]] * 2, ids=[3, 4], published_at=[5, clock.now() + 2 * hours])
        said = r"message 4 is published at 2026-11-16T10:00:00Z, and the clock says 2026-11-16T08:00:00Z"
        with pytest.raises(ColumnError, match=said):
            top.publish(early)
        assert names(top, row) == [2, 1]
        clock.advance(seconds=7200)
        top.publish(early)
        assert names(top, row)[0] == 4

    def test_without_a_clock_messages_tell_the_time(self):
        top = TopK(TimeWindow(10), space=PLANE)
        row = one(top)
        top.publish(batch([[0, 0]], [[0]], ids=[1], published_at=[2**60], expires_at=[2**60 + 1]))
        top.publish(batch([[0, 0]], [[0]], ids=[2], published_at=[2**60], expires_at=[1]))
        assert names(top, row) == [2, 1]

    @pytest.mark.parametrize("named", [True, False])
    def test_what_has_expired_reaches_nobody(self, named):
        clock = ManualClock(100)
        top = TopK(TimeWindow(10), space=PLANE, clock=clock)
        row = one(top)
        made = top.publish(
            batch([[0, 0]] * 3, [[0]] * 3, ids=[7, 8, 9] if named else None, expires_at=[100, 101, 5])
        )
        assert made.to_arrow()["message_id"].to_pylist() == [8 if named else 0]
        clock.advance(seconds=1)
        assert len(top.expire()) == 0  # how long a message counts is for the window to say
        assert len(top.results(row)[0]) == 1
        assert top.stats()["messages"] == 1

    def test_what_has_expired_ends_what_was_published_under_its_id(self):
        clock = ManualClock(100)
        top = TopK(CountWindow(3), space=PLANE, clock=clock)
        row = one(top, k=1)
        top.publish(batch([[0, 0], [1, 1]], [[0]] * 2, ids=["a", "b"]))
        again = batch([[0, 0]], [[0]], ids=["a"], expires_at=[100])
        assert told(top.publish(again)) == [("-", "a", 1, "replace"), ("+", "b", 1, "replace")]
        assert len(top.publish(again)) == 0
        assert names(top, row) == ["b"]
        both = batch([[0, 0]] * 2, [[0]] * 2, ids=["c", "c"], published_at=[1, 2], expires_at=[101, 3])
        assert len(top.publish(both)) == 0

    def test_time_must_be_known(self):
        with pytest.raises(InputError, match=r"expire\(now\)"):
            TopK(TimeWindow(10), space=PLANE).expire()
        with pytest.raises(ColumnError, match=r"message 1 does not say when.*give published_at, or.*a clock"):
            TopK(TimeWindow(10), space=PLANE).publish(
                batch([[0, 0]] * 2, [[0]] * 2, published_at=[1, NOT_GIVEN])
            )

    def test_times_at_the_ends_of_the_calendar(self):
        top = TopK(TimeWindow(10), space=PLANE)
        row = one(top)
        ends = [-(2**63) + 1, 2**63 - 1]
        top.publish(batch([[0, 0]], [[0]], ids=[1], published_at=ends[:1]))
        assert len(top.expire(ends[0])) == 0
        top.publish(batch([[0, 0]], [[0]], ids=[2], published_at=ends[1:]))
        assert names(top, row) == [2]
        assert len(top.expire(ends[1])) == 0

    @pytest.mark.parametrize("now", ["x", 1.5, float("nan"), True, 2**70, [1]])
    @pytest.mark.parametrize("window", [CountWindow(1), TimeWindow(1)])
    def test_now_is_a_time(self, window, now):
        with pytest.raises(ModelError, match="now"):
            TopK(window, space=PLANE).expire(now)

    def test_now_as_people_write_it(self):
        top = TopK(TimeWindow(10), space=PLANE)
        one(top)
        top.publish(batch([[0, 0]], [[0]], published_at=[0]))
        assert len(top.expire(np.int64(9 * SECOND))) == 0
        assert len(top.expire("1970-01-01T00:00:10Z")) == 1

    @pytest.mark.parametrize("wrong", [0, 1e-7, float("nan"), True, "10", 1e12])
    def test_times_that_cannot_be(self, wrong):
        with pytest.raises(InputError, match="a window must last"):
            TimeWindow(wrong)

    @pytest.mark.parametrize("wrong", [0, -1, 2**30, True, "10"])
    def test_sizes_that_cannot_be(self, wrong):
        with pytest.raises(InputError, match="size of a window must be a whole number from 1"):
            CountWindow(wrong)
        with pytest.raises(InputError, match="CountWindow or a TimeWindow"):
            TopK(wrong)


class TestWords:
    def test_strings(self):
        frequencies = DocumentFrequencies([5, 50], 100, words=["tea", "sale"])
        top = TopK(CountWindow(10), document_frequency=frequencies)
        top.subscribe([[0, 0]], words=[["Tea", "sale"]], alpha=0.0, k=5)
        table = {"id": ["a", "b", "c"], "lon": [0, 0, 0], "lat": [0, 0, 0], "text": ["SALE!", "tea", "milk"]}
        top.publish(MessageBatch.from_arrow(table, like=top, learn=True))
        assert names(top, 0) == ["b", "a"]

    def test_frequencies_of_a_batch_are_those_of_its_words(self):
        """Wherever they are used: the codes of the batch are not those of another vocabulary."""
        table = {"id": [1, 2, 3], "lon": [0] * 3, "lat": [0] * 3, "text": ["sale tea", "sale", "Sale"]}
        like = TopK(CountWindow(10))
        frequencies = DocumentFrequencies.of(MessageBatch.from_arrow(table, like=like, learn=True))
        assert frequencies.words == ("sale", "tea")
        top = TopK(CountWindow(10), document_frequency=frequencies)
        top.subscribe([[0, 0]], words=[["tea", "sale"]], alpha=0.0, k=5)
        messages = {"id": ["a", "b"], "lon": [0, 0], "lat": [0, 0], "text": ["tea", "sale"]}
        top.publish(MessageBatch.from_arrow(messages, like=top, learn=True))
        rare, common = np.log1p(3 / 1), np.log1p(3 / 3)
        assert names(top, 0) == ["a", "b"]
        np.testing.assert_allclose(top.results(0)[1], [rare, common] / np.hypot(rare, common))

    def test_frequencies_of_a_batch_of_areas_and_of_codes(self):
        table = {"id": [1], "xmin": [179], "ymin": [0], "xmax": [-179], "ymax": [1], "text": ["tea"]}
        like = TopK(CountWindow(10))
        frequencies = DocumentFrequencies.of(MessageBatch.from_arrow(table, like=like, learn=True))
        assert (frequencies.counts.tolist(), frequencies.documents) == ([1], 1)
        coded = DocumentFrequencies.of(batch([[0, 0]] * 2, [[0, 2], [2]]))
        assert (coded.counts.tolist(), coded.words) == ([1, 0, 2], None)

    def test_frequencies_are_of_words_as_they_stand_in_messages(self):
        assert DocumentFrequencies([1, 2], 5, words=["Rare", "CAFÉ"]).words == ("rare", "café")
        for words, error, message in (
            (["Rare", "rare"], ColumnError, "'Rare' and 'rare' are the same word"),
            (["a"], ColumnError, "2 counts and 1 words"),
            (["a", "happy hour"], ExpressionError, "2 words, not one keyword"),
            ("ab", ColumnError, "a list of strings"),
            (5, ColumnError, "a list of strings"),
            (["a", None], ExpressionError, "not a text"),
        ):
            with pytest.raises(error, match=message):
                DocumentFrequencies([1, 2], 5, words=words)

    def test_a_text_is_its_words(self):
        top = TopK(CountWindow(10))
        top.subscribe([[0, 0]], words=["Tea, cake"], alpha=0.5, k=1)
        top.publish(tables(top, [None]))
        assert names(top, 0) == ["m0"]
        for wrong in ("tea", 5, [None]):
            with pytest.raises(InputError, match="words"):
                top.subscribe([[0, 0]], words=wrong, alpha=0.5, k=1)

    def test_those_of_others_are_refused(self):
        table = {"id": ["a"], "lon": [0], "lat": [0], "text": ["tea"]}
        like = TopK(CountWindow(10))
        with pytest.raises(ColumnError, match=r"like=top"):
            TopK(CountWindow(10)).publish(MessageBatch.from_arrow(table, like=like, learn=True))

    def test_codes_and_words_at_once(self, top):
        for codes in (([0, 1], [1]), ([0, 1],)):
            with pytest.raises(InputError, match="not both"):
                top.subscribe([[0, 0]], *codes, words=[["tea"]], alpha=0, k=1)

    def test_frequencies_that_cannot_be(self):
        with pytest.raises(ColumnError, match="11 of 10 documents"):
            DocumentFrequencies([1, 11], 10)
        with pytest.raises(ColumnError, match="version must be a string"):
            DocumentFrequencies([1], 10, version=5)
        with pytest.raises(InputError, match="a whole number from 0"):
            DocumentFrequencies([1], 10).idf(-1)
        with pytest.raises(InputError, match="counted in a MessageBatch"):
            DocumentFrequencies.of("x")


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"k": 0}, ColumnError, "k must be from 1"),
        ({"k": 2.0}, ColumnError, "k must be whole numbers"),
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
    with pytest.raises(UnknownError, match="there is no subscription 9223372036854775808"):
        top.results(2**63)
    for wrong in ("0", 0.0, None, True, [0]):
        with pytest.raises(UnknownError, match="there is no subscription"):
            top.results(wrong)
    with pytest.raises(UnknownError, match="no subscription 3"):
        top.unsubscribe(np.array([3]))
    with pytest.raises(UnknownError, match="give an id, or several"):
        top.unsubscribe(None)


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"threads": 0}, InputError, "threads must be a whole number from 1, not 0"),
        ({"threads": "2"}, InputError, "threads"),
        ({"threads": True}, InputError, "threads"),
        ({"index": "nope"}, UnknownError, "there are blocks"),
        ({"index": []}, UnknownError, r"no index \[\]"),
        ({"buffer": []}, UnknownError, r"no buffer \[\]"),
        ({"document_frequency": [1, 2]}, InputError, "must be DocumentFrequencies"),
        ({"clock": "noon"}, InputError, r"a method now\(\)"),
        ({"max_distance": float("nan")}, InputError, "max_distance"),
    ],
    ids=str,
)
def test_what_cannot_be_given(given, error, message):
    with pytest.raises(error, match=message):
        TopK(CountWindow(1), **given)


@pytest.mark.parametrize("buffer", POLICIES)
def test_scores_of_0_are_results(buffer):
    """They are found again when better ones leave, although the buffer was cut in the midst of them."""
    k, space = 20, Planar(0, 0, 100, 100)
    better, without = POLICIES[buffer]().wanted(k) - 1, k - 8
    top = TopK(CountWindow(better + without), space=space, max_distance=10, buffer=buffer)
    row = one(top, words=[0], alpha=1.0, k=k)
    places = [(9 * i / better, 0) for i in range(better)] + [(50, 0)] * without
    top.publish(batch(places, [[0]] * len(places), space=space))
    assert np.count_nonzero(top.results(row)[1]) == k
    top.publish(batch([(0, 0)] * better, [[5]] * better, space=space))
    assert top.results(row)[1].tolist() == [0.0] * without


def test_it_is_shown_in_words(top):
    assert repr(top) == "<TopK of 0 subscriptions over 0 messages>"
    one(top)
    top.publish(batch([[0, 0]], [[0]]))
    assert repr(top) == "<TopK of 1 subscription over 1 message>"


def test_ids_in_columns(top):
    for ids in (pa.chunked_array([["a"], ["b"]]), pa.table({"id": ["a", "b"]}), {"id": ["b", "a"]}):
        top.subscribe([[0, 0]] * 2, [0, 1, 2], [0, 1], alpha=0.5, k=1, ids=["a", "b"])
        top.unsubscribe(ids)
        assert len(top) == 0


def test_a_list_of_words_for_each_point(top):
    for words, said in (
        ([["tea"], ["milk"]], "2 lists of words for 1 point"),
        ([], "0 lists of words for 1 point"),
    ):
        with pytest.raises(InputError, match=said):
            top.subscribe([[0, 0]], words=words, alpha=0.5, k=1)
    assert len(top.vocabulary) == 0


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


def test_memory_does_not_grow_with_every_k_that_was_ever_asked_for():
    """The room of a buffer that is gone serves others of about its size."""
    top = TopK(CountWindow(10), space=PLANE)
    for k in range(1, 1001):
        top.unsubscribe(one(top, k=k))
    assert top.stats()["memory"]["buffers"] < 2_000_000


def test_memory_does_not_grow_with_subscriptions_that_come_and_go():
    """Not even while no message arrives: what a buffer watched forgets it."""
    top = TopK(CountWindow(100), space=PLANE)
    stays, used = one(top, k=20), []
    top.publish(batch([[0, 0]] * 100, [[0, 1, 2]] * 100))
    for _ in range(20):
        for _ in range(50):
            top.unsubscribe(one_of_many(top))
        used.append(top.stats()["memory"]["watches"])
    assert max(used) <= 1.1 * used[1]
    assert top._subscribers.rows == 2
    top.publish(batch([[1, 1]] * 100, [[0]] * 100))
    assert sorted(names(top, stays)) == list(range(180, 200))


def one_of_many(top):
    (first, *_) = top.subscribe([[0, 0]], [0, 1], [0], alpha=0.5, k=20)
    return first.subscription_id


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
