"""A random life of an index: inserts, removals, moves, updates, save and open, compared with the naive matcher."""

import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

import naive
from answers import answers
from nearcast import MessageBatch, Subscription, SubscriptionTable, build_index, config, open_index
from nearcast.matching import INDEXES
from profiles import without_rivals
from strategies import areas, messages, subscriptions


class MatcherMachine(RuleBasedStateMachine):
    """The model is a dict from row to Subscription."""

    name = ""

    def __init__(self):
        super().__init__()
        self.index = build_index(self.name, SubscriptionTable.from_subscriptions([]))
        self.model = {}

    @rule(subs=st.lists(subscriptions(), max_size=4))
    def insert(self, subs):
        table = SubscriptionTable.from_subscriptions(
            [Subscription(i, sub.expression, sub.region) for i, sub in enumerate(subs)], like=self.index.table
        )
        self.model.update(zip(self.index.insert(table).tolist(), subs))

    @rule(data=st.data())
    def remove(self, data):
        rows = data.draw(st.sets(st.sampled_from(sorted(self.model))) if self.model else st.just(set()))
        self.index.remove(sorted(rows))
        for row in rows:
            del self.model[row]

    @rule(data=st.data(), region=areas())
    def move(self, data, region):
        if self.model:
            row = data.draw(st.sampled_from(sorted(self.model)))
            self.index.move(row, region)
            self.model[row] = Subscription(0, self.model[row].expression, region)

    @rule(data=st.data())
    def update(self, data):
        """Some become others, some ask for the same elsewhere."""
        rows = data.draw(
            st.sets(st.sampled_from(sorted(self.model)), max_size=3) if self.model else st.just(())
        )
        subs = []
        for row in rows:
            sub, same = data.draw(subscriptions()), data.draw(st.booleans())
            subs.append(Subscription(0, self.model[row].expression if same else sub.expression, sub.region))
        self.index.update(list(rows), SubscriptionTable.from_subscriptions(subs, like=self.index.table))
        self.model.update(zip(rows, subs))

    @rule()
    def save_and_open(self):
        with tempfile.TemporaryDirectory() as directory:
            self.index = open_index(self.index.save(Path(directory) / "index"), verify=True)

    @rule(msgs=st.lists(messages(), min_size=1, max_size=3))
    def match(self, msgs):
        batch = MessageBatch.from_messages(msgs, like=self.index.table)
        expected = [{row for row, sub in self.model.items() if naive.wants(sub, msg)} for msg in msgs]
        assert answers(self.index, batch) == expected

    @invariant()
    def sound(self):
        assert self.index.check() == []
        assert len(self.index) == len(self.model)


@pytest.mark.parametrize("name", without_rivals(INDEXES))
def test_machine(name, monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda file: None)  # many saves, none of which has to survive
    monkeypatch.setattr(config, "COMPACT_MIN_DEAD", 3)  # so that compaction happens all the time,
    for often in (
        "AUTO_SCAN",
        "AUTO_VALUES_NS",
        "MO_TREE_FIRST",
        "FOLD_MIN",
    ):  # and choosing anew, and folding
        monkeypatch.setattr(config, often, 4)
    machine = type("Machine", (MatcherMachine,), {"name": name})
    run_state_machine_as_test(machine, settings=settings(max_examples=settings().max_examples // 4))
