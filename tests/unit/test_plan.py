"""Plans for many hosts: what the arithmetic says, what a simulation can know, and what is measured."""

import math

import numpy as np
import pytest

from nearcast import MessageBatch, SubscriptionTable, config, workloads
from nearcast.sharding.costs import Costs, calibrate
from nearcast.sharding.distribution import DISTRIBUTIONS, draw_sample, fit, measure
from nearcast.sharding.plan import Demand, Host, plan
from nearcast.sharding.simulation import Simulation, simulate

HOST = Host(cores=10, memory_gb=10, network_gbit=8)  # 1 GB/s
COSTS = Costs(
    message_ns=1_000,
    match_ns=50,
    delivery_ns=50,
    subscription_bytes=100,
    message_bytes=100,
    delivery_bytes=20,
)
USED = config.PLAN_SHARE


def even(shards, **other):
    """Return what a distribution does that divides everything evenly and stores nothing twice."""
    share = 1 / shards
    figures = {"copies": 1.0, "sent": 1.0, "stored": share, "arriving": share, "leaving": share}
    figures |= {"load_ns": 1_000 * share, "even_ns": 1_000 * share, "routing_ns": 100}
    return Simulation("made up", shards, **(figures | other))


def test_memory_alone():
    found = plan([even(1), even(16)], COSTS, Demand(10**9, 1, 1), HOST)
    assert found.shards == found.needs["memory"] == math.ceil(10**9 * 100 / (USED * 10 * 10**9))
    assert (found.needs["processor"], found.needs["network in"], found.routers) == (1, 1, 1)
    assert found.hosts == found.shards + 1
    assert found.memory_bytes == pytest.approx(1e11)
    assert found.sentence == "memory: a subscription is stored 1.0 times"


def test_processors_and_the_network():
    found = plan([even(1), even(16)], COSTS._replace(message_bytes=10), Demand(1000, 10**9, 3), HOST)
    assert found.needs["processor"] == math.ceil(10**9 * 1e-6 / (USED * 10))
    assert found.needs["network in"] == math.ceil(10**9 * 10 / (USED * 10**9))
    assert found.needs["network out"] == math.ceil(10**9 * 3 * 20 / (USED * 10**9))
    assert found.network_bytes == pytest.approx(10**9 * (10 + 3 * 20))
    assert found.sentence.startswith(
        "processor time: a message is matched in 1.0 shards and has 3.0 deliveries"
    )


def test_a_busiest_shard_that_keeps_its_load():
    """A frequent word: its shard has the same to do, however many shards there are."""
    found = plan(
        [even(n, load_ns=1_000, leaving=1.0) for n in (1, 16, 64)], COSTS, Demand(1000, 10**8, 1), HOST
    )
    assert (found.shards, found.hosts, found.needs["processor"]) == (None, None, None)
    assert found.sentence.startswith("processor time in the busiest shard, and more shards do not help")
    assert found.skew == pytest.approx(64)


def test_routers_that_send_everything_everywhere():
    simulated = [even(n, sent=float(n), arriving=1.0) for n in (1, 16, 64)]
    found = plan(simulated, COSTS, Demand(10**9, 10**6, 1), HOST)
    assert found.sent == pytest.approx(found.shards)
    assert found.routers == math.ceil(10**6 * found.shards * 100 / (USED * 10**9))
    found = plan(simulated, COSTS, Demand(10**9, 6.9e6, 1), HOST._replace(memory_gb=20))
    assert found.sentence.startswith("the routers: a message goes to")


def test_beyond_what_was_simulated():
    """Copies that grew by the square root of the shards go on to do so, and the plan says that there are too many."""
    simulated = [even(n, copies=n**0.5, stored=n**-0.5) for n in (1, 4, 64)]
    found = plan(simulated, COSTS, Demand(4 * 10**9, 1, 1), HOST)
    assert found.shards == pytest.approx((4 * 10**9 * 100 / (USED * 10**10)) ** 2, rel=0.01)
    assert found.copies == pytest.approx(found.shards**0.5)
    assert found.sentence.endswith("; 1,024 shards are the most today")


@pytest.fixture(scope="module")
def sample():
    made = workloads.ap_tree(20_000, 4_000)
    return draw_sample(made.subscriptions, made.messages)


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_simulations_agree_with_the_figures(name, sample):
    distribution = fit(name, sample, 16)
    found, figures = simulate(distribution, sample, COSTS, 5.0, 5.0), measure(distribution, sample)
    assert (found.copies, found.sent) == (figures.replication, figures.sent)
    assert 1 / 16 <= found.leaving <= 1
    assert found.stored >= found.copies / 16 * 0.999
    assert found.load_ns >= found.even_ns
    assert found.even_ns == pytest.approx((COSTS.message_ns * found.sent + 5 * 100) / 16)


def test_chance_is_not_taken_for_skew(sample):
    """Hashing has no busy shard but by chance; a frequent word stays busy."""
    rare, frequent = (
        simulate(fit(name, sample, 256), sample, COSTS, 5.0, 5.0) for name in ("hash", "keyword")
    )
    figures = measure(fit("hash", sample, 256), sample)
    assert figures.storage_skew > 1.2
    assert rare.stored * 256 < 1.1
    assert rare.leaving * 256 < 1.5
    assert frequent.leaving * 256 > 10


def test_costs_are_measured(sample):
    costs = calibrate(sample)
    words = np.diff(sample.batch.probes.keyword_offsets).mean()
    assert costs.message_bytes > 4 * words + 16
    assert 8 < costs.delivery_bytes < 60
    assert 20 < costs.subscription_bytes < 2_000
    assert 0 <= costs.message_ns < 1e6
    assert 0 < costs.delivery_ns < 1e5


def test_nothing_that_matches_costs_nothing():
    table = SubscriptionTable.from_arrays([[0, 0, 1, 1]], [0, 1], [7])
    batch = MessageBatch.from_arrays([[5, 5]], [0, 1], [8])
    costs = calibrate(draw_sample(table, batch))
    assert (costs.match_ns, costs.delivery_ns) == (0, 0)
