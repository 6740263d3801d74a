"""The deliveries that changing subscriptions should receive, micro-batch by micro-batch: a dict, a table, the scan."""

from collections import Counter

import pyarrow as pa
import pyarrow.compute as pc

from spark.worlds import in_process


class Observer:
    """Takes the changes and messages of one micro-batch after another; no two messages share an id."""

    def __init__(self, subscriptions):
        self.subscriptions = {row["id"]: row for row in subscriptions.to_pylist()}
        self.schema, self.valid = subscriptions.schema, None

    def step(self, records, messages, now):
        """Return the deliveries of a micro-batch that sees the time *now*: (message, subscription, reason)."""
        before = dict(self.subscriptions)
        reasons = {}  # the last change of each subscription
        for record in sorted(records, key=lambda record: record["changed_at"]):
            if self._apply(record):
                reasons[record["id"]] = record["change"]
        changed = sorted(reasons.keys() & self.subscriptions.keys())
        expected = Counter(
            (*pair, "publish") for pair in self._matched(messages, self.subscriptions.values())
        )
        if self.valid is not None:
            valid = _after(self.valid, now)
            late = self._matched(valid, [self.subscriptions[key] for key in changed])
            late -= self._matched(valid, [before[key] for key in changed if key in before])
            expected.update((message, key, reasons[key]) for message, key in late.elements())
        earlier = [] if self.valid is None else [self.valid]
        self.valid = _after(pa.concat_tables([*earlier, messages]), now)
        return expected

    def _apply(self, record):
        """Apply a record of change; return whether that was possible."""
        key, change = record["id"], record["change"]
        if change == "unsubscribe":
            self.subscriptions.pop(key, None)
        elif change != "move":
            self.subscriptions[key] = {name: record[name] for name in self.schema.names}
        elif key in self.subscriptions:
            wants = self.subscriptions[key]["expression"]
            self.subscriptions[key] = {name: record[name] for name in self.schema.names}
            self.subscriptions[key]["expression"] = wants
        else:
            return False
        return True

    def _matched(self, messages, subscriptions):
        if not subscriptions or not len(messages):
            return Counter()
        table = pa.Table.from_pylist(list(subscriptions), self.schema)
        return in_process(messages.drop(["expires_at"]), table)


def _after(messages, now):
    """Return the messages that expire, but after *now*."""
    return messages.filter(pc.greater(messages["expires_at"].cast(pa.int64()), now))
