"""The workloads have the distributions that they claim, and the same seed gives the same rows."""

import itertools

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from answers import dense
from nearcast import workloads
from nearcast.errors import InputError, UnknownError
from nearcast.workloads import sampling
from nearcast.workloads.sampling import Extent, Ragged


def rows_of(offsets, values):
    return [values[a:b] for a, b in itertools.pairwise(offsets)]


def same(a, b):
    return all(np.array_equal(x, y, equal_nan=True) for x, y in zip(a, b, strict=True))


# --- Sampling ---------------------------------------------------------------------------------------------------------


def test_zipf_words_have_their_shares():
    law = sampling.zipf(50, 1.0)
    words = sampling.distinct_words(np.random.default_rng(1), law, 40_000, 1).words
    expected = 1 / np.arange(1, 51)
    expected /= expected.sum()
    assert np.abs(np.bincount(words, minlength=50) / 40_000 - expected).max() < 0.01


def test_distinct_words_when_a_row_takes_the_whole_vocabulary():
    rows = sampling.distinct_words(np.random.default_rng(1), sampling.zipf(5, 2.0), 20, 9)
    assert np.array_equal(rows.offsets, np.arange(21) * 5)
    assert np.array_equal(np.sort(rows.words.reshape(20, 5)), np.tile(np.arange(5), (20, 1)))


def test_regions_take_words_of_their_message_and_a_share_of_the_area():
    rng = np.random.default_rng(2)
    lengths = rng.integers(1, 12, 3000)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    sources = [np.arange(100 * i, 100 * i + n, dtype=np.int32) for i, n in enumerate(lengths)]
    points = rng.random((3000, 2)) * [4, 2]
    extent = Extent(0.0, 0.0, 4.0, 2.0)
    rows = Ragged(offsets, np.concatenate(sources))
    boxes, picked = sampling.regions_from(rng, points, rows, extent, keywords=(1, 5), area=(0.0001, 0.01))

    counts = np.diff(picked.offsets)
    for source, words in zip(sources, rows_of(*picked), strict=True):
        assert len(set(words.tolist())) == len(words)
        assert set(words.tolist()) <= set(source.tolist())
    long = lengths >= 5  # where all of 1 to 5 are possible, they are equally likely
    assert np.abs(np.bincount(counts[long], minlength=6)[1:] / long.sum() - 0.2).max() < 0.04
    assert (counts[~long] <= lengths[~long]).all()
    width, height = (boxes[:, 2:] - boxes[:, :2]).T
    share = width * height / 8
    assert 0.0001 <= share.min() < 0.0003
    assert 0.0097 < share.max() <= 0.0100001
    assert np.abs(np.quantile(share, 0.5) - 0.00505) < 0.0004  # uniform
    assert np.allclose(width, 2 * height)  # the proportions of the extent
    assert np.allclose((boxes[:, :2] + boxes[:, 2:]) / 2, points)


def test_every_word_of_a_message_is_picked_equally_often():
    rows = Ragged(np.arange(20_001, dtype=np.int64) * 4, np.tile(np.arange(4, dtype=np.int32), 20_000))
    _, picked = sampling.regions_from(
        np.random.default_rng(3),
        np.zeros((20_000, 2)),
        rows,
        Extent(0, 0, 1, 1),
        keywords=(2, 2),
        area=(0.1, 0.2),
    )
    assert np.abs(np.bincount(picked.words) / 20_000 - 0.5).max() < 0.02


def test_attributes_are_chosen_by_a_zipf_law_without_repeating():
    chosen = sampling.choose_attributes(np.random.default_rng(4), 20_000, 10, 4, 1.0)
    assert (np.diff(np.sort(chosen, axis=1), axis=1) > 0).all()
    expected = 1 / np.arange(1, 11)
    assert np.abs(np.bincount(chosen[:, 0], minlength=10) / 20_000 - expected / expected.sum()).max() < 0.02


def test_places_gather_inside_the_extent():
    extent = Extent(10.0, 0.0, 30.0, 5.0)
    clusters = sampling.clustered(np.random.default_rng(5), extent, 20, 0.01, 0.25)
    points = sampling.places(np.random.default_rng(6), clusters, 20_000)
    assert (points >= [10, 0]).all()
    assert (points <= [30, 5]).all()
    unit = (points - [10, 0]) / [20, 5]
    nearest = np.abs(unit[:, None, :] - clusters.centres[None]).max(axis=2).min(axis=1)
    near = (nearest < 0.03).mean()  # three standard deviations
    assert 0.74 < near < 0.85  # three quarters, and what the background leaves there by chance


# --- Workloads --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["ap-tree", "mo-tree"])
def test_a_seed_gives_the_same_workload(name):
    first, again = (workloads.make(name, 500, 40, seed=7, newcomers=30) for _ in range(2))
    assert same(first.subscriptions.clauses, again.subscriptions.clauses)
    assert same(first.newcomers.clauses, again.newcomers.clauses)
    assert same(first.messages.probes, again.messages.probes)
    other = workloads.make(name, 500, 40, seed=8, newcomers=30)
    assert not np.array_equal(first.messages.probes.boxes, other.messages.probes.boxes)
    assert not np.array_equal(first.subscriptions.clauses.boxes, other.subscriptions.clauses.boxes)
    assert (len(first.subscriptions), len(first.newcomers), len(first.messages)) == (500, 30, 40)


