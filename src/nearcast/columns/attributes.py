"""Attribute names become column numbers, and their string values become codes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from nearcast.columns.vocabulary import Vocabulary

__all__ = ["AttributeNames"]


class AttributeNames:
    """A growing list of attributes, each with a column number.

    An attribute is a name **and** a type: ``brand = "Huawei"`` asks for the string attribute, ``brand = 5`` for the
    numeric one, and these are two columns. A string value is stored as its code in :attr:`strings`.

    >>> names = AttributeNames()
    >>> names.add("price", text=False), names.add("brand", text=True), names.add("price", text=False)
    (0, 1, 0)
    >>> names.find("brand", text=False) is None
    True
    """

    def __init__(self, columns: Iterable[tuple[str, bool]] = (), strings: Vocabulary | None = None) -> None:
        self._columns: dict[tuple[str, bool], int] = {}
        self._folded: dict[str, str] = {}
        for name, text in columns:
            self.add(name, text=text)
        self.strings = Vocabulary() if strings is None else strings

    def __len__(self) -> int:
        return len(self._columns)

    def __iter__(self) -> Iterator[tuple[str, bool]]:
        """Iterate over (name, whether it is a string attribute), in the order of column numbers."""
        return iter(self._columns)

    def __repr__(self) -> str:
        return f"<AttributeNames: {', '.join(name for name, _ in self)}>"

    def add(self, name: str, *, text: bool) -> int:
        """Return the column of an attribute; a new attribute gets a new one."""
        self._folded.setdefault(name.casefold(), name)
        return self._columns.setdefault((name, text), len(self._columns))

    def find(self, name: str, *, text: bool) -> int | None:
        """Return the column of an attribute, None if no subscription asks for it."""
        return self._columns.get((name, text))

    def other_case(self, name: str) -> str | None:
        """Return the attribute whose name differs from *name* in case alone; None if there is none, or *name* is one.

        >>> names = AttributeNames([("price", False)])
        >>> names.other_case("Price"), names.other_case("price")
        ('price', None)
        """
        if (name, False) in self._columns or (name, True) in self._columns:
            return None
        return self._folded.get(name.casefold())
