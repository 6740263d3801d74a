"""Arrays at rest: what is written is read, and every damage is told."""

import json
import os

import numpy as np
import pytest

from nearcast import config
from nearcast.errors import IndexFileError
from nearcast.kernels.checksum import checksum
from nearcast.storage.current import CURRENT, current
from nearcast.storage.directory import read, restoring, write
from nearcast.storage.manifest import FORMAT, MANIFEST, read_manifest, write_manifest

RECORD = np.dtype([("at", np.int32), ("score", np.float64), ("pair", np.uint8, (2,))], align=True)
ARRAYS = {
    "rows/offsets": np.array([0, 2, 2, 5]),
    "rows/codes": np.arange(5, dtype=np.int32),
    "boxes": np.arange(12.0).reshape(3, 4),
    "flags": np.array([True, False]),
    "nothing": np.empty((0, 4), np.float32),
    "number": np.array(7),
    "heads": np.array([(1, 2.5, (3, 4)), (5, 6.5, (7, 8))], RECORD),
}
DOCUMENT = {"name": "drei", "k": 3, "parts": [["größe", True]], "none": None}


@pytest.fixture
def saved(tmp_path):
    return write(tmp_path / "things", "thing", ARRAYS, DOCUMENT)


def flips(content, ats):
    """Yield the content with one bit changed, for each bit of the bytes *ats*."""
    for at in ats:
        for bit in range(8):
            yield content[:at] + bytes([content[at] ^ 1 << bit]) + content[at + 1 :]


def files(directory):
    """The files of the arrays."""
    return [path for path in directory.iterdir() if path.name != MANIFEST]


def reseal(directory, change):
    """Change the values of a manifest that then answers for itself again."""
    values = json.loads((directory / MANIFEST).read_text(encoding="utf-8"))
    change(values)
    write_manifest(directory, values["kind"], values["document"], values["files"])


class TestRoundTrip:
    def test_arrays_and_document(self, saved):
        for verify in (False, True):
            document, arrays = read(saved, "thing", verify=verify)
            assert document == DOCUMENT
            assert arrays.keys() == ARRAYS.keys()
            for name, array in ARRAYS.items():
                assert arrays[name].dtype == array.dtype
                assert arrays[name].shape == array.shape
                assert np.array_equal(arrays[name], array)
                assert arrays[name].flags.writeable
                assert arrays[name].flags.c_contiguous

    def test_a_file_holds_the_bytes_alone(self, saved):
        assert (saved / "rows.offsets").read_bytes() == ARRAYS["rows/offsets"].tobytes()
        assert {path.name for path in saved.iterdir()} == {
            MANIFEST,
            *(name.replace("/", ".") for name in ARRAYS),
        }

    def test_what_is_changed_stays_private(self, saved):
        _, arrays = read(saved, "thing")
        arrays["rows/codes"][:] = 9
        _, again = read(saved, "thing", verify=True)
        assert again["rows/codes"].tolist() == [0, 1, 2, 3, 4]

    def test_any_layout_is_written_in_order(self, tmp_path):
        square = np.arange(12).reshape(3, 4)
        odd = np.frombuffer(b"xabcdefgh", np.uint8)[1:]  # read-only, and not where words stand
        saved = write(tmp_path / "a", "thing", {"turned": square.T, "every": square[:, ::2], "odd": odd}, {})
        _, arrays = read(saved, "thing", verify=True)
        assert np.array_equal(arrays["turned"], square.T)
        assert np.array_equal(arrays["every"], square[:, ::2])
        assert arrays["odd"].tobytes() == b"abcdefgh"

    @pytest.mark.parametrize("name", ["", "A", "a.b", "../a", "a//b", "/a"])
    def test_a_name_that_is_no_file(self, tmp_path, name):
        with pytest.raises(ValueError, match="not the name of an array"):
            write(tmp_path / "a", "thing", {name: np.zeros(1)}, {})
        assert list(tmp_path.iterdir()) == []

    def test_objects_do_not_rest(self, tmp_path):
        with pytest.raises(TypeError, match="Python objects"):
            write(tmp_path / "a", "thing", {"a": np.array([None])}, {})
        with pytest.raises(ValueError, match="JSON"):
            write(tmp_path / "a", "thing", {}, {"share": float("nan")})


class TestWriting:
    def test_never_overwritten(self, saved):
        with pytest.raises(IndexFileError, match="exists already"):
            write(saved, "thing", ARRAYS, DOCUMENT)

    def test_nothing_is_left_when_it_fails(self, tmp_path, monkeypatch):
        def fail(*_):
            raise OSError("disk full")

        monkeypatch.setattr(os, "fsync", fail)
        with pytest.raises(OSError, match="disk full"):
            write(tmp_path / "new", "thing", ARRAYS, DOCUMENT)
        assert list(tmp_path.iterdir()) == []


