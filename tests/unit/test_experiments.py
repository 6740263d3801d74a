"""The papers' experiments: every figure runs, its points and pictures are there, and wrong answers are caught."""

import itertools
import json
import re
from dataclasses import replace

import numpy as np
import pytest
from typer.testing import CliRunner

from nearcast.bench import ap_tree_figures, experiments, lfilter_figures, plots, report, sampling, workloads
from nearcast.bench.experiments import Cell, Experiment
from nearcast.bench.scenes import scene
from nearcast.bench.workloads import Recipe
from nearcast.cli import app
from nearcast.columns import Matches
from nearcast.matching import INDEXES
from nearcast.matching.ranked_list import RankedList

FIGURES = [("ap-tree", name) for name in ap_tree_figures.FIGURES] + [
    ("lfilter", name) for name in lfilter_figures.FIGURES
]


class Forgetful(RankedList):
    """Wrong on purpose: loses the first match of the whole batch."""

    name = "forgetful"

    def match(self, batch, threads=1):
        found = super().match(batch, threads)
        return Matches(np.maximum(found.offsets - 1, 0), found.rows[1:])


class Mistaken(RankedList):
    """Wrong on purpose: as many matches as there should be, one of them another."""

    name = "mistaken"

    def match(self, batch, threads=1):
        found = super().match(batch, threads)
        rows = found.rows.copy()
        rows[-1:] += 1
        return Matches(found.offsets, rows)


@pytest.fixture
def bench():
    runner = CliRunner()
    return lambda *arguments: runner.invoke(app, ["bench", *(str(argument) for argument in arguments)])


@pytest.fixture(scope="module")
def tiny():
    return scene(600, 60)


def cells(setting, *indexes, **changes):
    return [Cell(1, index, setting, index, **changes) for index in indexes]


