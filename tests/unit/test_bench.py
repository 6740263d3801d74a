"""The benchmark harness: honest figures, wrong answers caught, floors, pictures, commands."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from nearcast import workloads
from nearcast.bench import floors, matching, measure, pictures, report, vocabulary
from nearcast.cli import app
from nearcast.columns import MessageBatch
from nearcast.columns.vocabulary import Vocabulary
from nearcast.errors import InputError, RuntimeUnavailableError, UnknownError
from nearcast.matching import INDEXES, build_index
from nearcast.matching.structure import View
from nearcast.matching.structures.ranked_list import RankedList
from nearcast.report import plots

REPOSITORY = Path(__file__).parents[2]


class Forgetful(RankedList):
    """Wrong on purpose: loses the last match of the whole batch."""

    name = "forgetful"

    def view(self):
        search, arrays = super().view()[:2]

        def forget(arrays, probes, start, stop, answers, filled):
            done = search(arrays, probes, start, stop, answers, filled)
            ends = answers.ends[start:done]
            np.minimum(ends, max(ends[-1] - 1, filled), out=ends)
            return done

        return View(forget, arrays)


class Inventive(RankedList):
    """Wrong on purpose: adds subscription 0 to the last message of a large batch."""

    name = "inventive"

    def view(self):
        search, arrays = super().view()[:2]

        def invent(arrays, probes, start, stop, answers, filled):
            done = search(arrays, probes, start, stop, answers, filled)
            if stop >= 100:
                answers.rows[answers.ends[stop - 1]] = 0
                answers.ends[stop - 1] += 1
            return done

        return View(invent, arrays)


@pytest.fixture(scope="module")
def small():
    return workloads.ap_tree(3000, 120, seed=3, newcomers=50, vocabulary=300)


@pytest.fixture(scope="module")
def document(small):
    body = matching.run(small, ["ranked-list"], repeat=1, singles=20)
    return report.document("matching", "nearcast bench matching", body)


# --- Matching ---------------------------------------------------------------------------------------------------------


def test_matching_report(small, document):
    text = report.to_json(document)
    assert json.loads(text) == document
    assert document["schema_version"] == 1
    assert document["mismatches"] == []
    assert document["checked_messages"] == 120
    assert document["sizes"] == {"subscriptions": 3000, "messages": 120}
    assert document["workload"]["facts"]["vocabulary"] == 300
    assert set(document["versions"]) == {"python", "nearcast", "numpy", "numba", "pyarrow"}
    assert set(document["machine"]) == {"processor", "cores", "memory_bytes", "system"}
    clauses, probes = small.subscriptions.clauses, small.messages.probes
    points, boxes = probes.boxes[:, None, :2], clauses.boxes[None]
    inside = ((points >= boxes[..., :2]) & (points <= boxes[..., 2:])).all(axis=2)
    expected = sum(
        set(clauses.keywords[slice(*clauses.keyword_runs[s])].tolist())
        <= set(probes.keywords[probes.keyword_offsets[m] : probes.keyword_offsets[m + 1]].tolist())
        for m, s in np.argwhere(inside)
    )
    assert expected > 100
    assert document["matches_per_message"] == pytest.approx(expected / 120)
    assert document["selectivity"] == pytest.approx(expected / 120 / 3000)


def test_matching_ratios(document):
    scan, ranked = document["results"]
    assert (scan["index"], ranked["index"]) == ("scan", "ranked-list")
    floor = document["floor"]["microseconds_per_message"]
    for result in (scan, ranked):
        own = result["microseconds_per_message"]
        assert result["speedup_over"]["scan"] == pytest.approx(scan["microseconds_per_message"] / own)
        assert result["over_floor"] == pytest.approx(own / floor)
        assert result["messages_per_second"] == pytest.approx(1e6 / own)
        latency = result["single_message_microseconds"]
        assert 0 < latency["p50"] <= latency["p99"]
        assert latency["messages"] == 20
        assert result["build_seconds"] > 0
        assert result["bytes_per_subscription"] > 32  # a box alone
        assert result["insert_microseconds"] > 0
        assert result["remove_microseconds"] > 0


def test_the_scan_is_always_there_and_time_boxed(small):
    told = []
    body = matching.run(
        small,
        [],
        repeat=1,
        scan_seconds=0.0,
        singles=3,
        progress=lambda text, share: told.append((text, share)),
    )
    assert [result["index"] for result in body["results"]] == ["scan"]
    assert body["checked_messages"] == body["results"][0]["messages_matched"] == 8
    shares = [share for _, share in told]
    assert shares == sorted(shares)
    assert shares[-1] == 1.0


def test_a_wrong_index_is_caught(small, monkeypatch):
    monkeypatch.setitem(INDEXES, "forgetful", Forgetful)
    body = matching.run(small, ["forgetful"], repeat=1, singles=3)
    assert len(body["mismatches"]) == 1
    assert "forgetful against scan: message" in body["mismatches"][0]
    assert "lacks 1" in body["mismatches"][0]


def test_invented_matches_are_caught_where_the_scan_did_not_go(small, monkeypatch):
    monkeypatch.setitem(INDEXES, "inventive", Inventive)
    body = matching.run(small, ["inventive", "ranked-list"], repeat=1, scan_seconds=0.0, singles=3)
    assert body["checked_messages"] == 8
    assert any("do not satisfy" in text for text in body["mismatches"])
    assert any("ranked-list against inventive: message 119" in text for text in body["mismatches"])


def test_attributes_and_threads():
    made = workloads.mo_tree(2000, 150, seed=2, newcomers=20)
    # regions as wide as the city, or hardly anything would match
    made.subscriptions.clauses.boxes[:] = [0, 0, 100, 100]
    body = matching.run(made, ["ranked-list"], threads=2, repeat=1, singles=3)
    assert body["mismatches"] == []
    assert body["matches_per_message"] > 0.5


def test_the_floor_writes_what_it_was_told(small):
    found = build_index("scan", small.subscriptions).match(small.messages).sorted()
    out = np.zeros_like(found.rows)
    arguments = (small.subscriptions.clauses, small.messages.probes, found.offsets)
    assert matching.touch(*arguments, found.rows, 0, 120, out) == len(out)
    assert np.array_equal(out, found.rows)
    wrong = np.roll(found.rows, 1)
    assert matching.touch(*arguments, wrong, 0, 120, out) < len(out)


# --- Vocabulary -------------------------------------------------------------------------------------------------------


def test_vocabulary():
    body = vocabulary.run(vocabulary=2000, keywords=5000, repeat=1)
    assert body["mismatches"] == []
    assert len(body["results"]) == 8
    assert all(result["keywords_per_second"] > 0 for result in body["results"])
    text = report.to_json(report.document("vocabulary", "nearcast bench vocabulary", body))
    assert json.loads(text)["sizes"] == {"words": 2000, "keywords": 5000}


def test_wrong_codes_are_caught(monkeypatch):
    monkeypatch.setattr(Vocabulary, "encode", lambda _self, strings: np.zeros(len(strings), np.int32))
    body = vocabulary.run(vocabulary=2000, keywords=5000, repeat=1)
    assert [text.split(":")[0] for text in body["mismatches"]] == ["zipf", "uniform"]


# --- Measuring --------------------------------------------------------------------------------------------------------


def test_best_of_calls_as_often_as_told():
    calls = []
    seconds, answer = measure.best_of(3, lambda: calls.append(1) or len(calls))
    assert (len(calls), answer) == (3, 3)
    assert 0 <= seconds < 1


def test_the_document_names_neither_machine_nor_path(document):
    import platform

    text = report.to_json(document)
    assert platform.node() not in text or len(platform.node()) < 4
    assert str(Path.home()) not in text or str(Path.home()) == "/"
    assert str(REPOSITORY) not in text


# --- Floors -----------------------------------------------------------------------------------------------------------


def run_of(**changes):
    result = {"index": "ranked-list", "over_floor": 4.0, "speedup_over": {"scan": 60.0}}
    return {
        "benchmark": "matching",
        "workload": {"name": "ap-tree"},
        "threads": 1,
        "sizes": {"subscriptions": 1_000_000, "messages": 20_000},
        "results": [result],
    } | changes


def floors_in(tmp_path, text):
    file = tmp_path / "floors.toml"
    file.write_text(text, encoding="utf-8")
    return floors.read(file)


FLOOR = '[[floor]]\nbenchmark = "matching"\nindex = "ranked-list"\nworkload = "ap-tree"\nthreads = 1\n'


@pytest.mark.parametrize(
    ("lines", "passed"),
    [
        ('measure = "speedup_over.scan"\nat_least = 50', [True]),
        ('measure = "speedup_over.scan"\nat_least = 60.0', [True]),  # reaching it is enough
        ('measure = "speedup_over.scan"\nat_least = 61', [False]),
        ('measure = "over_floor"\nat_most = 5', [True]),
        ('measure = "over_floor"\nat_most = 3.9', [False]),
        ('measure = "over_floor"\nat_least = 3\nat_most = 3.9', [False]),
        ('subscriptions = 1_000_000\nmeasure = "over_floor"\nat_most = 5', [True]),
        ('subscriptions = 1_000_001\nmeasure = "over_floor"\nat_most = 5', []),  # for larger runs only
        ('subscriptions_up_to = 999_999\nmeasure = "over_floor"\nat_most = 5', []),  # for smaller runs only
        ('subscriptions_up_to = 1_000_000\nmeasure = "over_floor"\nat_most = 5', [True]),
        ('keywords = 5\nmeasure = "over_floor"\nat_most = 5', []),  # a size that the run does not have
        ('measure = "speedup_over.ap-tree"\nat_least = 2', []),  # a rival that was not in the run
    ],
)
def test_floors(tmp_path, lines, passed):
    verdicts = floors.check(run_of(), floors_in(tmp_path, FLOOR + lines))
    assert [verdict.passed for verdict in verdicts] == passed


@pytest.mark.parametrize(
    "changes",
    [{"benchmark": "vocabulary"}, {"workload": {"name": "tweets"}}, {"threads": 2}, {"results": []}],
)
def test_floors_that_do_not_apply(tmp_path, changes):
    read = floors_in(tmp_path, FLOOR + 'measure = "over_floor"\nat_most = 1')
    assert len(floors.check(run_of(), read)) == 1
    assert floors.check(run_of(**changes), read) == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[[floor]\n", "floors.toml is not TOML"),
        ('[[floor]]\nbenchmark = "matching"\nat_least = 1', "floor 1 of floors.toml has no 'measure'"),
        (FLOOR + 'measure = "over_floor"', "has no limit"),
        (FLOOR + 'measure = "over_floor"\nat_leest = 1', "unknown key 'at_leest'"),
    ],
)
def test_damaged_floors(tmp_path, text, message):
    with pytest.raises(InputError, match=message):
        floors_in(tmp_path, text)


def test_a_measure_that_does_not_exist_is_an_error_not_a_silent_pass(tmp_path):
    with pytest.raises(InputError, match=r"'speedup'.*over_floor, speedup_over"):
        floors.check(run_of(), floors_in(tmp_path, FLOOR + 'measure = "speedup"\nat_least = 1'))


def test_no_file_of_floors(tmp_path):
    with pytest.raises(UnknownError, match="--floors FILE"):
        floors.read(tmp_path / "none.toml")


def test_the_floors_of_the_repository():
    kept = floors.read(REPOSITORY / "benchmarks" / "floors.toml")
    (slow,) = floors.check(run_of(results=[{"index": "ranked-list", "speedup_over": {"scan": 49.0}}]), kept)
    assert not slow.passed
    encoding = {
        "benchmark": "vocabulary",
        "sizes": {"words": 200_000, "keywords": 5_000_000},
        "results": [{"index": "Vocabulary.encode", "workload": "zipf", "keywords_per_second": 10_000_001.0}],
    }
    assert [verdict.passed for verdict in floors.check(encoding, kept)] == [True]


# --- Pictures ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("ending", "magic"), [("svg", b"<?xml"), ("png", b"\x89PNG")])
def test_plots(tmp_path, document, ending, magic):
    path = tmp_path / f"run.{ending}"
    pictures.draw(document, path)
    content = path.read_bytes()
    assert content.startswith(magic)
    assert len(content) > 2000
    pictures.draw(document, path)
    assert path.read_bytes() == content  # the same figures give the same picture


def test_plot_needs_a_known_ending_and_matplotlib(tmp_path, monkeypatch):
    with pytest.raises(InputError, match=r"cannot be written to 'run\.pdf'"):
        plots.check(tmp_path / "run.pdf")
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(RuntimeUnavailableError, match=r"pip install nearcast\[bench\]"):
        plots.check(tmp_path / "run.svg")


# --- Commands ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def bench():
    runner = CliRunner()
    return lambda *arguments: runner.invoke(app, ["bench", *(str(argument) for argument in arguments)])


SMALL = ("matching", "--subscriptions", 2000, "--messages", 50, "--repeat", 1)


def test_matching_command(bench, tmp_path):
    json_file, plot = tmp_path / "run.json", tmp_path / "run.svg"
    result = bench(*SMALL, "--seed", 5, "--json", json_file, "--plot", plot)
    assert result.exit_code == 0, result.output
    for text in ("2,000 subscriptions × 50 messages, ap-tree, seed 5", "scan", "auto", "floor"):
        assert text in result.stdout
    document = json.loads(json_file.read_text(encoding="utf-8"))
    assert document["command"].startswith(
        "nearcast bench matching --subscriptions 2000 --messages 50 --index auto"
    )
    assert str(tmp_path) not in json.dumps(document)
    assert plot.stat().st_size > 2000


def test_json_on_stdout_is_nothing_but_json(bench):
    result = bench(*SMALL, "--index", "scan", "--json", "-")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["benchmark"] == "matching"


def test_check(bench, tmp_path, monkeypatch):
    file = tmp_path / "floors.toml"
    file.write_text(FLOOR + 'measure = "over_floor"\nat_least = 1e9', encoding="utf-8")
    missed = bench(
        *SMALL, "--index", "ranked-list", "--check", "--floors", file, "--json", tmp_path / "run.json"
    )
    assert missed.exit_code == 1
    assert "MISSED" in missed.stdout
    (verdict,) = json.loads((tmp_path / "run.json").read_text(encoding="utf-8"))["floors"]
    assert verdict["passed"] is False

    file.write_text(FLOOR + 'measure = "over_floor"\nat_most = 1e9', encoding="utf-8")
    reached = bench(*SMALL, "--index", "ranked-list", "--check", "--floors", file)
    assert reached.exit_code == 0
    assert "reached" in reached.stdout

    monkeypatch.chdir(REPOSITORY)  # its floors are for larger runs
    none = bench(*SMALL, "--check")
    assert none.exit_code == 0
    assert "no floor applies" in none.stdout


def test_a_wrong_answer_ends_the_command_with_1(bench, monkeypatch):
    monkeypatch.setitem(INDEXES, "forgetful", Forgetful)
    result = bench(
        "matching", "--subscriptions", 20000, "--messages", 50, "--repeat", 1, "--index", "forgetful"
    )
    assert result.exit_code == 1
    assert "wrong answer" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--index", "ranked-list,nope"), "no index 'nope'; there are auto, scan, ranked-list"),
        (("--workload", "nope"), "no workload 'nope'; there are ap-tree, mo-tree, misses, tweets, places"),
        (("--workload", "tweets"), "--data DIR"),
        (("--plot", "run.pdf"), "cannot be written to 'run.pdf'"),
        (("--json", "no-such-directory/run.json"), "its directory does not exist"),
        (("--check", "--floors", "no-such-file.toml"), "no file of floors"),
        (("--subscriptions", "0"), "--subscriptions"),
    ],
)
def test_usage_errors_end_with_2(bench, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    result = bench(*SMALL, *arguments)
    assert result.exit_code == 2
    assert message in " ".join(result.stderr.split())
    assert result.stdout == ""


def test_turnover_command(bench, tmp_path, monkeypatch):
    arguments = ("turnover", "--subscriptions", 3000, "--operations", 4000, "--messages", 100, "--repeat", 1)
    result = bench(
        *arguments, "--index", "auto,ranked-list", "--plot", tmp_path / "t.svg", "--json", tmp_path / "t.json"
    )
    assert result.exit_code == 0, result.output
    body = json.loads((tmp_path / "t.json").read_text())
    assert body["sizes"] == {"subscriptions": 3000, "messages": 100, "operations": 4000}
    for figures in body["results"]:
        assert figures["after_over_fresh"] == pytest.approx(
            figures["microseconds_after"] / figures["microseconds_fresh"]
        )
    assert (tmp_path / "t.svg").stat().st_size > 2000
    monkeypatch.setitem(INDEXES, "forgetful", ForgetfulOnceChanged)
    result = bench(*arguments, "--index", "forgetful")
    assert result.exit_code == 1
    assert "differs from a fresh build" in result.stderr


class ForgetfulOnceChanged(Forgetful):
    """Loses the last match in an index that was changed, not in a fresh one."""

    changed = False

    def drop(self, rows):
        super().drop(rows)
        self.changed = True

    def view(self):
        return Forgetful.view(self) if self.changed else RankedList.view(self)


def test_misses_match_nothing():
    made = workloads.make("misses", 200, 50, newcomers=10)
    body = matching.run(made, ["auto"], repeat=1, singles=3)
    assert body["mismatches"] == []
    assert body["matches_per_message"] == 0
    inside = MessageBatch.from_arrays([[0.45, 0.45]], [0, 3], [0, 1, 2], space=made.messages.space)
    assert len(build_index("auto", made.subscriptions).match(inside).rows) == 200


def test_engine_command(bench, tmp_path):
    result = bench(
        "engine",
        "--subscriptions",
        3000,
        "--messages",
        1500,
        "--repeat",
        1,
        "--plot",
        tmp_path / "e.svg",
        "--check",
    )
    assert result.exit_code == 0, result.output
    for row in (
        "publish tables of 1,000",
        "publish one Message",
        "the index: one message",
        "unsubscribe one",
    ):
        assert row in result.stdout
    assert (tmp_path / "e.svg").stat().st_size > 2000


def test_vocabulary_command(bench, tmp_path):
    result = bench(
        "vocabulary", "--words", 1000, "--keywords", 4000, "--repeat", 1, "--plot", tmp_path / "v.png"
    )
    assert result.exit_code == 0, result.output
    assert "Vocabulary.encode" in result.stdout
    assert (tmp_path / "v.png").stat().st_size > 2000


@pytest.mark.parametrize("command", ["matching", "engine", "turnover", "vocabulary"])
def test_help_has_an_example(bench, command):
    assert f"nearcast bench {command}" in " ".join(bench(command, "--help").stdout.split())
