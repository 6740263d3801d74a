"""The default index: it looks at the subscriptions and chooses the structures.

A few thousand clauses are scanned: a scan takes little longer than the call itself, and nothing else is compiled. If
there are more, each clause goes where it is cheaper (``access``): it is reached by its words and place, or by its
values. The latter are held by an MO-Tree, if that saves enough; the others by a structure for words and places.

For these, a packed list is built first: it is the fastest where places or rare words tell subscriptions apart. Its
steps are counted on sample messages (given ones, or ones made from the subscriptions). If most of the cost is for
clauses that pass by their place and fail by their words (large regions, or few words that all subscriptions share), an
MBRTrie is built beside it, its cost is estimated on the same messages, and the cheaper of the two is kept. Everything
is chosen again when the number of clauses has multiplied.
"""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from nearcast import config
from nearcast.columns.growable import GrowableArray
from nearcast.columns.ragged import code_sets, runs_take
from nearcast.columns.rows.clauses import ClauseStore
from nearcast.columns.values import Values
from nearcast.kernels import kernel
from nearcast.kernels.verify import Probes
from nearcast.matching.searching import Searches
from nearcast.matching.structure import Answers, ClauseStructure, Progress, View, silent
from nearcast.matching.structures.access import Paths, likely_paths, prices
from nearcast.matching.structures.lfilter.cost import expected_trie_cost
from nearcast.matching.structures.mbr_trie import MBRTrie
from nearcast.matching.structures.mo_tree import MOTree
from nearcast.matching.structures.packed_list import PackedList
from nearcast.matching.structures.scale import Scales
from nearcast.matching.structures.scan import Scan

__all__ = ["Auto"]

_STRUCTURES: tuple[type[ClauseStructure], ...] = (PackedList, MBRTrie, Scan)
_VALUES = "value_"  # the prefix of the names of the MO-Tree's arrays
_S = TypeVar("_S", bound=ClauseStructure)


class _Routes(NamedTuple):
    """The MO-Tree, and which clauses go to it."""

    paths: Paths  # from which the cost of each path is estimated
    by_value: GrowableArray  # by clause row: whether the MO-Tree holds it
    values: MOTree


