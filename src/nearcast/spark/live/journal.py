"""The journal of a live query: what each micro-batch sees is decided here, without Spark, and written down.

A micro-batch begins with the version that is ready, the deltas since, and its own changes. When it is finished, what no
micro-batch will need again is removed. That is found by comparing states, not by listing files: what a micro-batch
costs here does not grow with the number of those before it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import pyarrow as pa

from nearcast import config
from nearcast.spark.live.deltas import Deltas, Version
from nearcast.spark.live.records import digest_of
from nearcast.spark.live.states import Run, Snapshot, State, States, segment_name
from nearcast.storage.places import Place

__all__ = ["Journal", "References"]


class References(NamedTuple):
    """What micro-batches name, beside deltas."""

    versions: set[str]
    segments: set[str]  # of valid messages


class Journal:
    """The states and deltas in a home; *open_version* opens a version by its name."""

    def __init__(self, home: Place, open_version: Callable[[str], Version]) -> None:
        self.states, self.deltas = States(home), Deltas(home)
        self._home, self._open = home, open_version
        self._runs: set[str] = set()  # those that have begun a micro-batch

    def start(self, version: str) -> None:
        """Write the state before the first micro-batch, unless there is one."""
        nobody = State(-1, None, "", version, -1, (), None, None, 0, Snapshot((), 0, adding=False), 0, None)
        if not self.states.create(nobody):
            self.states.refresh()

    def begin(
        self,
        number: int,
        records: pa.Table,
        run: Run,
        clock: Callable[[], int],
        valid_after: Callable[[State, int], Snapshot],
    ) -> State:
        """Return what a micro-batch sees; decide it at the first attempt.

        *valid_after* returns the valid messages that it sees, from the state of the last one and the time. Raise
        StorageError if the home is that of another query, or if another driver works on it.
        """
        first = run.run not in self._runs
        if first:
            self.states.refresh()
        self.states.check_owner(run)
        digest = digest_of(records)
        state = self.states.read(number)
        if state is None:
            decided = self._decide(number, records, run, digest, clock, valid_after)
            if self.states.create(decided):
                state = decided
            else:
                self.states.refresh()
                self.states.check_owner(run)
                state, first = self.states.read(number), False
        assert state is not None
        self.states.check_repeat(state, run, digest, first)
        self._runs.add(run.run)
        return state

    def _decide(
        self,
        number: int,
        records: pa.Table,
        run: Run,
        digest: str,
        clock: Callable[[], int],
        valid_after: Callable[[State, int], Snapshot],
    ) -> State:
        """Apply the records to what the last micro-batch left."""
        last = self.states.check_next(number)
        now = max(last.now, clock())
        version, upto, gone = self.states.next_version(last)
        applied = self.deltas.apply(
            records,
            number,
            self._open(version),
            upto=upto,
            deltas=[delta for delta in last.deltas if delta.last > upto],
            gone=gone,
            now=now,
            refused=last.refused,
            refusals=last.refusals,
        )
        valid = valid_after(last, now)
        return State(
            number,
            run,
            digest,
            version,
            upto,
            applied.deltas,
            applied.before,
            gone,
            now,
            valid,
            applied.refused,
            applied.refusals,
        )

    def finish(self, number: int) -> References:
        """Remove what no micro-batch will need again: this one may be repeated, those before the last will not.

        Return versions and segments of valid messages that are not needed either.
        """
        old = self.states.forget(number - 1)
        kept = list(self.states)
        needed = set().union(*(state.files() for state in kept))
        self.deltas.remove(set().union(*(state.files() for state in old)) - needed)
        still = self.needed()
        return References({state.version for state in old} - still.versions, _segments(old) - still.segments)

    def needed(self) -> References:
        """Return the versions and segments that a micro-batch may need."""
        states = list(self.states)
        versions = {state.version for state in states} | {
            self.states.next_version(state)[0] for state in states
        }
        return References(versions, _segments(states))

    def sweep(self, before: float) -> None:
        """Remove what interrupted drivers have left, if it was written before a time."""
        named = set().union(*(state.files() for state in self.states))
        ready = [self.states.next_version(state)[2] for state in self.states]
        named |= {f"gone/{file.name}" for file in ready if file is not None}
        self.deltas.sweep(named, before)

    def is_grown(self, state: State, subscriptions: int) -> bool:
        """Tell whether a new version is due: the deltas are large in comparison with the version, or too many."""
        if self.states.next_version(state)[:2] != (state.version, state.upto):
            return False  # it is there already
        rows = sum(delta.rows for delta in state.deltas)
        return (
            rows > max(config.LIVE_DELTA_ROWS, config.LIVE_DELTA_SHARE * subscriptions)
            or len(state.deltas) > config.LIVE_DELTA_FILES
            or (bool(state.deltas) and state.deltas[-1].last - state.upto > config.LIVE_DELTA_BATCHES)
        )


def _segments(states: list[State]) -> set[str]:
    """Return the segments that states name, and those that their micro-batches add."""
    added = {segment_name(state.number) for state in states if state.valid.adding}
    return added | {name for state in states for name in state.valid.segments}
