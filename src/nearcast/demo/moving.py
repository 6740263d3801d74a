"""The demonstration of moving subscribers: an invented day in one engine, minute by minute, and a page to watch it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from nearcast import config
from nearcast.clock import ManualClock, microseconds
from nearcast.columns.deliveries import CHANGES, REASONS, Deliveries, deliveries_schema
from nearcast.demo import journeys, sample
from nearcast.demo.journeys import DAY, Subscriber
from nearcast.demo.output import make_output
from nearcast.demo.page import cards, message_columns, packed, place_columns, write_page
from nearcast.engine import Engine
from nearcast.geometry import Point
from nearcast.model import Message

__all__ = ["MIDNIGHT", "Progress", "Replay", "Summary", "points", "replay", "run"]

MIDNIGHT = microseconds("2026-05-16T04:00:00Z")  # in New York, when the day of the sample data begins
_MINUTE = 60_000_000
_SCHEMA = deliveries_schema(pa.string(), pa.string()).append(pa.field("at", pa.timestamp("us", tz="UTC")))


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the day is."""

    minute: int
    deliveries: int

    @property
    def share(self) -> float:
        """The share of the day that has passed."""
        return self.minute / DAY


@dataclass(frozen=True, slots=True)
class Replay:
    """What a day brought: deliveries with the time of each (``at``), the number of moves, and the seconds it took."""

    deliveries: pa.Table
    moves: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Summary:
    """The summary of a run."""

    messages: int
    subscribers: int
    walking: int
    cycling: int
    driving: int
    steps: int
    moves: int
    came_by_publish: int
    came_by_move: int
    went_by_move: int
    went_by_expire: int
    seconds: float  # of the engine's work
    deliveries_path: str
    report_path: str

    def to_dict(self) -> dict[str, Any]:
        """Return the summary as plain values, for JSON."""
        return asdict(self)


def run(
    output: Path,
    tell: Callable[[Progress], None] = lambda progress: None,
    seed: int = config.DEMO_SEED,
) -> Summary:
    """Replay the sample day with moving subscribers, and return a summary.

    The directory *output* is created, or taken over if an earlier run created it. In the end it holds
    ``moving-deliveries.parquet`` and ``moving.html``; whatever else is there stays.
    """
    output = output.resolve()
    make_output(output)
    messages = points(sample("messages"))
    subscribers = journeys.invent(sample("places"), seed)
    done = replay(subscribers, messages, tell)
    summary = _summed_up(done, subscribers, messages, output)
    pq.write_table(done.deliveries, summary.deliveries_path)
    write_page(summary.report_path, "moving.html", _data(done.deliveries, subscribers, messages, summary))
    return summary


def replay(
    subscribers: list[Subscriber],
    messages: pa.Table,
    tell: Callable[[Progress], None] = lambda progress: None,
) -> Replay:
    """Let the day pass: each message is published at its time, and everyone who has moved moves once a minute.

    *messages* are in the order of their times. What expires is withdrawn by whichever call comes next.
    """
    clock = ManualClock(MIDNIGHT)
    engine = Engine(clock=clock, withdrawals=True)
    collected: dict[str, list[Any]] = {name: [] for name in _SCHEMA.names}

    def collect(deliveries: Deliveries) -> None:
        if not len(deliveries):  # most calls bring nothing
            return
        for delivery in deliveries:
            for name in _SCHEMA.names[:-1]:
                collected[name].append(getattr(delivery, name))
            collected["at"].append(clock.now())

    def wait_until(instant: int) -> None:
        clock.advance(seconds=(instant - clock.now()) / 1_000_000)

    ids = pa.array([subscriber.id for subscriber in subscribers])
    places = journeys.positions(subscribers)
    coming = [_message(row) for row in messages.to_pylist()]
    times = [microseconds(row) for row in messages["published_at"].to_pylist()]
    published = moves = 0
    began = time.perf_counter()
    collect(engine.subscribe(journeys.table(subscribers)))
    for minute in range(1, DAY + 1):
        now = MIDNIGHT + minute * _MINUTE
        while published < len(coming) and times[published] < now:
            wait_until(times[published])
            collect(engine.publish(coming[published]))
            published += 1
        wait_until(now)
        on_the_way = np.flatnonzero((places[minute] != places[minute - 1]).any(axis=1))
        collect(engine.move(_moves(ids, places[minute], on_the_way)) if len(on_the_way) else engine.expire())
        moves += len(on_the_way)
        tell(Progress(minute, len(collected["at"])))
    return Replay(pa.table(collected, _SCHEMA), moves, time.perf_counter() - began)


