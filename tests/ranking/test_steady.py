"""A window in a steady state: no call takes long, and memory does not depend on how many messages came and went.

``pytest --long tests/ranking/test_steady.py -s`` runs it at a million subscriptions over a million messages.
"""

import gc
import time

import numpy as np
import pytest

from nearcast import CountWindow, MessageBatch, Planar, TopK
from profiles import allowed_ms

PLANE = Planar(0, 0, 50, 50)
WORDS = 50_000
VERBS = ("publish", "subscribe", "unsubscribe")


def words_of(rng, size, most):
    """Return the offsets and codes of a few words for each of *size* rows; some words are frequent."""
    counts = rng.integers(1, most, size)
    codes = (WORDS * rng.random(counts.sum()) ** 3).astype(np.int32)
    return np.append(0, np.cumsum(counts)), codes


class World:
    """A window that is full of messages, and subscriptions for the best five of them."""

    def __init__(self, size, window, strings=True):
        self.rng, self.strings = np.random.default_rng(0), strings
        self.top = TopK(CountWindow(window), space=PLANE, max_distance=5)
        self.size, self.window, self.published = size, window, 0
        self.top.publish(self.messages(window // 8))
        self.subscribe(size, 0)
        while self.published < 2 * window:  # until those that have left are as many as the others
            self.top.publish(self.messages(min(10_000, 2 * window - self.published)))

    def messages(self, count):
        points, (offsets, codes) = self.rng.random((count, 2)) * 50, words_of(self.rng, count, 12)
        ids = range(self.published, self.published + count)
        self.published += count
        named = [f"m{i}" for i in ids] if self.strings else list(ids)
        return MessageBatch.from_arrays(points, offsets, codes, ids=named, space=PLANE)

    def subscribe(self, count, first):
        points, words = self.rng.random((count, 2)) * 50, words_of(self.rng, count, 4)
        self.top.subscribe(
            points, *words, alpha=self.rng.random(count), k=5, ids=np.arange(first, first + count)
        )


def longest_calls(size, window, calls):
    """Return the processor time of the longest calls of each verb, in milliseconds; kernels are warm."""
    for given, messages, steps in ((20_000, 3_000, 1_000), (size, window, calls)):
        world = World(given, messages)
        taken = {verb: [] for verb in VERBS}
        gc.collect()
        gc.disable()
        try:
            for key in range(steps):
                batch = world.messages(1)
                for verb in VERBS if key % 4 == 0 else VERBS[:1]:
                    started = time.thread_time()
                    if verb == "publish":
                        world.top.publish(batch)
                    elif verb == "subscribe":
                        world.subscribe(1, given + key)
                    else:
                        world.top.unsubscribe(given + key - 400 if key >= 400 else key)
                    taken[verb].append(1e3 * (time.thread_time() - started))
        finally:
            gc.enable()
    return taken


@pytest.mark.parametrize(
    ("size", "window", "calls"),
    [(20_000, 4_000, 3_000), pytest.param(1_000_000, 1_000_000, 40_000, marks=pytest.mark.long)],
)
def test_no_call_takes_long(size, window, calls):
    taken = longest_calls(size, window, calls)
    longest = {verb: max(times) for verb, times in taken.items()}
    print(  # noqa: T201
        f"{size:,} subscriptions over {window:,} messages, longest of {calls:,} calls in ms:", longest
    )
    assert max(longest.values()) < allowed_ms(size)
