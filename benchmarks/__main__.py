"""``python -m benchmarks``: see :mod:`benchmarks.papers.commands`."""

from benchmarks.papers.commands import app

if __name__ == "__main__":
    app(prog_name="python -m benchmarks")
