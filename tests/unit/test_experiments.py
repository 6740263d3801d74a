"""The papers' experiments: every figure runs, its points and pictures are there, and wrong answers are caught."""

import itertools
import json
import math
import re
from dataclasses import replace

import numpy as np
import pytest
from typer.testing import CliRunner

from benchmarks.papers import ap_tree, commands, lfilter, mo_tree, running
from benchmarks.papers.mo_tree import AttributeScene
from benchmarks.papers.tables import figure_markdown
from nearcast import config, workloads
from nearcast.bench import attributes, changes, experiments, report
from nearcast.bench.attributes import AttributeSetting
from nearcast.bench.datasets import scene
from nearcast.bench.experiments import Cell, Experiment
from nearcast.cli import app
from nearcast.matching import INDEXES, STORES, build_index
from nearcast.matching.messages.scan import MessageScan
from nearcast.matching.structure import View
from nearcast.matching.structures.ranked_list import RankedList
from nearcast.matching.structures.scan import Scan
from nearcast.report import plots
from nearcast.workloads import Recipe, sampling
from profiles import shortened

PAPERS = {"ap-tree": ap_tree, "lfilter": lfilter, "attributes": mo_tree}
FIGURES = [(benchmark, name) for benchmark, paper in PAPERS.items() for name in paper.FIGURES]
FIRST = {(benchmark, next(iter(paper.FIGURES))) for benchmark, paper in PAPERS.items()}


class Forgetful(RankedList):
    """Wrong on purpose: loses the first match of the whole batch."""

    name = "forgetful"

    def view(self):
        search, arrays = super().view()[:2]

        def forget(arrays, probes, start, stop, answers, filled):
            done = search(arrays, probes, start, stop, answers, filled)
            ends, rows = answers.ends[start:done], answers.rows
            last = max(int(ends[-1]), filled + 1)
            rows[filled : last - 1] = rows[filled + 1 : last].copy()
            np.maximum(ends - 1, filled, out=ends)
            return done

        return View(forget, arrays)


class Mistaken(RankedList):
    """Wrong on purpose: as many matches as there should be, one of them another."""

    name = "mistaken"

    def view(self):
        search, arrays = super().view()[:2]

        def mistake(arrays, probes, start, stop, answers, filled):
            done = search(arrays, probes, start, stop, answers, filled)
            answers.rows[answers.ends[done - 1] - 1] ^= 1
            return done

        return View(mistake, arrays)


TINY = AttributeScene(subscriptions=300, messages=400, queries=40)


@pytest.fixture
def papers():
    """Run ``python -m benchmarks``."""
    return lambda *arguments: CliRunner().invoke(commands.app, [str(argument) for argument in arguments])


@pytest.fixture
def bench():
    """Run ``nearcast bench``."""
    return lambda *arguments: CliRunner().invoke(app, ["bench", *(str(argument) for argument in arguments)])


@pytest.fixture(scope="module")
def tiny():
    return scene(600, 60)


def cells(setting, *indexes, **changes):
    return [Cell(1, index, setting, index, **changes) for index in indexes]


