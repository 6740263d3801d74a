"""Lists by cell and word: the common part of all rivals that divide by both, in either order.

Each pair of a cell and a word has a posting list, found through a hash table (:mod:`.directory`); a row has tickets for
all its postings (:mod:`.ticketed`).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearcast.columns.parts import Arrays, nested, part_of
from nearcast.kernels import kernel
from nearcast.matching.rivals.directory import Directories, key_of
from nearcast.matching.rivals.ranking import NO_WORD
from nearcast.matching.rivals.ticketed import TicketedLists

__all__ = ["WordLists", "all_words", "keys_of"]


class WordLists:
    """Posting lists by cell and word, in groups: those of a cell, or those of a word."""

    def __init__(self, groups: int) -> None:
        self.directory = Directories(groups)
        self.lists = TicketedLists()

    def post(
        self,
        boxes: NDArray[np.float64],
        rows: NDArray[np.int64],
        keys: NDArray[np.int64],
        groups: NDArray[np.int64],
    ) -> NDArray[np.int32]:
        """Post ``rows[i]`` to the list of ``keys[i]``, one of the given group; return the lists."""
        post = self.lists.post
        if not self.directory.used:  # in this order, the lists of a group lie side by side
            first, at = np.unique(keys, return_index=True)
            order = np.argsort(groups[at], kind="stable")
            self.directory.lists_of(first[order], groups[at][order])
            post = self.lists.lay
        targets = self.directory.lists_of(keys, groups)
        post(boxes, rows, targets)
        return targets

    @property
    def wasteful(self) -> bool:
        """Whether many lists are empty: the directory does not forget pairs that nothing has any more."""
        return self.lists.outlived(self.directory.used)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the flat arrays that :meth:`restored` takes."""
        return self.directory.flat() | nested(lists=self.lists.arrays(""))

    @classmethod
    def restored(cls, arrays: Arrays) -> WordLists:
        """Restore on mapped arrays."""
        made = cls(0)
        made.directory = Directories.restored(dict(arrays))
        made.lists = TicketedLists.restored(part_of(arrays, "lists"), "")
        return made

    def check(self, rows: NDArray[np.int64], keys: NDArray[np.int64]) -> list[str]:
        """Compare with the postings that there should be; return what is wrong."""
        found = self.directory.check() + self.lists.check()
        if found:
            return found
        lists, posted = self.lists.pairs()
        ours, theirs = np.stack([posted, self.directory.keys[lists]]), np.stack([rows, keys])
        if not np.array_equal(ours[:, np.lexsort(ours)], theirs[:, np.lexsort(theirs)]):
            found.append("the lists do not hold what they should")
        return found

    def stats(self) -> dict[str, Any]:
        """Return the lengths of the lists."""
        sizes = self.lists.pool.sizes
        used = sizes[sizes > 0]
        return {
            "lists": len(used),
            "longest_list": int(used.max(initial=0)),
            "mean_list": round(float(used.mean()), 1) if len(used) else 0.0,
            "postings": self.lists.postings,
        }


@kernel
def keys_of(
    offsets: NDArray[np.int64],
    cells: NDArray[np.int32],
    word_offsets: NDArray[np.int64],
    words: NDArray[np.int32],
    owners: NDArray[np.int64],
    keys: NDArray[np.int64],
) -> None:
    """Write the key of every cell and every word of each row, row by row, and the number of the row as its owner."""
    filled = 0
    for i in range(offsets.size - 1):
        for c in range(offsets[i], offsets[i + 1]):
            for w in range(word_offsets[i], word_offsets[i + 1]):
                owners[filled] = i
                keys[filled] = key_of(cells[c], words[w])
                filled += 1


@kernel
def all_words(
    runs: NDArray[np.int32],
    keywords: NDArray[np.int32],
    rows: NDArray[np.int64],
    offsets: NDArray[np.int64],
    out: NDArray[np.int32],
) -> None:
    """Write NO_WORD and the words of each row; *offsets* is already filled."""
    for i in range(rows.size):
        at = offsets[i]
        out[at] = NO_WORD
        for k in range(runs[rows[i], 0], runs[rows[i], 1]):
            at += 1
            out[at] = keywords[k]
