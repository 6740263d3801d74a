"""Names of columns on Spark: mistakes and their messages, dots and backticks, capitals."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.types import StructType

from nearcast.errors import ColumnError, NearcastWarning
from nearcast.sharding.replica import CHANGE, CHANGED_AT
from nearcast.spark import Live, build, good_rows, match, prepare, profile, quarantined_rows
from nearcast.spark.live.changes import STAMPS, resolve
from nearcast.spark.live.records import check_columns as check_schemas
from nearcast.spark.reading import other_fields, parse_records

pytestmark = pytest.mark.spark

DOORS = {
    "match": lambda rows, spark, home: match(spark.createDataFrame(MESSAGES), rows, index_dir=home),
    "shards": lambda rows, spark, home: build(rows, home, shards=2),
    "build": lambda rows, spark, home: build(rows, home),
    "live": lambda rows, spark, home: Live(home, rows),
    "profile": lambda rows, spark, home: profile(home, subscriptions=rows),
    "prepare": lambda rows, spark, home: prepare(rows, "subscriptions"),
}
MESSAGES = pa.table({"id": [1, 2], "lon": [0.0, 0.0], "lat": [0.0, 0.0], "text": ["tea", "milk"]})


@pytest.mark.parametrize("door", DOORS.values(), ids=DOORS)
def test_subscriptions_at_every_door(spark, tmp_path, door):
    """The same as in tests/unit/test_column_names.py, which tests the entry points without Spark."""
    rows = spark.createDataFrame([("a", "tea", "x")], "id string, expression string, note string")
    for columns, said in (
        (["id"], "subscriptions need a column expression or keywords; the columns are id. For every message, write *"),
        (["id", "expression AS query"], "there is 'query': did you mean expression?"),
        (["id", "expression", "0D AS lattitude"], "no column 'lattitude'; did you mean lat?"),
        (["id", "expression", "'CIRCLE (9 9, 5 km)' AS region"], "no column 'region'; did you mean geometry?"),
        (["id", "expression", "0D AS west"], "no column 'west'; did you mean xmin?"),
    ):  # fmt: skip
        with pytest.raises(ColumnError) as error:
            door(rows.selectExpr(*columns), spark, tmp_path)
        assert said in str(error.value)
    with pytest.warns(NearcastWarning, match="left out 'note'; a subscription has id, expression") as told:
        door(rows, spark, tmp_path)
    assert [each.filename for each in told if each.category is NearcastWarning] == [__file__]


def test_no_keywords_are_not_every_message(spark, tmp_path):
    """As in tables of one process; a star asks for everything."""
    rows = spark.createDataFrame(
        [("a", ["tea"]), ("b", []), ("c", None), ("d", ["*"])], "id string, keywords array<string>"
    )
    done = prepare(rows, "subscriptions").orderBy("id").collect()
    assert [row["reason"] for row in done] == [None, "keywords", "keywords", None]
    assert done[1]["detail"] == "the subscription has no keywords; write * for every message"
    good = good_rows(prepare(rows, "subscriptions"))
    assert ids(match(spark.createDataFrame(MESSAGES), good, index_dir=tmp_path)) == [
        (1, "a"),
        (1, "d"),
        (2, "d"),
    ]
    with pytest.raises(Exception, match="has no keywords; write \\* for every message"):
        match(spark.createDataFrame(MESSAGES), rows, index_dir=tmp_path / "raw").collect()


def test_columns_left_out_make_no_other_version(spark, tmp_path):
    rows = spark.createDataFrame([("a", "tea", "x")], "id string, expression string, note string")
    with pytest.warns(NearcastWarning, match="left out 'note'"):
        version = build(rows, tmp_path)
    assert build(rows.drop("note"), tmp_path) == version


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"txt": ["tea"], "lon": [0.0], "lat": [0.0]}, "a column 'txt' and no text; did you mean text?"),
        ({"text": ["tea"], "lng": [0.0], "lat": [0.0]}, "a column 'lng' and no lon; did you mean lon?"),
        ({"text": ["tea"], "lon": [0.0], "lat": [0.0], "expire_at": [5]}, "did you mean expires_at?"),
        ({"ID": [1], "text": ["tea"], "lon": [0.0], "lat": [0.0]}, "messages need a column id; .* mean 'ID'"),
    ],
)
def test_messages_at_every_door(spark, tmp_path, columns, said):
    columns = columns if "ID" in columns else {"id": [1], **columns}
    messages = spark.createDataFrame(pa.table(columns))
    subscriptions = spark.createDataFrame([("a", "tea")], "id string, expression string")
    version = build(subscriptions, tmp_path)
    stream = lambda schema: spark.readStream.schema(schema).parquet(str(tmp_path))  # noqa: E731
    changes = stream("change string, id string, changed_at long")
    for door in (
        lambda: Live(tmp_path / "live", subscriptions).start(
            stream(messages.schema), changes, print, checkpoint=tmp_path / "c"
        ),
        lambda: match(messages, version),
        lambda: prepare(messages, "messages"),
        lambda: profile(tmp_path / "profile", messages=messages),
    ):
        with pytest.raises(ColumnError, match=said.replace("?", r"\?")):
            door()


STRANGE = ["half.price", "a.b.c", "tick`s", "sp ace", "id.x"]


@pytest.fixture
def strange(spark):
    """Subscriptions that ask for attributes with strange names, and messages that have them."""
    asked = [f"`{name.replace('`', '``')}` < 3" for name in STRANGE]
    subscriptions = pa.table({"id": [f"s{i}" for i in range(len(STRANGE))], "expression": asked})
    values = {name: pa.array([2.0 if i == j else 5.0 for j in range(5)]) for i, name in enumerate(STRANGE)}
    messages = pa.table(
        {"id": list(range(5)), "text": [""] * 5, "lon": [0.0] * 5, "lat": [0.0] * 5, **values}
    )
    return spark.createDataFrame(messages), spark.createDataFrame(subscriptions)


def ids(deliveries):
    return sorted((row["message_id"], row["subscription_id"]) for row in deliveries.collect())


EXPECTED = [(i, f"s{i}") for i in range(5)]


@pytest.mark.parametrize("shards", [None, 2])
def test_attributes_with_dots(strange, tmp_path, shards):
    messages, subscriptions = strange
    assert ids(match(messages, subscriptions, shards=shards, index_dir=tmp_path)) == EXPECTED


def test_prepared_attributes_with_dots(spark, strange, tmp_path):
    messages, subscriptions = strange
    done = prepare(messages, "messages")
    assert set(STRANGE) < set(done.columns)
    assert quarantined_rows(done).count() == 0
    assert ids(match(good_rows(done), subscriptions, index_dir=tmp_path)) == EXPECTED
    counted = profile(tmp_path / "profile", messages=messages, subscriptions=subscriptions)
    assert set(counted.attributes()["attribute"].to_pylist()) == set(STRANGE)
    build(subscriptions, tmp_path / "built", shards=2, profile=tmp_path / "profile")


def test_live_attributes_with_dots(spark, strange, tmp_path):
    """Also for the attributes of messages that are kept for later subscriptions."""
    messages, subscriptions = strange
    (tmp_path / "changes").mkdir()
    first = messages.withColumns({"expires_at": messages.id + 10**18, "published_at": messages.id})
    first.coalesce(1).write.parquet(str(tmp_path / "messages"))
    schema = "id string, expression string, change string, changed_at long"
    late = pa.table(
        {"id": ["late"], "expression": ["`a.b.c` < 3"], "change": ["subscribe"], "changed_at": [1]}
    )
    found = []

    def run():
        live = Live(tmp_path / "live", subscriptions)
        arriving = spark.readStream.schema(first.schema).parquet(str(tmp_path / "messages"))
        changes = spark.readStream.schema(schema).parquet(str(tmp_path / "changes"))

        def write(frame, number):
            told = frame.select("message_id", "subscription_id", "reason")
            found.extend(tuple(row) for row in told.collect())

        query = live.start(arriving, changes, write, checkpoint=tmp_path / "c", availableNow=True)
        query.awaitTermination()

    run()
    assert sorted(found) == [(*pair, "publish") for pair in EXPECTED]
    found.clear()
    pq.write_table(late, tmp_path / "changes" / "1.parquet")
    run()
    assert found == [(1, "late", "subscribe")]


def test_names_are_told_apart_by_case(spark, tmp_path):
    """A column that differs from an attribute by case only does not satisfy it, and a warning says so."""
    messages = spark.createDataFrame([(1, 0.0, 0.0, 2.0)], "id long, lon double, lat double, Price double")
    asking = spark.createDataFrame([("a", "price < 3"), ("b", "Price < 3")], "id string, expression string")
    with pytest.warns(NearcastWarning, match="a column 'Price', and subscriptions ask for 'price'") as told:
        small = match(messages, asking.where("id = 'a'"), index_dir=tmp_path)
    assert [each.category for each in told].count(NearcastWarning) == 1
    assert ids(small) == []
    assert ids(match(messages, asking, index_dir=tmp_path)) == [(1, "b")]  # somebody asks for Price
    live = Live(tmp_path / "live", asking.where("id = 'a'"))
    messages.write.parquet(str(tmp_path / "messages"))
    arriving = spark.readStream.schema(messages.schema).parquet(str(tmp_path / "messages"))
    changes = spark.readStream.schema("id string, change string, changed_at long").parquet(
        str(tmp_path / "messages")
    )
    with pytest.warns(NearcastWarning, match="a column 'Price', and subscriptions ask for 'price'"):
        live.start(arriving, changes, print, checkpoint=tmp_path / "c", availableNow=True).stop()


class TestChanges:
    def test_names(self):
        own = ["change", "changed_at", "id"]

        def check_columns(records, subscriptions):
            kinds = {"changed_at": pa.int64(), **dict.fromkeys(("lon", "lat", "radius_m"), pa.float64())}
            schemas = (
                pa.schema([(name, kinds.get(name, pa.string())) for name in names])
                for names in (records, subscriptions)
            )
            check_schemas(*schemas)

        check_columns([*own, "lon", "lat", "radius_m"], ["id", "expression", "lon", "lat", "radius_m"])
        for name, said in (
            ("expresion", "did you mean expression"),
            (
                "query",
                "subscriptions need a column expression or keywords; there is 'query': did you mean expression",
            ),
            ("tags", "there is 'tags': did you mean keywords"),
            ("latitude", "did you mean lat"),
        ):
            with pytest.raises(ColumnError, match=said):
                check_columns([*own, name], ["id", "expression"])
        with pytest.raises(
            ColumnError, match=r"changes need a column changed_at; .* did you mean 'changedat'"
        ):
            check_columns(["change", "changedat", "id"], ["id", "expression"])
        with pytest.warns(NearcastWarning, match="changes: left out 'note'; a subscription has"):
            check_columns([*own, "note", "expression"], ["id", "expression"])

    @pytest.mark.parametrize(
        ("words", "kind"), [("expression", pa.string()), ("keywords", pa.list_(pa.string()))]
    )
    @pytest.mark.parametrize("there", [True, False], ids=["null", "missing"])
    def test_a_record_that_says_nothing_does_not_get_everything(self, words, kind, there):
        """Moves and departures need no words; newcomers and updates do."""
        schema = pa.schema([("id", pa.string()), (words, kind), ("lon", pa.float64()), ("lat", pa.float64()),
                            ("radius_m", pa.float64())])  # fmt: skip
        before = {
            "id": "a",
            words: "tea" if words == "expression" else ["tea"],
            "lon": 0.0,
            "lat": 0.0,
            "radius_m": 5.0,
        }
        records = pa.table(
            {
                "change": ["subscribe", "update", "move", "unsubscribe"],
                "id": ["new", "a", "a", "b"],
                "changed_at": [1, 2, 3, 4],
                "lon": [1.0, 1.0, 2.0, None],
                "lat": [1.0, 1.0, 2.0, None],
                "radius_m": [1.0, 1.0, 2.0, None],
                **({words: pa.nulls(4, kind)} if there else {}),
            }
        )
        known = pa.schema([*schema, (CHANGE, pa.string()), (CHANGED_AT, STAMPS)])
        there = pa.Table.from_pylist([before, {**before, "id": "b"}], known)
        done = resolve(records, schema, lambda ids: there.filter(pa.compute.is_in(there["id"], ids)), 0)
        assert [(row["id"], row["reason"]) for row in done.refused.to_pylist()] == [
            ("new", words),
            ("a", words),
        ]
        assert all(f"has no {words}" in row["detail"] for row in done.refused.to_pylist())
        moved, gone = done.delta.to_pylist()
        assert (moved["id"], moved[words], moved["lon"]) == ("a", before[words], 2.0)
        assert (gone["id"], gone["_change"]) == ("b", "unsubscribe")


def test_fields_of_json_objects_beside_those_of_the_schema(spark):
    """The fields of records in bytes, as in Kafka; a record that is not an object has none."""
    values = [b'{"id": 1, "lattitude": 2, "more": {"id": 3}}', b'{"id": 1}', b"{oops", b"[1]", b"\xff", None]
    fields = StructType.fromDDL("id long, lat double")
    records = spark.createDataFrame([(value,) for value in values], "value binary")
    found = parse_records(records, fields, other_fields(fields).alias("others")).collect()
    assert [(row["id"], row["others"]) for row in found[:2]] == [(1, ["lattitude", "more"]), (1, [])]
    assert [row["_corrupt_record"] for row in found] == [None, None, "{oops", "[1]", "\ufffd", ""]
    assert not any(row["others"] for row in found[2:])
