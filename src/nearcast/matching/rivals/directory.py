"""Where the list of a cell and a word is: a hash table, and the lists of each cell (or word) in a chain.

A search for many words in a cell with few lists follows the chain; a search for few words in a cell with many lists
looks up each word. A look-up that finds no list reads one slot of 8 bytes.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearcast import config
from nearcast.kernels import kernel
from nearcast.kernels.memory import prefetch

__all__ = [
    "COUNT",
    "EXTRA",
    "HEAD",
    "NO_LIST",
    "Directories",
    "Directory",
    "cell_in",
    "expect",
    "find",
    "key_of",
    "word_in",
]

NO_LIST = -1
COUNT, HEAD, EXTRA = 0, 1, 2  # columns of groups; what EXTRA tells is the owner's
_FREE = 0  # no key: cells count from 1 in keys
_MIX = np.uint64(0x9E3779B97F4A7C15)
_SHIFT = np.uint64(29)
_WORD_BITS = 0xFFFFFFFF
_AHEAD = config.UPDATE_AHEAD


class Directory(NamedTuple):
    """The arrays, with room to grow; ``used`` lists are there."""

    slots: NDArray[np.int64]  # [2^b]: keys
    slot_lists: NDArray[np.int32]
    keys: NDArray[np.int64]  # of each list
    after: NDArray[np.int32]  # the next list of the same group
    groups: NDArray[np.int32]  # [groups, 3]: how many lists, the first, and a figure for the owner


class Directories:
    """A directory that grows."""

    def __init__(self, groups: int) -> None:
        slots = 16
        self.arrays = Directory(
            np.zeros(slots, np.int64),
            np.zeros(slots, np.int32),
            np.empty(0, np.int64),
            np.empty(0, np.int32),
            _no_groups(groups),
        )
        self.used = 0

    @property
    def keys(self) -> NDArray[np.int64]:
        """The key of each list."""
        return self.arrays.keys[: self.used]

    def lists_of(self, keys: NDArray[np.int64], groups: NDArray[np.int64]) -> NDArray[np.int32]:
        """Return the list of each key, new ones where there was none, chained to the given groups."""
        most = int(groups.max(initial=-1)) + 1
        have = len(self.arrays.groups)
        if most > have:
            more = _no_groups(max(most - have, have // 2))
            self.arrays = self.arrays._replace(groups=np.concatenate([self.arrays.groups, more]))
        out = np.empty(len(keys), np.int32)
        done = 0
        while True:
            done, self.used = _lists_of(self.arrays, self.used, keys, groups, done, out)
            if done == len(keys):
                return out
            self._grow()

    def flat(self) -> dict[str, NDArray[Any]]:
        """Return the flat arrays that :meth:`restored` takes."""
        arrays = self.arrays._replace(keys=self.keys, after=self.arrays.after[: self.used])
        return {"directory_" + name: array for name, array in arrays._asdict().items()}

    @classmethod
    def restored(cls, arrays: dict[str, NDArray[Any]]) -> Directories:
        """Restore on mapped arrays."""
        directory = cls(0)
        directory.arrays = Directory(**{name: arrays["directory_" + name] for name in Directory._fields})
        directory.used = len(directory.arrays.keys)
        return directory

    def check(self) -> list[str]:
        """Return the damage found: a list that is not found by its key, or not in the chain of one group."""
        found = []
        slots, slot_lists, _, after, groups = self.arrays
        at = np.array([find(slots, slot_lists, key) for key in self.keys.tolist()], np.int32)
        if not np.array_equal(at, np.arange(self.used)):
            found.append("a list is not found by its cell and word")
        chained = groups[groups[:, COUNT] > 0, HEAD]
        chained = np.concatenate([chained, after[: self.used][after[: self.used] != NO_LIST]])
        if not np.array_equal(np.sort(chained), np.arange(self.used)) or groups[:, COUNT].sum() != self.used:
            found.append("a list is not in the chain of its group")
        return found

    def _grow(self) -> None:
        """Make room for half as many lists again, or as many as the slots are good for; those that are full double."""
        old = self.arrays
        slots = len(old.slots)
        while slots * config.HASH_LOAD <= self.used:
            slots *= 2
        room = min(max(16, self.used + self.used // 2), int(slots * config.HASH_LOAD))
        keys, after = np.empty(room, np.int64), np.empty(room, np.int32)
        keys[: self.used], after[: self.used] = self.keys, old.after[: self.used]
        if slots == len(old.slots):
            self.arrays = old._replace(keys=keys, after=after)
            return
        self.arrays = Directory(np.zeros(slots, np.int64), np.zeros(slots, np.int32), keys, after, old.groups)
        _rehash(self.arrays, self.used)


def _no_groups(groups: int) -> NDArray[np.int32]:
    return np.tile(np.array([0, NO_LIST, 0], np.int32), (groups, 1))


@kernel
def key_of(cell: Any, word: Any) -> Any:
    """Return the key of a cell and a word, NO_WORD among them."""
    return (np.int64(cell) + 1) << 32 | (np.int64(word) + 1)


@kernel
def cell_in(key: int) -> int:
    """Return the cell of a key."""
    return (key >> 32) - 1


@kernel
def word_in(key: int) -> int:
    """Return the word of a key."""
    return (key & _WORD_BITS) - 1


@kernel
def _first_slot(slots: NDArray[np.int64], key: int) -> Any:
    """Return the slot where the search for a key begins."""
    h = np.uint64(key) * _MIX
    return np.int64((h ^ h >> _SHIFT) * _MIX >> np.uint64(32)) & (slots.size - 1)


@kernel
def expect(slots: NDArray[np.int64], slot_lists: NDArray[np.int32], key: int) -> None:
    """Prefetch what :func:`find` will read."""
    at = _first_slot(slots, key)
    prefetch(slots, at)
    prefetch(slot_lists, at)


@kernel
def _slot(slots: NDArray[np.int64], key: int) -> Any:
    """Return the slot of a key, or the free one where it would stand."""
    mask = slots.size - 1
    at = _first_slot(slots, key)
    while slots[at] != key and slots[at] != _FREE:
        at = (at + 1) & mask
    return at


@kernel
def find(slots: NDArray[np.int64], slot_lists: NDArray[np.int32], key: int) -> Any:
    """Return the list of a key, or NO_LIST."""
    at = _slot(slots, key)
    return slot_lists[at] if slots[at] == key else NO_LIST


@kernel
def _lists_of(
    directory: Directory,
    used: int,
    keys: NDArray[np.int64],
    groups: NDArray[np.int64],
    begin: int,
    out: NDArray[np.int32],
) -> Any:
    """Find or make lists from number *begin* on; returns (next, used) when done or out of room."""
    slots, slot_lists, list_keys, after, heads = directory
    for i in range(begin, keys.size):
        expect(slots, slot_lists, keys[min(i + _AHEAD, keys.size - 1)])
        at = _slot(slots, keys[i])
        if slots[at] == _FREE:
            if used == list_keys.size:
                return i, used
            slots[at], slot_lists[at] = keys[i], used
            list_keys[used] = keys[i]
            group = groups[i]
            after[used] = heads[group, HEAD]
            heads[group, HEAD] = used
            heads[group, COUNT] += 1
            used += 1
        out[i] = slot_lists[at]
    return keys.size, used


@kernel
def _rehash(directory: Directory, used: int) -> None:
    slots, slot_lists, keys, _, _ = directory
    for i in range(used):
        expect(slots, slot_lists, keys[min(i + _AHEAD, used - 1)])
        at = _slot(slots, keys[i])
        slots[at], slot_lists[at] = keys[i], i
