"""Places and regions: construction, boxes, touching, written forms."""

from __future__ import annotations

import json
import math
import pickle
from contextlib import suppress

import numpy as np
import pytest
import shapely
from hypothesis import assume, given
from hypothesis import strategies as st

import naive_places
from nearcast import config
from nearcast.errors import GeometryError
from nearcast.geometry import (
    EVERYWHERE,
    WGS84,
    Box,
    Circle,
    Planar,
    Point,
    Polygon,
    as_place,
    as_region,
    from_geojson,
    from_text,
    great_circle,
    to_geojson,
    to_text,
    touches,
)
from values import PLANE, boxes, circles, latitudes, longitudes, places, points, polygons, radii, regions

TRIANGLE = "POLYGON ((0 0, 10 0, 0 10, 0 0))"
NAN = float("nan")
INF = float("inf")


def meet(a, b):
    return any(
        p[0] <= q[2] and q[0] <= p[2] and p[1] <= q[3] and q[1] <= p[3] for p in a.boxes() for q in b.boxes()
    )


# --- Construction --------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Point(lon=NAN, lat=0), "longitude is nan"),
        (lambda: Point(lon=0, lat=INF), "latitude is inf"),
        (lambda: Point(lon=40.73, lat=-173.99), "latitude -173.99 is outside.*swapped"),
        (lambda: Point(lon=0, lat=200), r"latitude 200.0 is outside \[-90, 90\]"),
        (lambda: Point(lon=190, lat=0), r"longitude 190.0 is outside \[-180, 180\]; write it as -170.0"),
        (lambda: Point(lon="1", lat=0), "longitude '1' is not a number"),
        (lambda: Point(lon=True, lat=0), "longitude True is not a number"),
        (lambda: Point(lon=10**400, lat=0), "longitude is inf"),
        (lambda: Point(lon=0), "needs both lon= and lat="),
        (lambda: Point(lon=0, lat=0, x=1, y=1), "mixes lon= and lat= with x= and y="),
        (lambda: Point(x=101, y=0, space=PLANE), r"\(101.0, 0.0\) is outside Planar"),
        (lambda: Point(lon=0, lat=0, space="WGS84"), "'WGS84' is not a space"),
        (lambda: Box(0, 10, 5, 5), "ymin <= ymax, not 10.0 > 5.0; swap"),
        (lambda: Box(5, 0, 0, 1, PLANE), "xmin <= xmax, not 5.0 > 0.0; swap"),
        (lambda: Box(0, 0, NAN, 1), "xmax is nan"),
        (lambda: Box(40, -100, 41, -99), "latitude -100.0 .*swapped"),
        (lambda: Circle(lon=0, lat=0, radius=-1), "radius -1.0 is negative"),
        (lambda: Circle(lon=0, lat=0, radius=NAN), "radius is nan"),
        (lambda: Planar(0, 0, -1, 1), "swap the ends"),
        (lambda: Polygon("POLYGON ((0 0, 1 1, 0 1, 1 0, 0 0))"), "Self-intersection.*shapely.make_valid"),
        (lambda: Polygon("POLYGON EMPTY"), "an empty Polygon"),
        (lambda: Polygon("LINESTRING (0 0, 1 1)"), "is a LineString; give a Polygon"),
        (lambda: Polygon("POLYGON ((0 0, 1"), "is not a geometry"),
        (lambda: Polygon("POLYGON ((0 0, 190 0, 0 1, 0 0))"), "longitude 190.0"),
        (lambda: Polygon("POLYGON ((0 0, 1 100, 1 0, 0 0))"), "swapped"),
        (
            lambda: Polygon({"type": "Polygon", "coordinates": [[[0, 0], [NAN, 1], [1, 1]]]}),
            "longitude is nan",
        ),
        (lambda: Polygon("POLYGON ((0 0, 1 nan, 1 1, 0 0))"), "latitude is nan"),
        (lambda: Polygon("POLYGON ((0 0, 1 inf, 1 1, 0 0))"), "latitude is inf"),
        (lambda: Polygon(b"\x01\x02"), "is not a geometry"),
        (lambda: Polygon({"type": "Polygon"}), "is not a geometry"),
        (lambda: Polygon({"type": "Polygon", "coordinates": [[["a", "b"]]]}), "is not a geometry"),
        (lambda: Polygon(5), "5 is not a geometry"),
    ],
)
def test_bad_values_are_named(make, says):
    with pytest.raises(GeometryError, match=says):
        make()


