"""A random life of a message store: inserts, removals, time, sweeps, questions, compared with the naive matcher."""

import os
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

import naive
from answers import answers
from nearcast import MessageBatch, SubscriptionTable, build_store, config, open_store
from nearcast.columns import NEVER
from nearcast.columns.coding import Coding
from nearcast.matching import STORES
from profiles import without_rivals
from strategies import messages, subscriptions


class StoreMachine(RuleBasedStateMachine):
    """The model is a dict from row to (Message, when it expires)."""

    name = ""

    def __init__(self):
        super().__init__()
        self.store = build_store(self.name, MessageBatch.from_messages([], like=Coding.new()))
        self.model = {}
        self.now = 0
        self.most = 0

    @rule(msgs=st.lists(st.tuples(messages(), st.sampled_from([-1, 0, 1, 2, 5, None])), max_size=4))
    def insert(self, msgs):
        batch = MessageBatch.from_messages([msg for msg, _ in msgs], like=self.store, learn=True)
        ends = [NEVER if life is None else self.now + life for _, life in msgs]
        rows = self.store.insert(replace(batch, expires_at=np.array(ends, np.int64))).tolist()
        assert not set(rows) & set(self.model)
        self.model.update(zip(rows, zip([msg for msg, _ in msgs], ends)))
        self.most = max(self.most, len(self.model))

    @rule(data=st.data())
    def remove(self, data):
        rows = data.draw(st.sets(st.sampled_from(sorted(self.model))) if self.model else st.just(set()))
        self.store.remove(sorted(rows))
        for row in rows:
            del self.model[row]

    @rule(step=st.integers(1, 3))
    def time_passes(self, step):
        self.now += step

    @rule()
    def expire(self):
        expected = sorted(row for row, (_, end) in self.model.items() if end <= self.now)
        assert self.store.expire(self.now).tolist() == expected
        self.forget(expected)

    @rule(limit=st.integers(0, 6))
    def sweep(self, limit):
        rows = self.store.sweep(self.now, limit).tolist()
        assert rows == sorted(rows)
        assert len(rows) <= limit
        self.forget(rows)

    @rule()
    def save_and_open(self):
        with TemporaryDirectory() as directory:
            self.store = open_store(self.store.save(Path(directory) / "store"), verify=True)

    def forget(self, rows):
        for row in rows:
            assert self.model.pop(row)[1] <= self.now

    @rule(subs=st.lists(subscriptions(), min_size=1, max_size=3), timed=st.booleans())
    def match(self, subs, timed):
        table = SubscriptionTable.from_subscriptions(subs, like=self.store)
        expected = [
            {
                row
                for row, (msg, end) in self.model.items()
                if naive.wants(sub, msg) and not (timed and end <= self.now)
            }
            for sub in subs
        ]
        assert answers(self.store, table, now=self.now if timed else None) == expected
        if timed:  # expired ones that were met are gone, and nothing else is
            present = self.store.rows.present
            self.forget([row for row in self.model if not present[row]])

    @invariant()
    def sound(self):
        assert self.store.check() == []
        assert len(self.store) == len(self.model)
        assert self.store.rows.size == self.most


@pytest.mark.parametrize("name", without_rivals(STORES))
def test_machine(name, monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda file: None)  # many saves, none of which has to survive
    monkeypatch.setattr(config, "COMPACT_MIN_DEAD", 3)  # so that compaction happens all the time
    machine = type("Machine", (StoreMachine,), {"name": name})
    run_state_machine_as_test(machine, settings=settings(max_examples=settings().max_examples // 4))
