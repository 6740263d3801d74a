"""The command line: ``nearcast``, with a module for each command.

Data goes to stdout, messages and progress to stderr; ``--json`` is for machines. The exit code is 0 for success, 1 for
a failure while running or if something outside Nearcast is missing, and 2 if the command or its input is wrong. A
mistake is reported in one line on stderr, never as a traceback. Commands import what they need when they run, so that
``--help`` answers at once.
"""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from nearcast import __version__
from nearcast.bench.commands import app as bench
from nearcast.cli import build, demo, explain, match, prepare, profile, shards, stream, talk
from nearcast.errors import InputError, NearcastError, UnknownError

__all__ = ["Commands", "app", "main"]


class Commands(TyperGroup):
    """A group of commands that report errors as sentences."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command; turn errors into a line and an exit code, and warnings of Nearcast into lines."""
        try:
            with talk.print_warnings():
                return super().invoke(ctx)
        except NearcastError as error:
            talk.tell(f"nearcast: {error}")
            raise typer.Exit(2 if isinstance(error, InputError | UnknownError) else 1) from None
        except BrokenPipeError:  # the reader of our output has closed the pipe
            raise
        except OSError as error:
            talk.tell(f"nearcast: {error.strerror or error}{f': {error.filename}' if error.filename else ''}")
            raise typer.Exit(1) from None


def _example(*lines: str) -> str:
    """Return the end of a help text; the mark in front keeps its lines from being rewrapped."""
    return "\b\n" + "\n".join(("Example:", *(f"  {line}" for line in lines)))


app = typer.Typer(
    name="nearcast",
    cls=Commands,
    add_completion=False,
    invoke_without_command=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=_example("nearcast demo"),
)
app.command(epilog=_example("nearcast demo --output nearcast-demo", "nearcast demo --moving"))(demo.demo)
app.command(
    epilog=_example(
        "nearcast match nearcast-demo/messages nearcast-demo/subscriptions.parquet \\",
        "  --output deliveries.csv        # on the files of nearcast demo",
    )
)(match.match)
app.command(
    epilog=_example(
        "nearcast explain 'm1: Hot coffee! AT POINT (-73.99 40.73)' \\",
        "  'anna: coffee NOT decaf WITHIN CIRCLE (-73.99 40.73, 800 m)'",
    )
)(explain.explain)
app.command(
    epilog=_example("nearcast shards --distribution location,keyword --shards 4,64 --plot shards.svg")
)(shards.shards)
app.command(
    epilog=_example(
        "nearcast prepare messages raw.csv prepared --number price \\",
        "  --column id='concat(source, number)' --column source= --column number=",
    )
)(prepare.prepare)
app.command(
    epilog=_example(
        "nearcast profile profiles --messages prepared/good --subscriptions subscriptions.parquet"
    )
)(profile.profile)
app.command(epilog=_example("nearcast build subscriptions.parquet versions --shards 4 --profile profiles"))(
    build.build
)
app.command(
    epilog=_example(
        "nearcast stream incoming versions deliveries --checkpoint checkpoint --trigger 1s",
        "nearcast stream kafka://localhost:9092/messages versions kafka://localhost:9092/deliveries \\",
        "  --checkpoint checkpoint --schema 'id long, lon double, lat double, text string'",
    )
)(stream.stream)
app.add_typer(bench, name="bench")


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"nearcast {__version__}")
        raise typer.Exit


@app.callback()
def nearcast(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Deliver geo-tagged messages to the people who want them: by place, by words and by values."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def main() -> None:
    """Run the command line."""
    app(prog_name="nearcast")
