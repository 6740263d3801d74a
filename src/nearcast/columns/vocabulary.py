"""The vocabulary: a kernel turns strings into codes, once, straight from Arrow buffers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from nearcast import config
from nearcast.columns.growable import GrowableArray, roomy
from nearcast.columns.parts import Arrays
from nearcast.columns.ragged import check_positions, checked_offsets
from nearcast.errors import ColumnError, shown
from nearcast.kernels import hashing
from nearcast.kernels.hashing import NO_CODE, Words

__all__ = ["NO_CODE", "Vocabulary", "string_array", "string_buffers"]

_MAX_WORDS = 2**31 - 1
_SLOTS_A_PAGE = 4096 // 16


class Vocabulary:
    """A growing set of distinct strings, numbered from 0 in the order of their first appearance.

    :meth:`encode` looks strings up, :meth:`add` also takes in new ones and counts each occurrence; both take Arrow
    arrays (or anything that Arrow reads as strings) and return int32 codes. A null is not a word: its code is
    :data:`NO_CODE`. Codes never change.

    A word that :meth:`put` takes in brings its code with it. The codes that are left out are given to later words.

    >>> words = Vocabulary()
    >>> words.add(["coffee", "tea", "coffee"])
    array([0, 1, 0], dtype=int32)
    >>> words.encode(["tea", "milk"])
    array([ 1, -1], dtype=int32)
    >>> words.decode([1, 0]), len(words), words.counts
    (['tea', 'coffee'], 2, array([2, 1]))
    """

    def __init__(self, words: Iterable[str] | pa.Array | None = None, *, room: int = 0) -> None:
        """Begin with *words*; the table of slots does not grow before there are *room* words."""
        self._size = 0
        self._next: NDArray[np.uint64] | None = None  # a larger table of slots, while it is being filled
        self._cleared = 0  # slots of the larger table whose memory is there
        self._moved = 0  # words that are in the larger table
        self._owed = 0  # words that should have moved since the last time
        # Words are stored in the order in which they came. By code: the place of its word, -1 if no word has it.
        self._places: GrowableArray | None = None  # None while each code is the place of its word
        self._codes: GrowableArray | None = None  # by place: the code
        self._given = 0  # all codes before this one have words
        slots = 16
        while slots * config.HASH_LOAD < room:
            slots *= 2
        self._words = Words(
            slots=np.zeros((slots, 2), np.uint64),
            offsets=np.zeros(9, np.int64),
            bytes=np.empty(64, np.uint8),
            counts=np.zeros(8, np.int64),
        )
        if words is not None:
            self.add(words)

    def __len__(self) -> int:
        return self._size

    def __contains__(self, word: object) -> bool:
        return isinstance(word, str) and bool(self.encode([word])[0] != NO_CODE)

    def __iter__(self) -> Iterator[str]:
        """Iterate over the words in the order in which they came."""
        return iter(self._stored().to_pylist())

    def __repr__(self) -> str:
        return f"<Vocabulary of {self._size:,} words>"

    @property
    def span(self) -> int:
        """The number of codes, with those that no word has."""
        return self._size if self._places is None else len(self._places.values)

    @property
    def counts(self) -> NDArray[np.int64]:
        """How often each word was added, by code."""
        counts = self._words.counts[: self._size]
        if self._codes is None:
            return counts
        by_code = np.zeros(self.span, np.int64)
        by_code[self._codes.values] = counts
        return by_code

    @property
    def words(self) -> pa.Array:
        """The words by code, as an Arrow array over the vocabulary's own bytes; copied if a code has no word."""
        return self._stored() if self._places is None else self.take(np.arange(self.span))

    @property
    def nbytes(self) -> int:
        """Memory of the table and the words."""
        codes = 0 if self._codes is None else self._codes.nbytes
        return codes + sum(array.nbytes for array in self.arrays().values())

    def encode(self, strings: Iterable[str] | pa.Array) -> NDArray[np.int32]:
        """Return the code of each string, :data:`NO_CODE` for a null or a word that is not in the vocabulary.

        No Python code touches the strings of an Arrow array. A short word costs one cache miss; in a dictionary array,
        each distinct word is looked up once.
        """
        valid = None
        if isinstance(strings, list) and len(strings) < config.FEW_STRINGS:
            data, offsets = _join(strings)
        else:
            array = string_array(strings)
            if pa.types.is_dictionary(array.type):
                return _spread(self.encode(array.dictionary), array)
            data, offsets, valid = string_buffers(array)
        out = np.full(len(offsets) - 1, NO_CODE, np.int32)
        if self._size == 0:
            return out
        hashing.encode(self._words, data, offsets, out)
        if valid is not None:
            out[~valid] = NO_CODE
        return out if self._codes is None else _look_up(self._codes, out)

    def code(self, word: bytes) -> int:
        """Return the code of one word, given as UTF-8; :data:`NO_CODE` if it is not in the vocabulary."""
        if self._size == 0:
            return NO_CODE
        out = np.empty(1, np.int32)
        hashing.encode(self._words, np.frombuffer(word, np.uint8), _seal(np.array([0, len(word)])), out)
        return int(out[0]) if self._codes is None else int(_look_up(self._codes, out)[0])

    def add(self, strings: Iterable[str] | pa.Array) -> NDArray[np.int32]:
        """Return the code of each string; new ones are added, and each occurrence is counted."""
        if isinstance(strings, list) and not strings:
            return np.empty(0, np.int32)
        if isinstance(strings, list) and len(strings) < config.FEW_STRINGS:
            data, offsets = _join(strings)
        else:
            array = string_array(strings)
            if pa.types.is_dictionary(array.type):
                array = array.cast(array.type.value_type)
            if array.null_count:
                present = array.is_valid().to_numpy(zero_copy_only=False)
                out = np.full(len(array), NO_CODE, np.int32)
                out[present] = self.add(array.drop_null())
                return out
            data, offsets, _ = string_buffers(array)
        places = self._insert(data, offsets)
        if self._codes is None:
            return places
        self._give_codes()
        codes: NDArray[np.int32] = self._codes.values[places]
        return codes

    def put(self, words: pa.Array, codes: NDArray[np.int64], span: int) -> None:
        """Add words that are not here yet with the codes that they bring, all below *span*.

        Codes below *span* that no word has are given to the words that are added later.
        """
        if self._places is None or self._codes is None:
            every = np.arange(self._size, dtype=np.int32)
            self._places, self._codes = (GrowableArray(every, spare=1.0) for _ in range(2))
        self._places.fill(max(span - self.span, 0), NO_CODE)
        if len(codes):
            data, offsets, _ = string_buffers(words)
            places = self._insert(data, offsets)
            self._codes.reach(self._size)[places] = codes
            self._places.own()[codes] = places

    def touch(self, begin: int, end: int) -> bool:
        """Have the memory of some slots of an empty table cleared; tell whether they were the last.

        Words go anywhere in the table, so the first thousand would have to wait until nearly all of it is cleared.
        """
        assert not self._size
        self._words.slots[begin:end] = 0
        return end >= len(self._words.slots)

    def _insert(self, data: NDArray[np.uint8], offsets: NDArray[Any]) -> NDArray[np.int32]:
        """Store and count strings; return the place of each."""
        out = np.empty(len(offsets) - 1, np.int32)
        done = 0
        while True:
            limit = int(len(self._words.slots) * config.HASH_LOAD)
            done, self._size = hashing.insert(self._words, self._size, limit, data, offsets, done, out)
            if done == len(out):
                break
            self._grow(int(offsets[done + 1] - offsets[done]), limit)

        if self._size > config.HASH_AHEAD * config.HASH_LOAD * len(self._words.slots):
            self._prepare(len(out))
        return out

    def _give_codes(self) -> None:
        """Give codes to new words: first those that no word has, then those behind all others."""
        assert self._places is not None
        assert self._codes is not None
        places, codes = self._places, self._codes
        place = len(codes.values)
        if place == self._size:
            return
        codes.reach(self._size)
        while place < self._size and self._given < self.span:
            part = places.own()[self._given : self._given + config.CODES_SEARCHED]
            free = self._given + np.flatnonzero(part == NO_CODE)[: self._size - place]
            places.values[free] = np.arange(place, place + len(free))
            codes.values[place : place + len(free)] = free
            place += len(free)
            self._given = int(free[-1]) + 1 if place == self._size else self._given + len(part)
        if place < self._size:
            codes.values[place:] = np.arange(self.span, self.span + self._size - place)
            places.extend(np.arange(place, self._size))
            self._given = self.span

    def take(self, codes: NDArray[Any]) -> pa.Array:
        """Return the words of codes; null for one that no word has."""
        places = codes if self._places is None else _look_up(self._places, codes)
        return self._stored().take(pa.array(places, mask=places == NO_CODE))

    def _stored(self) -> pa.Array:
        """Return the words by place, over the vocabulary's own bytes (no copy)."""
        offsets = self._words.offsets[: self._size + 1]
        data = self._words.bytes[: offsets[-1]]
        return pa.LargeStringArray.from_buffers(self._size, pa.py_buffer(offsets), pa.py_buffer(data))

    def decode(self, codes: Any) -> list[str | None]:
        """Return the word of each code; None for :data:`NO_CODE`."""
        codes = np.asarray(codes, np.int64)
        if codes.size and not -1 <= codes.min() <= codes.max() < self.span:
            bad = codes[(codes < -1) | (codes >= self.span)][0]
            raise ColumnError(f"code {bad} is not in this vocabulary of {self._size:,} words")
        result: list[str | None] = self.take(codes).to_pylist()
        return result

    def by_frequency(self) -> NDArray[np.int32]:
        """Return the codes from the most to the least frequent word, ties by code."""
        return np.argsort(-self.counts, kind="stable")[: self._size].astype(np.int32)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the flat arrays that :meth:`from_arrays` takes."""
        offsets = self._words.offsets[: self._size + 1]
        arrays: dict[str, NDArray[Any]] = {
            "slots": self._words.slots,
            "offsets": offsets,
            "bytes": self._words.bytes[: offsets[-1]],
            "counts": self._words.counts[: self._size],
        }
        return arrays if self._places is None else arrays | {"places": self._places.values}

    @classmethod
    def from_arrays(cls, arrays: Arrays) -> Vocabulary:
        """Return the vocabulary that the arrays came from, on the same arrays."""
        vocabulary = cls()
        words = Words(**{name: arrays[name] for name in Words._fields})
        checked_offsets(words.offsets, len(words.counts), len(words.bytes), "word")
        if (
            words.slots.ndim != 2
            or len(words.slots) <= len(words.counts)
            or len(words.slots).bit_count() != 1
        ):
            raise ColumnError(f"{len(words.slots):,} slots for {len(words.counts):,} words")
        if not words.bytes.size:  # the kernel reads at least one byte
            words = words._replace(bytes=np.zeros(1, np.uint8))
        vocabulary._words = words
        vocabulary._size = vocabulary._words.counts.size
        if "places" in arrays:
            vocabulary._restore_codes(arrays["places"])
        return vocabulary

    def _restore_codes(self, places: NDArray[np.int32]) -> None:
        """Take the places of the words by code."""
        check_positions(places, self._size, "places of words", none=True)
        used = np.flatnonzero(places != NO_CODE)
        codes = np.full(self._size, NO_CODE, np.int32)
        codes[places[used]] = used
        if len(used) != self._size or (codes == NO_CODE).any():
            raise ColumnError(f"{len(used):,} codes for {self._size:,} words, or two for the same word")
        self._places, self._codes = (GrowableArray(array, spare=1.0) for array in (places, codes))

    def _grow(self, length: int, limit: int) -> None:
        """Make room for one more word of *length* bytes; each array that is full doubles."""
        slots, offsets, data, counts = self._words
        used = int(offsets[self._size])
        if used + length > data.size:
            data = _widen(data, used, used + max(used, length, 64))
        if self._size >= counts.size:
            if self._size >= _MAX_WORDS:
                raise ColumnError(f"a vocabulary holds at most {_MAX_WORDS:,} words")
            room = self._size + max(self._size, 8)
            counts = _widen(counts, self._size, room)
            offsets = _widen(offsets, self._size + 1, room + 1)
        if self._size >= limit:
            if self._next is None:
                self._next, self._moved = np.zeros((len(slots) * 2, 2), np.uint64), 0
            slots, self._next = self._next, None
            hashing.rehash(Words(slots, offsets, data, counts), self._moved, self._size)
        self._words = Words(slots, offsets, data, counts)

    def _prepare(self, added: int) -> None:
        """Fill a larger table of slots ahead of time, some words with each call, so that no call has to do it all."""
        if self._next is None:
            self._next = np.zeros((len(self._words.slots) * 2, 2), np.uint64)
            self._cleared = self._moved = 0
        self._owed += config.HASH_MOVES * added
        if self._owed < config.HASH_MOVES_AT_ONCE:
            return
        # Words go anywhere in the table, and the first to come into a page waits until the system has cleared it; a
        # huge page takes milliseconds. So all pages are touched in order before any word moves.
        pages = min(self._owed, -(-(len(self._next) - self._cleared) // _SLOTS_A_PAGE))
        stop = self._cleared + pages * _SLOTS_A_PAGE
        self._next[self._cleared : stop : _SLOTS_A_PAGE] = 0
        self._cleared = min(stop, len(self._next))
        stop, self._owed = min(self._moved + self._owed - pages, self._size), 0
        if stop > self._moved:
            hashing.rehash(self._words._replace(slots=self._next), self._moved, stop)
            self._moved = stop


def _look_up(column: GrowableArray, positions: NDArray[Any]) -> NDArray[np.int32]:
    """Return the values at the given positions; :data:`NO_CODE` where there is none."""
    if not len(column.values):
        return np.full(len(positions), NO_CODE, np.int32)
    return np.where(positions == NO_CODE, np.int32(NO_CODE), column.values[positions])


def _widen(array: NDArray[Any], used: int, room: int) -> NDArray[Any]:
    """Return an array with room for *room* values; it begins with the *used* values of the given one."""
    wider = roomy(array, room)
    wider[:used] = array[:used]
    return wider


def string_array(strings: Iterable[str] | pa.Array) -> pa.Array:
    """Return *strings* as an Arrow array of strings (32- or 64-bit offsets, or a dictionary of such)."""
    if isinstance(strings, pa.ChunkedArray):
        strings = strings.combine_chunks()
    if isinstance(strings, str):
        raise ColumnError(
            f"words must be several strings, not the one string {shown(strings)}; put it in a list"
        )
    if not isinstance(strings, pa.Array):
        try:
            strings = pa.array(
                strings if isinstance(strings, list | np.ndarray) else list(strings), pa.large_string()
            )
        except (pa.ArrowInvalid, pa.ArrowTypeError, TypeError) as error:
            raise ColumnError(f"words must be strings: {error}") from None
    kind = strings.type
    values = kind.value_type if pa.types.is_dictionary(kind) else kind
    if pa.types.is_string(values) or pa.types.is_large_string(values):
        return strings
    if pa.types.is_string_view(values) or pa.types.is_null(values):
        return strings.cast(pa.large_string())
    raise ColumnError(f"words must be a column of strings, not of {shown(str(kind))}")


def string_buffers(array: pa.Array) -> tuple[NDArray[np.uint8], NDArray[Any], NDArray[np.bool_] | None]:
    """Return (bytes, offsets, validity) of a string array as read-only NumPy views; no copy."""
    _, offset_buffer, data_buffer = array.buffers()
    kind: Any = np.int64 if pa.types.is_large_string(array.type) else np.int32
    if offset_buffer is None or offset_buffer.size == 0:
        offsets = np.zeros(1, np.int64)
    else:
        offsets = np.frombuffer(offset_buffer, kind)[array.offset : array.offset + len(array) + 1]
        offsets = offsets.astype(np.int64, copy=False)
    data = np.zeros(0, np.uint8) if data_buffer is None else np.frombuffer(data_buffer, np.uint8)
    valid = array.is_valid().to_numpy(zero_copy_only=False) if array.null_count else None
    return _seal(data), _seal(offsets), valid


def _join(strings: list[Any]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return (bytes, offsets) of a few strings, as :func:`string_buffers` does, but without building an Arrow array."""
    try:
        words = [word if isinstance(word, bytes) else word.encode() for word in strings]
    except AttributeError:
        wrong = next(word for word in strings if not isinstance(word, str))
        raise ColumnError(f"words must be strings, not {shown(wrong)}") from None
    offsets = np.array([0, *accumulate(map(len, words))])
    return np.frombuffer(b"".join(words), np.uint8), _seal(offsets)


def _seal(array: NDArray[Any]) -> NDArray[Any]:
    """Make an array read-only and return it: a writable one is another type to the compiler, which compiles again."""
    array.flags.writeable = False
    return array


def _spread(codes: NDArray[np.int32], array: pa.DictionaryArray) -> NDArray[np.int32]:
    """Return the code of each element of a dictionary array, given the codes of its dictionary."""
    indices = array.indices.fill_null(len(codes)).to_numpy(zero_copy_only=False).astype(np.int64)
    spread: NDArray[np.int32] = np.append(codes, np.int32(NO_CODE))[indices]
    return spread