def points(messages: pa.Table) -> pa.Table:
    """Return the messages at a point in or around the city, in the order of their times.

    Warnings for a whole area are left out: whether a circle touches an area takes much longer to decide.
    """
    messages = messages.filter(pc.is_valid(messages["lon"])).sort_by("published_at")
    return messages.filter(np.hypot(*journeys.metres(messages).T) <= config.DEMO_CITY_METRES)


def _message(row: Mapping[str, Any]) -> Message:
    values = {name: row[name] for name in ("category", "price", "rating") if row[name] is not None}
    return Message(
        row["id"],
        row["text"],
        Point(lon=row["lon"], lat=row["lat"]),
        values,
        published_at=row["published_at"],
        expires_at=row["expires_at"],
    )


def _moves(ids: pa.Array, places: NDArray[np.float64], rows: NDArray[np.int64]) -> pa.Table:
    return pa.table({"id": ids.take(pa.array(rows)), "lon": places[rows, 0], "lat": places[rows, 1]})


def _summed_up(done: Replay, subscribers: list[Subscriber], messages: pa.Table, output: Path) -> Summary:
    def count(change: str, reason: str) -> int:
        rows = pc.and_(
            pc.equal(done.deliveries["change"], change), pc.equal(done.deliveries["reason"], reason)
        )
        return int(pc.sum(rows).as_py() or 0)

    modes = [subscriber.mode.name for subscriber in subscribers]
    return Summary(
        messages=len(messages),
        subscribers=len(subscribers),
        walking=modes.count("walks"),
        cycling=modes.count("cycles"),
        driving=modes.count("drives"),
        steps=DAY,
        moves=done.moves,
        came_by_publish=count("+", "publish"),
        came_by_move=count("+", "move"),
        went_by_move=count("-", "move"),
        went_by_expire=count("-", "expire"),
        seconds=round(done.seconds, 3),
        deliveries_path=str(output / "moving-deliveries.parquet"),
        report_path=str(output / "moving.html"),
    )


def _data(
    deliveries: pa.Table, subscribers: list[Subscriber], messages: pa.Table, summary: Summary
) -> dict[str, Any]:
    """Return what the page shows; times of deliveries are in seconds since midnight."""

    def rows(column: str, among: list[str]) -> str:
        return packed(pc.index_in(deliveries[column], pa.array(among)).to_numpy())

    ways = np.concatenate([subscriber.way for subscriber in subscribers])
    seconds = (deliveries["at"].cast(pa.int64()).to_numpy() - MIDNIGHT) // 1_000_000
    return {
        "summary": cards(
            {
                "messages": summary.messages,
                "moving subscribers": summary.subscribers,
                "moves": summary.moves,
                "in reach when published": summary.came_by_publish,
                "reached by moving": summary.came_by_move,
            }
        ),
        "midnight": MIDNIGHT // 1_000_000,
        "zone": "America/New_York",
        "minutes": DAY,
        "extent": [*ways[:, 1:].min(axis=0).tolist(), *ways[:, 1:].max(axis=0).tolist()],
        "messages": message_columns(messages),
        "subscribers": {
            "id": [subscriber.id for subscriber in subscribers],
            "expression": [subscriber.expression for subscriber in subscribers],
            "mode": [subscriber.mode.name for subscriber in subscribers],
            "speed": [subscriber.mode.speed for subscriber in subscribers],
            "radius": [subscriber.radius for subscriber in subscribers],
            "way": [subscriber.way.tolist() for subscriber in subscribers],
        },
        "changes": CHANGES,
        "reasons": REASONS,
        "deliveries": {
            "at": packed(seconds),
            "subscriber": rows("subscription_id", [subscriber.id for subscriber in subscribers]),
            "message": rows("message_id", messages["id"].to_pylist()),
            "change": rows("change", list(CHANGES)),
            "reason": rows("reason", list(REASONS)),
        },
        "places": place_columns(sample("places")),
    }