class Auto(ClauseStructure):
    """The structures that are expected to match fastest; ``stats()`` tells which, and why.

    What a reader of an older view sees depends on the structures that were chosen.
    """

    name: ClassVar[str] = "auto"

    def __init__(self, store: ClauseStore) -> None:
        super().__init__(store)
        self._inner: ClauseStructure = Scan(store)
        self._routes: _Routes | None = None  # None: all clauses are in the inner structure
        self._others = 0  # clauses outside the MO-Tree, if there is one
        self._chosen_for, self._why = 0, ""

    def build(self, sample: Probes | None = None, tell: Progress = silent) -> None:
        """Scan if clauses are few; otherwise choose the path of each clause, and the structures, by cost."""
        self._chosen_for = self.store.living
        self._routes = None
        if self._chosen_for <= config.AUTO_SCAN:
            self._inner = Scan(self.store)
            self._why = f"up to {config.AUTO_SCAN:,} clauses are scanned"
            return
        self._routes = self._cheaper_routes(sample, tell)
        packed = self._built(PackedList, sample, tell)
        self._inner = packed
        probes = sample if sample is not None else self._likely_probes()
        cost = packed.expected(probes)
        why = f"packed lists are expected to cost {cost.total / 1e3:.2g} µs a message"
        if cost.words >= config.AUTO_WORDS * cost.total and cost.total >= config.AUTO_CHEAP_NS:
            trie = self._built(MBRTrie, sample, tell)
            trie_cost = expected_trie_cost(trie, probes)
            why += f", words take most of it; a trie is expected to cost {trie_cost / 1e3:.2g} µs"
            if trie_cost < cost.total:
                self._inner = trie
        if self._routes is not None:
            self._others = self._count_others(self._routes)
            share = 1 - self._others / max(self._chosen_for, 1)
            why = f"{share:.0%} of the clauses are reached by their values; for the others, {why}"
        self._why = why

    def _built(self, kind: type[_S], sample: Probes | None, tell: Progress) -> _S:
        """Return a structure built over the clause rows outside the MO-Tree."""
        structure = kind(self.store)
        structure.part = None if self._routes is None else (self._routes.by_value, False)
        structure.build(sample, tell)
        return structure

    def _count_others(self, routes: _Routes) -> int:
        """Count the clauses outside the MO-Tree; if there are none, it answers alone."""
        return int(np.count_nonzero(~routes.by_value.values & self.store.alive))

    def _cheaper_routes(self, sample: Probes | None, tell: Progress) -> _Routes | None:
        """Build an MO-Tree over the clauses for which it is cheaper; return None if it would not pay."""
        clauses, rows = self.store.clauses, self.members()
        if not len(clauses.test_attributes):
            return None
        paths = likely_paths(clauses, rows, sample)
        cost = prices(paths, clauses, rows)
        cheaper = _by_value(cost)
        if (cost[cheaper, 0] - cost[cheaper, 1]).sum() < config.AUTO_VALUES_NS:
            return None
        by_value = GrowableArray(np.zeros(self.store.rows, np.bool_), borrowed=False)
        by_value.values[rows[cheaper]] = True
        values = MOTree(self.store)
        values.part = (by_value, True)
        values.build(sample, tell)
        return _Routes(paths, by_value, values)

    def _likely_probes(self) -> Probes:
        """Make likely messages from the subscriptions: each has the place of one and the words of several."""
        clauses, alive = self.store.clauses, np.flatnonzero(self.store.alive)
        rng = np.random.default_rng(0)
        count = config.AUTO_PROBES if len(alive) else 0
        picks = (
            rng.choice(alive, (count, config.AUTO_CLAUSES_A_PROBE)) if count else np.empty((0, 1), np.int64)
        )
        boxes = np.clip(clauses.boxes[picks[:, 0]], -config.AUTO_FAR, config.AUTO_FAR)
        centres = (boxes[:, :2] + boxes[:, 2:]) / 2
        offsets, words = runs_take(clauses.keyword_runs, clauses.keywords, picks.ravel())
        offsets = offsets[:: picks.shape[1]] if count else np.zeros(1, np.int64)
        offsets, words = code_sets(offsets, words, count, "keyword")
        return Probes(np.hstack([centres, centres]), offsets, words, *Values.none(count))

    def add(self, rows: NDArray[np.int64]) -> None:
        """Add new clauses to the structures that they belong in."""
        if self._routes is None:
            self._inner.add(rows)
            return
        others = self._sent(rows)
        self._routes.values.add(rows[~others])
        self._inner.add(rows[others])

    def _sent(self, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Decide which new clauses the MO-Tree holds; tell which go elsewhere."""
        assert self._routes is not None
        paths, by_value, _ = self._routes
        others = ~_by_value(prices(paths, self.store.clauses, rows))
        by_value.fill(max(self.store.rows - len(by_value.values), 0), False)
        by_value.values[rows] = ~others
        self._others += int(np.count_nonzero(others))
        return others

    def _outlived(self) -> bool:
        """Tell whether there are many more clauses than at the last choice."""
        scanned = isinstance(self._inner, Scan)
        enough = config.AUTO_SCAN if scanned else max(config.AUTO_GROWTH * self._chosen_for, config.AUTO_SCAN)
        return self.store.living > enough

    def expect(self, words: int) -> None:
        """Make room for words in the structure that finds clauses by them."""
        self._inner.expect(words)

    def outgrown(self, more: int) -> bool:
        """Tell whether it is time to choose again, or one of the structures has been outgrown."""
        if self._outlived() or self._inner.outgrown(more):
            return True
        return self._routes is not None and self._routes.values.outgrown(more)

    def renew(self, rows: NDArray[np.int64]) -> None:
        """Choose again, or renew the structure that was chosen."""
        if self._outlived() or self._routes is not None:
            self.build()
        else:
            self._inner.renew(rows)

    def successor(self) -> Auto | None:
        """Return the same choice with another MO-Tree if that has been outgrown; a packed list never is.

        Whether a trie would be better by now is decided only when many clauses come at once.
        """
        if self._routes is None or not self._routes.values.outgrown(0):
            return None
        paths, by_value = (
            self._routes.paths,
            GrowableArray(np.zeros(self.store.rows, np.bool_), borrowed=False),
        )
        fresh, values, others = Auto(self.store), self._routes.values.successor(), PackedList(self.store)
        others.part = (by_value, True)  # no clause as yet, so the list begins empty
        others.build()
        others.part, values.part = (by_value, False), (by_value, True)
        fresh._routes, fresh._inner = _Routes(paths, by_value, values), others
        fresh._chosen_for, fresh._why = self.store.living, self._why
        return fresh

    def drop(self, rows: NDArray[np.int64]) -> None:
        """Remove clauses from the structures that hold them."""
        if self._routes is None:
            self._inner.drop(rows)
        else:
            by_value = self._routes.by_value.values[rows]
            self._routes.values.drop(rows[by_value])
            self._inner.drop(rows[~by_value])
            self._others -= int(np.count_nonzero(~by_value))

    @property
    def shifts(self) -> bool:  # type: ignore[override]
        """Whether boxes can be overwritten in place: it depends on the inner structure, for an MO-Tree always can."""
        return self._inner.shifts

    def shift(self, rows: NDArray[np.int64]) -> None:
        """Overwrite boxes in the structures that hold the clauses."""
        if self._routes is None:
            self._inner.shift(rows)
        else:
            by_value = self._routes.by_value.values[rows]
            self._routes.values.shift(rows[by_value])
            self._inner.shift(rows[~by_value])

    @property
    def rewrites(self) -> bool:  # type: ignore[override]
        """Whether clauses can be rewritten in place: a scan can do it, and an MO-Tree if it holds all clauses."""
        return self._inner.rewrites if self._routes is None else not self._others

    def rewrite(self, rows: NDArray[np.int64], changed: NDArray[np.bool_]) -> None:
        """Rewrite clauses in the structure that holds them all."""
        (self._inner if self._routes is None else self._routes.values).rewrite(rows, changed)

    def view(self) -> View:
        """Return the view of the structure that has all clauses, or both views."""
        if self._routes is None:
            return self._inner.view()
        if not self._others:
            return self._routes.values.view()
        return View(_search_both, (self._inner.view(), self._routes.values.view()))

    def stats(self) -> dict[str, Any]:
        """Return the figures of the structures, which they are, and why."""
        told, structure = self._inner.stats(), self._inner.name
        if self._routes is not None:
            values = self._routes.values.stats()
            told |= {name: values[name] for name in ("layers", "lists", "lists_in_use")}
            structure += f" and {self._routes.values.name}"
        return told | {"structure": structure, "why": self._why}

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays of the structures and of the routes."""
        arrays = self._inner.arrays() | {
            "structure": np.array([_STRUCTURES.index(type(self._inner)), self._chosen_for]),
            "why": np.frombuffer(self._why.encode(), np.uint8),
        }
        if self._routes is not None:
            paths, by_value, values = self._routes
            arrays |= {_VALUES + name: array for name, array in values.arrays().items()}
            arrays |= {
                "by_value": by_value.values,
                "path_words": paths.word_shares,
                **{f"path_{name}": array for name, array in paths.scales._asdict().items()},
            }
        return arrays

    def restore(self, arrays: dict[str, NDArray[Any]]) -> None:
        """Restore the structures and the routes."""
        structure, self._chosen_for = arrays["structure"].tolist()
        self._why = arrays["why"].tobytes().decode()
        self._inner = _STRUCTURES[structure](self.store)
        self._inner.restore(arrays)
        if "by_value" in arrays:
            by_value, values = GrowableArray(arrays["by_value"], borrowed=False), MOTree(self.store)
            values.restore(
                {name.removeprefix(_VALUES): a for name, a in arrays.items() if name.startswith(_VALUES)}
            )
            scales = Scales(**{name: arrays[f"path_{name}"] for name in Scales._fields})
            self._routes = _Routes(Paths(arrays["path_words"], scales), by_value, values)
            self._inner.part, values.part = (by_value, False), (by_value, True)
            self._others = self._count_others(self._routes)

    def check(self) -> list[str]:
        """Check the structures, and the count of clauses outside the MO-Tree."""
        found = self._inner.check()
        if self._routes is not None:
            found += self._routes.values.check()
            others = self._count_others(self._routes)
            if self._others != others:
                found.append(
                    f"{self._others} clauses are counted outside the MO-Tree, but there are {others}"
                )
        return found


def _by_value(cost: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Tell for which clauses the path by values is clearly cheaper."""
    cheaper: NDArray[np.bool_] = cost[:, 1] < config.AUTO_VALUES_SHARE * cost[:, 0]
    return cheaper


def _search_both(
    views: tuple[View, View], probes: Probes, start: int, stop: int, answers: Answers, filled: int
) -> int:
    """Search two views, and write the answers of both for each probe."""
    asked = _from(probes, start, stop)
    first, second = (
        Searches(Auto.room).run(partial(view.search, view.arrays, asked), stop - start, 1) for view in views
    )
    done = _interleave(
        first.offsets,
        first.rows,
        second.offsets,
        second.rows,
        Answers(answers.ends[start:stop], answers.rows),
        filled,
    )
    return start + done


def _from(probes: Probes, start: int, stop: int) -> Probes:
    """Return the probes from *start* to *stop*."""
    return probes._replace(
        boxes=probes.boxes[start:stop],
        keyword_offsets=probes.keyword_offsets[start : stop + 1],
        value_offsets=probes.value_offsets[start : stop + 1],
    )


@kernel
def _interleave(
    first_offsets: NDArray[np.int64],
    first_rows: NDArray[np.int32],
    second_offsets: NDArray[np.int64],
    second_rows: NDArray[np.int32],
    answers: Answers,
    filled: int,
) -> int:
    """Write the answers of two structures group by group; return how many groups there was room for."""
    ends, out = answers
    groups = first_offsets.size - 1
    for i in range(groups):
        some, more = first_offsets[i + 1] - first_offsets[i], second_offsets[i + 1] - second_offsets[i]
        if filled + some + more > out.size:
            return i
        out[filled : filled + some] = first_rows[first_offsets[i] : first_offsets[i + 1]]
        filled += some
        out[filled : filled + more] = second_rows[second_offsets[i] : second_offsets[i + 1]]
        filled += more
        ends[i] = filled
    return groups
