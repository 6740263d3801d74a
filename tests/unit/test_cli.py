"""The command line, in this process and as processes of their own."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import nearcast
from nearcast import Box, Message, Subscription, config
from nearcast.cli import app
from nearcast.geometry import to_geojson
from nearcast.sharding.distribution import DISTRIBUTIONS

MESSAGES = [
    Message.from_text("m1: Half price coffee WITH price = 2.5 AT POINT (-73.99 40.73)"),
    Message.from_text("m2: Street concert AT POINT (-73.97 40.78)"),
    Message.from_text("m3: Coffee, decaf only AT BOX (-73.99 40.73, -73.98 40.74)"),
]
SUBSCRIPTIONS = [
    Subscription.from_text("zoe: concert OR price < 3"),
    Subscription.from_text("anna: coffee NOT decaf WITHIN CIRCLE (-73.99 40.73, 800 m)"),
]
PAIRS = [(m.id, s.id) for m in MESSAGES for s in SUBSCRIPTIONS if s.matches(m)]


def pairs(file):
    """The messages and subscriptions of deliveries in a file."""
    table = pq.read_table(file)
    return list(zip(table["message_id"].to_pylist(), table["subscription_id"].to_pylist()))


def line(message, subscription):
    """A delivery as a line of JSON."""
    told = {"subscription_id": subscription, "message_id": message, "change": "+", "reason": "publish"}
    return json.dumps({**told, "score": None, "rank": None}) + "\n"


LINES = "".join(line(*pair) for pair in PAIRS)


def run(*arguments, **options):
    return CliRunner().invoke(app, [str(argument) for argument in arguments], **options)


def process(*arguments, **options):
    """Run the installed command."""
    command = Path(sys.executable).with_name("nearcast")
    return subprocess.run([command, *map(str, arguments)], capture_output=True, timeout=240, **options)


@pytest.fixture
def files(tmp_path):
    """The two files, as JSON lines."""
    for name, things in (("messages", MESSAGES), ("subscriptions", SUBSCRIPTIONS)):
        (tmp_path / f"{name}.jsonl").write_text("".join(thing.to_json() + "\n" for thing in things))
    return tmp_path / "messages.jsonl", tmp_path / "subscriptions.jsonl"


class TestCommand:
    def test_version(self):
        result = run("--version")
        assert (result.exit_code, result.stdout) == (0, f"nearcast {nearcast.__version__}\n")

    def test_alone_it_shows_help(self):
        alone, asked = run(), run("--help")
        assert alone.exit_code == asked.exit_code == 0
        assert alone.stdout == asked.stdout
        for command in (
            "demo",
            "match",
            "explain",
            "prepare",
            "profile",
            "build",
            "stream",
            "shards",
            "bench",
        ):
            assert f"\n  {command} " in asked.stdout

    @pytest.mark.parametrize(
        "command",
        [
            [],
            ["demo"],
            ["match"],
            ["explain"],
            ["shards"],
            ["profile"],
            ["build"],
            ["stream"],
            ["bench", "matching"],
        ],
    )
    def test_help_has_an_example(self, command):
        result = run(*command, "-h")
        assert result.exit_code == 0
        assert re.search(rf"[Ee]xample.*\n+ +nearcast {' '.join(command)}", result.stdout)

    def test_help_needs_nothing_heavy(self):
        code = (
            "import sys; from nearcast.cli import main\ntry: main()\nexcept SystemExit: pass\n"
            "heavy = {'numba', 'numpy', 'pyarrow', 'pyspark', 'rich', 'shapely'}\n"
            "assert not heavy & set(sys.modules), heavy & set(sys.modules)"
        )
        subprocess.run([sys.executable, "-c", code, "--help"], check=True, capture_output=True, timeout=60)

    @pytest.mark.parametrize("arguments", [["publish"], ["match"], ["match", "a.csv"], ["demo", "--nope"]])
    def test_wrong_usage(self, arguments):
        result = run(*arguments)
        assert result.exit_code == 2
        assert result.stdout == ""
        assert "Usage: " in result.stderr

    def test_an_operating_system_error_is_a_line(self, files, monkeypatch):
        def full(*_):
            raise OSError(28, "No space left on device", "deliveries.csv")

        monkeypatch.setattr("nearcast.cli.match._matched", full)
        result = run("match", *files)
        assert (result.exit_code, result.stderr) == (1, "nearcast: No space left on device: deliveries.csv\n")

    @pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no full device")
    def test_a_full_disk_names_the_file(self, files):
        result = run("match", *files, "--output", "/dev/full", "--format", "csv")
        assert (result.exit_code, result.stderr) == (1, "nearcast: No space left on device: /dev/full\n")


class TestMatch:
    def test_lines_on_stdout_and_the_summary_on_stderr(self, files):
        result = run("match", *files)
        assert (result.exit_code, result.stdout) == (0, LINES)
        assert re.fullmatch(
            r"3 messages, 2 subscriptions: 3 deliveries in [\d.]+ s "
            r"\(matched and written in [\d.]+ s, [\d,]+ messages/s\)\n",
            result.stderr,
        )

    def test_one_of_each(self, tmp_path):
        (tmp_path / "m.csv").write_text("id,text,lon,lat\nm,tea,1,1\n")
        (tmp_path / "s.csv").write_text("id,expression\na,tea\n")
        result = run("match", tmp_path / "m.csv", tmp_path / "s.csv")
        assert result.stderr.startswith("1 message, 1 subscription: 1 delivery in ")

    def test_the_help_names_all_endings(self):
        words = " ".join(run("match", "--help").stdout.replace("│", " ").split())
        assert "(.geojson, .json), the latter three optionally followed by .gz or .zst" in words

    def test_times_are_not_read(self, files):
        """The same files give the same deliveries at any time, and the help says so."""
        messages, _ = files
        timed = [json.loads(line) for line in messages.read_text().splitlines()]
        for message, times in zip(timed, ({"expires_at": 1}, {"published_at": 2**60}, {})):
            message.update(times)
        messages.write_text("".join(json.dumps(message) + "\n" for message in timed))
        assert run("match", *files).stdout == LINES
        assert "Times are not read" in " ".join(run("match", "--help").stdout.split())

    def test_formats(self, files):
        head = '"subscription_id","message_id","change","reason","score","rank"\n'
        rows = "".join(f'"{s}","{m}","+","publish",,\n' for m, s in PAIRS)
        assert run("match", *files, "--format", "csv").stdout == head + rows
        parquet = pq.read_table(pa.BufferReader(run("match", *files, "-f", "parquet").stdout_bytes))
        assert parquet.to_pylist() == [json.loads(line(*pair)) for pair in PAIRS]
        table = run("match", *files, "-f", "table").stdout
        assert re.findall(r"(\w+) .*?(m\d).* \+ .* publish ", table) == [(s, m) for m, s in PAIRS]

    @pytest.mark.parametrize("index", ["scan", "ranked-list"])
    def test_every_index_gives_the_same(self, files, index):
        assert run("match", *files, "--index", index, "--threads", 2).stdout == LINES

    def test_to_a_file_with_a_summary_for_machines(self, files, tmp_path):
        result = run("match", *files, "--output", tmp_path / "out.parquet", "--json")
        assert result.exit_code == 0
        summary = json.loads(result.stdout)
        assert pairs(tmp_path / "out.parquet") == PAIRS
        assert (summary["messages"], summary["subscriptions"], summary["deliveries"]) == (3, 2, 3)
        assert summary["index"] == "auto"
        assert 0 < summary["matching_seconds"] <= summary["seconds"]
        assert summary["messages_per_second"] > 0

    def test_many_chunks_are_one_answer(self, files, monkeypatch, tmp_path):
        monkeypatch.setattr(config, "CLI_CHUNK", 2)
        assert run("match", *files).stdout == LINES
        for name in ("out.csv", "out.parquet"):
            assert run("match", *files, "-o", tmp_path / name).exit_code == 0
        assert pairs(tmp_path / "out.parquet") == PAIRS

    def test_row_numbers_run_on_over_chunks(self, tmp_path, monkeypatch):
        monkeypatch.setattr(config, "CLI_CHUNK", 2)
        (tmp_path / "m.csv").write_text("text,lon,lat\n" + "tea,1,1\nmilk,1,1\n" * 3)
        (tmp_path / "s.csv").write_text("expression\nmilk\ntea\n")
        result = run("match", tmp_path / "m.csv", tmp_path / "s.csv", "-f", "csv")
        told = [tuple(line.split(",")[:2]) for line in result.stdout.splitlines()[1:]]
        assert told == [("1", "0"), ("0", "1"), ("1", "2"), ("0", "3"), ("1", "4"), ("0", "5")]

    @pytest.mark.parametrize("format", ["jsonl", "csv", "parquet", "table"])
    def test_no_messages(self, files, format):
        files[0].write_text("")
        result = run("match", *files, "--format", format)
        assert result.exit_code == 0, result.stderr
        assert "0 messages, 2 subscriptions: 0 deliveries" in result.stderr

    def test_a_long_table_is_cut_and_says_so(self, files, monkeypatch):
        monkeypatch.setattr(config, "CLI_TABLE_ROWS", 2)
        result = run("match", *files, "-f", "table")
        assert len(re.findall(r"m\d", result.stdout)) == 2
        assert "these are the first 2 of 3 deliveries" in result.stderr

    def test_columns_left_out_are_told(self, files, tmp_path):
        (tmp_path / "s.csv").write_text("id,expression,note\na,concert,hello\n")
        result = run("match", files[0], tmp_path / "s.csv")
        assert result.stdout == line("m2", "a")
        assert "s.csv: left out 'note'; a subscription has id, expression" in result.stderr

    @pytest.mark.parametrize(
        ("arguments", "said"),
        [
            (["-", "-"], "stdin cannot be both the messages and the subscriptions"),
            (
                ["{m}", "{s}", "--format", "xml"],
                "there is no format 'xml'; there are jsonl, csv, parquet, table",
            ),
            (["{m}", "{s}", "--format", "table", "-o", "x"], "a table can only go to stdout"),
            (["{m}", "{s}", "--json"], "--json prints the summary to stdout, where the deliveries go"),
            (
                ["{m}", "{s}", "--index", "r-tree"],
                "there is no index 'r-tree'; there are auto, scan, ranked-list",
            ),
            (["{m}", "{s}", "-o", "out.xlsx"], "the format of out.xlsx is unknown"),
            (["{m}", "{s}", "-o", "/no/such/out.csv"], "cannot write '/no/such/out.csv': No such file"),
            (
                ["{m}", "{s}", "-o", "gs://bucket/out.csv"],
                "gs://bucket/out.csv is not a file of this machine",
            ),
            (["dbfs:/m.csv", "{s}"], "dbfs:/m.csv: it is not a file of this machine; copy it here"),
            (["nope.csv", "{s}"], "there is no file or directory nope.csv"),
            (["{m}", "nope.geojson"], "there is no file or directory nope.geojson"),
            (
                ["{s}", "{m}"],
                "messages.jsonl: a table of subscriptions has no column 'place'; did you mean geom",
            ),
        ],
    )
    def test_mistakes(self, files, arguments, said):
        arguments = [argument.format(m=files[0], s=files[1]) for argument in arguments]
        result = run("match", *arguments)
        assert (result.exit_code, result.stdout) == (2, "")
        assert said in result.stderr
        assert "nearcast: " in result.stderr.splitlines()[-1]
        assert "Traceback" not in result.stderr

    def test_a_built_index_stands_for_its_subscriptions(self, files, tmp_path):
        index = nearcast.build_index("scan", nearcast.files.read_subscriptions(files[1]))
        index.save(tmp_path / "index")
        found = run("match", files[0], tmp_path / "index")
        assert (found.exit_code, found.stdout) == (0, LINES)

    def test_a_mistake_leaves_no_output(self, files, tmp_path):
        files[0].write_text('{"id": 1, "text": "tea", "lon": 40.7, "lat": -174}\n')
        result = run("match", *files, "-o", tmp_path / "out.csv")
        assert result.exit_code == 2
        assert result.stderr.startswith(f"nearcast: {files[0]}: ")
        assert {file.name for file in tmp_path.iterdir()} == {"messages.jsonl", "subscriptions.jsonl"}


class TestExplain:
    def test_text_and_json_and_files_say_the_same(self, files, tmp_path):
        message, subscription = MESSAGES[2], SUBSCRIPTIONS[1]
        (tmp_path / "m.json").write_text(message.to_json() + "\n")
        (tmp_path / "s.txt").write_text(subscription.to_text())
        from_files = [
            "--messages",
            files[0],
            "--message-id",
            "m3",
            "--subscriptions",
            files[1],
            "--subscription-id",
            "anna",
        ]
        for arguments in (
            [message.to_text(), subscription.to_text()],
            [message.to_json(), subscription.to_json()],
            [f"@{tmp_path / 'm.json'}", f"@{tmp_path / 's.txt'}"],
            from_files,
            [*from_files[:4], subscription.to_text()],
            [message.to_json(), *from_files[4:]],
        ):
            result = run("explain", *arguments)
            assert result.exit_code == 0, result.stderr
            assert result.stdout.startswith("message 'm3' does not match subscription 'anna'\n")
            assert "✓ within CIRCLE (-73.99 40.73, 800 m)" in result.stdout
            assert "✗ NOT decaf" in result.stdout

    @pytest.mark.parametrize("message", MESSAGES, ids=lambda m: m.id)
    @pytest.mark.parametrize("subscription", SUBSCRIPTIONS, ids=lambda s: s.id)
    def test_json_says_whether_it_matches(self, message, subscription):
        result = run("explain", message.to_text(), subscription.to_text(), "--json")
        assert result.exit_code == 0
        answer = json.loads(result.stdout)
        assert (answer["message"], answer["subscription"]) == (message.id, subscription.id)
        assert answer["matches"] == subscription.matches(message)

    @pytest.mark.parametrize(
        ("arguments", "said"),
        [
            ([], "give the message either as an argument or with --messages FILE --message-id ID"),
            (["m: x AT POINT (1 2)"], "give the subscription either as an argument"),
            (["m: x AT POINT (1 2)", "s: tea AND ("], "SUBSCRIPTION: "),
            (["m: x", "s: tea"], "MESSAGE: the message 'm: x' has no place"),
            (['{"id": 1', "s: tea"], "MESSAGE: this is not JSON"),
            (["@nope.json", "s: tea"], "cannot read 'nope.json': No such file or directory"),
            (["m: x AT POINT (1 2)", "s: x", "--messages", "m.csv"],
             "--messages FILE and --message-id ID belong together"),
            (["m: x AT POINT (1 2)", "s: x", "--messages", "m.csv", "--message-id", "1"], "not both"),
            (["s: x", "--messages", "nope.csv", "--message-id", "1"], "there is no file or directory nope.csv"),
        ],
    )  # fmt: skip
    def test_mistakes(self, arguments, said):
        result = run("explain", *arguments)
        assert (result.exit_code, result.stdout) == (2, "")
        assert result.stderr.startswith("nearcast: ")
        assert said in result.stderr


class TestDemo:
    def test_a_directory_of_somebody_else_is_refused_before_anything_starts(self, tmp_path):
        (tmp_path / "precious").touch()
        result = run("demo", "--output", tmp_path)
        assert (result.exit_code, result.stdout) == (2, "")
        assert "was not made by nearcast demo, so it is not replaced" in result.stderr
        assert (tmp_path / "precious").exists()

    def test_a_file_is_refused(self, tmp_path):
        (tmp_path / "out").touch()
        result = run("demo", "--output", tmp_path / "out")
        assert result.exit_code == 2
        assert "is a file; give a directory" in result.stderr

    def test_what_is_lacking_outside_is_a_failure(self, tmp_path, monkeypatch):
        monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
        result = run("demo", "--output", tmp_path / "out")
        assert result.exit_code == 1
        assert result.stderr.startswith("nearcast: PySpark is not installed; ")
        assert not (tmp_path / "out").exists()


class TestWithoutSpark:
    COMMANDS = (
        ["demo", "--output", "out"],
        ["prepare", "messages", "m.csv", "out"],
        ["stream", "in", "s.parquet", "out", "--checkpoint", "c"],
        ["stream", "kafka://host:9092/m", "s.parquet", "out", "--checkpoint", "c", "--schema", "id long"],
        ["build", "s.parquet", "out"],
        ["profile", "out", "--messages", "m.parquet"],
        ["profile", "."],
        ["match", "m.parquet", "s.parquet", "--master", "local[1]", "--output", "out"],
        ["bench", "spark"],
    )

    @pytest.mark.parametrize("arguments", COMMANDS, ids=" ".join)
    def test_every_command_that_needs_it_says_so_alike(self, tmp_path, arguments):
        """In a process that cannot import PySpark."""
        code = "import sys; sys.modules['pyspark'] = None; from nearcast.cli import main; main()"
        ran = subprocess.run([sys.executable, "-c", code, *arguments], cwd=tmp_path, capture_output=True, text=True,
                             timeout=120)  # fmt: skip
        assert (ran.returncode, ran.stdout) == (1, "")
        sentence = (
            "PySpark is not installed; `pip install 'nearcast[spark]'` installs it, with a Java runtime"
        )
        assert ran.stderr.strip() == f"nearcast: {sentence}"
        assert not list(tmp_path.iterdir())

    def test_so_does_the_package(self):
        code = "import sys; sys.modules['pyspark'] = None\nfrom nearcast.spark import match"
        ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
        assert "nearcast.errors.RuntimeUnavailableError: PySpark is not installed; " in ran.stderr


class TestProcesses:
    def test_from_pipe_to_pipe(self, files):
        result = process("match", "-", files[1], input=files[0].read_bytes())
        assert (result.returncode, result.stdout.decode()) == (0, LINES)
        assert b"3 deliveries" in result.stderr
        assert b"\x1b" not in result.stdout + result.stderr

    def test_a_mistake_is_one_line(self, files):
        result = process("match", "-", files[1], input=b'{"id": 1, "lon": 500, "lat": 1}\n')
        assert (result.returncode, result.stdout) == (2, b"")
        assert result.stderr.startswith(b"nearcast: standard input: ")
        assert result.stderr.count(b"\n") == 1

    def test_a_reader_that_stops_early_is_no_traceback(self, files, tmp_path):
        (tmp_path / "m.csv").write_text(
            "id,text,lon,lat\n" + "".join(f"{i},concert,1,1\n" for i in range(50_000))
        )
        nearcast, messages = Path(sys.executable).with_name("nearcast"), tmp_path / "m.csv"
        script = f"{nearcast} match {messages} {files[1]} | head -n 1"
        result = subprocess.run(["sh", "-c", script], capture_output=True, timeout=240)
        assert result.stdout.decode() == line(0, "zoe")
        assert b"Traceback" not in result.stderr
        assert b"Exception" not in result.stderr

    @pytest.mark.skipif(sys.platform == "win32", reason="there are no pseudo-terminals")
    @pytest.mark.parametrize("no_color", [True, False])
    def test_colour_on_a_terminal_unless_refused(self, files, no_color):
        """On a terminal the header of a table is bold and the bar has colours; NO_COLOR leaves no colour."""
        surroundings = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "100"} | (
            {"NO_COLOR": "1"} if no_color else {}
        )
        for name in ("FORCE_COLOR", "NO_COLOR")[: 1 if no_color else 2]:
            surroundings.pop(name, None)
        said = _on_a_terminal(["match", *map(str, files), "-f", "table"], surroundings)
        table = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", said).rpartition("┡")[2]
        assert re.findall(r"(\w+) .*?(m\d).* \+ .* publish ", table) == [(s, m) for m, s in PAIRS]
        assert bool(re.search(r"\x1b\[(3\d|38;5;\d+)[;m]", said)) is not no_color


def _on_a_terminal(arguments, surroundings):
    """Run the command with a pseudo-terminal as its output; return what it showed."""
    import pty

    ours, theirs = pty.openpty()
    command = Path(sys.executable).with_name("nearcast")
    with subprocess.Popen([command, *arguments], stdout=theirs, stderr=theirs, env=surroundings) as running:
        os.close(theirs)
        said = b""
        try:
            while piece := os.read(ours, 4096):
                said += piece
        except OSError:  # the other side is closed
            pass
        os.close(ours)
    assert running.returncode == 0, said
    return said.decode()


class TestShards:
    def test_figures_of_each_distribution(self, files):
        messages, subscriptions = files
        result = run("shards", subscriptions, messages, "--shards", "1,3", "--json")
        found = json.loads(result.stdout)
        assert (found["subscriptions"], found["messages"], found["deliveries"]) == (2, 3, len(PAIRS))
        assert [row["shards"] for row in found["distributions"]] == [1] * 5 + [3] * 5
        by_hash = found["distributions"][5]
        assert by_hash["distribution"] == "hash"
        assert (by_hash["replication"], by_hash["messages_sent_per_message"]) == (1.0, 3.0)

    def test_a_table_a_picture_and_what_auto_takes(self, files, tmp_path):
        picture = tmp_path / "shards.svg"
        result = run("shards", files[1], "-d", "location,hash", "-n", "2", "--plot", picture)
        assert result.exit_code == 0
        assert "location" in result.stdout
        assert "keyword" not in result.stdout
        assert result.stderr.endswith("2 shards: auto takes location\n")
        assert "<svg" in picture.read_text()

    def test_a_plan(self, files):
        aim = ["--plan", "--subscriptions", "1e9", "--rate", "1e6", "-n", "2,4"]
        result = run("shards", files[1], files[0], *aim, "--host-memory", "32", "--json")
        found = json.loads(result.stdout)
        assert (found["subscriptions"], found["rate"]) == (1e9, 1e6)
        assert found["deliveries"] == pytest.approx(len(PAIRS) / 3 * 1e9 / 2)
        assert found["host"] == {"cores": 16, "memory_gb": 32, "network_gbit": 10}
        assert found["simulated"]["shards"] == [1, 2, 4]
        assert {each["distribution"] for each in found["plans"]} == set(DISTRIBUTIONS)
        assert found["costs"]["subscription_bytes"] > 0

        result = run("shards", files[1], files[0], *aim, "-d", "hash,location", "--matches", "2")
        assert (
            "1,000,000,000 subscriptions, 1,000,000 messages a second, 2.0 deliveries a message"
            in result.stdout
        )
        assert "Measured here, on one core: " in result.stdout
        assert "hash breaks first by " in result.stdout
        assert "keyword" not in result.stdout

    @pytest.mark.parametrize(
        ("arguments", "said"),
        [
            (
                ["--plan", "--rate", "5"],
                "--plan needs --subscriptions, for example --plan --subscriptions 1e9",
            ),
            (
                ["--plan", "--subscriptions", "0", "--rate", "5"],
                "--subscriptions must be a number above 0, not 0.0",
            ),
            (["--rate", "5"], "--rate is for a plan; add --plan, or leave --rate out"),
            (["--plan", "--subscriptions", "9", "--rate", "5", "--plot", "a.svg"], "a plan has no picture"),
            (["-n", "0"], "shards must be a whole number from 1 to 1,024, not 0"),
            (["-n", "few"], "--shards 'few' is not a list of numbers"),
            (["-d", "random"], "there is no distribution 'random'; there are hash, location"),
            (["--plot", "a.gif"], "end the name in .svg or .png"),
        ],
    )
    def test_what_cannot_be_is_one_line(self, files, arguments, said):
        result = run("shards", files[1], *arguments)
        assert (result.exit_code, result.stdout) == (2, "")
        assert said in result.stderr
        assert result.stderr.count("\n") == 1


ROOT = Path(__file__).parents[2]
COMMAND = re.compile(r"^\$ ((?:[^\n]*\\\n)*[^\n]*\n)((?:(?!\$ )[^\n]*\n)*)", re.MULTILINE)


def commands_in(page):
    """Yield the commands of a page, each with what it prints to stdout, None for anything.

    A block of shell is one command; a block of console has several, and shows exactly what comes to stdout.
    """
    for kind, block in re.findall(
        r"^```(sh|console)\n(.*?)^```$", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE
    ):
        yield from COMMAND.findall(block) if kind == "console" else [(block, None)]


def run_all(commands, home):
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    for command, expected in commands:
        result = subprocess.run(
            ["sh", "-ec", command], cwd=home, env=environment, capture_output=True, text=True, timeout=120
        )
        assert result.returncode == 0, result.stderr
        assert expected is None or result.stdout == expected, command


def test_the_documentation_runs(tmp_path):
    commands = list(commands_in(ROOT / "docs" / "command-line.md"))
    assert len(commands) >= 10
    run_all(commands, tmp_path)


def test_the_readme_runs(tmp_path):
    """Its commands on files; those that install, and the benchmark of a million, are run by hand."""
    commands = [
        (command, expected)
        for command, expected in commands_in(ROOT / "README.md")
        if command.startswith("nearcast ") and "bench" not in command
    ]
    assert [command.split()[1] for command, _ in commands] == ["match", "explain"]
    pq.write_table(
        pa.table({"id": ["m"], "text": ["Coffee"], "lon": [0.5], "lat": [0.5]}), tmp_path / "messages.parquet"
    )
    feature = {"type": "Feature", "id": "anna", "properties": {"expression": "coffee"}}
    feature["geometry"] = to_geojson(Box(0, 0, 1, 1))
    (tmp_path / "subscriptions.geojson").write_text(
        json.dumps({"type": "FeatureCollection", "features": [feature]})
    )
    run_all(commands, tmp_path)
    assert pq.read_table(tmp_path / "deliveries.parquet")["subscription_id"].to_pylist() == ["anna"]
