"""Distances for kernels: the very function that decides for objects, compiled, so that both agree on the rim."""

from __future__ import annotations

from nearcast.geometry import sphere
from nearcast.kernels import kernel

__all__ = ["great_circle"]

great_circle = kernel(sphere.great_circle)
