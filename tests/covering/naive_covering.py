"""The specification of covering, slow and obvious: plain Python on the columns of a table, boxes only."""

import math

from naive import HIGH_OPEN, LOW_OPEN, NEGATED, run, tests


def covers(table, a, b):
    """Does subscription row *a* of a table cover row *b*? Each clause of b is covered by one of a."""
    mine = [i for i, owner in enumerate(table.owners.tolist()) if owner == a]
    others = [i for i, owner in enumerate(table.owners.tolist()) if owner == b]
    return all(any(clause_covers(table.clauses, i, j) for i in mine) for j in others)


def clause_covers(c, a, b):
    west, south, east, north = c.boxes[a].tolist()
    xmin, ymin, xmax, ymax = c.boxes[b].tolist()
    return (
        west <= xmin
        and south <= ymin
        and east >= xmax
        and north >= ymax
        and set(run(c.keyword_runs, c.keywords, a)) <= set(run(c.keyword_runs, c.keywords, b))
        and set(run(c.forbidden_runs, c.forbidden, a)) <= set(run(c.forbidden_runs, c.forbidden, b))
        and all(
            any(one[0] == other[0] and follows(one, other) for other in tests(c, b)) for one in tests(c, a)
        )
    )


def ends(test):
    """The ends of an interval as pairs that order as the sets of values do: (0.5, 1) begins after 0.5."""
    _, low, high, flags = test
    return (low, 1 if flags & LOW_OPEN else 0), (high, 0 if flags & HIGH_OPEN else 1)


def follows(test, given):
    """Does a test hold for each value that satisfies the given one?"""
    (low, high), (its_low, its_high) = ends(test), ends(given)
    if test[3] & NEGATED and given[3] & NEGATED:
        return its_low <= low and its_high >= high
    if test[3] & NEGATED:  # it ends before, or begins after
        return its_high <= (low[0], low[1]) or its_low >= (high[0], high[1])
    if given[3] & NEGATED:
        return (low, high) == ((-math.inf, 0), (math.inf, 1))
    return low <= its_low and high >= its_high


class Forwarding:
    """What the graph must say, whatever k and whichever covers it chose (take_over aside).

    A subscription is forwarded from the first moment on at which nothing that is there covers it; of two that cover
    each other the older one covers.
    """

    def __init__(self, related, take_over=False):
        self.related = related  # (a, b) → does a cover b?
        self.take_over = take_over
        self.forwarded = {}  # by row, those that are there

    def covered(self, row):
        return any(
            self.related(other, row) and (other < row or not self.related(row, other))
            for other in self.forwarded
            if other != row
        )

    def subscribe(self, row):
        before = {one for one, state in self.forwarded.items() if state}
        self.forwarded[row] = True
        self.forwarded[row] = not self.covered(row)
        if self.take_over:
            self._settle()
        return self.forwarded[row], {one for one in before if not self.forwarded[one]}

    def unsubscribe(self, row):
        travels = self.forwarded.pop(row)
        hidden = {one for one, state in self.forwarded.items() if not state}
        for one in hidden:
            self.forwarded[one] = not self.covered(one)
        return travels, {one for one in hidden if self.forwarded[one]}

    def _settle(self):
        for one in self.forwarded:
            self.forwarded[one] = not self.covered(one)
