"""``nearcast explain``: why a message matches a subscription, or why not."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from nearcast.cli import renaming, talk
from nearcast.cli.renaming import Rename
from nearcast.errors import InputError, shown

__all__ = ["explain"]

_T = TypeVar("_T")


def explain(
    message: Annotated[
        str | None,
        typer.Argument(metavar="MESSAGE", help="JSON, text, or @FILE with either.", show_default=False),
    ] = None,
    subscription: Annotated[
        str | None,
        typer.Argument(metavar="SUBSCRIPTION", help="JSON, text, or @FILE with either.", show_default=False),
    ] = None,
    messages: Annotated[
        str | None, typer.Option(metavar="FILE", help="Take the message from this file, as `match` reads it.")
    ] = None,
    message_id: Annotated[str | None, typer.Option(metavar="ID", help="Which message of the file.")] = None,
    subscriptions: Annotated[
        str | None, typer.Option(metavar="FILE", help="Take the subscription from this file.")
    ] = None,
    subscription_id: Annotated[
        str | None, typer.Option(metavar="ID", help="Which subscription of the file.")
    ] = None,
    rename: Rename = None,
    json: Annotated[bool, typer.Option("--json", help="Print the explanation as JSON.")] = False,
) -> None:
    """Show why a message matches a subscription, or why it does not.

    Every test is shown with its outcome. The exit code is 0 for either answer; 2 means that the input could not be
    understood.
    """
    from nearcast import files
    from nearcast.columns.from_arrow.renaming import Kind, Renaming
    from nearcast.engine.explain import explain as explained
    from nearcast.model import Message, Subscription

    if messages is not None and subscription is None:
        message, subscription = None, message  # a single argument is the one that does not come from a file
    read: list[Kind] = ["messages"] if messages is not None else []
    read += ["subscriptions"] if subscriptions is not None else []
    if rename and not read:
        raise InputError("--rename is for files; give --messages FILE or --subscriptions FILE too")
    columns = Renaming(renaming.parse(rename), *read)
    msg = _given(
        "message",
        message,
        messages,
        message_id,
        partial(files.find_message, columns=columns),
        Message.from_json,
        Message.from_text,
    )
    sub = _given(
        "subscription",
        subscription,
        subscriptions,
        subscription_id,
        partial(files.find_subscription, columns=columns),
        Subscription.from_json,
        Subscription.from_text,
    )
    answer = explained(sub, msg)
    if json:
        talk.print_json(answer.to_dict())
    else:
        typer.echo(str(answer))


def _given(
    what: str,
    written: str | None,
    file: str | None,
    id: str | None,
    find: Callable[[str, str], _T],
    from_json: Callable[[str], _T],
    from_text: Callable[[str], _T],
) -> _T:
    """Return the message or subscription, given on the command line in one of two ways."""
    if (file is None) != (id is None):
        raise InputError(f"--{what}s FILE and --{what}-id ID belong together; give both")
    if (written is None) == (file is None):
        raise InputError(
            f"give the {what} either as an argument or with --{what}s FILE --{what}-id ID"
            + (", not both" if written is not None else "")
        )
    if file is not None and id is not None:
        return find(file, id)
    assert written is not None
    if written.startswith("@"):
        written = _content(Path(written[1:]))
    try:
        return from_json(written) if written.lstrip().startswith("{") else from_text(written)
    except InputError as error:
        raise type(error)(f"{what.upper()}: {error}") from None


def _content(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8"
        raise InputError(f"cannot read {shown(str(path))}: {reason}") from None
