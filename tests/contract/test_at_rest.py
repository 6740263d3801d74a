"""Save and open: the same answers, shared pages, private changes, and damage that is noticed."""

import json
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
        with pytest.raises(IndexFileError, match="not an index directory"):
            open_index(tmp_path)

    def test_manifest_cut(self, saved):
        manifest = saved / "manifest.json"
        manifest.write_bytes(manifest.read_bytes()[:50])
        with pytest.raises(IndexFileError, match="damaged"):
            open_index(saved)

    @pytest.mark.parametrize(
        ("change", "words"), [({"format": 99}, "format 99"), ({"index": "x-tree"}, "'x-tree'")]
    )
    def test_another_version(self, saved, change, words):
        manifest = saved / "manifest.json"
        manifest.write_text(json.dumps(json.loads(manifest.read_text()) | change))
        with pytest.raises(IndexFileError, match=words):
            open_index(saved)

    def test_every_missing_or_cut_file_is_noticed(self, saved):
        for path in files(saved):
            content = path.read_bytes()
            path.write_bytes(content[:-1])
            with pytest.raises(IndexFileError, match=path.name):
                open_index(saved)
            path.unlink()
            with pytest.raises(IndexFileError, match="missing"):
                open_index(saved)
            path.write_bytes(content)
        open_index(saved, verify=True)

    def test_every_flipped_bit_is_noticed_by_verify(self, saved):
        for path in files(saved):
            content = path.read_bytes()
            for at in (0, len(content) // 2, len(content) - 1):
                path.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
                with pytest.raises(IndexFileError, match="checksum"):
                    open_index(saved, verify=True)
            path.write_bytes(content)

    @pytest.mark.parametrize(
        "change",
        [{"files": []}, {"files": {"x.npy": {}}}, {"space": "Mars"}, {"attributes": 5}, {"index": None}],
    )
    def test_a_manifest_that_makes_no_sense(self, saved, change):
        manifest = saved / "manifest.json"
        manifest.write_text(json.dumps(json.loads(manifest.read_text()) | change))
        with pytest.raises(IndexFileError):
            open_index(saved)


def test_the_empty_string_as_a_value(name, tmp_path):
    index = build_index(name, SubscriptionTable.from_subscriptions([Subscription("a", 'brand = ""')]))
    for one in (index, open_index(index.save(tmp_path / "index"))):
        batch = MessageBatch.from_messages([Message(1, "", Point(lon=0, lat=0), {"brand": ""})], like=one)
        assert one.match(batch).rows.tolist() == [0]


def files(directory):
    """Every file that the manifest answers for: the arrays, the ids, the polygons."""
    found = sorted(path for path in directory.iterdir() if path.name != "manifest.json")
    assert {path.suffix for path in found} == {".npy", ".arrow"}
    return found
