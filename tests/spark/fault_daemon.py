"""Spark's Python daemon with workers that die on demand, in the middle of matching.

A worker that finds the file ``worker`` in the directory NEARCAST_FUSES kills itself by SIGKILL; one that finds
``daemon`` kills the process that it was forked from. It removes the file first, so each file kills once.
"""

import os
import runpy
import signal
from pathlib import Path

from nearcast.matching import Index


def mortal(match, fuses):
    """Return a *match* that dies in workers; the daemon itself, which matches once to warm up, takes no fuse."""
    daemon = os.getpid()

    def dying(self, *arguments, **options):
        for victim in ("worker", "daemon"):
            if os.getpid() != daemon and (fuses / victim).exists():
                try:
                    (fuses / victim).unlink()
                except FileNotFoundError:  # another worker was faster
                    continue
                os.kill(os.getpid() if victim == "worker" else daemon, signal.SIGKILL)
        return match(self, *arguments, **options)

    return dying


if __name__ == "__main__":
    Index.match = mortal(Index.match, Path(os.environ["NEARCAST_FUSES"]))
    runpy.run_module("nearcast.spark.daemon", run_name="__main__")
