"""Coordinates that are declared to be others than WGS84 are refused at every door, in one sentence."""

import json

import geopandas
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import shapely

from nearcast import (
    WGS84,
    Box,
    Engine,
    Message,
    MessageBatch,
    Planar,
    Point,
    Polygon,
    Subscription,
    SubscriptionTable,
    build_index,
)
from nearcast.columns.coding import Coding
from nearcast.errors import ColumnError, GeometryError
from nearcast.files import find_message, read_messages, read_subscriptions
from nearcast.geometry import as_place
from nearcast.geometry.crs import require_wgs84

PARIS = geopandas.GeoDataFrame(
    {"id": ["a"], "expression": ["coffee"]}, geometry=[shapely.box(2.2, 48.8, 2.4, 48.9)], crs=4326
)
ELSEWHERE = PARIS.to_crs(4807)  # grads east of Paris: 0 to 400, which pass for degrees
SENTENCE = (
    "the coordinates are 'NTF (Paris)'; transform them to WGS84 (OGC:CRS84), longitude first, "
    "as GeoPandas does by .to_crs(4326)"
)


def messages(frame):
    points = frame.drop(columns="expression").assign(text="coffee")
    return points.set_geometry(frame.geometry.map(lambda shape: shape.centroid), crs=frame.crs)


def parquet(frame, home):
    frame.to_parquet(home / "frame.parquet")
    return home / "frame.parquet"


def geojson(frame, home):
    document = json.loads(frame.to_json())
    document["crs"] = {"type": "name", "properties": {"name": frame.crs.name}}
    (home / "frame.geojson").write_text(json.dumps(document))
    return home / "frame.geojson"


DOORS = {
    "subscribe": lambda frame, home: Engine("scan", store="scan").subscribe(frame),
    "subscribe GeoParquet": lambda frame, home: Engine("scan", store="scan").subscribe(
        pq.read_table(parquet(frame, home))
    ),
    "publish": lambda frame, home: Engine("scan", store="scan").publish(messages(frame)),
    "subscriptions": lambda frame, home: SubscriptionTable.from_arrow(pa.table(frame.to_arrow(index=False))),
    "messages": lambda frame, home: MessageBatch.from_arrow(messages(frame), like=Coding.new()),
    "a file of subscriptions": lambda frame, home: read_subscriptions(parquet(frame, home)),
    "a file of messages": lambda frame, home: read_messages(
        parquet(messages(frame), home), like=Coding.new()
    ),
    "explain": lambda frame, home: find_message(parquet(messages(frame), home), "a"),
    "GeoJSON": lambda frame, home: read_subscriptions(geojson(frame, home)),
}


@pytest.mark.parametrize("door", DOORS.values(), ids=DOORS)
def test_other_coordinates_are_refused(tmp_path, door):
    with pytest.raises(GeometryError) as error:
        door(ELSEWHERE, tmp_path)
    assert str(error.value).endswith(SENTENCE)


@pytest.mark.parametrize("crs", [4326, "OGC:CRS84", "+proj=longlat +datum=WGS84", None])
@pytest.mark.parametrize("door", [door for name, door in DOORS.items() if name != "GeoJSON"])
def test_wgs84_by_any_name_is_read(tmp_path, door, crs):
    door(
        PARIS.set_crs(crs, allow_override=True) if crs else PARIS.set_crs(None, allow_override=True), tmp_path
    )


SHAPE = shapely.set_srid(ELSEWHERE.geometry[0], 4807)
POINT = shapely.set_srid(shapely.Point(2, 48), 4807)
DECLARED = {"crs": {"type": "name", "properties": {"name": "urn:ogc:def:crs:EPSG::4807"}}}
GEOJSON = {"type": "Point", "coordinates": [2, 48], "radius": 5, **DECLARED}
FEATURE = {
    "type": "Feature",
    "geometry": {"type": "Point", "coordinates": [2, 48]},
    "properties": {},
    **DECLARED,
}


