"""Distances on the globe, by the formula that objects and kernels share."""

from __future__ import annotations

import math

from nearcast import config

__all__ = ["great_circle"]


def great_circle(lon1: float, lat1: float, lon2: float, lat2: float) -> float:
    """Return the distance in metres between two positions in degrees, on a sphere of the Earth's mean radius.

    >>> round(great_circle(0, 0, 1, 0))
    111195
    """
    phi1, phi2 = math.radians(lat1), math.radians(lat2)
    sine_phi = math.sin(math.radians(lat2 - lat1) / 2)
    sine_lambda = math.sin(math.radians(lon2 - lon1) / 2)
    haversine = sine_phi * sine_phi + math.cos(phi1) * math.cos(phi2) * sine_lambda * sine_lambda
    return 2 * config.EARTH_RADIUS_M * math.asin(min(1.0, math.sqrt(haversine)))
