"""``nearcast bench topk``: the workload, the table, the figures, and wrong results caught."""

import itertools
import json
import math
import re

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from benchmarks.papers import commands, skype
from benchmarks.papers.tables import figure_markdown
from nearcast import config
from nearcast.bench import report, topk, topk_answers
from nearcast.bench.experiments import Experiment
from nearcast.bench.floors import DEFAULT_FILE, read
from nearcast.bench.topk import RankingCell
from nearcast.bench.topk_workloads import ranking_scene
from nearcast.cli import app
from nearcast.ranking.blocks import Blocks
from nearcast.ranking.choices import FINDERS
from nearcast.ranking.finder import Hits
from nearcast.ranking.windows import CountWindow, TimeWindow

SIZES = ("--subscriptions", 300, "--window", 400, "--messages", 200, "--k", 5, "--repeat", 1, "--seed", 2)


class Forgetful(Blocks):
    """Wrong on purpose: half of what it finds is lost."""

    name = "forgetful"

    def find(self, *arguments):
        return half_of(super().find(*arguments))


def half_of(found):
    gone = len(found.rows) // 2
    offsets = np.maximum(found.offsets - gone, 0)
    return Hits(offsets, found.rows[gone:], found.scores[gone:], found.counters)


@pytest.fixture
def bench():
    runner = CliRunner()
    return lambda *arguments: runner.invoke(
        app, ["bench", "topk", *(str(argument) for argument in arguments)]
    )


@pytest.fixture
def papers():
    """Run ``python -m benchmarks topk``."""
    return lambda *arguments: CliRunner().invoke(commands.app, ["topk", *map(str, arguments)])


@pytest.fixture(scope="module")
def tiny():
    return ranking_scene(300, 400, 200, 5)


def one(setting, *cells):
    lines = [RankingCell(1, line, setting, index) for line, index in cells]
    return Experiment("0", "title", "x", lines, measures=("amp_microseconds",))


# --- The workload -----------------------------------------------------------------------------------------------------


def test_a_subscription_comes_from_a_message(tiny):
    case = tiny.setting().make(3)
    stream = case.ranking
    points, words, alphas = stream.wishes
    assert len(points) == len(alphas) == len(words.offsets) - 1 == 300
    assert set(np.diff(words.offsets).tolist()) == {1, 2, 3, 4, 5}
    assert 0 <= alphas.min() < 0.1 < 0.9 < alphas.max() <= 1
    assert (stream.size, len(stream.messages), stream.window, stream.k) == (400, 600, CountWindow(400), 5)
    assert (stream.frequencies.documents, stream.frequencies.counts.sum()) == (400, 400 * 9)
    assert (case.facts["window"], case.facts["k"]) == (400, 5)
    again = tiny.setting().make(3).ranking
    assert np.array_equal(again.wishes.alphas, alphas)
    assert not np.array_equal(tiny.setting().make(4).ranking.wishes.alphas, alphas)


def test_words_of_a_fixed_number_or_by_a_zipf_law(tiny):
    fixed = tiny.setting(keywords=(3, 3)).make(0).ranking
    assert set(np.diff(fixed.wishes.words.offsets).tolist()) == {3}
    plain, drawn = (tiny.setting(zipf=zipf).make(0).ranking for zipf in (False, True))
    offsets, words = drawn.wishes.words
    assert np.array_equal(offsets, plain.wishes.words.offsets)
    window = drawn.messages.take(np.arange(400)).probes.keywords
    assert np.isin(words, window).all()
    for begin, end in itertools.pairwise(offsets):
        assert len(set(words[begin:end].tolist())) == end - begin
    assert np.bincount(words).argmax() == np.bincount(window).argmax()


def test_a_window_of_time_holds_as_many(tiny):
    stream = tiny.setting(timed=True).make(0).ranking
    assert stream.window == TimeWindow(400)
    start = topk.Start(stream, RankingCell(1, "a", tiny.setting(), "blocks"), 1)
    assert start.top.stats()["window"] == 400
    few = stream.first(50)
    assert (len(few.wishes.points), few.size, len(few.messages), few.window) == (50, 50, 100, TimeWindow(50))


