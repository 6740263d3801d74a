"""The sample data: what ships is complete, plausible, and what its generator makes."""

import importlib.util
import re
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import shapely

from nearcast.demo import sample
from nearcast.errors import UnknownError
from nearcast.language import parse

ROOT = Path(__file__).parents[2]
WEST, SOUTH, EAST, NORTH = -74.6, 40.4, -73.2, 41.3


@pytest.fixture(scope="module")
def maker():
    spec = importlib.util.spec_from_file_location("make_sample_data", ROOT / "tools" / "make_sample_data.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


@pytest.fixture(scope="module")
def messages():
    return sample("messages")


@pytest.fixture(scope="module")
def subscriptions():
    return sample("subscriptions")


def test_files_are_small():
    files = list((ROOT / "src" / "nearcast" / "demo" / "data").iterdir())
    assert sorted(file.name for file in files) == [
        "messages.parquet",
        "places.parquet",
        "subscriptions.parquet",
    ]
    assert sum(file.stat().st_size for file in files) < 1_000_000


def test_an_unknown_table_is_named():
    with pytest.raises(UnknownError, match="'tweets'; there are messages, subscriptions, places"):
        sample("tweets")


def test_places():
    places = sample("places")
    assert places.column_names == ["name", "feature_class", "lon", "lat"]
    assert 3_000 < places.num_rows < 6_000
    assert "New York" in places["name"].slice(0, 6).to_pylist()
    assert not any("historical" in name for name in places["name"].to_pylist())
    for column, low, high in (("lon", WEST, EAST), ("lat", SOUTH, NORTH)):
        ends = pc.min_max(places[column]).as_py()
        assert low <= ends["min"] < ends["max"] <= high


def test_messages_have_the_promised_columns(messages):
    time = pa.timestamp("us", tz="UTC")
    assert messages.schema == pa.schema(
        [
            ("id", pa.string()),
            ("text", pa.string()),
            ("lon", pa.float64()),
            ("lat", pa.float64()),
            ("geometry", pa.binary()),
            ("price", pa.float64()),
            ("rating", pa.float64()),
            ("category", pa.string()),
            ("published_at", time),
            ("expires_at", time),
        ]
    )
    assert messages.num_rows == 4_000
    assert messages["id"][0].as_py() == "m0001"
    assert pc.count_distinct(messages["id"]).as_py() == messages.num_rows


def test_messages_are_sentences(messages):
    for text in messages["text"].to_pylist():
        assert re.match(r"[A-Z0-9]", text), text
        assert re.search(r"[.!?]$", text), text
        assert not re.search(r"[{}]|\bNone\b|\$0\b|  ", text), text
    assert pc.count_distinct(messages["text"]).as_py() > 3_500
    assert set(messages["category"].to_pylist()) == {
        "food", "traffic", "weather", "pets", "events", "market", "transit", "rentals"
    }  # fmt: skip


def test_a_message_is_a_point_or_an_area(messages):
    areas = 0
    for row in messages.select(["lon", "lat", "geometry"]).to_pylist():
        if row["geometry"] is None:
            assert WEST <= row["lon"] <= EAST
            assert SOUTH <= row["lat"] <= NORTH
        else:
            assert row["lon"] is None
            assert row["lat"] is None
            area = shapely.from_wkb(row["geometry"])
            assert area.is_valid
            assert area.geom_type == "Polygon"
            areas += 1
    assert 100 < areas < 400


def test_messages_tell_one_day(messages):
    published = messages["published_at"]
    assert published.to_pylist() == sorted(published.to_pylist())
    ends = pc.min_max(published).as_py()
    assert (ends["max"] - ends["min"]).total_seconds() <= 86_400
    assert pc.all(pc.greater(messages["expires_at"], published)).as_py()
    prices = pc.min_max(messages["price"]).as_py()
    assert 1 < prices["min"] < prices["max"] < 10_000
    assert 0 < messages["price"].null_count < messages.num_rows
    ratings = pc.min_max(messages["rating"]).as_py()
    assert 0 <= ratings["min"] < ratings["max"] <= 5


def test_every_region_is_one_of_its_kinds(subscriptions):
    kinds = {"circle": 0, "box": 0, "polygon": 0, "everywhere": 0}
    for row in subscriptions.to_pylist():
        circle = [row[name] for name in ("lon", "lat", "radius_m")]
        box = [row[name] for name in ("xmin", "ymin", "xmax", "ymax")]
        given = [name for name, values in (("circle", circle), ("box", box)) if None not in values]
        assert [value is None for value in circle + box].count(False) == sum(
            {"circle": 3, "box": 4}[it] for it in given
        )
        if row["geometry"] is not None:
            given.append("polygon")
            assert shapely.from_wkb(row["geometry"]).is_valid
        assert len(given) <= 1, row
        kinds[given[0] if given else "everywhere"] += 1
        if "circle" in given:
            assert 500 <= row["radius_m"] <= 5_000
        if "box" in given:
            assert row["xmin"] < row["xmax"]
            assert row["ymin"] < row["ymax"]
    assert sum(kinds.values()) == 10_000
    assert kinds["circle"] > kinds["box"] > kinds["polygon"] > kinds["everywhere"] > 0


def test_every_expression_can_be_read(subscriptions):
    assert subscriptions["id"][0].as_py() == "s00001"
    assert pc.count_distinct(subscriptions["id"]).as_py() == subscriptions.num_rows
    expressions = set(subscriptions["expression"].to_pylist())
    assert len(expressions) > 3_000
    for expression in expressions:
        parse(expression)
    together = " ".join(expressions)
    for form in (
        " AND ",
        " OR ",
        " NOT ",
        "(",
        '"',
        "price <",
        "1200 <= price <=",
        'category = "food"',
        "rating >=",
    ):
        assert form in together


def test_the_generator_makes_what_ships(maker, messages, subscriptions):
    places = sample("places")
    assert maker.make_messages(places).equals(messages)
    assert maker.make_subscriptions(places).equals(subscriptions)


def test_the_seed_decides(maker):
    places = sample("places")
    one, again, other = (maker.make_messages(places, seed, count=50) for seed in (1, 1, 2))
    assert one.equals(again)
    assert not one.equals(other)


def test_the_same_table_gives_the_same_bytes(maker, tmp_path):
    for name in ("a", "b"):
        maker.write(maker.make_subscriptions(sample("places"), 1, count=200), tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_places_come_from_the_gazetteer(maker):
    path = ROOT.parent / "shared" / "data" / "places_gn.parquet"
    if not path.exists():
        pytest.skip("the gazetteer is not here")
    gazetteer = pq.read_table(path, columns=["name", "feature_class", "lon", "lat", "source"])
    assert maker.select_places(gazetteer).equals(sample("places"))


def test_prominent_places_come_first(maker):
    rows = [
        ("Zeta", "Populated Place", -74.0, 40.7, "gnis"),
        ("City of Zeta", "Civil", -74.0, 40.71, "gnis"),
        ("Zeta", "Populated Place", -73.3, 41.2, "gnis"),  # far from the city of its name
        ("Alpha", "Populated Place", -74.1, 40.7, "gnis"),
        ("Brooklyn", "Populated Place", -73.95, 40.65, "gnis"),
        ("Oldtown (historical)", "Populated Place", -74.0, 40.7, "gnis"),
        ("Gamma", "Populated Place", -74.0, 40.7, "geonames"),
        ("Delta", "Populated Place", -80.0, 40.7, "gnis"),
        ("Beta Bay", "Bay", -74.0, 40.6, "gnis"),
    ]
    table = pa.Table.from_pylist(
        [dict(zip(("name", "feature_class", "lon", "lat", "source"), row)) for row in rows]
    )
    chosen = maker.select_places(table)
    assert chosen["name"].to_pylist() == ["Brooklyn", "Zeta", "Alpha", "Zeta", "Beta Bay"]
    assert chosen["lon"].to_pylist()[1] == -74.0
