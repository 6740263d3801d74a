"""Files that appear whole and stay."""

import os
import re
from pathlib import Path

import pyarrow as pa
import pytest

from nearcast.sharding.building import build_sharded
from nearcast.storage.atomic import sync_tree, write_durably
from nearcast.storage.current import current, switch
from nearcast.storage.places import place_at


@pytest.fixture
def synced(monkeypatch):
    """The paths that were synced, in this order, as they were called then."""
    paths = []
    monkeypatch.setattr(os, "fsync", lambda file: paths.append(Path(f"/proc/self/fd/{file}").readlink()))
    if not Path("/proc/self/fd").exists():
        pytest.skip("only Linux tells the path of an open file")
    return paths


def test_a_file_is_on_disk_before_it_has_its_name(tmp_path, synced):
    path = tmp_path / "a"
    path.write_bytes(b"old")
    with write_durably(path) as file:
        file.write(b"new")
        assert path.read_bytes() == b"old"
    assert path.read_bytes() == b"new"
    draft, directory = synced
    assert draft.name.startswith(".a.")
    assert directory == tmp_path


def test_after_an_error_the_old_file_is_there(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"old")
    with pytest.raises(TypeError), write_durably(path) as file:
        file.writelines([b"half", None])
    assert [(each.name, each.read_bytes()) for each in tmp_path.iterdir()] == [("a", b"old")]


def test_a_tree_is_synced_with_its_directories(tmp_path, synced):
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "c").touch()
    sync_tree(tmp_path)
    assert set(synced) == {tmp_path, *tmp_path.rglob("*")}


def test_the_current_version_is_switched(tmp_path, synced):
    for name in ("one", "two"):
        switch(tmp_path, name)
        assert current(tmp_path).local == tmp_path / name
    assert synced[-1] == tmp_path


def test_every_file_of_a_sharded_version_is_synced_the_manifest_last(tmp_path, synced):
    table = pa.table({"id": ["a", "b", "c"], "expression": ["tea", "coffee", "tea OR flood"]})
    place = place_at(tmp_path / "version")
    build_sharded(place, table, index="scan", distribution="hash", shards=2, messages=None)
    written = {entry.name.rpartition("/")[2] for entry in place.entries() if entry.name != "manifest.json"}
    told = {re.sub(r"^\.(.*)\.[0-9a-f]{32}$", r"\1", path.name) for path in synced}
    assert written <= told
    assert synced[-2].name.startswith(".manifest.json.")
    assert synced[-1] == place.local
