"""Messages that wait for reports: whether they concern a subscriber depends on where it is by now."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearcast.columns.ids import IdColumn
from nearcast.geometry import Box, Circle, Place, Point, Polygon, Space
from nearcast.model import Id

__all__ = ["Waiting"]


class Waiting:
    """Pairs of a subscription row and the id of a message that fits its words; it has not been told of the message.

    The engine keeps messages that expire. Of a momentary one, which it does not keep, the place is noted here.
    """

    def __init__(self) -> None:
        self._messages: dict[int, dict[Id, Place | None]] = {}  # by subscription row; None for a kept message
        self._rows: dict[Id, set[int]] = {}  # the subscription rows by message

    def __len__(self) -> int:
        return sum(map(len, self._rows.values()))

    def __bool__(self) -> bool:
        return bool(self._rows)

    def __iter__(self) -> Iterator[tuple[int, Id, Place | None]]:
        for row, messages in self._messages.items():
            for key, place in messages.items():
                yield row, key, place

    def put(self, rows: Iterable[int], message: Id, place: Place | None) -> None:
        """Let a message wait for the reports of the subscriptions in *rows*."""
        for row in rows:
            self._messages.setdefault(row, {})[message] = place
            self._rows.setdefault(message, set()).add(row)

    def of(self, row: int) -> dict[Id, Place | None]:
        """Return what waits for the report of a subscription."""
        return self._messages.get(row, {})

    def waits(self, rows: NDArray[Any], messages: IdColumn) -> NDArray[np.bool_]:
        """Tell which pairs of a subscription row and a message wait for a report."""
        waiting = np.zeros(len(rows), np.bool_)
        if self._messages:
            asked = np.flatnonzero(np.isin(rows, list(self._messages)))
            names = messages[asked].to_pylist()
            waiting[asked] = [name in self._messages[row] for row, name in zip(rows[asked].tolist(), names)]
        return waiting

    def supersede(self, messages: Iterable[Id]) -> None:
        """Forget messages because others were published with the same ids: only the last one counts."""
        for message in messages:
            for row in self._rows.pop(message, ()):
                self._forget(row, message)

    def drop(self, rows: Iterable[int]) -> None:
        """Forget what waits for the given subscriptions: they have reported, or left."""
        for row in rows:
            for message in self._messages.pop(row, ()):
                others = self._rows[message]
                others.discard(row)
                if not others:
                    del self._rows[message]

    def _forget(self, row: int, message: Id) -> None:
        messages = self._messages[row]
        del messages[message]
        if not messages:
            del self._messages[row]

    # --- At rest ---------------------------------------------------------------------------------------------------

    def document(self) -> list[Any]:
        """Return what :meth:`restored` takes, as JSON."""
        return [[row, message, _written(place)] for row, message, place in self]

    @classmethod
    def restored(cls, document: list[Any], space: Space) -> Waiting:
        """Return what the document came from."""
        waiting = cls()
        for row, message, place in document:
            waiting.put([row], message, _read(place, space))
        return waiting


def _written(place: Place | None) -> Any:
    """Return a place as two, three or four numbers, or as WKB: exactly what it is, which GeoJSON would not be."""
    if isinstance(place, Polygon):
        return place.wkb.hex()
    if isinstance(place, Box):
        return [place.xmin, place.ymin, place.xmax, place.ymax]
    if isinstance(place, Circle):
        return [place.x, place.y, place.radius]
    return None if place is None else [place.x, place.y]


def _read(written: Any, space: Space) -> Place | None:
    if written is None:
        return None
    if isinstance(written, str):
        return Polygon(bytes.fromhex(written), space)
    if len(written) == 4:
        return Box(*written, space=space)
    x, y, *radius = written
    return Circle(x=x, y=y, radius=radius[0], space=space) if radius else Point(x=x, y=y, space=space)
