"""Subscriptions that move, and the messages that are valid: what comes into reach, and what goes out of it.

=====================  ================================================================================================
``auto``               an ``auto`` index and a store of messages packed by place; the default
``ap-plus-tree``       one tree for both: messages hang on the leaves that they visited
``ap-plus-k-tree``     subscriptions in that tree, messages apart, by word and then by cell: a rival
``ap-plus-s-tree``     subscriptions in that tree, messages apart, by cell and then by word: a rival
``ss-index``           by the cells of a grid, and then by words, on both sides: a rival
``kk-index``           by words, and then by the cells of a grid, on both sides: a rival
``iq-plus-tree``       by the cells of a quadtree, and then by words, on both sides: a rival
``rq-plus-tree``       by words, and then by the cells of a quadtree, on both sides: a rival
``scratch``            the default, without its way to move: what moves is removed, inserted and matched again
``mo-tree-scratch``    the same with the messages in an MO-Tree: what a move costs without packed messages, too
``scan``               looks at every clause and every message: the oracle
=====================  ================================================================================================

A moving subscription is told the difference (Algorithm 6 of Wang, Zhang, Zhang, Lin and Wang, "AP-Tree: Efficiently
Support Location-Aware Publish/Subscribe", 2015): what it did not reach before, and what it does not reach any more.
"""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearcast import config
from nearcast.columns import Matches, MessageBatch, SubscriptionTable
from nearcast.columns.coding import Coding
from nearcast.columns.parts import nested, part_of
from nearcast.errors import ColumnError, UnknownError, shown
from nearcast.matching.messages.store import checked_time
from nearcast.matching.moving.pair import Changes, Pair
from nearcast.registry import Registry
from nearcast.storage.directory import read, restoring, write

__all__ = ["MOVING", "Changes", "MovingIndex"]

_KIND = "moving"  # the kind of its directories
_RIVALS = "nearcast.matching.rivals.moving"

MOVING: Registry[Any] = Registry(
    {
        "auto": "nearcast.matching.moving.kinds:auto",
        "ap-plus-tree": "nearcast.matching.moving.ap_plus_tree:APPlusTree",
        "ap-plus-k-tree": f"{_RIVALS}:ap_plus_k_tree",
        "ap-plus-s-tree": f"{_RIVALS}:ap_plus_s_tree",
        "ss-index": f"{_RIVALS}:ss_index",
        "kk-index": f"{_RIVALS}:kk_index",
        "iq-plus-tree": f"{_RIVALS}:iq_plus_tree",
        "rq-plus-tree": f"{_RIVALS}:rq_plus_tree",
        "scratch": f"{_RIVALS}:scratch",
        "mo-tree-scratch": f"{_RIVALS}:mo_tree_scratch",
        "scan": "nearcast.matching.moving.kinds:scan",
    }
)


