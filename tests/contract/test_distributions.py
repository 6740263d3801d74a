"""Every distribution: shards that match on their own deliver together exactly what one index delivers."""

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crowds import random_batch, random_table
from nearcast import (
    Box,
    InputError,
    Message,
    MessageBatch,
    Point,
    Subscription,
    SubscriptionTable,
    UnknownError,
    build_index,
)
from nearcast.sharding.distribution import (
    DISTRIBUTIONS,
    compare,
    delivering_shards,
    distribute,
    draw_sample,
    fit,
    measure,
)
from nearcast.sharding.distribution.files import open_distribution, save_distribution
from strategies import batches, tables

SHARDS = (1, 2, 5, 9)


def sharded(distribution, table, batch):
    """What the shards deliver: each stores its subscriptions, gets its messages, and keeps to the rule of the first."""
    stored, sent = distribution.route_subscriptions(table), distribution.route_messages(batch)
    pairs = []
    for shard in range(distribution.shards):
        rows = stored.rows[stored.shards == shard]
        messages = sent.rows[sent.shards == shard]
        found = build_index("scan", table.take(rows)).match(batch.take(messages))
        here = rows[found.rows], messages[found.messages]
        mine = delivering_shards(stored, sent, *here) == shard
        pairs += list(zip(here[1][mine].tolist(), here[0][mine].tolist()))
    return sorted(pairs)


def whole(table, batch):
    return sorted(zip(*build_index("scan", table).match(batch).pairs().tolist()))


@pytest.mark.parametrize("name", DISTRIBUTIONS)
class TestEveryDistribution:
    @given(tables(), batches(), st.sampled_from(SHARDS), st.booleans())
    def test_shards_deliver_what_one_index_delivers(self, name, table, batch, shards, informed):
        distribution = distribute(name, table, shards, messages=batch if informed else None)
        assert sharded(distribution, table, batch) == whole(table, batch)

    @given(tables(), tables(), batches())
    def test_newcomers_are_found_after_it_has_grown(self, name, table, more, batch):
        distribution = distribute(name, table, 4).grown(more, np.arange(len(more.owners)))
        assert sharded(distribution, more, batch) == whole(more, batch)
        assert sharded(distribution, table, batch) == whole(table, batch)

    @given(tables(), tables(), tables(), batches())
    def test_what_grew_apart_is_joined(self, name, table, one, other, batch):
        """Several processes let a distribution grow, each by its own subscriptions, and tell what they added."""
        fitted = distribute(name, table, 4)
        apart = [fitted.grown(more, np.arange(len(more.owners))) for more in (one, other)]
        joined = fitted.joined(np.unique(np.concatenate([each.added(fitted) for each in apart])))
        for more, grown in zip((one, other), apart):
            for mine, its in zip(joined.route_subscriptions(more), grown.route_subscriptions(more)):
                np.testing.assert_array_equal(mine, its)
            assert sharded(joined, more, batch) == whole(more, batch)
        assert sharded(joined, table, batch) == whole(table, batch)

    def test_where_newcomers_go_does_not_depend_on_their_codes(self, name):
        first = [Subscription(i, f"w{i}", Box(i, 0, i + 2, 9)) for i in range(20)]
        later = [Subscription(i, f"w{i} AND w{i + 1}", Box(i % 20, 0, i % 20 + 2, 9)) for i in range(20, 60)]
        routes = []
        for order in (later, later[::-1]):
            table = SubscriptionTable.from_subscriptions(first)
            fitted = distribute(name, table, 6)
            SubscriptionTable.from_subscriptions(order, like=table)  # words get their codes in this order
            more = SubscriptionTable.from_subscriptions(later, like=table)
            grown = fitted.grown(more, np.arange(len(more.owners)))
            routes.append(grown.route_subscriptions(more))
        for mine, its in zip(*routes):
            np.testing.assert_array_equal(mine, its)

    @given(tables(), batches(), st.sampled_from(SHARDS))
    def test_it_is_the_same_from_its_arrays(self, name, table, batch, shards):
        made = distribute(name, table, shards)
        again = type(made).restored(shards, made.arrays())
        for mine, other in zip(
            (*made.route_subscriptions(table), *made.route_messages(batch)),
            (*again.route_subscriptions(table), *again.route_messages(batch)),
        ):
            np.testing.assert_array_equal(mine, other)

    @pytest.mark.parametrize("shards", [1, 6])
    def test_a_saved_one_routes_and_grows_alike(self, name, shards, tmp_path):
        words = ["tea", "milk OR coffee", 'brand = "x" AND tea', None, "price < 3"]
        table = SubscriptionTable.from_subscriptions(
            [Subscription(i, words[i % 5], Box(i, 0, i + 2, 9)) for i in range(40)]
        )
        made = distribute(name, table, shards)
        opened, coding = open_distribution(
            save_distribution(made, table.coding, tmp_path / "saved"), verify=True
        )
        assert repr(opened) == repr(made)
        places = [Message(i, "tea milk new", Point(lon=i, lat=i % 9)) for i in range(40)]
        same = {}
        for one, like in ((made, table), (opened, coding)):
            more = SubscriptionTable.from_subscriptions(
                [Subscription(i, f"new AND rare{i}", Box(i, 0, i + 1, 3)) for i in range(40, 50)], like=like
            )
            again = SubscriptionTable.from_subscriptions(table.to_subscriptions(), like=like)
            batch = MessageBatch.from_messages(places, like=like)
            grown = one.grown(more, np.arange(len(more.owners)))
            same[one] = [
                *one.route_subscriptions(again),
                *grown.route_subscriptions(more),
                *grown.route_messages(batch),
            ]
        for mine, its in zip(*same.values()):
            np.testing.assert_array_equal(mine, its)

    def test_routes_are_sets_in_ascending_order(self, name):
        rng = np.random.default_rng(0)
        table, batch = random_table(rng, 500), random_batch(rng, 200, 6)
        distribution = distribute(name, table, 12, messages=batch)
        for offsets, shards in (distribution.route_subscriptions(table), distribution.route_messages(batch)):
            for first, last in pairwise(offsets):
                assert (np.diff(shards[first:last]) > 0).all()
            assert shards.min() >= 0
            assert shards.max() < 12

    def test_a_crowd(self, name):
        rng = np.random.default_rng(1)
        table, batch = random_table(rng, 2_000), random_batch(rng, 300, 8)
        assert sharded(distribute(name, table, 16, messages=batch), table, batch) == whole(table, batch)


