"""Safety: with covering, every subscriber gets exactly what it gets without, in networks where subscriptions come,
go and move.

The long run: ``NEARCAST_COVERING_COMMANDS=600000 pytest tests/covering/test_routers.py -s --timeout 0``,
a sixth of these commands in each network.
"""

import os

import numpy as np
import pytest

from covering.routers import Network, line, matrix, tree
from nearcast import Box, Circle, MessageBatch, Point, Polygon, Subscription, SubscriptionTable, build_index
from nearcast.model import Message

COMMANDS = int(os.environ.get("NEARCAST_COVERING_COMMANDS", "1500"))
CLIENTS = 200  # at the most
WORDS = ["coffee", "tea", "milk", "storm"]


def expression(rng):
    """A few words, at times one of them forbidden, an alternative, a price."""
    words = rng.permutation(WORDS)[: rng.integers(1, 4)].tolist()
    text = " AND ".join(words)
    if rng.random() < 0.2:
        text = f"({text}) OR {rng.choice(WORDS)}"
    if rng.random() < 0.2:
        text = f"({text}) NOT decaf"
    if rng.random() < 0.4:
        text = f"({text}) AND price < {rng.integers(2, 9)}"
    return text


def region(rng):
    x, y = rng.integers(0, 8, 2).tolist()
    size = int(rng.integers(1, 5))
    kind = rng.random()
    if kind < 0.6:
        return Box(x, y, x + size, y + size)
    if kind < 0.8:
        return Circle(lon=x, lat=y, radius=111_000 * size)
    return Polygon(f"POLYGON (({x} {y}, {x + size} {y}, {x} {y + size}, {x} {y}))")


def world(seed, contents, messages):
    """Subscriptions, and who wants which message, by the scan of all of them."""
    rng = np.random.default_rng(seed)
    pool = SubscriptionTable.from_subscriptions(
        [Subscription(i, expression(rng), region(rng)) for i in range(contents)]
    )
    batch = MessageBatch.from_messages(
        [
            Message(
                i,
                " ".join(
                    [*rng.permutation(WORDS)[: rng.integers(1, 5)], *["decaf"] * int(rng.random() < 0.3)]
                ),
                Point(lon=float(rng.random() * 11), lat=float(rng.random() * 11)),
                attributes={"price": float(rng.integers(1, 9))} if rng.random() < 0.8 else {},
            )
            for i in range(messages)
        ],
        like=pool,
    )
    return pool, matrix(build_index("scan", pool).match(batch), messages, contents)


def run(network, flood, seed, commands, check_all_every):
    """Random commands to both networks; after each a message, now and then all of them, must reach the same."""
    rng = np.random.default_rng(seed)
    routers, contents = len(network.routers), len(network.pool)
    messages = len(network.matched)
    clients, made = {}, 0  # key → (router, content)
    flooded = 0  # what telling everybody everything would send
    for number in range(commands):
        kind = rng.random()
        if (kind < 0.45 and len(clients) < CLIENTS) or not clients:
            here, content = int(rng.integers(routers)), int(rng.integers(contents))
            network.subscribe(here, made, content)
            clients[made] = here, content
            made += 1
            flooded += routers - 1
        else:
            key = list(clients)[int(rng.integers(len(clients)))]
            here, _ = clients.pop(key)
            if kind < 0.8:
                network.unsubscribe(here, key)
                flooded += routers - 1
            else:
                content = int(rng.integers(contents))
                network.move(here, key, made, content)
                clients[made] = here, content
                made += 1
                flooded += 2 * (routers - 1)
        every = number % check_all_every == 0 or number == commands - 1
        for message in range(messages) if every else [int(rng.integers(messages))]:
            right = {(at, key) for key, (at, content) in clients.items() if flood[message, content]}
            assert network.publish(int(rng.integers(routers)), message) == right
    return flooded


@pytest.mark.parametrize("links", [line(4), tree(7)], ids=["line", "tree"])
@pytest.mark.parametrize("options", [{}, {"k": 3}, {"take_over": True}], ids=["k=1", "k=3", "take over"])
def test_everybody_gets_what_they_would_get_without_covering(links, options):
    pool, matched = world(7, 60, 40)
    network = Network(links, pool, matched, **options)
    flooded = run(network, matched, 11, COMMANDS // 6 + 1, 50)
    for router in network.routers.values():
        for graph in router.graphs.values():
            assert graph.check() == []
    print(  # noqa: T201
        f"\n{COMMANDS // 6 + 1:,} commands, {len(network.routers)} routers, {options}: "
        f"{network.sent:,} messages between routers, {flooded:,} without covering"
    )
    assert network.sent < flooded


def test_the_simulation_notices_a_subscription_that_was_not_forwarded():
    """What this file rests on: a network that covers wrongly fails it."""
    pool, matched = world(7, 60, 40)
    network = Network(line(3), pool, matched)
    honest = network._come

    def forgetful(here, router, there, key, content):
        honest(here, router, there, key, content)
        if key == 3:
            network.queue.clear()

    network._come = forgetful
    with pytest.raises(AssertionError):
        run(network, matched, 11, 200, 1)
