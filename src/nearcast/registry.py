"""Classes by name, each imported when it is named: a rival costs nothing to who does not ask for it."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping, MutableMapping
from typing import TypeVar

__all__ = ["Registry"]

_Class = TypeVar("_Class", bound=type)


class Registry(MutableMapping[str, _Class]):
    """Names to classes, in the order given. A value is a class, or where it is: ``"module:Class"``.

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
        return name in self._classes  # without importing it

    def __iter__(self) -> Iterator[str]:
        return iter(self._classes)

    def __len__(self) -> int:
        return len(self._classes)
