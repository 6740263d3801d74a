"""The demonstration: the sample data that ships with the package, and the pages that show a run on a map."""

from __future__ import annotations

from importlib.resources import files
from typing import TYPE_CHECKING

from nearcast.demo.report import write_report
from nearcast.errors import UnknownError, shown

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["sample", "write_report"]

_SAMPLES = ("messages", "subscriptions", "places")


def sample(name: str) -> pa.Table:
    """Return one table of the sample data: ``"messages"``, ``"subscriptions"`` or ``"places"``.

    The data is one invented day around New York. The place names are from GNIS, a work of the US government in the
    public domain; the messages and subscriptions are generated.

    >>> sample("messages").column_names[:4]
    ['id', 'text', 'lon', 'lat']
    """
    import pyarrow.parquet as pq

    if name not in _SAMPLES:
        raise UnknownError(f"there is no sample table {shown(name)}; there are {', '.join(_SAMPLES)}")
    with files("nearcast.demo").joinpath("data", f"{name}.parquet").open("rb") as file:
        return pq.read_table(file)
