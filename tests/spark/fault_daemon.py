"""Spark's Python daemon with workers that die on demand, in the middle of matching.

A worker that finds the file ``worker`` in the directory NEARCAST_FUSES kills itself by SIGKILL; one that finds
``daemon`` kills the process that it was forked from. One that finds ``shard`` when it has written a shard raises an
error. It removes the file first, so each file works once.
"""

import os
import runpy
import signal
from pathlib import Path

from nearcast.matching import Index
from nearcast.sharding.building import ShardBuilder


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


def failing(finish, fuses):
    """Return a *finish* that fails when all is written."""

    def finish_and_fail(self, *arguments):
        built = finish(self, *arguments)
        try:
            (fuses / "shard").unlink()
        except FileNotFoundError:
            return built
        raise RuntimeError("this task fails after its shard was written")

    return finish_and_fail


if __name__ == "__main__":
    directory = Path(os.environ["NEARCAST_FUSES"])
    Index.match = mortal(Index.match, directory)
    ShardBuilder.finish = failing(ShardBuilder.finish, directory)
    runpy.run_module("nearcast.spark.daemon", run_name="__main__")
