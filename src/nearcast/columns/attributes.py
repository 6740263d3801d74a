"""Attribute names become column numbers, and their string values become codes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from nearcast.columns.growable import GrowableArray
from nearcast.columns.vocabulary import Vocabulary

__all__ = ["AttributeNames"]


class AttributeNames:
    """A growing list of attributes, each with a column number.

    An attribute is a name **and** a type: ``brand = "Huawei"`` asks for the string attribute, ``brand = 5`` for the
    numeric one, and these are two columns. A string value is stored as its code in :attr:`strings`. Some column numbers
    may be free: new attributes get these first.

    >>> names = AttributeNames()
    >>> names.add("price", text=False), names.add("brand", text=True), names.add("price", text=False)
    (0, 1, 0)
    >>> names.find("brand", text=False) is None
    True
    """

    def __init__(
        self, columns: Iterable[tuple[str, bool] | None] = (), strings: Vocabulary | None = None
    ) -> None:
        """Begin with the attributes in the order of their column numbers; None for a number that is free."""
        self._numbers: dict[tuple[str, bool], int] = {}
        self._folded: dict[str, str] = {}
        self._columns: list[tuple[str, bool] | None] = []
        self._textual = GrowableArray(np.empty(0, np.bool_), borrowed=False, spare=1.0)
        self._given = 0  # no column number before this one is free
        given = list(columns)
        numbered = [(number, column) for number, column in enumerate(given) if column is not None]
        self.put([column for _, column in numbered], [number for number, _ in numbered], len(given))
        self.strings = Vocabulary() if strings is None else strings

    def __len__(self) -> int:
        return len(self._numbers)

    def __iter__(self) -> Iterator[tuple[str, bool]]:
        """Iterate over (name, whether it is a string attribute), in the order of column numbers."""
        return (column for column in self._columns if column is not None)

    @property
    def span(self) -> int:
        """The number of column numbers, with those that are free."""
        return len(self._columns)

    @property
    def columns(self) -> list[tuple[str, bool] | None]:
        """The attribute of each column number, None where it is free; not to be changed."""
        return self._columns

    @property
    def textual(self) -> NDArray[np.bool_]:
        """Whether each column number is that of a string attribute."""
        return self._textual.values

    def __repr__(self) -> str:
        return f"<AttributeNames: {', '.join(name for name, _ in self)}>"

    def add(self, name: str, *, text: bool) -> int:
        """Return the column of an attribute; a new attribute gets a new one."""
        number = self._numbers.get((name, text))
        if number is None:
            while self._given < self.span and self._columns[self._given] is not None:
                self._given += 1
            number = self._given
            self.put([(name, text)], [number], number + 1)
        return number

    def put(self, columns: Iterable[tuple[str, bool]], numbers: Iterable[int], span: int) -> None:
        """Add attributes that are not here yet with the column numbers that they bring, all below *span*.

        Column numbers below *span* that no attribute has are given to the attributes that are added later.
        """
        missing = max(span - self.span, 0)
        self._columns += [None] * missing
        self._textual.fill(missing, False)
        for number, (name, text) in zip(numbers, columns, strict=True):
            self._columns[number] = name, text
            self._textual.values[number] = text
            self._numbers[name, text] = int(number)
            self._folded.setdefault(name.casefold(), name)

    def take(self, numbers: Iterable[int]) -> list[tuple[str, bool]]:
        """Return (name, whether it is a string attribute) of column numbers, none of which is free."""
        found = [self._columns[number] for number in numbers]
        return [column for column in found if column is not None]

    def find(self, name: str, *, text: bool) -> int | None:
        """Return the column of an attribute, None if no subscription asks for it."""
        return self._numbers.get((name, text))

    def other_case(self, name: str) -> str | None:
        """Return the attribute whose name differs from *name* in case alone; None if there is none, or *name* is one.

        >>> names = AttributeNames([("price", False)])
        >>> names.other_case("Price"), names.other_case("price")
        ('price', None)
        """
        if (name, False) in self._numbers or (name, True) in self._numbers:
            return None
        return self._folded.get(name.casefold())
