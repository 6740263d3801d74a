"""One mapping of column names: read alike at every door, and refused in the same words."""

import csv
import json
from itertools import product

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import shapely
from typer.testing import CliRunner

from nearcast import (
    Box,
    Engine,
    ManualClock,
    Message,
    MessageBatch,
    Point,
    Subscription,
    SubscriptionTable,
)
from nearcast.cli import app
from nearcast.columns.from_arrow.renaming import Renaming, rename_table
from nearcast.errors import ColumnError, GeometryError, NearcastWarning
from nearcast.files import find_message, find_subscription, read_messages, read_subscriptions, read_table
from nearcast.predicates import Word
from nearcast.preparation import Preparation

LIKE = SubscriptionTable.from_subscriptions([Subscription(1, "tea AND price < 3")])
MESSAGES = {"nr": ["m"], "body": ["Hot tea"], "longitude": [1.0], "latitude": [2.0], "preis": [2.5]}
TO_MESSAGES = {"id": "nr", "text": "body", "lon": "longitude", "lat": "latitude", "price": "preis"}
SUBSCRIPTIONS = {"user": ["a"], "query": ["tea"], "x": [1.0], "y": [2.0], "reach": [500.0]}
TO_SUBSCRIPTIONS = {"id": "user", "expression": "query", "lon": "x", "lat": "y", "radius_m": "reach"}


def write_csv(path, columns):
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([list(columns), *zip(*columns.values())])
    return path


def write_lines(path, columns):
    rows = [dict(zip(columns, values)) for values in zip(*columns.values())]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def write_parquet(path, columns):
    pq.write_table(pa.table(columns), path)
    return path


WRITERS = {"csv": write_csv, "jsonl": write_lines, "parquet": write_parquet}


def prepared(table, kind, columns):
    done = Preparation(pa.table(table).schema, kind, columns=columns).apply(pa.table(table))
    assert done["reason"].to_pylist() == [None]
    return done.drop_columns(["reason", "detail", "original"])


def file_door(write, ending, read):
    return lambda table, home, columns: read(write(home / f"t.{ending}", table), columns)


MESSAGE_DOORS = {
    "from_arrow": lambda table, home, columns: MessageBatch.from_arrow(table, like=LIKE, columns=columns),
    "prepare": lambda table, home, columns: MessageBatch.from_arrow(
        prepared(table, "messages", columns), like=LIKE
    ),
} | {
    name: file_door(write, name, lambda path, columns: read_messages(path, like=LIKE, columns=columns))
    for name, write in WRITERS.items()
}
SUBSCRIPTION_DOORS = {
    "from_arrow": lambda table, home, columns: SubscriptionTable.from_arrow(table, columns=columns),
    "prepare": lambda table, home, columns: SubscriptionTable.from_arrow(
        prepared(table, "subscriptions", columns)
    ),
} | {
    name: file_door(write, name, lambda path, columns: read_subscriptions(path, columns=columns))
    for name, write in WRITERS.items()
}


@pytest.mark.parametrize("door", MESSAGE_DOORS.values(), ids=MESSAGE_DOORS)
def test_messages_with_other_names(door, tmp_path):
    batch = door(MESSAGES, tmp_path, TO_MESSAGES)
    assert batch.ids.to_pylist() == ["m"]
    assert batch.probes.boxes.tolist() == [[1.0, 2.0, 1.0, 2.0]]
    assert len(batch.probes.keywords) == 1
    assert batch.values.values.tolist() == [2.5]


@pytest.mark.parametrize("door", SUBSCRIPTION_DOORS.values(), ids=SUBSCRIPTION_DOORS)
def test_subscriptions_with_other_names(door, tmp_path):
    (read,) = door(SUBSCRIPTIONS, tmp_path, TO_SUBSCRIPTIONS).to_subscriptions()
    assert (read.id, read.expression) == ("a", Word("tea"))
    assert (read.region.x, read.region.y, read.region.radius) == (1.0, 2.0, 500.0)


