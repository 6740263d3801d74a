"""``nearcast bench dskype``: what distributions for top-k store and send."""

import json

import pytest
from typer.testing import CliRunner

from nearcast import config
from nearcast.bench.floors import DEFAULT_FILE, read
from nearcast.cli import app
from nearcast.sharding.ranked import RANKED_DISTRIBUTIONS

SIZES = ("--subscriptions", 300, "--window", 400, "--messages", 200, "--k", 5, "--seed", 2)


@pytest.fixture(scope="module")
def document(tmp_path_factory):
    home = tmp_path_factory.mktemp("dskype")
    arguments = ["bench", "dskype", *SIZES, "--json", home / "it.json", "--plot", home / "it.svg"]
    ran = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert ran.exit_code == 0, ran.output
    assert "location-prefix" in ran.output
    assert (home / "it.svg").read_text(encoding="utf-8").startswith("<?xml")
    return json.loads((home / "it.json").read_text(encoding="utf-8"))


def test_every_distribution_and_number_of_shards(document):
    first = [row for row in document["results"] if row["side"] == document["workload"]["name"]]
    assert [(row["name"], row["shards"]) for row in first] == [
        (name, shards) for shards in config.DSKYPE_SHARDS for name in RANKED_DISTRIBUTIONS
    ]
    others = {(row["side"], row["name"]) for row in document["results"] if row not in first}
    assert len(others) == 2 * len(RANKED_DISTRIBUTIONS)


def test_the_figures_fit_together(document):
    """Tables 2 and 5: hashing and location send everything everywhere, and the copies of a prefix are the fewer."""
    rows = {(row["side"], row["name"], row["shards"]): row for row in document["results"]}
    for (side, name, shards), row in rows.items():
        if name in ("hash", "location"):
            assert (row["replication"], row["sent"], row["sent_share"]) == (1.0, shards, 1.0)
        assert row["sent_share"] == pytest.approx(row["sent"] / shards)
        assert row["skew"] >= 1.0
        if name == "prefix":
            assert row["replication"] <= rows[side, "keyword", shards]["replication"]
            assert row["sent"] <= rows[side, "keyword", shards]["sent"]


def test_the_floors_name_rows_of_the_table(document):
    ours = [floor for floor in read(DEFAULT_FILE) if floor.conditions["benchmark"] == "dskype"]
    assert len(ours) == 2
    for floor in ours:
        assert any(row["index"] == floor.conditions["index"] for row in document["results"])
        assert all(floor.measure in row for row in document["results"])
