"""``nearcast bench dskype``: what each distribution for top-k stores and sends, from 4 to 1,024 simulated shards.

The window is filled, and subscriptions get their first results; then every distribution is fitted to the last messages
of the window, and routes the messages that arrive next. These are Table 5 and the communication costs of Figures 21, 22
and 26 of Wang, Zhang, Zhang, Lin and Huang, "Top-k Spatial-keyword Publish/Subscribe Over Sliding Window" (2017).
Nothing is sent: the shards are numbers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from nearcast import config
from nearcast.bench.measure import Progress, timed
from nearcast.bench.topk import INDEX, RankingCell, Start
from nearcast.kernels.hashing import hash_integers
from nearcast.sharding.ranked import RANKED_DISTRIBUTIONS, RankedSample, Wishes, measure, spread

if TYPE_CHECKING:
    from nearcast.bench.topk_workloads import RankingScene, Stream

__all__ = ["simulate"]


def simulate(
    scene: RankingScene, *, seed: int = 0, threads: int = 1, progress: Progress | None = None
) -> dict[str, Any]:
    """Return the body of the report: a side for each dataset, a row for each distribution and number of shards."""
    tell = progress or (lambda _text, _share: None)
    results: list[dict[str, Any]] = []
    facts: dict[str, Any] = {}
    for number, dataset in enumerate(scene.datasets):
        tell(f"fill the window with {dataset.name}", number / len(scene.datasets))
        setting = scene.setting(dataset)
        case = setting.make(seed)
        assert case.ranking is not None, f"{setting} has no stream"
        facts[dataset.name] = case.facts
        seen, arriving = _samples(
            case.ranking, Start(case.ranking, RankingCell("", "", setting, INDEX), threads)
        )
        for shards in config.DSKYPE_SHARDS if number == 0 else (config.DSKYPE_COMPARED,):
            tell(f"{dataset.name} over {shards:,} shards", (number + 0.7) / len(scene.datasets))
            results += [
                {"side": dataset.name, "workload": dataset.name} | _row(name, shards, seen, arriving)
                for name in RANKED_DISTRIBUTIONS
            ]
    return {
        "workload": {"name": scene.datasets[0].name, "seed": seed, "facts": facts},
        "sizes": {"subscriptions": scene.subscriptions, "window": scene.window, "messages": scene.messages},
        "k": scene.k,
        "results": results,
        "mismatches": [],
    }


def _samples(stream: Stream, start: Start) -> tuple[RankedSample, RankedSample]:
    """Return what distributions are fitted to, and what they are measured on: the same subscriptions."""
    points, words, alphas = stream.wishes
    keys = np.empty(len(points), np.uint64)
    hash_integers(np.arange(len(points)), keys)
    lowest = start.top.thresholds(np.arange(len(points)))
    wishes = Wishes(keys, points, words.offsets, words.words, alphas, lowest)
    codes = int(max(words.words.max(initial=0), stream.messages.probes.keywords.max(initial=0))) + 1
    idf, total = stream.frequencies.idf(codes), len(stream.messages)
    seen = np.arange(max(0, stream.size - config.SHARD_SAMPLE), stream.size)
    return (
        RankedSample(wishes, stream.messages.take(seen), idf),
        RankedSample(wishes, stream.messages.take(np.arange(stream.size, total)), idf),
    )


def _row(name: str, shards: int, seen: RankedSample, arriving: RankedSample) -> dict[str, Any]:
    seconds, distribution = timed(lambda: spread(name, seen, shards))
    figures = measure(distribution, arriving)
    return {
        "index": f"{name}, {shards:,} shards",
        "name": name,
        "shards": shards,
        "replication": figures.replication,
        "sent": figures.sent,
        "sent_share": figures.sent / shards,  # hashing sends to all shards
        "work": figures.work,
        "skew": figures.skew,
        "fit_seconds": seconds,
    }
