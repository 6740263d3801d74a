"""``nearcast bench vocabulary``: how fast strings become codes, compared with the obvious alternatives."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from nearcast import config
from nearcast.bench.measure import Progress, best_of
from nearcast.columns.vocabulary import NO_CODE, Vocabulary
from nearcast.errors import InputError
from nearcast.workloads import sampling

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

__all__ = ["run", "words"]

_UNKNOWN_SHARE = 0.05  # share of the keywords that are not in the vocabulary
_LONGEST = 16  # letters
# From the most to the least frequent in English.
_LETTERS = np.frombuffer(b"etaoinshrdlcumwfgypbvkjxqz", np.uint8)


def words(rng: np.random.Generator, count: int) -> NDArray[np.bytes_]:
    """Return *count* distinct made-up words with the lengths and letters of English: 2 to 16, 7.6 on average.

    >>> made = words(np.random.default_rng(0), 1000)
    >>> len(set(made.tolist())), bool(7 < np.char.str_len(made).mean() < 8)
    (1000, True)
    """
    made = np.empty(0, f"S{_LONGEST}")
    law = sampling.zipf(_LETTERS.size, 0.7)
    while made.size < count:
        draw = np.searchsorted(law.cumulative, rng.random((2 * count, _LONGEST)), side="right")
        letters = _LETTERS[draw]
        length = np.clip(rng.normal(7.6, 2.4, 2 * count).round(), 2, _LONGEST)
        letters[np.arange(_LONGEST) >= length[:, None]] = 0
        made = np.unique(np.concatenate([made, letters.view(made.dtype).ravel()]))
    return rng.permutation(made)[:count]


def run(
    *,
    vocabulary: int = config.BENCH_WORDS,
    keywords: int = config.BENCH_KEYWORDS,
    seed: int = 0,
    repeat: int = config.BENCH_REPEAT,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Measure ``Vocabulary.encode`` and its rivals; return the body of the report.

    Keywords are drawn from the vocabulary by a Zipf law and uniformly; one in twenty is not in it. Every method gets
    the strings in the form that suits it: Arrow arrays, or existing Python strings.
    """
    for what, count in (("words", vocabulary), ("keywords", keywords)):
        if count < 1:
            raise InputError(f"the benchmark cannot have {count} {what}; give at least 1")
    tell = progress or (lambda _text, _share: None)
    rng = np.random.default_rng(seed)
    tell("making words", 0.0)
    known, unknown = np.split(words(rng, vocabulary + max(1, vocabulary // 20)), [vocabulary])
    pool = pa.array(np.concatenate([known, unknown])).cast(pa.string())
    value_set = pool.slice(0, vocabulary)
    table = Vocabulary(value_set)
    position = {word: code for code, word in enumerate(value_set.to_pylist())}

    results: list[dict[str, Any]] = []
    mismatches: list[str] = []
    draws = {"zipf": _zipf(rng, vocabulary, keywords), "uniform": rng.integers(0, vocabulary, keywords)}
    for done, (workload, drawn) in enumerate(draws.items()):
        strange = rng.random(keywords) < _UNKNOWN_SHARE
        drawn = np.where(strange, vocabulary + rng.integers(0, unknown.size, keywords), drawn)
        expected = np.where(strange, NO_CODE, drawn)
        strings = pool.take(pa.array(drawn))
        listed = strings.to_pylist()
        methods: dict[str, Callable[[], Any]] = {
            "Vocabulary.encode": lambda a=strings: table.encode(a),  # type: ignore[misc]
            "pyarrow.compute.index_in": lambda a=strings: pc.index_in(a, value_set),  # type: ignore[misc]
            "Array.dictionary_encode": lambda a=strings: a.dictionary_encode(),  # type: ignore[misc]
            "dict.get in a loop": lambda a=listed: [position.get(word, NO_CODE) for word in a],  # type: ignore[misc]
        }
        for step, (method, call) in enumerate(methods.items()):
            tell(f"{workload}: {method}", (done + step / len(methods)) / len(draws))
            call()  # the first call compiles
            seconds, answer = best_of(repeat, call)
            results.append(
                {
                    "index": method,
                    "workload": workload,
                    "seconds": seconds,
                    "keywords_per_second": keywords / seconds,
                }
            )
            if method == "Vocabulary.encode" and not np.array_equal(answer, expected):
                wrong = int(np.flatnonzero(answer != expected)[0])
                mismatches.append(
                    f"{workload}: keyword {wrong} got code {answer[wrong]}, not {expected[wrong]}"
                )
    tell("done", 1.0)
    return {
        "seed": seed,
        "repeat": repeat,
        "sizes": {"words": vocabulary, "keywords": keywords},
        "facts": {
            "unknown_share": _UNKNOWN_SHARE,
            "letters_per_word": round(float(np.char.str_len(known).mean()), 2),
        },
        "results": results,
        "mismatches": mismatches,
    }


def _zipf(rng: np.random.Generator, size: int, count: int) -> NDArray[np.int64]:
    """Draw *count* of *size* words by a Zipf law."""
    law = sampling.zipf(size, config.AP_EXPONENT)
    return np.searchsorted(law.cumulative, rng.random(count), side="right")
