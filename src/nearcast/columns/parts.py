"""Arrays under nested names: ``words/bytes`` is the array ``bytes`` of the part ``words``.

Whatever can be saved (:mod:`nearcast.storage`) returns its arrays by name, and is restored from arrays of the same
names.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray

__all__ = ["Arrays", "nested", "part_of"]

Arrays = Mapping[str, NDArray[Any]]


def nested(**parts: Arrays) -> dict[str, NDArray[Any]]:
    """Return the arrays of several parts in one mapping, with the name of the part before their own.

    >>> import numpy as np
    >>> nested(words={"offsets": np.array([0])}, rows={"words/offsets": np.array([1])})
    {'words/offsets': array([0]), 'rows/words/offsets': array([1])}
    """
    return {f"{name}/{own}": array for name, arrays in parts.items() for own, array in arrays.items()}


def part_of(arrays: Arrays, name: str) -> dict[str, NDArray[Any]]:
    """Return the arrays of one part, under their own names.

    >>> import numpy as np
    >>> part_of({"words/offsets": np.array([0]), "rows/words/offsets": np.array([1])}, "rows")
    {'words/offsets': array([1])}
    """
    prefix = f"{name}/"
    return {own.removeprefix(prefix): array for own, array in arrays.items() if own.startswith(prefix)}
