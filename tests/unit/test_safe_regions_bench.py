"""The benchmark of safe regions: what it counts, what it reads, and that nobody is told too late."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from nearcast.bench import pictures, report, safe_regions
from nearcast.bench.walks import taxi_walks
from nearcast.cli import app
from nearcast.errors import InputError


def test_random_walks(tmp_path):
    body = safe_regions.run(60, 40, fitting=5, rate=1, seconds=180, seed=1)
    assert body["mismatches"] == []
    every, footnote, ours = body["results"]
    assert every["reports"] == every["steps"] == ours["steps"] == 180
    assert ours["requests"] <= ours["reports"] < every["reports"]
    assert ours["differences"] == 0
    assert ours["spared"] == 1 - ours["reports"] / every["reports"]
    assert ours["spared_both_ways"] == ours["spared"] - ours["requests"] / every["reports"]
    assert footnote["promises"] <= 60
    document = report.document("safe-regions", "nearcast bench safe-regions", body)
    pictures.draw(document, tmp_path / "a.svg")
    assert (tmp_path / "a.svg").stat().st_size > 2000


def test_taxis_begin_at_other_times_of_their_traces(tmp_path):
    rng = np.random.default_rng(1)
    count = 400
    table = {
        "object_id": np.repeat([7, 9], count // 2).astype(np.int16),
        "ts": np.tile(np.arange(count // 2) * 30, 2),
        "lat": 37.7 + rng.normal(0, 0.01, count),
        "lon": -122.4 + rng.normal(0, 0.01, count),
    }
    pq.write_table(pa.table(table).sort_by("ts"), tmp_path / "traces.parquet")
    walk = taxi_walks(tmp_path, 5, 300, seed=3)
    assert walk.begin.shape == (5, 2)
    assert walk.offsets[-1] == len(walk.who) == len(walk.where) == 50
    assert len(np.unique(walk.begin, axis=0)) == 5
    command = ["bench", "safe-regions", "--subscriptions", "20", "--messages", "20", "--seconds", "60"]
    found = CliRunner().invoke(app, [*command, "--data", str(tmp_path), "--json", "-"])
    assert found.exit_code == 0, found.output
    assert json.loads(found.stdout)["workload"]["name"] == "taxis"
    found = CliRunner().invoke(app, command)
    assert "safe regions" in found.stdout
    assert "calls too" in found.stdout
    assert "random walks" in found.stdout


def test_no_data(tmp_path):
    with pytest.raises(InputError, match=r"there is no traces\.parquet"):
        taxi_walks(tmp_path, 5, 300, seed=3)
