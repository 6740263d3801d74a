"""States: what each micro-batch sees, in a file that is there before anything is delivered.

===================  ================================================================================================
``states/``          a JSON file for each micro-batch that may be repeated: see :class:`State`
``ready.json``       the version that the next micro-batch starts with, and the last micro-batch it contains
===================  ================================================================================================

A state is created exclusively, so of two drivers only one decides what a micro-batch sees. It says whose it is:

- the *query*: the id that Spark keeps in the checkpoint. It survives restarts, and another checkpoint has another one.
- the *run*: one start of the query. A state that exists already at a run's first micro-batch is that of a repeat; later
  it can only be that of a second driver.
- the *digest* of the records of change, which a repeat must have too.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import NamedTuple

from nearcast.errors import StorageError
from nearcast.spark.live.deltas import Delta, Tombstones
from nearcast.storage.places import Place

__all__ = ["Run", "Snapshot", "State", "States", "segment_name"]


class Snapshot(NamedTuple):
    """The valid messages that a micro-batch sees."""

    segments: tuple[str, ...]  # from the oldest to the newest
    dropped: int  # how many messages were dropped because of the limit since the beginning
    adding: bool  # whether the micro-batch adds its own messages when it is finished


def segment_name(number: int) -> str:
    """Return the name of the segment of valid messages that a micro-batch adds."""
    return f"{number:012}"


class Run(NamedTuple):
    """One start of a query."""

    query: str  # the id of the query
    checkpoint: str
    run: str  # unique


class State(NamedTuple):
    """What a micro-batch sees."""

    number: int  # of the micro-batch
    owner: Run | None  # None: no micro-batch has been processed yet
    digest: str  # of its records of change
    version: str  # a name in versions/
    upto: int  # the last micro-batch whose changes are in the version
    # The later changes, in ascending order; the last may be those of this micro-batch.
    deltas: tuple[Delta, ...]
    before: str | None  # the subscriptions that this micro-batch replaced
    gone: Tombstones | None  # the tombstones of ids that the version does not have any more
    now: int  # microseconds
    valid: Snapshot  # the messages of earlier micro-batches
    refused: int  # how many records could not be applied since the beginning
    refusals: str | None  # the last of them

    @property
    def changed(self) -> bool:
        """Whether this micro-batch changed subscriptions."""
        return bool(self.deltas) and self.deltas[-1].last == self.number

    def files(self) -> set[str]:
        """Return the files that the micro-batch needs, except those of the version and of valid messages."""
        deltas = {f"deltas/{delta.name}" for delta in self.deltas}
        gone = None if self.gone is None else self.gone.name
        others = {"before": self.before, "gone": gone, "refused": self.refusals}
        return deltas | {f"{part}/{name}" for part, name in others.items() if name is not None}


class States:
    """The states of the micro-batches that may be repeated, and the version that the next one starts with.

    What was read or written is remembered, so that nothing is listed while a query runs.
    """

    def __init__(self, home: Place) -> None:
        self._home, self._place = home, home / "states"
        self._known: dict[int, State] | None = None
        self._ready: tuple[str, int, Tombstones | None] | None = None

    def _all(self) -> dict[int, State]:
        """Return the states by number; the first call lists them."""
        if self._known is None:
            numbers = sorted(int(name.removesuffix(".json")) for name in self._place.children())
            found = ((number, self.read(number)) for number in numbers)
            self._known = {number: state for number, state in found if state is not None}
        return self._known

    def refresh(self) -> None:
        """Forget what was read: another process may have written since."""
        self._known = self._ready = None

    def __iter__(self) -> Iterator[State]:
        return iter(list(self._all().values()))

    @property
    def last(self) -> State | None:
        """The state of the last micro-batch that was started."""
        return max(self._all().values(), default=None, key=lambda state: state.number)

    def read(self, number: int) -> State | None:
        """Return the state of a micro-batch, if it was tried before."""
        try:
            return _read(self._place.read(_name(number)))
        except FileNotFoundError:
            return None

    def create(self, state: State) -> bool:
        """Write the state of a micro-batch, unless there is one; return whether this call wrote it.

        Everything that it names must be there already.
        """
        created = self._place.create(_name(state.number), _written(state))
        if created:
            self._all()[state.number] = state
        return created

    def forget(self, before: int) -> list[State]:
        """Remove the states of micro-batches before this one, which will not be repeated; return them."""
        known = self._all()
        old = [known.pop(number) for number in sorted(known) if number < before]
        if old:
            self._place.remove([_name(state.number) for state in old])
        return old

    # --- Whose it is -----------------------------------------------------------------------------------------------

    def check_owner(self, run: Run) -> None:
        """Raise if the states are those of another query."""
        last = self.last
        if last is None or last.owner is None or last.owner.query == run.query:
            return
        raise StorageError(
            f"{self._home} belongs to the query {last.owner.query} with the checkpoint {last.owner.checkpoint}, which "
            f"has started micro-batch {last.number}; this is the query {run.query} with the checkpoint "
            f"{run.checkpoint}. Continue with that checkpoint, or give this query a home of its own"
        )

    def check_repeat(self, state: State, run: Run, digest: str, first: bool) -> None:
        """Raise unless this is a repeat of the micro-batch; *first* tells whether it is the first of its run."""
        assert state.owner is not None
        if state.owner.run != run.run and not first:
            raise StorageError(
                f"another driver of the query {run.query} has started micro-batch {state.number} in {self._home}: two "
                f"drivers use the checkpoint {run.checkpoint}, and only one may; stop this one or that one"
            )
        if state.digest != digest:
            raise StorageError(
                f"micro-batch {state.number} in {self._home} had other records of change when it was tried first: the "
                "source of the changes does not repeat what it gave. Read it from a source that does, such as Kafka "
                "or files that stay, or start in another home"
            )

    def check_next(self, number: int) -> State:
        """Raise unless this is the next micro-batch; return the state of the last one."""
        last = self.last
        assert last is not None
        if last.owner is not None and number != last.number + 1:
            raise StorageError(
                f"{self._home} has started micro-batch {last.number}, and this is micro-batch {number} of the same "
                "query: one of them was restored from a copy, or the checkpoint was replaced. Restore both to the same "
                "moment, or start in another home"
            )
        return last

    # --- The next version ------------------------------------------------------------------------------------------

    def set_next_version(self, version: str, upto: int, gone: Tombstones | None) -> None:
        """Let the next micro-batch start with this version, which has the changes of micro-batches up to *upto*."""
        content = json.dumps({"version": version, "upto": upto, "gone": gone})
        self._home.write("ready.json", content.encode())
        self._ready = (version, upto, gone)

    def next_version(self, last: State) -> tuple[str, int, Tombstones | None]:
        """Return the version that a micro-batch after *last* starts with, its last micro-batch, and its tombstones."""
        if self._ready is None:
            self._ready = self._read_ready()
        if self._ready[1] < last.upto:
            return last.version, last.upto, last.gone
        return self._ready

    def _read_ready(self) -> tuple[str, int, Tombstones | None]:
        try:
            ready = json.loads(self._home.read("ready.json"))
        except FileNotFoundError:
            return "", -2, None  # older than any state
        gone = ready["gone"]
        return ready["version"], ready["upto"], None if gone is None else Tombstones(*gone)


def _name(number: int) -> str:
    return f"{number:012}.json"


def _written(state: State) -> bytes:
    return json.dumps(state._asdict()).encode()


def _read(content: bytes) -> State:
    written = json.loads(content)
    owner, (segments, dropped, adding) = written["owner"], written["valid"]
    return State(
        **written
        | {
            "owner": None if owner is None else Run(*owner),
            "deltas": tuple(Delta(*delta) for delta in written["deltas"]),
            "gone": None if written["gone"] is None else Tombstones(*written["gone"]),
            "valid": Snapshot(tuple(segments), dropped, adding),
        }
    )