def test_hash_goes_by_the_id_and_not_by_the_row():
    ids = pa.array([f"user-{i}" for i in range(200)])
    everywhere = np.tile([-np.inf, -np.inf, np.inf, np.inf], (200, 1))
    table = SubscriptionTable.from_arrays(everywhere, np.zeros(201, int), [], ids=ids)
    homes = distribute("hash", table, 8).route_subscriptions(table).shards
    turned = table.take(np.arange(200)[::-1])
    np.testing.assert_array_equal(
        distribute("hash", turned, 8).route_subscriptions(turned).shards, homes[::-1]
    )
    assert np.bincount(homes, minlength=8).min() > 10
    numbers = SubscriptionTable.from_arrays(everywhere, np.zeros(201, int), [], ids=np.arange(200) * 1024)
    assert np.bincount(distribute("hash", numbers, 8).route_subscriptions(numbers).shards).min() > 10


def test_location_divides_the_cost_of_messages_and_sends_a_point_once():
    rng = np.random.default_rng(2)
    table = random_table(rng, 5_000)
    batch = MessageBatch.from_arrays(rng.random((4_000, 2)) ** 3, np.zeros(4_001, int), [])
    found = measure(distribute("location", table, 7, messages=batch), draw_sample(table, batch))
    assert found.sent == 1.0
    assert found.skew < 1.2


def test_many_messages_at_one_place_do_not_stop_the_cutting():
    table = random_table(np.random.default_rng(3), 50)
    batch = MessageBatch.from_arrays(np.full((40, 2), 0.5), np.zeros(41, int), [])
    distribution = distribute("location", table, 16, messages=batch)
    assert sharded(distribution, table, batch) == whole(table, batch)


def test_keyword_stores_a_clause_once_and_asks_few_shards():
    rng = np.random.default_rng(4)
    table, batch = random_table(rng, 3_000), random_batch(rng, 500, 5)
    found = measure(distribute("keyword", table, 16, messages=batch), draw_sample(table, batch))
    assert found.replication == 1.0
    assert found.sent < 6


def test_a_sample_stands_for_all_subscriptions():
    """With a tenth of the subscriptions and ten times the weight, the load is about that of all."""
    rng = np.random.default_rng(8)
    table, batch = random_table(rng, 20_000), random_batch(rng, 500, 5)
    some = table.take(np.arange(0, 20_000, 10))
    whole_load = measure(distribute("hash", table, 4), draw_sample(table, batch)).loads.sum()
    weighed = measure(distribute("hash", some, 4), draw_sample(some, batch, 10.0)).loads.sum()
    alone = measure(distribute("hash", some, 4), draw_sample(some, batch)).loads.sum()
    assert abs(weighed / whole_load - 1) < 0.1
    assert alone < 0.9 * whole_load


def test_auto_takes_the_distribution_with_the_lightest_busiest_shard():
    rng = np.random.default_rng(5)
    table, batch = random_table(rng, 3_000), random_batch(rng, 500, 5)
    figures = compare(draw_sample(table, batch), 16)
    assert figures[0].distribution == distribute("auto", table, 16, messages=batch).name
    fewer = [each.bottleneck_ns for each in figures if each.replication <= 4]
    assert fewer == sorted(fewer)
    assert sharded(distribute("auto", table, 16), table, batch) == whole(table, batch)
    plain = figures[0].to_dict()
    assert plain["shards"] == len(plain["loads_ns_per_message"]) == len(plain["stored"]) == 16


def test_newcomers_that_it_has_not_grown_for_are_refused_not_lost():
    table = SubscriptionTable.from_subscriptions([Subscription("a", "tea")])
    distribution = distribute("keyword", table, 4)
    more = SubscriptionTable.from_subscriptions([Subscription("b", "milk")], like=table)
    with pytest.raises(UnknownError, match="grow"):
        distribution.route_subscriptions(more)


def test_what_cannot_be_is_said():
    table = SubscriptionTable.empty()
    with pytest.raises(UnknownError, match="no distribution 'random'; there are hash, location"):
        distribute("random", table, 2)
    for shards in (0, 1_025, 2.0, True):
        with pytest.raises(InputError, match="from 1 to 1,024"):
            fit("hash", draw_sample(table), shards)
