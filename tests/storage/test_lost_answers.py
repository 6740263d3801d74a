"""A file may be there although the call that created it failed, or was told that there was one already."""

import uuid

import numpy as np
import pyarrow as pa
import pytest

from memory_place import Memory
from nearcast import MessageBatch, open_index
from nearcast.errors import IndexFileError
from nearcast.sharding import building
from nearcast.sharding.building import build_sharded
from nearcast.storage import places
from nearcast.storage.directory import read, write
from nearcast.storage.manifest import MANIFEST

ROWS = pa.table({"id": ["a", "b", "c"], "expression": ["tea", "milk", "tea"]})
LOST = ConnectionResetError("the connection was closed")


@pytest.fixture
def place(monkeypatch):
    monkeypatch.setitem(places._SCHEMES, "memory", "memory_place:Memory")
    return Memory(f"memory://{uuid.uuid4().hex}")


def built(place):
    build_sharded(place, ROWS, index="scan", distribution="hash", shards=2)


def found(place):
    version = open_index(place, verify=True)
    batch = MessageBatch.from_arrow({"id": [1], "lon": [0.0], "lat": [0.0], "text": ["tea"]}, like=version)
    return sorted(version.ids.take(pa.array(version.match(batch).rows)).to_pylist())


@pytest.mark.parametrize("answer", [LOST, KeyboardInterrupt()])
def test_a_directory_that_was_created_stays(place, answer):
    place.answers[MANIFEST] = answer
    with pytest.raises(type(answer)):
        write(place, "test", {"numbers": np.arange(3)}, {})
    assert read(place, "test")[1]["numbers"].tolist() == [0, 1, 2]


def test_a_directory_that_the_store_took_for_another_is_ours(place):
    place.answers[MANIFEST] = False  # the client had sent it twice
    write(place, "test", {"numbers": np.arange(3)}, {})
    assert read(place, "test")[1]["numbers"].tolist() == [0, 1, 2]


@pytest.mark.parametrize("answer", [LOST, KeyboardInterrupt(), False])
def test_a_version_that_was_created_stays(place, answer):
    place.answers[MANIFEST] = answer
    if answer is False:
        built(place)
    else:
        with pytest.raises(type(answer)):
            built(place)
    assert found(place) == ["a", "c"]
    before = place.entries()
    built(place)  # again: it leaves nothing
    assert place.entries() == before


def test_a_version_outlives_an_error_while_drafts_are_removed(place, monkeypatch):
    def refuse(_, build):
        raise LOST

    with monkeypatch.context() as patch:
        patch.setattr(building, "discard_build", refuse)
        with pytest.raises(ConnectionResetError):
            built(place)
    assert found(place) == ["a", "c"]


def test_what_does_not_count_is_removed(place, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(building, "save_distribution", lambda *_: (_ for _ in ()).throw(LOST))
        with pytest.raises(ConnectionResetError):
            built(place)
    assert place.entries() == []
    with monkeypatch.context() as patch:
        patch.setattr(building, "save_distribution", lambda *_: place.write(MANIFEST, b"damaged"))
        with pytest.raises(IndexFileError):
            built(place)
    assert len(place.entries()) > 1  # nobody knows what counts
