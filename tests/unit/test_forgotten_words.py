"""Words, strings and attributes that nothing uses any more are forgotten, step by step or all at once."""

import pytest

from nearcast import (
    DocumentFrequencies,
    Engine,
    ManualClock,
    Message,
    MessageBatch,
    Point,
    Subscription,
    SubscriptionTable,
    config,
)
from nearcast.errors import ColumnError

HERE = Point(lon=-73.99, lat=40.73)
LATER = 10**12  # microseconds, more than any test takes


@pytest.fixture
def clock():
    return ManualClock(0)


def told(deliveries):
    return [(delivery.subscription_id, delivery.message_id) for delivery in deliveries]


def test_words_that_nobody_uses_are_let_go(clock):
    engine = Engine(clock=clock)
    engine.subscribe(Subscription("a", 'tea AND brand = "x" AND price < 3'))
    for number in range(500):
        message = Message(f"m{number}", f"tea w{number}", HERE, {"kind": f"k{number}"}, expires_at=60)
        engine.publish(message)
    clock.advance(seconds=60)
    engine.expire()
    assert engine.stats()["words"] > 1000
    batch = MessageBatch.from_messages([Message("n", "tea", HERE, {"brand": "x", "price": 1})], like=engine)
    engine.compact()
    assert engine.stats()["words"] == 2
    with pytest.raises(ColumnError, match="like=engine"):
        engine.publish(batch)
    assert told(engine.publish(Message("n", "tea", HERE, {"brand": "x", "price": 1}))) == [("a", "n")]


@pytest.mark.parametrize("by_itself", [False, True])
def test_a_string_without_a_code_stays_unknown(hasty, clock, by_itself):
    """A batch that was made without learning has values that nobody has asked for yet."""
    hasty.subscribe(Subscription("a", 'brand = "x"'))
    given = [Message(-1, "", HERE, {"brand": "x"}, expires_at=LATER)]
    given += [Message(-2, "", HERE, {"brand": "y"}, expires_at=LATER)]
    assert told(hasty.publish(MessageBatch.from_messages(given, like=hasty))) == [("a", -1)]
    if by_itself:
        for _ in until_renewed(hasty, clock):
            pass
    else:
        hasty.compact()
    assert told(hasty.subscribe(Subscription("b", 'brand = "x"'))) == [("b", -1)]
    assert told(hasty.subscribe(Subscription("c", 'brand != "x"'))) == [("c", -2)]


@pytest.fixture
def hasty(clock, monkeypatch):
    """An engine that forgets words early, in small steps."""
    monkeypatch.setattr(config, "ENGINE_COMPACT_WORDS", 50)
    monkeypatch.setattr(config, "ENGINE_CENSUS_ROWS", 8)
    monkeypatch.setattr(config, "ENGINE_CENSUS_SLOTS", 64)
    return Engine(clock=clock)


def fresh(number, end):
    """Return a message whose word, string and attribute nobody else uses."""
    values = {"kind": f"k{number}", f"a{number}": 1}
    return Message(number, f"tea w{number}", HERE, values, expires_at=end)


def test_an_engine_lets_words_go_by_itself(hasty, clock):
    """Nothing that it keeps for words, strings and attributes grows with those that are gone."""
    hasty.subscribe(Subscription("a", "tea"))
    spans, sizes = [], []
    for number in range(3000):
        clock.advance(seconds=60)
        hasty.publish(fresh(number, clock.now() + 60_000_000))
        words, names = hasty.coding.words()
        assert hasty.stats()["words"] <= 200
        spans.append((words.span, names.strings.span, names.span))
        sizes.append(words.nbytes + names.strings.nbytes)
    assert max(map(max, spans)) <= 200
    assert max(sizes[1000:]) <= 1.1 * max(sizes[:1000])  # the words are longer by a digit
    assert told(hasty.subscribe(Subscription("b", "w2999"))) == [("b", 2999)]
    assert told(hasty.subscribe(Subscription("c", 'kind = "k2999" AND a2999 = 1'))) == [("c", 2999)]


def until_renewed(engine, clock, least=0):
    """Publish messages of fresh words until the engine has left old ones behind; yield after each call."""
    coding = engine.coding
    for number in range(least, least + 1000):
        clock.advance(seconds=60)
        engine.publish(fresh(number, clock.now() + 60_000_000))
        if engine.coding is not coding:
            return
        yield
    raise AssertionError("the engine forgets nothing")


