"""A wrong name of a column is told in the same words at every door, and is never a wish for everything."""

import csv
import json
import warnings

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from nearcast import Circle, Engine, Message, MessageBatch, Point, Subscription, SubscriptionTable
from nearcast.cli import app
from nearcast.columns.from_arrow.names import (
    MESSAGE_COLUMNS,
    SUBSCRIPTION_COLUMNS,
    check_messages,
    read_columns,
)
from nearcast.errors import ColumnError, ModelError, NearcastWarning, nearest
from nearcast.files import find_message, find_subscription, read_messages, read_subscriptions
from nearcast.preparation import Preparation

LIKE = SubscriptionTable.from_subscriptions([Subscription(1, "tea AND price < 3")])
NO_WORDS = "subscriptions need a column expression or keywords; "
EVERYTHING = " For every message, write * as the expression"


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


SUBSCRIPTION_DOORS = {
    "from_arrow": lambda columns, home: SubscriptionTable.from_arrow(columns),
    "subscribe": lambda columns, home: Engine("scan", store="scan").subscribe(columns),
    "csv": lambda columns, home: read_subscriptions(write_csv(home / "s.csv", columns)),
    "jsonl": lambda columns, home: read_subscriptions(write_lines(home / "s.jsonl", columns)),
    "parquet": lambda columns, home: read_subscriptions(write_parquet(home / "s.parquet", columns)),
    "explain": lambda columns, home: find_subscription(write_csv(home / "s.csv", columns), "a"),
    "prepare": lambda columns, home: Preparation(pa.table(columns).schema, "subscriptions"),
}


@pytest.mark.parametrize("door", SUBSCRIPTION_DOORS.values(), ids=SUBSCRIPTION_DOORS)
class TestSubscriptions:
    @pytest.mark.parametrize(
        ("columns", "said"),
        [
            ({"id": ["a"]}, f"{NO_WORDS}the columns are id.{EVERYTHING}"),
            ({"id": ["a"], "query": ["tea"]}, f"{NO_WORDS}there is 'query': did you mean expression?{EVERYTHING}"),
            ({"id": ["a"], "tags": ["tea"]}, f"{NO_WORDS}there is 'tags': did you mean keywords?{EVERYTHING}"),
        ],
        ids=["nothing", "query", "tags"],
    )  # fmt: skip
    def test_who_says_nothing_does_not_get_everything(self, door, tmp_path, columns, said):
        with pytest.raises(ColumnError) as error:
            door(columns, tmp_path)
        assert said in str(error.value)

    @pytest.mark.parametrize(
        ("name", "meant"),
        [
            ("expresion", "expression"),
            ("Expression", "expression"),
            ("keyword", "keywords"),
            ("lattitude", "lat"),
            ("lng", "lon"),
            ("radius", "radius_m"),
            ("radius_km", "radius_m"),
            ("radiusM", "radius_m"),
            ("geom", "geometry"),
            ("min_x", "xmin"),
            ("ID", "id"),
            ("Region", "geometry"),
            ("regions", "geometry"),
            ("place", "geometry"),
            ("location", "geometry"),
            ("x", "lon"),
            ("Y", "lat"),
            ("r", "radius_m"),
            ("west", "xmin"),
            ("south", "ymin"),
            ("East", "xmax"),
            ("north", "ymax"),
        ],
    )
    def test_nearly_a_name_is_a_mistake(self, door, tmp_path, name, meant):
        """Whatever else is there: a row may have the one, another row the other."""
        with pytest.raises(ColumnError, match=f"no column '{name}'; did you mean {meant}\\?"):
            door({"id": ["a"], "expression": ["tea"], name: ["1"]}, tmp_path)

    def test_other_columns_are_left_out_and_told(self, door, tmp_path):
        columns = {"id": ["a"], "expression": ["tea"], "note": ["x"], "owner": ["y"]}
        with pytest.warns(NearcastWarning, match="left out 'note', 'owner'; a subscription has id,") as told:
            door(columns, tmp_path)
        assert len(told) == 1
        assert told[0].filename == __file__

    def test_a_star_asks_for_everything(self, door, tmp_path):
        door({"id": ["a"], "expression": ["*"]}, tmp_path)


@pytest.mark.parametrize("name", [name for name in SUBSCRIPTION_DOORS if name != "jsonl"])
def test_a_region_is_a_member_of_documents_only(tmp_path, name):
    """There it has the form that to_json writes (see below); a column of regions is the geometry."""
    columns = {"id": ["a"], "expression": ["tea"], "region": ["CIRCLE (9 9, 5 km)"]}
    with pytest.raises(ColumnError, match=r"no column 'region'; did you mean geometry\? Rename it"):
        SUBSCRIPTION_DOORS[name](columns, tmp_path)


