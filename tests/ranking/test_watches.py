"""Which buffers to look at when a message leaves the window."""

import numpy as np

from nearcast.ranking.watches import NOTHING, Watches

ROWS = 200


def test_who_watches_a_message_is_told_once_when_it_leaves():
    watches, rng = Watches(), np.random.default_rng(0)
    watched: dict[int, int] = {}
    begin = 0
    for end in range(30, 9_000, 3):
        rows = rng.permutation(ROWS)[:40].astype(np.int32)
        messages = rng.integers(begin - 8, end, 40)
        messages[messages < begin] = NOTHING
        watches.watch(rows, messages)
        watched |= {row: at for row, at in zip(rows.tolist(), messages.tolist()) if at != NOTHING}
        gone = rng.permutation(ROWS)[:3].astype(np.int32)
        watches.forget(gone)
        for row in gone.tolist():
            watched.pop(row, None)
        if end % 100 == 0:  # every third message was withdrawn, and the others are numbered anew
            numbers = np.full(end - begin, -1)
            there = np.flatnonzero(np.arange(end - begin) % 3)
            numbers[there] = np.arange(end - len(there), end)
            watches.renumber(begin, numbers)
            later = {i: numbers[i:][numbers[i:] >= 0] for i in range(len(numbers))}
            watched = {
                row: int(later[at - begin][0]) for row, at in watched.items() if len(later[at - begin])
            }
            begin = end - len(there)
        until = max(begin, end - 24)
        told = watches.pop(until).tolist()
        assert sorted(told) == sorted(row for row, at in watched.items() if at < until)
        watched = {row: at for row, at in watched.items() if at >= until}
        begin = until
    assert watches.nbytes < 20_000  # of the last messages, and of 1,000 that have left; not of 9,000


def test_they_go_on_where_they_were():
    watches = Watches()
    watches.watch(np.arange(6, dtype=np.int32), np.array([3, 4, 3, NOTHING, 9, 4]))
    assert sorted(watches.pop(4)) == [0, 2]
    other = Watches()
    other.restore({name: array.copy() for name, array in watches.at_rest().items()})
    for one in (watches, other):
        one.watch(np.array([1, 0], np.int32), np.array([9, 5]))
        assert one.pop(5).tolist() == [5]
        assert sorted(one.pop(10)) == [0, 1, 4]
