"""A plan: how many hosts some number of subscriptions and messages a second would take, and what breaks first.

Nothing here is run at that size. The costs of a shard are measured on this machine (:mod:`.costs`), and how a
distribution divides the data is simulated for some numbers of shards (:mod:`.simulation`). The data counts as a sample
of all subscriptions: a thousand times as many subscriptions match a message a thousand times as often. Somebody who
expects fewer deliveries gets less network, but the same search: it is not known that it would look at less.

Between the simulated numbers of shards figures are interpolated on logarithmic scales, and beyond them continued with
the last slope. One shard has one host, all of whose cores work for it; routers, which decide where a message goes, have
hosts of their own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from nearcast import config
from nearcast.sharding.costs import Costs
from nearcast.sharding.simulation import Simulation

__all__ = ["RESOURCES", "Demand", "Host", "Plan", "plan"]


class Demand(NamedTuple):
    """What is asked for."""

    subscriptions: float
    rate: float  # messages a second
    deliveries: float  # of a message


class Host(NamedTuple):
    """What one host has."""

    cores: int
    memory_gb: float
    network_gbit: float

    @property
    def network_bytes(self) -> float:
        """Bytes a second, in each direction."""
        return self.network_gbit * 1e9 / 8


class Plan(NamedTuple):
    """The hosts of one distribution; *shards* is None if no number of them is enough."""

    distribution: str
    shards: int | None
    routers: int
    needs: dict[str, int | None]  # for each resource alone: the number of shards that it takes
    copies: float
    sent: float
    skew: float  # the busiest shard's processor time, by the mean
    memory_bytes: float  # of all shards
    network_bytes: float  # a second: messages that go to shards, and deliveries that leave them
    sentence: str  # what breaks first

    @property
    def hosts(self) -> int | None:
        """All of them."""
        return None if self.shards is None else self.shards + self.routers

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as plain values."""
        return self._asdict() | {"hosts": self.hosts}


#: What a shard may run out of.
RESOURCES = {
    "memory": "memory",
    "processor": "processor time",
    "network in": "the network, by messages that arrive",
    "network out": "the network, by deliveries",
}


def plan(simulated: Sequence[Simulation], costs: Costs, demand: Demand, host: Host) -> Plan:
    """Return the plan for the distribution that was *simulated*, with some numbers of shards, for this demand."""
    curves = _Curves(simulated, costs, demand, host)
    needs = {name: _least(use) for name, use in curves.uses.items()}
    shards = None if None in needs.values() else max(number or 1 for number in needs.values())
    at = shards or max(each.shards for each in simulated)
    sent, copies = curves.sent(at), curves.copies(at)
    found = Plan(
        simulated[0].distribution,
        shards,
        max(math.ceil(curves.routers(at)), 1),
        needs,
        copies,
        sent,
        curves.skew(at),
        demand.subscriptions * copies * costs.subscription_bytes,
        demand.rate * (sent * costs.message_bytes + demand.deliveries * costs.delivery_bytes),
        "",
    )
    return found._replace(sentence=_sentence(found, demand))


class _Curves:
    """The figures of a distribution as functions of the number of shards."""

    def __init__(self, simulated: Sequence[Simulation], costs: Costs, demand: Demand, host: Host) -> None:
        numbers = [each.shards for each in simulated]

        def curve(name: str, most: float = math.inf) -> _Curve:
            return _Curve(numbers, [float(getattr(each, name)) for each in simulated], most)

        stored, arriving, leaving = curve("stored", 1.0), curve("arriving", 1.0), curve("leaving", 1.0)
        load, even, routing = curve("load_ns"), curve("even_ns"), curve("routing_ns")
        self.copies, self.sent = curve("copies"), curve("sent")
        share = config.PLAN_SHARE
        memory, cores, network = share * host.memory_gb * 1e9, share * host.cores, share * host.network_bytes
        self.skew: Callable[[float], float] = lambda n: load(n) / even(n)
        #: What the busiest shard needs of a resource, as a share of what it may use.
        self.uses: dict[str, Callable[[float], float]] = {
            "memory": lambda n: demand.subscriptions * stored(n) * costs.subscription_bytes / memory,
            "processor": lambda n: demand.rate * load(n) * 1e-9 / cores,
            "network in": lambda n: demand.rate * arriving(n) * costs.message_bytes / network,
            "network out": lambda n: (
                demand.rate * demand.deliveries * leaving(n) * costs.delivery_bytes / network
            ),
        }
        #: How many hosts have to route messages: for the time that it takes, or for what they send.
        self.routers: Callable[[float], float] = lambda n: (
            demand.rate * max(routing(n) * 1e-9 / cores, self.sent(n) * costs.message_bytes / network)
        )


class _Curve:
    """A figure by number of shards: straight lines between the simulated numbers on logarithmic scales."""

    def __init__(self, shards: list[int], values: list[float], most: float) -> None:
        order = np.argsort(shards)
        self._x = np.log(np.array(shards, float)[order])
        self._y = np.log(np.maximum(np.array(values, float)[order], _LITTLE))
        self._most = most

    def __call__(self, shards: float) -> float:
        x, last = math.log(shards), self._x[-1]
        y = float(np.interp(x, self._x, self._y))
        if x > last and len(self._x) > 1:
            y += (x - last) * float((self._y[-1] - self._y[-2]) / (last - self._x[-2]))
        return min(math.exp(y), self._most)


_LITTLE = 1e-12


def _least(use: Callable[[float], float]) -> int | None:
    """Return the least number of shards whose busiest one has enough of a resource, or None if there is none."""
    enough = 1
    while use(enough) > 1:
        enough *= 2
        if enough > config.PLAN_SHARDS:
            return None
    low = enough // 2  # not enough, or 0
    while enough - low > 1:
        middle = (low + enough) // 2
        low, enough = (low, middle) if use(middle) <= 1 else (middle, enough)
    return enough


def _sentence(found: Plan, demand: Demand) -> str:
    """Say what breaks first, and why."""
    first = max(found.needs, key=lambda name: found.needs[name] or math.inf)
    why = {
        "memory": f"a subscription is stored {found.copies:,.1f} times",
        "processor": f"a message is matched in {found.sent:,.1f} shards and has {demand.deliveries:,.1f} deliveries",
        "network in": f"a message goes to {found.sent:,.1f} shards",
        "network out": f"a message has {demand.deliveries:,.1f} deliveries",
    }[first]
    if found.shards is None:
        return f"{RESOURCES[first]} in the busiest shard, and more shards do not help: {why}"
    if found.routers >= found.shards > 1:
        return f"the routers: a message goes to {found.sent:,.1f} shards; then {RESOURCES[first]}"
    busiest = f", and the busiest shard has {found.skew:,.1f} times the mean" if found.skew > _UNEVEN else ""
    limit = f"; {config.SHARDS_MOST:,} shards are the most today" if found.shards > config.SHARDS_MOST else ""
    return f"{RESOURCES[first]}: {why}{busiest}{limit}"


_UNEVEN = 1.5
