"""What an engine consists of, and its form on disk."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from nearcast.columns.coding import Coding
from nearcast.columns.ids import Ids
from nearcast.columns.parts import nested, part_of
from nearcast.engine.promises import Promises
from nearcast.engine.valid_messages import ComingMessages, ValidMessages
from nearcast.matching import INDEXES, Index
from nearcast.storage.directory import read, restoring, write

__all__ = ["Snapshot"]

_KIND = "engine"  # the kind of its directories


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The parts of an engine at one time."""

    index: Index
    ids: Ids
    valid: ValidMessages
    coming: ComingMessages
    promises: Promises
    withdrawals: bool
    counts: list[int]  # published, expired before that, delivered, moved

    def save(self, directory: str | Path) -> Path | str:
        """Write the parts to a new directory; return its path or URI."""
        document = {
            "coding": self.index.coding.document(),
            "index": self.index.name,
            "store": self.valid.store.name,
            "withdrawals": self.withdrawals,
            "ids": [self.ids.kind_name, self.valid.ids.kind_name],
            "coming": [message.id for message in self.coming.listed()],
            "waiting": self.promises.waiting.document(),
            "counts": self.counts,
        }
        arrays = nested(
            coding=self.index.coding.arrays(),
            index=self.index.arrays(),
            ids=self.ids.arrays(),
            messages=self.valid.arrays(),
            coming=self.coming.arrays(),
        )
        arrays["promises"] = self.promises.array()
        return write(directory, _KIND, arrays, document)

    @classmethod
    def open(cls, directory: str | Path, *, verify: bool) -> Snapshot:
        """Map the parts from a directory; raise if it is damaged."""
        document, arrays = read(directory, _KIND, verify=verify)
        with restoring(directory):
            coding = Coding.restored(document["coding"], part_of(arrays, "coding"))
            subscription_ids, message_ids = document["ids"]
            withdrawals = document["withdrawals"]
            index = Index.restored(INDEXES[document["index"]], coding, part_of(arrays, "index"))
            valid = ValidMessages.restored(
                document["store"], coding, message_ids, part_of(arrays, "messages"), expiries=withdrawals
            )
            return cls(
                index,
                Ids.restored("subscription", subscription_ids, part_of(arrays, "ids")),
                valid,
                ComingMessages.restored(coding, document["coming"], part_of(arrays, "coming")),
                Promises.restored(arrays["promises"], document["waiting"], index),
                withdrawals,
                document["counts"],
            )
