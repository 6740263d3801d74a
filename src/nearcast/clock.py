"""Clocks, which are always passed in, and times.

A time is an integer: microseconds since 1970-01-01 UTC. People write aware ``datetime`` objects or ISO 8601 strings
with an offset; :func:`microseconds` turns either into the integer and refuses a time without a zone, which is
ambiguous.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

from nearcast.errors import InputError, ModelError, shown

__all__ = ["Clock", "ManualClock", "SystemClock", "checked_clock", "iso", "microseconds"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_INT64_MAX = 2**63 - 1


class Clock(Protocol):
    """Anything that tells the time; tests pass a :class:`ManualClock`."""

    def now(self) -> int:
        """Return the time in microseconds since the epoch."""
        ...


class SystemClock:
    """The clock of the machine."""

    def now(self) -> int:
        """Return the time in microseconds since the epoch."""
        return time.time_ns() // 1000


class ManualClock:
    """A clock that moves only when told.

    >>> clock = ManualClock("2026-01-01T00:00:00Z")
    >>> clock.advance(seconds=90)
    >>> iso(clock.now())
    '2026-01-01T00:01:30Z'
    """

    def __init__(self, start: int | datetime | str = 0) -> None:
        self._now = microseconds(start)

    def now(self) -> int:
        """Return the time in microseconds since the epoch."""
        return self._now

    def advance(self, *, seconds: float) -> None:
        """Move forward; a negative step is refused."""
        if not seconds >= 0:
            raise ModelError(f"a clock cannot move by {seconds!r} seconds; give 0 or more")
        self._now += round(seconds * 1_000_000)


def checked_clock(clock: Any) -> Clock:
    """Return *clock*; raise if it cannot tell the time."""
    if not callable(getattr(clock, "now", None)):
        raise InputError(f"clock must have a method now(), as SystemClock() does; {shown(clock)} has none")
    checked: Clock = clock
    return checked


def microseconds(value: int | datetime | str, name: str = "time") -> int:
    """Return *value* as microseconds since the epoch.

    >>> microseconds("1970-01-01T00:00:01+00:00")
    1000000
    >>> microseconds(datetime(1970, 1, 1, 1, tzinfo=UTC)) // 3_600_000_000
    1
    """
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            raise ModelError(
                f"{name} {shown(value)} is not a time; write ISO 8601 with an offset, like 2026-11-15T08:30:00Z"
            ) from None
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise ModelError(
                f"{name} {value.isoformat()} has no time zone; add one, like {value.isoformat()}Z for UTC"
            )
        return (value - _EPOCH) // _MICROSECOND
    if isinstance(value, bool) or not isinstance(value, int):
        raise ModelError(
            f"{name} {shown(value)} is not a time; give an aware datetime, an ISO 8601 string with an offset, "
            "or an integer of microseconds since 1970-01-01 UTC"
        )
    if not -_INT64_MAX <= value <= _INT64_MAX:
        raise ModelError(
            f"{name} {value} does not fit in 64 bits; times are microseconds since 1970-01-01 UTC"
        )
    return value


def iso(value: int) -> str:
    """Return microseconds since the epoch as ISO 8601 in UTC, or as plain digits for a time outside the calendar.

    >>> iso(1_500_000)
    '1970-01-01T00:00:01.500000Z'
    """
    try:
        moment = _EPOCH + timedelta(microseconds=value)
    except OverflowError:
        return str(value)
    return moment.isoformat().replace("+00:00", "Z")
