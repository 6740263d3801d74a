"""Ids as columns: all strings or all 64-bit integers, each stored once and looked up by a kernel."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from nearcast import config
from nearcast.columns.growable import GrowableArray
from nearcast.columns.parts import Arrays, nested, part_of
from nearcast.columns.ragged import check_positions, checked_offsets
from nearcast.columns.vocabulary import Vocabulary, string_buffers
from nearcast.errors import ColumnError, DuplicateError, UnknownError, counted, shown

__all__ = [
    "IdColumn",
    "Ids",
    "TypedIds",
    "arrays_of_ids",
    "id_array",
    "id_kind",
    "id_words",
    "ids_from_arrays",
    "kind_named",
]

_NONE = -1
_STRINGS, _INTEGERS = pa.large_string(), pa.int64()  # a kind of ids is one of these two objects
_KINDS = {str: _STRINGS, int: _INTEGERS}
_NO_ROWS, _NO_INTEGERS = np.empty(0, np.int64), np.empty(0, np.int64)
_BY_NAME = {str(kind): kind for kind in _KINDS.values()}


def id_array(ids: Any, size: int, name: str) -> pa.Array | None:
    """Return *ids* as an Arrow array of *size* strings or 64-bit integers, or None."""
    if ids is None:
        return None
    try:
        array = ids.combine_chunks() if isinstance(ids, pa.ChunkedArray) else pa.array(ids)
        if pa.types.is_dictionary(array.type):
            array = array.dictionary_decode()
        if pa.types.is_integer(array.type):
            array = array.cast(pa.int64())
        elif any(
            test(array.type) for test in (pa.types.is_large_string, pa.types.is_string_view, pa.types.is_null)
        ):
            array = array.cast(pa.string())
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError, TypeError):
        raise ColumnError(
            f"{name} must be all strings or all integers of 64 bits, not {shown(ids)}"
        ) from None
    if len(array) != size:
        raise ColumnError(f"{name}: {len(array):,} for {counted(size, 'row')}; give one for each row")
    if array.null_count:
        row = array.is_null().to_numpy(zero_copy_only=False).argmax()
        raise ColumnError(f"{name} has no value in row {row}; every row needs an id")
    if pa.types.is_string(array.type):
        _refuse_empty(array, name)
    elif not pa.types.is_integer(array.type):
        raise ColumnError(f"{name} must be strings or integers, not {array.type}")
    return array


def _refuse_empty(array: pa.Array, name: str) -> None:
    if not len(array):
        return
    offsets = np.frombuffer(array.buffers()[1], np.int32)[array.offset : array.offset + len(array) + 1]
    empty = offsets[1:] == offsets[:-1]
    if empty.any():
        raise ColumnError(f"{name} is empty in row {int(empty.argmax())}; every row needs an id")


def id_kind(given: Any, name: str) -> pa.DataType | None:
    """Return the Arrow type for ``str``, ``int``, or None (the first ids decide)."""
    if given is None or given in _KINDS:
        return None if given is None else _KINDS[given]
    raise ColumnError(f"{name} are str or int, not {shown(given)}")


def kind_named(name: str | None) -> pa.DataType | None:
    """Return the type of ids whose :attr:`TypedIds.kind_name` is *name*."""
    return None if name is None else _BY_NAME[name]


class IdColumn(NamedTuple):
    """A column of ids: entry i is ``words[codes[i]]``. Other columns may share *words*.

    *words* never changes while the column exists. The ids become Python objects, or an Arrow array (a dictionary array
    if they are strings), only on request.
    """

    codes: NDArray[Any]
    words: Any  # an Arrow array of strings, a NumPy array of integers, or a list of either

    def to_arrow(self) -> pa.Array:
        """Return the column: integers, or a dictionary of strings."""
        words = self.words
        if isinstance(words, np.ndarray):
            return pa.array(words[self.codes])
        if isinstance(words, list):
            words = pa.array(words, pa.int64() if words and isinstance(words[0], int) else pa.large_string())
        if pa.types.is_integer(words.type):
            return words.take(pa.array(self.codes))
        if not pa.types.is_large_string(words.type):
            words = words.cast(pa.large_string())
        codes = pa.array(self.codes.astype(np.int32, copy=False))
        return pa.DictionaryArray.from_arrays(codes, words, safe=False)

    def plain(self) -> pa.Array:
        """Return the column as strings or integers."""
        array = self.to_arrow()
        return array.dictionary_decode() if pa.types.is_dictionary(array.type) else array

    def to_pylist(self) -> list[Any]:
        """Return the ids as Python objects."""
        if isinstance(self.words, np.ndarray):
            return list(self.words[self.codes].tolist())
        if isinstance(self.words, list):
            return [self.words[code] for code in self.codes.tolist()]
        return list(self.words.take(pa.array(self.codes)).to_pylist())

    def __getitem__(self, rows: Any) -> IdColumn:
        """Return the ids of some entries: a slice, or an array of positions."""
        return IdColumn(self.codes[rows], self.words)

    @classmethod
    def joined(cls, columns: Sequence[IdColumn]) -> IdColumn:
        """Return several columns, one after the other; words that all of them share stay shared."""
        words = columns[0].words
        if all(column.words is words for column in columns):
            return cls(np.concatenate([column.codes for column in columns]), words)
        words = pa.concat_arrays([column.plain() for column in columns])
        return cls(np.arange(len(words), dtype=np.int32), words)


class _Names(NamedTuple):
    """Ids and their codes; the code of an id is never given to another one."""

    words: Vocabulary
    rows: GrowableArray  # by code: the row that the id names, -1 for none
    codes: GrowableArray  # by row: the code of its id


class TypedIds:
    """Ids of one type, which is given, or decided by the first id; *what* says what they identify."""

    def __init__(self, what: str, kind: pa.DataType | None = None) -> None:
        self._what = what
        self._kind = kind

    @property
    def kind(self) -> pa.DataType | None:
        """The type of the ids: ``large_string``, ``int64``, or None before the first id."""
        return self._kind

    @property
    def kind_name(self) -> str | None:
        """The name of :attr:`kind`, as it is saved."""
        return None if self._kind is None else str(self._kind)

    def check(self, ids: pa.Array | list[Any]) -> None:
        """Raise if ids differ in type from earlier ids or, in a list, from each other."""
        if not len(ids):
            return
        if isinstance(ids, list) and len(ids) > 1:
            wrong = next((key for key in ids if isinstance(key, str) != isinstance(ids[0], str)), None)
            if wrong is not None:
                raise ColumnError(
                    f"the ids of {self._what}s are all strings or all integers; {shown(ids[0])} and {shown(wrong)} "
                    "do not mix"
                )
        if not self._fits(ids):
            mine, theirs = ("strings", "integers") if self._kind is _STRINGS else ("integers", "strings")
            raise ColumnError(
                f"the ids of {self._what}s are {mine} here, and {shown(_id_at(ids, 0))} is not one; "
                f"{theirs} and {mine} do not mix, so give all of them as {mine}"
            )

    def settle(self, ids: pa.Array | list[Any]) -> None:
        """Let *ids* decide the type if none is fixed yet; raise if they are of another type."""
        self.check(ids)
        if self._kind is None and len(ids):
            self._kind = _INTEGERS if _are_integers(ids) else _STRINGS

    def no_ids(self) -> IdColumn:
        """Return an empty column of this type."""
        return IdColumn(_NO_ROWS, _NO_INTEGERS if self._kind is _INTEGERS else [])

    def _fits(self, ids: pa.Array | list[Any]) -> bool:
        return self._kind is None or (self._kind is _INTEGERS) == _are_integers(ids)


class Ids(TypedIds):
    """Ids that name rows, stored and looked up as columns; their type is fixed once.

    An id keeps its code while others come and go, so that columns of deliveries share the words without copying them.
    When most ids name nothing any more, the others move to new words, some with each call, and the rest are left
    behind.

    >>> ids = Ids("subscription")
    >>> ids.put(pa.array(["anna", "ben"]), np.array([0, 1]))
    >>> ids.find(pa.array(["ben", "carl"])), ids.column(np.array([1, 0])).to_pylist()
    (array([ 1, -1], dtype=int32), ['ben', 'anna'])
    """

    def __init__(self, what: str, kind: pa.DataType | None = None) -> None:
        super().__init__(what, kind)
        self._names = _empty_names(0)
        self._next: _Names | None = None  # where the ids are moving, if they are
        self._moved = 0  # the ids of the rows before this one have moved
        self._size = 0
        self._dictionary: Any = None

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[Any]:
        """Iterate over the ids that name a row, in the order in which they first came."""
        return iter(self.column(self.present()).to_pylist())

    def present(self) -> NDArray[np.int64]:
        """Return the rows that have an id, in the order of their ids' codes."""
        rows = self._names.rows.values
        return rows[rows >= 0].astype(np.int64)

    def row(self, id: Any) -> int:
        """Return the row of one id; -1 if it names none, or is of another type."""
        if isinstance(id, str):
            if self._kind is not None and self._kind is not _STRINGS:
                return _NONE
            code = self._names.words.code(id.encode("utf-8", "surrogatepass"))
        elif isinstance(id, int | np.integer) and not isinstance(id, bool) and self._kind is _INTEGERS:
            if not -(2**63) <= id < 2**63:
                return _NONE
            code = self._names.words.code(int(id).to_bytes(8, "little", signed=True))
        else:
            return _NONE
        return _NONE if code < 0 else int(self._names.rows.values[code])

    def find(self, ids: pa.Array | list[Any]) -> NDArray[np.int32]:
        """Return the row of each id; -1 if it names none."""
        if not self._size or not len(ids) or not self._fits(ids):
            return np.full(len(ids), _NONE, np.int32)
        codes = self._names.words.encode(id_words(ids))
        rows = self._names.rows.values
        return np.where(codes < 0, np.int32(_NONE), rows[codes])

    def named(self, rows: NDArray[Any]) -> NDArray[Any]:
        """Return those of the given rows that an id names."""
        return _named_rows(self._names, rows)

    def rows(self, ids: Any) -> NDArray[np.int64]:
        """Return the rows of one id, of several, or of the column ``id`` of a table; raise if one names nothing.

        Several ids are an iterable, or a column of any library: Arrow, pandas, Polars, NumPy.
        """
        if isinstance(ids, str | Integral):
            ids = [ids]
        elif isinstance(ids, Mapping) or hasattr(ids, "columns"):
            names = getattr(ids, "column_names", getattr(ids, "columns", ids))
            if "id" not in names:
                there = ", ".join(map(str, names))
                raise ColumnError(f"a table of {self._what}s needs a column id; the columns are {there}")
            ids = ids["id"]
        elif not isinstance(ids, Iterable):
            raise UnknownError(f"there is no {self._what} {shown(ids)}; give an id, or several")
        if isinstance(ids, np.ndarray) or hasattr(ids, "to_numpy"):
            ids = id_array(ids, len(ids), f"ids of {self._what}s")
            found = self.find(ids).astype(np.int64)
        else:
            ids = list(ids)
            found = np.array([self.row(key) for key in ids], np.int64)
        if found.min(initial=0) < 0:
            unknown = _id_at(ids, int(found.argmin()))
            raise UnknownError(f"there is no {self._what} {shown(unknown)}")
        return found

    def check_new(self, ids: pa.Array | list[Any]) -> None:
        """Raise if ids are of another type, or if one is in use or given twice."""
        self.check(ids)
        if len(ids) == 1 and isinstance(ids, list):
            if self.row(ids[0]) < 0:
                return
            taken = np.ones(1, np.bool_)
        else:
            taken = self.find(ids) >= 0
        if taken.any():
            raise DuplicateError(
                f"{self._what} {shown(_id_at(ids, int(taken.argmax())))} exists already; "
                "remove it first, or choose another id"
            )
        names = pa.array(ids) if isinstance(ids, list) else ids
        if len(names.unique()) == len(names):
            return
        first = np.unique(names.dictionary_encode().indices.to_numpy(), return_index=True)[1]
        again = np.delete(np.arange(len(names)), first)
        raise DuplicateError(
            f"{self._what} {shown(_id_at(ids, int(again[0])))} is given twice in one call; give it once"
        )

    def put(self, ids: pa.Array | list[Any], rows: NDArray[Any]) -> None:
        """Give rows their ids, which are distinct and name nothing yet."""
        if not len(ids):
            return
        self.settle(ids)
        words = id_words(ids)
        _put(self._names, self._names.words.add(words), rows)
        if self._next is not None:
            behind = rows < self._moved
            if behind.any():
                if not behind.all():
                    every: Any = id_words(pa.array(ids))
                    words = every.filter(pa.array(behind))
                _put(self._next, self._next.words.add(words), rows[behind])
        self._size += len(ids)
        self._step(len(ids))

    def drop(self, rows: NDArray[Any]) -> None:
        """Take the ids of the given rows away; they name nothing from now on."""
        if not len(rows):
            return
        names = self._names
        names.rows.values[names.codes.values[rows]] = _NONE
        if self._next is not None:
            behind = rows[rows < self._moved]
            self._next.rows.values[self._next.codes.values[behind]] = _NONE
        self._size -= len(rows)
        self._step(len(rows))

    def column(self, rows: NDArray[Any]) -> IdColumn:
        """Return the current ids of rows."""
        return IdColumn(self._names.codes.values[rows], self._words())

    @property
    def nbytes(self) -> int:
        """Memory of the ids and of the tables that find them."""
        parts = (self._names,) if self._next is None else (self._names, self._next)
        return sum(part.words.nbytes + part.rows.nbytes + part.codes.nbytes for part in parts)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the flat arrays that :meth:`restored` takes."""
        names = self._names
        own = {"rows": names.rows.values, "codes": names.codes.values}
        return own | nested(words=names.words.arrays())

    @classmethod
    def restored(cls, what: str, kind: str | None, arrays: Arrays) -> Ids:
        """Return the ids that the arrays came from, on the same arrays; *kind* is their :attr:`kind_name`."""
        words, rows, codes = Vocabulary.from_arrays(part_of(arrays, "words")), arrays["rows"], arrays["codes"]
        if len(rows) != len(words):
            raise ColumnError(f"{len(rows):,} rows for {len(words):,} ids of {what}s")
        check_positions(rows, len(codes), f"rows of {what}s", none=True)
        check_positions(codes, len(words), f"codes of {what}s", none=True)
        ids = cls(what, kind_named(kind))
        ids._names = _Names(
            words,
            GrowableArray(rows, borrowed=False, spare=1.0),
            GrowableArray(codes, borrowed=False, spare=1.0),
        )
        ids._size = int(np.count_nonzero(rows >= 0))
        return ids

    def _words(self) -> Any:
        """Return the ids by code; existing ones are never changed in place, so columns may share them."""
        words = self._names.words
        if self._dictionary is None or len(self._dictionary) != len(words):
            array = words.words
            if self._kind is _INTEGERS:
                array = np.frombuffer(array.buffers()[2] or b"", np.int64)[: len(words)]
            self._dictionary = array
        return self._dictionary

    def _step(self, count: int) -> None:
        """Move some ids to new words, if most of the present ones name nothing or a move has begun."""
        names = self._names
        if self._next is None:
            if len(names.words) < max(config.ID_MIN_DEAD, config.ID_WASTE * self._size):
                return
            self._next, self._moved = _empty_names(2 * self._size), 0
        rows = len(names.codes.values)
        stop = min(self._moved + config.ID_MOVES * count + config.ID_MOVES_A_CALL, rows)
        part = _named_rows(names, np.arange(self._moved, stop))
        if len(part):
            words = names.words.words.take(pa.array(names.codes.values[part]))
            _put(self._next, self._next.words.add(words), part)
        self._moved = stop
        if stop == rows:
            new = self._next
            new.codes.fill(rows - len(new.codes.values), _NONE)
            self._names, self._next, self._dictionary = new, None, None


def _empty_names(room: int) -> _Names:
    nothing = np.empty(0, np.int32)
    return _Names(
        Vocabulary(room=room),
        GrowableArray(nothing, borrowed=False, spare=1.0),
        GrowableArray(nothing, borrowed=False, spare=1.0),
    )


def _are_integers(ids: pa.Array | list[Any]) -> bool:
    return not isinstance(ids[0], str) if isinstance(ids, list) else bool(pa.types.is_integer(ids.type))


def _id_at(ids: pa.Array | list[Any], position: int) -> Any:
    return ids[position] if isinstance(ids, list) else ids[position].as_py()


def _put(names: _Names, codes: Any, rows: NDArray[Any]) -> None:
    last = int(rows[0]) if len(rows) == 1 else int(rows.max())
    for column, size in ((names.rows, len(names.words)), (names.codes, last + 1)):
        if size > len(column.values):
            column.fill(size - len(column.values), _NONE)
    at: Any = rows
    if len(rows) == 1:  # a single number is a much faster index than an array
        codes, at = int(codes[0]), last
    names.rows.values[codes] = at
    names.codes.values[at] = codes


def _named_rows(names: _Names, rows: NDArray[Any]) -> NDArray[Any]:
    """Return those of the given rows that an id names."""
    codes = names.codes.values
    rows = rows[rows < len(codes)]
    rows = rows[codes[rows] >= 0]
    named: NDArray[Any] = rows[names.rows.values[codes[rows]] == rows]
    return named


def id_words(ids: pa.Array | list[Any]) -> pa.Array | list[Any]:
    """Return ids as words for a vocabulary; an integer becomes a word of eight bytes."""
    if isinstance(ids, list):
        if isinstance(ids[0], str):
            return ids
        if len(ids) < config.FEW_STRINGS:
            return [key.to_bytes(8, "little", signed=True) for key in ids]
        ids = pa.array(ids, pa.int64())
    if not pa.types.is_integer(ids.type):
        return ids
    numbers = np.ascontiguousarray(ids.to_numpy(zero_copy_only=False), np.int64)
    offsets = np.arange(len(numbers) + 1, dtype=np.int64) * 8
    return pa.LargeStringArray.from_buffers(len(numbers), pa.py_buffer(offsets), pa.py_buffer(numbers))


def arrays_of_ids(ids: pa.Array | None) -> dict[str, NDArray[Any]]:
    """Return the flat arrays that :func:`ids_from_arrays` takes; none if there are no ids."""
    if ids is None:
        return {}
    if pa.types.is_integer(ids.type):
        return {"values": ids.to_numpy()}
    data, offsets, _ = string_buffers(ids)
    return {"offsets": (offsets - offsets[0]).astype(np.int32), "bytes": data[offsets[0] : offsets[-1]]}


def ids_from_arrays(arrays: Arrays) -> pa.Array | None:
    """Return the ids that these arrays came from, without copying them."""
    if not arrays:
        return None
    if "values" in arrays:
        return pa.array(arrays["values"])
    offsets, data = arrays["offsets"], arrays["bytes"]
    checked_offsets(offsets, len(offsets) - 1, len(data), "id")
    return pa.StringArray.from_buffers(len(offsets) - 1, pa.py_buffer(offsets), pa.py_buffer(data))
