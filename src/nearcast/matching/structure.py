"""What every structure is: rows arranged so that few of them are looked at to answer a question.

A structure knows the rows of a store and nothing else. Clause rows of a :class:`~nearcast.columns.rows.ClauseStore`
are asked for by messages, probe rows of a :class:`~nearcast.columns.rows.MessageRows` by subscriptions; the two kinds
of structures differ in their rows and their kernels alone. Subscriptions and messages, threads, shapes and files are
the affair of the index or message store that holds the structure (``index``, ``messages/store``).
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
    "Progress",
    "Structure",
    "View",
    "silent",
]

Progress = Callable[[str, float], None]  # called with what is being done, and the share done, from 0 to 1


def silent(_step: str, _share: float) -> None:
    """Tell nobody."""


class Answers(NamedTuple):
    """Where a search writes the rows that it finds, and where those of each question end."""

    ends: NDArray[np.int64]  # of each question of the batch
    rows: NDArray[np.int32]


class Moment(NamedTuple):
    """When a store of messages is asked, and the expired probe rows that the search met there."""

    now: int  # microseconds; only what expires after it counts
    expired: NDArray[np.int32]  # begins with the number of its entries; what finds no room is left out


class View(NamedTuple):
    """One state of a structure, to search in: the search, and the arrays that it reads.

    ``search(arrays, probes, start, stop, answers, filled)`` answers the questions from *start* to *stop*. It writes
    the rows that it finds to ``answers.rows`` from *filled* on, and where those of question i end to
    ``answers.ends[i]``. It returns *stop*, or the first question whose answers found no room. A structure of messages
    takes ``(arrays, clauses, moment, start, …)``.
    """

    search: Callable[..., int]
    arrays: Any  # a named tuple


class _Rows(Protocol):
    @property
    def alive(self) -> NDArray[np.bool_]: ...


_Store = TypeVar("_Store", bound=_Rows)
_Sample = TypeVar("_Sample")
_Self = TypeVar("_Self", bound="Structure[Any, Any]")


class Structure(ABC, Generic[_Store, _Sample]):
    """Rows of a store, arranged for searching.

    **One version for a reader while a writer works.** A reader searches in a :class:`View`; who holds the structure
    publishes another one after each change, by one assignment. The rule for a change is: it builds new arrays, or it
    writes only to rows and slots that nobody reaches through an older view. Rows and slots that are given back are
    used again when no reader holds a view from before (an epoch has passed). Arrays that grow follow the rule by
    themselves: what is new stands behind what an older view has. Each structure says where it breaks the rule today:
    there, a change needs the structure alone, and that is what the index asks of its callers.

    A subclass supplies all that is abstract here. :meth:`add`, :meth:`shift` and :meth:`rewrite` come after the change
    of the store's columns, :meth:`drop` before it.
    """

    name: ClassVar[str]
    parameters: ClassVar[tuple[str, ...]] = ()  # keyword arguments of the class
    room: ClassVar[int] = 4 * config.MATCH_ROOM  # answers that a search starts with room for
    shifts = False  # whether :meth:`shift` is there
    rewrites = False  # whether :meth:`rewrite` is there
    lingers: ClassVar[bool] = False  # whether entries of dropped rows stay until :meth:`build`
    part: tuple[GrowableArray, bool] | None = None  # holds only the rows that are marked so; None: all

    def __init__(self, store: _Store) -> None:
        """Begin over the rows of *store*; :meth:`build` or :meth:`restore` comes next."""
        self.store = store

    @abstractmethod
    def build(self, sample: _Sample | None = None, tell: Progress = silent) -> None:
        """Arrange all living rows; a cost model may learn from a *sample* of questions, *tell* hears the steps."""

    @abstractmethod
    def add(self, rows: NDArray[np.int64]) -> None:
        """Take new rows in."""

    def outgrown(self, more: int) -> bool:
        """Tell whether, with *more* rows, there are many times those that the structure was laid out for."""
        return False

    def renew(self, rows: NDArray[np.int64]) -> None:
        """Take new rows in by laying all out anew."""
        self.build()

    def successor(self: _Self) -> _Self | None:
        """Return a structure laid out for as many rows as there are, which holds none yet: all are going to be added.

        Returns None where only :meth:`renew` can lay it out anew. It takes a few milliseconds, however many rows there
        are.
        """
        return None

    @abstractmethod
    def drop(self, rows: NDArray[np.int64]) -> None:
        """Take rows out, which the store has just marked as dead; their columns are still there.

        The rows may come back by :meth:`add` at once, with other columns, unless the structure :attr:`lingers`.
        """

    def shift(self, rows: NDArray[np.int64]) -> None:
        """Follow after the boxes of rows were overwritten, and nothing else."""
        raise NotImplementedError

    def rewrite(self, rows: NDArray[np.int64], changed: NDArray[np.bool_]) -> None:
        """Follow after rows were overwritten; those that have not *changed* have another box at most."""
        raise NotImplementedError

    @abstractmethod
    def view(self) -> View:
        """Return the present state, to search in."""

    @abstractmethod
    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the flat arrays that :meth:`restore` takes."""

    @abstractmethod
    def restore(self, arrays: dict[str, NDArray[Any]]) -> None:
        """Take the state from its arrays, without copying them, instead of building."""

    def check(self) -> list[str]:
        """Return the damage found, in words."""
        return []

    def stats(self) -> dict[str, Any]:
        """Return figures of this structure alone."""
        return {}

    @property
    def nbytes(self) -> int:
        """Memory, without that of the store."""
        return sum(array.nbytes for array in self.arrays().values())

    def members(self) -> NDArray[np.int64]:
        """Return the living rows that are to be here, ascending."""
        alive = self.store.alive
        return np.flatnonzero(alive if self.part is None else alive & (self.part[0].values == self.part[1]))


ClauseStructure = Structure[ClauseStore, Probes]
MessageStructure = Structure[MessageRows, Clauses]
