"""Signals that ask a command to stop."""

import signal
import subprocess
import sys
from types import SimpleNamespace

import pytest

PROGRAM = """
import os, signal
from nearcast.cli.monitor import stop_on_signal
with stop_on_signal() as stop:
    os.kill(os.getpid(), signal.{name})
    assert stop.wait(10)
    os.kill(os.getpid(), signal.{name})
os.kill(os.getpid(), signal.{name})  # after the summary, while the process ends
print("ended")
"""


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_later_signals_do_not_spoil_an_orderly_end(name):
    done = subprocess.run([sys.executable, "-c", PROGRAM.format(name=name)], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "ended\n", "")


def test_without_a_signal_handlers_are_restored():
    from nearcast.cli.monitor import stop_on_signal

    before = signal.getsignal(signal.SIGINT)
    with stop_on_signal() as stop:
        assert signal.getsignal(signal.SIGINT) is not before
    assert not stop.is_set()
    assert signal.getsignal(signal.SIGINT) is before


def test_rows_are_counted_once_however_often_a_query_shows_them():
    from nearcast.cli.monitor import QueryMonitor

    shown = [
        {"batchId": number, "sources": [{"numInputRows": number % 3}, {"numInputRows": 1}]}
        for number in range(1_000)
    ]
    idle = {"batchId": 1_000, "sources": [{"numInputRows": 0}, {"numInputRows": 0}]}
    query = SimpleNamespace(isActive=True, recentProgress=[])
    monitor = QueryMonitor(query)
    assert (monitor.batches, monitor.read(1)) == (0, 0)
    for end in range(50, 1_001, 50):
        query.recentProgress = [*shown[max(end - 100, 0) : end], idle]
        assert monitor.look(stop=False)
    assert (monitor.batches, monitor.read(0), monitor.read(1)) == (1_000, 999, 1_000)
    assert not any(isinstance(value, dict | list) for value in vars(monitor).values())
