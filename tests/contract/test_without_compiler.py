"""With ``NUMBA_DISABLE_JIT=1`` kernels are plain Python, for debuggers: the answers are the same."""

import os
import re
import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).parents[1]
CONTRACTS = [
    "contract/test_match.py::test_equals_naive_on_columns",
    "contract/test_match.py::test_equals_naive_on_objects",
    "contract/test_changes.py::test_build_equals_inserts_one_by_one",
    "contract/test_changes.py::test_remove",
    "contract/test_changes.py::test_move_between_shapes",
    "contract/test_at_rest.py::test_opened_answers_alike",
    "contract/test_stores.py::test_equals_naive_on_columns",
    "contract/test_stores.py::test_equals_naive_on_objects",
    "contract/test_stores_at_rest.py::test_opened_answers_alike",
    "unit/test_late_joiners.py",
    "ranking/test_topk.py::TestScore",
    "ranking/test_topk.py::TestWindows",
    "covering/test_graph.py::test_machine[forest]",
]


def test_contracts_hold():
    ran = subprocess.run(
        # Products that wrap around, and infinity minus infinity, are no news to a kernel.
        [sys.executable, "-m", "pytest", "-n", "0", "-W", "ignore::RuntimeWarning", *CONTRACTS],
        env=os.environ | {"NUMBA_DISABLE_JIT": "1", "HYPOTHESIS_PROFILE": "brief"},
        cwd=TESTS,
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stdout[-5_000:] + ran.stderr
    assert int(re.search(r"(\d+) passed", ran.stdout)[1]) > 150, ran.stdout
