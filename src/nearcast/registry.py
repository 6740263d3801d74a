"""Classes by name, each imported at first use: an index that nobody asks for costs nothing."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping, MutableMapping
from typing import TypeVar

__all__ = ["Registry"]

_Class = TypeVar("_Class", bound=type)


class Registry(MutableMapping[str, _Class]):
    """A mapping of names to classes, in the given order. A value is a class or its location, ``"module:Class"``.

    >>> numbers = Registry({"fraction": "fractions:Fraction"})
    >>> list(numbers), numbers["fraction"].__name__
    (['fraction'], 'Fraction')
    """

    def __init__(self, homes: Mapping[str, str]) -> None:
        self._classes: dict[str, _Class | str] = dict(homes)

    def __getitem__(self, name: str) -> _Class:
        found = self._classes[name]
        if isinstance(found, str):
            module, _, attribute = found.partition(":")
            self._classes[name] = found = getattr(importlib.import_module(module), attribute)
        return found

    def __setitem__(self, name: str, found: _Class) -> None:
        self._classes[name] = found

    def __delitem__(self, name: str) -> None:
        del self._classes[name]

    def __contains__(self, name: object) -> bool:
        return name in self._classes  # without importing the class

    def __iter__(self) -> Iterator[str]:
        return iter(self._classes)

    def __len__(self) -> int:
        return len(self._classes)
