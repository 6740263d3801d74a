"""Places: the same operations, with the same outcome, on a disk and in an object store."""

import errno
import fcntl
import json
import os
import pickle
import shutil
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar

import numpy as np
import obstore
import pytest
from obstore.exceptions import NotSupportedError

from nearcast.errors import InputError, StorageError
from nearcast.storage import objects
from nearcast.storage.directory import write as save
from nearcast.storage.places import place_at, uri_of


@pytest.fixture(params=["disk", "s3", pytest.param("hdfs", marks=pytest.mark.long)])
def place(request, tmp_path):
    if request.param == "disk":
        return place_at(tmp_path / "a place")
    return place_at(f"{request.getfixturevalue(request.param)}/{tmp_path.name}/a place")


def cannot_swap(place):
    """HDFS cannot compare and replace."""
    if place.uri.startswith("hdfs:"):
        with pytest.raises(StorageError, match=r"HDFS cannot replace .* only if it is unchanged"):
            place.swap("pointer", b"", "tag")
        return True
    return False


def test_a_file_is_written_read_and_removed(place, tmp_path):
    assert not place.exists("a/b")
    place.write("a/b", b"one")
    place.write("a/b", memoryview(b"two"))
    (tmp_path / "local").write_bytes(b"three")
    place.write("c", tmp_path / "local")
    assert (place.read("a/b"), place.read("c")) == (b"two", b"three")
    assert place.exists("a/b")
    assert not place.exists("a")
    assert [(entry.name, entry.size) for entry in place.entries()] == [("a/b", 3), ("c", 5)]
    assert [entry.name for entry in place.entries("a/")] == ["a/b"]
    assert [entry.name for entry in (place / "a").entries("b")] == ["b"]
    assert place.children() == ["a", "c"]
    place.remove(["a/b", "not there"])
    assert [entry.name for entry in place.entries()] == ["c"]
    place.clear()
    place.clear()
    assert place.entries() == []
    assert place.children() == []


def test_what_is_missing_is_a_file_not_found_error(place, tmp_path):
    with pytest.raises(FileNotFoundError):
        place.read("none")
    with pytest.raises(FileNotFoundError):
        place.open("none")
    with pytest.raises(FileNotFoundError):
        place.download("none", tmp_path / "copy")
    assert place.read_tagged("none") is None


def test_create_never_replaces(place):
    assert place.create("state", b"first")
    assert not place.create("state", b"second")
    assert place.read("state") == b"first"


def test_swap_replaces_what_has_not_changed(place):
    if cannot_swap(place):
        return
    assert not place.swap("pointer", b"one", '"another"')
    assert place.swap("pointer", b"one", None)
    assert not place.swap("pointer", b"two", None)
    content, tag = place.read_tagged("pointer")
    assert content == b"one"
    assert place.swap("pointer", b"two", tag)
    assert not place.swap("pointer", b"three", tag)
    assert place.read("pointer") == b"two"


