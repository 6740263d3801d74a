"""A home for drivers that are killed: the input, the files that each micro-batch read, the expected deliveries."""

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from spark.fault_driver import note_states
from spark.observer import Observer
from spark.worlds import WORDS, in_process, message_table, pairs, subscription_table

PROGRAMS = Path(__file__).parent
DEADLINE = 240  # seconds for anything to happen: the first run after a change compiles kernels
MINUTE = 60_000_000
NOON = 1_700_000_000_000_000
MESSAGES = 150  # in a file
NAMES = ("message_id", "subscription_id", "reason")


def until(condition, what, pause=0.002):
    """Wait for *condition*; check often, so that the test continues soon after it."""
    limit = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < limit, f"{what}: not within {DEADLINE} s"
        time.sleep(pause)


class Home:
    """The files of three queries: messages and changes that arrive, the time, checkpoints, sinks.

    The time advances by a minute whenever files arrive or a driver starts. So a repeat is always later than the first
    attempt, and messages expire in between.
    """

    def __init__(self, path, seed=0):
        self.path, self.arrived, self.minutes = path, 0, 0
        self.rng = np.random.default_rng(seed)
        self.subscriptions = subscription_table()
        fields = [pa.field("change", pa.string()), pa.field("changed_at", pa.int64())]
        self.changes = pa.schema([*self.subscriptions.schema, *fields])
        pq.write_table(self.subscriptions, path / "subscriptions.parquet")
        for name in ("messages", "changes", "fuses"):
            (path / name).mkdir()

    def later(self):
        """Let a minute pass; replace the file of the clock in one step. Return the time."""
        self.minutes += 1
        now = NOON + self.minutes * MINUTE
        (self.path / "clock.new").write_text(str(now))
        (self.path / "clock.new").rename(self.path / "clock")
        return now

    def arrive(self, count=1):
        """Let *count* files of messages appear, and as many files of changes."""
        for step in range(self.arrived, self.arrived + count):
            now = self.later()
            self._appear("changes", step, pa.Table.from_pylist(self._records(step), self.changes))
            table = message_table(MESSAGES, seed=step)
            ends = [None if i % 3 == 0 else now + (6 + i % 5) * MINUTE for i in range(MESSAGES)]
            table = table.append_column("expires_at", pa.array(ends, pa.timestamp("us", "UTC")))
            self._appear(
                "messages", step, table.set_column(0, "id", pa.array(np.arange(MESSAGES) + 1000 * step))
            )
        self.arrived += count

    def feed(self, queries):
        """Let two files arrive for the fastest query, unless the slowest still has four to read. Return the slowest."""
        read = {query: self.read(query) for query in queries}
        self.arrive(max(0, min(max(read.values()) + 2, min(read.values()) + 4) - self.arrived))
        return min(read, key=read.get)

    def _records(self, step):
        """Return records of every kind: newcomers, updates, moves, departures, some of unknown subscriptions."""
        box = dict(zip(("xmin", "ymin", "xmax", "ymax"), [-8.0 + step % 8, -6.0, 6.0, 6.0]))
        circle = {"lon": step % 8 - 4.0, "lat": 0.0, "radius_m": 600_000.0}
        picks = self.rng.choice(self.subscriptions["id"].to_pylist(), 16, replace=False).tolist()
        kinds = {
            "subscribe": ([f"new{step}-{i}" for i in range(6)], circle),
            "update": (picks[:5], box),
            "move": ([*picks[5:10], picks[0], f"new{step}-1"], circle),
            "unsubscribe": ([*picks[10:], f"new{step}-0"], {}),
        }
        made = [
            {"change": change, "id": key, "expression": WORDS[at % 8], **place}
            for change, (keys, place) in kinds.items()
            for at, key in enumerate(keys)
        ]
        return [{**record, "changed_at": 100 * step + at} for at, record in enumerate(made)]

    def _appear(self, directory, step, table):
        draft = self.path / directory / f".{step:03}.parquet"
        pq.write_table(table, draft)
        draft.rename(draft.with_name(f"{step:03}.parquet"))

    # --- The checkpoints of Spark ----------------------------------------------------------------------------------

    def logged(self, query, log):
        """The numbers of the micro-batches that were started (``offsets``) or finished (``commits``)."""
        with suppress(FileNotFoundError):
            files = list((self.path / query / "checkpoint" / log).iterdir())
            return {int(file.name) for file in files if file.name.isdigit()}
        return set()

    def inside(self, query):
        """Whether a micro-batch was started and is not finished."""
        return self.logged(query, "offsets") != self.logged(query, "commits")

    def read(self, query):
        """How many files the micro-batches that were started have."""
        return sum(len(files) for _, (files, *_) in self.read_in(query))

    def idle(self, query):
        """Whether all files that have arrived were read, in micro-batches that are finished."""
        with suppress(FileNotFoundError):  # a log is being compacted
            return not self.inside(query) and self.read(query) == self.arrived
        return False

    def read_in(self, query):
        """Yield the number of each micro-batch, in order, with the files that it read from each source."""
        before = [-1, -1]
        for number in sorted(self.logged(query, "offsets")):
            lines = (self.path / query / "checkpoint" / "offsets" / str(number)).read_text().splitlines()[2:]
            now = [int(json.loads(line)["logOffset"]) if line != "-" else -1 for line in lines]
            yield number, [self._files(query, *reach) for reach in zip(range(len(now)), before, now)]
            before = now

    def _files(self, query, source, after, upto):
        log = self.path / query / "checkpoint" / "sources" / str(source)
        entries = {}  # some files of the log repeat all earlier ones
        for file in log.iterdir():
            if not file.name.startswith("."):
                for line in file.read_text().splitlines()[1:]:
                    entry = json.loads(line)
                    entries[entry["path"]] = entry["batchId"]
        return sorted(path.removeprefix("file://") for path, at in entries.items() if after < at <= upto)

    # --- Deliveries, found and expected ----------------------------------------------------------------------------

    def check(self, queries):
        """Check that no delivery is lost or repeated, and that each file was read in exactly one micro-batch."""
        for query in queries:
            assert not self.inside(query)
            read = Counter(Path(file).name for _, (files, *_) in self.read_in(query) for file in files)
            assert read == Counter(f"{step:03}.parquet" for step in range(self.arrived))
            if query == "live":
                self._check_live()
            else:
                messages = pq.read_table(self.path / "messages").drop(["expires_at"])
                found = self.path / query / ("read" if query == "spark" else "out")
                same(pairs(ds.dataset(found).to_table()), in_process(messages, self.subscriptions), query)

    def _check_live(self):
        observer, joined = Observer(self.subscriptions), 0
        for number, (messages, changes) in self.read_in("live"):
            records = [row for file in changes for row in pq.read_table(file).to_pylist()]
            now = json.loads((self.path / "seen" / f"{number:012}.json").read_bytes())["now"]
            first = pq.read_table(self.path / "messages" / "000.parquet")
            table = pq.read_table(messages) if messages else first.slice(0, 0)
            expected = observer.step(records, table, now)
            # Other tests check messages that had expired before they came.
            ended = pc.less_equal(table["expires_at"].cast(pa.int64()), now)
            expired = set(table["id"].filter(ended).to_pylist())
            written = self.path / "live" / "out" / f"batch={number}"
            found = Counter()
            if written.exists():  # it had deliveries
                table = ds.dataset(written).to_table()
                found.update(zip(*(table[name].to_pylist() for name in NAMES)))
            found, expected = (
                Counter({delivery: n for delivery, n in each.items() if delivery[0] not in expired})
                for each in (found, expected)
            )
            same(found, expected, f"live, micro-batch {number}")
            joined += sum(reason != "publish" for *_, reason in expected)
        assert joined > 0, "nobody came late enough to receive earlier messages"
        batches = {entry.name for entry in (self.path / "live" / "out").iterdir()}
        assert batches <= {f"batch={number}" for number in self.logged("live", "offsets")}
        assert (self.path / "live" / "home" / "ready.json").exists(), "no version was made of changes"


