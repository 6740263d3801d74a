"""What a table declares about its geometry: which column it is, and in which coordinate system.

GeoParquet declares it in the metadata of the table; GeoArrow, which GeoPandas writes, in the metadata of the column.
Spark's own types ``GEOMETRY`` and ``GEOGRAPHY`` are structs of ``srid`` and ``wkb`` in Arrow: the type of a column may
declare one coordinate system for all rows, or each row has its own.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from nearcast.columns.from_arrow.names import PLACE
from nearcast.errors import ColumnError, shown

__all__ = ["foreign_crs", "geoparquet", "is_spark_geometry", "spark_crs", "under_geometry", "with_geometry"]

_SRIDS = (0, 4326)  # not declared, and WGS84
_NAME, _METADATA = b"ARROW:extension:name", b"ARROW:extension:metadata"


def with_geometry(table: pa.Table) -> tuple[pa.Table, Any]:
    """Return the table with its geometry under the name ``geometry``, and the coordinate system, None if not declared.

    The geometry is GeoParquet's primary column, or, in a table with no other column of places, the one of GeoArrow.
    """
    schema = table.schema
    names = schema.names
    found = geoparquet(schema.metadata) if schema.metadata else None
    if found is not None and found[0] in names:
        return under_geometry(table, found[0]), found[1]
    if "geometry" in names:
        return table, _geoarrow(schema.field("geometry")).get("crs")
    if any(name in PLACE for name in names):
        return table, None
    geoarrow = [(field.name, declared) for field in schema if (declared := _geoarrow(field))]
    if len(geoarrow) != 1:
        return table, None
    ((name, declared),) = geoarrow
    return under_geometry(table, name), declared.get("crs")


def geoparquet(metadata: Mapping[bytes, bytes]) -> tuple[str, Any] | None:
    """Return the primary column and its coordinate system as the metadata declare them; None if not GeoParquet."""
    written = metadata.get(b"geo")
    if written is None:
        return None
    try:
        geo = json.loads(written)
        name, column = geo["primary_column"], geo["columns"][geo["primary_column"]]
        encoding, crs = column.get("encoding", "WKB"), column.get("crs")
    except (ValueError, LookupError, TypeError, AttributeError):
        raise ColumnError("its GeoParquet metadata cannot be read; write the file again") from None
    if encoding != "WKB":
        raise ColumnError(
            f"its geometry is encoded as {shown(encoding)}; write it as WKB, GeoParquet's default"
        )
    return str(name), crs


def _geoarrow(field: pa.Field) -> dict[str, Any]:
    """Return the declarations of a GeoArrow column; none for any other column."""
    kind = field.type
    if isinstance(kind, pa.BaseExtensionType):
        name, written = kind.extension_name, kind.__arrow_ext_serialize__()
    else:
        metadata = field.metadata or {}
        name, written = metadata.get(_NAME, b"").decode(), metadata.get(_METADATA, b"")
    if not name.startswith(("geoarrow.", "ogc.")):
        return {}
    try:
        declared = json.loads(written or b"{}")
    except ValueError:
        declared = {}
    return {"name": name, **(declared if isinstance(declared, dict) else {})}


def is_spark_geometry(kind: pa.DataType) -> bool:
    """Tell whether a type is that of Spark's geometries in Arrow."""
    if not pa.types.is_struct(kind) or [field.name for field in kind] != ["srid", "wkb"]:
        return False
    return bool(pa.types.is_integer(kind.field("srid").type) and pa.types.is_binary(kind.field("wkb").type))


def spark_crs(kind: pa.DataType) -> str | None:
    """Return the coordinate system that the type of a column declares, None if it is not declared or WGS84."""
    written = (kind.field("wkb").metadata or {}).get(b"srid", b"0").decode()
    return None if not written.isdecimal() or int(written) in _SRIDS else f"EPSG:{written}"


def foreign_crs(column: pa.Array) -> dict[int, str]:
    """Return the coordinate systems of the rows that have another than WGS84."""
    srids = pc.fill_null(pc.struct_field(column, "srid"), 0)
    known = pc.is_in(srids, pa.array(_SRIDS, srids.type))
    rows = pc.indices_nonzero(pc.invert(known)).to_pylist()
    return {row: f"EPSG:{srids[row].as_py()}" for row in rows}


def under_geometry(table: pa.Table, name: str) -> pa.Table:
    """Return the table with the column *name* renamed to ``geometry``, and without GeoParquet's metadata."""
    if name != "geometry" and "geometry" in table.column_names:
        table = table.drop_columns("geometry")
    metadata = {key: value for key, value in (table.schema.metadata or {}).items() if key != b"geo"}
    table = table.rename_columns(["geometry" if own == name else own for own in table.column_names])
    return table.replace_schema_metadata(metadata)
