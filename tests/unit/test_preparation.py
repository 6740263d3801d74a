"""Raw rows become typed ones, and the rows that do not are those that the reader refuses one by one."""

import base64
import json
import pickle
from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
import pytest
import shapely
from hypothesis import given
from hypothesis import strategies as st

from nearcast import MessageBatch, SubscriptionTable, text
from nearcast.columns.from_arrow import messages_from_arrow
from nearcast.errors import ColumnError, InputError, NearcastWarning
from nearcast.preparation import MALFORMED, REASONS, Preparation

HARD = [
    "Cafe\u0301 und Café",  # combining marks, composed and not
    "नमस्ते दुनिया",
    "👩\u200d👩\u200d👧 family 👍🏽",  # joiners between emoji
    "क्\u200dष soft\u00adhyphen",
    "İstanbul ISPARTA ılık",  # dotted and dotless i
    "Straße STRASSE ẞ",
    "東京タワー ﾊﾝｶｸ かな",
    "سلام عليكم \u200fשלום",
    "Ｆｕｌｌ ｗｉｄｔｈ １２３",
    "٣٤٥ ४५६ Ⅷ ½ x² ①",
    "ﬁne oﬀer ǅ",
    "a\u0300\u0316 \u0300",
    "",
    " \t\n",
    "x" * 300,
    "ﷺ",
]
NOW = datetime(2026, 11, 16, tzinfo=UTC)


def prepared(columns, kind="messages", **options):
    table = columns if isinstance(columns, pa.Table) else pa.table(columns)
    done = Preparation(table.schema, kind, **options).apply(table)
    assert len(done) == len(table)
    return done


def verdicts(done):
    return dict(
        zip(done["id"].to_pylist(), zip(done["reason"].to_pylist(), done["detail"].to_pylist()), strict=True)
    )


def at(n, **columns):
    """Messages at a good place."""
    return {"id": [f"m{i}" for i in range(n)], "lon": [0.0] * n, "lat": [0.0] * n, **columns}


# --- Words ---------------------------------------------------------------------------------------------------------


def test_hard_unicode_has_the_keywords_of_the_text_module():
    done = prepared(at(len(HARD), text=HARD))
    assert done["keywords"].to_pylist() == [sorted(text.keywords(written)) for written in HARD]
    listed = prepared(at(len(HARD), keywords=[[written] for written in HARD]))
    assert listed["keywords"] == done["keywords"]


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"])), min_size=1, max_size=20))
def test_keywords_are_those_of_the_text_module(texts):
    done = prepared(at(len(texts), text=texts))
    assert done["keywords"].to_pylist() == [sorted(text.keywords(written)) for written in texts]


def test_keywords_as_a_string():
    written = ["Hot tea", ' ["Hot tea", "milk"]', "", "  ", None, '["a", 5]', "[oops"]
    done = prepared(at(7, keywords=written))
    assert done["keywords"].to_pylist() == [["hot", "tea"], ["hot", "milk", "tea"], [], [], [], None, None]
    assert done["reason"].to_pylist() == [None] * 5 + ["type"] * 2
    assert done["detail"][6].as_py() == "keywords is '[oops', which is not a JSON list of strings"
    half = prepared(at(1, keywords=['["\\ud800"]']))
    assert half["reason"].to_pylist() == ["type"]


def test_text_is_kept_when_asked():
    assert "text" not in prepared(at(1, text=["Tea!"])).column_names
    assert prepared(at(1, text=["Tea!"]), keep_text=True)["text"].to_pylist() == ["Tea!"]


def test_what_is_not_utf8_is_told():
    broken = pa.array([b"tea", b"caf\xe9", None]).cast(pa.binary())
    broken = pa.Array.from_buffers(pa.string(), 3, broken.buffers())
    done = prepared(at(3, text=broken, brand=broken))
    assert done["reason"].to_pylist() == [None, "type", None]
    assert done["detail"][1].as_py() == "text is not UTF-8: unexpected end of data at byte 3"
    assert json.loads(done["original"][1].as_py())["text"] == "caf\\xe9"
    lists = pa.ListArray.from_arrays([0, 1, 2, 3], broken)
    assert prepared(at(3, keywords=lists))["reason"].to_pylist() == [None, "type", None]


# --- Types ---------------------------------------------------------------------------------------------------------


