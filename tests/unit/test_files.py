"""Files of every format give the same messages and subscriptions; mistakes in them are named."""

import csv
import gzip
import io
import json
import sys
from decimal import Decimal
from pathlib import Path

import geopandas
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import shapely
from hypothesis import given
from pyarrow import csv as arrow_csv

import values
from nearcast import (
    Box,
    Circle,
    Deliveries,
    Message,
    Point,
    Polygon,
    Subscription,
    SubscriptionTable,
    build_index,
    config,
)
from nearcast.errors import (
    ColumnError,
    DuplicateError,
    GeometryError,
    InputError,
    ModelError,
    NearcastWarning,
    UnknownError,
)
from nearcast.files import (
    find_message,
    find_subscription,
    read_messages,
    read_subscriptions,
    read_table,
    write_table,
    writing,
)
from nearcast.geometry import EVERYWHERE, to_geojson, to_text

TRIANGLE = Polygon(shapely.Polygon([(-1, -1), (3, -1), (1, 3)]))

SUBSCRIPTIONS = [
    Subscription("circle", "coffee", Circle(lon=0, lat=0, radius=150_000)),
    Subscription("box", "coffee OR tea", Box(0, 0, 2, 2)),
    Subscription("triangle", "tea NOT café", TRIANGLE),
    Subscription("everywhere", 'price < 3 AND brand = "acme"', EVERYWHERE),
    Subscription("dateline", "*", Box(179, -5, -179, 5)),
    Subscription("quotes", '"happy hour" OR brand = "say, \\"cheese\\""', Box(-5, -5, 5, 5)),
]
MESSAGES = [
    Message("01", "Coffee and\ntea", Point(lon=0.1, lat=0.2), {"price": 2.5, "brand": "acme"}),
    Message("02", "tea, cafe", Point(lon=1, lat=1), {"price": 3}),
    Message("03", "tea at the café", Box(-2, -2, -0.5, -0.5), {"brand": 'say, "cheese"'}),
    Message("04", "Happy hour!", Circle(lon=4, lat=4, radius=10_000)),
    Message("05", "storm", Point(lon=-179.5, lat=0), published_at="2026-05-16T04:00:00Z",
            expires_at=1_800_000_000_000_000),
    Message("06", "coffee", TRIANGLE, {"price": -1, "brand": "acme"}),
    Message("07", "coffee", Point(lon=50, lat=50)),
]  # fmt: skip
EXPECTED = {(m.id, s.id) for m in MESSAGES for s in SUBSCRIPTIONS if s.matches(m)}


def flat(value):
    """A message or subscription as flat columns, by hand."""
    place = value.place if isinstance(value, Message) else value.region
    row = {"id": value.id}
    if isinstance(value, Message):
        row["text"] = " ".join(sorted(value.keywords))
        row |= value.attributes
        row |= {name: getattr(value, name) for name in ("published_at", "expires_at")}
    else:
        row["expression"] = str(value.to_text()).partition(": ")[2].partition(" WITHIN ")[0]
    if isinstance(place, Point | Circle):
        row |= {"lon": place.lon, "lat": place.lat}
    if isinstance(place, Circle):
        row["radius_m"] = place.radius
    if isinstance(place, Box):
        row |= {name: getattr(place, name) for name in ("xmin", "ymin", "xmax", "ymax")}
    if isinstance(place, Polygon):
        row["geometry"] = to_text(place)
    return row


def columns(rows):
    return {name: [row.get(name) for row in rows] for name in dict.fromkeys(n for row in rows for n in row)}


def feature(value):
    """A message or subscription as a Feature; a circle as a Point with the property radius_m, as people write it."""
    row = flat(value)
    place = value.place if isinstance(value, Message) else value.region
    names = ("lon", "lat", "xmin", "ymin", "xmax", "ymax", "geometry")
    properties = {name: cell for name, cell in row.items() if name not in names and cell is not None}
    geometry = to_geojson(place)
    if geometry is not None:
        geometry.pop("radius", None)
    return {"type": "Feature", "geometry": geometry, "properties": properties}


def as_documents(things, path):
    path = path.with_suffix(".jsonl")
    path.write_text("\n\n".join(thing.to_json() for thing in things) + "\n", encoding="utf-8")
    return path


