"""Tables in and out: each column and type, each kind of region, each way to be wrong."""

import geopandas
import numpy as np
import pandas
import pyarrow as pa
import pytest
import shapely
from hypothesis import given
from hypothesis import strategies as st

from answers import dense, offsets
from nearcast import (
    EVERYWHERE,
    WGS84,
    Box,
    Circle,
    Message,
    MessageBatch,
    Planar,
    Point,
    Polygon,
    Subscription,
    SubscriptionTable,
    Vocabulary,
    build_index,
    config,
)
from nearcast.columns import NEVER
from nearcast.columns.clause_rows import place
from nearcast.columns.coding import Coding
from nearcast.columns.from_arrow.places import places as read_places
from nearcast.columns.from_arrow.places import regions as read_regions
from nearcast.columns.from_arrow.source import Source
from nearcast.columns.from_arrow.words import text_codes
from nearcast.errors import ColumnError, ExpressionError, GeometryError
from nearcast.text import tokens
from strategies import messages, subscriptions

TRIANGLE = shapely.Polygon([(0, 0), (4, 0), (0, 4)])
LIKE = SubscriptionTable.from_subscriptions(
    [Subscription(1, 'tea AND milk AND über AND price < 3 AND brand = "x"')]
)


def read(**columns):
    """Subscriptions of these columns; they ask for every message unless they say otherwise."""
    if not {"expression", "keywords"} & set(columns):
        columns["expression"] = ["*"] * len(next(iter(columns.values())))
    return SubscriptionTable.from_arrow(columns)


def regions(table):
    return [sub.region for sub in table.to_subscriptions()]


@given(st.lists(subscriptions(), max_size=6))
def test_subscriptions_come_back_from_arrow_and_objects(subs):
    subs = [Subscription(f"s{i}", sub.expression, sub.region) for i, sub in enumerate(subs)]
    table = SubscriptionTable.from_subscriptions(subs)

    def plain(sub):  # a region by its boxes: the antimeridian itself has two names
        return sub.id, type(sub.region), set(sub.region.boxes()), set(sub.clauses)

    assert list(map(plain, table.to_subscriptions())) == list(map(plain, subs))
    through = SubscriptionTable.from_arrow(table.to_arrow()).to_subscriptions()
    assert list(map(plain, through)) == list(map(plain, subs))


def test_regions_in_order_of_precedence():
    table = read(
        geometry=pa.array([TRIANGLE.wkb, None, None, None]),
        lon=pa.array([1.0, 1.0, None, None]),
        lat=pa.array([1.0, 1.0, None, None]),
        radius_m=pa.array([5.0, 5.0, None, None]),
        xmin=pa.array([0.0, 0.0, 170.0, None]),
        ymin=pa.array([0.0, 0.0, 0.0, None]),
        xmax=pa.array([1.0, 1.0, -170.0, None]),
        ymax=pa.array([1.0, 1.0, 1.0, None]),
    )
    assert regions(table) == [
        Polygon(TRIANGLE),
        Circle(lon=1, lat=1, radius=5),
        Box(170, 0, -170, 1),
        EVERYWHERE,
    ]


@pytest.mark.parametrize("storage", [TRIANGLE.wkb, TRIANGLE.wkt])
def test_geometry_as_wkb_and_wkt(storage):
    assert regions(read(geometry=[storage])) == [Polygon(TRIANGLE)]


def test_geopandas_and_pandas():
    frame = geopandas.GeoDataFrame({"id": ["a"], "expression": ["tea"]}, geometry=[TRIANGLE], crs="OGC:CRS84")
    assert regions(SubscriptionTable.from_arrow(frame)) == [Polygon(TRIANGLE)]
    plain = pandas.DataFrame(
        {"id": [7], "keywords": [["tea", "Milk"]], "lon": [1.0], "lat": [2.0], "radius_m": [3.0]}
    )
    sub = SubscriptionTable.from_arrow(plain).to_subscriptions()[0]
    assert sub == Subscription(7, "milk tea", Circle(lon=1, lat=2, radius=3))


def test_bbox_struct():
    box = {"xmin": 0.0, "ymin": 1.0, "xmax": 2.0, "ymax": 3.0}
    assert regions(read(bbox=[box])) == [Box(0, 1, 2, 3)]
    with pytest.raises(ColumnError, match="bbox must be"):
        read(bbox=[5.0])


