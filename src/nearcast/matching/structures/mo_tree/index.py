"""The MO-Tree as an index over subscriptions."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from nearcast import config
from nearcast.columns.growable import GrowableArray
from nearcast.columns.rows.clauses import ClauseStore
from nearcast.errors import InputError, shown, whole_number
from nearcast.kernels.verify import Clauses, Probes
from nearcast.matching.structure import ClauseStructure, Progress, View, silent
from nearcast.matching.structures.mo_tree.buckets import Buckets, Entries, homes_for
from nearcast.matching.structures.mo_tree.cells import Layers
from nearcast.matching.structures.mo_tree.choice import (
    DIRECTORY,
    QUICK,
    THOROUGH,
    Choice,
    Effort,
    Figures,
    choose_layers,
)
from nearcast.matching.structures.mo_tree.search import SearchArrays, assign, search, shift
from nearcast.matching.structures.scale import Scales, source_name
from nearcast.matching.structures.sketch import FIELDS

__all__ = ["MOTree"]

_WORDS = (2, 2)  # of a clause's sketch: the first and the last cells of its intervals, for each group


class MOTree(ClauseStructure):
    """Multi-level overlapping cells of indexing attributes.

    It is section 4 of Dian, Qian, Cao, Xue, Zhu, Yu and Li, "MO-Tree: An Efficient Forwarding Engine for
    Spatiotemporal-aware Pub/Sub Systems" (2021). Entries are inserted and removed in place, and the room of a list that
    moves is given to others at once. A reader of an older view might miss an entry or read one twice, so nobody may
    read while the tree changes.

    Parameters
    ----------
    layers
        H: the most attributes that are indexed, including both axes of the place.
    levels
        L: the levels of overlapping cells in a layer of the directory.
    threshold
        η: the mean number of cells of such a layer that a value may lie in, if the layer has as many as in the paper.
    """

    name: ClassVar[str] = "mo-tree"
    parameters: ClassVar[tuple[str, ...]] = ("layers", "levels", "threshold")
    shifts = rewrites = True

    def __init__(
        self,
        store: ClauseStore,
        *,
        layers: int = config.MO_TREE_LAYERS,
        levels: int = config.MO_TREE_LEVELS,
        threshold: float = config.MO_TREE_THRESHOLD,
    ) -> None:
        super().__init__(store)
        layers = whole_number("layers", layers, DIRECTORY, DIRECTORY + FIELDS)
        levels = whole_number("levels", levels, 2, 8)
        if not isinstance(threshold, int | float) or not threshold >= levels:
            raise InputError(
                f"threshold must be at least the number of levels, {levels}, not {shown(threshold)}, because a "
                "value lies in a cell of each"
            )
        self._most_layers, self._levels, self._threshold = layers, levels, float(threshold)
        self._layouts = 0

    def build(self, sample: Probes | None = None, tell: Progress = silent) -> None:
        """Choose the layers by their cost, and fill the buckets."""
        rows = self.members()
        tell("choosing attributes", 0.0)
        self._lay_out(rows, sample, THOROUGH)
        tell("assigning cells", 0.3)
        clauses = self.store.clauses
        entries = self._entries(clauses, rows)
        tell("filling buckets", 0.7)
        self._buckets.build(self._homes.values, clauses.boxes, rows, entries)

    def _lay_out(self, rows: NDArray[np.int64], sample: Probes | None, effort: Effort) -> None:
        """Choose the layers for clauses like *rows*, and make empty buckets."""
        self._choice = choose_layers(
            self.store.clauses, rows, sample, self._most_layers, self._levels, self._threshold, effort
        )
        self._homes = homes_for(self.store.rows)
        self._buckets = Buckets(int(np.prod(self._choice.layers.untested + 1)), _WORDS)
        self._laid_for = len(rows)
        self._layouts += 1

    def _entries(self, clauses: Clauses, rows: NDArray[np.int64]) -> Entries:
        entries = Entries.room(len(rows), sum(_WORDS))
        layers, scales, coded, sketched, _ = self._choice
        assign(layers, scales, coded, sketched, clauses, rows, entries)
        return entries

    def add(self, rows: NDArray[np.int64]) -> None:
        """Put clauses into their buckets."""
        more = self.store.rows - len(self._homes.values)
        if more > 0:
            self._homes.fill(more, -1)
        entries = self._entries(self.store.clauses, rows)
        self._buckets.add(self._homes.values, self.store.clauses.boxes, rows, entries)

    def outgrown(self, more: int) -> bool:
        """Tell whether the clauses are so many, with *more*, that it is time to choose the layers again."""
        enough = max(config.MO_TREE_GROWTH * self._laid_for, config.MO_TREE_FIRST)
        return self._buckets.entries + more > enough

    def successor(self) -> MOTree:
        """Return an empty MO-Tree with layers chosen by a small sample of the clauses here."""
        fresh = MOTree(self.store, layers=self._most_layers, levels=self._levels, threshold=self._threshold)
        fresh.part, fresh._layouts = self.part, self._layouts
        fresh._lay_out(np.flatnonzero(self._homes.values[:, 0] >= 0), None, QUICK)
        return fresh

    def drop(self, rows: NDArray[np.int64]) -> None:
        """Remove clauses from their buckets."""
        self._buckets.remove(self._homes.values, rows)

    def shift(self, rows: NDArray[np.int64]) -> None:
        """Overwrite the boxes of the entries that stay in their list; move the others."""
        self.rewrite(rows, np.zeros(len(rows), np.bool_))

    def rewrite(self, rows: NDArray[np.int64], changed: NDArray[np.bool_]) -> None:
        """Rewrite the entries of clauses; the tests of those that *changed* may differ, too."""
        layers, scales, coded, _, _ = self._choice
        clauses, homes = self.store.clauses, self._homes.values
        rest = rows[shift(layers, scales, coded, self._buckets.pool, homes, clauses.boxes, rows, changed)]
        if len(rest):
            self._buckets.rewrite(homes, clauses.boxes, rest, self._entries(clauses, rest))

    def view(self) -> View:
        """Return the layers and the buckets."""
        layers, scales, coded, sketched, _ = self._choice
        return View(
            search, SearchArrays(self.store.clauses, layers, scales, coded, sketched, self._buckets.pool)
        )

    def stats(self) -> dict[str, Any]:
        """Return the layers with their measures (section 4.2), and the figures of the buckets."""
        heads = self._buckets.pool.heads
        sizes = heads[heads[:, 1] > 0, 1]
        return {
            "layers": [
                {
                    "attribute": source_name(source, self.store.attributes),
                    **dict(zip(Figures._fields[1:], figures)),
                }
                for source, *figures in self._choice.figures
            ],
            "lists": len(heads),
            "lists_in_use": len(sizes),
            "longest_list": int(sizes.max(initial=0)),
            "layouts": self._layouts,
        }

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the flat arrays."""
        return {
            "homes": self._homes.values,
            "parameters": np.array(
                [self._most_layers, self._levels, self._threshold, self._laid_for, self._layouts]
            ),
            "figures": np.array(self._choice.figures),
            **{f"layer_{name}": array for name, array in self._choice.layers._asdict().items()},
            **{f"scale_{name}": array for name, array in self._choice.scales._asdict().items()},
            "coded": self._choice.coded,
            "sketched": self._choice.sketched,
            **self._buckets.arrays(),
        }

    def restore(self, arrays: dict[str, NDArray[Any]]) -> None:
        """Take the flat arrays."""
        layers, levels, self._threshold, laid_for, layouts = arrays["parameters"].tolist()
        self._most_layers, self._levels, self._laid_for, self._layouts = (
            int(number) for number in (layers, levels, laid_for, layouts)
        )
        self._choice = Choice(
            Layers(**{name: arrays[f"layer_{name}"] for name in Layers._fields}),
            Scales(**{name: arrays[f"scale_{name}"] for name in Scales._fields}),
            arrays["coded"],
            arrays["sketched"],
            [Figures(int(row[0]), int(row[1]), *row[2:]) for row in arrays["figures"].tolist()],
        )
        self._homes = GrowableArray(arrays["homes"], borrowed=False)
        self._buckets = Buckets.restored(arrays)

    def check(self) -> list[str]:
        """Compare the buckets with the clauses; return what is wrong."""
        found = self._buckets.check()
        alive = self.members()
        heads, codes, details, boxes, more, rows = self._buckets.pool
        if not self._buckets.entries == int(heads[:, 1].sum()) == len(alive):
            found.append(f"{self._buckets.entries} entries for {len(alive)} clauses")
        target, place = self._homes.values[alive].T
        if (target < 0).any():
            return [*found, "a clause is in no bucket"]
        at = heads[target, 0] + place
        expected = self._entries(self.store.clauses, alive)
        if (place >= heads[target, 1]).any() or not np.array_equal(rows[at], alive):
            found.append("an entry is not where its clause says")
        elif not np.array_equal(target, expected.targets) or not np.array_equal(codes[at], expected.codes):
            found.append("a clause is in another bucket than its cells say")
        elif not np.array_equal(np.hstack([details[at, 2:], more[at]]), expected.sketches):
            found.append("an entry has another sketch than its clause")
        elif not np.array_equal(boxes[at, :4], self.store.clauses.boxes[alive].astype(np.float32)):
            found.append("an entry has another box than its clause")
        return found
