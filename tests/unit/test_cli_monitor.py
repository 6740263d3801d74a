"""Signals that ask a command to stop."""

import signal
import subprocess
import sys

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
