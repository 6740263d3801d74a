"""Reading what callers give an engine: objects, tables, or columns in its coding."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from nearcast.columns import MessageBatch, SubscriptionTable
from nearcast.columns.coding import Coding
from nearcast.columns.from_arrow import arrow_table
from nearcast.columns.from_arrow.renaming import Columns, rename_table
from nearcast.columns.from_objects import ids_of, messages_from_objects, subscriptions_from_objects
from nearcast.columns.ids import id_array
from nearcast.errors import ColumnError, ModelError, shown
from nearcast.model import Message, Subscription

__all__ = ["cut_at_repeats", "read_messages", "read_subscriptions", "take_messages", "to_arrow", "to_list"]


def read_subscriptions(
    given: Any, coding: Coding, columns: Columns | None = None
) -> tuple[Any, Callable[[], SubscriptionTable]]:
    """Return the ids of subscriptions, and a function that reads the rest once the ids are known to be good."""
    if isinstance(given, SubscriptionTable):
        _refuse_columns(columns, given)
        return _ids_of(given), lambda: replace(given, ids=None)
    if isinstance(given, Subscription) or _is_objects(given):
        _refuse_columns(columns, given)
        subs = [given] if isinstance(given, Subscription) else list(given)
        wrong = [sub for sub in subs if not isinstance(sub, Subscription)]
        if wrong:
            raise ModelError(f"{shown(wrong[0])} is not a Subscription")
        return [sub.id for sub in subs], lambda: subscriptions_from_objects(subs, like=coding, with_ids=False)
    table = rename_table(arrow_table(given), columns, "subscriptions")
    return _ids_in(table), lambda: replace(SubscriptionTable.from_arrow(table, like=coding), ids=None)


def read_messages(
    given: Any, coding: Coding, now: int | None = None, columns: Columns | None = None
) -> tuple[Any, Callable[[], MessageBatch]]:
    """Return the ids of messages, a list or an Arrow array, and a function that reads the rest as a batch in *coding*.

    With *now*, all words get codes if a message will be kept or is held back, since somebody may ask for them later.
    """
    if isinstance(given, MessageBatch):
        _refuse_columns(columns, given)
        if not given.coding.fits(coding):
            raise ColumnError(
                "the messages are coded by another vocabulary than this engine; make the batch with like=engine"
            )
        return _ids_of(given), lambda: given
    if isinstance(given, Message) or _is_objects(given):
        _refuse_columns(columns, given)
        messages = [given] if isinstance(given, Message) else list(given)
        learn = now is not None and any(_is_kept(message, now) for message in messages)
        wrong = [message for message in messages if not isinstance(message, Message)]
        if wrong:
            raise ModelError(f"{shown(wrong[0])} is not a Message")
        return [message.id for message in messages], lambda: messages_from_objects(
            messages, like=coding, with_ids=False, learn=learn
        )
    table = rename_table(arrow_table(given), columns, "messages")
    names = table.column_names
    learn = now is not None and ("expires_at" in names or "published_at" in names)
    return _ids_in(table), lambda: MessageBatch.from_arrow(table, like=coding, learn=learn)


def _refuse_columns(columns: Columns | None, given: Any) -> None:
    if columns is not None:
        raise ColumnError(f"{shown(given)} is not a table; leave columns= out")


def _ids_in(table: pa.Table) -> pa.Array:
    """Return the ids of a table, or the numbers of its rows; two columns ``id`` are left to those who read the rest."""
    ids = id_array(table["id"], len(table), "id") if table.column_names.count("id") == 1 else None
    return pa.array(np.arange(len(table))) if ids is None else ids


def _is_kept(message: Any, now: int) -> bool:
    """Tell whether a message is kept until it expires, or held back until later."""
    published = getattr(message, "published_at", None)
    return getattr(message, "expires_at", None) is not None or (published is not None and published > now)


def _ids_of(columns: SubscriptionTable | MessageBatch) -> pa.Array:
    return pa.array(np.arange(columns.size)) if columns.ids is None else columns.ids


def to_arrow(ids: Any) -> pa.Array:
    """Return ids as an Arrow array."""
    return ids_of(ids) if isinstance(ids, list) else ids


def to_list(ids: Any) -> list[Any]:
    """Return ids as a list."""
    return ids if isinstance(ids, list) else list(ids.to_pylist())


def take_messages(batch: MessageBatch, ids: Any, rows: NDArray[np.int64]) -> tuple[MessageBatch, Any]:
    """Return some rows of a batch, and their ids."""
    if len(rows) == batch.size:
        return batch, ids
    own = [ids[row] for row in rows.tolist()] if isinstance(ids, list) else ids.take(pa.array(rows))
    return batch.take(rows), own


def cut_at_repeats(batch: MessageBatch, ids: Any) -> Iterator[tuple[MessageBatch, Any]]:
    """Cut a batch where an id repeats, so that the later message can replace the earlier one."""
    if batch.size < 2 or len(to_arrow(ids).unique()) == batch.size:
        yield batch, ids
        return
    first, seen = 0, set[Any]()
    for row, key in enumerate([*to_list(ids), None]):
        if key is None or key in seen:
            yield take_messages(batch, ids, np.arange(first, row))
            first, seen = row, set()
        seen.add(key)


def _is_objects(given: Any) -> bool:
    """Tell whether *given* is an iterable of objects rather than a table."""
    table = (
        hasattr(given, "__arrow_c_stream__") or hasattr(given, "keys") or isinstance(given, pa.RecordBatch)
    )
    return isinstance(given, Iterable) and not table
