"""Which buffers hold a message."""

import numpy as np

from nearcast.ranking.holders import Holders


def test_nodes_of_messages_that_left_are_used_again():
    holders = Holders()
    rng = np.random.default_rng(0)
    held: dict[int, list[int]] = {}
    begin = 0
    for number in range(400):
        rows = rng.integers(0, 1000, 100).astype(np.int32)
        holders.note(np.full(100, number), rows)
        held[number] = sorted(rows.tolist())
        if number >= 20:
            messages, rows = holders.taken(begin, begin + 1)
            assert set(messages.tolist()) == {begin}
            assert sorted(rows.tolist()) == held.pop(begin)
            begin += 1
    # 8 bytes for each of 2,100 nodes in lists and of 400 messages, and half as much room to grow; not 40,000 nodes.
    assert holders.nbytes < 1.6 * 8 * (2_100 + 400)