def test_a_polygon_over_the_limit_is_refused(monkeypatch):
    monkeypatch.setattr(config, "MAX_POLYGON_VERTICES", 3)
    with pytest.raises(GeometryError, match="4 vertices is over the limit of 3"):
        Polygon(TRIANGLE)


def test_polygons_are_equal_by_their_rings():
    turned = Polygon("POLYGON ((10 0, 0 10, 0 0, 10 0))")
    assert Polygon(TRIANGLE) == turned
    assert hash(Polygon(TRIANGLE)) == hash(turned)
    assert Polygon("POLYGON ((-0 0, 10 0, 0 10, -0 0))") == turned
    assert Polygon("POLYGON Z ((0 0 5, 10 0 5, 0 10 5, 0 0 5))") == turned
    assert Polygon(TRIANGLE, PLANE) != turned


@given(places() | places(PLANE) | st.just(EVERYWHERE))
def test_values_are_frozen_hashable_and_survive_pickle(place):
    again = pickle.loads(pickle.dumps(place))
    assert again == place
    assert hash(again) == hash(place)
    with pytest.raises((AttributeError, TypeError)):
        place.space = PLANE


def test_repr_is_the_call():
    for place in (
        Point(lon=1, lat=2),
        Box(1, 2, 3, 4),
        Circle(lon=1, lat=2, radius=3),
        Polygon(TRIANGLE),
        EVERYWHERE,
    ):
        assert eval(repr(place)) == place
    assert eval(repr(Point(x=1, y=2, space=PLANE))) == Point(x=1, y=2, space=PLANE)
    assert pickle.loads(pickle.dumps(EVERYWHERE)) is EVERYWHERE
    assert pickle.loads(pickle.dumps(WGS84)) is WGS84
    assert len(repr(Polygon(shapely.Point(0, 0).buffer(1, quad_segs=100)))) < 200


# --- Boxes ---------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("place", "expected"),
    [
        (Point(lon=180, lat=1), ((180, 1, 180, 1),)),
        (Box(1, 2, 3, 4), ((1, 2, 3, 4),)),
        (Box(170, 0, 180, 10), ((170, 0, 180, 10), (-180, 0, -180, 10))),
        (Box(-180, 0, -170, 10), ((-180, 0, -170, 10), (180, 0, 180, 10))),
        (Box(-180, 0, 180, 10), ((-180, 0, 180, 10),)),
        (Box(170, 0, -170, 10), ((170, 0, 180, 10), (-180, 0, -170, 10))),
        (Polygon("POLYGON ((170 0, 180 0, 180 9, 170 0))"), ((170, 0, 180, 9), (-180, 0, -180, 9))),
        (
            Polygon("MULTIPOLYGON (((170 0, 180 0, 180 9, 170 0)), ((-180 1, -170 1, -180 12, -180 1)))"),
            ((-180, 0, -170, 12), (170, 0, 180, 12)),
        ),
        (Polygon("POLYGON ((-180 0, 180 0, 0 9, -180 0))"), ((-180, 0, 180, 9),)),
        (EVERYWHERE, ((-INF, -INF, INF, INF),)),
        (Box(-100, 0, 100, 1, PLANE), ((-100, 0, 100, 1),)),
    ],
)
def test_boxes(place, expected):
    assert place.boxes() == expected


