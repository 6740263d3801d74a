"""The default store of messages: a scan while they are few; then packed by place, or an MO-Tree.

Subscriptions find messages by place and words, or by values. The first are served by packed messages, the others by an
MO-Tree, which is chosen if most messages have values and no words; if a sample of subscriptions is given, that decides.
An engine that keeps no messages compiles neither.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from nearcast import config
from nearcast.columns.rows.messages import MessageRows
from nearcast.kernels.verify import Clauses
from nearcast.matching.messages.scan import MessageScan
from nearcast.matching.structure import MessageStructure, Progress, View, silent

__all__ = ["MessageAuto"]

_SCAN, _MO_TREE, _PACKED = 0, 1, 2


class MessageAuto(MessageStructure):
    """Messages in a scan, and in another structure once they are too many; ``stats()`` tells which.

    What a reader of an older view sees depends on the structure that was chosen.
    """

    name: ClassVar[str] = "auto"

    def __init__(self, store: MessageRows) -> None:
        super().__init__(store)
        self._inner: MessageStructure = MessageScan(store)

    def build(self, sample: Clauses | None = None, tell: Progress = silent) -> None:
        """Build the structure that suits the messages; an MO-Tree learns from the sample."""
        many = self.store.living > config.STORE_SCAN
        self._inner = self._of(self._choice(sample) if many or sample is not None else _SCAN)
        self._inner.build(sample, tell)

    def _choice(self, sample: Clauses | None = None) -> int:
        """Return the structure for many messages: an MO-Tree if most have, or are sought by, values and no words."""
        stored = self.store.stored
        if sample is None:
            rows = np.flatnonzero(self.store.alive)[:: max(self.store.living // config.STORE_SAMPLE, 1)]
            words, values = stored.keyword_runs[rows], stored.value_runs[rows]
        else:
            words, values = sample.keyword_runs, sample.test_runs
        by_values = (values[:, 1] > values[:, 0]) & (words[:, 1] == words[:, 0])
        return _MO_TREE if 2 * int(by_values.sum()) > len(by_values) else _PACKED

    def _of(self, kind: int) -> MessageStructure:
        if kind == _SCAN:
            return MessageScan(self.store)
        if kind == _PACKED:
            from nearcast.matching.messages.packed import MessagePacked  # only when it is needed

            return MessagePacked(self.store)
        from nearcast.matching.messages.mo_tree import MessageMOTree

        return MessageMOTree(self.store)

    def add(self, rows: NDArray[np.int64]) -> None:
        """Add messages."""
        self._inner.add(rows)

    def outgrown(self, more: int) -> bool:
        """Tell whether there are too many messages for a scan, or for the layout of the structure."""
        scanned = isinstance(self._inner, MessageScan)
        return self.store.living > config.STORE_SCAN if scanned else self._inner.outgrown(more)

    def successor(self) -> MessageAuto | None:
        """Return the successor of the structure, as a store of this kind."""
        inner = self._inner.successor()
        if inner is None:
            return None
        fresh = MessageAuto(self.store)
        fresh._inner = inner
        return fresh

    def drop(self, rows: NDArray[np.int64]) -> None:
        """Remove messages."""
        self._inner.drop(rows)

    def view(self) -> View:
        """Return the view of the structure that has the messages."""
        return self._inner.view()

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays of the structure, and which it is."""
        kind = {"scan": _SCAN, "mo-tree": _MO_TREE, "packed": _PACKED}[self._inner.name]
        return self._inner.arrays() | {"structure": np.array([kind])}

    def restore(self, arrays: dict[str, NDArray[Any]]) -> None:
        """Restore the structure."""
        self._inner = self._of(int(arrays["structure"][0]))
        self._inner.restore(arrays)

    def check(self) -> list[str]:
        """Check the structure."""
        return self._inner.check()

    def stats(self) -> dict[str, Any]:
        """Return the figures of the structure, and which it is."""
        return self._inner.stats() | {"structure": self._inner.name}
