"""The two spaces: longitude and latitude on the globe, and a rectangle of the plane."""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Real
from typing import Any, ClassVar, Final, TypeAlias

from nearcast.errors import GeometryError, shown

__all__ = ["WGS84", "Bounds", "Boxes", "Geographic", "Planar", "Space", "checked_space", "number", "wrapped"]

Bounds: TypeAlias = tuple[float, float, float, float]  # xmin, ymin, xmax, ymax
Boxes: TypeAlias = tuple[Bounds, ...]


@dataclass(frozen=True, slots=True)
class Geographic:
    """Longitude and latitude in degrees on WGS84, with distances in metres. The only instance is :data:`WGS84`."""

    axes: ClassVar[tuple[str, str]] = ("longitude", "latitude")

    def check(self, x: float, y: float) -> None:
        """Raise :class:`GeometryError` unless (*x*, *y*) is a longitude and a latitude."""
        if not -90 <= y <= 90:
            hint = "; are longitude and latitude swapped?" if 90 < abs(y) <= 180 and abs(x) <= 90 else ""
            raise GeometryError(
                f"latitude {y!r} is outside [-90, 90]{hint or '; latitudes are degrees north of the equator'}"
            )
        if not -180 <= x <= 180:
            raise GeometryError(
                f"longitude {x!r} is outside [-180, 180]; write it as {wrapped(x)!r}, and an area that "
                "crosses the antimeridian as a Box with xmin > xmax or as a MultiPolygon split there"
            )

    def __repr__(self) -> str:
        return "WGS84"

    def __reduce__(self) -> str:
        return "WGS84"


@dataclass(frozen=True, slots=True)
class Planar:
    """A rectangle of the plane, in any unit; distances are Euclidean, in the same unit.

    >>> from nearcast.geometry import Point
    >>> Point(x=3, y=4, space=Planar(0, 0, 10, 10))
    Point(x=3.0, y=4.0, space=Planar(xmin=0.0, ymin=0.0, xmax=10.0, ymax=10.0))
    """

    xmin: float
    ymin: float
    xmax: float
    ymax: float
    axes: ClassVar[tuple[str, str]] = ("x", "y")

    def __post_init__(self) -> None:
        for name in ("xmin", "ymin", "xmax", "ymax"):
            object.__setattr__(self, name, number(getattr(self, name), name))
        if self.xmin > self.xmax or self.ymin > self.ymax:
            raise GeometryError(
                f"a planar space needs xmin <= xmax and ymin <= ymax, not {self!r}; swap the ends"
            )

    def check(self, x: float, y: float) -> None:
        """Raise :class:`GeometryError` unless (*x*, *y*) is in the rectangle."""
        if not (self.xmin <= x <= self.xmax and self.ymin <= y <= self.ymax):
            raise GeometryError(f"({x!r}, {y!r}) is outside {self!r}; widen the space or clip the coordinate")


WGS84: Final = Geographic()
Space: TypeAlias = Geographic | Planar


def number(value: Any, name: str) -> float:
    """Return *value* as a finite float."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise GeometryError(f"{name} {shown(value)} is not a number; give a finite one")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise GeometryError(f"{name} is {number!r}; coordinates and distances are finite numbers")
    return number


def checked_space(space: Any) -> Space:
    """Return *space*; raise if it is not a space."""
    if not isinstance(space, Geographic | Planar):
        raise GeometryError(f"{shown(space)} is not a space; give WGS84 or Planar(xmin, ymin, xmax, ymax)")
    return space


def wrapped(lon: float) -> float:
    """Return *lon* in [-180, 180)."""
    return (lon + 180) % 360 - 180
