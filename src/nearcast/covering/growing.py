"""Arrays that grow together with the graph and its indexes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nearcast.columns.growable import GrowableArray

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["GrowingArrays", "array_bytes"]


class GrowingArrays:
    """Arrays by name, each of which grows at its end.

    A long array grows without being copied (:func:`~nearcast.columns.growable.roomy`), so no call has to wait for that.
    """

    def __init__(self, **arrays: NDArray[Any]) -> None:
        self._arrays = {name: GrowableArray(array, borrowed=False) for name, array in arrays.items()}

    def __getitem__(self, name: str) -> NDArray[Any]:
        return self._arrays[name].values

    def reach(self, name: str, rows: int, fill: Any = None) -> NDArray[Any]:
        """Grow an array to *rows* rows, if it has fewer, and write *fill* to the new ones; return the array."""
        array = self._arrays[name]
        before = len(array.values)
        if rows > before:
            array.reach(rows)
            if fill is not None:
                array.values[before:] = fill
        return array.values

    def make_room(self, name: str, rows: int, fill: Any = None) -> NDArray[Any]:
        """Grow an array to half as many rows again as *rows*, if it has fewer than *rows*; return the array."""
        return self.reach(name, rows + rows // 2, fill) if rows > len(self[name]) else self[name]


def array_bytes(arrays: dict[str, NDArray[Any]]) -> int:
    """Return the memory of some arrays."""
    return sum(array.nbytes for array in arrays.values())
