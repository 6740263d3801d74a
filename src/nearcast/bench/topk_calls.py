"""``nearcast bench topk-calls``: what a call of ``TopK`` costs, by its size, its threads and the weights of words.

Calls of all sizes take turns on one ``TopK``, with one thread and with several. So all have the same state, and what
else the machine does disturbs all alike. A measurement publishes the same number of messages, in few large or in many
small calls. It goes from the batch of messages to the columns of deliveries; turning these into an Arrow table is
measured apart. New subscriptions are measured in a second window too, in which all words weigh the same.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from nearcast import config
from nearcast.bench.measure import Progress, each, timed
from nearcast.bench.topk_answers import RankedAnswers
from nearcast.ranking import TopK

if TYPE_CHECKING:
    from nearcast import MessageBatch
    from nearcast.bench.topk_workloads import RankingScene, Stream

__all__ = ["measured_messages", "run"]


def measured_messages(sizes: Sequence[int], threads: int, repeat: int) -> int:
    """Return how many messages a run publishes once the window is full: all sizes, and a first turn for nothing."""
    return len(sizes) * len({1, threads}) * (repeat + 1) * max(sizes)


def run(
    scene: RankingScene,
    sizes: Sequence[int],
    *,
    seed: int = 0,
    repeat: int = config.BENCH_REPEAT,
    threads: int = 2,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Measure calls that publish as many messages as *sizes* say, and new subscriptions; return the body of a report.

    *scene* has :func:`measured_messages`. ``mismatches`` compares the results in the end with naive ones, on a sample.
    """
    tell = progress or (lambda _text, _share: None)
    tell("make the workload", 0.0)
    setting = scene.setting()
    case = setting.make(seed)
    stream = case.ranking
    assert stream is not None, f"{setting} has no stream"
    tell("fill a window in which all words weigh the same", 0.05)
    equal = _subscribed(_full(stream, weighted=False), stream)
    tell("fill the window", 0.15)
    top = _full(stream, weighted=True)
    weighted = _subscribed(top, stream)
    tell("subscribe", 0.3)
    _subscribe(top, stream, len(top), len(stream.wishes.points))
    calls = _Calls(top, stream)
    kinds = [(size, count) for size in sizes for count in dict.fromkeys((1, threads))]
    seconds, arrow = dict.fromkeys(kinds, math.inf), dict.fromkeys(kinds, math.inf)
    for turn in range(repeat + 1):
        for size, count in kinds:
            tell(f"calls of {size:,}, turn {turn} of {repeat}", 0.5 + 0.5 * turn / (repeat + 1))
            took, turned = calls.publish(size, count, max(sizes))
            if turn:  # the first one compiles
                seconds[size, count] = min(seconds[size, count], took)
                arrow[size, count] = min(arrow[size, count], turned)
    best = min(seconds[size, 1] for size in sizes)
    published = [
        {
            "index": f"publish {size}, {count} thread{'s' * (count > 1)}",
            "threads": count,
            "microseconds": seconds[size, count] / max(sizes) * 1e6,
            "messages_per_second": max(sizes) / seconds[size, count],
            "speedup_over_one_thread": best / seconds[size, count],
            "arrow_microseconds": arrow[size, count] / max(sizes) * 1e6,
        }
        for size, count in kinds
    ]
    tell("done", 1.0)
    return {
        "workload": {"name": setting.name, "seed": seed, "facts": case.facts},
        "sizes": {
            "subscriptions": scene.subscriptions,
            "window": scene.window,
            "messages": scene.messages,
        },
        "k": scene.k,
        "threads": threads,
        "repeat": repeat,
        "results": [
            *published,
            {"index": "subscribe, words by rarity", **weighted},
            {"index": "subscribe, words alike", **equal},
        ],
        "mismatches": RankedAnswers(stream).compared("blocks", top, calls.published),
    }


class _Calls:
    """The messages that arrive, call by call."""

    def __init__(self, top: TopK, stream: Stream) -> None:
        self._top, self._stream = top, stream
        self.published = 0

    def publish(self, size: int, threads: int, messages: int) -> tuple[float, float]:
        """Publish as many *messages* in calls of a size; return the seconds, and those for tables of deliveries."""
        self._top.threads = threads
        seconds, tables = 0.0, 0.0
        end = self.published + messages
        while self.published < end:
            batch = self._next(min(size, end - self.published))
            took, told = timed(partial(self._top.publish, batch))
            seconds += took
            tables += timed(told.to_arrow)[0]
        return seconds, tables

    def _next(self, size: int) -> MessageBatch:
        begin = self._stream.size + self.published
        self.published += size
        return self._stream.messages.take(np.arange(begin, begin + size))


def _full(stream: Stream, *, weighted: bool) -> TopK:
    """Return a full window without subscriptions."""
    top = TopK(
        stream.window,
        space=stream.messages.space,
        max_distance=stream.max_distance,
        document_frequency=stream.frequencies if weighted else None,
    )
    for rows in stream.batches(0, stream.size):
        top.publish(stream.messages.take(rows))
    return top


def _subscribed(top: TopK, stream: Stream) -> dict[str, float]:
    """Subscribe with some of the subscriptions; return the times of a new one, in a large call and alone."""
    few = min(len(stream.wishes.points), config.TOPK_SUBSCRIBED) // 10
    _subscribe(top, stream, 0, few)  # compiles
    together, _ = timed(partial(_subscribe, top, stream, few, 9 * few))
    alone = each(partial(_subscribe, top, stream, row, row + 1) for row in range(9 * few, 10 * few))
    return {
        "microseconds": together / max(1, 8 * few) * 1e6,
        "single_microseconds": float(alone.mean()) * 1e6 if few else 0.0,
    }


def _subscribe(top: TopK, stream: Stream, begin: int, end: int) -> None:
    """Let the subscriptions *begin* to *end* come, as many at a time as the memory of an evaluation allows."""
    points, words, alphas = stream.wishes
    for at in range(begin, end, config.TOPK_SUBSCRIBED):
        stop = min(end, at + config.TOPK_SUBSCRIBED)
        offsets = words.offsets[at : stop + 1]
        top.subscribe(
            points[at:stop],
            offsets - offsets[0],
            words.words[offsets[0] : offsets[-1]],
            alpha=alphas[at:stop],
            k=stream.k,
        )
