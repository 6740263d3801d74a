"""The index that Nearcast builds unless told otherwise: it looks at the subscriptions and picks the structures.

Each clause is sent where it is cheaper (``access``): words first or place first, or values first. The last ones are
held by an MO-Tree, where that spares enough; the others by a structure for words and places. A packed list is built
first: it is the fastest where places or rare words tell subscriptions apart. On sample messages (those given, or
messages made from the subscriptions themselves) its steps are counted. Where most of the cost is words that refuse what
the place let through (subscriptions for everywhere, large regions, few words that all have in common), an MBRTrie is
built beside it, its cost is estimated on the same messages, and the cheaper of the two stays. All is chosen again when
the number of clauses has grown to a multiple.
"""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

from nearcast import config
from nearcast.columns.growable import GrowableArray
from nearcast.columns.ragged import code_sets, ragged_take
from nearcast.kernels import kernel
from nearcast.kernels.verify import Clauses, Probes
from nearcast.matching.index import Matcher
from nearcast.matching.searching import Searches
from nearcast.matching.structures.access import Paths, likely_paths, prices
from nearcast.matching.structures.lfilter.cost import expected_trie_cost
from nearcast.matching.structures.mbr_trie import MBRTrie
from nearcast.matching.structures.mo_tree import MOTree
from nearcast.matching.structures.packed_list import PackedList
from nearcast.matching.structures.scale import Scales

__all__ = ["Auto"]

_STRUCTURES: tuple[type[Matcher], ...] = (PackedList, MBRTrie)
_M = TypeVar("_M", bound=Matcher)