def test_strings_become_what_their_names_say():
    done = prepared(
        {
            "id": ["a", "b"],
            "lon": [" 1.5", "-7e1"],
            "lat": ["+2", "3"],
            "text": ["tea", "milk"],
            "published_at": ["2026-11-16T01:00:00+01:00", str(int(NOW.timestamp()) * 1_000_000)],
            "expires_at": ["", "2026-11-17T00:00:00Z"],
            "price": ["2", ""],
            "brand": ["acme", None],
        },
        numbers=["price"],
    )
    assert done.drop_columns(["reason", "detail", "original"]).to_pylist() == [
        {
            "id": "a",
            "lon": 1.5,
            "lat": 2.0,
            "keywords": ["tea"],
            "published_at": NOW,
            "expires_at": None,
            "price": 2.0,
            "brand": "acme",
        },
        {
            "id": "b",
            "lon": -70.0,
            "lat": 3.0,
            "keywords": ["milk"],
            "published_at": NOW,
            "expires_at": datetime(2026, 11, 17, tzinfo=UTC),
            "price": None,
            "brand": None,
        },
    ]
    assert done["reason"].null_count == 2


@pytest.mark.parametrize(
    ("column", "value", "said"),
    [
        ("lon", "north", "lon is 'north', which is not a number"),
        ("price", "cheap", "price is 'cheap', which is not a number"),
        (
            "published_at",
            "yesterday",
            "published_at 'yesterday' is not a time; write ISO 8601 with an offset",
        ),
        ("published_at", "2026-11-16T00:00:00", "has no time zone"),
        ("expires_at", "99999999999999999999", "outside the years 1 to 9999"),
        ("expires_at", "9" * 5000, "(5000 characters), which cannot be read"),
    ],
)
def test_a_value_that_is_not_of_its_type(column, value, said):
    columns = at(2, published_at=[None, None], expires_at=[None, None], price=[None, None])
    columns[column] = pa.array(["0", value], pa.string())
    columns["price"] = pa.array(columns["price"], pa.string())
    done = prepared(columns, numbers=["price"])
    assert done["reason"].to_pylist() == [None, "type"]
    assert said in done["detail"][1].as_py()
    assert json.loads(done["original"][1].as_py())[column] == value


def test_times_of_any_unit():
    for unit in ("s", "ms", "us", "ns"):
        times = pa.array([NOW, None]).cast(pa.timestamp(unit, "UTC"))
        assert prepared(at(2, published_at=times))["published_at"].to_pylist() == [NOW, None]
    numbers = prepared(at(2, published_at=[int(NOW.timestamp()) * 10**6, 2**62]))
    assert numbers["published_at"].to_pylist() == [NOW, None]
    assert numbers["reason"].to_pylist() == [None, "type"]


def test_numbers_are_doubles_and_nan_is_null():
    done = prepared(
        at(3, size=pa.array([1, None, 3], pa.int16()), x=[np.nan, 1.5, None], ok=[True, False, None])
    )
    assert done["size"].to_pylist() == [1.0, None, 3.0]
    assert done["x"].to_pylist() == [None, 1.5, None]
    assert done["ok"].to_pylist() == [True, False, None]


def test_columns_that_are_left_out_are_named():
    table = pa.table(at(1, tags=[["a"]], day=[NOW.date()], price=[1.0]))
    preparation = Preparation(table.schema, "messages")
    assert list(preparation.left_out) == ["tags", "day"]
    assert preparation.schema.names == [
        "id",
        "lon",
        "lat",
        "keywords",
        "price",
        "reason",
        "detail",
        "original",
    ]
    schema = pa.schema([("id", pa.int64()), ("expression", pa.string()), ("age", pa.int8())])
    with pytest.warns(NearcastWarning, match="left out 'age'; a subscription has id, expression"):
        subscriptions = Preparation(schema, "subscriptions")
    assert list(subscriptions.left_out) == ["age"]