class TestDamage:
    @pytest.mark.parametrize("verify", [False, True])
    def test_every_bit_of_the_manifest(self, tmp_path, verify):
        saved = write(tmp_path / "few", "thing", {"offsets": np.array([0, 2])}, {"name": "größe"})
        path = saved / MANIFEST
        content = path.read_bytes()
        for damaged in flips(content, range(len(content))):
            path.write_bytes(damaged)
            with pytest.raises(IndexFileError, match="damaged"):
                read(saved, "thing", verify=verify)

    def test_a_manifest_cut_anywhere(self, saved):
        path = saved / MANIFEST
        content = path.read_bytes()
        for length in range(len(content)):
            path.write_bytes(content[:length])
            with pytest.raises(IndexFileError, match="damaged"):
                read(saved, "thing")
        path.write_bytes(content + b"\n")
        with pytest.raises(IndexFileError, match="damaged"):
            read(saved, "thing")

    def test_every_bit_of_every_file(self, saved):
        for path in files(saved):
            content = path.read_bytes()
            for damaged in flips(content, range(len(content))):
                path.write_bytes(damaged)
                with pytest.raises(IndexFileError, match="damaged"):
                    read(saved, "thing", verify=True)
            path.write_bytes(content)

    def test_without_verify_only_many_floats_are_left_unread(self, saved, monkeypatch):
        monkeypatch.setattr(config, "STORAGE_ALWAYS_READ", ARRAYS["boxes"].nbytes - 1)
        for path in files(saved):
            content = path.read_bytes()
            for damaged in flips(content, range(len(content))):
                path.write_bytes(damaged)
                if path.name == "boxes":
                    read(saved, "thing")
                else:
                    with pytest.raises(IndexFileError, match="damaged"):
                        read(saved, "thing")
            path.write_bytes(content)

    def test_a_file_that_is_missing_or_of_another_length(self, saved):
        for name in ARRAYS:
            path = saved / name.replace("/", ".")
            content = path.read_bytes()
            for other in {content[:-1], content + b"\0"} - {content}:
                path.write_bytes(other)
                with pytest.raises(IndexFileError, match=rf"{path.name} has .* bytes"):
                    read(saved, "thing")
            path.unlink()
            with pytest.raises(IndexFileError, match=rf"{path.name} is missing"):
                read(saved, "thing")
            path.write_bytes(content)

    def test_no_manifest(self, tmp_path):
        for directory in (tmp_path, tmp_path / "nowhere"):
            with pytest.raises(IndexFileError, match=r"nothing is saved at .*: it has no manifest"):
                read(directory, "thing")


class TestOtherDirectories:
    def test_another_kind(self, saved):
        with pytest.raises(IndexFileError, match="'thing', not 'index'"):
            read(saved, "index")
        assert read_manifest(saved).kind == "thing"

    @pytest.mark.parametrize("version", [1, 2])
    def test_an_older_format(self, tmp_path, version):
        (tmp_path / MANIFEST).write_text(json.dumps({"format": version, "files": {}}))
        with pytest.raises(
            IndexFileError, match=f"has format {version}; .* reads format {FORMAT}; save it again"
        ):
            read(tmp_path, "thing")

    def test_a_newer_format(self, saved, monkeypatch):
        monkeypatch.setattr("nearcast.storage.manifest.FORMAT", FORMAT + 1)
        with pytest.raises(IndexFileError, match=f"has format {FORMAT};"):
            read(saved, "thing")

    @pytest.mark.parametrize("entry", [{}, {"dtype": "x", "shape": [3, 4]}, {"dtype": "<f8", "shape": [5]}])
    def test_a_sound_manifest_that_makes_no_sense(self, saved, entry):
        reseal(saved, lambda values: values["files"].update(boxes={"bytes": 96} | entry))
        with pytest.raises(IndexFileError, match="does not hold what it should"):
            read(saved, "thing")

    def test_whatever_goes_wrong_is_told_as_one_kind_of_error(self, saved):
        document, arrays = read(saved, "thing")
        for wrong in (
            lambda: arrays["x"],
            lambda: document["k"]["x"],
            lambda: int("x"),
            lambda: arrays["number"].reshape(3),
            lambda: document.x,
        ):
            with pytest.raises(IndexFileError, match="does not hold what it should"), restoring(saved):
                wrong()


def test_a_current_version_that_is_no_name(tmp_path):
    for content in (b"", b"../a", b"/etc", b"a/b", b"a\0b", b"..", b"\n"):
        (tmp_path / CURRENT).write_bytes(content)
        with pytest.raises(IndexFileError, match="not a version"):
            current(tmp_path)


class TestChecksum:
    @pytest.mark.parametrize(
        ("data", "expected"),
        [
            (b"", 0xEF46DB3751D8E999),
            (b"a", 0xD24EC4F1A98C6E5B),
            (b"abc", 0x44BC2CF5AD770999),
            (b"Nobody inspects the spammish repetition", 0xFBCEA83C8A378BF1),
        ],
    )
    def test_published_values(self, data, expected):
        assert checksum(np.frombuffer(data, np.uint8)) == expected

    def test_every_length_every_bit(self):
        data = np.arange(80, dtype=np.uint8)
        seen = {checksum(data[:length]) for length in range(81)}
        for bit in range(80 * 8):
            data[bit // 8] ^= 1 << bit % 8
            seen.add(checksum(data))
            data[bit // 8] ^= 1 << bit % 8
        assert len(seen) == 81 + 80 * 8