def as_flat_lines(things, path):
    path = path.with_suffix(".ndjson")
    path.write_text("\n".join(json.dumps(flat(thing)) for thing in things), encoding="utf-8")
    return path


def as_geojson(things, path):
    path = path.with_suffix(".geojson")
    document = {"type": "FeatureCollection", "features": [feature(thing) for thing in things]}
    path.write_text(json.dumps(document), encoding="utf-8")
    return path


def as_array(things, path):
    path = path.with_suffix(".json")
    path.write_text("[" + ",".join(thing.to_json() for thing in things) + "]", encoding="utf-8")
    return path


def as_csv(things, path):
    path = path.with_suffix(".csv")
    table = columns([flat(thing) for thing in things])
    with path.open("w", encoding="utf-8-sig", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(table)
        writer.writerows(zip(*table.values()))
    return path


def as_parquet(things, path):
    path = path.with_suffix(".parquet")
    table = columns([flat(thing) for thing in things])
    if "geometry" in table:
        table["geometry"] = [None if wkt is None else shapely.from_wkt(wkt).wkb for wkt in table["geometry"]]
    pq.write_table(pa.table(table), path)
    return path


def as_directory(things, path):
    path.mkdir()
    half = len(things) // 2
    schema = pq.read_schema(as_parquet(things, path.with_name("all")))
    for number, part in enumerate((things[:half], things[half:])):
        table = pq.read_table(as_parquet(part, path.with_name("part")))
        full = [
            table[f.name].cast(f.type) if f.name in table.column_names else pa.nulls(len(table), f.type)
            for f in schema
        ]
        pq.write_table(pa.table(full, schema=schema), path / f"{number}.parquet")
    (path / "_SUCCESS").touch()
    return path


def as_geoparquet(things, path):
    """As GeoPandas writes it, with the geometry under another name; circles are in their columns."""
    path = path.with_suffix(".parquet")
    rows = [flat(thing) for thing in things]
    places = [thing.place if isinstance(thing, Message) else thing.region for thing in things]
    shapes = [
        None
        if place is EVERYWHERE or isinstance(place, Circle)
        else shapely.geometry.shape(to_geojson(place))
        for place in places
    ]
    for row, shape in zip(rows, shapes):
        if shape is not None:
            for name in ("geometry", "lon", "lat", "xmin", "ymin", "xmax", "ymax"):
                row.pop(name, None)
    frame = geopandas.GeoDataFrame({**columns(rows), "shape": shapes}, geometry="shape", crs="EPSG:4326")
    for name in {"published_at", "expires_at"} & set(frame):
        frame[name] = frame[name].astype("Int64")  # pandas makes floats of integers with gaps
    frame.to_parquet(path)
    return path


WRITERS = [as_documents, as_flat_lines, as_geojson, as_array, as_csv, as_parquet, as_directory, as_geoparquet]


def deliveries(messages, subscriptions):
    subs = read_subscriptions(subscriptions)
    batch = read_messages(messages, like=subs)
    found = Deliveries.of(build_index("scan", subs).match(batch), batch.ids, subs.ids).to_arrow()
    pairs = list(zip(found["message_id"].to_pylist(), found["subscription_id"].to_pylist()))
    assert len(set(pairs)) == len(pairs)
    return set(pairs)


class TestRoundTrips:
    def test_the_world_has_answers_of_every_kind(self):
        assert {s for _, s in EXPECTED} == {s.id for s in SUBSCRIPTIONS}
        assert len(EXPECTED) < len(MESSAGES) * len(SUBSCRIPTIONS) / 2

    @pytest.mark.parametrize("write_subscriptions", WRITERS)
    @pytest.mark.parametrize("write_messages", WRITERS)
    def test_every_format_gives_the_same_deliveries(self, tmp_path, write_messages, write_subscriptions):
        messages = write_messages(MESSAGES, tmp_path / "messages")
        subscriptions = write_subscriptions(SUBSCRIPTIONS, tmp_path / "subscriptions")
        assert deliveries(messages, subscriptions) == EXPECTED

    @pytest.mark.parametrize("write", WRITERS)
    def test_one_by_id(self, tmp_path, write):
        """What is found in a file answers as what was written to it."""
        messages = write(MESSAGES, tmp_path / "messages")
        subscriptions = write(SUBSCRIPTIONS, tmp_path / "subscriptions")
        found = [find_message(messages, m.id) for m in MESSAGES]
        subs = [find_subscription(subscriptions, s.id) for s in SUBSCRIPTIONS]
        assert {(m.id, s.id) for m in found for s in subs if s.matches(m)} == EXPECTED
        assert [m.attributes for m in found] == [m.attributes for m in MESSAGES]
        assert [(m.published_at, m.expires_at) for m in found] == [
            (m.published_at, m.expires_at) for m in MESSAGES
        ]

    @given(message=values.messages(), subscription=values.subscriptions())
    def test_documents_come_back_equal(self, tmp_path_factory, message, subscription):
        home = tmp_path_factory.getbasetemp()
        assert find_message(as_documents([message], home / "m"), str(message.id)) == message
        assert (
            find_subscription(as_documents([subscription], home / "s"), str(subscription.id)) == subscription
        )

    def test_stdin_is_json_lines(self, monkeypatch):
        lines = "\n".join(message.to_json() for message in MESSAGES)
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(lines.encode())))
        assert read_table("-", "message")["id"].to_pylist() == [message.id for message in MESSAGES]

    def test_without_ids_the_row_is_the_id(self, tmp_path):
        file = tmp_path / "s.csv"
        file.write_text("expression\ntea\ncoffee\n")
        assert read_subscriptions(file).ids is None
        assert find_subscription(file, "1") == Subscription(1, "coffee")