def test_a_column_of_regions_is_read_under_its_right_name(tmp_path):
    columns = {"id": ["a"], "expression": ["tea"], "region": ["CIRCLE (9 9, 5 km)"]}
    for read in (
        SubscriptionTable.from_arrow(columns, columns={"geometry": "region"}),
        read_subscriptions(write_csv(tmp_path / "s.csv", columns), columns={"geometry": "region"}),
        read_subscriptions(write_lines(tmp_path / "s.jsonl", columns)),
    ):
        assert read.to_subscriptions()[0].region == Circle(lon=9, lat=9, radius=5000)


class TestTheRegionOfADocument:
    def read(self, home, *rows):
        (home / "s.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        return [
            subscription.region for subscription in read_subscriptions(home / "s.jsonl").to_subscriptions()
        ]

    def test_beside_members_that_are_null(self, tmp_path):
        circle = Circle(lon=9, lat=9, radius=5)
        written = json.loads(Subscription("a", "tea", circle).to_json())
        flat = {"id": "b", "expression": "tea", "lon": 9, "lat": 9, "radius_m": 5, "region": None}
        rows = ({**written, "lon": None, "bbox": None}, flat)
        assert self.read(tmp_path, *rows) == [circle, circle]

    @pytest.mark.parametrize(
        "other", [{"lon": 1, "lat": 1, "radius_m": 9}, {"bbox": [0, 0, 1, 1]}, {"geometry": "BOX (0 0, 1 1)"}]
    )
    def test_beside_another_place(self, tmp_path, other):
        written = json.loads(Subscription("a", "tea", Circle(lon=9, lat=9, radius=5)).to_json())
        with pytest.raises(
            ModelError, match=f"line 1: 'region' and '{next(iter(other))}' both say where it is"
        ):
            self.read(tmp_path, {**written, **other})

    def test_the_place_of_a_message(self, tmp_path):
        """GeoJSON is a second place; a text is an attribute."""
        message = {
            "id": "m",
            "text": "tea",
            "lon": 1,
            "lat": 1,
            "place": {"type": "Point", "coordinates": [2, 2]},
        }
        (tmp_path / "m.jsonl").write_text(json.dumps(message))
        with pytest.raises(ModelError, match="line 1: 'place' and 'lon' both say where it is"):
            find_message(tmp_path / "m.jsonl", "m")
        (tmp_path / "m.jsonl").write_text(json.dumps({**message, "place": "Soho"}))
        assert find_message(tmp_path / "m.jsonl", "m").attributes == {"place": "Soho"}


KEYWORD_DOORS = {
    name: door for name, door in SUBSCRIPTION_DOORS.items() if name not in ("explain", "prepare")
}


@pytest.mark.parametrize("door", KEYWORD_DOORS.values(), ids=KEYWORD_DOORS)
@pytest.mark.parametrize("nothing", [None, []], ids=["null", "empty"])
def test_no_keywords_are_not_every_message(door, tmp_path, nothing):
    columns = {"id": ["a", "b"], "keywords": [["tea"], nothing]}
    if door is SUBSCRIPTION_DOORS["csv"]:
        columns["keywords"] = ["tea", "" if nothing is None else " "]
    with pytest.raises(ColumnError, match=r"row 1 \(id 'b'\) has no keywords; write \* for every message"):
        door(columns, tmp_path)


@pytest.mark.parametrize("door", KEYWORD_DOORS.values(), ids=KEYWORD_DOORS)
def test_a_star_among_keywords_asks_for_everything(door, tmp_path):
    door({"id": ["a"], "keywords": ["*"] if door is SUBSCRIPTION_DOORS["csv"] else [["*"]]}, tmp_path)


@pytest.mark.parametrize("words", ["", " ", [], None])
def test_no_keywords_in_lines(tmp_path, words):
    write_lines(tmp_path / "s.jsonl", {"id": ["a", "b"], "keywords": ["tea", words]})
    with pytest.raises(ColumnError, match=r"row 1 \(id 'b'\) has no keywords; write \* for every message"):
        read_subscriptions(tmp_path / "s.jsonl")


@pytest.mark.filterwarnings("ignore:.*left out 'query'")
def test_a_line_with_another_word_for_keywords(tmp_path):
    (tmp_path / "s.jsonl").write_text('{"id": "a", "keywords": "tea"}\n{"id": "b", "query": "coffee"}')
    with pytest.raises(ColumnError, match=r"row 1 \(id 'b'\) has no keywords; write \* for every message"):
        read_subscriptions(tmp_path / "s.jsonl")