@pytest.mark.parametrize("operation", ["create", "swap"])
def test_of_many_writers_one_wins(place, operation):
    if operation == "swap" and cannot_swap(place):
        return
    place.write("before", b"0")
    tag = place.read_tagged("before")[1]
    won, start = [], threading.Barrier(8)

    def write(number):
        content = str(number).encode()
        start.wait()
        if place.create("new", content) if operation == "create" else place.swap("before", content, tag):
            won.append(content)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(1, 9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert won == [place.read("new" if operation == "create" else "before")]


def leave_draft(place, name, monkeypatch):
    """Write a file as a process does that is killed before it is complete."""
    if place.uri.startswith("hdfs:"):
        place._draft(name, b"half")
        return

    def die(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("nearcast.storage.atomic.rename_durably", die)
        patch.setattr("nearcast.storage.directory.rename_durably", die)
        patch.setattr(os, "link", die)
        patch.setattr(Path, "unlink", lambda *_, **__: None)
        patch.setattr(shutil, "rmtree", lambda *_, **__: None)
        for write in (
            place.write,
            place.create,
            lambda name, _: save(place / name, "test", {"a": np.ones(9)}, {}),
        ):
            with pytest.raises(KeyboardInterrupt):
                write(name, b"half")


def test_drafts_of_killed_writers_are_swept_when_they_are_old(place, monkeypatch):
    place.write("a/kept", b"whole")
    place.sweep_drafts(time.time() + 60)
    if place.uri.startswith("s3:"):  # what is not complete is not there
        assert place.drafts() == []
        assert place.read("a/kept") == b"whole"
        return
    hidden = []
    if place.local is not None:
        place.swap("a/pointer", b"1", None)
        (place.local / ".foreign").touch()
        hidden = [place.local / "a" / ".pointer.lock", place.local / ".foreign"]
    leave_draft(place, "a/b", monkeypatch)
    drafts = place.drafts()
    assert len(drafts) == (1 if place.uri.startswith("hdfs:") else 3)
    assert all(draft.name.startswith("a/.b.") and draft.size for draft in drafts)
    before = place.entries()
    assert not any("/." in entry.name for entry in before)
    place.sweep_drafts(time.time() - 60)
    assert place.drafts() == drafts
    place.sweep_drafts(time.time() + 60)
    assert place.drafts() == []
    assert place.entries() == before
    assert all(path.exists() for path in hidden)


def test_files_are_read_at_any_position(place):
    place.write("file", bytes(range(256)) * 100)
    with place.open("file") as file:
        file.seek(1000)
        assert bytes(file.read(3)) == bytes([232, 233, 234])
        file.seek(-1, 2)
        assert bytes(file.read()) == b"\xff"


def test_a_large_file_is_downloaded_in_pieces(place, tmp_path):
    content = bytes(range(256)) * 100_000
    place.write("large", content)
    place.download("large", tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == content


def test_a_place_travels_as_its_uri(place):
    place.write("file", b"here")
    copy = pickle.loads(pickle.dumps(place))
    assert copy == place
    assert copy.read("file") == b"here"


def test_uris():
    assert uri_of("/data//versions/") == "file:///data/versions"
    assert uri_of("file:/data") == uri_of("file:///data") == uri_of("file://localhost/data") == "file:///data"
    assert uri_of("/with space/%20") == "file:///with space/%20"
    assert uri_of("s3n://bucket/a/") == "s3://bucket/a"
    assert uri_of("abfss://container@account.dfs.core.windows.net/a").startswith("abfss://container@")
    assert place_at("s3://bucket") / "a" == place_at("s3a://bucket/a")


@pytest.mark.parametrize(
    ("uri", "said"),
    [
        ("dbfs:/versions", "unknown scheme 'dbfs'; give a path, or one of file:, s3:, gs:, abfss:, hdfs:"),
        ("s3:/bucket", "names no bucket or host; write s3://NAME/path"),
        ("file://host/data", "write file:///path, with three slashes"),
        (7, "a place is a path or a URI, not 7"),
    ],
)
def test_uris_that_name_no_place_are_refused(uri, said):
    with pytest.raises(InputError, match=said):
        place_at(uri)


def test_places_of_google_and_microsoft_read_the_environment(monkeypatch, tmp_path):
    """Nothing is sent; the names of the settings are those of docs/storage.md."""
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", "a2V5")
    azure = place_at(f"abfss://box@account.dfs.core.windows.net/{tmp_path.name}")
    assert (azure._store.config["account_name"], azure._store.config["container_name"]) == ("account", "box")
    assert place_at(f"gs://bucket/{tmp_path.name}/a")._store.config["bucket"] == "bucket"
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "key.json"))
    with pytest.raises(Exception, match=r"key\.json"):
        place_at(f"gs://bucket/{tmp_path.name}/b").read("a")


def test_on_a_disk_others_may_read_what_the_umask_says(tmp_path):
    """As executors under another user do."""
    before = os.umask(0o022)
    try:
        place = place_at(tmp_path / "versions")
        place.write("a/written", b"")
        place.create("a/created", b"")
        place.swap("a/swapped", b"", None)
        save(place / "version", "test", {"numbers": np.arange(3)}, {})
    finally:
        os.umask(before)
    found = {path.name: path.stat().st_mode & 0o777 for path in place.local.rglob("[!.]*")}
    files = ("written", "created", "swapped", "numbers", "manifest.json")
    assert found == {**dict.fromkeys(("a", "version"), 0o755), **dict.fromkeys(files, 0o644)}


def test_a_store_without_conditional_writes_is_refused_by_name(s3, monkeypatch):
    place, put = place_at(s3), obstore.put

    def refuse(*_, **__):
        raise NotSupportedError("no conditions here")

    monkeypatch.setattr(objects, "_CONDITIONAL", set())
    with monkeypatch.context() as patch:
        patch.setattr(obstore, "put", refuse)
        with pytest.raises(
            StorageError, match=f"store of {s3} has no conditional writes .*no conditions here"
        ):
            place.create("a", b"")
    with monkeypatch.context() as patch:
        patch.setattr(obstore, "put", lambda store, name, content, mode=None: put(store, name, content))
        with pytest.raises(StorageError, match="it ignores If-None-Match"):
            place.create("a", b"")
    assert place.entries() == []
    assert place.create("a", b"first")
    assert not place.create("a", b"second")
    assert place.read("a") == b"first"


def test_a_store_that_ignores_if_match_is_refused_by_name(s3, monkeypatch):
    """As some that speak the language of S3 do; what is there stays as it is."""
    place, put = place_at(s3), obstore.put
    monkeypatch.setattr(objects, "_CONDITIONAL", set())
    place.create("pointer", b"first")
    _, tag = place.read_tagged("pointer")

    def forgetful(store, name, content, mode="overwrite"):
        return put(store, name, content, mode="overwrite" if isinstance(mode, dict) else mode)

    with monkeypatch.context() as patch:
        patch.setattr(obstore, "put", forgetful)
        with pytest.raises(
            StorageError, match=f"store of {s3} has no conditional writes .*it ignores If-Match"
        ):
            place.swap("pointer", b"second", tag)
    assert place.read("pointer") == b"first"
    assert place.swap("pointer", b"second", place.read_tagged("pointer")[1])
    assert not place.swap("pointer", b"third", tag)
    assert place.read("pointer") == b"second"


def test_a_store_without_etags_is_refused_by_name(s3, monkeypatch):
    place, get = place_at(s3), obstore.get
    place.write("pointer", b"first")

    def untagged(*given):
        found = get(*given)
        return SimpleNamespace(bytes=found.bytes, meta={**found.meta, "e_tag": None})

    monkeypatch.setattr(obstore, "get", untagged)
    with pytest.raises(StorageError, match="it gives no ETags"):
        place.read_tagged("pointer")


class GoogleServer(BaseHTTPRequestHandler):
    """As much of Google Cloud Storage as a pointer needs: objects with generations, and conditions on them."""

    objects: ClassVar[dict[str, tuple[int, bytes]]] = {}

    def do_GET(self):
        generation, content = self.objects.get(self.path, (0, None))
        self._answer(404 if content is None else 200, generation, content or b"")

    def do_PUT(self):
        content = self.rfile.read(int(self.headers["Content-Length"]))
        generation, _ = self.objects.get(self.path, (0, b""))
        wanted = self.headers["x-goog-if-generation-match"]
        if wanted is not None and int(wanted) != generation:
            self._answer(412, generation)
            return
        self.objects[self.path] = generation + 1, content
        self._answer(200, generation + 1)

    def _answer(self, status, generation, content=b""):
        self.send_response(status)
        self.send_header("ETag", '"same"')
        self.send_header("x-goog-generation", str(generation))
        self.send_header("Last-Modified", "Thu, 19 Nov 2026 08:00:00 GMT")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_):
        """Say nothing."""


