"""Time as integer microseconds."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearcast.clock import ManualClock, SystemClock, iso, microseconds
from nearcast.errors import ModelError


@given(st.datetimes(timezones=st.sampled_from([UTC, timezone(timedelta(hours=5, minutes=30))])))
def test_times_round_trip(moment):
    value = microseconds(moment)
    assert microseconds(iso(value)) == value
    assert microseconds(moment.isoformat()) == value
    assert datetime.fromisoformat(iso(value)) == moment


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (5, 5),
        ("1970-01-01T00:00:00Z", 0),
        ("1970-01-01T01:00:00+01:00", 0),
        ("1969-12-31T23:59:59.999999Z", -1),
        (datetime(1970, 1, 1, 0, 0, 1, 5, tzinfo=UTC), 1_000_005),
    ],
)
def test_microseconds(value, expected):
    assert microseconds(value) == expected


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("tomorrow", "expires_at 'tomorrow' is not a time; write ISO 8601"),
        ("2026-11-15T08:30:00", "has no time zone; add one"),
        (datetime(2026, 11, 15), "has no time zone"),
        (True, "expires_at True is not a time"),
        (1.5, "expires_at 1.5 is not a time"),
        (None, "expires_at None is not a time"),
        (2**63, "does not fit in 64 bits"),
    ],
)
def test_what_is_no_time_is_refused(value, says):
    with pytest.raises(ModelError, match=says):
        microseconds(value, "expires_at")


def test_a_time_outside_the_calendar_stays_a_number():
    assert iso(2**62) == str(2**62)


def test_the_manual_clock_moves_when_told():
    clock = ManualClock("2026-01-01T00:00:00Z")
    before = clock.now()
    clock.advance(seconds=0.5)
    assert clock.now() - before == 500_000
    for step in (-1, float("nan")):
        with pytest.raises(ModelError, match=r"cannot move by .*; give 0 or more"):
            clock.advance(seconds=step)


def test_the_system_clock_tells_the_time():
    assert abs(SystemClock().now() - time.time() * 1e6) < 5e6
