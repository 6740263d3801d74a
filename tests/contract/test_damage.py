"""A flipped bit in whatever rests: a named error or an answer, never a crash; with verify, always the error.

Each test runs in a process of its own, so that a crash is a failure and not the end of the tests.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from nearcast.covering.graph import INDEXES as COVERING
from nearcast.matching import INDEXES, STORES
from nearcast.ranking.choices import FINDERS

SCRIPT = Path(__file__).with_name("damaging.py")
KINDS = [("index", name) for name in sorted(INDEXES)]
KINDS += [("store", name) for name in sorted(STORES)]
KINDS += [("graph", name) for name in sorted(COVERING)]
KINDS += [("topk", name) for name in sorted(FINDERS)]
KINDS += [("engine", "auto")]


@pytest.mark.parametrize(("what", "name"), KINDS)
def test_flipped_bits(what, name, tmp_path):
    ran = subprocess.run(
        [sys.executable, "-X", "faulthandler", str(SCRIPT), what, name, str(tmp_path), "150"],
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert ran.returncode == 0, ran.stderr[-2_000:]
    told = json.loads(ran.stdout)
    assert told["named"] > told["same"] + told["other"], "whatever is no large array of floats is always read"
