"""The exception tree and how values are shown in messages."""

from __future__ import annotations

import numpy as np
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


def test_whole_numbers():
    """NumPy's integers are numbers like Python's; truth values and floats are not."""
    assert errors.whole_number("k", np.int64(3), 1) == 3
    assert type(errors.whole_number("k", np.uint8(3), 1, 3)) is int
    for wrong, most in (
        (0, None),
        (True, None),
        (2.0, None),
        ("2", None),
        (np.bool_(True), None),
        (5000, 4000),
    ):
        limits = "from 1" if most is None else "from 1 to 4,000"
        with pytest.raises(errors.InputError, match=f"k must be a whole number {limits}, not"):
            errors.whole_number("k", wrong, 1, most)
