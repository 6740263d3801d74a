"""States: what each micro-batch sees, in a file that is on disk before anything is delivered.

===================  ================================================================================================
``states/``          a JSON file for each micro-batch: see :class:`State`
``ready.json``       the version that the next micro-batch starts with, and the last micro-batch it contains
===================  ================================================================================================
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

from nearcast.spark.live.message_store import Snapshot
from nearcast.storage.atomic import write_durably

__all__ = ["State", "States"]


class State(NamedTuple):
    """What a micro-batch sees."""

    version: str  # the name of a directory
    upto: int  # the last micro-batch whose changes are in the version
    deltas: tuple[int, ...]  # the later micro-batches that changed subscriptions
    now: int  # microseconds
    valid: Snapshot  # the messages of earlier micro-batches


class States:
    """The states of the micro-batches that may be repeated, and the version that the next one starts with."""

    def __init__(self, home: Path) -> None:
        self._home = home / "states"
        self._ready = home / "ready.json"
        self._home.mkdir(parents=True, exist_ok=True)

    def numbers(self) -> list[int]:
        """Return the numbers of the micro-batches that have a state, in ascending order."""
        return sorted(int(file.stem) for file in self._home.glob("*.json"))

    def read(self, number: int) -> State | None:
        """Return the state of a micro-batch, if it was tried before."""
        try:
            written = json.loads((self._home / f"{number:012}.json").read_bytes())
        except FileNotFoundError:
            return None
        valid = Snapshot(tuple(written["valid"]), written["dropped"])
        return State(written["version"], written["upto"], tuple(written["deltas"]), written["now"], valid)

    def write(self, number: int, state: State) -> State:
        """Write the state of a micro-batch, and return it. Everything that it names must be on disk already."""
        written = state._asdict() | {"valid": state.valid.segments, "dropped": state.valid.dropped}
        _write_json(self._home / f"{number:012}.json", written)
        return state

    def forget(self, before: int) -> None:
        """Remove the states of micro-batches before this one, which will not be repeated."""
        for number in self.numbers():
            if number < before:
                (self._home / f"{number:012}.json").unlink()

    def set_next_version(self, version: str, upto: int) -> None:
        """Let the next micro-batch start with this version, which has the changes of micro-batches up to *upto*."""
        _write_json(self._ready, {"version": version, "upto": upto})

    def next_version(self, last: State) -> tuple[str, int]:
        """Return the version that a micro-batch after *last* starts with, and the last micro-batch it contains."""
        try:
            ready = json.loads(self._ready.read_bytes())
        except FileNotFoundError:
            return last.version, last.upto
        if ready["upto"] < last.upto:
            return last.version, last.upto
        return ready["version"], ready["upto"]

    def versions(self) -> set[str]:
        """Return the names of the versions that a state or the next micro-batch needs."""
        states = [state for number in self.numbers() if (state := self.read(number)) is not None]
        return {state.version for state in states} | {self.next_version(state)[0] for state in states}


def _write_json(path: Path, document: dict[str, Any]) -> None:
    with write_durably(path) as file:
        file.write(json.dumps(document).encode())
