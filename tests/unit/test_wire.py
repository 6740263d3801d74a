"""Messages that travel as codes: what arrives matches exactly what was sent."""

import numpy as np
import pyarrow as pa
import pytest
import shapely
from hypothesis import given

from nearcast import MessageBatch, SubscriptionTable, build_index
from nearcast.columns.coding import Coding
from nearcast.columns.growing_table import GrowingTable
from nearcast.columns.wire import NEW_SCHEMA, WIRE_SCHEMA, Known, from_wire, to_wire
from strategies import batches, tables


def travelled(batch, coding, known=None):
    """What arrives elsewhere: the columns pass through Arrow's own form, and a slice of them is read."""
    columns = pa.RecordBatch.from_pydict(to_wire(batch, known))
    schema = pa.schema([*WIRE_SCHEMA, *(NEW_SCHEMA if known else ())])
    assert columns.schema.equals(schema)
    sink = pa.BufferOutputStream()
    around = (
        pa.concat_batches([columns.slice(0, 1), columns, columns.slice(0, 1)]) if len(columns) else columns
    )
    with pa.ipc.new_stream(sink, schema) as writer:
        writer.write_batch(around)
    (read,) = pa.ipc.open_stream(sink.getvalue())
    return from_wire(read.slice(1, len(columns)), coding)


@given(tables(), batches())
def test_the_same_matches(table, batch):
    index = build_index("scan", table)
    there = travelled(batch, batch.coding)
    assert len(there) == len(batch)
    for mine, other in zip(index.match(batch).sorted(), index.match(there).sorted()):
        np.testing.assert_array_equal(mine, other)


def rows(ids, **columns):
    """Messages of many forms: points, boxes across the antimeridian, circles, polygons; words and values."""
    forms = {
        "lon": [0.0, None, 179.0, None, 1.0],
        "lat": [0.0, None, 0.0, None, 1.0],
        "radius_m": [None, None, 500_000.0, None, None],
        "xmin": [None, 170.0, None, None, None],
        "ymin": [None, -5.0, None, None, None],
        "xmax": [None, -170.0, None, None, None],
        "ymax": [None, 5.0, None, None, None],
        "geometry": pa.array(
            [None, None, None, shapely.to_wkb(shapely.Point(0, 0).buffer(3)), None], pa.binary()
        ),
    }
    return pa.table({"id": ids, **forms, **columns})


MESSAGES = rows(
    [1, 2, 3, 4, 5],
    text=["tea new", "tea café", None, "later tea 日本", "new"],
    price=[1.0, None, 3.0, 4.0, 5.0],
    brand=["acme", "unheard", None, "acme", "fresh"],
    size=[1.0, 2.0, 3.0, None, 5.0],
    shade=["red", None, "blue", "red", "green"],
)
FIRST = pa.table(
    {
        "id": ["a", "b", "c", "d", "e"],
        "expression": ["tea", "café OR price < 3.5", 'brand = "acme"', 'brand != "acme"', "*"],
    }
)
# Words, attributes and strings that the first ones do not have.
LATER = [
    pa.table({"id": ["f", "g"], "expression": ["new NOT 日本", "size >= 2"]}),
    pa.table({"id": ["h", "i"], "expression": ['shade = "red"', "later OR 日本"]}),
    pa.table({"id": ["j", "k"], "expression": ['brand = "fresh"', 'shade != "blue" AND new']}),
    pa.table({"id": ["l"], "expression": ["forgotten"]}),
]


def coded(order):
    """Subscriptions in one coding, which has learnt the later ones in this order; and what it knew before."""
    coding = Coding.new()
    found = [SubscriptionTable.from_arrow(FIRST, like=coding)]
    known = Known.of(coding)
    found += [SubscriptionTable.from_arrow(LATER[number], like=coding) for number in order]
    return GrowingTable.joined(found), known


def pairs(table, batch):
    found = build_index("scan", table).match(batch)
    return sorted(zip(table.ids.take(pa.array(found.rows)).to_pylist(), found.messages.tolist()))


def test_places_words_and_values_of_every_kind():
    table, _ = coded([])
    batch = MessageBatch.from_arrow(MESSAGES, like=table)
    circle = pa.table(
        {"id": ["p"], "expression": ["*"], "lon": [-179.5], "lat": [1.0], "radius_m": [900_000.0]}
    )
    round_one = SubscriptionTable.from_arrow(circle, like=table)
    there = travelled(batch, table.coding)
    for one in (table, round_one):
        assert pairs(one, there) == pairs(one, batch) != []
    assert len(batch.owners) > len(batch)  # the antimeridian
    assert len(there.shapes) == len(batch.shapes) == 2


@pytest.mark.parametrize("order", [[0, 1, 2], [2, 1, 0], [1, 3, 0, 2]])
def test_codings_that_have_grown_in_another_order(order):
    """The codes of what was learnt differ, and one of the two may have learnt more: the matches are the same."""
    mine, known = coded([0, 1, 2])
    theirs, same = coded(order)
    assert known == same
    batch = MessageBatch.from_arrow(MESSAGES, like=mine)
    expected = pairs(mine, batch)
    assert {key for key, _ in expected} == set("abcdefghijk")
    assert pairs(theirs, travelled(batch, theirs.coding, known)) == expected


def test_nothing_at_all():
    table, known = coded([0])
    batch = MessageBatch.from_arrow(MESSAGES.slice(0, 0), like=table)
    for learnt in (None, known):
        assert len(travelled(batch, table.coding, learnt)) == 0