def same_layout(ours, theirs):
    np.testing.assert_array_equal(ours.offsets, theirs.offsets)
    np.testing.assert_array_equal(ours.boxes, theirs.boxes)
    np.testing.assert_array_equal(ours.shapes.index, theirs.shapes.index)
    np.testing.assert_array_equal(ours.shapes.circles, theirs.shapes.circles)
    assert [shape and shape.wkb for shape in ours.shapes.polygons] == [
        shape and shape.wkb for shape in theirs.shapes.polygons
    ]


PLANE = Planar(-1e6, -1e6, 1e6, 1e6)
LON = st.floats(-180, 180) | st.sampled_from([-180, -179.999, 0, 179.999, 180])
LAT = st.floats(-90, 90) | st.sampled_from([-90, -89.999, 0, 89.999, 90])
RADIUS = st.floats(0, 3e7) | st.floats(0, 1e4) | st.sampled_from([0, 1e300])
SPACED = [  # a space, and its circles and boxes
    (
        WGS84,
        st.builds(Circle, lon=LON, lat=LAT, radius=RADIUS),
        st.builds(lambda x, y, to, h: Box(x, min(y, h), to, max(y, h)), LON, LAT, LON, LAT),
    ),
    (
        PLANE,
        st.builds(Circle, x=LON, y=LAT, radius=RADIUS, space=st.just(PLANE)),
        st.builds(lambda x, y, w, h: Box(x, y, x + w, y + h, PLANE), LAT, LAT, LAT.map(abs), LON.map(abs)),
    ),
]  # fmt: skip


@pytest.mark.parametrize(("space", "circles", "boxes"), SPACED, ids=["WGS84", "planar"])
@given(data=st.data())
def test_places_read_in_bulk_are_laid_out_as_objects_are(space, circles, boxes, data):
    points = st.builds(Point, x=LON, y=LAT, space=st.just(space))
    polygons = st.just(Polygon(TRIANGLE, space))
    region_list = data.draw(
        st.lists(st.one_of(circles, circles, boxes, boxes, polygons, st.just(EVERYWHERE)))
    )
    place_list = data.draw(st.lists(st.one_of(points, points, circles, boxes, polygons)))
    for found, reader in ((region_list, read_regions), (place_list, read_places)):

        def column(kinds, name, found=found):
            return pa.array([getattr(p, name) if isinstance(p, kinds) else None for p in found], pa.float64())

        table = {
            "lon": column((Circle, Point), "x"),
            "lat": column((Circle, Point), "y"),
            "radius_m": column(Circle, "radius"),
            **{side: column(Box, side) for side in ("xmin", "ymin", "xmax", "ymax")},
            "geometry": pa.array([getattr(p, "wkb", None) for p in found], pa.binary()),
        }
        same_layout(reader(Source(table, "row"), space), place(found))


def test_one_odd_row_does_not_slow_down_the_others(monkeypatch):
    """Objects are made for the odd rows only."""
    made = []
    for kind in (Box, Circle, Point):
        init = kind.__init__

        def counted(self, *args, _init=init, **fields):
            made.append(type(self))
            _init(self, *args, **fields)

        monkeypatch.setattr(kind, "__init__", counted)
    xmax = np.full(1000, 5.0)
    xmax[7] = 180
    zeros = np.zeros(1000)
    read(xmin=zeros, ymin=zeros, xmax=xmax, ymax=zeros)
    assert made == [Box]
    made.clear()
    read(lon=zeros, lat=np.append(zeros[1:], 90.0), radius_m=zeros + 500)
    assert made == [Circle]
    made.clear()
    geometry = pa.array([TRIANGLE.wkb, *[None] * 999], pa.binary())
    batch = MessageBatch.from_arrow({"lon": zeros, "lat": zeros, "geometry": geometry}, like=LIKE)
    assert made == []
    assert batch.shapes.index.tolist() == [0] + [-1] * 999
    wkb = pa.array([shapely.Point(1, 2).wkb, TRIANGLE.wkb] * 2, pa.binary())
    batch = MessageBatch.from_arrow({"geometry": wkb[1:]}, like=LIKE)
    assert made == []
    assert batch.probes.boxes.tolist() == [[0, 0, 4, 4], [1, 2, 1, 2], [0, 0, 4, 4]]


