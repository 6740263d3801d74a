"""Who covers gets whatever the other gets: subscriptions as people write them, on the globe, against messages."""

from hypothesis import given
from hypothesis import strategies as st

import naive
from covering.naive_covering import Forwarding
from nearcast import Box, Message, Point, Polygon, Subscription, SubscriptionTable
from nearcast.covering import RelationGraph
from profiles import examples
from strategies import BRAND, LAT, LON, POINTS, PRICE, WORDS, messages, subscriptions

BOXES = st.builds(
    lambda x, x2, y, y2: Box(x, min(y, y2), x2, max(y, y2)), LON, LON, LAT, LAT
)  # also across the antimeridian
SIMPLE = st.builds(
    lambda words, place, attributes: Message(0, words, place, attributes),
    st.sets(WORDS),
    st.one_of(POINTS, BOXES),
    st.fixed_dictionaries({}, optional={"price": PRICE, "brand": BRAND}),
)


@given(
    subs=st.lists(subscriptions(), min_size=2, max_size=7), others=st.lists(SIMPLE, min_size=1, max_size=8)
)
@examples(300)
def test_points_and_boxes(subs, others):
    graph = RelationGraph(k=7)
    graph.subscribe(SubscriptionTable.from_subscriptions(numbered(subs)))
    # Places on the edges of what was asked for, besides.
    corners = [
        Message(0, message.keywords, Point(lon=x, lat=y), message.attributes)
        for message in others[:2]
        for one in subs
        for west, south, east, north in one.region.boxes()
        for x, y in ((west, south), (east, north))
        if abs(x) <= 180 and abs(y) <= 90
    ]
    for row, one in enumerate(subs):
        for above in graph.covers_of(row).tolist():
            for message in [*others, *corners]:
                assert naive.wants(subs[above], message) or not naive.wants(one, message)


@given(subs=st.lists(subscriptions(), min_size=2, max_size=6), others=st.lists(messages(), max_size=6))
@examples(100)
def test_areas(subs, others):
    """Circles and polygons that are messages meet others up to a metre (`touches`); the grid is far coarser."""
    graph = RelationGraph(k=6)
    graph.subscribe(SubscriptionTable.from_subscriptions(numbered(subs)))
    for row, one in enumerate(subs):
        for above in graph.covers_of(row).tolist():
            for message in others:
                assert naive.wants(subs[above], message) or not naive.wants(one, message)


@given(subs=st.lists(subscriptions(), min_size=1, max_size=8), k=st.integers(1, 3), take_over=st.booleans())
@examples(150)
def test_the_references(subs, k, take_over):
    """G_k against G* and the strict poset, which knows the same with the fewest edges."""
    table = SubscriptionTable.from_subscriptions(numbered(subs))
    whole = RelationGraph("clause-scan", k=len(subs) + 1)  # G*: each is asked for all that cover it
    rows = range(len(subs))
    whole.subscribe(table)
    # Where only the outline of a polygon can tell, nothing is taken over.
    take_over = take_over and not any(isinstance(one.region, Polygon) for one in subs)
    star = {row: set(whole.covering(table.take([row])).rows.tolist()) - {row} for row in rows}
    strict = {
        row: {one for one in star[row] if one < row or row not in star[one]} for row in rows
    }  # of equal ones the older covers
    poset = {
        row: {one for one in strict[row] if not any(one in strict[two] for two in strict[row])}
        for row in rows
    }
    for row in rows:
        assert reached(poset, row) == strict[row]  # nothing is lost with the edges that are left out

    graph = RelationGraph(k=k, take_over=take_over)
    model = Forwarding(lambda a, b: a in star[b], take_over)
    for row in rows:
        made = graph.subscribe(table.take([row]))
        forward, withdrawn = model.subscribe(row)
        assert (made.forward.tolist(), set(made.withdrawn.tolist())) == ([forward], withdrawn)
        older = {one for one in strict[row] if one < row}
        assert len(graph.covers_of(row)) == min(k, len(older))
        assert set(graph.covers_of(row).tolist()) <= older
    if take_over:  # Property 1 to the letter
        assert set(graph.forwarded.tolist()) == {row for row in rows if not strict[row]}
        assert all(poset[row] for row in rows if row not in graph.forwarded)
    assert graph.check() == []


def test_nothing_is_taken_over_where_only_the_outline_of_a_polygon_can_tell():
    inner, outer = (Polygon(f"POLYGON ((0 0, {side} 0, 0 {side}, 0 0))") for side in (1, 2))
    table = SubscriptionTable.from_subscriptions([Subscription(0, "*", inner), Subscription(1, "*", outer)])
    graph = RelationGraph(take_over=True)
    for row in range(2):
        assert graph.subscribe(table.take([row])).withdrawn.tolist() == []
    assert graph.forwarded.tolist() == [0, 1]
    assert RelationGraph().subscribe(table.take([1, 0])).forward.tolist() == [True, False]


def reached(poset, row):
    found, todo = set(), [row]
    while todo:
        more = poset[todo.pop()] - found
        found |= more
        todo += more
    return found


def numbered(subs):
    return [type(one)(number, one.expression, one.region) for number, one in enumerate(subs)]
