"""Ids as columns: strings or 64-bit integers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nearcast.errors import ColumnError, shown

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["id_array"]


def id_array(ids: Any, size: int, name: str) -> pa.Array | None:
    """Return *ids* as an Arrow array of *size* strings or 64-bit integers, or None."""
    if ids is None:
        return None
    import pyarrow as pa

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
        raise ColumnError(f"{len(array)} {name} for {size} rows")
    if array.null_count:
        row = array.is_null().to_numpy(zero_copy_only=False).argmax()
        raise ColumnError(f"{name} has no value in row {row}; every row needs an id")
    if not (pa.types.is_integer(array.type) or pa.types.is_string(array.type)):
        raise ColumnError(f"{name} must be strings or integers, not {array.type}")
    return array
