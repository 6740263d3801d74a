"""``nearcast bench moving`` and the figures: sound figures, wrong answers caught, commands."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from benchmarks.papers import commands
from benchmarks.papers import moving as paper
from nearcast import config
from nearcast.bench import floors, moving
from nearcast.bench.experiments import Experiment
from nearcast.bench.moving import MovingCell
from nearcast.bench.moving_answers import MovingAnswers, Serials, StepAnswers, naive_answers
from nearcast.bench.moving_workloads import moving_scene
from nearcast.cli import app
from nearcast.columns import Matches
from nearcast.matching import build_index, build_store
from nearcast.matching.moving import MOVING, Changes
from nearcast.matching.moving.pair import Pair
from profiles import shortened

REPOSITORY = Path(__file__).parents[2]
SIZES = ("--subscriptions", 400, "--messages", 600, "--steps", 3, "--repeat", 1, "--seed", 2)


def scans(subscriptions, messages):
    """Return a pair that gives message rows out again at other times: the scan meets every expired message."""
    return Pair(build_index("scan", subscriptions), build_store("scan", messages))


class Forgetful(Pair):
    """Wrong on purpose: nothing goes out of reach."""

    def move(self, picks, regions, now):
        came, went = super().move(picks, regions, now)
        return Changes(came, Matches(np.zeros_like(went.offsets), went.rows[:0]))


class Mistaken(Pair):
    """Wrong on purpose: as many matches as there should be, the last of them another."""

    def publish(self, batch, now):
        found, rows = super().publish(batch, now)
        if len(found.rows):
            found.rows[-1] ^= 1
        return found, rows


@pytest.fixture(scope="module")
def dense():
    """A small workload in which many messages come and go: large regions."""
    return moving_scene(4000, 3000, 3).setting(area=0.05)


def measured(setting, *names, **options):
    cells = [MovingCell("", name, setting, name, moves=70) for name in names]
    return moving.run(Experiment("", "", "", cells, measures=("msp_microseconds",)), seed=2, **options)


@pytest.fixture
def bench():
    runner = CliRunner()
    return lambda *arguments: runner.invoke(app, ["bench", "moving", *map(str, arguments)])


@pytest.fixture
def papers():
    return lambda *arguments: CliRunner().invoke(commands.app, ["moving", *map(str, arguments)])


# --- Answers ----------------------------------------------------------------------------------------------------------


def test_naive_answers_have_something_to_compare(dense):
    found = naive_answers(dense.make(2).moving, [1, 2])
    assert list(found) == [1, 2]
    for answers in found.values():
        for kind in ("came", "went", "matches"):
            assert 25 <= len(answers[kind]) <= config.MOVING_CHECKED
            assert set(range(25)) <= set(answers[kind])  # the first ones,
            assert sum(map(len, answers[kind].values())) > 5, kind  # and some with answers
        for query, came in answers["came"].items():
            assert not set(came) & set(answers["went"][query])
    # In step 1 only messages of the beginning can come.
    assert max(max(came, default=0) for came in found[1]["came"].values()) < 3000


def test_indexes_agree_though_their_rows_differ(dense, monkeypatch):
    monkeypatch.setitem(MOVING, "scans", scans)
    body = measured(dense, "auto", "scans", repeat=2)
    assert body["mismatches"] == []
    one, other = body["points"]
    for name in ("matches_per_message", "came_per_move", "went_per_move"):
        assert one[name] == other[name] > 0.05


@pytest.mark.parametrize(("wrong", "kind"), [(Forgetful, "went"), (Mistaken, "matches")])
def test_wrong_answers_are_caught(dense, monkeypatch, wrong, kind):
    monkeypatch.setitem(
        MOVING, "wrong", lambda subs, batch: wrong(build_index("auto", subs), build_store("auto", batch))
    )
    problems = measured(dense, "auto", "wrong")["mismatches"]
    assert all(problem.startswith("wrong at") for problem in problems)
    assert re.search(f"step 1 has .* {kind}, .* as auto at", problems[-1])


def test_naive_answers_alone_suffice(dense, monkeypatch):
    monkeypatch.setitem(
        MOVING, "wrong", lambda subs, batch: Forgetful(build_index("auto", subs), build_store("auto", batch))
    )
    problems = measured(dense, "wrong")["mismatches"]
    assert problems[0].endswith("went of step 1 differ from naive answers")


def test_serial_numbers():
    serials = Serials(2)
    serials.arrived(np.array([5, -1, 0], np.int32))  # serial numbers 2, 3 and 4
    found = serials.of(Matches(np.array([0, 2, 3]), np.array([0, 1, 5], np.int32)))
    assert found.rows.tolist() == [4, 1, 2]


def test_answers_differ_by_count_and_by_content():
    def answered(*rows):
        answers = StepAnswers()
        answers.add("came", Matches(np.array([0, len(rows)]), np.array(rows, np.int64)))
        return answers

    assert answered(1, 2).difference(answered(2, 1)) is None
    assert answered(1, 2).difference(answered(1)) == "2 came, not 1"
    assert answered(1, 2).difference(answered(1, 3)) == "2 came, equally many, but different ones"


def test_the_longest_answers_are_kept(dense):
    answers = MovingAnswers(dense.make(2).moving, 0)
    full = [StepAnswers(), StepAnswers()]
    full[1].add("went", Matches(np.array([0, 1]), np.array([3])))
    assert answers.compared("short", full[:1]) == []
    assert answers.compared("long", full) == []
    assert answers.compared("other", [StepAnswers(), StepAnswers()]) == [
        "other: step 2 has 0 went, not 1 as long"
    ]


# --- Figures ----------------------------------------------------------------------------------------------------------


def test_a_slow_index_replays_fewer_steps(dense):
    (point,) = measured(dense, "auto", seconds=0.0, repeat=2)["points"]
    assert point["steps"] == 1
    assert point["moves"] == 400


def test_memory_is_compared_with_that_of_a_settled_index(dense, monkeypatch):
    monkeypatch.setattr(config, "MOVING_SETTLED", 2)
    (point,) = measured(dense, "auto")["points"]
    assert 0.9 < point["bytes_growth"] < 1.2
    assert isinstance(point["resident_growth"], float)
    monkeypatch.setattr(config, "MOVING_SETTLED", 3)  # the last step: nothing has followed
    (point,) = measured(dense, "auto")["points"]
    assert point["bytes_growth"] is None


def test_the_table(bench, tmp_path, monkeypatch):
    monkeypatch.setitem(MOVING, "scratch", scans)
    monkeypatch.setitem(MOVING, "mo-tree-scratch", scans)
    monkeypatch.setitem(MOVING, "ss-index", scans)
    result = bench(
        *SIZES, "--index", "auto,ss-index", "--json", tmp_path / "m.json", "--plot", tmp_path / "m.svg"
    )
    assert result.exit_code == 0, result.output
    for text in ("seed 2", "400 subscriptions", "600 valid messages", "match: ap-tree", "insert: store"):
        assert text in result.stdout
    body = json.loads((tmp_path / "m.json").read_text())
    assert body["sizes"] == {"subscriptions": 400, "messages": 600, "steps": 3}
    rows = {row["index"]: row for row in body["results"]}
    auto = rows["auto"]
    # Those from scratch are always there.
    assert list(rows)[:4] == ["auto", "ss-index", "scratch", "mo-tree-scratch"]
    for name in ("ss-index", "scratch", "mo-tree-scratch"):
        expected = rows[name]["msp_median_microseconds"] / auto["msp_median_microseconds"]
        assert auto["msp_speedup_over"][name] == pytest.approx(expected)
        assert auto["memory_of"][name] == pytest.approx(rows[name]["megabytes"] / auto["megabytes"])
    for ours, others in (("msp_speedup_over_rivals", "msp_speedup_over"), ("memory_of_rivals", "memory_of")):
        assert auto[ours] == auto[others]["ss-index"]
        assert rows["ss-index"][ours] is None
    still = rows["match: auto"]["median_microseconds"] + rows["insert: store"]["median_microseconds"]
    assert auto["imm_over_stationary"] == pytest.approx(auto["imm_median_microseconds"] / still)
    expected = auto["imm_median_microseconds"] - auto["match_microseconds"]
    assert auto["mi_microseconds"] == pytest.approx(expected)
    assert auto["slu_microseconds"] > 0
    engine = rows["Engine.move"]["median_microseconds"] / rows["auto, bare"]["median_microseconds"]
    assert rows["Engine.move"]["over_structure"] == pytest.approx(engine)
    assert (tmp_path / "m.svg").stat().st_size > 2000


@pytest.mark.parametrize(
    ("index", "figures", "passed"),
    [
        ("auto", {"msp_speedup_over": {"mo-tree-scratch": 7.9, "scratch": 1.1}}, [False, False]),
        ("auto", {"msp_speedup_over": {"scratch": 1.3}, "msp_speedup_over_rivals": 0.7}, [True, False]),
        ("auto", {"msp_speedup_over_rivals": 1.1, "memory_of_rivals": 1.9}, [True, False]),
        ("auto", {"imm_over_stationary": 1.6, "bytes_growth": 1.2}, [False, False]),
        ("ap-plus-tree", {"imm_over_stationary": 1.9, "resident_growth": 0.2}, [True, False]),
        ("ap-plus-tree", {"imm_over_stationary": 2.1}, [False]),
        ("Engine.move", {"over_structure": 2.1}, [False]),
    ],
)
def test_the_floors_of_the_repository(index, figures, passed):
    names = ("msp_speedup_over_rivals", "memory_of_rivals", "imm_over_stationary", "bytes_growth")
    document = {
        "benchmark": "moving",
        "workload": {"name": "tweets-like-town"},
        "threads": 1,
        "sizes": {"subscriptions": 1_000_000, "messages": 1_000_000, "steps": 100},
        "results": [
            {"index": index, "msp_speedup_over": {}, **dict.fromkeys((*names, "resident_growth")), **figures}
        ],
    }
    kept = floors.read(REPOSITORY / "benchmarks" / "floors.toml")
    assert [verdict.passed for verdict in floors.check(document, kept)] == passed


@pytest.mark.parametrize("figure", shortened(list(paper.FIGURES), lambda name: name == "19"))
def test_every_figure_runs(papers, tmp_path, monkeypatch, figure):
    for name in ("MOBILITY_TRIED", "SPEED_TRIED", "AREA_TRIED", "GROWTH"):  # the first and the last suffice
        monkeypatch.setattr(paper, name, getattr(paper, name)[::4])
    result = papers("--figure", figure, *SIZES, "--out", tmp_path / "out")
    assert result.exit_code == 0, result.output
    assert f"Figure {figure}. " in result.stdout
    document = json.loads((tmp_path / "out" / f"moving-{figure}.json").read_text(encoding="utf-8"))
    assert (document["figure"], document["mismatches"]) == (figure, [])
    assert {point["line"] for point in document["points"]} >= {"auto"}
    assert {point["steps"] for point in document["points"]} == {3}
    for point in document["points"]:
        for measure in document["measures"]:
            assert np.isfinite(point[measure])
    assert (tmp_path / "out" / f"moving-{figure}.svg").stat().st_size > 2000


def test_the_figures_vary_what_they_say(monkeypatch):
    for name in (*paper.INDEXES, *paper.VARIANTS):
        monkeypatch.setitem(MOVING, name, scans)
    scene = moving_scene(1000, 2000, 3)
    made = {name: build(scene) for name, build in paper.FIGURES.items()}
    for experiment in made.values():
        places = [(cell.panel, cell.x, cell.line) for cell in experiment.cells]
        assert len(set(places)) == len(places)
        assert experiment.baseline == "ap-plus-tree"
    assert {cell.index for cell in made["20"].cells} == set(paper.VARIANTS)
    assert {cell.index for cell in made["21"].cells} == set(paper.INDEXES)
    assert len({cell.setting for cell in made["21"].cells}) == 4
    assert {cell.setting.mobility for cell in made["22"].cells} == {0.1, 0.2, 0.4, 0.6, 0.8}
    assert {cell.setting.speed for cell in made["23"].cells} == {0.5, 1, 2, 3, 4}
    assert {cell.setting.area for cell in made["24"].cells} == {1e-8, 1e-6, 1e-4, 1e-2, 0.1}
    assert {(c.setting.subscriptions, c.setting.valid) for c in made["25"].cells} == {
        (500, 1000), (1000, 2000), (1500, 3000), (2000, 4000), (2500, 5000),
    }  # fmt: skip


# --- Commands ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--index", "auto,nope"), "no moving index 'nope'; there are auto"),
        (("--workload", "nope"), "no messages 'nope'; there are tweets-like, gn-like"),
        (("--roads", "nope"), "no roads 'nope'; there are town, county"),
        (("--roads", "oldenburg"), "--data DIR"),
        (("--mobility", "0"), "mobility is a share above 0"),
        (("--steps", "0"), "--steps"),
    ],
)
def test_usage_errors_end_with_2(bench, arguments, message):
    result = bench(*SIZES, *arguments)
    assert result.exit_code == 2
    assert message in " ".join(result.stderr.split())
    assert result.stdout == ""


def test_help_has_an_example_and_the_figures(bench, papers):
    text = " ".join(bench("--help").stdout.split())
    assert "nearcast bench moving --subscriptions" in text
    assert "python -m benchmarks moving" in text
    words = re.split("[ │,;]+", " ".join(papers("--help").stdout.split()))
    assert set(paper.FIGURES) <= set(words)