def test_every_verb_of_the_engine_takes_it():
    engine = Engine("scan", store="scan", clock=ManualClock("2026-11-18T08:00:00Z"))
    engine.subscribe(SUBSCRIPTIONS, columns=TO_SUBSCRIPTIONS)
    assert engine.match(MESSAGES, columns=TO_MESSAGES).to_pylist() == [
        {"message_id": "m", "subscription_id": "a"}
    ]
    late = {**MESSAGES, "until": pa.array([2**60])}
    assert len(engine.publish(late, columns={**TO_MESSAGES, "expires_at": "until"})) == 1
    away = engine.move({"user": ["a"], "x": [50.0], "lat": [2.0]}, columns={"id": "user", "lon": "x"})
    assert [delivery.change for delivery in away] == ["-"]
    assert len(engine.update(SUBSCRIPTIONS, columns=TO_SUBSCRIPTIONS)) == 1


@pytest.mark.parametrize(
    "call",
    [
        lambda engine: engine.publish(Message(1, "tea", Point(lon=0, lat=0)), columns={"lat": "y"}),
        lambda engine: engine.subscribe([Subscription(2, "tea")], columns={"lat": "y"}),
        lambda engine: engine.match(MessageBatch.empty(engine.coding), columns={"lat": "y"}),
        lambda engine: engine.move(1, Box(0, 0, 1, 1), columns={"lat": "y"}),
    ],
)
def test_objects_have_no_columns(call):
    engine = Engine("scan", store="scan")
    engine.subscribe(Subscription(1, "tea"))
    with pytest.raises(ColumnError, match=r"is not a table; leave columns= out"):
        call(engine)


WRONG = {
    "a column that is not there": (
        {**TO_MESSAGES, "lat": "latitud"},
        "the messages have no column 'latitud' to read as lat; did you mean 'latitude'?",
    ),
    "nothing like it": (
        {**TO_MESSAGES, "lat": "north"},
        "the messages have no column 'north' to read as lat; the columns are nr, body, longitude, latitude, preis",
    ),
    "a name that is not ours": (
        {**TO_MESSAGES, "expression": "body"},
        "messages have no 'expression' that 'body' could be read as; there are id, text, keywords, geometry",
    ),
    "a name that is nearly ours": (
        {"id": "nr", "text": "body", "lon": "longitude", "lattitude": "latitude"},
        "messages have no 'lattitude' that 'latitude' could be read as; did you mean lat?",
    ),
    "two for one": (
        {**TO_MESSAGES, "lat": "longitude"},
        "column 'longitude' of the messages cannot be both lon and lat; name another column for one of them",
    ),
    "one that is there": (
        {"preis": "body"},
        "the messages have a column 'preis' already, and 'body' would be a second one; leave one of them out",
    ),
    "the wrong way round": (
        {"latitude": "lat"},
        "latitude=lat is the wrong way round: our name comes first; write lat=latitude",
    ),
    "for one table": (
        {"messages": {"lat": "latitud"}},
        "the messages have no column 'latitud' to read as lat; did you mean 'latitude'?",
    ),
    "an unknown table": (
        {"mesages": {"lat": "latitude"}},
        "there are no tables 'mesages' to rename columns of; did you mean messages?",
    ),
    "no mapping": (["lat"], "columns must map our names to those of the table, as in {'lat': 'latitude'}, not ["),
    "no name": ({"lat": 3}, "'lat': 3 are not two names"),
    "no column": ({"lat": ""}, "'lat': '' are not two names"),
}  # fmt: skip


@pytest.mark.parametrize(("columns", "said"), WRONG.values(), ids=WRONG)
@pytest.mark.parametrize("door", MESSAGE_DOORS.values(), ids=MESSAGE_DOORS)
def test_a_wrong_mapping_is_refused_in_the_same_words(door, tmp_path, columns, said):
    with pytest.raises(ColumnError) as error:
        door(MESSAGES, tmp_path, columns)
    assert said in str(error.value)


@pytest.mark.parametrize("door", SUBSCRIPTION_DOORS.values(), ids=SUBSCRIPTION_DOORS)
@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"expresion": "query"}, "subscriptions have no 'expresion' that 'query' could be read as; did you mean exp"),
        ({"price": "reach"}, "subscriptions have no 'price' that 'reach' could be read as; there are id, expression"),
        ({"query": "expression"}, "query=expression is the wrong way round: our name comes first; write expression=qu"),
        ({"expression": "Query"}, "the subscriptions have no column 'Query' to read as expression; did you mean 'quer"),
    ],
)  # fmt: skip
def test_subscriptions_have_their_own_names(door, tmp_path, columns, said):
    with pytest.raises(ColumnError) as error:
        door(SUBSCRIPTIONS, tmp_path, columns)
    assert said in str(error.value)


