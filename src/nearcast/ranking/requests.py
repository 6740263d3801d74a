"""The checked arguments of new subscriptions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from nearcast import config
from nearcast.columns.ragged import code_sets, matrix
from nearcast.errors import ColumnError, shown

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nearcast.geometry import Space

__all__ = ["Requests"]


class Requests(NamedTuple):
    """New subscriptions, by row; the words of row i are ``words[offsets[i]:offsets[i + 1]]``, ascending."""

    points: NDArray[np.float64]  # [subscriptions, 2]
    offsets: NDArray[np.int64]
    words: NDArray[np.int32]
    alphas: NDArray[np.float64]
    sizes: NDArray[np.int32]  # k

    @classmethod
    def of(
        cls, points: Any, keyword_offsets: Any, keywords: Any, alpha: Any, k: Any, space: Space
    ) -> Requests:
        """Return the subscriptions, or raise where an argument is wrong."""
        xy = matrix(points, "points", 2)
        offsets, codes = code_sets(keyword_offsets, keywords, len(xy), "keyword")
        if len(xy) and (np.diff(offsets) == 0).any():
            row = int(np.flatnonzero(np.diff(offsets) == 0)[0])
            raise ColumnError(
                f"subscription {row} has no keywords; give at least one, since only messages with one are ranked"
            )
        alphas = _one_each(alpha, len(xy), np.float64, "alpha", 0.0, 1.0)
        sizes = _one_each(k, len(xy), np.int32, "k", 1, config.RANKING_MAX_K)
        if not np.isfinite(xy).all():
            raise ColumnError("points must be finite numbers")
        if len(xy):
            for x, y in (xy.min(axis=0).tolist(), xy.max(axis=0).tolist()):
                space.check(x, y)
        return cls(xy, offsets, codes, alphas, sizes)


def _one_each(value: Any, count: int, kind: Any, name: str, low: float, high: float) -> NDArray[Any]:
    """Return one checked number for each of *count* rows."""
    try:
        array = np.broadcast_to(np.asarray(value), (count,))
    except ValueError:
        raise ColumnError(
            f"{name} must be one number, or one for each of {count:,} rows, not {shown(value)}"
        ) from None
    if array.dtype.kind not in ("iu" if kind is np.int32 else "iuf"):
        raise ColumnError(f"{name} must be {'whole ' if kind is np.int32 else ''}numbers, not {shown(value)}")
    wrong = ~((array >= low) & (array <= high))
    if wrong.any():
        raise ColumnError(f"{name} must be from {low} to {high}, not {array[wrong][0]}")
    return np.ascontiguousarray(array, kind)
