"""The index that Nearcast builds unless told otherwise: it looks at the subscriptions and picks the structure.

The packed list is built first: it is the fastest where places or rare words tell subscriptions apart. On sample
messages (those given, or messages made from the subscriptions themselves) its steps are counted. Where most of the
cost is words that refuse what the place let through (subscriptions for everywhere, large regions, few words that all
have in common), an MBRTrie is built beside it, its cost is estimated on the same messages, and the cheaper of the two
stays. The choice is made again when the number of clauses has grown to a multiple.
"""

from __future__ import annotations

from typing import Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

from nearcast import config
from nearcast.kernels.verify import Probes
from nearcast.matching.lfilter.cost import expected_trie_cost
from nearcast.matching.matcher import Matcher
from nearcast.matching.mbr_trie import MBRTrie
from nearcast.matching.packed_list import PackedList
from nearcast.ragged import code_sets, ragged_take

__all__ = ["Auto"]

_STRUCTURES: tuple[type[Matcher], ...] = (PackedList, MBRTrie)
_M = TypeVar("_M", bound=Matcher)


class Auto(Matcher):
    """Whatever structure is expected to match fastest; ``stats()`` tells which, and why."""

    name: ClassVar[str] = "auto"

    def _build(self) -> None:
        self._inner: Matcher = self._built(PackedList)
        self._choose()

    def _built(self, structure: type[_M]) -> _M:
        """Return a structure built over the clause rows of this index."""
        inner = structure.over(self.store)
        inner._sample, inner._progress = self._sample, self._progress
        inner._build()
        inner._sample = inner._progress = None
        return inner

    def _choose(self) -> None:
        """Keep the structure or take the other one, by cost on sample messages."""
        self._chosen_for = self.store.rows - self.store.dead
        if not isinstance(self._inner, PackedList):
            self._inner = self._built(PackedList)
        probes = self._sample.probes if self._sample is not None else self._likely_probes()
        cost = self._inner.expected(probes)
        self._why = f"packed lists are expected to cost {cost.total / 1e3:.2g} µs a message"
        if cost.words < config.AUTO_WORDS * cost.total or cost.total < config.AUTO_CHEAP_NS:
            return
        trie = self._built(MBRTrie)
        trie_cost = expected_trie_cost(trie, probes)
        self._why += f", words take most of it; a trie is expected to cost {trie_cost / 1e3:.2g} µs"
        if trie_cost < cost.total:
            self._inner = trie

    def _likely_probes(self) -> Probes:
        """Return messages such as the subscriptions expect: the place of one, the words of several."""
        clauses, alive = self.store.clauses, np.flatnonzero(self.store.alive)
        rng = np.random.default_rng(0)
        count = config.AUTO_PROBES if len(alive) else 0
        picks = (
            rng.choice(alive, (count, config.AUTO_CLAUSES_A_PROBE)) if count else np.empty((0, 1), np.int64)
        )
        boxes = np.clip(clauses.boxes[picks[:, 0]], -config.AUTO_FAR, config.AUTO_FAR)
        centres = (boxes[:, :2] + boxes[:, 2:]) / 2
        offsets, words = ragged_take(clauses.keyword_offsets, clauses.keywords, picks.ravel())
        offsets = offsets[:: picks.shape[1]] if count else np.zeros(1, np.int64)
        return Probes(
            np.hstack([centres, centres]), *code_sets(offsets, words, count, "keyword"), np.empty((count, 0))
        )

    def _add(self, clause_rows: NDArray[np.int64]) -> None:
        self._inner._add(clause_rows)
        if self.store.rows - self.store.dead > max(config.AUTO_GROWTH * self._chosen_for, config.AUTO_FIRST):
            if self.store.dead:
                self.store.compact()
                self._inner._build()
            self._choose()

    def _drop(self, clause_rows: NDArray[np.int64]) -> None:
        self._inner._drop(clause_rows)

    def _search(
        self,
        probes: Probes,
        start: int,
        stop: int,
        counts: NDArray[np.int64],
        out: NDArray[np.int32],
        filled: int,
    ) -> tuple[int, int]:
        return self._inner._search(probes, start, stop, counts, out, filled)

    def stats(self) -> dict[str, Any]:
        """Return the figures of every index and of the structure, which one it is, and why."""
        return self._inner.stats() | super().stats() | {"structure": self._inner.name, "why": self._why}

    def _arrays(self) -> dict[str, NDArray[Any]]:
        return self._inner._arrays() | {
            "structure": np.array([_STRUCTURES.index(type(self._inner)), self._chosen_for]),
            "why": np.frombuffer(self._why.encode(), np.uint8),
        }

    def _restore(self, arrays: dict[str, NDArray[Any]]) -> None:
        structure, self._chosen_for = arrays["structure"].tolist()
        self._why = arrays["why"].tobytes().decode()
        self._inner = _STRUCTURES[structure].over(self.store)
        self._inner._restore(arrays)

    def _check(self) -> list[str]:
        return self._inner._check()