def test_an_entry_for_what_is_there_is_not_needed():
    with pytest.raises(
        ColumnError, match="no column 'y' to read as lat; there is a column lat already, so leave"
    ):
        Renaming({"lat": "y"}, "messages").apply("messages", ["id", "lon", "lat"])


def test_columns_may_change_places():
    """Every name that is given up may be taken again."""
    renaming = Renaming({"lon": "lat", "lat": "lon"}, "messages")
    assert renaming.apply("messages", ["id", "lat", "lon"]) == ["id", "lon", "lat"]
    assert Renaming({"lat": "lat"}, "messages").apply("messages", ["id", "lat"]) == ["id", "lat"]


class TestSeveralTables:
    def both(self, columns, messages=("nr", "body", "latitude")):
        names = {"messages": messages, "subscriptions": ["id", "query", "latitude"]}
        found = []
        for order in (list(names), list(names)[::-1]):
            renaming = Renaming(columns, "messages", "subscriptions")
            found.append({kind: renaming.apply(kind, names[kind]) for kind in order})
        assert found[0] == found[1]
        return found[0]

    def test_an_entry_holds_for_each_that_has_the_column(self):
        columns = {"lat": "latitude", "text": "body", "expression": "query", "messages": {"id": "nr"}}
        assert self.both(columns) == {
            "messages": ["id", "text", "lat"],
            "subscriptions": ["id", "expression", "lat"],
        }

    def test_an_entry_for_one_of_them_goes_first(self):
        columns = {"lat": "latitude", "messages": {"lat": "nr"}}
        assert self.both(columns)["messages"] == ["lat", "body", "latitude"]

    def test_an_attribute_is_not_taken_for_an_expression(self):
        found = self.both({"expression": "query"}, messages=["id", "text", "query"])
        assert found == {
            "messages": ["id", "text", "query"],
            "subscriptions": ["id", "expression", "latitude"],
        }

    @pytest.mark.parametrize(
        ("columns", "said"),
        [
            ({"lat": "latitud"}, "no column 'latitud' to read as lat; did you mean 'latitude'"),
            ({"expresion": "query"}, "subscriptions have no 'expresion' that 'query' could be read as; did you mean"),
            ({"price": "query"}, "subscriptions have no 'price' that 'query' could be read as; there are id"),
        ],
    )  # fmt: skip
    def test_an_entry_that_none_has_a_use_for(self, columns, said):
        with pytest.raises(ColumnError) as error:
            self.both(columns)
        assert said in str(error.value)

    def test_entries_for_tables_that_are_not_read_are_ignored(self):
        columns = {"messages": {"id": "nr"}, "subscriptions": {"id": "no such column"}}
        assert Renaming(columns, "messages").apply("messages", ["nr"]) == ["id"]


def geo(name, crs=None, **others):
    columns = {name: {"encoding": "WKB", "geometry_types": []} | ({"crs": crs} if crs else {}), **others}
    return {b"geo": json.dumps({"version": "1.1.0", "primary_column": name, "columns": columns}).encode()}


RD = {"name": "RD New", "id": {"authority": "EPSG", "code": 28992}}


class TestGeometry:
    def test_the_declaration_follows_the_name(self, tmp_path):
        """A column that is read as the geometry keeps its coordinate system, whichever column was the primary one."""
        wkb = pa.array([shapely.to_wkb(shapely.Point(1, 2))], pa.binary())
        table = pa.table({"id": [1], "where": wkb, "home": wkb})
        table = table.replace_schema_metadata(geo("where", home={"encoding": "WKB", "crs": RD}))
        pq.write_table(table, tmp_path / "t.parquet")
        for door in (
            lambda columns: MessageBatch.from_arrow(table, like=LIKE, columns=columns),
            lambda columns: read_messages(tmp_path / "t.parquet", like=LIKE, columns=columns),
        ):
            assert door({"geometry": "where"}).probes.boxes.tolist() == [[1.0, 2.0, 1.0, 2.0]]
            with pytest.raises(GeometryError, match="the coordinates are 'RD New'"):
                door({"geometry": "home"})

    def test_another_column_than_the_geometry(self):
        table = pa.table({"nr": [1], "where": pa.array([shapely.to_wkb(shapely.Point(1, 2))], pa.binary())})
        table = table.replace_schema_metadata(geo("where", RD))
        named = rename_table(table, {"id": "nr"}, "messages")
        with pytest.raises(GeometryError, match="the coordinates are 'RD New'"):
            MessageBatch.from_arrow(named, like=LIKE)

    def test_declarations_that_cannot_be_read_are_left_to_those_who_refuse_them(self):
        table = pa.table({"nr": [1], "lon": [0.0], "lat": [0.0]}).replace_schema_metadata({b"geo": b"{"})
        with pytest.raises(ColumnError, match="its GeoParquet metadata cannot be read"):
            MessageBatch.from_arrow(table, like=LIKE, columns={"id": "nr"})


