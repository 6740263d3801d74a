"""The exception tree and how values are shown in messages."""

from __future__ import annotations

import pytest

from nearcast import errors


@pytest.mark.parametrize("name", [name for name in errors.__all__ if name.endswith("Error")])
def test_everything_is_caught_by_the_root(name):
    assert issubclass(getattr(errors, name), errors.NearcastError)


@pytest.mark.parametrize(
    ("error", "builtin"),
    [
        (errors.GeometryError, ValueError),
        (errors.ExpressionError, ValueError),
        (errors.ModelError, ValueError),
        (errors.ColumnError, ValueError),
        (errors.DuplicateError, ValueError),
        (errors.UnknownError, LookupError),
        (errors.RuntimeUnavailableError, RuntimeError),
    ],
)
def test_errors_are_also_what_python_calls_them(error, builtin):
    assert issubclass(error, builtin)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("coffee", "'coffee'"),
        (5, "5"),
        (None, "None"),
        ("x" * 70, repr("x" * 70)),
        (list(range(1000)), None),
        ("x" * 10_000_000, None),
        ('it\'s "quoted" ' * 50, None),
    ],
    ids=["word", "number", "none", "line", "list", "megabytes", "quotes"],
)
def test_values_are_shown_short(value, expected):
    text = errors.shown(value)
    assert expected is None or text == expected
    assert len(text) < 120
