"""Messages that wait for reports: whether they concern a subscriber depends on where it is by now."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearcast.columns.ids import IdColumn
from nearcast.geometry import Box, Circle, Place, Point, Polygon, Space
from nearcast.model import Id

__all__ = ["Momentary", "Waiting"]


class Momentary(NamedTuple):
    """A message that the engine does not keep."""

    number: int  # in the order of publication
    place: Place


class Waiting:
    """Pairs of a subscription row and the id of a message that fits its words; it has not been told of the message.

    The engine keeps messages that expire. Of a momentary one, which it does not keep, this notes what its report needs.
    """

    def __init__(self) -> None:
        self._messages: dict[
            int, dict[Id, Momentary | None]
        ] = {}  # by subscription row; None for a kept message
        self._rows: OrderedDict[Id, set[int]] = OrderedDict()  # the subscription rows by message
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[tuple[int, Id, Momentary | None]]:
        for row, messages in self._messages.items():
            for key, momentary in messages.items():
                yield row, key, momentary

    def put(self, rows: Iterable[int], message: Id, momentary: Momentary | None) -> None:
        """Let a message wait for the reports of the subscriptions in *rows*."""
        others = self._rows.setdefault(message, set())
        self._size -= len(others)
        for row in rows:
            self._messages.setdefault(row, {})[message] = momentary
            others.add(row)
        self._size += len(others)

    def some_kept(self, count: int) -> list[Id]:
        """Look at so many messages, by turns; return those that the engine keeps."""
        turn = list(islice(self._rows, count))
        for key in turn:
            self._rows.move_to_end(key)
        return [key for key in turn if self._messages[next(iter(self._rows[key]))][key] is None]

    def of(self, row: int) -> dict[Id, Momentary | None]:
        """Return what waits for the report of a subscription."""
        return self._messages.get(row, {})

    def waits(self, rows: NDArray[Any], messages: IdColumn) -> NDArray[np.bool_]:
        """Tell which pairs of a subscription row and a message wait for a report."""
        waiting = np.zeros(len(rows), np.bool_)
        if self._messages:
            asked = np.flatnonzero([row in self._messages for row in rows.tolist()])
            names = IdColumn(messages.codes[asked], messages.words).to_pylist()
            waiting[asked] = [name in self._messages[row] for row, name in zip(rows[asked].tolist(), names)]
        return waiting

    def supersede(self, messages: Iterable[Id]) -> None:
        """Forget messages because others were published with the same ids: only the last one counts."""
        for message in messages:
            rows = self._rows.pop(message, set())
            self._size -= len(rows)
            for row in rows:
                waiting = self._messages[row]
                del waiting[message]
                if not waiting:
                    del self._messages[row]

    def drop(self, rows: Iterable[int]) -> None:
        """Forget what waits for the given subscriptions: they have reported, or left."""
        for row in rows:
            messages = self._messages.pop(row, {})
            self._size -= len(messages)
            for message in messages:
                others = self._rows[message]
                others.discard(row)
                if not others:
                    del self._rows[message]

    # --- At rest ---------------------------------------------------------------------------------------------------

    def document(self) -> list[Any]:
        """Return what :meth:`restored` takes, as JSON."""
        return [[row, message, *_written(momentary)] for row, message, momentary in self]

    @classmethod
    def restored(cls, document: list[Any], space: Space) -> Waiting:
        """Return what the document came from."""
        waiting = cls()
        for row, message, *momentary in document:
            waiting.put([row], message, _read(momentary, space))
        return waiting


def _written(momentary: Momentary | None) -> list[Any]:
    return [] if momentary is None else [momentary.number, _written_place(momentary.place)]


def _read(written: list[Any], space: Space) -> Momentary | None:
    return Momentary(written[0], _read_place(written[1], space)) if written else None


def _written_place(place: Place) -> Any:
    """Return a place as two, three or four numbers, or as WKB: exactly what it is, which GeoJSON would not be."""
    if isinstance(place, Polygon):
        return place.wkb.hex()
    if isinstance(place, Box):
        return [place.xmin, place.ymin, place.xmax, place.ymax]
    if isinstance(place, Circle):
        return [place.x, place.y, place.radius]
    return [place.x, place.y]


def _read_place(written: Any, space: Space) -> Place:
    if isinstance(written, str):
        return Polygon(bytes.fromhex(written), space)
    if len(written) == 4:
        xmin, ymin, xmax, ymax = written
        return Box(xmin, ymin, xmax, ymax, space)
    x, y, *radius = written
    return Circle(x=x, y=y, radius=radius[0], space=space) if radius else Point(x=x, y=y, space=space)