def test_the_boxes_of_a_circle():
    (box,) = Circle(lon=10, lat=60, radius=100_000).boxes()
    assert box == pytest.approx((8.2, 59.1, 11.8, 60.9), abs=0.01)
    assert Circle(lon=10, lat=89, radius=200_000).boxes()[0][::2] == (-180, 180)  # holds the pole
    east, west = Circle(lon=179.9, lat=0, radius=50_000).boxes()
    assert east[2] == 180
    assert west[0] == -180
    assert west[2] == pytest.approx(-179.65, abs=0.01)
    assert Circle(lon=0, lat=0, radius=2.1e7).boxes() == ((-180, -90, 180, 90),)


@given(longitudes, latitudes, radii, st.floats(0, 360), st.floats(0, 1))
def test_a_circle_lies_in_its_boxes(lon, lat, radius, bearing, share):
    """A point is reached from the centre along a great circle; if it is within the radius, a box has it."""
    circle = Circle(lon=lon, lat=lat, radius=radius)
    angle, theta, phi = radius * share / config.EARTH_RADIUS_M, math.radians(bearing), math.radians(lat)
    sine = math.sin(phi) * math.cos(angle) + math.cos(phi) * math.sin(angle) * math.cos(theta)
    y = math.degrees(math.asin(max(-1.0, min(1.0, sine))))
    x = lon + math.degrees(
        math.atan2(math.sin(theta) * math.sin(angle) * math.cos(phi), math.cos(angle) - math.sin(phi) * sine)
    )
    point = Point(lon=(x + 180) % 360 - 180, lat=y)
    assume(great_circle(lon, lat, point.x, point.y) <= radius)
    assert meet(circle, point)
    assert touches(circle, point)


@given(places() | regions())
def test_at_most_two_boxes(place):
    found = place.boxes()
    assert 1 <= len(found) <= 2
    for xmin, ymin, xmax, ymax in found:
        assert xmin <= xmax
        assert ymin <= ymax


@given(polygons())
def test_a_polygon_lies_in_its_boxes(polygon):
    cover = shapely.union_all([shapely.box(*box) for box in polygon.boxes() if box[0] < box[2]])
    assert cover.covers(polygon.geometry)


# --- Touching ------------------------------------------------------------------------------------------------
@given(regions(), places())
def test_touching_as_the_specification_says(a, b):
    """An implementation of its own, in plain Python, agrees."""
    assert touches(a, b) == naive_places.touches(a, b)


@given(places(), places())
def test_touching_is_symmetric_and_seen_by_the_boxes(a, b):
    found = touches(a, b)
    assert touches(b, a) == found
    if found and not (isinstance(a, Point) and isinstance(b, Point)):
        assert meet(a, b)


@given(places(PLANE), places(PLANE))
def test_planar_touching_is_symmetric_and_seen_by_the_boxes(a, b):
    found = touches(a, b)
    assert touches(b, a) == found
    if found:
        assert meet(a, b)


