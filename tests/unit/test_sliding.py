"""Arrays that are forgotten from their beginning."""

import copy
import sys

import numpy as np
import pytest

from nearcast import config
from nearcast.columns.sliding import SlidingArray


def test_a_short_array_forgets_nothing():
    column = SlidingArray(np.arange(10))
    column.extend(np.arange(10, 20))
    assert not column.forget(5)
    assert column.values.tolist() == list(range(20))


@pytest.mark.skipif(sys.platform != "linux", reason="memory is given back on Linux only")
def test_a_long_array_gives_back_what_is_forgotten_and_keeps_the_rest():
    column, row = SlidingArray(np.empty(0, np.int64)), 8
    for begin in range(0, 4_000_000, 10_000):
        column.extend(np.arange(begin, begin + 10_000))
        gone = max(0, begin - 100_000)
        assert column.forget(gone) or begin * row < config.SLIDING_FROM_BYTES
        assert column.values[gone:].tolist()[:5] == list(range(gone, gone + 5))
        assert column.values[-1] == begin + 9_999
    assert column.nbytes < 110_000 * row + 2 * config.SLIDING_STEP
    assert copy.deepcopy(column).values[-5:].tolist() == column.values[-5:].tolist()
