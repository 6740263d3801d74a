"""Workloads for top-k over a window.

They follow section 8.1.1 of Wang, Zhang, Zhang, Lin and Huang, "Top-k Spatial-keyword Publish/Subscribe Over Sliding
Window" (2017). A subscription has the place of a random message and some of its words, usually 1 to 5; α is uniform in
[0, 1]. Words are weighted by their frequencies in the initial window.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nearcast import config
from nearcast.bench.datasets import scene
from nearcast.bench.experiments import Case
from nearcast.columns import MessageBatch
from nearcast.columns.clauses import keyword_offsets
from nearcast.geometry import Geographic
from nearcast.ranking.frequencies import DocumentFrequencies
from nearcast.ranking.windows import CountWindow, TimeWindow
from nearcast.workloads import Recipe, sampling
from nearcast.workloads.sampling import Ragged

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from nearcast.bench.datasets import Dataset
    from nearcast.ranking.windows import Window

__all__ = ["RankedSubscriptions", "RankingScene", "RankingSetting", "Stream", "ranking_scene"]

_SECOND = 1_000_000  # microseconds between two messages in a window of time


class RankedSubscriptions(NamedTuple):
    """Subscriptions: their places, their words, and the weight of nearness for each."""

    points: NDArray[np.float64]
    words: Ragged
    alphas: NDArray[np.float64]


@dataclass(frozen=True)
class Stream:
    """Subscriptions, and messages in order of arrival; the first *size* fill the window."""

    wishes: RankedSubscriptions
    messages: MessageBatch
    size: int
    window: Window
    k: int
    max_distance: float | None = None

    @cached_property
    def frequencies(self) -> DocumentFrequencies:
        """The document frequencies of words in the initial window."""
        return DocumentFrequencies.of(self.messages.take(np.arange(self.size)))

    def batches(self, begin: int, end: int) -> list[range]:
        """Return the rows of the messages *begin* to *end*, in the batches in which they are published."""
        return [range(at, min(end, at + config.TOPK_BATCH)) for at in range(begin, end, config.TOPK_BATCH)]

    def first(self, rows: int) -> Stream:
        """Return the same with at most *rows* subscriptions, messages in the window, and messages after it."""
        size = min(self.size, rows)
        some = np.arange(min(rows, len(self.wishes.points)))
        return Stream(
            RankedSubscriptions(
                self.wishes.points[some], sampling.take(self.wishes.words, some), self.wishes.alphas[some]
            ),
            self.messages.take(np.arange(min(size + rows, len(self.messages)))),
            size,
            _window(size, timed=isinstance(self.window, TimeWindow)),
            self.k,
            self.max_distance,
        )


@dataclass(frozen=True)
class RankingSetting:
    """Everything that determines a workload except the seed.

    The words of a subscription come from the message whose place it has or, with *zipf*, from all words of the window
    by a Zipf law over their ranks. With *timed* the window is one of time, in which messages arrive at equal intervals.
    """

    dataset: Dataset
    subscriptions: int
    window: int
    messages: int  # that arrive once the window is full
    k: int = config.TOPK_K
    keywords: tuple[int, int] = config.AP_KEYWORDS
    zipf: bool = False
    timed: bool = False

    @property
    def name(self) -> str:
        """The name of the data."""
        return self.dataset.name

    def make(self, seed: int) -> Case:
        """Return the workload."""
        total = self.window + self.messages
        recipe = Recipe(keywords=self.keywords, area=(0.0, 0.0))  # a box of zero size: the place
        made = self.dataset.make(self.subscriptions, total, seed=seed, recipe=recipe)
        clauses, messages = made.subscriptions.clauses, made.messages
        rng = np.random.default_rng(np.random.SeedSequence(seed).spawn(4)[3])  # the data uses the other three
        words = Ragged(keyword_offsets(clauses), clauses.keywords)
        if self.timed:
            probes = messages.probes
            messages = MessageBatch.from_arrays(
                probes.boxes[:, :2],
                probes.keyword_offsets,
                probes.keywords,
                published_at=np.arange(total, dtype=np.int64) * _SECOND,
                space=messages.space,
            )
        if self.zipf:
            words = _by_rank(rng, messages.take(np.arange(self.window)), np.diff(words.offsets))
        return Case(
            {**made.facts, "k": self.k, "window": self.window, "zipf": self.zipf, "timed": self.timed},
            ranking=Stream(
                RankedSubscriptions(clauses.boxes[:, :2], words, rng.random(self.subscriptions)),
                messages,
                self.window,
                _window(self.window, self.timed),
                self.k,
                config.TOPK_FAR_M if isinstance(messages.space, Geographic) else None,
            ),
        )


@dataclass(frozen=True)
class RankingScene:
    """The sizes and datasets that the experiments of one run share."""

    datasets: tuple[Dataset, ...]  # the first one is used where something else varies
    subscriptions: int
    window: int
    messages: int
    k: int

    def setting(
        self,
        dataset: Dataset | None = None,
        *,
        times: int = 1,
        window_times: int = 1,
        k: int | None = None,
        keywords: tuple[int, int] = config.AP_KEYWORDS,
        zipf: bool = False,
        timed: bool = False,
    ) -> RankingSetting:
        """Return the setting with the sizes of the scene, or with *times* the subscriptions or the window."""
        return RankingSetting(
            dataset or self.datasets[0],
            self.subscriptions * times,
            self.window * window_times,
            self.messages,
            k or self.k,
            keywords,
            zipf,
            timed,
        )


def ranking_scene(
    subscriptions: int,
    window: int,
    messages: int,
    k: int = config.TOPK_K,
    data: Path | None = None,
) -> RankingScene:
    """Return the scene: tweets, places, and the synthetic dataset most like YELP, which is not available."""
    world = scene(subscriptions, messages, data)
    like_yelp = next(dataset for dataset in world.others if dataset.name == "cars-like")
    return RankingScene((world.tweets, world.places, like_yelp), subscriptions, window, messages, k)


def _window(size: int, timed: bool) -> Window:
    return TimeWindow(size) if timed else CountWindow(size)  # a message a second


def _by_rank(rng: np.random.Generator, window: MessageBatch, lengths: NDArray[np.int64]) -> Ragged:
    """Return rows of distinct words of the window with the given lengths, drawn by a Zipf law over their ranks."""
    counts = np.bincount(window.probes.keywords)
    ranked = np.argsort(-counts, kind="stable")[: np.count_nonzero(counts)].astype(np.int32)
    most = min(int(lengths.max()), len(ranked))
    law = sampling.zipf(len(ranked), config.TOPK_ZIPF_EXPONENT)
    drawn = sampling.distinct_words(rng, law, len(lengths), most).words.reshape(-1, most)
    kept = np.arange(most) < lengths[:, None]
    return Ragged(np.concatenate([[0], np.cumsum(kept.sum(axis=1))]), ranked[drawn[kept]])
