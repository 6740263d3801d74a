"""Which buffers hold a message."""

import numpy as np

from nearcast.ranking.holders import Holders


def test_holders_are_those_of_arrival_and_those_of_evaluations():
    holders = Holders()
    rng = np.random.default_rng(0)
    held: dict[int, list[int]] = {}
    begin = 0
    for number in range(0, 12_000, 4):
        counts = rng.integers(0, 50, 4)
        rows = rng.integers(0, 1000, counts.sum()).astype(np.int32)
        offsets = np.concatenate([[0], np.cumsum(counts)])
        holders.note_arrivals(offsets, rows)
        for i in range(4):
            held[number + i] = rows[offsets[i] : offsets[i + 1]].tolist()
        found, rows = rng.integers(begin, number + 4, 30), rng.integers(0, 1000, 30).astype(np.int32)
        holders.note_evaluations(found, rows)
        for message, row in zip(found.tolist(), rows.tolist()):
            held[message].append(row)
        end = max(begin, number - 80) if number % 3 else begin
        messages, rows = holders.pop(begin, end)
        for message in range(begin, end):
            assert sorted(rows[messages == message].tolist()) == sorted(held.pop(message))
        assert set(messages.tolist()) <= set(range(begin, end))
        begin = end
    # Some 90 messages are there, and up to 1,100 that have left, with 25 rows each; not 12,000.
    assert holders.nbytes < 300_000
