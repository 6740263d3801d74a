"""Rows of a version by id: found by keys, and read without those around them."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from nearcast.errors import IndexFileError
from nearcast.sharding.building import build_sharded
from nearcast.sharding.keys import find_keys, half_hashes, sorted_keys
from nearcast.sharding.version import ShardedVersion
from nearcast.storage.places import place_at

SIZE = 100_000


def subscriptions(ids):
    return pa.table(
        {"id": ids, "expression": pa.array(["tea", "milk"]).take(pa.array(np.arange(len(ids)) % 2))}
    )


def build(where, table, shards):
    build_sharded(place_at(where), table, index="scan", distribution="hash", shards=shards)
    return ShardedVersion(where)


@pytest.fixture
def groups(monkeypatch):
    """The row groups that are read."""
    read, plain = [], pq.ParquetFile.read_row_groups

    def counting(file, numbers, *args, **kwargs):
        read.extend(numbers)
        return plain(file, numbers, *args, **kwargs)

    monkeypatch.setattr(pq.ParquetFile, "read_row_groups", counting)
    return read


@pytest.mark.parametrize("kind", [pa.int64(), pa.int32(), pa.string(), pa.large_string()])
def test_a_row_is_found_by_its_id(kind):
    ids = pa.array(np.random.default_rng(0).permutation(5_000)).cast(kind)
    wanted = pa.array([17, 4_999, 123_456, 17]).cast(kind)
    found = find_keys(sorted_keys(half_hashes(ids)), wanted)
    assert found.ids.tolist() == [0, 1, 3]
    assert ids.take(pa.array(found.rows)).equals(wanted.take(pa.array(found.ids)))
    assert len(find_keys(sorted_keys(half_hashes(ids.slice(0, 0))), wanted).rows) == 0


def test_rows_whose_hashes_begin_alike_are_all_found(monkeypatch):
    monkeypatch.setattr(
        "nearcast.sharding.keys.half_hashes",
        lambda ids: ids.to_numpy().astype(np.uint64) // 3 << np.uint64(32),
    )
    from nearcast.sharding import keys

    found = find_keys(sorted_keys(keys.half_hashes(pa.array(range(9)))), pa.array([4, 7]))
    assert found.ids.tolist() == [0, 0, 0, 1, 1, 1]
    assert found.rows.tolist() == [3, 4, 5, 6, 7, 8]


def test_changes_cost_what_they_change_however_many_shards_there_are(tmp_path, groups):
    table = subscriptions(np.arange(0, 2 * SIZE, 2))
    changed = pa.array([0, 77_776, 77_777, 150_002, 199_998, 500_000])  # two of them are not there
    for shards in (2, 8, 32):
        version = build(tmp_path / str(shards), table, shards)
        groups.clear()
        found = version.rows_with_ids(changed)
        assert found.sort_by("id").equals(table.filter(pc.is_in(table["id"], changed)))
        assert len(groups) <= 4
    groups.clear()
    assert len(version.rows_with_ids(pa.array([1, 3, 5]))) == 0
    assert not groups


def test_from_a_store_the_keys_are_fetched_and_not_the_rows(s3, tmp_path, monkeypatch):
    monkeypatch.setenv("NEARCAST_CACHE_DIR", str(tmp_path))
    version = build(f"{s3}/version", subscriptions([f"s{number:06}" for number in range(SIZE)]), 4)
    found = version.rows_with_ids(pa.array(["s077777", "nobody"]))
    assert found.to_pylist() == [{"id": "s077777", "expression": "milk"}]
    fetched = {file.name: file.stat().st_size for file in (tmp_path / "parts").rglob("*") if file.is_file()}
    assert fetched.keys() - {"manifest.json"} == {"keys"} | {
        name for name in fetched if name.startswith(".lock")
    }
    assert 8 * SIZE / 5 < fetched["keys"] < 8 * SIZE / 3


def test_keys_that_are_missing_or_damaged_are_named(tmp_path):
    version = build(tmp_path / "version", subscriptions(np.arange(100)), 2)
    (file, _) = (tmp_path / "version").glob("keys-*/keys")
    content = bytearray(file.read_bytes())
    content[9] ^= 1
    file.write_bytes(bytes(content))
    with pytest.raises(IndexFileError, match=r"keys is damaged"):
        ShardedVersion(tmp_path / "version", verify=True)
    file.unlink()
    with pytest.raises(IndexFileError, match=r"keys-0.* is missing, or a part of it is"):
        version.check()