def test_what_comes_while_words_are_forgotten_keeps_its_words(hasty, clock):
    """Whatever comes between any two steps is found by its words afterwards, and so is what was there before."""
    hasty.subscribe([Subscription(-1, "tea NOT milk"), Subscription(-2, 'brand = "x" AND price < 3')])
    hasty.publish(Message(-1, "old words", HERE, {"shop": "old"}, expires_at=LATER))
    times = {"published_at": LATER - 10, "expires_at": LATER}
    hasty.publish(Message(-2, "future words", HERE, {"shop": "then"}, **times))
    hasty._renew_at, numbers = 1_000, []
    for number in range(1_000, 1_300):
        hasty.publish(fresh(number, clock.now() + 1))
    for number, _ in enumerate(until_renewed(hasty, clock), 1_000):
        # The word of a message that has gone is wanted again.
        asked = f'sub{number} OR w{number} OR name = "s{number}" OR s{number} = 1'
        hasty.subscribe(Subscription(number, asked))
        hasty.publish(Message(-number, f"msg{number}", HERE, {"mark": f"m{number}"}, expires_at=LATER))
        numbers.append(number)
    assert len(numbers) > 10
    assert hasty.match(Message(0, "tea", HERE)) == [-1]
    assert hasty.match(Message(0, "tea milk", HERE, {"brand": "x", "price": 1})) == [-2]
    for number in numbers:
        for text, values in (
            (f"sub{number}", {}),
            (f"w{number}", {}),
            ("", {"name": f"s{number}"}),
            ("", {f"s{number}": 1}),
        ):
            assert number in hasty.match(Message(0, text, HERE, values)), text or values
        wanted = told(hasty.subscribe(Subscription(-number, f'msg{number} AND mark = "m{number}"')))
        assert wanted == [(-number, -number)]
    assert told(hasty.subscribe(Subscription(1, 'old AND shop = "old"'))) == [(1, -1)]
    hasty.subscribe(Subscription(2, 'future AND shop = "then"'))
    clock.advance(seconds=(LATER - 5 - clock.now()) / 1e6)
    assert told(hasty.expire()) == [(2, -2)]


def test_a_batch_made_before_words_were_forgotten_is_refused(hasty, clock):
    hasty.subscribe(Subscription("a", "tea"))
    message = Message(-1, "tea", HERE, expires_at=LATER)
    batch = MessageBatch.from_messages([message], like=hasty)
    table = SubscriptionTable.from_subscriptions([Subscription("b", "w1 OR tea")], like=hasty)
    assert told(hasty.publish(batch)) == [("a", -1)]
    for _ in until_renewed(hasty, clock):
        assert told(hasty.publish(batch)) == []  # it fits until then
    with pytest.raises(ColumnError, match="like=engine"):
        hasty.publish(batch)
    assert batch.vocabulary.decode(batch.probes.keywords) == ["tea"]  # it means what it meant
    assert (("b", -1)) in told(hasty.subscribe(table))  # a table is translated
    assert hasty.match(Message(0, "w1", HERE)) == ["b"]


def test_an_engine_is_saved_while_words_are_forgotten(hasty, clock, tmp_path):
    """At any step, what is opened answers as the engine does, and goes on to forget words."""
    for number in range(5):  # so that the first codes are free later
        hasty.publish(fresh(-10 - number, clock.now() + 1))
    hasty.subscribe(Subscription("a", 'tea AND kind != "x"'))
    kept = Message(-1, "tea lasts", HERE, {"kind": "rare", "rarely": 1}, expires_at=LATER)
    hasty.publish(kept)
    question = Subscription("late", 'lasts AND kind = "rare" AND rarely = 1')
    for step, _ in enumerate(until_renewed(hasty, clock)):
        hasty.save(tmp_path / str(step))
    for number in range(20):  # the codes of forgotten words are in use again
        hasty.publish(fresh(5_000 + number, LATER))
    hasty.save(tmp_path / "renewed")
    for directory in tmp_path.iterdir():
        opened = Engine.open(directory, clock=clock, verify=True)
        assert told(opened.subscribe(question)) == [("late", -1)]
        assert told(opened.publish(Message(-2, "tea", HERE, {"kind": "y"}))) == [("a", -2)]
        before = opened.stats()["words"]
        for _ in until_renewed(opened, clock, 20_000):
            pass
        assert opened.stats()["words"] < before + 50
        assert opened.match(kept) == ["a", "late"]
        opened.compact()
        assert opened.match(kept) == ["a", "late"]


def test_frequencies_of_words_among_free_codes(hasty, clock):
    hasty.subscribe(Subscription("a", "tea"))
    for _ in until_renewed(hasty, clock):
        pass
    hasty.subscribe(Subscription("b", "late"))
    batch = MessageBatch.from_messages([Message(1, "late tea", HERE), Message(2, "tea", HERE)], like=hasty)
    found = DocumentFrequencies.of(batch)
    assert dict(zip(found.words, found.counts.tolist())).items() >= {"tea": 2, "late": 1}.items()
    assert None not in found.words
