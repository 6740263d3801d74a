"""What every structure does: arrange rows so that a search has to look at only a few of them.

A structure knows the rows of a store and nothing else. A message searches the clause rows of a
:class:`~nearcast.columns.rows.clauses.ClauseStore`, and a subscription searches the probe rows of a
:class:`~nearcast.columns.rows.messages.MessageRows`; the two kinds of structures differ only in their rows and kernels.
Subscriptions and messages, threads, shapes and files are the business of the index or message store that holds the
structure (``index``, ``messages/store``).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, Generic, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from nearcast import config
from nearcast.columns.growable import GrowableArray
from nearcast.columns.rows.clauses import ClauseStore
from nearcast.columns.rows.messages import MessageRows
from nearcast.kernels.verify import Clauses, Probes

__all__ = [
    "Answers",
    "ClauseStructure",
    "MessageStructure",
    "Moment",
    "Moves",
    "Progress",
    "Structure",
    "View",
    "silent",
]

Progress = Callable[[str, float], None]  # called with the name of a step and the share done, from 0 to 1


def silent(_step: str, _share: float) -> None:
    """Report no progress."""


class Answers(NamedTuple):
    """Arrays for the answers of a search: the rows that it finds, and where those of each question end."""

    ends: NDArray[np.int64]  # of each question of the batch
    rows: NDArray[np.int32]


class Moment(NamedTuple):
    """The time at which a store of messages is searched, and the expired probe rows that the search comes across."""

    now: int  # microseconds; only messages that expire later count
    expired: NDArray[np.int32]  # begins with the number of its entries; those without room are left out


class Moves(NamedTuple):
    """Clauses whose regions move. Boxes are ``float64[n, 4]``, one row for each clause."""

    clauses: Clauses  # their boxes are the least ones around the regions before and after
    before: NDArray[np.float64]  # boxes around the regions before
    after: NDArray[np.float64]
    kept: NDArray[np.float64]  # boxes inside both regions: what lies in them stays in reach


class View(NamedTuple):
    """One state of a structure for searches: the search function, and the arrays that it reads.

    ``search(arrays, probes, start, stop, answers, filled)`` answers the questions from *start* to *stop*. It writes the
    rows that it finds to ``answers.rows`` from *filled* on, and the end of the rows of question i to
    ``answers.ends[i]``. It returns *stop*, or the first question whose answers had no room. The search of a structure
    over messages takes ``(arrays, clauses, moment, start, …)``.

    ``search_moves(arrays, moves, moment, start, …)`` finds the messages that may come into reach or go out of it, when
    regions move; a structure over messages may have none.
    """

    search: Callable[..., int]
    arrays: Any  # a named tuple
    search_moves: Callable[..., int] | None = None


class _Rows(Protocol):
    @property
    def alive(self) -> NDArray[np.bool_]: ...


_Store = TypeVar("_Store", bound=_Rows)
_Sample = TypeVar("_Sample")
_Self = TypeVar("_Self", bound="Structure[Any, Any]")


class Structure(ABC, Generic[_Store, _Sample]):
    """Rows of a store, arranged for searching.

    **Nothing may read while a structure changes**: the index demands that of its callers. For threads that will, a
    reader searches in a :class:`View`, and the holder of the structure publishes another one after each change, by one
    assignment. A change would have to keep this rule: it builds new arrays, or it writes only to rows and slots that
    cannot be reached through an older view; rows and slots that were given back are reused when no reader has a view
    from before. Growing arrays follow the rule by themselves: new entries come after those in an older view. Each
    structure says where it breaks the rule today.

    A subclass supplies all abstract methods. :meth:`add`, :meth:`shift` and :meth:`rewrite` are called after the
    store's columns change, :meth:`drop` before.
    """

    name: ClassVar[str]
    parameters: ClassVar[tuple[str, ...]] = ()  # keyword arguments of the class
    room: ClassVar[int] = 4 * config.MATCH_ROOM  # how many answers a search has room for at first
    shifts = False  # whether it implements :meth:`shift`
    rewrites = False  # whether it implements :meth:`rewrite`
    lingers: ClassVar[bool] = False  # whether entries of dropped rows stay until :meth:`build`
    # Marks by row, and the mark of the rows that belong here; None if all rows do.
    part: tuple[GrowableArray, bool] | None = None

    def __init__(self, store: _Store) -> None:
        """Begin with the rows of *store*; :meth:`build` or :meth:`restore` must be called next."""
        self.store = store

    @abstractmethod
    def build(self, sample: _Sample | None = None, tell: Progress = silent) -> None:
        """Arrange all living rows; a cost model may learn from a *sample* of questions. *tell* receives progress."""

    @abstractmethod
    def add(self, rows: NDArray[np.int64]) -> None:
        """Add new rows."""

    def expect(self, words: int) -> None:
        """Make room for words whose codes are below *words*, so that none of the next clauses has to wait for it."""

    def outgrown(self, more: int) -> bool:
        """Tell whether *more* rows make many times as many as the structure was laid out for."""
        return False

    def renew(self, rows: NDArray[np.int64]) -> None:
        """Add new rows by laying everything out anew."""
        self.build()

    def successor(self: _Self) -> _Self | None:
        """Return an empty structure, laid out for as many rows as there are; the caller adds them all.

        Returns None if only :meth:`renew` can lay the structure out anew. This takes a few milliseconds, however many
        rows there are.
        """
        return None

    @abstractmethod
    def drop(self, rows: NDArray[np.int64]) -> None:
        """Take out rows that the store has just marked as dead; their columns are still there.

        The rows may be added again at once, with other columns, unless the structure :attr:`lingers`.
        """

    def shift(self, rows: NDArray[np.int64]) -> None:
        """Update rows after their boxes, and nothing else, have been overwritten."""
        raise NotImplementedError

    def rewrite(self, rows: NDArray[np.int64], changed: NDArray[np.bool_]) -> None:
        """Update rows after they have been overwritten; in those that have not *changed*, at most the box is new."""
        raise NotImplementedError

    @abstractmethod
    def view(self) -> View:
        """Return the current state, for searches."""

    @abstractmethod
    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the flat arrays that :meth:`restore` takes."""

    @abstractmethod
    def restore(self, arrays: dict[str, NDArray[Any]]) -> None:
        """Take the state from its arrays, without copying them, instead of building it."""

    def check(self) -> list[str]:
        """Return descriptions of the damage found."""
        return []

    def stats(self) -> dict[str, Any]:
        """Return the figures of this structure alone."""
        return {}

    @property
    def nbytes(self) -> int:
        """Memory, without that of the store."""
        return sum(array.nbytes for array in self.arrays().values())

    def members(self) -> NDArray[np.int64]:
        """Return the living rows that belong here, in ascending order."""
        alive = self.store.alive
        return np.flatnonzero(alive if self.part is None else alive & (self.part[0].values == self.part[1]))


ClauseStructure = Structure[ClauseStore, Probes]
MessageStructure = Structure[MessageRows, Clauses]