@given(places() | places(PLANE))
def test_a_place_touches_itself_and_everywhere(place):
    assert touches(place, place)
    assert touches(place, EVERYWHERE)
    assert touches(EVERYWHERE, place)


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        (Box(0, 0, 1, 1), Point(lon=1, lat=1), True),
        (Box(0, 0, 1, 1), Point(lon=math.nextafter(1, 2), lat=1), False),
        (Box(0, 0, 1, 1), Box(1, 1, 2, 2), True),
        (Box(170, 0, 180, 10), Point(lon=-180, lat=5), True),
        (Box(170, 0, 180, 10), Box(-180, 0, -170, 10), True),
        (Box(170, 0, -170, 10), Point(lon=-175, lat=5), True),
        (Box(170, 0, -170, 10), Point(lon=0, lat=5), False),
        (Point(lon=180, lat=5), Point(lon=-180, lat=5), True),
        (Point(lon=180, lat=5), Point(lon=-180, lat=6), False),
        (Point(x=-100, y=0, space=PLANE), Point(x=100, y=0, space=PLANE), False),
        # circles, over the antimeridian and the pole
        (Circle(lon=179.9, lat=0, radius=23_000), Point(lon=-179.9, lat=0), True),
        (Circle(lon=179.9, lat=0, radius=22_000), Point(lon=-179.9, lat=0), False),
        (Circle(lon=0, lat=89.9, radius=23_000), Point(lon=180, lat=89.9), True),
        (Circle(lon=0, lat=89.9, radius=12_000), Box(90, 89, 100, 90), True),
        (Circle(lon=0, lat=89.9, radius=11_000), Box(179, 89, 180, 90), False),
        (Circle(lon=0, lat=0, radius=0), Point(lon=0, lat=0), True),
        (Circle(lon=0, lat=0, radius=60_000), Circle(lon=1, lat=0, radius=52_000), True),
        (Circle(lon=0, lat=0, radius=60_000), Circle(lon=1, lat=0, radius=51_000), False),
        # the nearest point of a box at high latitude is on its edge, above its corners
        (Circle(lon=0, lat=60, radius=2_860_000), Box(60, 0, 70, 80), True),
        (Circle(lon=0, lat=60, radius=2_850_000), Box(60, 0, 70, 80), False),
        (Circle(lon=0, lat=60, radius=2_860_000), Box(60, 0, 70, 60), False),
        (Circle(lon=0, lat=60, radius=3_230_000), Box(60, 0, 70, 60), True),
        (Circle(lon=0, lat=0, radius=1.5e7), Box(170, -90, 180, -80), True),
        # polygons
        (Polygon(TRIANGLE), Point(lon=5, lat=5), True),
        (Polygon(TRIANGLE), Point(lon=5.001, lat=5), False),
        (Polygon(TRIANGLE), Box(6, 6, 8, 8), False),
        (Polygon(TRIANGLE), Box(5, 5, 8, 8), True),
        (Polygon(TRIANGLE), Box(5, 0, 5, 9), True),
        (Polygon(TRIANGLE), Polygon("POLYGON ((5 5, 9 5, 9 9, 5 5))"), True),
        (Polygon(TRIANGLE), Polygon("POLYGON ((6 6, 9 6, 9 9, 6 6))"), False),
        (Polygon("POLYGON ((170 0, 180 0, 180 9, 170 0))"), Point(lon=-180, lat=4), True),
        (Polygon("POLYGON ((170 0, 180 0, 180 9, 170 0))"), Point(lon=-180, lat=9.5), False),
        (
            Polygon("POLYGON ((170 0, 180 0, 180 9, 170 0))"),
            Polygon("POLYGON ((-180 4, -170 4, -170 9, -180 4))"),
            True,
        ),
        (Polygon("POLYGON ((170 0, 180 0, 180 9, 170 0))"), Box(179, 8, -170, 20), True),
        (Polygon(TRIANGLE), Circle(lon=1, lat=1, radius=1), True),
        (Polygon(TRIANGLE), Circle(lon=-1, lat=5, radius=111_000), True),
        (Polygon(TRIANGLE), Circle(lon=-1, lat=5, radius=110_000), False),
        (Polygon("POLYGON ((170 -5, 180 0, 170 5, 170 -5))"), Circle(lon=-179, lat=0, radius=111_300), True),
        (Polygon("POLYGON ((170 -5, 180 0, 170 5, 170 -5))"), Circle(lon=-179, lat=0, radius=111_000), False),
        # an outline that passes the antipode of the centre stays far away
        (Polygon("POLYGON ((170 -20, 179 0, 170 20, 170 -20))"), Circle(lon=-5, lat=0, radius=1e6), False),
        (
            Polygon("POLYGON ((-180 -1, 180 -1, 180 2, -180 2, -180 -1))"),
            Circle(lon=0, lat=50, radius=1e6),
            False,
        ),
        # a hole is outside
        (
            Polygon("POLYGON ((-9 -9, 9 -9, 9 9, -9 9, -9 -9), (-5 -5, -5 5, 5 5, 5 -5, -5 -5))"),
            Circle(lon=0, lat=0, radius=500_000),
            False,
        ),
        (
            Polygon("POLYGON ((-9 -9, 9 -9, 9 9, -9 9, -9 -9), (-5 -5, -5 5, 5 5, 5 -5, -5 -5))"),
            Circle(lon=0, lat=0, radius=560_000),
            True,
        ),
        # the plane
        (Circle(x=0, y=0, radius=5, space=PLANE), Point(x=3, y=4, space=PLANE), True),
        (Circle(x=0, y=0, radius=5, space=PLANE), Box(3, 4, 9, 9, PLANE), True),
        (Circle(x=0, y=0, radius=5, space=PLANE), Box(3, 4.01, 9, 9, PLANE), False),
        (Circle(x=10, y=10, radius=7, space=PLANE), Polygon(TRIANGLE, PLANE), False),
        (Circle(x=10, y=10, radius=7.1, space=PLANE), Polygon(TRIANGLE, PLANE), True),
    ],
)
def test_touches(a, b, expected):
    assert touches(a, b) is expected
    assert touches(b, a) is expected