def test_google_is_asked_by_generation(tmp_path, monkeypatch):
    """Its condition is the number of an object's generation; an ETag is none."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), GoogleServer)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        account = {
            "gcs_base_url": f"http://127.0.0.1:{server.server_port}",
            "disable_oauth": True,
            "client_email": "",
            "private_key": "",
            "private_key_id": "",
        }
        (tmp_path / "key.json").write_text(json.dumps(account))
        monkeypatch.setenv("GOOGLE_SERVICE_ACCOUNT", str(tmp_path / "key.json"))
        monkeypatch.setenv("GOOGLE_STORAGE_ENDPOINT", account["gcs_base_url"])
        place = place_at(f"gs://bucket/{tmp_path.name}")
        assert place.create("pointer", b"first")
        assert not place.create("pointer", b"other")
        content, tag = place.read_tagged("pointer")
        assert content == b"first"
        assert place.swap("pointer", b"second", place.read_tagged("pointer")[1])
        assert not place.swap("pointer", b"third", tag)
        assert place.read("pointer") == b"second"
    finally:
        server.shutdown()
        server.server_close()


def test_a_file_system_without_locks_is_refused_by_name(tmp_path, monkeypatch):
    def flock(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", flock)
    with pytest.raises(StorageError, match=f"file system of {tmp_path} has no locks"):
        place_at(tmp_path).swap("a", b"", None)


def test_a_file_system_without_hard_links_is_refused_by_name(tmp_path, monkeypatch):
    def link(*_):
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", link)
    with pytest.raises(StorageError, match=f"file system of {tmp_path} has no hard links"):
        place_at(tmp_path).create("a", b"")
    assert list(tmp_path.iterdir()) == []
