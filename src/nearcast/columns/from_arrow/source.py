"""A table that is being read: its columns, and how errors name its rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from nearcast.columns.from_arrow.declared import under_geometry, with_geometry
from nearcast.columns.ids import id_array
from nearcast.errors import ColumnError, InputError, shown

__all__ = ["Refusals", "Source", "arrow_table", "is_list", "is_number", "is_text"]

_T = TypeVar("_T")

#: The rows that cannot be used, each with the kind of its first mistake and the sentence that describes it.
Refusals = dict[int, tuple[str, str]]


# Types by their numbers: looking a number up in a set takes a fifth of the time of the tests in pa.types, which counts
# for a table of one row.
_TEXTS = {pa.string().id, pa.large_string().id, pa.string_view().id}
_LISTS = {
    kind.id
    for kind in (
        pa.list_(pa.null()),
        pa.large_list(pa.null()),
        pa.list_(pa.null(), 1),
        pa.list_view(pa.null()),
        pa.large_list_view(pa.null()),
    )
}
_FLOAT64, _DICTIONARY = pa.float64(), pa.dictionary(pa.int32(), pa.null()).id


def is_text(kind: pa.DataType) -> bool:
    """Tell whether a type holds strings, in any layout; a dictionary of strings does."""
    return _plain(kind).id in _TEXTS


def is_number(kind: pa.DataType) -> bool:
    """Tell whether a type holds integers, floats or decimals; a dictionary of them does."""
    kind = _plain(kind)
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def is_list(kind: pa.DataType) -> bool:
    """Tell whether a type holds lists, in any layout."""
    return kind.id in _LISTS


def _plain(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if kind.id == _DICTIONARY else kind


def arrow_table(table: Any) -> pa.Table:
    """Return *table* as an Arrow table; one that already is an Arrow table is not copied."""
    if isinstance(table, pa.Table):
        return table
    if isinstance(table, pa.RecordBatch):
        return pa.Table.from_batches([table])
    try:
        if isinstance(table, Mapping):
            return pa.table(dict(table))
        if hasattr(table, "to_arrow") and hasattr(table, "geometry"):  # GeoPandas: its own export writes WKB
            name = table.geometry.name
            return under_geometry(pa.table(table.to_arrow(index=False)), name)
        if hasattr(table, "__arrow_c_stream__"):
            return pa.table(table)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise ColumnError(f"this {type(table).__name__} cannot be read as a table: {error}") from None
    raise ColumnError(
        f"{shown(table)} is not a table; give an Arrow, pandas, GeoPandas or Polars table, or a dict of columns"
    )


class Source:
    """The columns of a table, each as one Arrow array.

    A mistake in a row is an error. With *refusals* it is noted there instead, reading goes on, and the result for that
    row has no meaning. :attr:`crs` is the declared coordinate system of the geometry, if any; :attr:`what` says what a
    row is: a message, a subscription or a move.
    """

    def __init__(self, table: Any, what: str, refusals: Refusals | None = None) -> None:
        self._table, self.crs = with_geometry(arrow_table(table))
        self.what = what
        self._refusals = refusals
        names = self._table.column_names
        if len(set(names)) != len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise ColumnError(f"the {what}s have two columns {shown(twice)}; leave one out")
        self._columns: dict[str, Any] = dict(zip(names, self._table.columns))
        self.ids = id_array(self["id"], self.size, "id") if "id" in self else None

    def __contains__(self, name: str) -> bool:
        return name in self._columns

    def __getitem__(self, name: str) -> pa.Array:
        column = self._columns[name]
        if isinstance(column, pa.ChunkedArray):
            array = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
            column = self._columns[name] = array.storage if isinstance(array, pa.ExtensionArray) else array
        return column

    @property
    def size(self) -> int:
        """The number of rows."""
        return int(self._table.num_rows)

    @property
    def names(self) -> list[str]:
        """The names of the columns."""
        return list(self._columns)

    def strings(self, name: str) -> pa.Array:
        """Return a column of strings."""
        column = self[name]
        if not is_text(column.type) and not pa.types.is_null(column.type):
            raise ColumnError(f"{name} must be a column of strings, not of {column.type}")
        return column.cast(pa.large_string())

    def numbers(self, names: tuple[str, ...]) -> NDArray[np.float64] | None:
        """Return columns side by side as float64[n, k], NaN for null; None if the table has none of them."""
        missing = [name for name in names if name not in self]
        if len(missing) == len(names):
            return None
        if missing:
            raise ColumnError(
                f"the columns {', '.join(names)} belong together; there is no {' and no '.join(missing)}, "
                "so add what is missing, or leave out the rest"
            )
        return self.floats([self[name] for name in names], ", ".join(names))

    def floats(self, columns: list[pa.Array], name: str) -> NDArray[np.float64]:
        """Return arrays side by side as float64[n, k], NaN for null."""
        out = np.empty((self.size, len(columns)))
        for i, column in enumerate(columns):
            if column.type != _FLOAT64:
                if not is_number(column.type) and not pa.types.is_null(column.type):
                    raise ColumnError(f"{name} must be columns of numbers, not of {column.type}")
                column = column.cast(_FLOAT64, safe=False)
            out[:, i] = column.to_numpy(zero_copy_only=False)
        return out

    def name_of(self, row: int | np.int64) -> str:
        """Return the words by which an error names a row."""
        if self._refusals is not None:
            return f"the {self.what}"
        if self.ids is None:
            return f"{self.what} row {row}"
        return f"{self.what} row {row} (id {shown(self.ids[int(row)].as_py())})"

    def refuse(self, kind: str, row: int | np.int64, error: InputError) -> None:
        """Raise an error about a row, or note it."""
        if self._refusals is None:
            raise error from None
        self._refusals.setdefault(int(row), (kind, str(error)))

    def at(
        self,
        kind: str,
        rows: int | np.int64 | Callable[[], NDArray[np.int64]],
        make: Callable[..., _T],
        *args: Any,
    ) -> _T | None:
        """Call *make*, whose error is made to name its row: the first of *rows* if there are several.

        With refusals, note the error for all of the rows and return None.
        """
        try:
            return make(*args)
        except InputError as error:
            for row in rows() if callable(rows) else (rows,):
                named = f"{self.name_of(row)}: " if self._refusals is None else ""
                self.refuse(kind, row, type(error)(f"{named}{error}"))
            return None