@pytest.mark.parametrize(
    ("columns", "kind", "said"),
    [
        ({"lon": [1.0], "lat": [1.0]}, "messages", "need a column id"),
        ({"id": [1]}, "messages", "no place"),
        ({"id": [1], "lon": [1.0]}, "messages", "there is no lat"),
        ({"id": [1.5], "lon": [1.0], "lat": [1.0]}, "messages", "id must be a column of strings"),
        (
            {"id": [1], "lon": [1.0], "lat": [1.0], "reason": ["x"]},
            "messages",
            "as the output will; rename it",
        ),
        (
            {"id": [1], "lon": [1.0], "lat": [1.0], "published_at": [NOW.replace(tzinfo=None)]},
            "messages",
            "zone",
        ),
        (
            {"id": [1], "lon": [1.0], "lat": [1.0], "published_at": [NOW.date()]},
            "messages",
            "published_at must be",
        ),
        ({"id": [1], "lon": [[1.0]], "lat": [1.0]}, "messages", "lon must be a column of numbers"),
        ({"id": [1], "lon": [1.0], "lat": [1.0], "keywords": [5]}, "messages", "keywords must be"),
        ({"id": [1], "geometry": [5]}, "messages", "geometry must be"),
        ({"id": [1], "bbox": [5]}, "messages", "bbox must be"),
        ({"id": [1], "expression": ["a"], "keywords": [["a"]]}, "subscriptions", "not both"),
        ({"id": [1]}, "people", "kind must be"),
    ],
)
def test_columns_that_cannot_be(columns, kind, said):
    with pytest.raises(InputError, match=said):
        Preparation(pa.table(columns).schema, kind)


def test_columns_of_numbers_must_be_there():
    with pytest.raises(ColumnError, match=r"no attribute 'cost'.*there are price"):
        Preparation(pa.table(at(1, price=["1"])).schema, "messages", numbers=["cost"])
    with pytest.raises(ColumnError, match="two columns 'id'"):
        Preparation(pa.schema([("id", pa.string()), ("id", pa.string())]), "messages")


# --- Places --------------------------------------------------------------------------------------------------------


def test_geometry_as_text():
    written = [
        "POINT (1 2)",
        "BOX (170 0, -170 1)",
        "CIRCLE (1 2, 5 km)",
        "POLYGON ((0 0, 1 0, 0 1, 0 0))",
        None,
    ]
    done = prepared({"id": range(6), "geometry": [*written, "nowhere"], "lon": [9.0] * 6, "lat": [9.0] * 6})
    assert done["reason"].to_pylist() == [None] * 5 + ["place"]
    assert done["lon"].to_pylist() == [1.0, None, 1.0, None, 9.0, None]
    assert done["radius_m"].to_pylist() == [None, None, 5000.0, None, None, None]
    assert done["xmin"].to_pylist() == [None, 170.0, None, None, None, None]
    assert shapely.from_wkb(done["geometry"][3].as_py()).equals(shapely.from_wkt(written[3]))
    good = done.slice(0, 5)
    nobody = SubscriptionTable.from_subscriptions([])
    MessageBatch.from_arrow(good.drop_columns(["reason", "detail", "original"]), like=nobody)


def test_bbox_becomes_four_columns():
    box = {"xmin": 1.0, "ymin": 2.0, "xmax": 3.0, "ymax": 4.0}
    done = prepared({"id": [1, 2], "bbox": [box, {**box, "ymin": 5.0}]})
    assert done.select(["xmin", "ymin", "xmax", "ymax"]).to_pylist()[0] == box
    assert done["reason"].to_pylist() == [None, "place"]


def test_a_place_of_two_boxes_has_its_words_once():
    boxes = {"xmin": [170.0, 0.0], "ymin": [0.0, 0.0], "xmax": [-170.0, 1.0], "ymax": [1.0, 1.0]}
    done = prepared({"id": [1, 2], **boxes, "text": ["tea milk", "tea"]})
    assert done["keywords"].to_pylist() == [["milk", "tea"], ["tea"]]
    asked = prepared({"id": [1, 2], **boxes, "keywords": [["Happy hour"], ["*"]]}, "subscriptions")
    assert asked["keywords"].to_pylist() == [["happy", "hour"], ["*"]]


# --- Reasons -------------------------------------------------------------------------------------------------------


