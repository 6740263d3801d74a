"""How tests ask an index: what it found for each message, and that it found nothing twice."""

import numpy as np


def answers(index, batch, **options):
    """Return the set of subscription rows that each message of a batch matches."""
    found = index.match(batch, **options)
    rows = [set(group.tolist()) for group in found]
    assert sum(map(len, rows)) == len(found.rows), "a subscription was found twice"
    return rows


def dense(batch, width=None):
    """Return the attribute values of a batch as a matrix, NaN where absent."""
    p = batch.probes
    if width is None:
        width = int(p.value_attributes.max(initial=-1)) + 1
    matrix = np.full((len(p.boxes), width), np.nan)
    matrix[np.repeat(np.arange(len(p.boxes)), np.diff(p.value_offsets)), p.value_attributes] = p.values
    return matrix


def offsets(runs):
    """Return where the rows of a ragged column begin, in which they lie one after the other."""
    return np.append(0, runs[:, 1])
