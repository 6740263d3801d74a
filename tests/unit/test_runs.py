"""Runs of values in a pool: disjoint, kept apart from free ones, and used again."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearcast.kernels.runs import (
    END,
    FREE,
    GIVEN,
    LONGER,
    LONGEST,
    allot_runs,
    compare_runs,
    copy_runs,
    empty_room,
    release_runs,
)
from profiles import examples

ROWS, POOL = 40, 1 << 14


class Pool:
    """A ragged column of up to ROWS rows, beside a dict that says what each holds."""

    def __init__(self, given=()):
        """Begin with rows of the given sizes, one right behind the other."""
        self.room, self.values = empty_room(sum(given)), np.full(POOL, -7, np.int32)
        self.runs, self.model = np.zeros((ROWS, 2), np.int32), {}
        for row, size in enumerate(given):
            self.runs[row] = sum(given[:row]), sum(given[: row + 1])
            self.values[slice(*self.runs[row])] = row
            self.model[row] = [row] * size

    def put(self, row, values):
        given, rows = np.array(values, np.int32), np.array([row])
        source = np.array([[0, len(given)]], np.int32)
        allot_runs(self.room, self.values, self.runs, rows, source)
        copy_runs(source, given, self.runs, rows, self.values)
        self.model[row] = list(values)

    def drop(self, row):
        release_runs(self.room, self.values, self.runs, np.array([row]))
        del self.model[row]

    def check(self):
        taken = []
        for row, values in self.model.items():
            first, last = self.runs[row].tolist()
            assert self.values[first:last].tolist() == values
            long = len(values) > LONGEST and first >= self.room[GIVEN]
            taken += range(first, first + (1 << (len(values) - 1).bit_length()) if long else last)
        free = [slot for at, size in self.free() for slot in range(at, at + size)]
        assert sorted(taken + free) == list(range(self.room[END]))

    def free(self):
        found = []
        for chain in range(1, GIVEN):
            at = int(self.room[chain])
            while at >= 0:
                found.append((at, chain if chain <= LONGEST else 1 << chain - LONGER))
                at = int(self.values[at])
        assert len(found) == self.room[FREE]
        return found


@given(
    steps=st.lists(
        st.tuples(st.integers(0, ROWS - 1), st.one_of(st.integers(0, 5), st.integers(0, 150))), max_size=60
    ),
    given=st.lists(st.sampled_from([0, 1, 3, 64, 65, 150]), max_size=5),
)
@examples(150)
def test_what_is_put_stays_until_it_is_dropped(steps, given):
    """A step drops a row that is there, or puts one with that many values."""
    pool = Pool(given)
    for number, (row, size) in enumerate(steps):
        if row in pool.model:
            pool.drop(row)
        else:
            pool.put(row, [1_000 * number + k for k in range(size)])
        pool.check()


@pytest.mark.parametrize("sizes", [[3], [3, 5], [1, 2, 3, 40], [33, 64, 100], [1, 65, 200]])
def test_turnover_does_not_grow_the_pool(sizes):
    """Rows of some lengths come and go: at most as many runs of each length are made as rows had it at a time."""
    rng, pool = np.random.default_rng(1), Pool([max(sizes)] * 10)
    for _ in range(3_000):
        row = int(rng.integers(10))
        if row in pool.model:
            pool.drop(row)
        pool.put(row, range(int(rng.choice(sizes))))
    assert pool.room[END] <= 10 * (2 * sum(sizes) + max(sizes))


def test_rows_are_compared():
    pool = Pool()
    for row, values in enumerate([[1, 2], [3], [], [4, 5, 6]]):
        pool.put(row, values)
    source, given = np.array([[0, 2], [2, 4], [4, 4], [4, 7]], np.int32), np.array([1, 2, 3, 4, 4, 5, 7])
    changed = np.zeros(4, np.bool_)
    compare_runs(source, given.astype(np.int32), pool.runs, pool.values, np.arange(4), changed)
    assert changed.tolist() == [False, True, False, True]  # another length, another value
