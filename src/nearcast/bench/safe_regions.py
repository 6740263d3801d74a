"""``nearcast bench safe-regions``: how many reports safe regions spare, and what they cost.

Subscribers walk, and messages arrive and expire. In one run everybody reports every step; in the others they report
when they leave their safe region, or are asked to. All runs see the same walks and messages, and whatever somebody is
told in a second is compared with the first run. The answer to a request is a report like any other.

The runs are those of Figures 26 and 27 of Wang, Zhang, Zhang, Lin and Wang, "AP-Tree: Efficiently Support
Location-Aware Publish/Subscribe" (2015), without Elaps, whose code is not public. The safe region of their footnote 17
considers only the nearest message outside, so its subscribers learn too late what went out of reach.
"""

from __future__ import annotations

import time
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearcast import config
from nearcast.bench.measure import Progress
from nearcast.bench.walks import Walks, walks
from nearcast.clock import ManualClock
from nearcast.columns.deliveries import Deliveries
from nearcast.engine import Engine
from nearcast.engine.promises import Promises
from nearcast.engine.safe_regions import safe_radii
from nearcast.geometry import Point
from nearcast.kernels import kernel
from nearcast.kernels.sphere import great_circle
from nearcast.model import Message

__all__ = ["RUNS", "run"]

RUNS = ("every step", "footnote 17", "safe regions")
_SECOND = 1_000_000