class Auto(Matcher):
    """Whatever structures are expected to match fastest; ``stats()`` tells which, and why."""

    name: ClassVar[str] = "auto"

    def _build(self) -> None:
        self._choose()

    def _built(self, structure: type[_M], by_value: bool) -> _M:
        """Return a structure built over the clause rows of this index, or its part of them."""
        inner = structure.over(self.store)
        inner.part = None if self._by_value is None else (self._by_value, by_value)
        inner._sample, inner._progress = self._sample, self._progress
        inner._build()
        inner._sample = inner._progress = None
        return inner

    def _choose(self) -> None:
        """Send each clause to the cheaper path, and choose the structure for words and places, by cost."""
        self._chosen_for = self.store.rows - self.store.dead
        self._paths, self._by_value = self._routes()
        self._values = None if self._by_value is None else self._built(MOTree, True)
        self._inner: Matcher = self._built(PackedList, False)
        probes = self._sample.probes if self._sample is not None else self._likely_probes()
        cost = self._inner.expected(probes)
        why = f"packed lists are expected to cost {cost.total / 1e3:.2g} µs a message"
        if cost.words >= config.AUTO_WORDS * cost.total and cost.total >= config.AUTO_CHEAP_NS:
            trie = self._built(MBRTrie, False)
            trie_cost = expected_trie_cost(trie, probes)
            why += f", words take most of it; a trie is expected to cost {trie_cost / 1e3:.2g} µs"
            if trie_cost < cost.total:
                self._inner = trie
        if self._by_value is not None:
            share = np.count_nonzero(self._by_value.values & self.store.alive) / max(self._chosen_for, 1)
            why = f"{share:.0%} of the clauses are reached by their values; for the others, {why}"
        self._why = why
        self._count_others()

    def _count_others(self) -> None:
        """Count the clauses beside the MO-Tree, where there is one: if there are none, it answers alone."""
        self._others, self._rewrites = 0, False
        if self._by_value is not None:
            self._others = int(np.count_nonzero(~self._by_value.values & self.store.alive))
            self._rewrites = not self._others

    def _routes(self) -> tuple[Paths | None, GrowableArray | None]:
        """Return what clauses are sent by, and which are sent to an MO-Tree; None where it would not pay."""
        clauses, rows = self.store.clauses, np.flatnonzero(self.store.alive)
        if not len(clauses.test_attributes):
            return None, None
        paths = likely_paths(clauses, rows, None if self._sample is None else self._sample.probes)
        cost = prices(paths, clauses, rows)
        cheaper = cost[:, 1] < config.AUTO_VALUES_SHARE * cost[:, 0]
        if (cost[cheaper, 0] - cost[cheaper, 1]).sum() < config.AUTO_VALUES_NS:
            return None, None
        by_value = np.zeros(self.store.rows, np.bool_)
        by_value[rows[cheaper]] = True
        return paths, GrowableArray(by_value, borrowed=False)

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
        if self._values is not None and self._by_value is not None and self._paths is not None:
            cost = prices(self._paths, self.store.clauses, clause_rows)
            cheaper = cost[:, 1] < config.AUTO_VALUES_SHARE * cost[:, 0]
            self._by_value.fill(self.store.rows - len(self._by_value.values), False)
            self._by_value.values[clause_rows] = cheaper
            self._values._add(clause_rows[cheaper])
            self._inner._add(clause_rows[~cheaper])
            self._others += int(np.count_nonzero(~cheaper))
            self._rewrites = not self._others
        else:
            self._inner._add(clause_rows)
        if self.store.rows - self.store.dead > max(config.AUTO_GROWTH * self._chosen_for, config.AUTO_FIRST):
            if self.store.dead:
                self.store.compact()
            self._choose()

    def _drop(self, clause_rows: NDArray[np.int64]) -> None:
        if self._values is None or self._by_value is None:
            self._inner._drop(clause_rows)
        else:
            by_value = self._by_value.values[clause_rows]
            self._values._drop(clause_rows[by_value])
            self._inner._drop(clause_rows[~by_value])
            self._others -= int(np.count_nonzero(~by_value))
            self._rewrites = not self._others

    def _rewrite(self, clause_rows: NDArray[np.int64], changed: NDArray[np.bool_], clauses: Clauses) -> None:
        assert self._values is not None
        self._values._rewrite(clause_rows, changed, clauses)

    def _search(
        self,
        probes: Probes,
        start: int,
        stop: int,
        counts: NDArray[np.int64],
        out: NDArray[np.int32],
        filled: int,
    ) -> tuple[int, int]:
        if self._values is None:
            return self._inner._search(probes, start, stop, counts, out, filled)
        if not self._others:
            return self._values._search(probes, start, stop, counts, out, filled)
        parts = []
        for structure in (self._inner, self._values):
            searches = Searches()
            step = partial(_shifted, structure, probes, start)
            parts.append(searches.run(step, stop - start, 1))
        done: tuple[int, int] = _interleave(
            parts[0].offsets, parts[0].rows, parts[1].offsets, parts[1].rows, counts, out, filled
        )
        return start + done[0], done[1]

    def stats(self) -> dict[str, Any]:
        """Return the figures of every index and of the structures, which they are, and why."""
        told = self._inner.stats()
        structure = self._inner.name
        if self._values is not None:
            values = self._values.stats()
            told |= {name: values[name] for name in ("layers", "lists", "lists_in_use")}
            structure += f" and {self._values.name}"
        return told | super().stats() | {"structure": structure, "why": self._why}

    def _arrays(self) -> dict[str, NDArray[Any]]:
        arrays = self._inner._arrays() | {
            "structure": np.array([_STRUCTURES.index(type(self._inner)), self._chosen_for]),
            "why": np.frombuffer(self._why.encode(), np.uint8),
        }
        if self._values is not None and self._by_value is not None and self._paths is not None:
            arrays |= {f"value_{name}": array for name, array in self._values._arrays().items()}
            arrays |= {
                "by_value": self._by_value.values,
                "path_words": self._paths.word_shares,
                **{f"path_{name}": array for name, array in self._paths.scales._asdict().items()},
            }
        return arrays

    def _restore(self, arrays: dict[str, NDArray[Any]]) -> None:
        structure, self._chosen_for = arrays["structure"].tolist()
        self._why = arrays["why"].tobytes().decode()
        self._inner = _STRUCTURES[structure].over(self.store)
        self._inner._restore(arrays)
        self._values, self._by_value, self._paths = None, None, None
        if "by_value" in arrays:
            self._by_value = GrowableArray(arrays["by_value"], borrowed=False)
            self._paths = Paths(
                arrays["path_words"], Scales(**{name: arrays[f"path_{name}"] for name in Scales._fields})
            )
            self._values = MOTree.over(self.store)
            self._values._restore(
                {name[6:]: array for name, array in arrays.items() if name.startswith("value_")}
            )
            self._inner.part, self._values.part = (self._by_value, False), (self._by_value, True)
        self._count_others()

    def _check(self) -> list[str]:
        found = self._inner._check() + ([] if self._values is None else self._values._check())
        others = self._others
        self._count_others()
        if self._others != others:
            found.append(f"{others} clauses are counted beside the MO-Tree, but there are {self._others}")
        return found


def _shifted(
    structure: Matcher,
    probes: Probes,
    first: int,
    start: int,
    stop: int,
    counts: NDArray[np.int64],
    out: NDArray[np.int32],
    filled: int,
) -> tuple[int, int]:
    """Search with a structure, where probes are numbered from *first* on."""
    done, filled = structure._search(probes, first + start, first + stop, counts, out, filled)
    return done - first, filled


@kernel
def _interleave(
    first_offsets: NDArray[np.int64],
    first_rows: NDArray[np.int32],
    second_offsets: NDArray[np.int64],
    second_rows: NDArray[np.int32],
    counts: NDArray[np.int64],
    out: NDArray[np.int32],
    filled: int,
) -> Any:
    """Write the answers of two structures group by group; return (groups written, the new end)."""
    groups = first_offsets.size - 1
    for i in range(groups):
        some, more = first_offsets[i + 1] - first_offsets[i], second_offsets[i + 1] - second_offsets[i]
        if filled + some + more > out.size:
            return i, filled
        out[filled : filled + some] = first_rows[first_offsets[i] : first_offsets[i + 1]]
        filled += some
        out[filled : filled + more] = second_rows[second_offsets[i] : second_offsets[i + 1]]
        filled += more
        counts[i] = some + more
    return groups, filled
