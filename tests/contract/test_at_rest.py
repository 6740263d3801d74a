"""Save and open: the same answers, shared pages, private changes, and damage that is noticed."""

import os
import subprocess
import sys

import pytest

from answers import answers
from nearcast import (
    Circle,
    Message,
    MessageBatch,
    Point,
    Polygon,
    Subscription,
    SubscriptionTable,
    build_index,
    open_index,
)
from nearcast.errors import IndexFileError
from nearcast.matching import INDEXES
from nearcast.storage.directory import read, write
from nearcast.storage.manifest import read_manifest, write_manifest
from profiles import shortened

SUBS = [
    Subscription("a", 'tea AND (milk OR "happy hour")', Circle(lon=0, lat=0, radius=1000)),
    Subscription("b", "tea NOT milk AND price < 3", Polygon("POLYGON ((-1 -1, 1 -1, 0 1, -1 -1))")),
    Subscription("c", None, Polygon("POLYGON ((0 0, 5 0, 5 5, 0 0))")),
    Subscription("d", 'brand = "Huawei"'),
]
MESSAGES = [
    Message(1, "tea milk", Point(lon=0, lat=0), {"price": 1, "brand": "Huawei"}),
    Message(2, "tea", Point(lon=0.5, lat=-0.5), {"price": 1}),
    Message(3, "happy hour tea", Point(lon=3, lat=1), {"brand": "other"}),
]


def who(index):
    batch = MessageBatch.from_messages(MESSAGES, like=index.table)
    ids = index.table.ids.to_pylist()
    return [sorted(ids[row] for row in rows) for rows in answers(index, batch)]


@pytest.fixture
def index(name):
    return build_index(name, SubscriptionTable.from_subscriptions(SUBS))


@pytest.fixture
def saved(index, tmp_path):
    return index.save(tmp_path / "index")


def test_the_answers_are_right(index):
    assert who(index) == [["a", "c", "d"], ["b"], ["c"]]


def test_opened_answers_alike(index, saved):
    opened = open_index(saved, verify=True)
    assert who(opened) == who(index)
    assert opened.name == index.name
    assert opened.check() == []


def test_changes_after_opening_are_private(index, saved):
    expected = who(index)
    opened = open_index(saved)
    opened.remove([0])
    opened.move(2, [50, 50, 51, 51])
    opened.insert(SubscriptionTable.from_subscriptions([Subscription("e", "hour")]))
    assert who(opened) == [["d"], ["b"], ["e"]]
    assert opened.check() == []
    assert who(open_index(saved, verify=True)) == expected


def test_a_changed_index_can_be_saved(index, tmp_path):
    index.remove([0])
    index.insert(SubscriptionTable.from_subscriptions([Subscription("e", "hour")]))
    index.move(2, Circle(lon=3, lat=1, radius=10))
    opened = open_index(index.save(tmp_path / "changed"), verify=True)
    assert who(opened) == who(index) == [["d"], ["b"], ["c", "e"]]
    assert opened.check() == []


def test_an_empty_index_can_be_saved(name, tmp_path):
    empty = build_index(name, SubscriptionTable.from_subscriptions([]))
    opened = open_index(empty.save(tmp_path / "empty"), verify=True)
    assert len(opened) == 0
    opened.insert(SubscriptionTable.from_subscriptions(SUBS))
    assert who(opened) == [["a", "c", "d"], ["b"], ["c"]]


def test_an_index_of_bare_codes(name, tmp_path):
    table = SubscriptionTable.from_arrays([[0, 0, 1, 1]], [0, 1], [7])
    opened = open_index(build_index(name, table).save(tmp_path / "codes"))
    assert opened.match(MessageBatch.from_arrays([[0, 0]], [0, 1], [7])).rows.tolist() == [0]


def test_several_clauses_are_one_match_after_opening(name, tmp_path):
    table = SubscriptionTable.from_subscriptions([Subscription("a", "tea OR milk")])
    opened = open_index(build_index(name, table).save(tmp_path / "index"))
    batch = MessageBatch.from_messages([Message(1, "tea milk", Point(lon=0, lat=0))], like=opened.table)
    assert answers(opened, batch) == [{0}]