def test_types_follow_our_names(tmp_path):
    """In CSV and JSON the name decides how a cell is read."""
    columns = {"id": "nr", "published_at": "created", "keywords": "tags", "lon": "x", "lat": "y"}
    rows = {
        "nr": ["7"],
        "created": ["2026-11-18T08:00:00Z"],
        "tags": ["tea milk"],
        "x": ["1.0"],
        "y": ["2.0"],
    }
    read = read_table(write_csv(tmp_path / "t.csv", rows), "message", columns=columns)
    numbers = {"x": [1.0], "y": [2.0], "nr": [7]}
    same = read_table(write_lines(tmp_path / "t.jsonl", {**rows, **numbers}), "message", columns=columns)
    assert read.to_pylist() == same.to_pylist()
    assert read.to_pylist() == [
        {"id": 7, "published_at": 1_794_988_800_000_000, "keywords": ["tea", "milk"], "lon": 1.0, "lat": 2.0}
    ]


def test_times_of_spark_have_a_zone_under_any_name(tmp_path):
    times = pa.array([0], pa.timestamp("us"))
    table = pa.table({"id": [1], "text": ["tea"], "lon": [0.0], "lat": [0.0], "created": times})
    pq.write_table(table, tmp_path / "t.parquet", use_deprecated_int96_timestamps=True)
    read = read_table(tmp_path / "t.parquet", "message", columns={"published_at": "created"})
    assert read.schema.field("published_at").type == pa.timestamp("us", "UTC")


def test_members_of_documents_and_features(tmp_path):
    feature = {
        "type": "Feature",
        "geometry": {"type": "Point", "coordinates": [1, 2]},
        "properties": {"nr": "m", "body": "tea", "preis": 2.5},
    }
    document = {"nr": "n", "body": "tea", "place": {"type": "Point", "coordinates": [1, 2]}}
    document["attributes"] = {"preis": 2.0}
    path = tmp_path / "t.jsonl"
    path.write_text("".join(json.dumps(each) + "\n" for each in (feature, document)))
    columns = {"id": "nr", "text": "body", "price": "preis"}
    batch = read_messages(path, like=LIKE, columns=columns)
    assert batch.ids.to_pylist() == ["m", "n"]
    assert batch.values.values.tolist() == [2.5, 2.0]
    assert find_message(path, "n", columns=columns).attributes == {"price": 2.0}


def test_originals_keep_their_names():
    raw = pa.table({**MESSAGES, "latitude": ["north"]})
    done = Preparation(raw.schema, "messages", columns=TO_MESSAGES).apply(raw)
    assert done["detail"].to_pylist() == ["lat is 'north', which is not a number"]
    assert json.loads(done["original"][0].as_py()) == {
        name: values[0] for name, values in {**MESSAGES, "latitude": ["north"]}.items()
    }


def test_an_attribute_is_read_as_numbers_under_our_name():
    raw = pa.table({**MESSAGES, "preis": ["2.5"]})
    done = Preparation(raw.schema, "messages", columns=TO_MESSAGES, numbers=["price"]).apply(raw)
    assert done["price"].to_pylist() == [2.5]


OPTIONS = [
    *(f"--rename=messages.{ours}={theirs}" for ours, theirs in TO_MESSAGES.items()),
    *(f"--rename=subscriptions.{ours}={theirs}" for ours, theirs in TO_SUBSCRIPTIONS.items()),
]