class TestColumns:
    def csv(self, tmp_path, text, kind="message"):
        file = tmp_path / "table.csv"
        file.write_text(text, encoding="utf-8")
        return read_table(file, kind)

    def test_csv_types(self, tmp_path):
        table = self.csv(
            tmp_path,
            "id, text ,lon,lat,price,zip,when,published_at,keywords\n"
            "1,911,1,2, 3.5,01234,2026-05-01,2026-05-16T04:00:00Z,a b-c\n"
            '2,"NA",1e1,2,,D-123,,1800000000000000,\n',
        )
        assert table.to_pylist() == [
            {"id": 1, "text": "911", "lon": 1.0, "lat": 2.0, "price": 3.5, "zip": "01234", "when": "2026-05-01",
             "published_at": 1_778_904_000_000_000, "keywords": ["a", "b-c"]},
            {"id": 2, "text": "NA", "lon": 10.0, "lat": 2.0, "price": None, "zip": "D-123", "when": None,
             "published_at": 1_800_000_000_000_000, "keywords": None},
        ]  # fmt: skip

    @pytest.mark.parametrize(
        ("ids", "expected"),
        [(["1", "-2", "0"], [1, -2, 0]), (["007", "8"], ["007", "8"]), (["1", "a"], ["1", "a"]),
         (["1" * 30], ["1" * 30]), (["-0"], ["-0"])],
    )  # fmt: skip
    def test_csv_ids_are_what_was_written(self, tmp_path, ids, expected):
        table = self.csv(tmp_path, "id,lon,lat\n" + "".join(f"{id},0,0\n" for id in ids))
        assert table["id"].to_pylist() == expected

    def test_spaces_around_cells_of_csv_mean_nothing(self, tmp_path):
        table = self.csv(tmp_path, "id, keywords\na, tea\nb,  green tea \n", "subscription")
        assert table["keywords"].to_pylist() == [["tea"], ["green", "tea"]]
        table = self.csv(
            tmp_path,
            "id, lon, lat, published_at, expires_at\n1, 1 , 2, 2026-05-16T04:00:00Z , \n2,1,2, 5, 7\n",
        )
        assert table["published_at"].to_pylist() == [1_778_904_000_000_000, 5]
        assert table["expires_at"].to_pylist() == [None, 7]
        assert table["lon"].to_pylist() == [1.0, 1.0]

    def test_other_columns_of_subscriptions_are_left_out_and_told(self, tmp_path):
        for name, text in (
            ("s.csv", "id,note,expression\na,hello,tea\n"),
            (
                "s.jsonl",
                '{"id": "a", "note": 1, "expression": "tea"}\n{"id": "b", "note": "x", "expression": "tea"}',
            ),
            ("s.json", '{"id": "a", "expression": "tea", "note": {"any": ["thing", 1]}}'),
        ):
            (tmp_path / name).write_text(text)
            with pytest.warns(NearcastWarning) as told:
                assert read_subscriptions(tmp_path / name).ids[0].as_py() == "a"
            assert [str(warning.message) for warning in told] == [
                f"{tmp_path / name}: left out 'note'; a subscription has id, expression, keywords, geometry, lon, lat, "
                "radius_m, xmin, ymin, xmax, ymax, bbox"
            ]
            assert told[0].filename == __file__

    def test_a_place_name_beside_a_position_is_an_attribute(self, tmp_path):
        file = tmp_path / "m.jsonl"
        file.write_text('{"id": 1, "lon": 1, "lat": 2, "place": "Brooklyn"}')
        assert find_message(file, "1") == Message(1, "", Point(lon=1, lat=2), {"place": "Brooklyn"})

    def test_a_place_can_be_text(self, tmp_path):
        file = tmp_path / "m.jsonl"
        file.write_text('{"id": 1, "place": "CIRCLE (1 2, 1 km)"}')
        assert find_message(file, "1").place == Circle(lon=1, lat=2, radius=1000)

    def test_a_list_of_four_is_a_box(self, tmp_path):
        file = tmp_path / "s.jsonl"
        file.write_text('{"id": 1, "bbox": [1, 2, 3, 4], "expression": "*"}')
        assert find_subscription(file, "1").region == Box(1, 2, 3, 4)

    def test_nested_values_of_messages_are_no_attributes(self, tmp_path):
        file = tmp_path / "m.jsonl"
        file.write_text(
            '{"id": 1, "lon": 1, "lat": 2, "user": {"id": 3}}\n{"id": 2, "lon": 1, "lat": 2, "user": [1, "a"]}'
        )
        assert find_message(file, "2").attributes == {}


