"""Strings to codes: the kernel against a dict."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearcast import Vocabulary
from nearcast.columns.vocabulary import NO_CODE
from nearcast.errors import ColumnError
from nearcast.kernels import hashing

# Words that share prefixes and lengths around the eight bytes that a slot holds, with zero bytes and long ones.
TRICKY = st.one_of(
    st.text(alphabet="ab\x00", max_size=18),
    st.text(max_size=12),
    st.sampled_from(["", "a" * 7, "a" * 8, "a" * 9, "a" * 16, "a" * 17, "b" * 255, "b" * 256, "b" * 300]),
)


class Naive(dict):
    def add(self, words):
        return [NO_CODE if word is None else self.setdefault(word, len(self)) for word in words]

    def encode(self, words):
        return [self.get(word, NO_CODE) for word in words]


@given(st.lists(st.lists(st.one_of(st.none(), TRICKY), max_size=30), max_size=4), st.lists(TRICKY))
def test_equals_a_dict(batches, asked):
    ours, naive = Vocabulary(), Naive()
    for batch in batches:
        assert ours.add(pa.array(batch, pa.string())).tolist() == naive.add(batch)
    assert len(ours) == len(naive)
    assert list(ours) == list(naive)
    assert ours.encode(asked).tolist() == naive.encode(asked)
    assert ours.counts.tolist() == [sum(batch.count(word) for batch in batches) for word in naive]


def test_grows_through_many_words():
    words = [f"word{i}" * (1 + i % 3) for i in range(50_000)]
    vocabulary = Vocabulary(words)
    assert vocabulary.encode(words[::-1]).tolist() == list(range(50_000))[::-1]
    assert vocabulary.decode([0, -1, 49_999]) == [words[0], None, words[-1]]
    assert (vocabulary.encode([word + "x" for word in words]) == NO_CODE).all()


def colliding(form, tries=150_000):
    """Find two words of one length whose hashes agree in all bits of the tag and in the slot of a table of 16."""
    words = [form.format(i) for i in range(tries)]
    data, length = np.frombuffer("".join(words).encode(), np.uint8), len(words[0])
    seen = {}
    for i, word in enumerate(words):
        start, stop = i * length, (i + 1) * length
        head = np.uint64(hashing._head(data, start, stop))
        tail = np.uint64(hashing._tail(data, head, start, stop))
        h = np.uint64(hashing._hash(data, head, tail, start, stop))
        other = seen.setdefault((int(hashing._tag(h, length)), int(h) & 15), word)
        if other != word:
            return other, word
    raise AssertionError(f"no collision among {tries} words")


@pytest.mark.parametrize(
    "form",
    ["{:06x}", "w{:06x}", "the same eight bytes and more {:06x}", "a long head {:06x} and a long tail"],
)
def test_words_with_equal_tags_are_told_apart(form):
    """The bytes decide: the first eight, which the slot holds, the last eight, and those between."""
    a, b = colliding(form)
    assert Vocabulary([a]).encode([a, b]).tolist() == [0, NO_CODE]
    assert Vocabulary([a, b]).encode([b, a]).tolist() == [1, 0]
    assert Vocabulary([a, b, a]).counts.tolist() == [2, 1]


@pytest.mark.parametrize(
    "kind", [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())]
)
def test_every_arrow_string_type(kind):
    words = ["tea", None, "milk", "tea", "grüße"]
    vocabulary = Vocabulary(["milk", "tea"])
    array = pa.array(words, pa.string()).cast(kind)
    assert vocabulary.encode(array).tolist() == [1, -1, 0, 1, -1]
    assert vocabulary.encode(array[1:4]).tolist() == [-1, 0, 1]  # a slice has an offset
    assert vocabulary.encode(pa.chunked_array([array, array])).tolist() == [1, -1, 0, 1, -1] * 2
    assert Vocabulary().add(array).tolist() == [0, -1, 1, 0, 2]


def test_no_words_at_all():
    empty = Vocabulary()
    assert empty.encode([]).tolist() == []
    assert empty.encode(["a"]).tolist() == [NO_CODE]
    assert empty.add(pa.array([], pa.string())).tolist() == []
    assert empty.decode([]) == []
    restored = Vocabulary.from_arrays({name: array.copy() for name, array in empty.arrays().items()})
    assert restored.encode(["a"]).tolist() == [NO_CODE]
    assert restored.add(["a", "b"]).tolist() == [0, 1]


def test_a_restored_vocabulary_goes_on():
    vocabulary = Vocabulary(["a", "b", "a"])
    restored = Vocabulary.from_arrays({name: array.copy() for name, array in vocabulary.arrays().items()})
    assert restored.add(["c", "a"]).tolist() == [2, 0]
    assert restored.counts.tolist() == [3, 1, 1]
    assert list(vocabulary) == ["a", "b"]


@given(
    st.dictionaries(st.integers(0, 40), TRICKY, max_size=20).filter(
        lambda given: len(set(given.values())) == len(given)
    ),
    st.lists(st.lists(TRICKY, max_size=10), max_size=4),
)
def test_words_that_bring_their_codes(given, batches):
    """Words keep the codes that they bring; later ones get the codes that are left, and then new ones."""
    ours, naive, span = Vocabulary(), {}, max(given, default=-1) + 1
    for code, word in given.items():  # in any order, as late ones come
        ours.put(pa.array([word], pa.large_string()), np.array([code]), max(code + 1, ours.span))
        naive[word] = code
    free = iter([*sorted(set(range(span)) - set(given)), *range(span, 100)])
    for batch in batches:
        codes = [naive[word] if word in naive else naive.setdefault(word, next(free)) for word in batch]
        assert ours.add(batch).tolist() == codes
        saved = {name: array.copy() for name, array in ours.arrays().items()}
        for vocabulary in (ours, Vocabulary.from_arrays(saved)):
            assert len(vocabulary) == len(naive)
            assert vocabulary.span == max([*naive.values(), span - 1], default=-1) + 1
            assert vocabulary.encode([*naive, "\0 other"]).tolist() == [*naive.values(), NO_CODE]
            assert [vocabulary.code(word.encode()) for word in naive] == list(naive.values())
            assert vocabulary.decode([*naive.values(), NO_CODE]) == [*naive, None]
            by_code = {code: word for word, code in naive.items()}
            assert vocabulary.words.to_pylist() == [by_code.get(code) for code in range(vocabulary.span)]
            assert sorted(vocabulary) == sorted(naive)
            assert sorted(vocabulary.by_frequency()) == sorted(naive.values())
        ours = Vocabulary.from_arrays(saved)  # and goes on


@pytest.mark.parametrize("places", [[0, -1], [0, 0, 1], [0, 2, 1], [-1, -1, -1]])
def test_damaged_codes_are_refused(places):
    vocabulary = Vocabulary()
    vocabulary.put(pa.array(["a", "b"], pa.large_string()), np.array([2, 0]), 3)
    with pytest.raises(ColumnError):
        Vocabulary.from_arrays(vocabulary.arrays() | {"places": np.array(places, np.int32)})


def test_by_frequency():
    assert Vocabulary(["a", "b", "c", "b", "c", "d"]).by_frequency().tolist() == [1, 2, 0, 3]


def test_membership():
    vocabulary = Vocabulary(["tea"])
    assert "tea" in vocabulary
    assert "milk" not in vocabulary
    assert 5 not in vocabulary


@pytest.mark.parametrize("wrong", [[1, 2], pa.array([1.5]), [b"bytes", 3]])
def test_what_is_no_string_is_refused(wrong):
    with pytest.raises(ColumnError, match="must be"):
        Vocabulary().encode(wrong)


def test_a_code_that_is_not_there():
    with pytest.raises(ColumnError, match="code 5 is not in this vocabulary of 1 words"):
        Vocabulary(["a"]).decode([0, 5])


def test_kernel_reads_no_byte_past_the_end():
    """The last word of a buffer ends with it: no padding may be assumed."""
    data = np.frombuffer(b"abcdefghijk", np.uint8)
    offsets = np.array([0, 8, 11], np.int32)
    array = pa.StringArray.from_buffers(2, pa.py_buffer(offsets), pa.py_buffer(data))
    assert Vocabulary(["ijk", "abcdefgh"]).encode(array).tolist() == [1, 0]