@pytest.mark.parametrize(
    "wkb",
    [
        shapely.to_wkb(shapely.Point(1, 2)),
        shapely.to_wkb(shapely.Point(1, 2), byte_order=0),
        shapely.to_wkb(shapely.Point(1, 2, 3)),
        shapely.to_wkb(shapely.set_srid(shapely.Point(1, 2), 4326), include_srid=True),
    ],
    ids=["little", "big", "3D", "EWKB"],
)
def test_every_wkb_of_a_point_wins_over_a_circle(wkb):
    columns = {"geometry": [wkb], "lon": [180.0], "lat": [9.0], "radius_m": [5.0]}
    same_layout(read_places(Source(columns, "row"), WGS84), place([Point(lon=1, lat=2)]))


def test_a_later_kind_of_region_replaces_an_odd_one():
    table = read(
        xmin=[170.0, 170.0], ymin=[0.0, 0.0], xmax=[-170.0, -170.0], ymax=[1.0, 1.0],
        lon=[1.0, 180.0], lat=[1.0, 1.0], radius_m=[5.0, 5.0],
        geometry=pa.array([None, TRIANGLE.wkb], pa.binary()),
    )  # fmt: skip
    assert regions(table) == [Circle(lon=1, lat=1, radius=5), Polygon(TRIANGLE)]


def test_keywords_are_normalised():
    table = read(keywords=[["Coffee", "happy hour"], ["coffee"], ["*"], ["*", "tea"]])
    words = [sorted(sub.clauses[0].keywords) for sub in table.to_subscriptions()]
    assert words == [["coffee", "happy", "hour"], ["coffee"], [], ["tea"]]


STRINGS = [
    pa.string(),
    pa.large_string(),
    pa.string_view(),
    pa.dictionary(pa.int32(), pa.string()),
    pa.dictionary(pa.int8(), pa.large_string()),
]
LISTS = [pa.list_, pa.large_list, pa.list_view, pa.large_list_view, lambda kind: pa.list_(kind, 2)]


@pytest.mark.parametrize(
    "list_of", LISTS, ids=["list", "large_list", "list_view", "large_list_view", "fixed"]
)
@pytest.mark.parametrize("kind", STRINGS, ids=str)
def test_keywords_of_every_arrow_type(kind, list_of):
    rows = [["Left", "out"], ["Tea", "milk"], ["*", "*"], ["ÜBER", "tea"]]
    column = pa.array(rows, list_of(kind))[1:]
    table = read(keywords=column)
    words = [sorted(sub.clauses[0].keywords) for sub in table.to_subscriptions()]
    assert words == [["milk", "tea"], [], ["tea", "über"]]
    column = pa.array([None if "*" in row else row for row in rows], list_of(kind))[1:]
    with pytest.raises(ColumnError, match="row 1 has no keywords"):
        read(keywords=column)
    batch = MessageBatch.from_arrow({"keywords": column, "lon": [0.0] * 3, "lat": [0.0] * 3}, like=table)
    np.testing.assert_array_equal(batch.probes.keyword_offsets, offsets(table.clauses.keyword_runs))
    np.testing.assert_array_equal(batch.probes.keywords, table.clauses.keywords)


@pytest.mark.parametrize("kind", STRINGS, ids=str)
def test_strings_of_every_arrow_type(kind):
    table = SubscriptionTable.from_arrow(
        pa.table({"expression": pa.array(["tea", "tea", 'brand = "x"'], kind)}), like=None
    )
    messages = {
        "text": pa.array(["Tea", None, ""], kind),
        "brand": pa.array(["y", None, "x"], kind),
        "geometry": pa.array(["POINT (1 2)"] * 3, kind),
    }
    batch = MessageBatch.from_arrow(messages, like=table)
    assert build_index("ranked-list", table).match(batch).counts.tolist() == [2, 0, 1]


WORDS = (
    st.none()
    | st.text(max_size=4)
    | st.sampled_from(["Tea", "happy HOUR", "☕", "é" * 300, "A" * 300, "a-b"])
)


