"""``nearcast bench covering``: the workload, the table, the figures, and wrong answers caught."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from benchmarks.papers import commands
from benchmarks.papers.covering import FIGURES, MODES
from nearcast.bench import covering, report
from nearcast.bench.covering_workloads import FullSetting, RectangleSetting, covering_scene
from nearcast.bench.experiments import Experiment
from nearcast.bench.floors import DEFAULT_FILE, read
from nearcast.cli import app
from nearcast.covering import RelationGraph
from nearcast.covering.graph import INDEXES

SIZES = ("--commands", 400, "--subscriptions", 300, "--repeat", 1, "--seed", 2)


@pytest.fixture
def bench():
    runner = CliRunner()
    return lambda *arguments: runner.invoke(app, ["bench", "covering", *map(str, arguments)])


@pytest.fixture
def papers():
    """Run ``python -m benchmarks covering``."""
    return lambda *arguments: CliRunner().invoke(commands.app, ["covering", *map(str, arguments)])


@pytest.fixture(scope="module")
def tiny():
    return covering_scene(400, 300)


def test_commands_subscribe_and_unsubscribe_as_often_as_said():
    made = RectangleSetting(3, 5000, 0.15).make(1).covering
    assert np.mean(made.log < 0) == pytest.approx(0.15, abs=0.02)
    assert len(made.subscriptions) == np.count_nonzero(made.log >= 0)
    assert np.array_equal(made.log, RectangleSetting(3, 5000, 0.15).make(1).covering.log)
    assert np.diff(made.subscriptions.clauses.test_runs)[:, 0].tolist() == [3] * len(made.subscriptions)


def test_full_subscriptions_have_words_and_up_to_three_tests(tiny):
    made = FullSetting(tiny.datasets[0], 500, 20).make(1).covering
    clauses = made.subscriptions.clauses
    assert set(np.diff(clauses.test_runs)[:, 0].tolist()) == {0, 1, 2, 3}
    assert set(np.diff(clauses.keyword_runs)[:, 0].tolist()) == {1, 2, 3, 4, 5}
    assert (len(made.subscriptions), len(made.newcomers)) == (500, 20)
    for row in range(500):
        tested = clauses.test_attributes[slice(*clauses.test_runs[row])]
        assert len(set(tested.tolist())) == len(tested)


def test_every_index_is_measured():
    assert {*covering.RECTANGLES, *covering.FULL} == set(INDEXES)


def test_the_table(bench, tmp_path):
    done = bench(*SIZES, "--json", tmp_path / "covering.json", "--plot", tmp_path / "covering.svg")
    assert done.exit_code == 0, done.output
    assert "400 commands on rectangles, p = 15%; 300 full subscriptions" in done.output
    document = json.loads((tmp_path / "covering.json").read_text())
    assert document["mismatches"] == []
    rows = {result["name"]: result for result in document["results"]}
    assert rows["scan, 16 dim."]["speedup_over"]["scan"] == 1
    assert rows["kd-tree, 6 dim."]["forwarded"] == rows["scan, 6 dim."]["forwarded"] > 0
    assert rows["forest, tweets-like"]["insert_microseconds"] > 0
    assert (tmp_path / "covering.svg").stat().st_size > 1000
    assert report.markdown(document).startswith("400 commands")


def test_all_figures(papers, tmp_path):
    done = papers(*SIZES, "--out", tmp_path, "--format", "markdown")
    assert done.exit_code == 0, done.output
    for name in FIGURES:
        assert (tmp_path / f"covering-{name}.svg").stat().st_size > 1000
        assert json.loads((tmp_path / f"covering-{name}.json").read_text())["mismatches"] == []
    assert "### Figure 10. Total run time, dimension = 6" in done.output
    assert "### Table 1. k-d tree under a heavy load" in done.output
    assert "### Subscriptions that must be forwarded" in done.output


def test_table_1_adds_up(tiny):
    points = covering.run(FIGURES["table1"](tiny), repeat=1)["points"]
    for k in MODES:
        row = {point["line"]: point["figure"] for point in points if point["x"] == k}
        assert row["nv"] == pytest.approx(row["nv_s"] + row["nv_u"])
        assert row["pc"] == pytest.approx(row["pc_s"] + row["pc_u"])


def test_an_index_that_finds_too_much_is_caught(tiny, monkeypatch):
    honest = RelationGraph.replay

    def wrong(self, *arguments):
        done = honest(self, *arguments)
        return done._replace(forward=~done.forward) if self._index.name == "z-curve" else done

    monkeypatch.setattr(RelationGraph, "replay", wrong)
    setting = tiny.rectangles(3, leaving=0.15)
    cells = [covering.CoveringCell(1, name, setting, name) for name in covering.RECTANGLES]
    body = covering.run(Experiment("0", "title", "x", cells, measures=("total_seconds",)), repeat=1)
    assert body["mismatches"] == ["z-curve at 1: command 0 is answered differently by kd-tree at 1"]


def test_a_forest_that_finds_nothing_is_caught(tiny, monkeypatch):
    monkeypatch.setattr(covering.RelationGraph, "use_index", lambda self, index: None)
    honest = RelationGraph.covering
    answers = iter([True] * 3 + [False])  # two at the warm-up, one measured, one scanned

    def forgetful(self, subs, k=None):
        found = honest(self, subs, k)
        if next(answers, True):
            return found
        return type(found)(np.zeros_like(found.offsets) + np.arange(len(found.offsets)), found.rows)

    monkeypatch.setattr(RelationGraph, "covering", forgetful)
    case = tiny.full(tiny.datasets[0]).make(0)
    _, problems = covering._full(case.covering, "tweets-like", 0, 1)
    assert problems
    assert "covers, not" in problems[0]


def test_the_floors_are_those_of_the_issue():
    floors = {
        (floor.conditions.get("index"), floor.conditions.get("workload"), floor.measure): floor
        for floor in read(DEFAULT_FILE)
        if floor.conditions["benchmark"] == "covering"
    }
    assert floors["kd-tree", "16 dimensions", "speedup_over.scan"].at_least >= 15
    assert floors["kd-tree", "6 dimensions", "speedup_over.scan"].at_least >= 2
    assert floors["z-curve", "16 dimensions", "speedup_over.scan"].at_least >= 5
    assert floors["forest", None, "microseconds"].at_most <= 100
    assert floors["forest", None, "insert_microseconds"].at_most <= 50
    assert floors["forest", None, "remove_microseconds"].at_most <= 50


def test_unknown_figure(papers):
    done = papers(*SIZES, "--figure", "13")
    assert done.exit_code != 0
    assert "no figure '13'" in done.output
