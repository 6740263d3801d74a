"""What micro-batches see, written down: a file for each, which is on disk before anything is delivered.

===================  ================================================================================================
``states/``          a JSON file for each micro-batch: see :class:`State`
``ready.json``       the version that the next micro-batch begins with, and the last one whose changes it has
===================  ================================================================================================
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

from nearcast.spark.live.valid import Seen
from nearcast.storage.atomic import write_durably

__all__ = ["State", "States"]


class State(NamedTuple):
    """What a micro-batch sees."""

    version: str  # the name of a directory
    upto: int  # the last micro-batch whose changes are in the version
    deltas: tuple[int, ...]  # micro-batches with changes since
    now: int  # microseconds
    valid: Seen  # messages from before


class States:
    """The states of the micro-batches that may come again, and what the next one begins with."""

    def __init__(self, home: Path) -> None:
        self._home = home / "states"
        self._ready = home / "ready.json"
        self._home.mkdir(parents=True, exist_ok=True)

    def numbers(self) -> list[int]:
        """Return the micro-batches that have a state, in their order."""
        return sorted(int(file.stem) for file in self._home.glob("*.json"))

    def read(self, number: int) -> State | None:
        """Return the state of a micro-batch, if it was tried before."""
        try:
            written = json.loads((self._home / f"{number:012}.json").read_bytes())
        except FileNotFoundError:
            return None
        valid = Seen(tuple(written["valid"]), written["dropped"])
        return State(written["version"], written["upto"], tuple(written["deltas"]), written["now"], valid)

    def keep(self, number: int, state: State) -> State:
        """Write down what a micro-batch sees. Everything that it names is on disk."""
        written = state._asdict() | {"valid": state.valid.segments, "dropped": state.valid.dropped}
        _write(self._home / f"{number:012}.json", written)
        return state

    def forget(self, before: int) -> None:
        """Remove the states of micro-batches that will not come again."""
        for number in self.numbers():
            if number < before:
                (self._home / f"{number:012}.json").unlink()

    def begin_with(self, version: str, upto: int) -> None:
        """Let the next micro-batch begin with another version, which has the changes up to *upto*."""
        _write(self._ready, {"version": version, "upto": upto})

    def beginning(self, last: State) -> tuple[str, int]:
        """Return the version that a micro-batch after *last* begins with, and the last one whose changes it has."""
        try:
            ready = json.loads(self._ready.read_bytes())
        except FileNotFoundError:
            return last.version, last.upto
        if ready["upto"] < last.upto:
            return last.version, last.upto
        return ready["version"], ready["upto"]

    def versions(self) -> set[str]:
        """Return the versions that a state or the next micro-batch needs."""
        states = [state for number in self.numbers() if (state := self.read(number)) is not None]
        return {state.version for state in states} | {self.beginning(state)[0] for state in states}


def _write(path: Path, document: dict[str, Any]) -> None:
    with write_durably(path) as file:
        file.write(json.dumps(document).encode())
