"""``nearcast shards --plan``: the hosts that a number of subscriptions and messages a second would take."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

from nearcast import config
from nearcast.cli import talk
from nearcast.errors import InputError, shown

if TYPE_CHECKING:
    from nearcast.sharding.distribution import Sample
    from nearcast.sharding.plan import Host, Plan

__all__ = ["Aim", "asked", "make", "show"]


class Aim(NamedTuple):
    """What a plan is asked for."""

    subscriptions: float
    rate: float
    matches: float | None  # deliveries of a message, if they were given
    host: Host


def asked(
    subscriptions: float | None,
    rate: float | None,
    matches: float | None,
    cores: int | None,
    memory_gb: float | None,
    network_gbit: float | None,
    *,
    wanted: bool,
) -> Aim | None:
    """Return what ``--plan`` is about, or None without it."""
    from nearcast.sharding.plan import Host

    given = {
        "--subscriptions": subscriptions,
        "--rate": rate,
        "--matches": matches,
        "--host-cores": cores,
        "--host-memory": memory_gb,
        "--host-network": network_gbit,
    }
    if not wanted:
        for name, value in given.items():
            if value is not None:
                raise InputError(f"{name} is for a plan; add --plan, or leave {name} out")
        return None
    for name, value in given.items():
        if value is not None and not (math.isfinite(value) and value > 0):
            raise InputError(f"{name} must be a number above 0, not {shown(value)}")
    if subscriptions is None or rate is None:
        missing = "--subscriptions" if subscriptions is None else "--rate"
        raise InputError(f"--plan needs {missing}, for example --plan --subscriptions 1e9 --rate 1e6")
    host = Host(
        cores or config.PLAN_CORES,
        memory_gb or config.PLAN_MEMORY_GB,
        network_gbit or config.PLAN_NETWORK_GBIT,
    )
    return Aim(subscriptions, rate, matches, host)


def make(names: list[str], counts: list[int], sample: Sample, aim: Aim) -> dict[str, Any]:
    """Simulate and measure; return the plans and what they rest on, as one document."""
    from nearcast.sharding.costs import calibrate
    from nearcast.sharding.distribution import fit
    from nearcast.sharding.plan import Demand, plan
    from nearcast.sharding.simulation import simulate

    counts = sorted({1, *counts})
    sizes = len(sample.table), len(sample.batch)
    if not all(sizes):
        raise InputError(
            f"a plan needs subscriptions and messages, not {sizes[0]:,} and {sizes[1]:,} of them"
        )
    fit(names[0], sample, counts[-1])  # raises for an impossible name or number before the work begins
    with talk.progress() as show:
        show("matching the messages", None)
        matches = len(sample.found.rows) / sizes[1] * aim.subscriptions / sizes[0]
        deliveries = aim.matches or matches
        show("measuring costs", None)
        costs = calibrate(sample)
        demand = Demand(aim.subscriptions, aim.rate, deliveries)
        plans = []
        for done, name in enumerate(names):
            simulated = []
            for each in counts:
                show(f"{name}, {each:,} shards", done / len(names))
                simulated.append(simulate(fit(name, sample, each), sample, costs, matches, deliveries))
            plans.append(plan(simulated, costs, demand, aim.host))
    return {
        **demand._asdict(),
        "deliveries_a_day_and_subscription": demand.rate * deliveries * _DAY / demand.subscriptions,
        "host": aim.host._asdict(),
        "share_used": config.PLAN_SHARE,
        "simulated": {"subscriptions": sizes[0], "messages": sizes[1], "shards": counts},
        "costs": costs._asdict(),
        "matches": matches,
        "plans": [each.to_dict() for each in _sorted(plans)],
    }


_DAY = 24 * 3600


def _sorted(plans: list[Plan]) -> list[Plan]:
    """Fewest hosts first."""
    return sorted(plans, key=lambda each: each.hosts or math.inf)


def show(document: dict[str, Any]) -> None:
    """Print the costs, a table of plans, what breaks first, and what is not known."""
    from rich.table import Table

    host, costs, simulated = document["host"], document["costs"], document["simulated"]
    print_ = talk.console().print
    print_(
        f"Measured here, on one core: {costs['message_ns'] / 1e3:,.2f} µs for a message in a shard, "
        f"{costs['match_ns'] / 1e3:,.3f} µs for a match, {costs['delivery_ns'] / 1e3:,.3f} µs for a delivery; "
        f"{costs['subscription_bytes']:,.0f} bytes for a subscription, and on the wire "
        f"{costs['message_bytes']:,.0f} for a message and {costs['delivery_bytes']:,.0f} for a delivery.",
        soft_wrap=True,
    )
    table = Table(
        "distribution",
        "hosts",
        "routers",
        "for memory",
        "for cores",
        "for network",
        "copies",
        "sent to",
        "skew",
        "TB",
        "GB/s",
        title=f"{document['subscriptions']:,.0f} subscriptions, {document['rate']:,.0f} messages a second, "
        f"{document['deliveries']:,.1f} deliveries a message; hosts of {host['cores']} cores, "
        f"{host['memory_gb']:g} GB, {host['network_gbit']:g} Gbit/s, used to {document['share_used']:.0%}",
        title_justify="left",
        title_style="",
    )
    table.columns[0].no_wrap = True
    for column in table.columns[1:]:
        column.justify = "right"
    for each in document["plans"]:
        needs = each["needs"]
        wires = [needs["network in"], needs["network out"]]
        table.add_row(
            each["distribution"],
            _number(each["hosts"]),
            _number(each["routers"] if each["shards"] else None),
            _number(needs["memory"]),
            _number(needs["processor"]),
            _number(None if None in wires else max(wires)),
            f"{each['copies']:,.1f}",
            f"{each['sent']:,.1f}",
            f"{each['skew']:,.1f}",
            f"{each['memory_bytes'] / 1e12:,.2f}",
            f"{each['network_bytes'] / 1e9:,.1f}",
        )
    print_(table)
    for each in document["plans"]:
        print_(f"{each['distribution']} breaks first by {each['sentence']}.", soft_wrap=True)
    times = document["subscriptions"] / simulated["subscriptions"]
    print_(
        f"Simulated on {simulated['subscriptions']:,} subscriptions and {simulated['messages']:,} messages in up to "
        f"{simulated['shards'][-1]:,} shards, and extrapolated to {times:,.0f} times the subscriptions. Each "
        f"subscription gets {document['deliveries_a_day_and_subscription']:,.0f} messages a day. Not in it: replicas, "
        "storage, what becomes of deliveries, and what cores lose by sharing memory. Memory is that of one version, "
        "mapped once by all processes of a host: where subscriptions change, leave as much again for the next version, "
        "and for each process that changes its copy.",
        soft_wrap=True,
    )


def _number(value: int | None) -> str:
    return "none" if value is None else f"{value:,}"
