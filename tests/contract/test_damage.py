"""A flipped bit in whatever rests: a named error or an answer, never a crash; with verify, always the error.

Each test runs in a process of its own, so that a crash is a failure and not the end of the tests. Every run damages
each file of the product's structures once, ``--long`` those of all, more often.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from nearcast.covering.graph import INDEXES as COVERING
from nearcast.matching import INDEXES, MOVING, STORES
from nearcast.ranking.choices import FINDERS
from nearcast.sharding.distribution import DISTRIBUTIONS
from profiles import is_rival

SCRIPT = Path(__file__).with_name("damaging.py")
KINDS = {
    "index": sorted(INDEXES),
    "store": sorted(STORES),
    "moving": sorted(MOVING),
    "graph": sorted(COVERING),
    "topk": sorted(FINDERS),
    "engine": ["auto"],
    "distribution": sorted(DISTRIBUTIONS),
    "shards": sorted(DISTRIBUTIONS),
}
SHORT = {
    "index": [name for name in KINDS["index"] if not is_rival(INDEXES, name)],
    "store": [name for name in KINDS["store"] if not is_rival(STORES, name)],
    "graph": ["forest"],
    "topk": ["blocks"],
    "shards": ["hash"],
    "moving": [name for name in KINDS["moving"] if not is_rival(MOVING, name)],
}


def flip_bits(what, names, home, flips):
    ran = subprocess.run(
        [sys.executable, "-X", "faulthandler", str(SCRIPT), what, str(home), str(flips), *names],
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert ran.returncode == 0, ran.stderr[-2_000:]
    for name, told in json.loads(ran.stdout).items():
        assert told["named"] > told["same"] + told["other"], (
            f"{name}: all but large arrays of floats is always read"
        )


@pytest.mark.parametrize("what", KINDS)
def test_flipped_bits(what, tmp_path):
    flip_bits(what, SHORT.get(what, KINDS[what]), tmp_path, 1)


@pytest.mark.long
@pytest.mark.parametrize(("what", "name"), [(what, name) for what in KINDS for name in KINDS[what]])
def test_many_flipped_bits(what, name, tmp_path):
    flip_bits(what, [name], tmp_path, 150)
