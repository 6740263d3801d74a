"""An engine in a steady state: no call takes long, and memory does not depend on how many came and went.

``pytest --long tests/stateful/test_steady.py -s`` runs it at a million subscriptions, with a million pairs of calls.
"""

import gc
import subprocess
import sys
import time

import numpy as np
import pyarrow as pa
import pytest

from nearcast import Box, Circle, Engine, Message, Point, Subscription
from nearcast.clock import ManualClock

WORDS = [f"word{i}" for i in range(5_000)]
LONGEST_MS = 20


class World:
    """An engine with many subscriptions, and random ones to come, with messages that are kept for a minute."""

    def __init__(self, size, seed=0):
        self.rng, self.clock = np.random.default_rng(seed), ManualClock("2026-11-18T00:00:00Z")
        self.engine = Engine(clock=self.clock)
        counts = self.rng.integers(1, 4, size)
        words = pa.array(WORDS).take(pa.array(self.rng.integers(0, len(WORDS), counts.sum())))
        x, y = self.rng.random((2, size)) * 50
        keywords = pa.ListArray.from_arrays(pa.array(np.append(0, np.cumsum(counts)).astype(np.int32)), words)
        box = {"xmin": x, "ymin": y, "xmax": x + 0.1, "ymax": y + 0.1}
        self.engine.subscribe(pa.table({"id": [f"s{i}" for i in range(size)], "keywords": keywords, **box}))

    def subscription(self, key):
        x, y = (self.rng.random(2) * 50).tolist()
        asked = " AND ".join(WORDS[i] for i in self.rng.integers(0, len(WORDS), self.rng.integers(1, 4)))
        region = Circle(lon=x, lat=y, radius=500) if key % 5 == 0 else Box(x, y, x + 0.1, y + 0.1)
        return Subscription(f"x{key}", asked, region)

    def message(self, key):
        x, y = (self.rng.random(2) * 50).tolist()
        text = " ".join(WORDS[i] for i in self.rng.integers(0, len(WORDS), 9))
        return Message(f"m{key}", text, Point(lon=x, lat=y), expires_at=self.clock.now() + 60_000_000)


def longest_calls(size, calls):
    """Return the processor time of the longest call of each verb, in milliseconds; kernels are warm."""
    small = World(20_000)
    for key in range(3_000):  # until the kept messages outgrow a scan
        for verb, given in (("subscribe", small.subscription(key)), ("publish", small.message(key))):
            getattr(small.engine, verb)(given)
        if key % 2:
            small.engine.unsubscribe(f"x{key}")
    world = World(size)
    longest = dict.fromkeys(("subscribe", "unsubscribe", "publish"), 0.0)
    gc.collect()
    gc.disable()
    try:
        for key in range(calls):
            steps = [("subscribe", world.subscription(key)), ("publish", world.message(key))]
            steps += [("unsubscribe", f"x{key - 100}")] if key >= 100 else []
            for verb, given in steps:
                started = time.thread_time()
                getattr(world.engine, verb)(given)
                longest[verb] = max(longest[verb], 1e3 * (time.thread_time() - started))
            world.clock.advance(seconds=0.02)
    finally:
        gc.enable()
    return longest


@pytest.mark.parametrize(
    ("size", "calls"), [(50_000, 1_500), pytest.param(1_000_000, 50_000, marks=pytest.mark.long)]
)
def test_no_call_takes_long(size, calls):
    longest = longest_calls(size, calls)
    print(  # noqa: T201
        f"{size:,} subscriptions, longest of {calls:,} calls in ms:", longest
    )
    assert max(longest.values()) < LONGEST_MS


def test_pairs_do_not_grow_an_engine():
    world = World(3_000)
    sizes = []
    for key in range(16_000):
        world.engine.subscribe(world.subscription(key))
        world.engine.unsubscribe(f"x{key}")
        if key % 1_000 == 999:
            sizes.append((world.engine.stats()["index"]["bytes"], world.engine._ids.nbytes))
    assert sizes[-1][0] < 1.1 * sizes[7][0]  # the lists of all words have found their rooms by and by
    assert sizes[-1][1] < 3 * sizes[0][1]  # ids that left are dropped in waves


@pytest.mark.long
def test_pairs_do_not_grow_the_process():
    """Memory after a million pairs is within 3 % of that after 100,000, at 100,000 subscriptions."""
    script = """
from test_steady import World
def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1])
world, levels = World(100_000), {}
for key in range(1_000_000):
    world.engine.subscribe(world.subscription(key))
    world.engine.unsubscribe(f"x{key}")
    if key + 1 in (100_000, 1_000_000):
        levels[key + 1] = resident()
print(levels[1_000_000] / levels[100_000])
"""
    here = __file__.rpartition("/")[0]
    paths = f"import sys; sys.path[:0] = [{here!r}]\n"
    run = subprocess.run(
        [sys.executable, "-c", paths + script], capture_output=True, text=True, check=True, timeout=3_000
    )
    print("memory after a million pairs, as a share of that after 100,000:", run.stdout.strip())  # noqa: T201
    assert float(run.stdout) < 1.03