def test_real_data_lies_on_the_globe(tmp_path):
    rng = np.random.default_rng(0)
    texts = [" ".join(f"w{word}" for word in rng.zipf(1.5, 6) % 50) for _ in range(2_000)]
    points = rng.uniform((-120, 30), (-70, 45), (2_000, 2))
    for file, columns in (
        ("messages_tweets.parquet", {"text": texts}),
        ("places_gn.parquet", dict.fromkeys(("name", "feature_class", "admin2", "admin1"), texts)),
    ):
        pq.write_table(pa.table({"lon": points[:, 0], "lat": points[:, 1], **columns}), tmp_path / file)
    scene = ranking_scene(1_500, 400, 100, 5, tmp_path)  # so many that indexes are laid out
    assert [dataset.name for dataset in scene.datasets] == ["tweets", "places", "cars-like"]
    assert scene.setting().make(0).ranking.max_distance == config.TOPK_FAR_M
    body = topk.compare(scene, repeat=1)
    assert body["mismatches"] == []
    assert all(row["index_megabytes"] > 0 for row in body["results"])


# --- Running ----------------------------------------------------------------------------------------------------------


def test_run(tiny):
    told = []
    lines = one(tiny.setting(), ("blocks", "blocks"), ("ciq", "ciq"), ("again", "blocks"))
    body = topk.run(lines, seed=1, repeat=2, progress=lambda *step: told.append(step))
    assert body["mismatches"] == []
    blocks, ciq, again = body["points"]
    for point in body["points"]:
        assert (point["subscriptions"], point["window"], point["messages"]) == (300, 400, 200)
        for name in ("entered", "re_evaluations"):
            assert point[f"{name}_per_message"] == blocks[f"{name}_per_message"]
        assert point["average_buffer"] == blocks["average_buffer"] > 0
        assert point["processing_microseconds"] >= point["amp_microseconds"] > 0
        assert point["messages_per_second"] > 0
        assert point["megabytes"] > point["index_megabytes"]
    assert again["amp_microseconds"] == blocks["amp_microseconds"]  # measured once
    assert (ciq["index"], ciq["buffer"], ciq["dataset"]) == ("ciq", "cost-based", "tweets-like")
    shares = [share for _, share in told]
    assert shares == sorted(shares)
    assert shares[-1] == 1.0


def test_a_slow_one_publishes_fewer_messages(tiny, monkeypatch):
    monkeypatch.setattr(config, "TOPK_BATCH", 40)
    setting = tiny.setting()
    body = topk.run(one(setting, ("blocks", "blocks")), repeat=2, seconds=0.0)
    assert body["points"][0]["messages"] == 40
    assert topk.run(one(setting, ("blocks", "blocks")), repeat=1)["points"][0]["messages"] == 200


def test_a_wrong_index_is_caught(tiny, monkeypatch):
    monkeypatch.setitem(FINDERS, "forgetful", Forgetful)
    first = topk.run(one(tiny.setting(), ("forgetful", "forgetful"), ("blocks", "blocks")), repeat=1)
    assert any("blocks at 1, after 200 messages" in text for text in first["mismatches"])
    second = topk.run(one(tiny.setting(), ("blocks", "blocks"), ("forgetful", "forgetful")), repeat=1)
    (text,) = second["mismatches"]
    assert text.startswith("forgetful at 1, after 200 messages: ")
    assert "subscriptions differ from blocks at 1" in text
    assert "DIFFER" in figure_markdown(second)


def test_naive_results_catch_what_all_have_in_common(tiny, monkeypatch):
    """Where all are wrong alike, nothing but the naive evaluation can tell."""
    stream = tiny.setting().make(0).ranking
    cell = RankingCell(1, "blocks", tiny.setting(), "blocks")
    start = topk.Start(stream, cell, 1)
    answers = topk_answers.RankedAnswers(stream)
    assert topk.RankingTrial(stream, cell, start, math.inf).turn(start.top, answers) == []
    row = next(row for row in range(300) if len(start.top.results(row)[0]) == 5)
    assert topk_answers._wrong(stream, start.top, row, 200) is None
    held = start.top._results.buffers.table
    held.scores[held.starts[row]] += 1e-9
    assert "has the score" in topk_answers._wrong(stream, start.top, row, 200)
    held.scores[held.starts[row]] -= 1e-9
    keys = held.keys[held.starts[row] : held.starts[row] + 2]
    keys[:] = keys[::-1].copy()
    assert topk_answers._wrong(stream, start.top, row, 200) is not None
    held.counts[row] = 3
    assert topk_answers._wrong(stream, start.top, row, 200) == "has 3 results, not 5"


