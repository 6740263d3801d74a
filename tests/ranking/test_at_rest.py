"""Saved and opened, a `TopK` goes on where it was."""

import numpy as np
import pytest

from nearcast import (
    WGS84,
    CountWindow,
    DocumentFrequencies,
    IndexFileError,
    InputError,
    ManualClock,
    MessageBatch,
    TimeWindow,
    TopK,
    open_index,
)
from nearcast.ranking.blocks import Blocks, _find, _insert_rows
from nearcast.ranking.choices import FINDERS, POLICIES
from nearcast.ranking.message_ids import _settle
from nearcast.ranking.message_index import MessageIndex
from nearcast.ranking.policies import CostBased
from nearcast.ranking.rivals.policies import KMax
from nearcast.ranking.segments import scan, search
from nearcast.ranking.updates import _tell
from nearcast.ranking.upkeep import arrive, expire, refill, withdraw

SECOND = 1_000_000
KERNELS = (_find, _insert_rows, _settle, _tell, arrive, expire, refill, scan, search, withdraw)


class World:
    """What happens: the same to all that it happens to."""

    def __init__(self, seed=0, names=True):
        self.rng, self.time, self.names = np.random.default_rng(seed), 0, names

    def words(self, count, most):
        counts = self.rng.integers(1, most + 1, count)
        return np.concatenate([[0], np.cumsum(counts)]), self.rng.integers(0, 40, counts.sum())

    def places(self, count):
        return self.rng.random((count, 2)) * [20, 10]

    def batch(self, count, turn):
        """Names; or, in turn, integers and messages without ids."""
        self.time += SECOND
        ids = self.rng.integers(0, 500, count)
        ids = [f"m{i}" for i in ids] if self.names else (ids + 1_000_000 if turn % 3 else None)
        return MessageBatch.from_arrays(
            self.places(count), *self.words(count, 6), ids=ids, published_at=np.full(count, self.time)
        )

    def subscriptions(self, count):
        alpha, k = self.rng.random(count), self.rng.integers(1, 8, count)
        return (self.places(count), *self.words(count, 4)), {"alpha": alpha, "k": k}


def live(tops, world, turns=6):
    """Let the same happen to all of *tops*; they agree in every update and in every result."""
    for turn in range(turns):
        batch, (given, asked) = world.batch(100, turn), world.subscriptions(30)
        there = list(tops[0]._ids)
        gone = world.rng.choice(there, 9, replace=False) if there else []
        told = []
        for top in tops:
            updates = [top.unsubscribe(gone), top.subscribe(*given, **asked)]
            updates = [one.to_arrow() for one in (*updates, top.publish(batch), top.expire(world.time))]
            told.append([(one.schema, sorted(map(str, one.to_pylist()))) for one in updates])
        assert all(one == told[0] for one in told)
        for name in list(tops[0]._ids)[::3]:
            for top in tops[1:]:
                np.testing.assert_array_equal(top.results(name), tops[0].results(name))


def same_state(one, other):
    """Nothing was lost, to the last bit."""
    (document, arrays), (its_document, its_arrays) = one._at_rest(), other._at_rest()
    assert document == its_document
    assert arrays.keys() == its_arrays.keys()
    for name, array in arrays.items():
        assert (array.dtype, array.shape) == (its_arrays[name].dtype, its_arrays[name].shape), name
        assert array.tobytes() == its_arrays[name].tobytes(), name


@pytest.mark.parametrize("window", [CountWindow(400), TimeWindow(4)], ids=str)
@pytest.mark.parametrize("buffer", POLICIES)
@pytest.mark.parametrize("index", FINDERS)
def test_it_goes_on_where_it_was(index, buffer, window, tmp_path, monkeypatch):
    monkeypatch.setattr("nearcast.config.RANKING_WAITING", 100)
    monkeypatch.setattr("nearcast.config.RANKING_GAPS", 50)
    frequencies = DocumentFrequencies(np.arange(1, 31), 100)
    top = TopK(
        window, max_distance=1e6, document_frequency=frequencies, index=index, buffer=buffer, threads=2
    )
    world = World(names=isinstance(window, CountWindow))
    live([top], world)
    top.unsubscribe(list(top._ids)[:20])
    top.save(tmp_path / "first")
    monkeypatch.setattr(MessageIndex, "best", None)  # nothing is evaluated
    opened = [TopK.open(tmp_path / "first", threads=threads) for threads in (1, 2)]
    monkeypatch.undo()
    same_state(top, opened[0])
    live([top, *opened], world)
    opened[0].save(tmp_path / "second")
    tops = [opened[1], TopK.open(tmp_path / "second", verify=True)]
    live(tops, world)


