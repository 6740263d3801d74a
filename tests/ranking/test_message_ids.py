"""Messages under few ids, with few contents: what the window holds equals the naive one."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearcast import CountWindow, ManualClock, MessageBatch, Planar, TimeWindow, TopK
from profiles import examples
from ranking.naive_topk import NaiveTopK

PLANE = Planar(0, 0, 3, 4)
messages = st.tuples(st.integers(0, 4), st.sampled_from([((0, 0), (1,)), ((1, 0), (1,)), ((0, 0), (1, 2))]))
batches = st.tuples(
    st.lists(messages, max_size=9),
    st.one_of(st.none(), st.integers(0, 6)),  # with a time
    st.booleans(),  # with ids
    st.one_of(st.just(set()), st.sets(st.integers(0, 8))),  # which of the messages have expired
)
windows = st.one_of(st.integers(1, 5), st.sampled_from([1.0, 3.0]))


@examples(500)
@given(window=windows, many=st.lists(batches, min_size=1, max_size=8), strings=st.booleans())
def test_a_window_holds_one_message_under_each_id(window, many, strings):
    counted = isinstance(window, int)
    clock = ManualClock()
    top = TopK(CountWindow(window) if counted else TimeWindow(window), space=PLANE, clock=clock)
    naive = NaiveTopK(
        count=window if counted else None, seconds=None if counted else window, idf=[1] * 3, max_distance=5
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("nearcast.config.RANKING_GAPS", 0)
        for batch, time, named, ended in many:
            if strings:
                batch, named = [(f"m{name}", content) for name, content in batch], True
            publish(top, naive, clock, batch, time, named, ended)
            held = top._messages
            numbers = held.first + np.flatnonzero(~held.withdrawn[held.first - held._base :])
            assert len(numbers) == len(held)
            found = zip(top._named(numbers).to_pylist(), held.times[numbers - held._base].tolist())
            assert [(str(name), time) for name, time in found] == [
                (str(name), time) for _, name, _, _, time, _ in naive.messages
            ]


def publish(top, naive, clock, batch, time, named, ended):
    """Publish a batch as soon as it may be: no message is ahead of the clock."""
    contents, size = [content for _, content in batch], len(batch)
    living = [i for i in range(size) if i not in ended]
    if named:
        ids = [name for name, _ in batch]
    else:  # those that have expired have no number
        ids = dict(zip(living, range(top._messages.end, top._messages.end + size)))
    times = [clock.now() if time is None else (time + i % 2 * 2) * 1_000_000 for i in range(size)]
    clock.advance(seconds=max(0, max(times, default=0) - clock.now()) / 1_000_000)
    top.publish(
        MessageBatch.from_arrays(
            np.array([place for place, _ in contents], float).reshape(-1, 2),
            np.cumsum([0, *(len(words) for _, words in contents)]),
            np.array([word for _, words in contents for word in words], np.int32),
            ids=ids if named else None,
            published_at=None if time is None else times,
            expires_at=[clock.now() + (i not in ended) for i in range(size)],
            space=PLANE,
        )
    )
    ranks = [-sorted(set(ids)).index(name) for name in ids] if named and time is not None else ids
    order = sorted(
        range(size) if named else living,
        key=lambda i: (times[i], ranks[i] if named and time is not None else i),
    )
    numbers = list(ids.values()) if not named else []
    naive.publish(
        (
            ids[row] if named else str(numbers[i]),
            *contents[row],
            times[row],
            None if time is None else times[row],
            row in ended,
        )
        for i, row in enumerate(order)
    )
