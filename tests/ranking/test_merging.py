"""Segments that are merged step by step hold what one that is built at once holds."""

import itertools

import numpy as np
import pytest

from nearcast import CountWindow, MessageBatch, Planar, TopK
from nearcast.ranking.curve import Cube
from nearcast.ranking.merging import Merge, segment_of
from nearcast.ranking.windows import MessageTable

MESSAGES = 4_000
CUBE = Cube(np.zeros(3), 0.5)


def table(rng):
    counts = rng.integers(0, 7, MESSAGES)  # some have no words: they were withdrawn
    stops = np.cumsum(counts)
    words = (rng.zipf(1.2, stops[-1]) % 500).astype(np.int32)
    return MessageTable(rng.random((MESSAGES, 3)), 1 + rng.random(MESSAGES), stops - counts, stops, words, 10)


def postings(segment):
    """The postings of each word, sorted; every one lies in the box of its block."""
    found = {}
    for i, word in enumerate(segment.words.tolist()):
        mine = found.setdefault(word, [])
        for block in range(segment.lists[i], segment.lists[i + 1]):
            here = slice(segment.starts[block], segment.starts[block + 1])
            assert 0 < len(segment.numbers[here]) <= 64
            places = segment.places[:, here]
            np.testing.assert_array_equal(segment.boxes[:3, block], places.min(axis=1))
            np.testing.assert_array_equal(segment.boxes[3:, block], places.max(axis=1))
            assert segment.heaviest[block] == segment.weights[here].max()
            mine += zip(segment.numbers[here].tolist(), *places.tolist(), segment.weights[here].tolist())
    return {word: sorted(mine) for word, mine in found.items()}


@pytest.mark.parametrize("step", [1, 300, 10**9])
@pytest.mark.parametrize("cuts", [[10, 1000, 1010, 2000, 4010], [10, 4010], [10, 11, 2000, 4010]], ids=len)
def test_merged_is_built(step, cuts):
    messages = table(np.random.default_rng(0))
    whole = segment_of(messages, 10, 10 + MESSAGES, 0.5, CUBE)
    parts = [segment_of(messages, begin, end, 0.5, CUBE) for begin, end in itertools.pairwise(cuts)]
    merge = Merge(parts, CUBE)
    steps = 1
    while (merged := merge.step(step)) is None:
        steps += 1
    assert (merged.begin, merged.end) == (whole.begin, whole.end)
    assert steps == 2 if step == 10**9 else steps > 20
    np.testing.assert_array_equal(merged.words, whole.words)
    np.testing.assert_array_equal(merged.slots, whole.slots)
    np.testing.assert_array_equal(merged.lists, whole.lists)
    np.testing.assert_array_equal(merged.starts, whole.starts)
    np.testing.assert_array_equal(merged.places, whole.places)  # along the same curve
    assert postings(merged) == postings(whole)
    assert [array.flags.c_contiguous for array in merged[2:]] == [True] * 10


@pytest.mark.parametrize("most", [1_000, 10_000, None], ids=str)
def test_segments_are_few_whatever_the_size_of_calls(most):
    """Each costs every query about as much as the others, however small it is."""
    rng, plane = np.random.default_rng(0), Planar(0, 0, 1, 1)
    top, published, found = TopK(CountWindow(100_000), space=plane), 0, []
    while published < 300_000:
        count = most or int(rng.integers(1, 3_000))
        words = rng.integers(0, 50, count)
        top.publish(
            MessageBatch.from_arrays(rng.random((count, 2)), np.arange(count + 1), words, space=plane)
        )
        published += count
        found.append(top.stats()["segments"])
    assert max(found) <= 24