def same(found, expected, what):
    """Compare multisets; on failure say how many are lost and repeated, rather than list thousands."""
    lost, extra = expected - found, found - expected
    assert not lost, f"{what}: {lost.total()} of {expected.total()} lost, such as {next(iter(lost))}"
    assert not extra, f"{what}: {extra.total()} too many, such as {next(iter(extra))}"


def environment(home):
    """Return the environment of a program in which workers find the fuses of *home*."""
    paths = [str(PROGRAMS), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "NEARCAST_FUSES": str(home / "fuses")}


class Driver:
    """A process of ``fault_driver.py``, with Spark's Java and Python workers below it, in a session of its own."""

    def __init__(self, home, queries, *, master="local[2]", ends=False, die=None):
        self.home = home
        home.later()
        options = {"queries": queries, "master": master, "ends": ends, "die": die}
        command = [sys.executable, str(PROGRAMS / "fault_driver.py"), str(home.path), json.dumps(options)]
        with (home.path / "log").open("ab") as log:
            self.process = subprocess.Popen(
                command,
                stdout=log,
                stderr=log,
                env=environment(home.path),
                cwd=home.path,
                start_new_session=True,
            )
        self.started = home.path / f"started.{self.process.pid}"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        """Leave no process behind when a test fails."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def kill(self):
        """Kill Python and Java at once; wait until all their processes are gone."""
        os.killpg(self.process.pid, signal.SIGKILL)
        assert self.wait() == -signal.SIGKILL

    def wait(self):
        """Return the exit code of the process, once all processes below it have ended too."""
        status = self.process.wait(DEADLINE)
        until(lambda: not self._left(), "the end of all processes of the driver", 0.05)
        note_states(self.home.path)
        return status

    def _left(self):
        """Return the processes of the session that still run."""
        left = []
        for stat in Path("/proc").glob("[0-9]*/stat"):
            with suppress(FileNotFoundError, ProcessLookupError):
                state, _, _, session, *_ = stat.read_text().rpartition(")")[2].split()
                if int(session) == self.process.pid and state != "Z":
                    left.append(int(stat.parent.name))
        return left

    def until(self, condition, what):
        """Wait for *condition* while the process runs."""

        def reached():
            assert self.process.poll() is None, f"{what}: the driver has ended\n{self.said()}"
            return condition()

        until(reached, what)

    def said(self):
        """Return the last output of the drivers of this home."""
        return (self.home.path / "log").read_text(errors="replace")[-3000:]


def finish(home, queries):
    """Run until all files that have arrived are read, and check."""
    with Driver(home, queries, ends=True) as driver:
        assert driver.wait() == 0, driver.said()
    home.check(queries)
