"""Tables and batches of thousands of rows, drawn by NumPy: frequent and rare words, points and areas."""

import numpy as np

from nearcast import MessageBatch, SubscriptionTable
from strategies import ragged


def random_table(rng, n, words=200):
    rows = [rng.zipf(1.4, rng.integers(0, 6)) % words for _ in range(n)]
    low = rng.random((n, 2))
    return SubscriptionTable.from_arrays(
        np.hstack([low, low + rng.choice([0, 0.01, 0.3], (n, 2))]),
        *ragged([set(row.tolist()) for row in rows]),
    )


def random_batch(rng, n, most, words=200):
    rows = [set((rng.zipf(1.4, rng.integers(0, most)) % words).tolist()) for _ in range(n)]
    low = rng.random((n, 2))
    return MessageBatch.from_arrays(
        None, *ragged(rows), boxes=np.hstack([low, low + rng.choice([0, 0.1], (n, 2))])
    )
