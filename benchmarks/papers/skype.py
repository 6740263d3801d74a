"""Figures 10 to 20 and Table 4 of the Skype paper as experiments.

The paper is Wang, Zhang, Zhang, Lin and Huang, "Top-k Spatial-keyword Publish/Subscribe Over Sliding Window" (2017),
section 8.1. Its Skype is IGPT with cost-based buffers. Here ``blocks``, the index that TopK uses, takes its place;
``igpt`` is included where indexes are compared. Where numbers grow, they grow in multiples of the scene's numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from nearcast.bench.experiments import Experiment
from nearcast.bench.topk import BUFFER, INDEX, INDIVIDUAL, RankingCell
from nearcast.bench.topk_workloads import RankingScene, RankingSetting

__all__ = ["FIGURES"]

KMAX_TRIED = (1, 2, 3, 4, 5, 6)  # Fig. 10a, in units of k
SKYBAND_TRIED = (1.0, 0.95, 0.9, 0.85, 0.8, 0.75)  # Fig. 10b
GROUPS_TRIED = (5, 10, 20, 30, 40)  # Fig. 11
KEYWORDS_TRIED = (1, 2, 3, 4, 5)  # Fig. 15
K_TRIED = (10, 20, 30, 40, 50)  # Figs. 16 and 20
GROWTH = (1, 2, 3, 4, 5)  # Figs. 17 and 18: 1 to 5 million

SKYPE = "skype"
SYSTEMS = {  # Figures 15 to 20: an index and its buffers
    SKYPE: (INDEX, BUFFER),
    "igpt + cost-based": ("igpt", BUFFER),
    "ciq + kmax": ("ciq", "kmax"),
}
BOTH = ("amp_microseconds", "emp_microseconds")
K = "results of a subscription k"
DATASET = "dataset"
TUNED = f"the index is {INDEX}"
SYSTEM = f"{SKYPE}: {INDEX} with {BUFFER} buffers"


def kmax(scene: RankingScene) -> Experiment:
    """Figure 10a: the size of kmax buffers."""
    tried = [(round(times * scene.k), {"times": times}) for times in KMAX_TRIED]
    return _tuning("10a", "kmax: effect of the size of buffers", "kmax", scene, tried)


def skyband(scene: RankingScene) -> Experiment:
    """Figure 10b: the threshold of Skyband buffers, as a share of the k-th score."""
    tried = [(share, {"share": share}) for share in SKYBAND_TRIED]
    return _tuning(
        "10b", "Skyband: effect of the threshold, in units of the k-th score", "skyband", scene, tried
    )


def _tuning(
    figure: str,
    title: str,
    buffer: str,
    scene: RankingScene,
    tried: Iterable[tuple[float, Mapping[str, float]]],
) -> Experiment:
    """Return a figure of one kind of buffers at several sizes, and of cost-based buffers, which have no such size."""
    setting = scene.setting()
    return Experiment(
        figure,
        title,
        "kmax" if buffer == "kmax" else "threshold",
        [
            cell
            for x, parameters in tried
            for cell in (
                RankingCell(x, buffer, setting, INDEX, buffer=buffer, buffer_parameters=parameters),
                RankingCell(x, BUFFER, setting, INDEX),
            )
        ],
        measures=("processing_microseconds", "average_buffer"),
        baseline=BUFFER,
        note=f"{TUNED}; {BUFFER} buffers are measured once",
    )


def groups(scene: RankingScene) -> Experiment:
    """Figure 11: the number of α-partitions of IGPT."""
    return Experiment(
        "11",
        "IGPT: effect of the number of α-partitions",
        "groups",
        [
            RankingCell(count, dataset.name, scene.setting(dataset), "igpt", {"groups": count})
            for count in GROUPS_TRIED
            for dataset in scene.datasets
        ],
        measures=("amp_microseconds",),
    )


def prunings(scene: RankingScene) -> Experiment:
    """Figure 12: IGPT with and without group pruning."""
    return Experiment(
        "12",
        "Group pruning",
        DATASET,
        [
            cell
            for name, setting in _datasets(scene)
            for cell in (
                RankingCell(name, "igpt", setting, "igpt"),
                RankingCell(name, "ipt", setting, "igpt", INDIVIDUAL),
                RankingCell(name, INDEX, setting, INDEX),
            )
        ],
        measures=("amp_microseconds",),
        baseline="igpt",
        note="ipt: igpt without group pruning, early termination and cell pruning",
    )


def dissemination(scene: RankingScene) -> Experiment:
    """Figure 13: indexes of subscriptions."""
    return Experiment(
        "13",
        "Indexes of subscriptions",
        DATASET,
        [
            RankingCell(name, index, setting, index)
            for name, setting in _datasets(scene)
            for index in (INDEX, "igpt", "ciq")
        ],
        measures=("amp_microseconds", "index_megabytes"),
        baseline=INDEX,
    )


def re_evaluation(scene: RankingScene) -> Experiment:
    """Figure 14 and Table 4: kinds of buffers."""
    return Experiment(
        "14",
        "Buffers; with Table 4, what they hold on average",
        DATASET,
        [
            RankingCell(name, buffer, setting, INDEX, buffer=buffer)
            for name, setting in _datasets(scene)
            for buffer in (BUFFER, "kmax", "skyband")
        ],
        measures=("emp_microseconds", "average_buffer", "re_evaluations_per_message"),
        baseline=BUFFER,
        note=TUNED,
    )


def keywords(scene: RankingScene) -> Experiment:
    """Figure 15: words of a subscription."""
    settings = [(count, scene.setting(keywords=(count, count))) for count in KEYWORDS_TRIED]
    return _systems("15", "Effect of the number of keywords", "keywords of a subscription", settings)


def results(scene: RankingScene) -> Experiment:
    """Figure 16: k."""
    settings = [(k, scene.setting(k=k)) for k in K_TRIED]
    return _systems("16", "Effect of the number of results", K, settings)


def subscriptions(scene: RankingScene) -> Experiment:
    """Figure 17: the number of subscriptions."""
    settings = [scene.setting(times=times) for times in GROWTH]
    pairs = [(setting.subscriptions, setting) for setting in settings]
    return _systems("17", "Effect of the number of subscriptions", "subscriptions", pairs)


def window(scene: RankingScene) -> Experiment:
    """Figure 18: the size of the window."""
    settings = [scene.setting(window_times=times) for times in GROWTH]
    pairs = [(setting.window, setting) for setting in settings]
    return _systems("18", "Effect of the size of the window", "messages in the window", pairs)


def zipf(scene: RankingScene) -> Experiment:
    """Figure 19: subscriptions whose words are drawn by a Zipf law, not from a message."""
    return _systems("19", "Words of subscriptions by a Zipf law", DATASET, list(_datasets(scene, zipf=True)))


def time_window(scene: RankingScene) -> Experiment:
    """Figure 20: a window of time, by k."""
    settings = [(k, scene.setting(k=k, timed=True)) for k in K_TRIED]
    return _systems("20", "A window of time", K, settings, note="; messages arrive at equal intervals")


def _systems(
    figure: str,
    title: str,
    axis: str,
    settings: Iterable[tuple[float | str, RankingSetting]],
    note: str = "",
) -> Experiment:
    """Return a figure of whole systems."""
    return Experiment(
        figure,
        title,
        axis,
        [
            RankingCell(x, line, setting, index, buffer=buffer)
            for x, setting in settings
            for line, (index, buffer) in SYSTEMS.items()
        ],
        measures=BOTH,
        baseline=SKYPE,
        note=SYSTEM + note,
    )


def _datasets(scene: RankingScene, zipf: bool = False) -> Iterator[tuple[str, RankingSetting]]:
    for dataset in scene.datasets:
        yield dataset.name, scene.setting(dataset, zipf=zipf)


FIGURES: dict[str, Callable[[RankingScene], Experiment]] = {
    "10a": kmax,
    "10b": skyband,
    "11": groups,
    "12": prunings,
    "13": dissemination,
    "14": re_evaluation,
    "15": keywords,
    "16": results,
    "17": subscriptions,
    "18": window,
    "19": zipf,
    "20": time_window,
}