def test_no_keywords_of_raw_rows():
    raw = pa.table({"id": ["a", "b", "c", "d"], "keywords": ["tea", "", None, "*"]})
    done = Preparation(raw.schema, "subscriptions").apply(raw)
    assert done["reason"].to_pylist() == [None, "keywords", "keywords", None]
    assert done["detail"][1].as_py() == "the subscription has no keywords; write * for every message"
    assert done["keywords"].to_pylist() == [["tea"], None, None, ["*"]]
    good = done.filter(pa.compute.is_null(done["reason"])).select(["id", "keywords"])
    assert [each.to_text() for each in SubscriptionTable.from_arrow(good).to_subscriptions()] == [
        "a: tea",
        "d: *",
    ]


def test_a_star_gets_everything():
    engine = Engine("scan", store="scan")
    engine.subscribe({"id": ["a"], "expression": ["*"]})
    assert engine.match(Message(1, "storm", Point(lon=1, lat=1))) == ["a"]


def test_python_tells_it_once():
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("default")
        for _ in range(3):
            read_columns(["id", "expression", "note"])
    assert len(told) == 1


def test_the_command_line_tells_it_in_a_line(tmp_path):
    (tmp_path / "m.csv").write_text("id,text,lon,lat,Price\nm,tea,1,1,2\n")
    (tmp_path / "s.csv").write_text("id,expression,note\na,tea AND price < 3,hello\n")
    ran = CliRunner().invoke(app, ["match", str(tmp_path / "m.csv"), str(tmp_path / "s.csv")])
    assert (ran.exit_code, ran.stdout) == (0, "")
    left_out, other_case, summary = ran.stderr.splitlines()
    assert left_out == (
        f"nearcast: {tmp_path / 's.csv'}: left out 'note'; a subscription has {', '.join(SUBSCRIPTION_COLUMNS)}"
    )
    assert other_case.startswith(
        "nearcast: messages have a column 'Price', and subscriptions ask for 'price'"
    )
    assert "0 deliveries" in summary


def test_the_command_line_refuses(tmp_path):
    (tmp_path / "m.csv").write_text("id,text,lon,lat\nm,tea,1,1\n")
    (tmp_path / "s.csv").write_text("id,query\na,tea\n")
    ran = CliRunner().invoke(app, ["match", str(tmp_path / "m.csv"), str(tmp_path / "s.csv")])
    assert (ran.exit_code, ran.stdout) == (2, "")
    assert ran.stderr == (
        f"nearcast: {tmp_path / 's.csv'}: {NO_WORDS}there is 'query': did you mean expression?{EVERYTHING}\n"
    )


@pytest.mark.parametrize("name", ["s.jsonl", "s.json"])
def test_an_empty_file_asks_for_nothing(tmp_path, name):
    (tmp_path / name).write_text("[]" if name == "s.json" else "")
    assert len(read_subscriptions(tmp_path / name)) == 0


PLACE = {"lon": [1.0], "lat": [1.0]}
MESSAGE_DOORS = {
    "from_arrow": lambda columns, home: MessageBatch.from_arrow(columns, like=LIKE),
    "publish": lambda columns, home: Engine("scan", store="scan").publish(columns),
    "csv": lambda columns, home: read_messages(write_csv(home / "m.csv", columns), like=LIKE),
    "jsonl": lambda columns, home: read_messages(write_lines(home / "m.jsonl", columns), like=LIKE),
    "explain": lambda columns, home: find_message(write_csv(home / "m.csv", columns), "1"),
    "prepare": lambda columns, home: Preparation(pa.table(columns).schema, "messages"),
}


