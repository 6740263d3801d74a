"""Tables that grow: they are what one table of all rows is, and a shard that is built from many takes little memory."""

import json
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from nearcast import SubscriptionTable
from nearcast.columns import growing_table
from nearcast.columns.coding import Coding
from nearcast.columns.growing_table import GrowingTable
from nearcast.columns.rows.clauses import ClauseStore
from nearcast.errors import ColumnError

POLYGON = "POLYGON ((0 0, 4 0, 4 4, 0 0))"

# Rows of kinds that bring columns of their own: alternatives, forbidden words, tests, circles, polygons, everywhere.
PLAIN = {"expression": "tea", "xmin": 1.0, "ymin": 1.0, "xmax": 2.0, "ymax": 2.0}
KINDS = [
    PLAIN,
    {"expression": "tea milk OR coffee"},
    {"expression": "tea NOT sugar", **{name: PLAIN[name] for name in ("xmin", "ymin", "xmax", "ymax")}},
    {"expression": 'price < 4 AND tea AND city = "Ulm"'},
    {"expression": "tea", "lon": 3.0, "lat": 4.0, "radius_m": 500.0},
    {"expression": "milk OR (tea AND price > 2)", "geometry": POLYGON},
    {"expression": "*", "xmin": 170.0, "ymin": 1.0, "xmax": -170.0, "ymax": 2.0},  # two boxes
]
SCHEMA = pa.schema(
    [("id", pa.string()), ("expression", pa.string()), ("geometry", pa.string())]
    + [(name, pa.float64()) for name in ("lon", "lat", "radius_m", "xmin", "ymin", "xmax", "ymax")]
)


def rows_of(kinds):
    return pa.Table.from_pylist([KINDS[kind] | {"id": f"s{i:03}"} for i, kind in enumerate(kinds)], SCHEMA)


def assert_same(found, expected):
    """Every array that would be saved is the same, byte for byte."""
    found, expected = ClauseStore(found).arrays(), ClauseStore(expected).arrays()
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        assert found[name].dtype == array.dtype, name
        assert found[name].tobytes() == array.tobytes(), name


@pytest.mark.parametrize("first", range(len(KINDS)))
@pytest.mark.parametrize("portion", [1, 4])
def test_it_is_what_one_table_is(first, portion):
    """Whichever kind comes first, and whatever columns the rows before had no need of."""
    rng = np.random.default_rng(first)
    kinds = [0] * 5 + [first] * 3 + rng.integers(0, len(KINDS), 30).tolist() + [0] * 5
    rows, coding = rows_of(kinds), Coding.new()
    whole = SubscriptionTable.from_arrow(rows, like=coding)
    growing = GrowingTable(coding)
    growing.extend(SubscriptionTable.from_arrow(SCHEMA.empty_table(), like=coding))
    for start in range(0, len(rows), portion):
        growing.extend(SubscriptionTable.from_arrow(rows.slice(start, portion), like=coding))
    assert len(growing) == len(rows)
    assert_same(growing.table(), whole)


@pytest.mark.parametrize("ids", [["a", "b"], [7, 8], None])
def test_ids_of_any_type(ids):
    coding = Coding.new()
    columns = {"expression": ["tea", "milk"]} | ({} if ids is None else {"id": ids})
    table = SubscriptionTable.from_arrow(columns, like=coding)
    found = GrowingTable.joined([table.take([0]), table.take([1])])
    assert (None if found.ids is None else found.ids.to_pylist()) == ids
    assert found.to_arrow()["expression"].to_pylist() == ["tea", "milk"]


def test_tables_that_do_not_go_together_are_refused(monkeypatch):
    coding = Coding.new()
    named, bare, numbered = (
        SubscriptionTable.from_arrow(columns | {"expression": ["tea milk"]}, like=coding)
        for columns in ({"id": ["a"]}, {}, {"id": [7]})
    )
    for other in (bare, numbered):
        with pytest.raises(ColumnError, match="ids of the same type"):
            GrowingTable.joined([named, other])
    with pytest.raises(ColumnError, match="different vocabularies"):
        GrowingTable.joined([named, SubscriptionTable.from_arrow({"expression": ["tea"]})])
    monkeypatch.setattr(growing_table, "_MOST", 3)
    with pytest.raises(ColumnError, match="4 values in one column; a table holds at most 3"):
        GrowingTable.joined([named, named])


# A shard whose rows come in portions, as Spark sends them: each is one buffer, of which the ids are a part.
SHARD = """
    import json, sys, time
    import numpy as np, pyarrow as pa
    from nearcast import SubscriptionTable
    from nearcast.columns.coding import Coding
    from nearcast.sharding.building import ShardBuilder
    from nearcast.sharding.distribution import Routes, distribute
    from nearcast.storage.places import place_at

    PORTION = 10_000
    words = np.array([f"word{i}" for i in range(5_000)])

    def portion(start):
        rng = np.random.default_rng(start)
        at = rng.random((PORTION, 2)) * 60
        chosen = np.sort((len(words) ** rng.random(2 * PORTION)).astype(int) - 1)
        keywords = pa.ListArray.from_arrays(np.arange(0, 2 * PORTION + 1, 2, np.int32), pa.array(words[chosen]))
        ids = pa.array([f"subscription-{i:09}" for i in range(start, start + PORTION)])
        box = {"xmin": at[:, 0], "ymin": at[:, 1], "xmax": at[:, 0] + 0.01, "ymax": at[:, 1] + 0.01}
        batch = pa.RecordBatch.from_pydict({"id": ids, "keywords": keywords, **box})
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema) as stream:
            stream.write_batch(batch)
        return pa.ipc.open_stream(sink.getvalue()).read_all()

    def build(name, size):
        coding, first = Coding.new(), portion(0)
        fitted = distribute("hash", SubscriptionTable.from_arrow(first, like=coding), 1)
        coding.vocabulary.add(pa.array(words))
        with ShardBuilder(place_at(sys.argv[1]), name, 0, first.schema, fitted, coding) as builder:
            for start in range(0, size, PORTION):
                rows = portion(start)
                stored = Routes(np.arange(PORTION + 1), np.zeros(PORTION, np.int32))
                builder.add(rows, SubscriptionTable.from_arrow(rows, like=coding), stored)
            return builder.finish("auto").stored

    def memory(field):
        return int(open("/proc/self/status").read().partition(field + ":")[2].split()[0]) * 1024

    build("warm", 2 * PORTION)  # compiles everything, and maps the libraries
    open("/proc/self/clear_refs", "w").write("5")
    before = memory("VmRSS")
    stored = build("large", int(sys.argv[2]))
    print(json.dumps({"stored": stored, "grown": memory("VmHWM") - before}))
"""


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="memory is measured as on Linux")
def test_a_shard_takes_little_memory_while_it_is_built(tmp_path):
    size = 400_000
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(SHARD), str(tmp_path), str(size)],
        capture_output=True,
        text=True,
        check=True,
    )
    figures = json.loads(done.stdout)
    assert figures["stored"] == size
    # Bytes a subscription. It is about 200, and twice as much if all portions are kept and joined at the end.
    assert figures["grown"] / size < 260, figures