def test_every_reason_of_messages():
    done = prepared(
        {
            "id": ["good", "line", "type", None, "place", "none", "expiry", "attribute"],
            "lon": ["1", "1", "x", "1", "1", None, "1", "1"],
            "lat": ["1", "1", "1", "1", "91", None, "1", "1"],
            "published_at": [2, 2, 2, 2, 2, 2, 2, 2],
            "expires_at": [3, 3, 3, 3, 3, 3, 2, None],
            "price": [1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, float("-inf")],
            MALFORMED: [None, "{oops", None, None, None, None, None, None],
        }
    )
    assert verdicts(done) == {
        "good": (None, None),
        "line": ("malformed", "the line '{oops' cannot be read as a row"),
        "type": ("type", "lon is 'x', which is not a number"),
        None: ("no-id", "the message has no id"),
        "place": ("place", "latitude 91.0 is outside [-90, 90]; are longitude and latitude swapped?"),
        "none": ("place", "the message has no place; give lon and lat, geometry, or xmin, ymin, xmax, ymax"),
        "expiry": (
            "expiry",
            "the message expires at 1970-01-01T00:00:00.000002Z, not after its publication at "
            "1970-01-01T00:00:00.000002Z; give a later expires_at, or null",
        ),
        "attribute": ("attribute", "attribute 'price' is -inf; give a finite number, or null"),
    }
    assert MALFORMED not in done.column_names
    originals = dict(zip(done["id"].to_pylist(), done["original"].to_pylist(), strict=True))
    assert originals["good"] is None
    assert originals["line"] == "{oops"
    assert json.loads(originals["attribute"]) == {
        "id": "attribute",
        "lon": "1",
        "lat": "1",
        "published_at": 2,
        "price": "-inf",
    }
    typed = done.drop_columns(["id", "reason", "detail", "original"])
    assert all(value is None for row in typed.slice(1).to_pylist() for value in row.values())


def test_every_reason_of_subscriptions():
    circle = {
        "lon": [0.0, 0.0, 0.0, None, 0.0],
        "lat": [0.0, 0.0, 0.0, None, 0.0],
        "radius_m": [1, 1, -1, None, 1],
    }
    written = ["tea", "(tea", "tea", None, "(tea"]
    done = prepared({"id": range(5), "expression": written, **circle}, "subscriptions")
    assert done["reason"].to_pylist() == [None, "expression", "place", "expression", "expression"]
    assert done["detail"][3].as_py() == "the subscription has no expression; write * for every message"
    assert done["detail"][1] == done["detail"][4]  # each of the rows that have it
    words = [["Tea"], ["!"], [None], ["x" * 300], ["!"]]
    done = prepared({"id": range(5), "keywords": words}, "subscriptions")
    assert done["reason"].to_pylist() == [None, *["keywords"] * 4]
    assert done["keywords"].to_pylist() == [["tea"], None, None, None, None]


def test_of_good_rows_with_one_id_the_first_stays():
    table = pa.table(
        {"id": ["a", "a", "b", "b", "b", "c"], "lon": [0.0] * 6, "lat": [0.0, 1.0, 91.0, 2.0, 3.0, 4.0]}
    )
    preparation = Preparation(table.schema, "messages")
    for size in (1, 2, 4, 6):  # a run of one id may go on in the next batch
        batches = [table.slice(start, size) for start in range(0, 6, size)]
        done = pa.concat_tables(preparation.apply_by_id(batches))
        assert done["reason"].to_pylist() == [None, "duplicate-id", "place", None, "duplicate-id", None]
        assert done["detail"][1].as_py() == "an earlier message has the same id 'a'"
        assert json.loads(done["original"][4].as_py()) == {"id": "b", "lon": 0.0, "lat": 3.0}


def test_an_error_that_nobody_foresaw_stops_nothing(monkeypatch):
    def breaking(table, **options):
        if 66.0 in table["lat"].to_pylist():
            raise ZeroDivisionError("oops")
        return messages_from_arrow(table, **options)

    monkeypatch.setattr("nearcast.preparation.messages_from_arrow", breaking)
    done = prepared(at(100, text=["tea"] * 100) | {"lat": [*range(80), *range(20)]})
    assert [i for i, reason in enumerate(done["reason"].to_pylist()) if reason] == [66]
    assert done["reason"][66].as_py() == "unexpected"
    assert done["detail"][66].as_py() == "ZeroDivisionError: oops"
    monkeypatch.setattr("nearcast.preparation.messages_from_arrow", lambda *_, **__: 1 / 0)
    with pytest.raises(ZeroDivisionError):  # no row's fault
        prepared(at(0))


def test_reasons_are_listed():
    assert len(set(REASONS)) == 10