@pytest.mark.parametrize("door", MESSAGE_DOORS.values(), ids=MESSAGE_DOORS)
class TestMessages:
    @pytest.mark.parametrize(
        ("columns", "said"),
        [
            ({"txt": ["tea"], **PLACE}, "a column 'txt' and no text; did you mean text?"),
            ({"tex": ["tea"], **PLACE}, "a column 'tex' and no text; did you mean text?"),
            ({"keyword": ["tea"], **PLACE}, "a column 'keyword' and no keywords; did you mean keywords?"),
            ({"text": ["tea"], "expire_at": [5], **PLACE}, "a column 'expire_at' and no expires_at; did you mean"),
            ({"text": ["tea"], "lng": [1.0], "lat": [1.0]}, "a column 'lng' and no lon; did you mean lon?"),
            ({"text": ["tea"], "Longitude": [1.0], "Latitude": [1.0]}, "a column 'Longitude' and no lon; did you"),
            ({"text": ["tea"], "geom": ["POINT (1 1)"]}, "a column 'geom' and no geometry; did you mean geometry?"),
            ({"text": ["tea"], "location": ["POINT (1 1)"]}, "a column 'location' and no geometry; did you mean geo"),
            ({"text": ["tea"], "x": [1.0], "y": [1.0]}, "a column 'x' and no lon; did you mean lon?"),
        ],
    )  # fmt: skip
    def test_nearly_the_name_of_a_missing_column(self, door, tmp_path, columns, said):
        with pytest.raises(ColumnError) as error:
            door({"id": [1], **columns}, tmp_path)
        assert said in str(error.value)

    def test_whatever_else_is_an_attribute(self, door, tmp_path):
        """Nearly the name of a column that is there, or a word of its own."""
        names = ("keyword", "txt", "test", "next", "radius", "published", "late", "loan", "longitude", "geom",
                 "region", "location", "x", "west")  # fmt: skip
        door({"id": [1], "text": ["tea"], **PLACE, **{name: [5.0] for name in names}}, tmp_path)


@pytest.mark.parametrize("door", MESSAGE_DOORS.values(), ids=MESSAGE_DOORS)
def test_nearly_the_id_of_messages(door, tmp_path):
    """Without an id, the row number is one; so a misspelt one must not pass for a missing one."""
    with pytest.raises(
        ColumnError, match=r"'ID' and no id; did you mean id\?|need a column id.*did you mean 'ID'\?"
    ):
        door({"ID": [1], "text": ["tea"], **PLACE}, tmp_path)


def test_an_attribute_may_be_renamed_to_whatever_it_could_be_called():
    columns = {"id": [1], "text": ["tea"], **PLACE, "ort": ["Soho"]}
    for name in ("place", "location", "geom"):
        MessageBatch.from_arrow(columns, like=LIKE, columns={name: "ort"})
    with pytest.raises(
        ColumnError, match=r"did you mean text\? If it is meant as an attribute, give it another name"
    ):
        MessageBatch.from_arrow({"id": [1], **PLACE, "ort": ["x"]}, like=LIKE, columns={"txt": "ort"})


def test_names_are_told_apart_by_case():
    engine = Engine("scan", store="scan")
    engine.subscribe(Subscription("a", "price < 3"))
    message = {"id": [1], "text": ["tea"], **PLACE, "Price": [2.0]}
    said = "a column 'Price', and subscriptions ask for 'price': names of attributes are case-sensitive"
    with pytest.warns(NearcastWarning, match=said) as told:
        assert len(engine.publish(message)) == 0
    assert (len(told), told[0].filename) == (1, __file__)
    assert len(engine.publish({**message, "price": [2.0]})) == 1
    engine.subscribe(Subscription("b", "Price < 3"))
    assert len(engine.publish(message)) == 1  # both are asked for: nobody is told


def test_names_of_ours_are_never_near_one_another():
    """No good table is refused: each column alone, all of them, and each but one."""
    for names in (SUBSCRIPTION_COLUMNS, *((name, "expression") for name in SUBSCRIPTION_COLUMNS)):
        assert read_columns(names) == list(names)
    check_messages(MESSAGE_COLUMNS)
    for missing in MESSAGE_COLUMNS:
        check_messages(tuple(name for name in MESSAGE_COLUMNS if name != missing))


@pytest.mark.parametrize(
    ("name", "known", "found"),
    [
        ("expire_at", ["expires_at"], "expires_at"),
        ("published", ["published_at"], None),
        ("test", ["text"], None),
        ("texts", ["text"], "text"),
        ("uid", ["id"], None),
        ("Id", ["id"], "id"),
        ("lot", ["lon", "lat"], None),
        ("radius m", ["radius_m"], "radius_m"),
        ("", ["id"], None),
        ("x" * 1000, ["id", "expression"], None),
    ],
)
def test_nearest(name, known, found):
    assert nearest(name, known) == found


def test_a_document_with_a_misspelt_field():
    with pytest.raises(
        ModelError, match=r"no field 'expresion'; did you mean expression\? its fields are id,"
    ):
        Subscription.from_json('{"id": 1, "expresion": "tea"}')
    with pytest.raises(ModelError, match="no field 'query'; its fields are id, expression, region"):
        Subscription.from_json('{"id": 1, "query": "tea"}')
