"""Hypothesis profiles: ``default`` for every run, ``thorough`` for long ones (HYPOTHESIS_PROFILE=thorough)."""

import os

from hypothesis import HealthCheck, settings

# Kernels compile inside the first example, so deadlines mean nothing here.
settings.register_profile(
    "default", deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile(
    "thorough", settings.get_profile("default"), max_examples=2_000, stateful_step_count=100
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))