class TestOneByIdIsReadAsTheWholeFileIs:
    """What ``nearcast match`` refuses or delivers, ``nearcast explain`` refuses or explains."""

    @pytest.mark.parametrize("written", [None, "", " "])
    def test_no_expression(self, tmp_path, written):
        columns = {"id": ["a", "b"], "expression": pa.array(["tea", written], pa.string())}
        pq.write_table(pa.table(columns), tmp_path / "s.parquet")
        assert find_subscription(tmp_path / "s.parquet", "a") == Subscription("a", "tea")
        said = "has no expression; write \\*" if written is None else "the expression is empty; write \\*"
        for read in (read_subscriptions, lambda path: find_subscription(path, "b")):
            with pytest.raises(InputError, match=f"{said} for every message"):
                read(tmp_path / "s.parquet")

    def test_no_keywords(self, tmp_path):
        (tmp_path / "s.csv").write_text("id,keywords\na,green tea\nb,\nc,*\n")
        assert find_subscription(tmp_path / "s.csv", "a") == Subscription("a", "green tea")
        assert find_subscription(tmp_path / "s.csv", "c") == Subscription("c", "*")
        with pytest.raises(
            ColumnError, match=r"subscription 'b': the subscription has no keywords; write \*"
        ):
            find_subscription(tmp_path / "s.csv", "b")

    def test_decimals(self, tmp_path):
        prices = pa.array([Decimal("2.50"), None], pa.decimal128(5, 2))
        columns = {
            "id": ["a", "b"],
            "text": ["tea", "tea"],
            "lon": [0.0, 0.0],
            "lat": [0.0, 0.0],
            "price": prices,
        }
        pq.write_table(pa.table(columns), tmp_path / "m.parquet")
        cheap = Subscription("s", "price < 3")
        batch = read_messages(
            tmp_path / "m.parquet",
            like=(index := build_index("scan", SubscriptionTable.from_subscriptions([cheap]))),
        )
        assert index.match(batch).counts.tolist() == [1, 0]
        assert [cheap.matches(find_message(tmp_path / "m.parquet", id)) for id in ("a", "b")] == [True, False]

    def test_nulls_among_keywords_and_no_place(self, tmp_path):
        columns = {"id": ["a", "b"], "keywords": [["tea", None], []], "lon": [0.0, None], "lat": [0.0, None]}
        pq.write_table(pa.table(columns), tmp_path / "m.parquet")
        assert find_message(tmp_path / "m.parquet", "a") == Message("a", "tea", Point(lon=0, lat=0))
        with pytest.raises(ColumnError, match="message 'b': the message has no place; give lon and lat"):
            find_message(tmp_path / "m.parquet", "b")


