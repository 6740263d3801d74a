"""Everything that can be saved can be saved in an object store; a machine fetches it once, and checks it."""

import shutil
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from nearcast import Engine, Message, Point, Subscription, SubscriptionTable, build_index, config, open_index
from nearcast.errors import IndexFileError, InputError
from nearcast.storage import cache
from nearcast.storage.atomic import draft_name
from nearcast.storage.directory import read, write
from nearcast.storage.manifest import MANIFEST
from nearcast.storage.objects import ObjectStore
from nearcast.storage.places import place_at

ARRAYS = {
    "a/numbers": np.arange(1000),
    "a/places": np.linspace(0, 1, 200_000).reshape(-1, 2),
    "empty": np.empty(0),
}


@pytest.fixture
def copies(tmp_path, monkeypatch):
    """The directory of local copies, empty at first."""
    monkeypatch.setenv("NEARCAST_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache" / "parts"


@pytest.fixture
def downloads(monkeypatch):
    """The names of all files that are fetched."""
    names, download = [], ObjectStore.download
    monkeypatch.setattr(
        ObjectStore, "download", lambda self, name, path: (names.append(name), download(self, name, path))
    )
    return names


def complete(copies):
    return [path for path in copies.iterdir() if not path.name.startswith(".")]


def test_arrays_are_fetched_once(s3, copies, downloads):
    where = f"{s3}/arrays"
    assert write(where, "test", ARRAYS, {"n": 1}) == where
    for _ in range(3):
        document, arrays = read(where, "test", verify=True)
        assert document == {"n": 1}
        assert {name: array.tolist() for name, array in arrays.items()} == {
            name: array.tolist() for name, array in ARRAYS.items()
        }
    assert len(downloads) == len(ARRAYS)
    assert len(complete(copies)) == 1


def test_many_readers_fetch_once(s3, copies, downloads):
    write(f"{s3}/arrays", "test", ARRAYS, {})
    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda _: read(f"{s3}/arrays", "test")[1]["a/numbers"].sum(), range(16)))
    assert results == [499_500] * 16
    assert len(downloads) == len(ARRAYS)


READER = """
import sys
from nearcast.storage.directory import read
from nearcast.storage.objects import ObjectStore

download = ObjectStore.download
ObjectStore.download = lambda self, name, path: (print(name), download(self, name, path))
print("ready", flush=True)
sys.stdin.readline()
assert read(sys.argv[1], "test")[1]["a/numbers"].sum() == 499_500
"""


def test_many_processes_fetch_once(s3, copies):
    write(f"{s3}/arrays", "test", ARRAYS, {})
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    command = [sys.executable, "-c", READER, f"{s3}/arrays"]
    readers = [subprocess.Popen(command, **pipes) for _ in range(3)]
    assert [reader.stdout.readline() for reader in readers] == ["ready\n"] * 3
    for reader in readers:
        reader.stdin.write("\n")
        reader.stdin.flush()
    names = [name for reader in readers for name in reader.communicate(timeout=60)[0].split()]
    assert [reader.returncode for reader in readers] == [0] * 3
    assert len(names) == len(ARRAYS)


def test_a_directory_counts_when_its_manifest_is_there(s3, copies):
    place = place_at(f"{s3}/arrays")
    write(place, "test", ARRAYS, {})
    manifest = place.read(MANIFEST)
    place.remove([MANIFEST])
    with pytest.raises(IndexFileError, match=r"nothing is saved at .*: it has no manifest\.json"):
        read(place, "test")
    write(place, "test", {"other": np.arange(3)}, {})  # beside the files of the first one
    assert read(place, "test")[1]["other"].tolist() == [0, 1, 2]
    place.write(MANIFEST, manifest)
    assert read(place, "test")[1]["a/numbers"].tolist() == list(range(1000))


def test_an_existing_directory_is_never_overwritten(s3, copies):
    place = place_at(f"{s3}/arrays")
    write(place, "test", ARRAYS, {})
    before = place.entries()
    with pytest.raises(IndexFileError, match="exists already"):
        write(place, "test", ARRAYS, {})
    assert place.entries() == before