@pytest.mark.parametrize("name", shortened(sorted(INDEXES), lambda name: name in ("auto", "lfilter")))
def test_another_process_opens_it(saved):
    code = "import sys, nearcast; print(len(nearcast.open_index(sys.argv[1])))"
    ran = subprocess.run([sys.executable, "-c", code, str(saved)], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "4"


def test_never_overwritten(index, saved):
    with pytest.raises(IndexFileError, match="exists already"):
        index.save(saved)


def test_nothing_is_left_when_saving_fails(index, tmp_path, monkeypatch):
    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="disk full"):
        index.save(tmp_path / "new")
    assert list(tmp_path.iterdir()) == []


class TestDamage:
    def test_no_manifest(self, tmp_path):
        with pytest.raises(IndexFileError, match=r"nothing is saved at .*: it has no manifest"):
            open_index(tmp_path)

    def test_manifest_cut(self, saved):
        manifest = saved / "manifest.json"
        manifest.write_bytes(manifest.read_bytes()[:50])
        with pytest.raises(IndexFileError, match="damaged"):
            open_index(saved)

    def test_every_missing_or_cut_file_is_noticed(self, saved):
        for path in files(saved):
            content = path.read_bytes()
            path.write_bytes(content[:-1] or b"0")
            with pytest.raises(IndexFileError, match=path.name):
                open_index(saved)
            path.unlink()
            with pytest.raises(IndexFileError, match="missing"):
                open_index(saved)
            path.write_bytes(content)
        open_index(saved, verify=True)

    def test_a_flipped_bit_in_any_file_is_noticed(self, saved):
        for path in files(saved):
            content = path.read_bytes()
            for at in (0, len(content) // 2, len(content) - 1) if content else ():
                path.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
                for verify in (False, True):
                    with pytest.raises(IndexFileError, match="checksum"):
                        open_index(saved, verify=verify)
            path.write_bytes(content)

    @pytest.mark.parametrize(
        ("change", "words"),
        [
            ({"structure": "x-tree"}, "no structure 'x-tree'"),
            ({"structure": None}, "no structure None"),
            ({"coding": 5}, "should"),
            ({"coding": {"attributes": [], "space": "Mars", "analysis": "plain"}}, "should"),
            ({"coding": {"attributes": [5], "space": "WGS84", "analysis": "plain"}}, "should"),
            ({"coding": {"attributes": [], "space": "WGS84", "analysis": "stems"}}, "analysis 'stems'"),
        ],
    )
    def test_a_sound_manifest_that_makes_no_sense(self, saved, change, words):
        manifest = read_manifest(saved)
        write_manifest(saved, manifest.kind, manifest.document | change, manifest.files)
        with pytest.raises(IndexFileError, match=words):
            open_index(saved)

    @pytest.mark.parametrize("value", [-2, 10**9])
    def test_columns_that_do_not_fit_together(self, saved, tmp_path, value):
        """Written by a faulty program, with checksums that are right."""
        document, arrays = read(saved, "index")
        names = ("keyword_runs", "forbidden_runs", "test_runs", "owners", "keywords", "forbidden")
        names += (
            "test_attributes",
            "first",
            "next",
            "shape",
            "ids/offsets",
            "polygons/offsets",
            "polygons/numbers",
        )
        for number, name in enumerate([f"rows/{name}" for name in names] + ["coding/words/offsets"]):
            wrong = arrays[name].copy()
            wrong[len(wrong) // 2] = value
            written = write(tmp_path / str(number), "index", arrays | {name: wrong}, document)
            with pytest.raises(IndexFileError, match="should"):
                open_index(written)
            written = write(
                tmp_path / f"{number} short", "index", arrays | {name: arrays[name][:-1]}, document
            )
            with pytest.raises(IndexFileError, match="should"):
                open_index(written)

    def test_an_array_too_few(self, saved):
        manifest = read_manifest(saved)
        for name in manifest.files:
            files = {other: entry for other, entry in manifest.files.items() if other != name}
            write_manifest(saved, manifest.kind, manifest.document, files)
            if name.startswith(("rows.ids", "coding.words")):
                continue  # then there are no ids, or no words
            with pytest.raises(IndexFileError, match="should"):
                open_index(saved)


def test_the_empty_string_as_a_value(name, tmp_path):
    index = build_index(name, SubscriptionTable.from_subscriptions([Subscription("a", 'brand = ""')]))
    for one in (index, open_index(index.save(tmp_path / "index"))):
        batch = MessageBatch.from_messages([Message(1, "", Point(lon=0, lat=0), {"brand": ""})], like=one)
        assert one.match(batch).rows.tolist() == [0]


def files(directory):
    """Every file that the manifest answers for."""
    return sorted(path for path in directory.iterdir() if path.name != "manifest.json")
