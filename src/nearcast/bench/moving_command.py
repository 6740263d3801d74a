"""The command ``nearcast bench moving``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nearcast import config
from nearcast.bench.options import (
    Arrivals,
    Check,
    FloorsFile,
    Indexes,
    JsonFile,
    MessageSource,
    Mobility,
    MovesPerCall,
    PlotFile,
    RealData,
    Repeat,
    ReplaySeconds,
    RoadsName,
    Seed,
    Steps,
    Subscriptions,
    ValidMessages,
)
from nearcast.bench.running import floors_file, run_table
from nearcast.errors import UnknownError, shown

if TYPE_CHECKING:
    from nearcast.bench.measure import Progress

__all__ = ["moving"]


def moving(
    index: Indexes = config.DEFAULT_INDEX,
    subscriptions: Subscriptions = config.MOVING_SUBSCRIPTIONS,
    messages: ValidMessages = config.MOVING_MESSAGES,
    steps: Steps = config.MOVING_STEPS,
    moves: MovesPerCall = config.MOVING_CALL,
    mobility: Mobility = config.MOVING_MOBILITY,
    arrivals: Arrivals = None,
    workload: MessageSource = None,
    roads: RoadsName = None,
    seed: Seed = 0,
    data: RealData = None,
    seconds: ReplaySeconds = config.MOVING_SECONDS,
    repeat: Repeat = 1,
    json: JsonFile = None,
    plot: PlotFile = None,
    check: Check = False,
    floors: FloorsFile = None,
) -> None:
    """Measure subscriptions that move, and messages that come and expire.

    Vehicles travel on roads, and each carries a subscription. In each step of
    30 seconds some of them move, and messages arrive. Measures the time for a
    move (MSP) and for a message (IMM), their parts (SLU, MI), and memory. All
    indexes must give the same answers, and naive ones on a few moves. Matching
    without movement and Engine.move are measured in the same run.

    For example:

    nearcast bench moving --subscriptions 50000 --messages 50000 --steps 5

    In a checkout, "python -m benchmarks moving" repeats Figures 19 to 25 of the
    AP-Tree paper.
    """
    from nearcast.bench.moving_table import compare
    from nearcast.bench.moving_workloads import MovingSetting, moving_scene

    names = _moving_names(index)
    scene = moving_scene(subscriptions, messages, steps, data)
    setting = MovingSetting(
        workload or scene.sources[0],
        roads or scene.maps[0],
        subscriptions,
        messages,
        steps,
        arrivals,
        mobility,
        data=data,
    )

    def run(tell: Progress) -> dict[str, Any]:
        return compare(setting, names, seed=seed, moves=moves, repeat=repeat, seconds=seconds, progress=tell)

    command = (
        f"nearcast bench moving --index {','.join(names)} --subscriptions {subscriptions} --messages {messages} "
        f"--steps {steps} --moves {moves} --mobility {mobility:g}"
        f"{'' if arrivals is None else f' --arrivals {arrivals}'} --workload {setting.messages} "
        f"--roads {setting.roads}{' --data DIR' if data else ''} --seed {seed} --seconds {seconds:g} "
        f"--repeat {repeat}"
    )
    run_table("moving", command, run, json=json, plot=plot, floors=floors_file(check, floors), data=data)


def _moving_names(given: str) -> list[str]:
    """Return the distinct names in ``a,b,c``; raise if one does not exist."""
    from nearcast.matching.moving import MOVING

    names = list(dict.fromkeys(name.strip() for name in given.split(",") if name.strip()))
    for name in names:
        if name not in MOVING:
            raise UnknownError(f"no moving index {shown(name)}; there are {', '.join(MOVING)}")
    return names