@given(st.lists(st.none() | st.lists(WORDS, max_size=4), max_size=6))
def test_keywords_of_messages_are_their_tokens(rows):
    expected = [{token for word in row or [] if word is not None for token in tokens(word)} for row in rows]
    like = SubscriptionTable.from_arrow(
        {"keywords": [sorted(words) or ["*"] for words in expected] + [["tea"]]}
    )
    column = pa.array(rows, pa.list_(pa.string()))
    n = len(rows)
    batch = MessageBatch.from_arrow({"keywords": column, "lon": [0.0] * n, "lat": [0.0] * n}, like=like)
    offsets, codes = batch.probes.keyword_offsets, batch.probes.keywords
    found = [set(like.vocabulary.decode(codes[offsets[i] : offsets[i + 1]])) for i in range(n)]
    assert found == expected


LONG = config.MAX_KEYWORD_CHARS + 1


@pytest.mark.parametrize(
    ("keywords", "error", "says"),
    [
        (["☕"], ExpressionError, "keyword '☕' has no letter and no digit"),
        (["tea", ""], ExpressionError, "keyword '' has no letter"),
        (["-", "tea"], ExpressionError, "keyword '-' has no letter"),
        (["tea", None], ColumnError, "has a null among its keywords"),
        ([None], ColumnError, "has a null among its keywords"),
        (["a" * LONG], ExpressionError, "over the limit of 256"),
        (["A" * LONG], ExpressionError, "over the limit of 256"),
        (["tea", "é" * LONG], ExpressionError, "over the limit of 256"),
    ],
)
def test_a_keyword_that_asks_for_nothing_is_refused(keywords, error, says):
    """Left out, it would make the subscription ask for less than it says: in the end for everything."""
    with pytest.raises(error, match=rf"subscription row 2 \(id 'c'\):? .*{says}"):
        read(id=["a", "b", "c", "d"], keywords=[["tea", "milk"], ["*"], keywords, keywords])
    longest = "a" * config.MAX_KEYWORD_CHARS
    assert read(keywords=[[longest]]).to_subscriptions()[0].clauses[0].keywords == {longest}


def test_a_list_of_nothing_but_null_is_refused():
    with pytest.raises(ColumnError, match="row 0 has a null"):
        read(keywords=[[None]])


def test_keywords_in_capitals_are_read_in_bulk(monkeypatch):
    monkeypatch.setattr("nearcast.text.asked_words", None)
    monkeypatch.setattr("nearcast.text.tokens", None)
    table = read(keywords=[["TEA", "Milk"], ["tea", "24H"]])
    assert table.vocabulary.words.to_pylist() == ["tea", "milk", "24h"]


def test_a_normal_form_that_cannot_be_read_back_is_not_written():
    common = " ".join(f"{i}" + "x" * 200 for i in range(30))
    either = " OR ".join(f"y{i}" for i in range(config.MAX_CLAUSES))
    table = SubscriptionTable.from_subscriptions(
        [Subscription("tea", "tea"), Subscription("long", f"{common} ({either})")]
    )
    with pytest.raises(ExpressionError, match=r"subscription 'long' takes \d+ characters.*more than 65536"):
        table.to_arrow()


