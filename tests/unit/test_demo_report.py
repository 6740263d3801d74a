"""The report: one file, nothing loaded, data whole, hostile text harmless."""

import base64
import json
import math
import re
from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
import pytest
import shapely

from nearcast.demo import sample, write_report
from nearcast.errors import ColumnError

HOSTILE = [
    "</script><script>alert(1)</script>",
    "<!-- <script> & \"quotes\" 'single' \\ back",
    "日本語 café 🎉 \u2028 line",
    "</SCRIPT >",
    "__NEARCAST_DATA__",
]


def tables():
    messages = pa.table(
        {
            "id": [f"m{i}" for i in range(len(HOSTILE))],
            "text": HOSTILE,
            "lon": [1.23456789, 2.0, None, 4.0, 5.0],
            "lat": [51.0, 52.0, None, 54.0, 55.0],
            "geometry": pa.array([None, None, shapely.box(0, 50, 1, 51).wkb, None, None], pa.binary()),
            "price": [1.5, None, math.nan, 3.0, 4.0],
            "category": ["a", "b", "b", None, "b"],
            "published_at": [datetime(2026, 5, 16, hour, tzinfo=UTC) for hour in range(5)],
        }
    )
    donut = (
        shapely.Point(0, 50).buffer(2, quad_segs=2).difference(shapely.Point(0, 50).buffer(1, quad_segs=2))
    )
    subscriptions = pa.table(
        {
            "id": ["circle", "silent", "box", "polygon", "everywhere"],
            "expression": ["</script>", "x", 'brand = "a<b"', "y", "z"],
            "lon": [1.0, 1.0, None, None, None],
            "lat": [51.0, 51.0, None, None, None],
            "radius_m": [1500.0, 1.0, None, None, None],
            "xmin": [None, None, 0.0, None, None],
            "ymin": [None, None, 1.0, None, None],
            "xmax": [None, None, 2.0, None, None],
            "ymax": [None, None, 3.0, None, None],
            "geometry": pa.array([None, None, None, donut.wkb, None], pa.binary()),
        }
    )
    deliveries = pa.table(
        {
            "message_id": ["m4", "m0", "m0", "m2", "m9", "m0"],
            "subscription_id": ["box", "polygon", "circle", "everywhere", "box", "nobody"],
        }
    )
    return messages, subscriptions, deliveries


def write(path, messages, subscriptions, deliveries, places=None, **summary):
    page = write_report(
        path / "report.html",
        messages=messages,
        subscriptions=subscriptions,
        deliveries=deliveries,
        summary=summary,
        places=places,
    ).read_text(encoding="utf-8")
    blocks = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert len(blocks) == 1
    return page, json.loads(blocks[0])


def numbers(text):
    return np.frombuffer(base64.b64decode(text), dtype="<i4").tolist()


def test_shapes_and_deliveries(tmp_path):
    _, data = write(tmp_path, *tables(), count=5, rate=12.5, latency="3 ms")
    assert data["summary"] == [["count", 5], ["rate", 12.5], ["latency", "3 ms"]]
    assert data["subscriptions"]["total"] == 5
    assert data["subscriptions"]["id"] == ["circle", "box", "polygon", "everywhere"]
    circle, box, polygon, everywhere = data["subscriptions"]["shape"]
    assert circle == [1, 51, 1500]
    assert box == [0, 1, 2, 3]
    assert [len(ring) for ring in polygon] == [16, 16]  # eight corners, outside and hole
    assert everywhere is None
    assert numbers(data["deliveries"]["offsets"]) == [0, 2, 2, 3, 3, 4]  # m9 and nobody are left out
    assert numbers(data["deliveries"]["rows"]) == [0, 2, 3, 1]


def test_messages(tmp_path):
    _, data = write(tmp_path, *tables())
    messages = data["messages"]
    assert messages["lon"][0] == 1.234568
    assert list(messages["areas"]) == ["2"]
    assert (messages["lon"][2], messages["lat"][2]) == (0.5, 50.5)
    assert messages["price"] == [1.5, None, None, 3, 4]
    assert messages["rating"] == [None] * 5
    assert messages["categories"] == ["b", "", "a"]
    assert messages["category"] == [2, 0, 0, 1, 0]
    assert messages["from"][1] - messages["from"][0] == 3600
    assert messages["until"] == [None] * 5
    assert data["places"] is None


def test_hostile_text_stays_data(tmp_path):
    page, data = write(tmp_path, *tables())
    assert data["messages"]["text"] == HOSTILE
    assert data["subscriptions"]["expression"][0] == "</script>"
    assert page.count("<script") == 2
    assert len(re.findall("</script", page, re.IGNORECASE)) == 2
    assert "alert(1)</" not in page


def test_the_page_writes_text_never_markup(tmp_path):
    page, _ = write(tmp_path, *tables())
    assert not re.search(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", page
    )


def test_nothing_is_loaded(tmp_path):
    page, _ = write(tmp_path, *tables())
    assert re.findall(r"https?://[^\"' )]+", page) == [
        "http://www.w3.org/2000/svg"
    ]  # a namespace, never fetched
    assert not re.search(
        r"<link|<img|<iframe|\ssrc=|@import|url\(|fetch\(|XMLHttpRequest|WebSocket|\bimport\b", page
    )
    assert "default-src 'none'" in page


def test_sample_data_fits(tmp_path):
    messages, subscriptions, places = sample("messages"), sample("subscriptions"), sample("places")
    rng = np.random.default_rng(1)
    pairs = rng.integers(0, [messages.num_rows, subscriptions.num_rows], (40_000, 2))
    deliveries = pa.table(
        {
            "message_id": messages["id"].take(pairs[:, 0]),
            "subscription_id": subscriptions["id"].take(pairs[:, 1]),
        }
    )
    page, data = write(tmp_path, messages, subscriptions, deliveries, places)
    assert len(page.encode()) < 4_000_000
    assert len(data["messages"]["id"]) == messages.num_rows
    assert len(data["places"]["name"]) == places.num_rows
    assert len(data["subscriptions"]["id"]) == len(set(pairs[:, 1].tolist()))
    offsets, rows = numbers(data["deliveries"]["offsets"]), numbers(data["deliveries"]["rows"])
    assert len(rows) == 40_000
    told = {
        (data["messages"]["id"][m], data["subscriptions"]["id"][s])
        for m in range(messages.num_rows)
        for s in rows[offsets[m] : offsets[m + 1]]
    }
    assert told == set(zip(*(column.to_pylist() for column in deliveries.columns)))


def test_bare_and_empty_tables(tmp_path):
    bare = pa.table({"id": [1, 2]})
    deliveries = pa.table({"message_id": [2], "subscription_id": [1]})
    _, data = write(tmp_path, bare, bare, deliveries)
    assert data["messages"]["id"] == ["1", "2"]
    assert data["messages"]["lon"] == [None, None]
    assert data["subscriptions"]["shape"] == [None]
    empty = pa.table({"id": pa.array([], pa.string())})
    none = pa.table({"message_id": pa.array([], pa.string()), "subscription_id": pa.array([], pa.string())})
    _, data = write(tmp_path, empty, empty, none)
    assert numbers(data["deliveries"]["offsets"]) == [0]


def test_a_missing_column_is_named(tmp_path):
    messages, subscriptions, deliveries = tables()
    with pytest.raises(ColumnError, match=r"'subscription_id'.*message_id"):
        write(tmp_path, messages, subscriptions, deliveries.select(["message_id"]))
    with pytest.raises(ColumnError, match="'id'"):
        write(tmp_path, messages.drop_columns("id"), subscriptions, deliveries)
