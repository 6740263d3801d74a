"""What every run tests, and what only ``--long`` does.

A test that takes long has the mark ``long``. Where a test is repeated for many names that prove the same, every run
takes some of them: ``shortened`` marks the others.
"""

import pytest
from hypothesis import settings

EXAMPLES = 60  # that hypothesis draws with --long; every run draws a fifth of them, others each time
LONGEST_MS = 20  # the longest call, at a million subscriptions on a quiet machine


def allowed_ms(size):
    """Return how long a call may take among *size* subscriptions: longer in short forms, which share their cores."""
    return LONGEST_MS if size >= 1_000_000 else 10 * LONGEST_MS


def examples(many, **more):
    """Return the settings of a property that needs *many* examples with ``--long``, and in proportion otherwise."""
    return settings(max_examples=min(max(many * settings().max_examples // EXAMPLES, 2), 2_000), **more)


def shortened(names, short):
    """Return the parameters of a test: every run takes the names for which *short* holds, ``--long`` takes all."""
    return [name if short(name) else pytest.param(name, marks=pytest.mark.long) for name in names]


def without_rivals(registry):
    """Return the names in a registry as parameters; rivals, which only benchmarks use, are for ``--long``."""
    return shortened(sorted(registry), lambda name: not is_rival(registry, name))


def is_rival(registry, name):
    return ".rivals." in registry[name].__module__
