"""The coordinate reference system that data declares: anything but WGS84, longitude first, is refused."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from nearcast.errors import GeometryError, shown

__all__ = ["require_wgs84", "require_wgs84_geojson", "require_wgs84_srid"]

_WGS84 = {("OGC", "CRS84"), ("EPSG", "4326")}
# The id at the end of WKT, which is that of the whole system.
_LAST_ID = re.compile(r'(?:ID|AUTHORITY)\[\s*"(\w+)"\s*,\s*"?(\w+)"?\s*\]\s*\]\s*$', re.IGNORECASE)


def require_wgs84(crs: Any) -> None:
    """Raise GeometryError unless *crs* is WGS84, or None for "not declared".

    It may be PROJJSON, WKT, a URN, a code, or an object that gives PROJJSON, such as the ``crs`` of GeoPandas.

    >>> require_wgs84("urn:ogc:def:crs:OGC:1.3:CRS84")
    >>> require_wgs84("EPSG:3857")
    Traceback (most recent call last):
        ...
    nearcast.errors.GeometryError: the coordinates are 'EPSG:3857'; transform them to WGS84 (OGC:CRS84), longitude \
first, as GeoPandas does by .to_crs(4326)
    """
    if hasattr(crs, "to_json_dict"):
        crs = crs.to_json_dict()
    if isinstance(crs, str) and crs.lstrip().startswith("{"):
        with suppress(ValueError):  # if this is not JSON, it is not WGS84 either
            crs = json.loads(crs)
    if crs is None or (_is_wgs84(crs) if isinstance(crs, Mapping) else _is_wgs84_text(str(crs))):
        return
    name = crs.get("name", crs) if isinstance(crs, Mapping) else crs
    raise GeometryError(
        f"the coordinates are {shown(name)}; transform them to WGS84 (OGC:CRS84), longitude first, "
        "as GeoPandas does by .to_crs(4326)"
    )


def require_wgs84_srid(srid: int) -> None:
    """Raise GeometryError if the number that EWKB and shapely keep with a geometry, 0 for "none", is not WGS84's.

    >>> require_wgs84_srid(4326)
    """
    if srid > 0:
        require_wgs84(f"EPSG:{srid}")


def require_wgs84_geojson(mapping: Mapping[str, Any]) -> None:
    """Raise GeometryError if a GeoJSON object has a member ``crs``, as older GeoJSON could, that is not WGS84.

    >>> require_wgs84_geojson({"type": "Point", "coordinates": [1, 2], "crs": None})
    """
    crs = mapping.get("crs")
    properties = crs.get("properties") if isinstance(crs, Mapping) else None
    if isinstance(properties, Mapping):
        crs = properties.get("name") or properties.get("href") or crs
    require_wgs84(crs)


def _is_wgs84(crs: Mapping[str, Any]) -> bool:
    """Return whether PROJJSON is WGS84: by its id or, without an id, by its datum."""
    known = crs.get("id")
    if isinstance(known, Mapping):
        return (known.get("authority"), str(known.get("code"))) in _WGS84
    datum = crs.get("datum") or crs.get("datum_ensemble")
    return (
        crs.get("type") == "GeographicCRS"
        and isinstance(datum, Mapping)
        and str(datum.get("name")).startswith("World Geodetic System 1984")
        and "prime_meridian" not in datum  # which would be another one than Greenwich
    )


def _is_wgs84_text(crs: str) -> bool:
    if "[" in crs:
        found = _LAST_ID.search(crs)
        return found is not None and (found[1].upper(), found[2].upper()) in _WGS84
    return crs.upper().endswith(("CRS84", "EPSG::4326", "EPSG:4326", "EPSG/0/4326"))