# --- The table --------------------------------------------------------------------------------------------------------


def test_the_table(bench, tmp_path):
    floors = tmp_path / "floors.toml"
    floors.write_text(
        '[[floor]]\nbenchmark = "topk"\nindex = "blocks"\nwindow = 400\n'
        'measure = "amp_speedup_over.ciq"\nat_least = 0\n',
        encoding="utf-8",
    )
    result = bench(
        *SIZES,
        "--json",
        tmp_path / "topk.json",
        "--plot",
        tmp_path / "topk.svg",
        "--check",
        "--floors",
        floors,
    )
    assert result.exit_code == 0, result.output
    assert "300 subscriptions, window of 400 messages, k = 5" in result.stdout
    assert "blocks amp_speedup_over.ciq" in result.stdout
    document = json.loads((tmp_path / "topk.json").read_text(encoding="utf-8"))
    assert document["sizes"] == {"subscriptions": 300, "window": 400, "messages": 200}
    sides = [(row["side"], row["name"]) for row in document["results"]]
    assert sides == [
        *(("index", name) for name in ("blocks", "igpt", "ipt", "ciq")),
        *(("buffer", name) for name in ("cost-based", "kmax", "skyband")),
    ]
    rows = {row["index"]: row for row in document["results"]}
    for kind in ("amp", "emp"):
        ratio = rows["kmax"][f"{kind}_microseconds"] / rows["blocks"][f"{kind}_microseconds"]
        assert rows["blocks"][f"{kind}_speedup_over"]["kmax"] == pytest.approx(ratio)
    assert rows["blocks"]["average_buffer_in_k"] == pytest.approx(rows["blocks"]["average_buffer"] / 5)
    assert (tmp_path / "topk.svg").read_text(encoding="utf-8").startswith("<?xml")
    assert "| buffer | messages | AMP µs | EMP µs |" in report.markdown(document)


def test_the_floors_of_the_repository_name_what_is_measured(tiny):
    body = topk.compare(tiny, repeat=1)
    rows = {row["index"]: row for row in body["results"]}
    ours = [floor for floor in read(DEFAULT_FILE) if floor.conditions["benchmark"] == "topk"]
    assert ours
    for floor in ours:
        name, _, member = floor.measure.partition(".")
        value = rows[floor.conditions["index"]][name]
        assert math.isfinite(value[member] if member else value)


def test_a_wrong_index_ends_the_command_with_1(bench, monkeypatch):
    monkeypatch.setitem(FINDERS, "ciq", type("CIQ", (Forgetful,), {"name": "ciq"}))
    result = bench(*SIZES, "--json", "-")
    assert result.exit_code == 1
    assert "wrong answer ciq at index" in " ".join(result.stderr.split())
    assert json.loads(result.stdout)["mismatches"]


# --- The figures ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("figure", skype.FIGURES)
def test_every_point_of_a_figure_is_there_once(tiny, figure):
    experiment = skype.FIGURES[figure](tiny)
    assert experiment.figure == figure
    places = [(cell.x, cell.line) for cell in experiment.cells]
    xs, lines = {x for x, _ in places}, {line for _, line in places}
    assert len(places) == len(xs) * len(lines) == len(set(places))
    assert experiment.baseline is None or experiment.baseline in lines
    assert len({cell.system + str(cell.setting) for cell in experiment.cells}) >= len(xs)


def test_what_figures_vary(tiny):
    def settings(figure):
        return list(dict.fromkeys(cell.setting for cell in skype.FIGURES[figure](tiny).cells))

    assert [setting.keywords for setting in settings("15")] == [(n, n) for n in range(1, 6)]
    assert [setting.k for setting in settings("16")] == [10, 20, 30, 40, 50]
    assert [setting.subscriptions for setting in settings("17")] == [300 * n for n in range(1, 6)]
    assert [setting.window for setting in settings("18")] == [400 * n for n in range(1, 6)]
    assert [setting.name for setting in settings("13")] == ["tweets-like", "gn-like", "cars-like"]
    assert all(setting.zipf for setting in settings("19"))
    assert all(setting.timed for setting in settings("20"))
    sizes = [cell.x for cell in skype.FIGURES["10a"](tiny).cells if cell.line == "kmax"]
    assert sizes == [5, 10, 15, 20, 25, 30]