class TestTimes:
    SECONDS = (0, 1_800_000_000, None, 253_402_300_799)  # to the end of the year 9999, beyond nanoseconds

    def table(self, zone):
        micros = [None if second is None else second * 10**6 + 1 for second in self.SECONDS]
        times = pa.array(micros, pa.timestamp("us", zone))
        return pa.table({"id": range(4), "lon": [0.0] * 4, "lat": [0.0] * 4, "expires_at": times})

    def test_int96_is_utc(self, tmp_path):
        """As Spark writes it, whatever zone it has: the column itself names none."""
        table = self.table(None)
        pq.write_table(table, tmp_path / "one.parquet", use_deprecated_int96_timestamps=True)
        (tmp_path / "some").mkdir()
        for number in range(2):
            part = table.slice(2 * number, 2)
            pq.write_table(
                part, tmp_path / "some" / f"{number}.parquet", use_deprecated_int96_timestamps=True
            )
        for path in (tmp_path / "one.parquet", tmp_path / "some"):
            assert read_table(path, "message") == self.table("UTC")
            read_messages(path, like=read_subscriptions(as_csv(SUBSCRIPTIONS, tmp_path / "s")))

    def test_other_times_without_a_zone_are_refused(self, tmp_path):
        pq.write_table(self.table(None), tmp_path / "m.parquet")
        subscriptions = read_subscriptions(as_csv(SUBSCRIPTIONS, tmp_path / "s"))
        with pytest.raises(ColumnError, match="expires_at has no time zone"):
            read_messages(tmp_path / "m.parquet", like=subscriptions)


class TestCompressed:
    @pytest.mark.parametrize("codec", ["gz", "zst"])
    @pytest.mark.parametrize("write", [as_documents, as_flat_lines, as_geojson, as_array, as_csv])
    def test_read_as_if_they_were_not(self, tmp_path, write, codec):
        packed = []
        for name, things in (("messages", MESSAGES), ("subscriptions", SUBSCRIPTIONS)):
            plain = write(things, tmp_path / name)
            packed.append(plain.with_name(f"{plain.name}.{codec}"))
            with pa.output_stream(packed[-1], compression={"gz": "gzip", "zst": "zstd"}[codec]) as file:
                file.write(plain.read_bytes())
            plain.unlink()
        assert deliveries(*packed) == EXPECTED

    def test_several_members_are_one_file(self, tmp_path):
        file = tmp_path / "m.jsonl.gz"
        file.write_bytes(b"".join(gzip.compress(message.to_json().encode() + b"\n") for message in MESSAGES))
        assert read_table(file, "message")["id"].to_pylist() == [message.id for message in MESSAGES]

    @pytest.mark.parametrize("name", ["d.csv", "d.jsonl", "d.ndjson"])
    def test_written_as_their_names_say(self, tmp_path, name):
        table = pa.table({"message_id": ["a", "b"] * 500, "subscription_id": [1, 2] * 500})
        write_table(table, tmp_path / name)
        plain = (tmp_path / name).read_bytes()
        with writing(tmp_path / f"{name}.gz") as write:
            write(table.slice(0, 300))
            write(table.slice(300))
        write_table(table, tmp_path / f"{name}.zst")
        assert gzip.decompress((tmp_path / f"{name}.gz").read_bytes()) == plain
        assert pa.input_stream(tmp_path / f"{name}.zst", compression="zstd").read() == plain
        assert (tmp_path / f"{name}.zst").stat().st_size < len(plain) / 10

    @pytest.mark.parametrize("codec", ["gz", "zst"])
    @pytest.mark.parametrize("name", ["m.jsonl", "m.csv", "m.json"])
    def test_damage_is_named(self, tmp_path, name, codec):
        file = tmp_path / f"{name}.{codec}"
        file.write_bytes(b"this is not compressed")
        with pytest.raises(InputError, match=f"cannot read {file}: "):
            read_table(file, "message")
        with pa.output_stream(file, compression={"gz": "gzip", "zst": "zstd"}[codec]) as out:
            out.write(b"id,lon,lat\n" + b"".join(b"%d,1,1\n" % (i * 7919 % 10_007) for i in range(9999)))
        file.write_bytes(file.read_bytes()[:-2000])
        with pytest.raises(InputError, match=f"{file}"):
            read_table(file, "message")

    def test_parquet_is_compressed_by_itself(self, tmp_path):
        (tmp_path / "m.parquet.gz").touch()
        with pytest.raises(InputError, match=r"the ending '\.parquet\.gz' is not that of a known format"):
            read_table(tmp_path / "m.parquet.gz", "message")
        with pytest.raises(
            InputError, match=r"Parquet is compressed already; end .*m\.parquet\.gz in \.parquet"
        ):
            write_table(pa.table({"a": [1]}), tmp_path / "m.parquet.gz")