@pytest.mark.parametrize(
    ("columns", "error", "message"),
    [
        ({"expression": ["tea"], "keywords": [["tea"]]}, ColumnError, "either expressions or keywords"),
        ({"id": ["a"], "expression": ["tea AND"]}, ExpressionError, r"subscription row 0 \(id 'a'\): "),
        ({"id": ["a", "b"], "expression": ["tea", None]}, ColumnError, r"row 1 \(id 'b'\) has no expression"),
        ({"expression": [5]}, ColumnError, "expression must be a column of strings"),
        ({"keywords": ["tea"]}, ColumnError, "lists of strings"),
        ({"keywords": [[1]]}, ColumnError, "lists of strings"),
        ({"keywords": ["tea"]}, ColumnError, "not of string; give lists, or write an expression"),
        (
            {"keywords": np.array([1j])},
            ColumnError,
            "this dict cannot be read as a table: Unsupported numpy type",
        ),
        ({"id": [2**70]}, ColumnError, "this dict cannot be read as a table: Python int too large"),
        ({"geometry": [shapely.Point().wkb]}, GeometryError, "the geometry of an area is an empty Point"),
        (
            {"xmin": [1.0], "ymin": [1.0], "xmax": [None], "ymax": [None]},
            GeometryError,
            "xmax and ymax are missing",
        ),
        ({"lon": [1.0], "lat": [2.0]}, ColumnError, "there is no radius_m"),
        ({"xmin": [1.0]}, ColumnError, "belong together"),
        ({"xmin": ["x"], "ymin": [0], "xmax": [1], "ymax": [1]}, ColumnError, "columns of numbers"),
        ({"lon": ["1"], "lat": [2], "radius_m": [3]}, ColumnError, "columns of numbers, not of string"),
        ({"lon": [True], "lat": [2], "radius_m": [3]}, ColumnError, "columns of numbers, not of bool"),
        ({"lon": [float("inf")], "lat": [2.0], "radius_m": [float("inf")]}, GeometryError, "row 0.*inf"),
        (
            {"lon": [1.0], "lat": [2.0], "radius_m": [None]},
            GeometryError,
            "row 0: radius_m is missing; lon, lat, rad",
        ),
        (
            {"id": ["a"], "lon": [40.0], "lat": [-100.0], "radius_m": [1.0]},
            GeometryError,
            r"\(id 'a'\).*swapped",
        ),
        ({"lon": [1.0], "lat": [1.0], "radius_m": [-1.0]}, GeometryError, "row 0.*negative"),
        ({"xmin": [0.0], "ymin": [2.0], "xmax": [1.0], "ymax": [1.0]}, GeometryError, "row 0.*ymin"),
        ({"geometry": [b"nonsense"]}, GeometryError, "row 0"),
        ({"geometry": [1.5]}, ColumnError, "WKB or WKT"),
        ({"id": [None]}, ColumnError, "row 0"),
    ],
)
def test_bad_subscription_tables(columns, error, message):
    with pytest.raises(error, match=message):
        read(**columns)


def test_what_is_no_table():
    with pytest.raises(ColumnError, match="is not a table"):
        SubscriptionTable.from_arrow(5)
    with pytest.raises(ColumnError, match="two columns"):
        SubscriptionTable.from_arrow(pa.table([[1], [2]], names=["id", "id"]))


@given(st.lists(messages(), min_size=1, max_size=6))
def test_messages_from_arrow_equal_messages_from_objects(msgs):
    def column(pick, kind):
        return pa.array([pick(message) for message in msgs], kind)

    point = lambda axis: lambda m: getattr(m.place, axis) if isinstance(m.place, Point | Circle) else None  # noqa: E731
    box = lambda side: lambda m: getattr(m.place, side) if isinstance(m.place, Box) else None  # noqa: E731
    brand = [m.attributes.get("brand") for m in msgs]
    table = pa.table(
        {
            "id": column(lambda m: m.id, pa.int64()),
            "keywords": column(lambda m: sorted(m.keywords), pa.list_(pa.string())),
            "lon": column(point("x"), pa.float64()),
            "lat": column(point("y"), pa.float64()),
            "radius_m": column(lambda m: getattr(m.place, "radius", None), pa.float64()),
            "geometry": column(lambda m: getattr(m.place, "wkb", None), pa.binary()),
            **{side: column(box(side), pa.float64()) for side in ("xmin", "ymin", "xmax", "ymax")},
            "price": column(lambda m: m.attributes.get("price"), pa.float64()),
            "brand": pa.array([value if isinstance(value, str) else None for value in brand], pa.string()),
        }
    )
    like = SubscriptionTable.from_subscriptions(
        [Subscription(1, 'tea milk coffee price < 3 AND brand = "a"')]
    )
    ours = MessageBatch.from_arrow(table, like=like)
    theirs = MessageBatch.from_messages(msgs, like=like)
    for a, b in zip(ours.probes, theirs.probes):
        np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(ours.owners, theirs.owners)
    np.testing.assert_array_equal(ours.shapes.index, theirs.shapes.index)


@given(
    st.lists(
        st.one_of(st.none(), st.text(), st.text(alphabet="aB 9-"), st.just("Tea, MILK and über-milk")),
        max_size=8,
    )
)
def test_texts_are_tokenised_by_the_kernel_as_by_the_function(texts):
    words = [tokens(text or "") for text in texts]
    vocabulary = Vocabulary([word for row in words for word in row])
    for kind in (pa.string(), pa.large_string(), pa.string_view()):
        offsets, codes = text_codes(pa.array(texts, kind), vocabulary.encode)
        rows = [vocabulary.decode(codes[offsets[i] : offsets[i + 1]]) for i in range(len(texts))]
        assert rows == words
    if len(texts) > 2:  # a slice
        offsets, codes = text_codes(pa.array(texts, pa.string())[1:], vocabulary.encode)
        assert vocabulary.decode(codes) == [word for row in words[1:] for word in row]


