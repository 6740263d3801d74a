"""Floors: the limits that a run must keep, stored in ``benchmarks/floors.toml``.

A floor applies to a run that meets all of its conditions; a floor for something that the run did not measure is left
out. The header of the file documents its keys.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nearcast.errors import InputError, UnknownError, shown

__all__ = ["DEFAULT_FILE", "Floor", "Verdict", "check", "read"]

DEFAULT_FILE = Path("benchmarks") / "floors.toml"

_EXACT = ("benchmark", "workload", "index", "threads")
_SIZES = ("subscriptions", "window", "messages", "keywords", "operations", "steps")
_KEYS = {*_EXACT, *_SIZES, *(f"{size}_up_to" for size in _SIZES), "measure", "at_least", "at_most"}


@dataclass(frozen=True)
class Floor:
    """One entry of the file: the runs that it applies to, the measure, and the limits."""

    conditions: Mapping[str, Any]
    measure: str
    at_least: float | None
    at_most: float | None

    def applies(self, run: Mapping[str, Any]) -> bool:
        """Return whether *run*, as described by :func:`check`, meets every condition."""
        for key, wanted in self.conditions.items():
            value = run.get(key.removesuffix("_up_to"))
            if value is None:
                return False
            if key in _EXACT:
                fulfilled = value == wanted
            elif key.endswith("_up_to"):
                fulfilled = value <= wanted
            else:
                fulfilled = value >= wanted
            if not fulfilled:
                return False
        return True

    @property
    def limit(self) -> str:
        """The limits as a person writes them."""
        parts = []
        if self.at_least is not None:
            parts.append(f"at least {_written(self.at_least)}")
        if self.at_most is not None:
            parts.append(f"at most {_written(self.at_most)}")
        return ", ".join(parts)


@dataclass(frozen=True)
class Verdict:
    """A floor, the result it was applied to, the figure that the run measured, and whether the floor holds."""

    floor: Floor
    workload: str | None
    index: str
    measured: float

    @property
    def passed(self) -> bool:
        """True when the figure lies within the limits."""
        low, high = self.floor.at_least, self.floor.at_most
        return (low is None or self.measured >= low) and (high is None or self.measured <= high)


def read(path: Path) -> list[Floor]:
    """Read a file of floors; an entry that could never apply because of a typing error is refused."""
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UnknownError(
            f"there is no file of floors {shown(str(path))}; run from the directory that has "
            f"{DEFAULT_FILE.as_posix()}, or name the file with --floors FILE"
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path.name} is not TOML: {error}") from None
    return [
        _floor(entry, f"floor {number} of {path.name}")
        for number, entry in enumerate(content.get("floor", []), 1)
    ]


def _floor(entry: Mapping[str, Any], name: str) -> Floor:
    unknown = sorted(entry.keys() - _KEYS)
    if unknown:
        raise InputError(
            f"{name} has the unknown key {shown(unknown[0])}; the keys are {', '.join(sorted(_KEYS))}"
        )
    for key in ("benchmark", "measure"):
        if key not in entry:
            raise InputError(f"{name} has no {key!r}; add it")
    limits = [entry.get("at_least"), entry.get("at_most")]
    if not any(isinstance(limit, (int, float)) for limit in limits):
        raise InputError(f"{name} has no limit; give at_least or at_most as a number")
    conditions = {
        key: value for key, value in entry.items() if key in _KEYS - {"measure", "at_least", "at_most"}
    }
    return Floor(conditions, entry["measure"], *limits)


def check(document: Mapping[str, Any], floors: Sequence[Floor]) -> list[Verdict]:
    """Return a verdict for each floor that applies to the run in *document* and that it measured.

    Each of the document's results is described by the document's own workload, sizes and threads and by the
    result's index.
    """
    verdicts = []
    for result in document["results"]:
        run = {
            "benchmark": document["benchmark"],
            "workload": result.get("workload", document.get("workload", {}).get("name")),
            "index": result["index"],
            "threads": document.get("threads"),
            **document["sizes"],
        }
        for floor in floors:
            if floor.applies(run):
                measured = _figure(result, floor.measure)
                if measured is not None:
                    verdicts.append(Verdict(floor, run["workload"], run["index"], measured))
    return verdicts


def _figure(result: Mapping[str, Any], measure: str) -> float | None:
    """Look up ``name`` or ``group.member``; an unknown name is an error, a missing member is not."""
    name, _, member = measure.partition(".")
    if name not in result:
        raise InputError(f"no measure {shown(measure)}; there are {', '.join(sorted(result))}")
    value = result[name]
    if member:
        value = value.get(member) if isinstance(value, Mapping) else None
    return None if value is None else float(value)


def _written(limit: float) -> str:
    """Return a limit in full.

    >>> _written(10_000_000), _written(1.7)
    ('10,000,000', '1.7')
    """
    return f"{limit:,.0f}" if limit == int(limit) else f"{limit:,g}"