class TestMistakes:
    @pytest.mark.parametrize(
        ("name", "text", "kind", "error", "said"),
        [
            ("a.xlsx", "", "message", InputError, r"the ending '\.xlsx' is not that .*; use \.parquet, \.csv"),
            ("noending", "", "message", InputError, "the ending '' is not that of a known format"),
            ("a.gz", "", "message", InputError, r"the ending '\.gz' is not that .* followed by \.gz or \.zst"),
            ("a.csv", "", "message", ColumnError, "the file is empty"),
            ("a.csv", "id,id\n1,2\n", "message", ColumnError, "two columns have the name 'id'"),
            ("a.csv", "id,lon\n1,2\n3\n", "message", ColumnError, "Expected 2 columns, got 1"),
            ("a.csv", "id,lon,lat\n1,2,3\n1,east,3\n", "message", ColumnError,
             "row 1: lon is 'east', which is not a number"),
            ("a.csv", "id,published_at\n1,noon\n", "message", ModelError, "row 0: published_at 'noon' is not a time"),
            ("a.csv", "id,expires_at\n1,2026-01-01T00:00:00\n", "message", ModelError, "row 0: .* has no time zone"),
            ("a.jsonl", '\n{"id": 1,}\n', "message", ModelError, "line 2: this is not JSON"),
            ("a.jsonl", "[1]\n", "message", ModelError, r"line 1: \[1\] is not a message; give a JSON object"),
            ("a.jsonl", '{"id": NaN}', "message", ModelError, "line 1: NaN is not a number in JSON"),
            ("a.jsonl", '{"x": ' + "[" * 100_000, "message", ModelError, "line 1: this JSON is nested too deeply"),
            ("a.jsonl", '{"x": ' + "1" * 10_000 + "}", "message", ModelError, "line 1: .*too long"),
            ("a.jsonl", '{"text": "' + "x" * 9_000_000 + '"}', "message", ModelError, "line 1: .*MAX_RECORD_CHARS"),
            ("a.jsonl", '{"place": {"type": "Point", "coordinates": [100, 200]}}', "message", GeometryError,
             "line 1: .*200"),
            ("a.jsonl", '{"place": "Brooklyn"}', "message", GeometryError, "line 1: 'Brooklyn' is not a place"),
            ("a.jsonl", '{"bbox": [1, 2]}', "message", GeometryError, r"line 1: bbox is \[1, 2\]; give four numbers"),
            ("a.jsonl", '{"id": 1, "size": 3}\n{"size": null}\n{"size": "XL"}', "message", ColumnError,
             "line 3: size is a text, 'XL', but it is a number in line 1; write one kind of value, or use two names$"),
            ("a.jsonl", '{"id": 1}\n{"id": "x"}', "message", ColumnError,
             "line 2: id is a text, 'x', but it is a number in line 1; write one kind of value$"),
            ("a.jsonl", '{"id": 1, "n": 100000000000000000000}', "message", ColumnError, "the values of n, like 1000"),
            ("a.jsonl", '{"place": "POINT (1 2)", "attributes": {"lon": 3}}', "message", ModelError,
             "line 1: an attribute cannot have the name 'lon'"),
            ("a.geojson", '{"type": "FeatureCollection"}', "message", ModelError, "features .* are None; give"),
            ("a.geojson", '{"type": "FeatureCollection", "features": [{"type": "Feature", "properties": 3}]}',
             "message",
             ModelError, "feature 0: the properties of a Feature are 3; give an object"),
            ("a.geojson", '{"type": "FeatureCollection", "features": [], "crs": {"properties": {"name": "EPSG:3857"}}}',
             "message", GeometryError, "the coordinates are 'EPSG:3857'; transform them to WGS84"),
            ("a.parquet", "PAR1", "message", ColumnError, "this cannot be read as Parquet"),
        ],
    )  # fmt: skip
    def test_reading(self, tmp_path, name, text, kind, error, said):
        file = tmp_path / name
        file.write_text(text)
        with pytest.raises(error, match=said) as raised:
            read_table(file, kind)
        assert str(raised.value).startswith(str(file))

    def test_not_utf8(self, tmp_path):
        for name, content in (
            ("a.jsonl", b'{"id": "\xff"}'),
            ("a.csv", b"id\xff\n1\n"),
            ("b.csv", b"id\n\xff\n"),
        ):
            (tmp_path / name).write_bytes(content)
            with pytest.raises(InputError, match=f"{name}: .*UTF-?8"):
                read_table(tmp_path / name, "message")

    def test_wgs84_crs_of_old_geojson_is_read(self, tmp_path):
        file = tmp_path / "a.geojson"
        crs = {"type": "name", "properties": {"name": "urn:ogc:def:crs:OGC:1.3:CRS84"}}
        file.write_text(
            json.dumps({"type": "FeatureCollection", "crs": crs, "features": [feature(SUBSCRIPTIONS[1])]})
        )
        assert len(read_subscriptions(file)) == 1

    def test_another_coordinate_system(self, tmp_path):
        file = tmp_path / "a.parquet"
        frame = geopandas.GeoDataFrame({"id": [1]}, geometry=[shapely.box(0, 0, 1e6, 1e6)], crs="EPSG:3857")
        frame.to_parquet(file)
        with pytest.raises(
            GeometryError, match=r"the coordinates are 'WGS 84 / Pseudo-Mercator'; transform them"
        ):
            read_subscriptions(file)

    def test_native_geoparquet_encoding(self, tmp_path):
        file = tmp_path / "a.parquet"
        frame = geopandas.GeoDataFrame({"id": [1]}, geometry=[shapely.Point(0, 0)], crs="EPSG:4326")
        frame.to_parquet(file, geometry_encoding="geoarrow")
        with pytest.raises(ColumnError, match="its geometry is encoded as 'point'; write it as WKB"):
            read_messages(file, like=read_subscriptions(as_documents(SUBSCRIPTIONS, tmp_path / "s")))

    def test_damaged_geoparquet_metadata(self, tmp_path):
        file = tmp_path / "a.parquet"
        pq.write_table(pa.table({"id": [1]}).replace_schema_metadata({"geo": "{}"}), file)
        with pytest.raises(ColumnError, match="its GeoParquet metadata cannot be read"):
            read_table(file, "message")

    def test_what_the_tables_say_comes_with_the_file(self, tmp_path):
        file = tmp_path / "s.csv"
        file.write_text("id,expression\na,tea\nb,tea AND (milk\n")
        with pytest.raises(InputError, match=rf"^{file}: subscription row 1 \(id 'b'\): "):
            read_subscriptions(file)
        (tmp_path / "m.csv").write_text("id,lon,lat\nx,1,2\ny,3,91\n")
        subs = read_subscriptions(as_documents(SUBSCRIPTIONS, tmp_path / "subs"))
        with pytest.raises(GeometryError, match=r"m\.csv: message row 1 \(id 'y'\): .*91"):
            read_messages(tmp_path / "m.csv", like=subs)

    def test_two_subscriptions_with_one_id(self, tmp_path):
        file = tmp_path / "s.csv"
        file.write_text("id,expression\na,tea\nb,tea\na,milk\n")
        with pytest.raises(
            DuplicateError, match=r"s\.csv: 2 subscriptions have the id 'a'; give each its own"
        ):
            read_subscriptions(file)

    def test_no_such_file(self, tmp_path):
        for name in ("a.csv", "a.jsonl", "a.json", "a.parquet", "a.csv.gz", "directory"):
            with pytest.raises(InputError, match=f"there is no file or directory {tmp_path / name}"):
                read_table(tmp_path / name, "message")

    def test_no_such_id(self, tmp_path):
        file = as_documents(MESSAGES, tmp_path / "m")
        with pytest.raises(UnknownError, match=rf"{file}: none of the 7 rows has the id '99'"):
            find_message(file, "99")


