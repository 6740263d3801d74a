"""Rooms in a pool: disjoint, aligned, and used again."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearcast.kernels.slabs import END, allot, empty_slabs, release, size_class
from profiles import examples

LARGEST = 6
POOL = 1 << 14


@pytest.mark.parametrize(("size", "k"), [(0, 0), (1, 0), (2, 1), (3, 2), (4, 2), (5, 3), (64, 6), (65, 7)])
def test_size_class(size, k):
    assert size_class(size) == k


@given(
    steps=st.lists(st.one_of(st.integers(0, LARGEST), st.integers(0, 30).map(lambda i: ~i)), max_size=80),
    chunk=st.sampled_from([0, 3, 5]),
)
@examples(200)
def test_rooms_are_disjoint_and_aligned(steps, chunk):
    """A step allots a room of a class, or releases one of those in use."""
    slabs, links = empty_slabs(LARGEST), np.full(POOL, -9, np.int32)
    rooms = []
    for step in steps:
        if step >= 0:
            at = allot(slabs, links, step, chunk)
            rooms.append((at, 1 << step))
            assert at % (1 << min(step, chunk)) == 0
            assert at + (1 << step) <= slabs[END] <= POOL
        elif rooms:
            at, size = rooms.pop(~step % len(rooms))
            release(slabs, links, at, size, chunk)
        taken = [slot for at, size in rooms for slot in range(at, at + size)]
        assert len(taken) == len(set(taken))
        free = free_slots(slabs, links, chunk)
        assert sorted(taken + free) == list(range(slabs[END]))


def free_slots(slabs, links, chunk):
    found = []
    for k in range(LARGEST + 1):
        at = slabs[1 + k]
        while at >= 0:
            assert at % (1 << min(k, chunk)) == 0
            found += range(at, at + (1 << k))
            at = links[at]
    return found


@pytest.mark.parametrize("chunk", [0, 5])
@pytest.mark.parametrize("kind", [np.int32, np.int64])
def test_the_pool_ends_at_the_most_that_was_in_use_at_a_time(chunk, kind):
    """Rooms of one size that come and go never move the end twice, nor do smaller ones after larger ones."""
    slabs, links = empty_slabs(LARGEST), np.empty(POOL, kind)
    for _ in range(50):
        rooms = [allot(slabs, links, LARGEST, chunk) for _ in range(20)]
        for at in rooms:
            release(slabs, links, at, 1 << LARGEST, chunk)
    assert slabs[END] == 20 << LARGEST
    for k in reversed(range(LARGEST)):
        rooms = [allot(slabs, links, k, chunk) for _ in range(20)]
        for at in rooms:
            release(slabs, links, at, 1 << k, chunk)
    assert slabs[END] == 20 << LARGEST


@pytest.mark.parametrize(("at", "size"), [(0, 64), (32, 64), (5, 59), (1, 1), (31, 40), (0, 200)])
def test_a_run_of_any_length_is_released(at, size):
    slabs, links = empty_slabs(LARGEST), np.empty(POOL, np.int64)
    slabs[END] = 256
    release(slabs, links, at, size, 5)
    assert sorted(free_slots(slabs, links, 5)) == list(range(at, at + size))
    if size == 64:  # one room, although it is only aligned to a chunk
        assert allot(slabs, links, LARGEST, 5) == at