class MovingIndex:
    """An exact index of subscriptions that move, together with the messages that are valid.

    Rows of subscriptions and of messages are given out, and given out again, as in an :class:`Index` and a
    :class:`MessageStore`. A call takes effect as a whole, or raises and changes nothing.

    >>> subs = SubscriptionTable.from_arrays([[0, 0, 2, 2]], [0, 1], [7])
    >>> live = MovingIndex("auto", subs)
    >>> live.publish(MessageBatch.from_arrays([[5, 5]], [0, 1], [7], expires_at=[100]), now=1)[0]
    array([], dtype=int32)
    >>> came, went = live.move([0], [[4, 4, 6, 6]], now=2)
    >>> came[0], went[0]
    (array([0], dtype=int32), array([], dtype=int32))

    Parameters
    ----------
    name
        One of :data:`MOVING`.
    subscriptions
        The first subscriptions; their rows are those of the table.
    messages
        The first messages, if there are any; all of them are kept. Their rows are those of the batch.
    parameters
        The parameters of the structure, by name, if it has any.
    """

    def __init__(
        self,
        name: str,
        subscriptions: SubscriptionTable,
        messages: MessageBatch | None = None,
        **parameters: Any,
    ) -> None:
        if not isinstance(name, str) or name not in MOVING:
            raise UnknownError(f"there is no moving index {shown(name)}; there are {', '.join(MOVING)}")
        if not isinstance(subscriptions, SubscriptionTable):
            raise ColumnError(f"a moving index is built over a SubscriptionTable, not {shown(subscriptions)}")
        self.name = name
        self._parameters = parameters
        first = MessageBatch.empty(subscriptions.coding) if messages is None else messages
        if not isinstance(first, MessageBatch):
            raise ColumnError(f"messages come as a MessageBatch, not as {shown(messages)}")
        self._pair: Pair = _made(name, subscriptions, first, parameters)
        #: The row of each message of the last :meth:`publish` among the kept ones; -1 for one that is not kept.
        self.published: NDArray[np.int32] = np.empty(0, np.int32)

    def __len__(self) -> int:
        """Return the number of subscriptions."""
        return len(self._pair.index)

    def __repr__(self) -> str:
        return (
            f"<MovingIndex {self.name} of {len(self):,} subscriptions and {len(self._pair.store):,} messages>"
        )

    # --- Messages --------------------------------------------------------------------------------------------------

    def publish(self, batch: MessageBatch, now: int | None = None) -> Matches:
        """Return the subscription rows that each message matches; keep the messages that expire later than *now*."""
        _check_time(now)
        self._pair.store.rows.check_insert(batch)
        found, self.published = self._pair.publish(batch, now)
        if now is not None:
            self._pair.store.sweep(now, config.SWEEP_ROWS * batch.size)
        return found

    def forget(self, rows: Any) -> None:
        """Remove messages by row."""
        self._pair.forget(self._pair.store.picks(rows))

    def expire(self, now: int) -> NDArray[np.int32]:
        """Remove every message that has expired by *now*; return their rows, ascending."""
        return self._pair.expire(now)

    # --- Subscriptions ---------------------------------------------------------------------------------------------

    def insert(self, table: SubscriptionTable, now: int | None = None) -> tuple[NDArray[np.int32], Matches]:
        """Add subscriptions; return their rows, and the message rows that each of them matches."""
        _check_time(now)
        return self._pair.insert(table, now)

    def remove(self, rows: Any) -> None:
        """Remove subscriptions by row."""
        self._pair.remove(self._pair.index.picks(rows))

    def move(self, rows: Any, regions: Any, now: int | None = None) -> Changes:
        """Give subscriptions other regions; return the message rows that came into reach of each, and that went.

        *regions* has one for each row: boxes, or anything else that ``as_region`` reads. With *now*, only messages that
        are valid then count.
        """
        _check_time(now)
        return self._pair.move(self._pair.index.picks(rows), regions, now)

    def update(self, rows: Any, table: SubscriptionTable, now: int | None = None) -> Changes:
        """Replace subscriptions by those of *table*; return the message rows that came, and those that went."""
        _check_time(now)
        picks = self._pair.index.picks(rows)
        if not isinstance(table, SubscriptionTable) or len(table) != len(picks):
            raise ColumnError(
                f"update takes a SubscriptionTable with one subscription for each of the {len(picks)} rows, "
                f"not {shown(table)}"
            )
        return self._pair.update(picks, table, now)

    # --- At rest ---------------------------------------------------------------------------------------------------

    def save(self, directory: str | Path) -> Path | str:
        """Write everything to a new directory of flat arrays; return its path or URI."""
        coding = self._pair.index.coding
        document = {"moving": self.name, "parameters": self._parameters, "coding": coding.document()}
        arrays = self._pair.arrays() | nested(coding=coding.arrays())
        return write(directory, _KIND, arrays, document)

    @classmethod
    def open(cls, directory: str | Path, *, verify: bool = False) -> MovingIndex:
        """Open a directory that :meth:`save` wrote; later changes are in memory only."""
        document, arrays = read(directory, _KIND, verify=verify)
        with restoring(directory):
            coding = Coding.restored(document["coding"], part_of(arrays, "coding"))
            live = cls(document["moving"], SubscriptionTable.empty(coding), **document["parameters"])
            live._pair.restore(coding, arrays)
        return live

    # --- Figures ---------------------------------------------------------------------------------------------------

    def stats(self) -> dict[str, Any]:
        """Return figures: how much is stored, how, and in how many bytes."""
        found = self._pair.stats()
        return {"moving": self.name, "bytes": found["index"]["bytes"] + found["store"]["bytes"]} | found

    def check(self) -> list[str]:
        """Look for damage; return descriptions of it, an empty list if there is none."""
        return self._pair.check()


def _check_time(now: int | None) -> None:
    """Raise, before anything has changed, unless *now* is a time or None."""
    if now is not None:
        checked_time(now)


def _made(
    name: str, subscriptions: SubscriptionTable, messages: MessageBatch, parameters: dict[str, Any]
) -> Pair:
    """Return the pair called *name*; a parameter that it does not have is an error."""
    kind = MOVING[name]
    known = inspect.signature(kind).parameters
    if not any(one.kind is one.VAR_KEYWORD for one in known.values()):
        own = list(known)[2:]  # after the subscriptions and the messages
        for key in parameters:
            if key not in own:
                has = f"it has {', '.join(own)}" if own else "it has none"
                raise UnknownError(f"the moving index {name!r} has no parameter {shown(key)}; {has}")
    pair: Pair = kind(subscriptions, messages, **parameters)
    return pair