@pytest.mark.parametrize("name", ["ap-tree", "mo-tree"])
def test_messages_do_not_depend_on_the_number_of_subscriptions(name):
    few, many = (workloads.make(name, count, 40, seed=7, newcomers=5) for count in (10, 900))
    assert same(few.messages.probes, many.messages.probes)


def test_ap_tree():
    made = workloads.ap_tree(5000, 3000, seed=1, vocabulary=10_000)
    probes, clauses = made.messages.probes, made.subscriptions.clauses
    assert (np.diff(probes.keyword_offsets) == 9).all()  # distinct: the batch drops repeated words
    counts = np.diff(clauses.keyword_runs)[:, 0]
    assert np.abs(np.bincount(counts, minlength=6)[1:] / 5000 - 0.2).max() < 0.03
    sides = clauses.boxes[:, 2:] - clauses.boxes[:, :2]
    assert np.allclose(sides[:, 0], sides[:, 1])
    assert (sides.prod(axis=1) >= 0.0001 - 1e-12).all()
    assert (sides.prod(axis=1) <= 0.01 + 1e-12).all()
    centres = (clauses.boxes[:, :2] + clauses.boxes[:, 2:]) / 2
    assert (centres >= -1e-12).all()
    assert (centres <= 1 + 1e-12).all()
    head = 1 / (1 / np.arange(1, 10_001)).sum()
    expected = 1 - (1 - head) ** 9  # of a message to have the most frequent word, about
    first = (probes.keywords == 0).sum() / 3000
    assert expected < first < 1.3 * expected
    assert made.facts["vocabulary"] == 10_000


def test_mo_tree():
    made = workloads.mo_tree(4000, 1000, seed=1)
    clauses, values = made.subscriptions.clauses, dense(made.messages)
    assert (np.diff(clauses.test_runs) == 6).all()
    attributes = clauses.test_attributes.reshape(-1, 6)
    assert (np.diff(np.sort(attributes, axis=1), axis=1) > 0).all()
    assert attributes.max() == 19
    assert (clauses.test_lows <= clauses.test_highs).all()
    assert abs((clauses.test_highs - clauses.test_lows).mean() - 1 / 3) < 0.01  # of two uniform ends
    assert clauses.keywords.size == 0
    sides = clauses.boxes[:, 2:] - clauses.boxes[:, :2]
    assert 1.0 <= sides.min() < 1.1
    assert 3.9 < sides.max() <= 4.0 + 1e-9
    present = (~np.isnan(values)).sum(axis=1)
    assert values.shape == (1000, 20)
    assert set(present.tolist()) == set(range(15, 21))
    assert np.nanmin(values) >= 0
    assert np.nanmax(values) <= 1


@pytest.fixture
def data(tmp_path):
    """A data directory of made-up tweets: row i has the word ``wI`` that no other row has, and ``Common`` twice."""
    count = 60
    text = [f"W{i} common, COMMON!" for i in range(count)] + ["outside of the box", "", None, "!!!"]
    table = pa.table(
        {
            "lon": [-100.0 + i / 10 for i in range(count)] + [2.35, -90.0, -90.0, -90.0],
            "lat": [40.0] * count + [48.85, 40.0, 40.0, 40.0],
            "text": text,
        }
    )
    pq.write_table(table, tmp_path / "messages_tweets.parquet")
    return tmp_path


def test_real_data(data):
    made = workloads.make("tweets", 30, 30, seed=1, newcomers=0, data=data)
    assert made.facts["rows"] == 60
    assert made.facts["vocabulary"] == 61
    assert made.facts["keywords_per_message"] == 2.0  # a word counts once
    probes, clauses = made.messages.probes, made.subscriptions.clauses
    common = int(np.bincount(probes.keywords).argmax())
    own = {int(word) for word in probes.keywords if word != common}
    asked = {int(word) for word in clauses.keywords if word != common}
    assert len(own) == 30
    assert not own & asked  # messages and subscriptions come from different rows
    centres = (clauses.boxes[:, 0] + clauses.boxes[:, 2]) / 2
    assert len(np.unique(centres.round(6))) == 30
    assert np.allclose((centres * 10).round() / 10, centres)  # nobody was moved


def test_real_data_repeats_when_more_is_wanted(data):
    made = workloads.make("tweets", 400, 200, seed=1, newcomers=10, data=data)
    assert (len(made.subscriptions), len(made.newcomers), len(made.messages)) == (400, 10, 200)
    boxes = made.subscriptions.clauses.boxes
    assert len(np.unique(boxes[:, 0] + boxes[:, 2])) == 400  # all were moved apart


def test_real_data_that_is_not_there(tmp_path):
    with pytest.raises(InputError, match="--data DIR"):
        workloads.make("tweets", 10, 10)
    with pytest.raises(InputError, match=r"messages_tweets\.parquet"):
        workloads.make("tweets", 10, 10, data=tmp_path)


def test_bad_requests():
    with pytest.raises(UnknownError, match=r"'nope'.*ap-tree, mo-tree, misses, tweets, places"):
        workloads.make("nope", 10, 10)
    with pytest.raises(InputError, match="cannot have 0 messages"):
        workloads.make("ap-tree", 10, 0)