DELIVERIES = pa.table({"message_id": ["a", 'q"uote,', "ü\n"], "subscription_id": [3, 1, 2]})


class TestWriting:
    @pytest.mark.parametrize("name", ["d.parquet", "d.csv", "d.jsonl", "d.ndjson"])
    def test_in_pieces(self, tmp_path, name):
        file = tmp_path / name
        with writing(file) as write:
            write(DELIVERIES.slice(0, 2))
            write(DELIVERIES.slice(3))
            write(DELIVERIES.slice(2))
            assert not file.exists()
        read = {
            ".parquet": pq.read_table,
            ".csv": lambda path: arrow_csv.read_csv(
                path, parse_options=arrow_csv.ParseOptions(newlines_in_values=True)
            ),
        }.get(
            file.suffix,
            lambda path: pa.Table.from_pylist([json.loads(line) for line in path.read_text().splitlines()]),
        )
        assert read(file).to_pydict() == DELIVERIES.to_pydict()
        assert [child.name for child in tmp_path.iterdir()] == [name]

    @pytest.mark.parametrize("rows", [slice(0, 3), slice(0, 1), slice(1, 1)])
    @pytest.mark.parametrize("columns", [["a b", "n"], ["same", "n", "none", "a b"], ["none", "same"]])
    def test_lines_are_json_dumps(self, tmp_path, columns, rows):
        table = pa.table(
            {"a b": ["x", None, "x"], "n": [1.5, None, 2.0], "same": ["ü"] * 3, "none": pa.nulls(3)}
        )
        table = table.select(columns).slice(rows.start, rows.stop - rows.start)
        write_table(table, tmp_path / "t.jsonl")
        assert (tmp_path / "t.jsonl").read_text() == "".join(
            json.dumps(row, ensure_ascii=False) + "\n" for row in table.to_pylist()
        )

    @pytest.mark.parametrize("name", ["d.parquet", "d.csv", "d.jsonl"])
    def test_a_long_table_is_written_in_parts(self, tmp_path, name, monkeypatch):
        write_table(DELIVERIES, tmp_path / f"one.{name}")
        monkeypatch.setattr(config, "FILE_ROWS", 2)
        write_table(DELIVERIES, tmp_path / f"more.{name}")
        if name == "d.parquet":
            assert pq.read_table(tmp_path / "more.d.parquet") == DELIVERIES
        else:
            assert (tmp_path / f"more.{name}").read_text() == (tmp_path / f"one.{name}").read_text()

    @pytest.mark.parametrize("name", ["d.parquet", "d.csv", "d.jsonl"])
    def test_dictionaries_are_written_as_what_they_stand_for(self, tmp_path, name):
        words = pa.array(["a", "unused", "b"], pa.large_string())
        coded = pa.DictionaryArray.from_arrays(pa.array([2, 0, 2], pa.int32()), words)
        write_table(pa.table({"id": coded}), tmp_path / name)
        write_table(pa.table({"id": ["b", "a", "b"]}), tmp_path / f"plain.{name}")
        assert (tmp_path / name).read_bytes() == (tmp_path / f"plain.{name}").read_bytes()

    def test_after_an_error_the_old_file_is_still_there(self, tmp_path):
        file = tmp_path / "d.csv"
        file.write_text("old")

        def failing():
            with writing(file) as write:
                write(DELIVERIES)
                raise RuntimeError("no")

        with pytest.raises(RuntimeError):
            failing()
        assert file.read_text() == "old"
        assert list(tmp_path.iterdir()) == [file]

    def test_a_named_format_wins(self, tmp_path):
        write_table(DELIVERIES, tmp_path / "d.txt", "csv")
        assert (tmp_path / "d.txt").read_text().startswith('"message_id"')

    def test_a_device_is_written_in_place(self):
        write_table(DELIVERIES, "/dev/null", "parquet")

    @pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no full device")
    @pytest.mark.parametrize("format", ["jsonl", "csv", "parquet"])
    def test_a_full_disk_names_the_file(self, format):
        with pytest.raises(OSError, match="No space left on device: '/dev/full'"):
            write_table(DELIVERIES, "/dev/full", format)

    @pytest.mark.parametrize(
        ("name", "said"),
        [
            ("d.txt", r"the format of .* is unknown.*\.parquet"),
            ("no/d.csv", "cannot write .*No such file or directory"),
        ],
    )
    def test_mistakes(self, tmp_path, name, said):
        with pytest.raises(InputError, match=said):
            write_table(DELIVERIES, tmp_path / name)