def one_in_an_index():
    return build_index("scan", SubscriptionTable.from_subscriptions([Subscription("a", "tea")]))


def moving(space=WGS84):
    engine = Engine("scan", store="scan", space=space)
    engine.subscribe(Subscription("a", "tea", Box(0, 0, 1, 1, space)))
    return engine


def file(name, document, home):
    (home / name).write_text(json.dumps(document))
    return home / name


SINGLE_DOORS = {
    "move": lambda home: moving().move(["a"], ELSEWHERE.geometry),
    "move in an index": lambda home: one_in_an_index().move([0], ELSEWHERE.geometry),
    "move to EWKB": lambda home: moving().move("a", shapely.to_wkb(SHAPE, include_srid=True)),
    "shapely": lambda home: Subscription("a", "tea", SHAPE),
    "a polygon of shapely": lambda home: Polygon(SHAPE),
    "a message": lambda home: Message("a", "tea", POINT),
    "EWKB": lambda home: Message("a", "tea", shapely.to_wkb(POINT, include_srid=True)),
    "a table of EWKB": lambda home: MessageBatch.from_arrow(
        {"id": ["a"], "geometry": [shapely.to_wkb(POINT, include_srid=True)]}, like=Coding.new()
    ),
    "a table of regions in EWKB": lambda home: SubscriptionTable.from_arrow(
        {"id": ["a"], "expression": ["tea"], "geometry": [shapely.to_wkb(SHAPE, include_srid=True)]}
    ),
    "GeoJSON": lambda home: Subscription("a", "tea", GEOJSON),
    "a polygon of GeoJSON": lambda home: Polygon({**shapely.geometry.mapping(SHAPE), **DECLARED}),
    "a document": lambda home: Message.from_json({"id": "a", "place": GEOJSON}),
    "a feature": lambda home: Message.from_json({**FEATURE, "id": "a"}),
    "a line": lambda home: read_messages(file("m.jsonl", {"id": "a", "place": GEOJSON}, home), like=Coding.new()),
    "a feature in a line": lambda home: read_messages(file("m.jsonl", {**FEATURE, "id": "a"}, home), like=Coding.new()),
    "a file of one feature": lambda home: read_messages(file("m.geojson", FEATURE, home), like=Coding.new()),
}  # fmt: skip


@pytest.mark.parametrize("door", SINGLE_DOORS.values(), ids=SINGLE_DOORS)
def test_other_coordinates_of_a_single_place_are_refused(tmp_path, door):
    with pytest.raises(
        GeometryError, match=r"the coordinates are '(.*4807|NTF .*)'; transform them"
    ) as error:
        door(tmp_path)
    assert str(error.value).endswith(SENTENCE.partition(";")[2])


def test_wgs84_by_number_and_name():
    there = Box(2.2, 48.8, 2.4, 48.9)
    shape = shapely.set_srid(PARIS.geometry[0], 4326)
    for region in (shape, shapely.to_wkb(shape, include_srid=True), PARIS.geometry[0]):
        assert Subscription("a", "tea", region).region == there
    engine = moving()
    engine.move(["a"], PARIS.geometry)
    assert engine["a"].region == there
    for crs in (None, {"type": "name", "properties": {"name": "urn:ogc:def:crs:OGC:1.3:CRS84"}}):
        place = {"type": "Point", "coordinates": [2, 48], "crs": crs}
        assert Message("a", "tea", place).place == Point(lon=2, lat=48)


@pytest.mark.parametrize(
    "crs", [{"type": "link", "properties": {"href": "http://x/crs/4807"}}, {}, "EPSG:4807"]
)
def test_a_member_crs_that_is_not_known_is_refused(crs):
    with pytest.raises(GeometryError, match="transform them to WGS84"):
        Message("a", "tea", {"type": "Point", "coordinates": [2, 48], "crs": crs})


