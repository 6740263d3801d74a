"""Delta and Iceberg, where they exist for this version of Spark: a repeated micro-batch is not written twice."""

import json
import subprocess
import sys

import pytest

from spark import table_formats

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


@pytest.mark.parametrize("form", ["delta", "iceberg"])
def test_a_repeated_batch_is_written_once(tmp_path, form):
    """Three deliveries; the same after a repetition; two more for a new message."""
    known = table_formats.PACKAGES[form]
    if table_formats.SPARK not in known:
        pytest.skip(f"{form} is there for Spark {' and '.join(known)}; this is {table_formats.SPARK}")
    command = [sys.executable, table_formats.__file__, form, str(tmp_path)]
    ran = subprocess.run(command, capture_output=True, text=True)
    if "unresolved dependency" in ran.stdout + ran.stderr:
        pytest.skip(f"no repository has {known[table_formats.SPARK]}")
    assert ran.returncode == 0, ran.stderr[-3000:]
    assert json.loads(ran.stdout.splitlines()[-1]) == {"counts": [3, 3, 5], "repeated": True}
