"""The demo of moving subscribers: people, their ways, what they are told, and the page that shows it."""

import base64
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import nearcast
from naive import wants
from nearcast import Circle, Message, Point, Subscription
from nearcast.cli import app
from nearcast.clock import microseconds
from nearcast.demo import journeys, moving, sample
from nearcast.errors import InputError

MINUTE = 60_000_000
FILES = ("moving-deliveries.parquet", "moving.html")


@pytest.fixture(scope="module")
def people():
    return journeys.invent(sample("places"))


@pytest.fixture(scope="module")
def messages():
    return moving.points(sample("messages"))


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The command as a process, without Spark: its summary and its deliveries."""
    start = "import sys; sys.modules['pyspark'] = None; from nearcast.cli import main; main()"
    command = [sys.executable, "-c", start, "demo", "--moving", "--json"]
    here = {**os.environ, "PYTHONPATH": str(Path(nearcast.__file__).parents[1])}
    place = tmp_path_factory.mktemp("demo")
    result = subprocess.run(command, cwd=place, env=here, capture_output=True, text=True, timeout=280)
    assert result.returncode == 0, result.stderr
    summary = json.loads(result.stdout)
    assert summary["report_path"] == str(place.resolve() / "nearcast-demo" / "moving.html")
    return summary, pq.read_table(summary["deliveries_path"])


@pytest.fixture
def short(monkeypatch):
    """A day that ends at seven in the morning."""
    monkeypatch.setattr(journeys, "DAY", 7 * 60)
    monkeypatch.setattr(moving, "DAY", 7 * 60)


@pytest.fixture(scope="module")
def page(run):
    return Path(run[0]["report_path"]).read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def data(page):
    (block,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    return json.loads(block)


class TestPeople:
    def test_the_seed_decides(self, people):
        def plain(subscribers):
            return [(s.id, s.expression, s.mode, s.radius, s.way.tolist()) for s in subscribers]

        assert plain(journeys.invent(sample("places"))) == plain(people)
        assert plain(journeys.invent(sample("places"), seed=1)) != plain(people)

    def test_a_hundred_different_ones(self, people):
        assert len({person.id for person in people}) == 100
        assert {person.mode.name for person in people} == {"walks", "cycles", "drives"}
        assert all(300 <= person.radius <= 2_000 for person in people)

    def test_nobody_is_faster_than_stated(self, people):
        places = journeys.positions(people)
        assert places.shape == (journeys.DAY + 1, 100, 2)
        metres = np.diff(places, axis=0) * [111_195 * np.cos(np.radians(40.74)), 111_195]
        fastest = np.hypot(metres[..., 0], metres[..., 1]).max(axis=0) * 60 / 1000
        stated = np.array([person.mode.speed for person in people])
        assert (fastest <= stated * 1.001).all()
        assert (fastest > stated * 0.8).all()

    def test_everyone_stops_on_the_way_and_sleeps_at_home(self, people):
        for person in people:
            minutes, here = person.way[:, 0], person.way[:, 1:]
            assert (np.diff(minutes) >= 0).all()
            assert (np.diff(here, axis=0) == 0).all(axis=1).sum() >= 3
            assert (here[0] == here[-1]).all()


class TestDeliveries:
    def test_they_are_those_of_a_naive_replay(self, run, people, messages):
        """After a step, everyone has in reach what they want, near where they are, of what is valid."""
        _, deliveries = run
        places, told = journeys.positions(people), deliveries.to_pylist()
        rows = messages.to_pylist()
        for minute in (7 * 60, 11 * 60 + 17, 15 * 60 + 3, 20 * 60 + 44):
            now = moving.MIDNIGHT + minute * MINUTE
            reach = set()
            for row in told:
                if microseconds(row["at"]) <= now:
                    pair = (row["subscription_id"], row["message_id"])
                    reach.add(pair) if row["change"] == "+" else reach.remove(pair)
            valid = [
                as_message(row)
                for row in rows
                if microseconds(row["published_at"]) <= now < microseconds(row["expires_at"])
            ]
            expected = set()
            for person, (lon, lat) in list(zip(people, places[minute]))[::3]:
                circle = Circle(lon=lon, lat=lat, radius=person.radius)
                subscription = Subscription(person.id, person.expression, circle)
                expected |= {(person.id, message.id) for message in valid if wants(subscription, message)}
            asked = {person.id for person in people[::3]}
            assert {pair for pair in reach if pair[0] in asked} == expected
            assert len(valid) > 10

    def test_every_minus_follows_its_plus(self, run):
        reach, last = set(), moving.MIDNIGHT
        for row in run[1].to_pylist():
            pair, now = (row["subscription_id"], row["message_id"]), microseconds(row["at"])
            assert (row["change"] == "+") == (pair not in reach)
            reach ^= {pair}
            assert now >= last
            last = now

    def test_the_summary_counts_them(self, run):
        summary, deliveries = run
        kinds = list(zip(deliveries["change"].to_pylist(), deliveries["reason"].to_pylist()))
        counts = {
            "came_by_publish": kinds.count(("+", "publish")),
            "came_by_move": kinds.count(("+", "move")),
            "went_by_move": kinds.count(("-", "move")),
            "went_by_expire": kinds.count(("-", "expire")),
        }
        assert {name: summary[name] for name in counts} == counts
        assert sum(counts.values()) == len(deliveries)
        assert min(counts.values()) > 100

    def test_a_run_can_be_repeated(self, short, tmp_path):
        told = []
        for name in "ab":
            summary = moving.run(tmp_path / name, told.append)
        for file in FILES:
            assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()
        assert told[-1].share == 1
        assert told[-1].deliveries == pq.read_metadata(summary.deliveries_path).num_rows > 0


class TestPage:
    def test_it_has_what_the_run_made(self, run, data, people, messages):
        told = {
            name: np.frombuffer(base64.b64decode(text), "<i4") for name, text in data["deliveries"].items()
        }
        deliveries = run[1].to_pydict()
        for name, column, among in (
            ("subscriber", "subscription_id", data["subscribers"]["id"]),
            ("message", "message_id", data["messages"]["id"]),
            ("change", "change", data["changes"]),
            ("reason", "reason", data["reasons"]),
        ):
            assert [among[row] for row in told[name]] == deliveries[column]
        seconds = [microseconds(at) // 1_000_000 - data["midnight"] for at in deliveries["at"]]
        assert told["at"].tolist() == seconds
        assert data["messages"]["text"] == messages["text"].to_pylist()
        assert data["subscribers"]["way"] == [person.way.tolist() for person in people]
        assert data["subscribers"]["radius"] == [person.radius for person in people]

    def test_nothing_is_loaded(self, page):
        assert set(re.findall(r"https?://[^\"' )]+", page)) == {"http://www.w3.org/2000/svg"}  # a namespace
        assert not re.search(
            r"<link|<img|<iframe|\ssrc=|@import|url\(|fetch\(|XMLHttpRequest|WebSocket|\bimport\b", page
        )
        assert "default-src 'none'" in page
        assert "__NEARCAST" not in page
        assert len(page.encode()) < 1_500_000

    def test_text_is_never_markup(self, page):
        assert page.count("<script") == 2
        assert not re.search(
            r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", page
        )

    def test_sizes_of_text_follow_the_reader(self, page):
        assert not re.search(r"font(-size)?: [^;]*\dpx", page)


class TestCommand:
    def test_the_table_and_the_place_of_the_page(self, short, tmp_path, monkeypatch):
        """What the other demo made stays."""
        monkeypatch.chdir(tmp_path)
        made = tmp_path / "nearcast-demo"
        made.mkdir()
        (made / ".nearcast-demo").touch()
        (made / "report.html").write_text("the report")
        result = CliRunner().invoke(app, ["demo", "--moving"])
        assert result.exit_code == 0, result.stderr
        assert "45 walk, 30 cycle, 25 drive" in result.stdout
        assert "nearcast-demo/moving-deliveries.parquet" in result.stdout
        assert result.stderr.endswith("open nearcast-demo/moving.html in a browser to see it on a map\n")
        assert (made / "report.html").read_text() == "the report"
        assert {child.name for child in made.iterdir()} >= set(FILES)

    def test_nothing_else_is_touched(self, tmp_path):
        (tmp_path / "precious").write_text("mine")
        with pytest.raises(InputError, match="was not made by nearcast demo"):
            moving.run(tmp_path)
        assert [child.name for child in tmp_path.iterdir()] == ["precious"]


def as_message(row):
    values = {name: row[name] for name in ("category", "price", "rating") if row[name] is not None}
    return Message(row["id"], row["text"], Point(lon=row["lon"], lat=row["lat"]), values)