def test_places_of_different_spaces_are_refused():
    with pytest.raises(GeometryError, match="different spaces"):
        touches(Point(lon=0, lat=0), Point(x=0, y=0, space=PLANE))


def test_great_circle():
    assert great_circle(0, 0, 180, 0) == pytest.approx(math.pi * config.EARTH_RADIUS_M)
    assert great_circle(179.5, 0, -179.5, 0) == pytest.approx(great_circle(0, 0, 1, 0))
    assert great_circle(2.35, 48.86, -0.13, 51.51) == pytest.approx(343_700, rel=2e-3)  # Paris – London


@given(longitudes, latitudes, st.floats(1e3, 5e6), boxes())
def test_a_circle_touches_a_box_as_its_sampled_points_say(lon, lat, radius, box):
    circle = Circle(lon=lon, lat=lat, radius=radius)
    for xmin, ymin, xmax, ymax in box.boxes():
        for x in np.linspace(xmin, xmax, 9):
            for y in np.linspace(ymin, ymax, 9):
                if great_circle(lon, lat, x, y) <= radius:
                    assert touches(circle, box)
                    return


@given(circles(), polygons())
def test_a_circle_touches_a_polygon_as_its_vertices_say(circle, polygon):
    for x, y in shapely.get_coordinates(polygon.geometry).tolist():
        if great_circle(circle.x, circle.y, x, y) <= circle.radius * (1 - 1e-9) - 1e-6:
            assert touches(circle, polygon)


# --- Written forms -------------------------------------------------------------------------------------------


@given(places() | st.just(EVERYWHERE))
def test_geojson_round_trip(place):
    written = to_geojson(place)
    assert from_geojson(json.loads(json.dumps(written))) == place
    assert from_geojson({"type": "Feature", "geometry": written, "properties": {}}) == place


@given(places(PLANE))
def test_planar_geojson_round_trip(place):
    assert from_geojson(json.loads(json.dumps(to_geojson(place))), PLANE) == place


@given(places() | st.just(EVERYWHERE))
def test_text_round_trip(place):
    assert from_text(to_text(place)) == place
    assert from_text(to_text(place).lower()) == place


@given(places(PLANE))
def test_planar_text_round_trip(place):
    assert from_text(to_text(place), PLANE) == place