def test_a_plane_takes_single_places_in_any_coordinates():
    plane = Planar(-400, -400, 400, 400)
    engine = moving(plane)
    engine.move(["a"], ELSEWHERE.geometry)
    engine.move("a", shapely.to_wkb(SHAPE, include_srid=True))
    assert Polygon(SHAPE, plane).space is plane
    assert as_place(GEOJSON, plane).radius == 5
    document = {**FEATURE, "id": "a", "geometry": GEOJSON}
    assert Subscription.from_json(document, space=plane).region.space is plane


def test_a_plane_takes_any_coordinates():
    plane = Planar(-400, -400, 400, 400)
    assert len(SubscriptionTable.from_arrow(ELSEWHERE, space=plane)) == 1
    engine = Engine("scan", store="scan", space=plane)
    engine.subscribe(ELSEWHERE)
    assert len(engine.publish(messages(ELSEWHERE))) == 1


@pytest.mark.parametrize("beside", [{}, {"lon": 0.0, "lat": 0.0, "radius_m": 5.0}], ids=["alone", "beside"])
def test_the_geometry_of_geopandas_and_geoparquet_may_have_another_name(tmp_path, beside):
    """A table that GeoPandas made says which column it is; so does GeoParquet."""
    frame = PARIS.rename_geometry("shape").assign(**beside)
    for table in (frame, pq.read_table(parquet(frame, tmp_path))):
        (there,) = SubscriptionTable.from_arrow(table).to_subscriptions()
        assert there.region == Box(2.2, 48.8, 2.4, 48.9)
    with pytest.raises(GeometryError, match=r"NTF \(Paris\)"):
        SubscriptionTable.from_arrow(ELSEWHERE.rename_geometry("shape"))


def test_the_one_column_of_geoarrow_is_the_geometry():
    table = pa.table(PARIS.rename_geometry("shape").to_arrow(index=False))
    (there,) = SubscriptionTable.from_arrow(table).to_subscriptions()
    assert there.region == Box(2.2, 48.8, 2.4, 48.9)


def test_metadata_that_cannot_be_read(tmp_path):
    table = pq.read_table(parquet(PARIS, tmp_path)).replace_schema_metadata({"geo": "{"})
    with pytest.raises(ColumnError, match="GeoParquet metadata cannot be read"):
        SubscriptionTable.from_arrow(table)


WKT = 'GEOGCRS["{}",DATUM["x",ELLIPSOID["y",1,2]],ID["EPSG",6326],CS[ellipsoidal,2],ID["EPSG",{}]]'


@pytest.mark.parametrize(
    "crs",
    [
        None,
        "OGC:CRS84",
        "EPSG:4326",
        "epsg:4326",
        "urn:ogc:def:crs:EPSG::4326",
        "http://www.opengis.net/def/crs/OGC/1.3/CRS84",
        "http://www.opengis.net/def/crs/EPSG/0/4326",
        WKT.format("WGS 84", 4326),
        PARIS.crs.to_json(),
        PARIS.crs.to_json_dict(),
        PARIS.crs.to_wkt(),
        PARIS.crs.to_wkt("WKT1_GDAL"),
    ],
)
def test_names_of_wgs84(crs):
    require_wgs84(crs)


@pytest.mark.parametrize(
    "crs",
    [
        "EPSG:3857",
        "OGC:CRS83",
        "{oops",
        "unknown",
        {},
        {"name": "x", "id": 5},
        {"name": "x", "id": {"authority": "EPSG", "code": 14326}},
        {"type": "GeographicCRS", "datum": "World Geodetic System 1984"},
        WKT.format("RD New", 28992),
        ELSEWHERE.crs.to_json(),
        ELSEWHERE.crs.to_wkt(),
        geopandas.GeoSeries(crs="+proj=longlat +datum=WGS84 +pm=paris").crs.to_json_dict(),
        geopandas.GeoSeries(crs=32633).crs.to_json_dict(),
    ],
)
def test_names_of_others(crs):
    with pytest.raises(GeometryError, match="transform them to WGS84"):
        require_wgs84(crs)