@pytest.mark.parametrize("figure", ["10b", "14", "20"])
def test_figures_run(papers, tmp_path, monkeypatch, figure):
    for name in ("SKYBAND_TRIED", "K_TRIED"):
        monkeypatch.setattr(skype, name, getattr(skype, name)[:2])
    result = papers("--figure", figure, *SIZES, "--out", tmp_path, "--format", "markdown")
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith(f"### Figure {figure}. ")
    assert "200 messages, seed 2, the best of 1, one thread; entered: of a message" in result.stdout
    document = json.loads((tmp_path / f"topk-{figure}.json").read_text(encoding="utf-8"))
    assert (document["figure"], document["mismatches"]) == (figure, [])
    assert all(point[name] >= 0 for point in document["points"] for name in document["measures"])
    assert (tmp_path / f"topk-{figure}.svg").read_text(encoding="utf-8").startswith("<?xml")


def test_usage(bench, papers, tmp_path):
    assert "nearcast bench topk --subscriptions" in " ".join(bench("--help").stdout.split())
    text = " ".join(papers("--help").stdout.split())
    for name in skype.FIGURES:
        assert re.search(rf"\b{name}[,;]", text)
    missing = bench("--data", tmp_path)
    assert (missing.exit_code, "messages_tweets.parquet" in missing.stderr) == (2, True)


def test_only_some_rows(bench):
    done = bench(*SIZES, "--only", "blocks,kmax", "--json", "-")
    assert [result["name"] for result in json.loads(done.stdout)["results"]] == ["blocks", "kmax"]
    assert "no index or buffer 'ir-tree'; there are blocks, igpt" in bench(*SIZES, "--only", "ir-tree").output


# --- Calls ------------------------------------------------------------------------------------------------------------

CALLS = ("--subscriptions", 300, "--window", 400, "--calls", "20,50", "--k", 5, "--repeat", 1, "--seed", 2)


@pytest.fixture
def calls():
    """Run ``nearcast bench topk-calls``."""
    return lambda *arguments: CliRunner().invoke(app, ["bench", "topk-calls", *map(str, arguments)])


def test_calls_of_all_sizes_and_threads_are_measured(calls, tmp_path):
    done = calls(*CALLS, "--json", tmp_path / "run.json")
    assert done.exit_code == 0, done.output
    assert "the results are right on a sample" in done.stdout
    document = json.loads((tmp_path / "run.json").read_text())
    assert document["sizes"] == {"subscriptions": 300, "window": 400, "messages": 2 * 2 * 2 * 50}
    *published, weighted, equal = document["results"]
    assert [row["index"] for row in published] == [
        f"publish {size}, {threads}" for size in (20, 50) for threads in ("1 thread", "2 threads")
    ]
    best = max(row["messages_per_second"] for row in published if row["threads"] == 1)
    for row in published:
        assert row["messages_per_second"] * row["microseconds"] == pytest.approx(1e6)
        assert row["speedup_over_one_thread"] == pytest.approx(row["messages_per_second"] / best)
        assert row["arrow_microseconds"] > 0
    for row in (weighted, equal):
        assert row["single_microseconds"] > row["microseconds"] > 0
    assert "no floor applies" in calls(*CALLS, "--check").stdout


def test_calls_that_give_wrong_results_are_caught(calls, monkeypatch):
    whole = Blocks.find
    monkeypatch.setattr(Blocks, "find", lambda *given: half_of(whole(*given)))
    done = calls(*CALLS)
    assert done.exit_code == 1
    assert "wrong answer" in done.stderr


@pytest.mark.parametrize("sizes", ["", "0", "many", "10,-5"])
def test_sizes_of_calls_are_checked(calls, sizes):
    done = calls("--calls", sizes)
    assert done.exit_code == 2
    assert "give whole numbers from 1" in str(done.exception) + done.output