@given(polygons())
def test_a_polygon_is_read_from_every_form(polygon):
    shape = polygon.geometry
    assert (
        Polygon(shape.wkt) == Polygon(shape.wkb) == Polygon(shape) == Polygon(to_geojson(polygon)) == polygon
    )


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (EVERYWHERE, EVERYWHERE),
        ((0, 1, 2, 3), Box(0, 1, 2, 3)),
        ([170, 1, -170, 3], Box(170, 1, -170, 3)),
        (shapely.box(0, 1, 2, 3), Box(0, 1, 2, 3)),
        (shapely.box(0, 1, 2, 3).wkb, Box(0, 1, 2, 3)),
        ("POLYGON ((0 1, 2 1, 2 3, 0 3, 0 1))", Box(0, 1, 2, 3)),
        (TRIANGLE, Polygon(TRIANGLE)),
        ("everywhere", EVERYWHERE),
        ("box(0 1,2 3)", Box(0, 1, 2, 3)),
        ("CIRCLE (1 2, 1.5km)", Circle(lon=1, lat=2, radius=1500)),
        ("CIRCLE (1 2, 3)", Circle(lon=1, lat=2, radius=3)),
        ({"type": "Point", "coordinates": [1, 2, 99], "radius": 3}, Circle(lon=1, lat=2, radius=3)),
        (
            {"type": "Polygon", "coordinates": [[[0, 0, 9], [0, 1, 9], [2, 1, 9], [2, 0, 9], [0, 0, 9]]]},
            Box(0, 0, 2, 1),
        ),
    ],
)
def test_as_region(value, expected):
    assert as_region(value) == expected


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (None, "None is not a region; for everywhere, give EVERYWHERE"),
        ("nonsense", "is not a place; write POINT"),
        ("", "is not a place; write POINT"),
        ("BOX (1 2)", r"write BOX \(xmin ymin, xmax ymax\)"),
        ("CIRCLE (1 2, 5 ft)", "radius in m or km"),
        ("CIRCLE (1 2, nan)", "cannot be read"),
        ("POLYGON ((0 0, 1 1", "is not a geometry"),
        ("POINT (1 2)", "is a point, not a region; give a Circle"),
        ((1, 2, 3), "four numbers"),
        ({"type": "FeatureCollection", "features": []}, "several places; give one"),
        ({"type": "Point"}, r"needs coordinates \[x, y\], not None"),
        ({"type": "Point", "coordinates": [40.73, -173.99], "radius": 1}, "swapped"),
        ({"type": "Sphere"}, "is not a geometry"),
        ({}, "is not a geometry"),
        ({"type": "LineString", "coordinates": [[0, 0], [1, 1]]}, "is a LineString; give a Polygon"),
        (3.5, "3.5 is not a geometry"),
    ],
)
def test_what_is_no_region_is_refused(value, says):
    with pytest.raises(GeometryError, match=says):
        as_region(value)


def test_a_planar_radius_has_no_unit():
    with pytest.raises(GeometryError, match="a planar space has no unit"):
        from_text("CIRCLE (1 2, 3 m)", PLANE)


def test_a_place_is_not_everywhere():
    assert as_place(shapely.Point(1, 2)) == Point(lon=1, lat=2)
    for value in (None, EVERYWHERE, "EVERYWHERE"):
        with pytest.raises(GeometryError, match="a message needs a Point"):
            as_place(value)


@given(
    st.text(max_size=30)
    | st.sampled_from(["POINT", "BOX (", "POLYGON ((", "MULTIPOLYGON EMPTY", "CIRCLE ()"])
)
def test_any_text_gives_a_place_or_a_geometry_error(text):
    with suppress(GeometryError):
        from_text(text)


json_values = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=10,
)


@given(
    st.sampled_from(["Point", "Polygon", "MultiPolygon", "Feature", "GeometryCollection", "LineString", 5]),
    json_values,
    json_values,
)
def test_any_geojson_gives_a_place_or_a_geometry_error(kind, coordinates, radius):
    with suppress(GeometryError):
        from_geojson({"type": kind, "coordinates": coordinates, "radius": radius, "geometry": coordinates})


@given(points(), st.data())
def test_reading_a_value_gives_it_back(point, data):
    region = data.draw(regions())
    assert as_place(point) is point
    assert as_region(region) is region