# --- The figures ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("which", shortened(FIGURES, FIRST.__contains__), ids="-".join)
def test_every_figure_runs(papers, tmp_path, monkeypatch, which):
    benchmark, figure = which
    for name in ("GROWTH", "PREDICATES_TRIED", "EXPONENTS_TRIED"):  # the first and the last suffice
        monkeypatch.setattr(mo_tree, name, getattr(mo_tree, name)[:: len(getattr(mo_tree, name)) - 1])
    sizes = ("--messages", 30) if benchmark != "attributes" else ("--messages", 300, "--queries", 30)
    result = papers(
        benchmark, "--figure", figure, "--subscriptions", 300, *sizes, "--repeat", 1,
        "--seed", 3, "--out", tmp_path / "out",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    assert f"{'Table ' + figure[5:] if figure.startswith('table') else 'Figure ' + figure}. " in result.stdout
    assert "matches" in result.stdout
    assert f"Numba {report.versions()['numba']}" in result.stdout
    document = json.loads((tmp_path / "out" / f"{benchmark}-{figure}.json").read_text(encoding="utf-8"))
    assert (document["figure"], document["mismatches"]) == (figure, [])
    assert str(tmp_path) not in json.dumps(document)
    found = 0
    for point in document["points"]:
        assert point["seed"] == 3
        if point["index"]:
            assert point["subscriptions"] >= 30
            assert 1 <= point["messages"] <= 30
            found += point["matches_per_message"]
        if point["store"]:
            assert point["stored_messages"] >= 300
            assert 1 <= point["asking_subscriptions"] <= 30
            found += point["matches_per_subscription"]
        for measure in document["measures"]:
            assert point[measure] > 0
    assert found > 0 or benchmark == "attributes"  # 300 subscriptions with twenty intervals may match nothing
    picture = (tmp_path / "out" / f"{benchmark}-{figure}.svg").read_text(encoding="utf-8")
    assert picture.startswith("<?xml")


def test_every_point_of_a_figure_is_there_once(tiny):
    for benchmark, figure in FIGURES:
        experiment = PAPERS[benchmark].FIGURES[figure](TINY if benchmark == "attributes" else tiny)
        places = [(cell.panel, cell.x, cell.line) for cell in experiment.cells]
        assert len(set(places)) == len(places)
        panels = {panel for panel, _, _ in places}
        for panel in panels:  # tables and pictures need them all
            inside = [place for place in places if place[0] == panel]
            xs, lines = {x for _, x, _ in inside}, {line for _, _, line in inside}
            assert set(inside) == {(panel, x, line) for x in xs for line in lines}
            assert experiment.baseline is None or experiment.baseline in lines


def test_real_data_stands_beside_the_synthetic(tmp_path, papers):
    assert [dataset.name for dataset in scene(10, 10).datasets] == [
        "tweets-like", "gn-like", "cars-like", "ais-like",
    ]  # fmt: skip
    missing = papers("ap-tree", "--data", tmp_path)
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
    side = setting.make(4).index
    expected = len(build_index("scan", side.stored).match(side.queries).rows)
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
    side = setting.make(0).index
    assert (len(side.sample), len(side.queries)) == (100_000 // 9, 5)
    made = tiny.tweets.make(600, 100_000 // 9 + 5, seed=0)
    assert np.array_equal(side.queries.probes.boxes, made.messages.probes.boxes[-5:])
    long = replace(setting, recipe=Recipe(message_keywords=1000)).make(0)
    assert len(long.index.sample) == 100


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
    assert "DIFFER" in figure_markdown(body)


def test_a_wrong_index_ends_the_command_with_1(papers, monkeypatch):
    monkeypatch.setitem(INDEXES, "auto", type("Auto", (Forgetful,), {"name": "auto"}))
    result = papers(
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


# --- Attributes: indexes and stores, changes, memory ------------------------------------------------------------------


def test_a_setting_of_attributes():
    both = AttributeSetting(400, 300, 20, predicates=4).make(5)
    assert both.facts["predicates_per_subscription"] == 4
    for side, stored in ((both.index, 400), (both.store, 300)):
        assert [len(part) for part in side] == [stored, config.MO_HISTORY, 20, stored // 20]
    assert np.array_equal(np.diff(both.index.stored.clauses.test_runs)[:, 0], np.full(400, 4))
    alone = AttributeSetting(0, 300, 20, predicates=4).make(5)
    assert alone.index is None
    assert np.array_equal(alone.store.stored.probes.boxes, both.store.stored.probes.boxes)


def test_a_number_stands_for_its_pair_and_its_letters():
    known = list(mo_tree.FIGURES)
    assert running.figure_names("9,8,table5,12", known) == ["8-9", "table5a", "table5b", "12"]


def test_changes_are_made_and_checked():
    case = AttributeSetting(60_000, 3_000, 20).make(1)
    for name, side in (("mo-tree", case.index), ("mo-tree", case.store)):
        made = changes.make(side.stored, side.newcomers)
        count = len(side.newcomers)
        assert all(sum(call.rows for call in calls) == count for calls in made.values())
        assert [call.rows for call in made["insert"]][:2] == [1, min(count - 1, config.BENCH_BATCH)]
        ours, scan = side.built(name), side.built("scan")
        times, done = changes.apply(ours, made, math.inf)
        assert all(time > 0 for time in times.values())
        assert done == {kind: len(calls) for kind, calls in made.items()}
        changes.apply(scan, made, math.inf)
        assert len(ours) == len(scan) == len(side.stored)
        assert np.array_equal(ours.match(side.queries).sorted().rows, scan.match(side.queries).sorted().rows)
        hurried = changes.apply(side.built(name), made, 0.0)[1]
        assert set(hurried.values()) == {min(2, len(made["insert"]))}


def test_an_update_mostly_stays_in_its_place():
    table = AttributeSetting(300, 0, 5).make(0).index.stored
    moved = changes.nudged(table, np.random.default_rng(0))
    apart = moved.clauses.boxes - table.clauses.boxes
    sides = table.clauses.boxes[:, 2:] - table.clauses.boxes[:, :2]
    assert (np.abs(apart[:, :2]) <= config.EXPERIMENT_NUDGE * sides * 1.001).all()
    assert np.allclose(apart[:, :2], apart[:, 2:])
    assert (apart != 0).all()


class Stubborn(Scan):
    """Wrong on purpose: does not update."""

    name = "stubborn"

    def view(self):
        search, arrays = super().view()[:2]
        self.first = getattr(self, "first", copied(arrays))
        return View(search, self.first)


class Hoarding(MessageScan):
    """Wrong on purpose: does not remove."""

    name = "hoarding"

    def view(self):
        search, arrays = super().view()[:2]
        self.first = getattr(self, "first", copied(arrays))
        return View(search, self.first)


def copied(arrays):
    """Return a named tuple of arrays, and of such tuples, that no later change reaches."""
    return type(arrays)(*(copied(part) if isinstance(part, tuple) else part.copy() for part in arrays))


def test_wrong_answers_after_changes_are_caught(monkeypatch):
    monkeypatch.setitem(INDEXES, "stubborn", Stubborn)
    monkeypatch.setitem(STORES, "hoarding", Hoarding)
    monkeypatch.setattr(config, "EXPERIMENT_CHANGE_SHARE", 0.5)
    monkeypatch.setattr(config, "EXPERIMENT_NUDGE", 100.0)  # else hardly any answer would change
    monkeypatch.setattr(config, "EXPERIMENT_CHECKED", 200)
    setting = AttributeSetting(8_000, 8_000, 200, predicates=1)
    pair = [
        Cell(1, "index", setting, "stubborn", changes=True),
        Cell(1, "store", setting, None, store="hoarding", changes=True),
    ]
    body = experiments.run(Experiment("0", "title", "x", pair), repeat=1)
    first, second = body["mismatches"]
    assert re.match(r"index at 1: \d+ of 200 messages differ from the scan after the same changes", first)
    assert re.match(
        r"store at 1: \d+ of 200 subscriptions differ from the scan after the same changes", second
    )


def test_an_index_and_a_store_together():
    setting = AttributeSetting(500, 500, 20)
    three = [
        Cell(1, "index", setting, "scan"),
        Cell(1, "store", setting, None, store="scan"),
        Cell(1, "both", setting, "scan", store="scan"),
    ]
    index, store, both = experiments.run(Experiment("0", "title", "x", three), repeat=1)["points"]
    assert both["megabytes"] == pytest.approx(index["megabytes"] + store["megabytes"])
    assert both["matches_per_message"] == index["matches_per_message"]
    assert both["matches_per_subscription"] == store["matches_per_subscription"]
    assert (both["subscriptions"], both["stored_messages"]) == (500, 500)


def test_the_table_of_attributes(bench, tmp_path):
    sizes = ("--subscriptions", 400, "--messages", 300, "--queries", 30, "--repeat", 1, "--seed", 2)
    result = bench(
        "attributes", *sizes, "--inserted", "--json", tmp_path / "a.json", "--plot", tmp_path / "a.svg",
        "--check", "--floors", floors(tmp_path),
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    assert "400 subscriptions, 300 messages, mo-tree, seed 2, one thread" in result.stdout
    assert result.stdout.count("reached") == 2
    document = json.loads((tmp_path / "a.json").read_text(encoding="utf-8"))
    assert document["sizes"] == {"subscriptions": 400, "messages": 300}
    assert document["mismatches"] == []
    results = {result["index"]: result for result in document["results"]}
    inserted = [attributes.INSERTED, f"{attributes.INSERTED}-store"]
    stores = [f"{name}-store" for name in attributes.STORES]
    assert list(results) == [*attributes.INDEXES, *stores, *inserted]
    ours, theirs = results["mo-tree-store"], results["scan-store"]
    assert ours["speedup_over"]["scan"] == pytest.approx(theirs["microseconds"] / ours["microseconds"])
    for name in attributes.CHANGED:
        assert all(results[name][f"{kind}_microseconds"] > 0 for kind in ("insert", "remove", "update"))
    assert (tmp_path / "a.svg").read_text(encoding="utf-8").startswith("<?xml")
    text = report.markdown(document)
    assert "| store | queries | µs each | times mo-tree |" in text
    assert f"| mo-tree | 30 | {report.three_digits(ours['microseconds'])} | 1.00× |" in text


def floors(directory):
    """Write two floors that every run reaches."""
    file = directory / "floors.toml"
    file.write_text(
        """
        [[floor]]
        benchmark = "attributes"
        index = "mo-tree"
        subscriptions = 400
        measure = "speedup_over.scan"
        at_least = 0
        [[floor]]
        benchmark = "attributes"
        index = "mo-tree-store"
        messages = 300
        measure = "remove_microseconds"
        at_least = 0
        """,
        encoding="utf-8",
    )
    return file


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
        "stored": "subscriptions",
        "seed": 1,
        "repeat": 3,
        "threads": 1,
        "points": points,
        "mismatches": [],
    } | changes


def test_markdown():
    text = figure_markdown(body_of())
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
        (
            ("attributes", "--figure", "3"),
            "no figure '3'; there are 4, 5, 6, 7, table5a, table5b, 8-9, 10-11, 12",
        ),
        (("attributes", "--out", "a-file"), "it is not a directory"),
    ],
)
def test_usage_errors_end_with_2(papers, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a-file").touch()
    result = papers(*arguments)
    assert result.exit_code == 2
    assert message in " ".join(result.stderr.split())
    assert result.stdout == ""


@pytest.mark.parametrize("command", PAPERS)
def test_help_has_an_example_and_the_figures(papers, command):
    text = " ".join(papers(command, "--help").stdout.split())
    assert f"python -m benchmarks {command}" in text
    words = re.split("[ │,;]+", text)
    assert set(PAPERS[command].FIGURES) <= set(words)


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
    assert (np.diff(clauses.keyword_runs) == 3).all()
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
        runs = table.clauses.keyword_runs[first:last]
        words = set(table.clauses.keywords[runs[0, 0] : runs[-1, 1]].tolist())
        assert len(words) == 5
        assert len(np.unique(table.clauses.boxes[first:last], axis=0)) == 1
    with pytest.raises(workloads.InputError, match="cannot have 1 to 5 keywords"):
        workloads.ap_tree(3, 1, recipe=Recipe(boolean=True))