def test_a_run_that_is_too_long_is_no_keyword():
    longest = "a" * config.MAX_KEYWORD_CHARS
    vocabulary = Vocabulary([longest, longest + "a", "tea"])
    offsets, codes = text_codes(pa.array([f"{longest}a tea {longest}", f"tea {longest}a"]), vocabulary.encode)
    assert codes.tolist() == [2, 0, 2]
    assert offsets.tolist() == [0, 2, 3]


def test_attributes_by_type():
    def values(column):
        batch = MessageBatch.from_arrow({"lon": [0.0] * 2, "lat": [0.0] * 2, **column}, like=LIKE)
        return dense(batch, 2)

    assert values({"price": [2, None]})[:, 0].tolist()[0] == 2.0
    assert np.isnan(values({"price": [2, None]})[1, 0])
    assert values({"price": pa.array([True, False])})[:, 0].tolist() == [1.0, 0.0]
    assert np.isnan(values({"price": ["2", "3"]})).all()  # a text is not the number that the test asks for
    assert values({"brand": ["x", "unknown"]})[:, 1].tolist() == [0.0, -1.0]
    assert values({"brand": pa.array(["x", "x"]).dictionary_encode()})[:, 1].tolist() == [0.0, 0.0]
    assert np.isnan(values({"other": [1, 2]})).all()


def test_times():
    stamps = pa.array([1_000_000, None], pa.timestamp("us", "UTC"))
    batch = MessageBatch.from_arrow({"lon": [0.0] * 2, "lat": [0.0] * 2, "expires_at": stamps}, like=LIKE)
    assert batch.expires_at.tolist() == [1_000_000, NEVER]
    assert batch.published_at is None
    for wrong, message in (
        (pa.array([0, 0], pa.timestamp("us")), "no time zone"),
        (["x", "y"], "microseconds"),
    ):
        with pytest.raises(ColumnError, match=message):
            MessageBatch.from_arrow({"lon": [0.0] * 2, "lat": [0.0] * 2, "expires_at": wrong}, like=LIKE)


@pytest.mark.parametrize(
    ("columns", "error", "message"),
    [
        ({"id": ["m1"], "text": ["tea"]}, ColumnError, r"message row 0 \(id 'm1'\) has no place"),
        ({"id": ["m1"], "lon": [40.7], "lat": [-100.0]}, GeometryError, r"\(id 'm1'\).*swapped"),
        (
            {"lon": [float("nan")], "lat": [1.0]},
            GeometryError,
            "row 0: lon is missing; lon, lat belong together",
        ),
        ({"lon": ["1"], "lat": ["2"]}, ColumnError, "columns of numbers, not of string"),
        (
            {"id": ["m1"], "lon": [1.0], "lat": [1.0], "price": [float("-inf")]},
            ColumnError,
            r"message row 0 \(id 'm1'\): attribute 'price' is -inf; give a finite number",
        ),
        (
            {"lon": [1.0] * 3, "lat": [1.0] * 3, "published_at": [5, None, 5], "expires_at": [6, 4, 5]},
            ColumnError,
            "message row 2 expires at 1970-01-01T00:00:00.000005Z, not after its publication at 1970-01-01T00",
        ),
        (
            {"lon": [1.0], "lat": [1.0], "published_at": pa.array([2**63], pa.uint64())},
            ColumnError,
            "published_at has times outside of 64 bits",
        ),
        (
            {"lon": [1.0], "lat": [1.0], "expires_at": pa.array([2**60], pa.timestamp("s", "UTC"))},
            ColumnError,
            "expires_at has times outside of 64 bits",
        ),
        ({"lon": [1.0]}, ColumnError, "belong together"),
        ({"lon": [1.0], "lat": [1.0], "text": [5]}, ColumnError, "text must be"),
        ({"geometry": ["LINESTRING (0 0, 1 1)"]}, GeometryError, "row 0"),
        ({"geometry": [shapely.Point(40, -100).wkb]}, GeometryError, "row 0.*swapped"),
        ({"geometry": [shapely.Point().wkb]}, GeometryError, "row 0.*empty"),
    ],
)
def test_bad_message_tables(columns, error, message):
    with pytest.raises(error, match=message):
        MessageBatch.from_arrow(columns, like=LIKE)