def run(
    subscriptions: int,
    messages: int,
    *,
    fitting: int,
    rate: int,
    seconds: int,
    radius: float = config.WALK_RADIUS_M,
    at_most: float | None = None,
    seed: int = 0,
    data: Path | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Let *subscriptions* walk for some *seconds* while *rate* messages arrive in each; return the report's body.

    About *messages* are valid at a time, of which *fitting* have what a subscription asks for.
    """
    tell = progress or (lambda _text, _share: None)
    tell("making walks", 0.0)
    walk = walks(subscriptions, seconds, seed, data)
    news = _arrivals(walk, messages, fitting, rate, seconds, seed)
    told: list[list[Counter[tuple[int, int]]]] = []
    results = []
    for number, name in enumerate(RUNS):
        tell(name, number / len(RUNS))
        one = _Run(
            name, walk, news, words=max(messages // fitting, 1), radius=radius, at_most=at_most, seed=seed
        )
        told.append([one.second(at) for at in range(seconds)])
        results.append(one.figures() | {"differences": _differences(told[0], told[-1])})
    for result in results:
        result["spared"] = 1 - result["reports"] / results[0]["reports"]
        # The same if a request and its answer count as two.
        result["spared_both_ways"] = result["spared"] - result["requests"] / results[0]["reports"]
    wrong = [
        f"{result['index']}: {result['differences']:,} deliveries missed, late or too many"
        for result in results
        if result["differences"] and result["index"] != "footnote 17"
    ]
    return {
        "workload": {
            "name": walk.name,
            "seed": seed,
            "facts": {"radius_m": radius, "fitting": fitting, "rate": rate},
        },
        "sizes": {"subscriptions": subscriptions, "messages": messages, "seconds": seconds},
        "results": results,
        "mismatches": wrong,
    }


def _arrivals(
    walk: Walks, valid: int, fitting: int, rate: int, seconds: int, seed: int
) -> list[list[Message]]:
    """Return the messages valid at the beginning, and those that arrive in each second; each has one word."""
    rng = np.random.default_rng([seed, 2])
    words, life = max(valid // fitting, 1), valid / rate * _SECOND
    made, numbers = [], 0
    for second, count in enumerate([valid] + [rate] * seconds):
        places = walk.spots[rng.integers(0, len(walk.spots), count)].tolist()
        ends = second * _SECOND + rng.exponential(life, count).astype(np.int64) + 1
        made.append(
            [
                Message(numbers + i, f"w{word}", Point(lon=lon, lat=lat), expires_at=int(end))
                for i, (word, (lon, lat), end) in enumerate(zip(rng.integers(0, words, count), places, ends))
            ]
        )
        numbers += count
    return made


class _Run:
    """One engine with its subscribers: everybody reports every step, or those who must."""

    def __init__(
        self, name: str, walk: Walks, news: list[list[Message]], *, words: int, radius: float,
        at_most: float | None, seed: int,
    ) -> None:  # fmt: skip
        self.name, self.walk, self.news, self.at_most = name, walk, news, at_most
        self.clock = ManualClock(0)
        self.engine = Engine(clock=self.clock)
        # From outside, because nobody but this measurement wants an engine that makes the paper's promises.
        if name == "footnote 17":
            self.engine._promises = _Footnote(self.engine.coding)
        count = len(walk.begin)
        wanted = np.random.default_rng([seed, 3]).integers(0, words, count)
        lon, lat = walk.begin.T
        self.engine.subscribe(
            {
                "id": np.arange(count),
                "expression": [f"w{word}" for word in wanted],
                "lon": lon,
                "lat": lat,
                "radius_m": np.full(count, radius),
            }
        )
        self.place = walk.begin.copy()
        self.safe = np.column_stack([walk.begin, np.full(count, -1.0)])  # lon, lat, radius; -1 for none
        self.engine.publish(news[0])
        self.reports = self.requests = self.steps = 0
        self.spent: Counter[str] = Counter()
        self.calls: Counter[str] = Counter()
        self._promise(np.arange(count))
        self.spent.clear()
        self.calls.clear()

    def second(self, at: int) -> Counter[tuple[int, int]]:
        """Let a second pass: subscribers walk, then messages arrive; return how often each pair was told, + and -."""
        self.clock.advance(seconds=1)
        now = slice(self.walk.offsets[at], self.walk.offsets[at + 1])
        who, where = self.walk.who[now], self.walk.where[now]
        self.place[who] = where
        self.steps += len(who)
        heard: Counter[tuple[int, int]] = Counter()
        self._report(who[_outside(self.safe[who], where)], heard)
        told = self._timed("publish", len(self.news[at + 1]), self.engine.publish, self.news[at + 1])
        _note(heard, told)
        asked = np.array(told.to_report, np.int64)
        self.requests += len(asked)
        self._report(asked, heard)
        return Counter({pair: change for pair, change in heard.items() if change})

    def _report(self, who: NDArray[np.int64], heard: Counter[tuple[int, int]]) -> None:
        """Let subscribers report where they are, and get their next safe regions."""
        if not len(who):
            return
        self.reports += len(who)
        lon, lat = self.place[who].T
        moves = {"id": who, "lon": np.ascontiguousarray(lon), "lat": np.ascontiguousarray(lat)}
        _note(heard, self._timed("move", len(who), self.engine.move, moves))
        self._promise(who)

    def _promise(self, who: NDArray[np.int64]) -> None:
        if self.name != "every step":
            found = self._timed("safe_region", len(who), self.engine.safe_region, who, at_most=self.at_most)
            self.safe[who] = found.circles

    def _timed(self, verb: str, count: int, call: Any, *arguments: Any, **options: Any) -> Any:
        start = time.process_time()
        found = call(*arguments, **options)
        self.spent[verb] += time.process_time() - start  # type: ignore[assignment]  # a Counter adds anything
        self.calls[verb] += count
        return found

    def figures(self) -> dict[str, Any]:
        """Return what was counted and measured."""
        each = {
            f"{verb}_microseconds": self.spent[verb] / self.calls[verb] * 1e6
            for verb in ("publish", "move", "safe_region")
            if self.calls[verb]
        }
        return {
            "index": self.name,
            "steps": self.steps,
            "reports": self.reports,
            "requests": self.requests,
            "seconds": float(sum(self.spent.values())),
            "promises": self.engine.stats()["promises"],
            **each,
        }


class _Footnote(Promises):
    """Promises of the paper's safe regions: the distance to the nearest message outside less the reach."""

    _radii = staticmethod(partial(safe_radii, inside=False))


def _note(heard: Counter[tuple[int, int]], told: Deliveries) -> None:
    """Count deliveries: those that come, less those that go."""
    if len(told):
        table = told.to_arrow()
        signs = np.where(table["change"].to_numpy() == "+", 1, -1)
        names = (table[name].to_pylist() for name in ("subscription_id", "message_id"))
        for *pair, sign in zip(*names, signs.tolist(), strict=True):
            heard[tuple(pair)] += sign


def _differences(expected: list[Counter[tuple[int, int]]], told: list[Counter[tuple[int, int]]]) -> int:
    """Return how many deliveries came in another second, or not at all."""
    return sum(len(set(one.items()) ^ set(two.items())) for one, two in zip(expected, told, strict=True))


def _outside(safe: NDArray[np.float64], where: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Tell who has left its safe region."""
    outside = np.empty(len(safe), np.bool_)
    _leave(safe, where, outside)
    return outside


@kernel
def _leave(safe: NDArray[np.float64], where: NDArray[np.float64], outside: NDArray[np.bool_]) -> None:
    for i in range(len(safe)):
        far = great_circle(safe[i, 0], safe[i, 1], where[i, 0], where[i, 1])
        outside[i] = far > safe[i, 2]
