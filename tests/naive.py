"""The specification of matching, slow and obvious: plain Python over value types, nothing shared with the package.

``wants`` says it for objects, ``match`` for columns of codes. Every index must give these answers on any input.
"""

import math

import numpy as np

from naive_places import touches
from nearcast.geometry import EVERYWHERE, Box, Point

LOW_OPEN, HIGH_OPEN, NEGATED = 1, 2, 4


def wants(subscription, message):
    """Does the message match the subscription? By the expression itself, not by its normal form."""
    words = subscription.expression.matches(message.keywords, message.attributes)
    return words and touches(subscription.region, message.place)


def match(table, batch):
    """Return the set of subscription rows that each message of a batch matches, from the columns."""
    found = [set() for _ in range(batch.size)]
    for probe, message in enumerate(batch.owners.tolist()):
        for clause, subscription in enumerate(table.owners.tolist()):
            if satisfies(table, clause, batch, probe):
                found[message].add(subscription)
    return found


def satisfies(table, clause, batch, probe):
    """Does one probe row satisfy one clause row?"""
    c, p = table.clauses, batch.probes
    have = set(row(p.keyword_offsets, p.keywords, probe))
    return (
        set(run(c.keyword_runs, c.keywords, clause)) <= have
        and not set(run(c.forbidden_runs, c.forbidden, clause)) & have
        and all(holds(test, values(p, probe)) for test in tests(c, clause))
        and boxes_touch(c.boxes[clause].tolist(), p.boxes[probe].tolist())
        and shapes_touch(table, clause, batch, probe)
    )


def row(offsets, values, i):
    return values[offsets[i] : offsets[i + 1]].tolist()


def run(runs, values, i):
    return values[runs[i, 0] : runs[i, 1]].tolist()


def tests(c, clause):
    columns = (c.test_attributes, c.test_lows, c.test_highs, c.test_flags)
    return list(zip(*(run(c.test_runs, column, clause) for column in columns)))


def values(p, probe):
    return dict(zip(*(row(p.value_offsets, column, probe) for column in (p.value_attributes, p.values))))


def holds(test, attributes):
    attribute, low, high, flags = test
    if attribute not in attributes:
        return False
    value = attributes[attribute]
    above = low < value if flags & LOW_OPEN else low <= value
    below = value < high if flags & HIGH_OPEN else value <= high
    return not (above and below) if flags & NEGATED else above and below


def boxes_touch(a, b):
    return max(a[0], b[0]) <= min(a[2], b[2]) and max(a[1], b[1]) <= min(a[3], b[3])


def shapes_touch(table, clause, batch, probe):
    ours = table.shapes.region(clause, table.space)
    theirs = batch.shapes.region(probe, batch.space)
    if ours is None and theirs is None:
        return True
    ours = ours or place(table.clauses.boxes[table.owners == table.owners[clause]], table.space)
    theirs = theirs or place(batch.probes.boxes[batch.owners == batch.owners[probe]], batch.space)
    return touches(ours, theirs)


def place(boxes, space):
    """Return the point or region that the boxes of one owner are; each clause brings the same boxes again."""
    boxes = np.unique(boxes, axis=0).tolist()
    (x, y, x2, y2), *more = boxes
    if not more and (x, y) == (x2, y2):
        return Point(x=x, y=y, space=space)
    if not more:
        return EVERYWHERE if math.isinf(x) else Box(x, y, x2, y2, space)
    (west,) = (box for box in boxes if box[2] == 180)  # two boxes meet at the antimeridian
    (east,) = (box for box in boxes if box[0] == -180)
    if east[2] == -180:  # only the other name of the meridian
        return Box(*west, space)
    return Box(*east, space) if west[0] == 180 else Box(west[0], y, east[2], y2, space)
