"""Distributions for top-k: whatever becomes a result has a shard in common with its subscription."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nearcast import MessageBatch, Planar
from nearcast.errors import InputError, UnknownError
from nearcast.kernels.hashing import hash_integers
from nearcast.ranking import CountWindow, DocumentFrequencies, TopK
from nearcast.sharding.distribution.routes import delivering_shards
from nearcast.sharding.ranked import RANKED_DISTRIBUTIONS, RankedSample, Wishes, measure, spread
from nearcast.sharding.ranked.words import loose_prefix

PLANE = Planar(0, 0, 100, 100)
WORDS = 30


def rows_of_words(rng, rows, most):
    """Return rows of 1 to *most* distinct codes, frequent ones first by a Zipf law."""
    rows = [np.unique(rng.zipf(1.6, rng.integers(1, most + 1)) % WORDS) for _ in range(rows)]
    offsets = np.append(0, np.cumsum([len(row) for row in rows]))
    return offsets, np.concatenate(rows).astype(np.int32)


def wishes(rng, rows, first=0):
    keys = np.empty(rows, np.uint64)
    hash_integers(np.arange(first, first + rows), keys)
    alphas = rng.choice([0.0, 0.2, 0.5, 0.9, 1.0], rows)
    return Wishes(
        keys, rng.random((rows, 2)) * 100, *rows_of_words(rng, rows, 4), alphas, np.full(rows, -np.inf)
    )


def messages(rng, rows):
    return MessageBatch.from_arrays(rng.random((rows, 2)) * 100, *rows_of_words(rng, rows, 6), space=PLANE)


def joined(first, second):
    parts = {name: np.concatenate([getattr(first, name), getattr(second, name)]) for name in Wishes._fields}
    parts["offsets"] = np.append(first.offsets, second.offsets[1:] + first.offsets[-1])
    return Wishes(**parts)


def subscribed(top, asked, k, first=0):
    ids = np.arange(first, first + asked.size)
    top.subscribe(asked.points, asked.offsets, asked.words, alpha=asked.alphas, k=k, ids=ids)


@pytest.mark.parametrize("name", RANKED_DISTRIBUTIONS)
@given(seed=st.integers(0, 2**32 - 1), shards=st.sampled_from([1, 2, 3, 4, 7, 12]), weighted=st.booleans())
@settings(deadline=None, max_examples=25)
def test_no_result_misses_its_subscription(name, seed, shards, weighted):
    """Thresholds rise and fall, subscriptions come with words that nobody had; no result is lost."""
    rng = np.random.default_rng(seed)
    known = messages(rng, 40)
    frequencies = DocumentFrequencies.of(known) if weighted else None
    idf = np.ones(WORDS) if frequencies is None else frequencies.idf(WORDS)
    top = TopK(CountWindow(25), space=PLANE, document_frequency=frequencies)
    asked = wishes(rng, 30)
    subscribed(top, asked, k=rng.integers(1, 4, 30))
    distribution = spread(name, RankedSample(asked.take(np.arange(10)), known, idf), shards)
    distribution = type(distribution).restored(shards, distribution.arrays())
    distribution = distribution.grown(asked, idf)
    stored = distribution.route_wishes(asked, idf)
    for turn in range(8):
        if turn == 4:
            more = wishes(rng, 10, first=30)
            subscribed(top, more, k=2, first=30)
            before, asked = distribution, joined(asked, more)
            distribution = distribution.grown(asked, idf)
            assert (
                before.route_wishes(asked.take(np.arange(10)), idf).shards.tolist()
                == distribution.route_wishes(asked.take(np.arange(10)), idf).shards.tolist()
            )
            stored = distribution.route_wishes(asked, idf)
        batch = messages(rng, 7)
        sent = distribution.route_messages(batch)
        changes = top.publish(batch).to_arrow().to_pandas()
        first = top.stats()["messages"] - 7
        # Thresholds fall when messages leave. What scores less than before is found by looking at the whole window.
        enough = changes.score >= asked.lowest[changes.subscription_id]
        came = changes[(changes.change == "+") & (changes.message_id >= first) & enough]
        rows, numbers = came.subscription_id.to_numpy(), came.message_id.to_numpy()
        assert (delivering_shards(stored, sent, rows, numbers - first) >= 0).all()
        asked = asked._replace(lowest=top.thresholds(np.arange(asked.size)))
        distribution = distribution.grown(asked, idf)
        # Sometimes everything is laid out anew, which gives up what is not needed any more.
        if turn % 3 == 2:
            stored = distribution.route_wishes(asked, idf)
        else:
            both, more_needed = distribution.kept(asked, idf, stored)
            gained = np.diff(both.offsets) > np.diff(stored.offsets)
            assert np.flatnonzero(gained).tolist() == more_needed.tolist()
            stored = both


@given(seed=st.integers(0, 2**32 - 1))
@settings(deadline=None)
def test_a_loose_prefix_is_as_short_as_can_be(seed):
    """Definition 12: without one more word, a message of all the words left out could score enough."""
    rng = np.random.default_rng(seed)
    asked = wishes(rng, 20)
    asked = asked._replace(lowest=rng.choice([-np.inf, 0.0, 0.3, 0.6, 0.9], 20))
    idf = rng.choice([0.5, 1.0, 2.0, 7.0], WORDS)
    offsets, words = loose_prefix(asked, idf)
    for row in range(20):
        every = asked.words[asked.offsets[row] : asked.offsets[row + 1]].tolist()
        kept = words[offsets[row] : offsets[row + 1]].tolist()
        ordered = sorted(every, key=lambda word: (-idf[word], word))
        assert kept == ordered[: len(kept)]
        alpha, length = asked.alphas[row], np.linalg.norm(idf[every])

        def best(left_out, alpha=alpha, length=length):
            return alpha + (1 - alpha) * np.linalg.norm(idf[left_out]) / length

        if len(kept) < len(ordered):
            assert best(ordered[len(kept) :]) < asked.lowest[row]
        assert best(ordered[len(kept) - 1 :]) >= asked.lowest[row] - 1e-5
        if asked.lowest[row] == -np.inf or alpha == 1.0:
            assert len(kept) == len(every)


@pytest.mark.parametrize("shards", [2, 5, 8, 32])
def test_what_the_paper_says_of_each(shards):
    """Table 2: copies and messages sent; and the order that follows from them."""
    rng = np.random.default_rng(0)
    asked = wishes(rng, 3_000)._replace(lowest=rng.random(3_000))
    batch = messages(rng, 500)
    sample = RankedSample(asked, batch, DocumentFrequencies.of(batch).idf(WORDS))
    found = {name: measure(spread(name, sample, shards), sample) for name in RANKED_DISTRIBUTIONS}
    for name in ("hash", "location"):
        assert found[name].replication == 1.0
        assert found[name].sent == shards
    assert 1.0 <= found["prefix"].replication <= found["keyword"].replication
    assert found["keyword"].replication <= np.diff(asked.offsets).mean()
    words = np.diff(batch.probes.keyword_offsets)
    for name in ("keyword", "prefix"):
        assert found[name].sent <= np.minimum(words, shards).mean()
    assert found["hash"].skew < 1.5
    for figures in found.values():
        assert figures.stored.sum() == round(figures.replication * 3_000)
        assert figures.to_dict()["load_skew"] >= 1.0


def test_cuts_balance_the_cost():
    """Algorithm 3 on a line of subscriptions and messages: both sides of each cut cost about the same (Equation 15)."""
    rng = np.random.default_rng(1)
    asked = wishes(rng, 2_000)
    batch = messages(rng, 2_000)
    sample = RankedSample(asked, batch, np.ones(WORDS))
    cells = spread("location", sample, 8)
    here = cells.route_wishes(asked, sample.idf).shards
    boxes = batch.probes.boxes
    theirs = cells._tree.cells(boxes).shards
    costs = np.bincount(here, minlength=8) * np.bincount(theirs, minlength=8)
    assert costs.max() < 1.5 * costs.mean()


def test_words_that_nobody_asks_for_are_sent_nowhere():
    asked = Wishes(
        np.arange(2, dtype=np.uint64),
        np.zeros((2, 2)),
        np.array([0, 1, 2]),
        np.array([3, 5], np.int32),
        np.full(2, 0.5),
        np.full(2, -np.inf),
    )
    batch = MessageBatch.from_arrays([[1, 1], [2, 2]], [0, 1, 3], [3, 5, 9], space=PLANE)
    keyword = spread("keyword", RankedSample(asked, batch, np.ones(10)), 2)
    other = MessageBatch.from_arrays([[1, 1]], [0, 2], [9, 400], space=PLANE)
    assert len(keyword.route_messages(other).shards) == 0
    new = asked.with_words(np.array([0, 1, 2]), np.array([400, 5], np.int32))
    with pytest.raises(UnknownError, match="grow first"):
        keyword.route_wishes(new, np.ones(500))
    assert len(keyword.grown(new, np.ones(500)).route_messages(other).shards) == 1


def test_wrong_names_and_numbers():
    rng = np.random.default_rng(0)
    sample = RankedSample(wishes(rng, 5), messages(rng, 5), np.ones(WORDS))
    with pytest.raises(UnknownError, match="'prefx'; there are hash, location, keyword, prefix"):
        spread("prefx", sample, 4)
    with pytest.raises(InputError, match="shards"):
        spread("prefix", sample, 0)