class TestCommandLine:
    def run(self, *arguments):
        return CliRunner().invoke(app, [str(argument) for argument in arguments])

    @pytest.fixture
    def files(self, tmp_path):
        return write_csv(tmp_path / "m.csv", MESSAGES), write_csv(tmp_path / "s.csv", SUBSCRIPTIONS)

    def test_match(self, files):
        ran = self.run("match", *files, *OPTIONS)
        assert ran.exit_code == 0, ran.stderr
        assert json.loads(ran.stdout)["subscription_id"] == "a"

    def test_entries_for_both(self, tmp_path):
        messages = write_csv(
            tmp_path / "m.csv", {"id": ["m"], "body": ["tea"], "x": [1], "y": [2], "half.price": [1]}
        )
        rows = {"id": ["a"], "query": ["tea AND `a.b` < 3"], "x": [1.0], "y": [2.0], "radius_m": [9.0]}
        subscriptions = write_csv(tmp_path / "s.csv", rows)
        names = ("lon=x", "lat=y", "text=body", "expression = query", "a.b=half.price")
        options = [f"--rename={each}" for each in names]
        ran = self.run("match", messages, subscriptions, *options)
        assert ran.exit_code == 0, ran.stderr
        assert json.loads(ran.stdout)["message_id"] == "m"

    def test_explain(self, files):
        messages, subscriptions = files
        ran = self.run(
            "explain", "--messages", messages, "--message-id", "m",
            "--subscriptions", subscriptions, "--subscription-id", "a", *OPTIONS,
        )  # fmt: skip
        assert ran.exit_code == 0, ran.stderr
        assert ran.stdout.startswith("message 'm' matches subscription 'a'")
        assert find_subscription(subscriptions, "a", columns=TO_SUBSCRIPTIONS).id == "a"

    @pytest.mark.parametrize(
        ("option", "said"),
        [
            ("lat", "--rename 'lat' has the wrong form; write lat=latitude, our name first"),
            ("=latitude", "--rename '=latitude' has the wrong form"),
            ("lat=", "--rename 'lat=' has the wrong form"),
            ("messages.=x", "--rename 'messages.=x' has the wrong form"),
            ("messages.id=number", "--rename names two columns for messages.id: 'nr' and 'number'; leave one out"),
            ("cost=no such", "have no column 'no such' to read as cost; the columns are"),
            ("keywords=tags", "the subscriptions and the messages have no column 'tags' to read as keywords; the col"),
        ],
    )  # fmt: skip
    def test_a_mistake_is_one_line(self, files, option, said):
        ran = self.run("match", *files, *OPTIONS, f"--rename={option}")
        assert (ran.exit_code, ran.stdout) == (2, "")
        assert len(ran.stderr.splitlines()) == 1
        assert said in ran.stderr

    def test_nothing_to_rename(self):
        ran = self.run("explain", "m: tea AT POINT (0 0)", "a: tea", "--rename=lat=y")
        assert ran.exit_code == 2
        assert "--rename is for files" in ran.stderr


def test_an_error_shows_the_way_out():
    """The advice for a name that is nearly ours is a mapping that works."""
    for kind, theirs in product(("messages", "subscriptions"), ("latitude", "lng")):
        table = {"id": [1], "text" if kind == "messages" else "expression": ["tea"], theirs: [0.0]}
        table |= {"lat" if theirs == "lng" else "lon": [0.0]} | (
            {"radius_m": [5.0]} if kind == "subscriptions" else {}
        )
        read = MessageBatch if kind == "messages" else SubscriptionTable
        more = {"like": LIKE} if kind == "messages" else {}
        with pytest.raises(ColumnError, match="Rename it") as error:
            read.from_arrow(table, **more)
        advice = str(error.value).split("columns=", 1)[1].split(" or --rename", 1)[0]
        assert len(read.from_arrow(table, columns=json.loads(advice.replace("'", '"')), **more)) == 1


def test_kilometres_are_not_renamed_to_metres():
    with pytest.raises(
        ColumnError, match=r"mean radius_m\? Convert it to metres, as radius_m, or leave it out"
    ):
        SubscriptionTable.from_arrow({"id": [1], "expression": ["tea"], "radius_km": [1.0]})


def test_what_is_left_out_is_told_under_its_own_name():
    with pytest.warns(NearcastWarning, match="left out 'note'"):
        SubscriptionTable.from_arrow({"nr": [1], "expression": ["tea"], "note": [1]}, columns={"id": "nr"})