def test_bare_codes_have_no_words():
    bare = SubscriptionTable.from_arrays([[0, 0, 1, 1]], [0, 1], [3])
    with pytest.raises(ColumnError, match="bare codes"):
        MessageBatch.from_arrow({"lon": [0.0], "lat": [0.0]}, like=bare)
    with pytest.raises(ColumnError, match="bare codes"):
        bare.to_subscriptions()


def test_planar_space():
    plane = Planar(0, 0, 100, 100)
    table = SubscriptionTable.from_arrow(
        {"lon": [50.0], "lat": [50.0], "radius_m": [10.0], "expression": ["tea"]}, space=plane
    )
    index = build_index("ranked-list", table)
    batch = MessageBatch.from_arrow(
        {"lon": [56.0, 58.0], "lat": [58.0, 58.0], "text": ["tea", "tea"]}, like=table
    )
    assert index.match(batch).counts.tolist() == [1, 0]
    with pytest.raises(GeometryError, match="101"):
        MessageBatch.from_arrow({"lon": [101.0], "lat": [0.0]}, like=table)


def test_one_space_a_table():
    plane = Planar(0, 0, 1, 1)
    with pytest.raises(ColumnError, match="several spaces"):
        SubscriptionTable.from_subscriptions(
            [Subscription(1, None, Box(0, 0, 1, 1)), Subscription(2, None, Box(0, 0, 1, 1, plane))]
        )
    with pytest.raises(ColumnError, match="WGS84"):
        MessageBatch.from_messages([Message(1, "tea", Point(x=0, y=0, space=plane))], like=LIKE)


def test_messages_that_teach_words():
    """With learn=True every word, attribute and string gets a code; columns that are no values do not."""
    like = SubscriptionTable.from_subscriptions([Subscription(1, "tea AND price < 3")])
    columns = {
        "text": ["Tea für two", "milk"],
        "lon": [0.0, 1.0],
        "lat": [0.0, 1.0],
        "price": [1, None],
        "brand": pa.array(["x", None]).dictionary_encode(),
        "open": [True, None],
        "tags": [["a"], ["b"]],
        "nothing": pa.nulls(2),
    }
    plain = MessageBatch.from_arrow(columns, like=like)
    assert np.diff(plain.probes.keyword_offsets).tolist() == [1, 0]
    assert dense(plain).shape == (2, 1)
    taught = MessageBatch.from_arrow(columns, like=like, learn=True)
    assert np.diff(taught.probes.keyword_offsets).tolist() == [3, 1]
    assert list(like.attributes) == [("price", False), ("brand", True), ("open", False)]
    np.testing.assert_array_equal(dense(taught), [[1, 0, 1], [np.nan] * 3])
    assert set(like.vocabulary) == {"tea", "für", "two", "milk"}
    message = Message(1, "Tea für two", Point(lon=0, lat=0), {"price": 1, "brand": "x", "open": True})
    again = MessageBatch.from_messages([message], like=like, learn=True)
    np.testing.assert_array_equal(dense(again)[0], dense(taught)[0])
    np.testing.assert_array_equal(again.probes.keywords, taught.probes.keywords[:3])
    assert again.attributes is taught.attributes is like.attributes


def test_the_attributes_of_one_publisher_take_no_room_in_the_messages_of_others():
    like = Coding.new()
    many = {f"a{number}": number for number in range(1_000)}
    loud = Message(0, "tea", Point(lon=0, lat=0), many)
    plain = [Message(number, "tea", Point(lon=0, lat=0), {"a999": 1}) for number in range(1, 100)]
    batch = MessageBatch.from_messages([loud, *plain], like=like, learn=True)
    assert len(batch.probes.values) == 1_000 + 99
    table = {"lon": [0.0] * 100, "lat": [0.0] * 100, "a3": [1.0] * 99 + [None]}
    assert len(MessageBatch.from_arrow(table, like=like).probes.values) == 99
    assert batch.take([5, 0]).probes.value_attributes.tolist() == [999, *range(1_000)]