def test_of_two_writers_at_once_one_wins_and_the_other_leaves_nothing(s3, copies, monkeypatch):
    place, both = place_at(f"{s3}/arrays"), threading.Barrier(2)
    create = ObjectStore.create
    monkeypatch.setattr(ObjectStore, "create", lambda *arguments: (both.wait(), create(*arguments))[1])
    failures = []

    def save(number):
        try:
            write(place, "test", {"number": np.array([number])}, {})
        except IndexFileError as error:
            failures.append((number, str(error)))

    threads = [threading.Thread(target=save, args=(number,)) for number in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    ((lost, said),) = failures
    assert "exists already" in said
    assert read(place, "test")[1]["number"].tolist() == [3 - lost]
    assert len(place.entries()) == 2


def test_what_killed_writers_have_sent_is_removed_by_the_next_one(s3, copies, monkeypatch):
    place = place_at(f"{s3}/arrays")

    def die(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(ObjectStore, "create", die)
        patch.setattr(ObjectStore, "remove", lambda *_: None)
        with pytest.raises(KeyboardInterrupt):
            write(place, "test", {"lost": np.arange(9)}, {})
    assert [entry.name.rpartition("/")[2] for entry in place.entries()] == ["lost"]
    now = time.time()
    monkeypatch.setattr(
        "nearcast.storage.directory.time.time", lambda: now + config.STORAGE_ABANDONED_SECONDS + 60
    )
    monkeypatch.setattr(
        ObjectStore,
        "entries",
        lambda *given, entries=ObjectStore.entries: [
            entry._replace(modified=entry.modified + 3_600 * (not entry.name.endswith("lost")))
            for entry in entries(*given)
        ],
    )
    write(place, "test", {"kept": np.arange(9)}, {})
    assert read(place, "test")[1]["kept"].tolist() == list(range(9))
    names = [entry.name.rpartition("/")[2] for entry in place.entries()]
    assert sorted(names) == ["kept", MANIFEST]


def test_damage_in_the_store_is_named_and_nothing_is_kept(s3, copies):
    place = place_at(f"{s3}/arrays")
    write(place, "test", ARRAYS, {})
    (name,) = [entry.name for entry in place.entries() if entry.name.endswith("a.places")]
    content = bytearray(place.read(name))
    content[77] ^= 1
    place.write(name, bytes(content))
    with pytest.raises(IndexFileError, match=rf"{place}.*a\.places is damaged"):
        read(place, "test")
    place.remove([name])
    with pytest.raises(IndexFileError, match=rf"{place} is incomplete: .*a\.places"):
        read(place, "test")
    assert complete(copies) == []


def test_a_damaged_copy_is_fetched_again(s3, copies):
    place = place_at(f"{s3}/arrays")
    write(place, "test", ARRAYS, {})
    read(place, "test")
    (file,) = copies.rglob("a.numbers")
    content = bytearray(file.read_bytes())
    content[5] ^= 64
    file.write_bytes(bytes(content))
    assert read(place, "test")[1]["a/numbers"].tolist() == list(range(1000))


def test_copies_are_bounded_and_the_least_used_go_first(s3, copies, monkeypatch):
    places = [place_at(f"{s3}/{number}") for number in range(4)]
    for number, place in enumerate(places):
        write(place, "test", {"numbers": np.full(10_000, number)}, {})  # 80 KB each
    monkeypatch.setenv("NEARCAST_CACHE_BYTES", "200000")
    opened = []
    for number in (0, 1, 0, 2, 3):
        opened.append(read(places[number], "test")[1]["numbers"])
        time.sleep(0.02)  # so that the times of use differ
    kept = sorted(
        int(np.frombuffer(next(path.rglob("numbers")).read_bytes(), np.int64)[0]) for path in complete(copies)
    )
    assert kept == [2, 3]
    assert [int(array[0]) for array in opened] == [0, 1, 0, 2, 3]  # what is mapped stays
    assert int(read(places[1], "test")[1]["numbers"][0]) == 1
    monkeypatch.setenv("NEARCAST_CACHE_BYTES", "much")
    with pytest.raises(InputError, match="NEARCAST_CACHE_BYTES must be a whole number of bytes, not 'much'"):
        read(places[0], "test")


def test_a_fetch_that_was_interrupted_leaves_nothing_that_counts(s3, copies, monkeypatch):
    place = place_at(f"{s3}/arrays")
    write(place, "test", ARRAYS, {})
    with monkeypatch.context() as patch:

        def die(*_, **__):
            raise KeyboardInterrupt

        patch.setattr(cache, "check_files", die)
        patch.setattr(shutil, "rmtree", lambda *_, **__: None)  # as if the process had been killed
        with pytest.raises(KeyboardInterrupt):
            read(place, "test")
    assert [path.name for path in copies.iterdir() if path.is_dir()] != []
    assert read(place, "test")[1]["a/numbers"].sum() == 499_500
    assert [path.name for path in copies.iterdir() if path.is_dir() and path.name.startswith(".")] == []


def test_drafts_of_other_copies_are_removed_unless_somebody_writes_them(s3, copies):
    place = place_at(f"{s3}/arrays")
    write(place, "test", ARRAYS, {})
    copies.mkdir(parents=True)
    abandoned, busy = (copies / draft_name(digit * 32) for digit in "ab")
    for draft in (abandoned, busy):
        draft.mkdir()
        (draft / "half").write_bytes(b"half")
    with cache._locked(copies, busy.name[1:], shared=False):
        read(place, "test")
        assert not abandoned.exists()
        assert busy.exists()


def test_an_engine_and_an_index_rest_in_a_store(s3, copies):
    engine = Engine()
    engine.subscribe(Subscription("anna", "coffee"))
    assert engine.save(f"{s3}/engine") == f"{s3}/engine"
    build_index("auto", SubscriptionTable.from_arrow({"id": ["a"], "expression": ["tea"]})).save(
        f"{s3}/index"
    )
    opened = Engine.open(f"{s3}/engine")
    (delivery,) = opened.publish(Message("m", "coffee", Point(lon=0, lat=0)))
    assert delivery.subscription_id == "anna"
    assert len(open_index(f"{s3}/index", verify=True)) == 1
