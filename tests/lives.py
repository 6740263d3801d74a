"""Moving indexes beside a model of them, by the specification."""

from dataclasses import replace

import numpy as np

import naive
from nearcast import MovingIndex, build_index


class Model:
    """Subscriptions and messages by row, and who reaches what, by the specification."""

    def __init__(self):
        self.subs, self.messages = {}, {}

    def reached(self, row, now):
        """Return the rows of the valid messages that a subscription reaches."""
        return {
            key
            for key, (batch, expires) in self.messages.items()
            if (now is None or expires > now) and naive.match(self.subs[row], batch)[0]
        }

    def reached_by_all(self, now):
        return {row: self.reached(row, now) for row in self.subs}


class Lives:
    """A moving index beside its model: every verb is done to both, and every difference is accounted for."""

    def __init__(self, name, table, **parameters):
        self.live = MovingIndex(name, table, **parameters)
        self.model = Model()
        self.model.subs = {row: table.take([row]) for row in range(table.size)}

    def publish(self, batch, now):
        found = self.live.publish(batch, now)
        rows = self.live.published.tolist()
        for number, row in enumerate(rows):
            one = batch.take([number])
            wanted = {sub for sub, table in self.model.subs.items() if naive.match(table, one)[0]}
            assert set(found[number].tolist()) == wanted
            assert len(found[number]) == len(wanted)
            if row >= 0:
                self.model.messages[row] = (one, int(one.expires_at[0]))
        self.forget_expired(now)

    def forget_expired(self, now):
        """Rows of expired messages may be given out again, so the model forgets them too."""
        if now is not None:
            kept = {key: value for key, value in self.model.messages.items() if value[1] > now}
            self.model.messages = kept

    def tell(self, rows, changes, before, now):
        """Apply the differences to what was reached; the result is what is reached."""
        for number, row in enumerate(rows):
            came, went = changes.came[number].tolist(), changes.went[number].tolist()
            assert len(came) == len(set(came))
            assert len(went) == len(set(went))
            assert not set(came) & before[row]
            assert set(went) <= before[row]
            assert before[row] - set(went) | set(came) == self.model.reached(row, now)

    def move(self, rows, regions, now):
        before = self.model.reached_by_all(now)
        tables = self.moved(rows, regions)
        changes = self.live.move(rows, regions, now)
        self.model.subs |= dict(zip(rows, tables))
        self.tell(rows, changes, before, now)

    def moved(self, rows, regions):
        """Return the tables of moved subscriptions, by way of an index of their own."""
        moved = []
        for row, region in zip(rows, regions):
            index = build_index("scan", self.model.subs[row])
            index.move(0, region)
            moved.append(index.table)
        return moved

    def update(self, rows, table, now):
        before = self.model.reached_by_all(now)
        changes = self.live.update(rows, table, now)
        self.model.subs |= {row: table.take([number]) for number, row in enumerate(rows)}
        self.tell(rows, changes, before, now)

    def insert(self, table, now):
        rows, found = self.live.insert(table, now)
        for number, row in enumerate(rows.tolist()):
            assert row not in self.model.subs
            self.model.subs[row] = table.take([number])
            assert set(found[number].tolist()) == self.model.reached(row, now)

    def remove(self, rows):
        self.live.remove(rows)
        for row in rows:
            del self.model.subs[row]


def with_ends(batch, ends):
    return replace(batch, expires_at=np.array(ends, np.int64))