def test_the_directory_stays_as_it_is(tmp_path):
    """What happens to one that was opened concerns no other one."""
    top, world = TopK(CountWindow(300)), World()
    live([top], world)
    name = next(iter(top._ids))
    before = top.results(name)
    top.save(tmp_path / "saved")
    live([TopK.open(tmp_path / "saved")], world)
    np.testing.assert_array_equal(TopK.open(tmp_path / "saved", verify=True).results(name), before)


def test_opened_arrays_compile_nothing_anew(tmp_path):
    world = World()

    def begun():
        top = TopK(CountWindow(300))
        live([top], world)
        return top

    top = begun()
    top.save(tmp_path / "saved")
    begun()
    known = [set(kernel.signatures) for kernel in KERNELS]
    live([TopK.open(tmp_path / "saved")], world)
    assert [set(kernel.signatures) for kernel in KERNELS] == known


def test_words_weigh_as_before(tmp_path):
    frequencies = DocumentFrequencies([5, 50], 100, "2026-11", words=["tea", "sale"])
    top = TopK(CountWindow(10), document_frequency=frequencies)
    top.subscribe([[0, 0]], words=[["tea", "sale", "milk"]], alpha=0.0, k=5, ids=["early"])
    table = {
        "id": ["a", "b"],
        "lon": [0, 0],
        "lat": [0, 0],
        "text": ["sale milk", "tea cake"],
        "price": [1, 2],
    }
    top.publish(MessageBatch.from_arrow(table, like=top, learn=True))
    other = TopK.open(top.save(tmp_path / "saved"))
    known = other._weights.frequencies
    assert (known.words, known.version, known.documents) == (("tea", "sale"), "2026-11", 100)
    assert other.vocabulary.words.to_pylist() == top.vocabulary.words.to_pylist()
    more = {"id": ["c"], "lon": [0], "lat": [0], "text": ["cake, Tea and sugar"]}
    for one in (top, other):
        one.publish(MessageBatch.from_arrow(more, like=one, learn=True))
        (late,) = one.subscribe([[0, 0]], words=[["sugar"]], alpha=0.0, k=1, ids=["late"])
        assert (late.subscription_id, late.message_id) == ("late", "c")
    np.testing.assert_array_equal(other.results("early"), top.results("early"))


def test_an_empty_one(tmp_path):
    clock = ManualClock("2026-11-16T08:00:00Z")
    top = TopK.open(TopK(TimeWindow(10)).save(tmp_path / "saved"), clock=clock)
    top.subscribe([[0, 0]], [0, 1], [7], alpha=0.5, k=1)
    top.publish(MessageBatch.from_arrays([[0, 0]], [0, 1], [7]))
    assert top.results(0)[0].tolist() == [0]
    clock.advance(seconds=10)
    assert len(top.expire()) == 1
    assert (top.space, top.window) == (WGS84, TimeWindow(10))


def test_parameters_of_buffers_are_kept(tmp_path):
    top = TopK(CountWindow(10), buffer=KMax(times=2.5))
    assert TopK.open(top.save(tmp_path / "saved"))._results.policy == KMax(2.5)


def test_what_cannot_be_saved_or_opened(tmp_path):
    class Mine(CostBased):
        """A policy that nobody can find again."""

    class Own(Blocks):
        """An index that nobody can find again."""

    for own in ({"buffer": Mine()}, {"index": Own}):
        with pytest.raises(InputError, match="because it has no name"):
            TopK(CountWindow(1), **own).save(tmp_path / "saved")
    saved = TopK(CountWindow(1)).save(tmp_path / "saved")
    with pytest.raises(IndexFileError, match="exists already"):
        TopK(CountWindow(1)).save(saved)
    with pytest.raises(IndexFileError):
        open_index(saved)
    with pytest.raises(IndexFileError):
        TopK.open(tmp_path)
    with pytest.raises(InputError, match="threads must be"):
        TopK.open(saved, threads=0)


def test_damage_is_an_error(tmp_path):
    """One bit in any file."""
    top, rng = TopK(CountWindow(300)), np.random.default_rng(0)
    live([top], World(), turns=2)
    saved = top.save(tmp_path / "saved")
    for file in sorted(saved.iterdir()):
        whole = file.read_bytes()
        if whole:
            content = bytearray(whole)
            content[rng.integers(len(content))] ^= 1 << rng.integers(8)
            file.write_bytes(content)
            with pytest.raises(IndexFileError):
                TopK.open(saved)
            file.write_bytes(whole)
    same_state(top, TopK.open(saved))
