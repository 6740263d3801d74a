"""Profiles: the counts of every version equal those of all data so far."""

from collections import Counter

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from memory_place import lose_answer
from nearcast import text
from nearcast.errors import IndexFileError, InputError, StorageError
from nearcast.spark import Profile, build, match, profile, profiles
from nearcast.spark.tally import count_partition
from spark.worlds import pairs, write_files

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def counted_world(world):
    return profile(world.home / "profile", messages=world.messages, subscriptions=world.subscriptions)


def test_words_are_counted_once_a_message(world, counted_world):
    expected = Counter(
        word
        for words in world.message_table["keywords"].to_pylist()
        for word in {w for k in words for w in text.tokens(k)}
    )
    found = counted_world.words()
    assert dict(zip(found["word"].to_pylist(), found["count"].to_pylist())) == expected
    assert found["count"].to_pylist() == sorted(expected.values(), reverse=True)
    assert len(counted_world.words(most=3)) == 3
    assert counted_world.words("subscriptions")["count"][0].as_py() > 50


def test_places_and_attributes(world, counted_world):
    grid = counted_world.places()
    assert grid.sum() == len(world.message_table) == counted_world.count("messages")
    rows, columns = np.nonzero(grid)
    lats, lons = (rows + 0.5) / 256 * 180 - 90, (columns + 0.5) / 512 * 360 - 180
    assert np.abs(lats).max() < 12
    assert np.abs(lons).max() < 12
    found = {row["attribute"]: row for row in counted_world.attributes().to_pylist()}
    price = world.message_table["price"]
    assert found["price"] == {
        "attribute": "price",
        "count": len(price) - price.null_count,
        "low": pc.min(price).as_py(),
        "high": pc.max(price).as_py(),
    }
    assert found["brand"]["low"] is None
    tested = {row["attribute"] for row in counted_world.attributes("subscriptions").to_pylist()}
    assert tested == {"price", "brand"}


@pytest.mark.versions
def test_more_data_makes_a_version_that_has_counted_everything(spark, world, tmp_path):
    halves = [world.message_table.slice(0, 700), world.message_table.slice(700)]
    for number, half in enumerate(halves, 1):
        frame = spark.read.parquet(str(write_files(half, tmp_path / f"in{number}", 2)))
        latest = profile(tmp_path / "profile", messages=frame)
        assert latest.version == number
    whole = profile(tmp_path / "whole", messages=world.messages)
    assert latest.words().equals(whole.words())
    assert np.array_equal(latest.places(), whole.places())
    assert sorted(latest.sample["id"].to_pylist()) == sorted(whole.sample["id"].to_pylist())
    first = Profile(latest.place.local.parent / latest.manifest["base"])
    assert (first.version, first.count("messages")) == (1, 700)
    assert repr(latest) == "<Profile 2: 1,200 messages, 0 subscriptions>"


def test_the_sample_is_bounded_and_depends_on_the_ids_alone(spark, world, tmp_path, monkeypatch):
    monkeypatch.setattr("nearcast.config.PROFILE_SAMPLE", 100)
    one = profile(tmp_path / "a", messages=world.messages)
    other = profile(tmp_path / "b", messages=world.messages.orderBy("lon").repartition(5))
    assert len(one.sample) == 100
    assert sorted(one.sample["id"].to_pylist()) == sorted(other.sample["id"].to_pylist())


def test_a_distribution_is_fitted_to_a_profile(world, counted_world, tmp_path):
    version = build(world.subscriptions, tmp_path, shards=4, distribution="location", profile=counted_world)
    assert pairs(match(world.messages, version)) == world.expected


def test_texts_are_counted_as_matching_reads_them():
    rows = pa.table(
        {"id": ["a", "b"], "text": ["Tea, TEA & Ⅷ", "ｔｅａ"], "lon": [0.0, 1.0], "lat": [0.0, 1.0]}
    )
    found = pa.Table.from_batches(count_partition(rows.to_batches(), messages=True)).to_pylist()
    assert {row["key"]: row["count"] for row in found if row["kind"] == "word"} == {"tea": 2, "viii": 1}
    assert list(count_partition([], messages=True)) == []


def test_what_cannot_be_is_said(spark, world, tmp_path):
    with pytest.raises(InputError, match="give messages or subscriptions"):
        profile(tmp_path)
    stream = spark.readStream.schema(world.messages.schema).parquet(str(world.home / "messages"))
    with pytest.raises(InputError, match="streaming"):
        profile(tmp_path, messages=stream)
    with pytest.raises(IndexFileError, match="no profile"):
        Profile(tmp_path)


def test_a_profile_lives_in_an_object_store(world, s3):
    for number in (1, 2):
        made = profile(f"{s3}/profile", messages=world.messages.where(f"id % 2 = {number - 1}"))
        assert made.version == number
    assert Profile(f"{s3}/profile").count("messages") == len(made.sample) == 1200


def test_of_two_jobs_that_add_to_one_version_the_second_is_refused(world, tmp_path, monkeypatch):
    profile(tmp_path, subscriptions=world.subscriptions)
    write = profiles.write_parts

    def write_late(*arguments, **keywords):
        with monkeypatch.context() as patch:
            patch.setattr(profiles, "write_parts", write)
            profile(tmp_path, messages=world.messages)  # another job is faster
        return write(*arguments, **keywords)

    with monkeypatch.context() as patch:
        patch.setattr(profiles, "write_parts", write_late)
        with pytest.raises(
            StorageError, match=f"another job has added to the profile at {tmp_path} meanwhile"
        ):
            profile(tmp_path, subscriptions=world.subscriptions)
    assert (Profile(tmp_path).version, Profile(tmp_path).count("messages")) == (2, 1200)
    assert len([path for path in tmp_path.iterdir() if path.is_dir()]) == 2


def test_a_profile_is_there_although_the_answer_was_lost(world, tmp_path, monkeypatch):
    few = world.subscriptions.limit(1)
    with monkeypatch.context() as patch:
        lose_answer(patch, "CURRENT", ConnectionResetError())
        with pytest.raises(ConnectionResetError):
            profile(tmp_path, subscriptions=few)
    assert Profile(tmp_path).count("subscriptions") == 1
    with monkeypatch.context() as patch:
        lose_answer(patch, "CURRENT", False)
        assert profile(tmp_path, subscriptions=few).count("subscriptions") == 2
    assert Profile(tmp_path).version == 2