# --- The figures ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("benchmark", "figure"), FIGURES)
def test_every_figure_runs(bench, tmp_path, benchmark, figure):
    result = bench(
        benchmark, "--figure", figure, "--subscriptions", 300, "--messages", 30, "--repeat", 1,
        "--seed", 3, "--out", tmp_path / "out",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    assert f"Figure {figure}. " in result.stdout
    assert "matches" in result.stdout
    document = json.loads((tmp_path / "out" / f"{benchmark}-{figure}.json").read_text(encoding="utf-8"))
    assert (document["figure"], document["mismatches"]) == (figure, [])
    assert str(tmp_path) not in json.dumps(document)
    for point in document["points"]:
        assert point["seed"] == 3
        assert point["subscriptions"] >= 30
        assert 1 <= point["messages"] <= 30
        assert point["matches_per_message"] >= 0
        for measure in document["measures"]:
            assert point[measure] > 0
    picture = (tmp_path / "out" / f"{benchmark}-{figure}.svg").read_text(encoding="utf-8")
    assert picture.startswith("<?xml")


def test_every_point_of_a_figure_is_there_once(tiny):
    for figure in (*ap_tree_figures.FIGURES.values(), *lfilter_figures.FIGURES.values()):
        experiment = figure(tiny)
        places = [(cell.panel, cell.x, cell.line) for cell in experiment.cells]
        assert len(set(places)) == len(places)
        panels = {panel for panel, _, _ in places}
        for panel in panels:  # tables and pictures need them all
            inside = [place for place in places if place[0] == panel]
            xs, lines = {x for _, x, _ in inside}, {line for _, _, line in inside}
            assert set(inside) == {(panel, x, line) for x in xs for line in lines}
            assert experiment.baseline is None or experiment.baseline in lines


def test_real_data_stands_beside_the_synthetic(tmp_path, bench):
    assert [dataset.name for dataset in scene(10, 10).datasets] == [
        "tweets-like", "gn-like", "cars-like", "ais-like",
    ]  # fmt: skip
    missing = bench("ap-tree", "--data", tmp_path)
    assert missing.exit_code == 2
    assert "messages_tweets.parquet" in missing.stderr
    for file in ("messages_tweets.parquet", "places_gn.parquet"):
        (tmp_path / file).touch()
    with_data = scene(10, 10, tmp_path)
    assert [dataset.name for dataset in with_data.datasets] == [
        "tweets", "places", "tweets-like", "gn-like", "cars-like", "ais-like",
    ]  # fmt: skip
    assert (with_data.tweets.name, with_data.places.name) == ("tweets", "places")


# --- Running ----------------------------------------------------------------------------------------------------------


def test_run(tiny):
    setting = tiny.setting(tiny.tweets)
    told = []
    experiment = Experiment("0", "title", "x", cells(setting, "ranked-list", "scan"), baseline="scan")
    body = experiments.run(experiment, seed=4, repeat=1, progress=lambda *step: told.append(step))
    assert body["mismatches"] == []
    assert [point["line"] for point in body["points"]] == ["ranked-list", "scan"]
    made, _, messages = setting.make(4)
    expected = len(INDEXES["scan"](made.subscriptions).match(messages).rows)
    for point in body["points"]:
        assert point["matches_per_message"] == pytest.approx(expected / 60)
        assert (point["subscriptions"], point["clauses"], point["messages"]) == (600, 600, 60)
        assert point["facts"]["vocabulary"] == 1_700_000
        assert point["insert_microseconds"] is None
    shares = [share for _, share in told]
    assert shares == sorted(shares)
    assert shares[-1] == 1.0


def test_history_comes_before_the_measured_messages(tiny):
    setting = replace(tiny.setting(tiny.tweets), messages=5)
    made, history, messages = setting.make(0)
    assert (len(history), len(messages)) == (100_000 // 9, 5)
    assert np.array_equal(messages.probes.boxes, made.messages.probes.boxes[-5:])
    long = replace(setting, recipe=Recipe(message_keywords=1000)).make(0)
    assert len(long[1]) == 100


@pytest.mark.parametrize("boolean", [False, True])
def test_a_share_is_built_and_the_others_are_inserted(tiny, boolean):
    recipe = Recipe(keywords=(4, 4), boolean=True) if boolean else Recipe(drifting=True)
    setting = tiny.setting(tiny.tweets, recipe)
    both = [*cells(setting, "scan"), Cell(2, "late", setting, "ranked-list", built=0.1)]
    body = experiments.run(Experiment("0", "title", "x", both), repeat=1)
    assert body["mismatches"] == []
    whole, late = body["points"]
    assert whole["matches_per_message"] == late["matches_per_message"]
    assert late["insert_microseconds"] > 0


@pytest.mark.parametrize("wrong", [Forgetful, Mistaken])
def test_a_wrong_index_is_caught(tiny, monkeypatch, wrong):
    monkeypatch.setitem(INDEXES, wrong.name, wrong)
    setting = replace(tiny.setting(tiny.tweets), subscriptions=20_000)
    experiment = Experiment("0", "title", "x", cells(setting, wrong.name, "ranked-list"))
    body = experiments.run(experiment, repeat=1)
    assert any(text.startswith(f"{wrong.name} at 1: 1 of 20") for text in body["mismatches"]) == (
        wrong is Forgetful
    )
    # where the scan did not go, the others disagree
    assert any(f"differ from {wrong.name} at 1" in text for text in body["mismatches"])
    assert "DIFFER" in report.experiment_markdown(body)


def test_a_wrong_index_ends_the_command_with_1(bench, monkeypatch):
    monkeypatch.setitem(INDEXES, "auto", type("Auto", (Forgetful,), {"name": "auto"}))
    result = bench(
        "ap-tree", "--figure", "13", "--subscriptions", 20_000, "--messages", 30, "--repeat", 1, "--json", "-"
    )
    assert result.exit_code == 1
    assert "wrong answer figure 13, tweets-like auto at 1" in " ".join(result.stderr.split())
    (figure,) = json.loads(result.stdout)["figures"]  # nothing but JSON on stdout
    assert figure["mismatches"]


def test_a_slow_line_matches_fewer_messages(tiny):
    setting = tiny.setting(tiny.tweets)
    body = experiments.run(Experiment("0", "title", "x", cells(setting, "scan")), repeat=1, seconds=0.0)
    assert body["points"][0]["messages"] == 8


# --- Showing ----------------------------------------------------------------------------------------------------------


def body_of(**changes):
    points = [
        {"panel": panel, "x": x, "line": line, "subscriptions": 1000 * x, "matches_per_message": 2.0, "messages": 50,
         "microseconds_per_message": value * x, "build_seconds": 0.1}
        for panel in ("left", "right")
        for x in (1, 2)
        for line, value in (("a", 10.0), ("b", 25.0))
    ]  # fmt: skip
    return {
        "figure": "9",
        "title": "Two lines",
        "note": "smaller than theirs",
        "x": {"axis": "words", "logarithmic": False},
        "measures": {"microseconds_per_message": "µs a message", "build_seconds": "seconds to build"},
        "baseline": "a",
        "seed": 1,
        "repeat": 3,
        "points": points,
        "mismatches": [],
    } | changes


def test_markdown():
    text = report.experiment_markdown(body_of())
    assert text.startswith("### Figure 9. Two lines\n")
    assert "left, µs a message:" in text
    assert "| words | a | b | subs | matches |\n|---|--:|--:|--:|--:|\n" in text
    assert "| 2 | 20.0 (1×) | 50.0 (2.5×) | 2,000 | 2.00 |" in text
    assert (
        "50 messages, seed 1, the best of 3, one thread; matches: of a message; in brackets: times a.\nsmaller"
        in text
    )
    assert text.count("---|--:") == 4  # two panels, two measures


def test_pictures_repeat(tmp_path):
    for path in (tmp_path / "a.svg", tmp_path / "b.svg"):
        plots.draw_experiment(body_of(), path)
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("ap-tree", "--figure", "13,19"), "no figure '19'; there are 10a, 10b, 11,"),
        (("lfilter", "--figure", ","), "no figure ''; there are 7, 8, 9, 10, 11"),
        (("lfilter", "--json", "no-such-directory/run.json"), "its directory does not exist"),
        (("lfilter", "--out", "a-file"), "cannot write"),
        (("ap-tree", "--subscriptions", "0"), "--subscriptions"),
    ],
)
def test_usage_errors_end_with_2(bench, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a-file").touch()
    result = bench(*arguments)
    assert result.exit_code == 2
    assert message in " ".join(result.stderr.split())
    assert result.stdout == ""


@pytest.mark.parametrize("command", ["ap-tree", "lfilter"])
def test_help_has_an_example_and_the_figures(bench, command):
    text = " ".join(bench(command, "--help").stdout.split())
    assert f"nearcast bench {command}" in text
    figures = {"ap-tree": ap_tree_figures, "lfilter": lfilter_figures}[command].FIGURES
    words = re.split("[ │,;]+", text)
    assert set(figures) <= set(words)


# --- The workloads of the experiments ---------------------------------------------------------------------------------


def test_expressions_are_normal_forms_of_two_parts():
    owners, (offsets, positions) = sampling.expressions(np.random.default_rng(1), 4000, 4)
    assert np.array_equal(np.unique(owners), np.arange(4000))
    forms = {}
    for owner, (start, stop) in zip(owners.tolist(), itertools.pairwise(offsets.tolist())):
        forms.setdefault(owner, []).append(tuple(sorted(positions[start:stop].tolist())))
    seen = {tuple(sorted(form)) for form in forms.values()}
    assert ((0, 2, 3), (1, 2, 3)) in seen  # the paper's example: (w1 OR w2) AND w3 AND w4
    assert ((0, 1, 2, 3),) in seen
    assert ((0,), (1,), (2,), (3,)) in seen
    assert ((0, 1), (2, 3)) in seen  # two conjunctions, joined by OR
    assert ((0, 2), (0, 3), (1, 2), (1, 3)) in seen  # two disjunctions, joined by AND
    for form in seen:
        assert {word for clause in form for word in clause} == {0, 1, 2, 3}
        assert len(set(form)) == len(form)


def test_recipe():
    plain = workloads.ap_tree(400, 50, seed=2)
    asked = Recipe(
        keywords=(3, 3), area=(0.04, 0.04), drifting=True, message_keywords=40, message_area=(0.01, 0.02)
    )
    made = workloads.ap_tree(400, 50, seed=2, newcomers=10, recipe=asked)
    clauses, probes = made.subscriptions.clauses, made.messages.probes
    assert (np.diff(clauses.keyword_offsets) == 3).all()
    sides = clauses.boxes[:, 2:] - clauses.boxes[:, :2]
    assert np.allclose(sides, 0.2)
    assert (np.diff(probes.keyword_offsets) == 40).all()
    shares = (probes.boxes[:, 2:] - probes.boxes[:, :2]).prod(axis=1)
    assert shares.min() >= 0.01 - 1e-12
    assert shares.max() <= 0.02 + 1e-12
    west = clauses.boxes[:, 0]
    assert west[:100].mean() < west[-100:].mean() - 0.2  # they drift
    assert (len(made.subscriptions), len(made.newcomers)) == (400, 10)
    assert made.facts["message_area_share"] == [0.01, 0.02]
    assert plain.facts.keys() <= made.facts.keys()


def test_boolean_subscriptions():
    made = workloads.ap_tree(300, 10, seed=1, newcomers=20, recipe=Recipe(keywords=(5, 5), boolean=True))
    table = made.subscriptions
    assert (len(table), len(made.newcomers)) == (300, 20)
    assert len(table.owners) > 450
    for first, last in itertools.pairwise(np.searchsorted(table.owners, np.arange(301))):
        offsets = table.clauses.keyword_offsets
        words = set(table.clauses.keywords[offsets[first] : offsets[last]].tolist())
        assert len(words) == 5
        assert len(np.unique(table.clauses.boxes[first:last], axis=0)) == 1
    with pytest.raises(workloads.InputError, match="not 1 to 5"):
        workloads.ap_tree(3, 1, recipe=Recipe(boolean=True))
