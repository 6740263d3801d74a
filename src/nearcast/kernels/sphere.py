"""Distances for kernels: the very function that objects are decided by, compiled, so that the rim decides alike."""

from __future__ import annotations

from nearcast.geometry import sphere
from nearcast.kernels import kernel

__all__ = ["great_circle"]

great_circle = kernel(sphere.great_circle)
