"""How ``auto`` chooses, and that a choice changes no answer."""

import numpy as np
import pytest

from answers import answers
from nearcast import MessageBatch, SubscriptionTable, UnknownError, build_index, open_index, workloads

EVERYWHERE = (-np.inf, -np.inf, np.inf, np.inf)


def subscriptions(rng, rows, *, everywhere):
    """Three of 60 words; small boxes, or none."""
    words = np.argsort(rng.random((rows, 60)), axis=1)[:, :3].astype(np.int32)
    low = rng.random((rows, 2))
    boxes = np.tile(EVERYWHERE, (rows, 1)) if everywhere else np.hstack([low, low + 0.01])
    return SubscriptionTable.from_arrays(boxes, np.arange(rows + 1) * 3, words.ravel())


def messages(rng, rows, words=12):
    chosen = np.argsort(rng.random((rows, 60)), axis=1)[:, :words]
    return MessageBatch.from_arrays(rng.random((rows, 2)), np.arange(rows + 1) * words, chosen.ravel())


@pytest.mark.parametrize(("everywhere", "structure"), [(False, "packed-list"), (True, "mbr-trie")])
@pytest.mark.parametrize("sampled", [False, True], ids=["unsampled", "sampled"])
def test_what_tells_subscriptions_apart_decides(everywhere, structure, sampled):
    rng = np.random.default_rng(1)
    table = subscriptions(rng, 20_000, everywhere=everywhere)
    index = build_index("auto", table, messages=messages(rng, 100) if sampled else None)
    stats = index.stats()
    assert (stats["index"], stats["structure"]) == ("auto", structure)
    assert "µs a message" in stats["why"]
    assert ("a trie is expected" in stats["why"]) == everywhere
    batch = messages(rng, 30)
    assert answers(index, batch) == answers(build_index("scan", table), batch)


def test_the_choice_is_made_again_as_the_index_grows():
    rng = np.random.default_rng(2)
    index = build_index("auto", subscriptions(rng, 0, everywhere=True))
    scan = build_index("scan", subscriptions(rng, 0, everywhere=True))
    assert index.stats()["structure"] == "scan"
    for rows in (100, 3_000, 20_000, 500):
        more = subscriptions(rng, rows, everywhere=True)
        for i in (index, scan):
            i.insert(more)
            i.remove(np.flatnonzero(i.store.present)[: rows // 4])
        assert index.check() == []
    assert index.stats()["structure"] == "mbr-trie"
    batch = messages(rng, 30)
    assert answers(index, batch) == answers(scan, batch)


@pytest.mark.parametrize("everywhere", [False, True])
def test_an_opened_index_knows_its_structure_and_why(everywhere, tmp_path):
    rng = np.random.default_rng(3)
    index = build_index("auto", subscriptions(rng, 20_000, everywhere=everywhere))
    opened = open_index(index.save(tmp_path / "index"))
    for name in ("structure", "why", "bytes"):
        assert opened.stats()[name] == index.stats()[name]
    batch = messages(rng, 30)
    assert answers(opened, batch) == answers(index, batch)


def test_parameters_and_samples_are_checked():
    table = subscriptions(np.random.default_rng(4), 5, everywhere=False)
    with pytest.raises(UnknownError, match="'auto' has no parameter 'fanout'; it has none"):
        build_index("auto", table, fanout=3)
    with pytest.raises(UnknownError, match="'mbr-trie' has no parameter 'fanout'; it has probing"):
        build_index("mbr-trie", table, fanout=3)


def test_progress_is_told():
    told = []
    table = subscriptions(np.random.default_rng(5), 200, everywhere=False)
    build_index("auto", table, progress=lambda step, share: told.append((step, share)))
    assert [step for step, _ in told][:2] == ["counting words", "choosing lists"]
    assert all(0 <= share <= 1 for _, share in told)


def mixed(rng, rows):
    """Thirds: rare words; small boxes; narrow intervals of two attributes everywhere."""
    kind = np.arange(rows) % 3
    low = rng.random((rows, 2))
    boxes = np.where((kind == 1)[:, None], np.hstack([low, low + 0.01]), EVERYWHERE)
    counts = np.where(kind == 0, 2, 0)
    words = rng.integers(0, 5_000, counts.sum())
    tests = np.where(kind == 2, 2, 1)
    wide = np.repeat(kind != 2, tests)
    start = np.where(wide, 0.0, rng.random(tests.sum()))
    attributes = np.concatenate([np.arange(n) for n in tests])
    intervals = (np.append(0, np.cumsum(tests)), attributes, start, start + np.where(wide, 0.9, 0.01))
    return SubscriptionTable.from_arrays(boxes, np.append(0, np.cumsum(counts)), words, intervals)


def valued(rng, rows):
    words = np.append(0, np.cumsum(np.full(rows, 6)))
    values = rng.random((rows, 2))
    values[rng.random((rows, 2)) < 0.1] = np.nan
    return MessageBatch.from_arrays(rng.random((rows, 2)), words, rng.integers(0, 5_000, 6 * rows), values)


@pytest.mark.parametrize("sampled", [False, True], ids=["unsampled", "sampled"])
def test_each_clause_is_sent_where_it_is_cheaper(sampled, tmp_path):
    rng = np.random.default_rng(6)
    table, batch = mixed(rng, 30_000), valued(rng, 40)
    index = build_index("auto", table, messages=valued(rng, 200) if sampled else None)
    scan = build_index("scan", table)
    stats = index.stats()
    assert stats["structure"] == "packed-list and mo-tree"
    assert stats["why"].startswith("33% of the clauses are reached by their values; for the others, ")
    assert [layer["attribute"] for layer in stats["layers"][:2]] in (["0", "1"], ["1", "0"])
    assert answers(index, batch) == answers(scan, batch)
    more = mixed(rng, 900)
    for each in (index, scan):
        each.remove(np.arange(0, 30_000, 7))
        each.insert(more)
    assert index.check() == []
    assert answers(index, batch) == answers(scan, batch)
    opened = open_index(index.save(tmp_path / "index"))
    assert opened.check() == []
    for each in (opened, scan):
        each.insert(more)
        each.remove([1, 2, 3])
    assert opened.stats()["why"] == index.stats()["why"]
    assert answers(opened, batch) == answers(scan, batch)


def test_values_that_spare_little_get_no_structure_of_their_own():
    table = mixed(np.random.default_rng(7), 12)
    assert build_index("auto", table).stats()["structure"] == "packed-list"


def test_where_values_decide_alone_updates_are_made_in_place(tmp_path):
    made = workloads.mo_tree(20_000, 100, newcomers=500)
    index, scan = build_index(made.subscriptions), build_index("scan", made.subscriptions)
    assert index.stats()["structure"].endswith("mo-tree")
    rows = np.arange(0, 20_000, 40)
    moved = made.subscriptions.take(rows)
    moved.clauses.boxes[:] += 1e-4

    def agree():
        assert index.check() == []
        assert answers(index, made.messages) == answers(scan, made.messages)

    for each in (index, scan):
        each.update(rows, moved)
    agree()
    assert index.stats()["free_clauses"] == 0
    # A clause for words and place goes elsewhere: then both structures answer, and updates are no longer in place.
    wordy = SubscriptionTable.from_arrays([[20, 20, 30, 30]], [0, 0], [], space=made.subscriptions.space)
    for each in (index, scan):
        (row,) = each.insert(wordy)
        each.update(rows, made.newcomers)
    agree()
    for each in (index, scan):
        each.remove([row])
        each.update(rows, moved)
    agree()
    index = open_index(index.save(tmp_path / "index"))
    agree()