def test_originals_of_any_type():
    table = pa.table(
        at(
            1,
            expires_at=[NOW],
            published_at=[NOW],
            geometry=[b"\1\2"],
            tags=[[{"a": 1.5, "b": None}]],
            odd=pa.array([2**62], pa.timestamp("us")),
        )
    )
    done = prepared(table)
    assert json.loads(done["original"][0].as_py()) == {
        "id": "m0",
        "lon": 0.0,
        "lat": 0.0,
        "expires_at": "2026-11-16T00:00:00+00:00",
        "published_at": "2026-11-16T00:00:00+00:00",
        "geometry": base64.b64encode(b"\1\2").decode(),
        "tags": [{"a": 1.5, "b": None}],
        "odd": 2**62,
    }


def test_it_can_be_pickled():
    table = pa.table(at(2, text=["tea", "milk"]))
    preparation = Preparation(table.schema, "messages")
    assert pickle.loads(pickle.dumps(preparation)).apply(table) == preparation.apply(table)


# --- The rules are the reader's --------------------------------------------------------------------------------------

degrees = st.sampled_from([0.0, 45.0, 90.0, 90.5, -180.0, 181.0, float("nan"), float("inf"), None])
geometry = st.sampled_from(
    [None, b"", b"\1\1", shapely.Point(1, 2).wkb, shapely.Point(1, 99).wkb, shapely.box(0, 0, 1, 1).wkb,
     shapely.LineString([(0, 0), (1, 1)]).wkb, shapely.Point().wkb]
)  # fmt: skip
words = st.one_of(
    st.none(), st.lists(st.one_of(st.none(), st.sampled_from([*HARD, "tea", "!", "a b"])), max_size=3)
)
moments = st.one_of(st.none(), st.integers(-3, 3))
MESSAGE = {
    "lon": (degrees, pa.float64()),
    "lat": (degrees, pa.float64()),
    "geometry": (geometry, pa.binary()),
    "keywords": (words, pa.list_(pa.string())),
    "published_at": (moments, pa.int64()),
    "expires_at": (moments, pa.int64()),
    "price": (degrees, pa.float64()),
}
SUBSCRIPTION = {
    "lon": (degrees, pa.float64()),
    "lat": (degrees, pa.float64()),
    "radius_m": (st.sampled_from([None, 0.0, 5.0, -1.0, float("inf")]), pa.float64()),
    **{name: (degrees, pa.float64()) for name in ("xmin", "ymin", "xmax", "ymax")},
    "geometry": (geometry, pa.binary()),
}
ASKED = {
    "expression": (
        st.sampled_from([None, "", "tea", "(tea", "tea OR milk", "NOT tea", "price <", "*"]),
        pa.string(),
    ),
    "keywords": (words, pa.list_(pa.string())),
}


@st.composite
def tables(draw, columns):
    n = draw(st.integers(0, 8))
    return pa.table(
        {
            "id": range(n),
            **{
                name: pa.array(draw(st.lists(values, min_size=n, max_size=n)), kind)
                for name, (values, kind) in columns.items()
            },
        }
    )


def refused(read):
    try:
        read()
    except InputError as error:
        return str(error)
    return None


def check(table, kind, read):
    """Good is exactly what the reader takes when it gets the row alone, and the sentence is the reader's."""
    done = prepared(table, kind)
    for row, (reason, detail) in enumerate(
        zip(done["reason"].to_pylist(), done["detail"].to_pylist(), strict=True)
    ):
        said = refused(lambda row=row: read(table.slice(row, 1).drop_columns("id")))
        assert (reason is None) == (said is None)
        if said is not None:
            what = kind[:-1]
            assert detail in (
                said.removeprefix(f"{what} row 0: "),
                said.replace(f"{what} row 0 ", f"the {what} ", 1),
            )
    good = done.filter(done["reason"].is_null()).drop_columns(["reason", "detail", "original"])
    again = Preparation(good.schema, kind).apply(good)
    assert again.drop_columns(["reason", "detail", "original"]) == good  # prepared once more, it stays
    assert again["reason"].null_count == len(good)


@given(tables(MESSAGE))
def test_good_messages_are_those_that_the_reader_takes(table):
    nobody = SubscriptionTable.from_subscriptions([])
    check(table, "messages", lambda rows: messages_from_arrow(rows, like=nobody, learn=True))


@given(st.sampled_from(sorted(ASKED)).flatmap(lambda name: tables({**SUBSCRIPTION, name: ASKED[name]})))
def test_good_subscriptions_are_those_that_the_reader_takes(table):
    check(table, "subscriptions", SubscriptionTable.from_arrow)
