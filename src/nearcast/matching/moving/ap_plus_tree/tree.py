"""The AP-Tree of clauses that move, with the messages that visited its nodes (section 4.2.2).

The section is that of Wang, Zhang, Zhang, Lin and Wang, "AP-Tree: Efficiently Support Location-Aware Publish/Subscribe"
(2015).
"""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearcast import config
from nearcast.columns.rows.clauses import ClauseStore
from nearcast.columns.rows.messages import MessageRows
from nearcast.kernels.verify import Probes
from nearcast.matching.moving.ap_plus_tree import moving
from nearcast.matching.moving.ap_plus_tree.audit import lost_messages
from nearcast.matching.moving.ap_plus_tree.messages import MessageLists
from nearcast.matching.moving.ap_plus_tree.moving import AFTER, BEFORE, SIDES, MessageView, Questions
from nearcast.matching.searching import Step
from nearcast.matching.structure import Answers, Moves, Progress, silent
from nearcast.matching.structures.ap_tree import APTree, layout, maintain
from nearcast.matching.structures.ap_tree.layout import ROOT, Population
from nearcast.matching.structures.ap_tree.motion import Travels, rounded
from nearcast.matching.structures.ap_tree.search import Visits, match_and_visit

__all__ = ["MovingTree"]


class _Ways(NamedTuple):
    """The ways of clauses that are about to move."""

    rows: NDArray[np.int64]
    population: Population
    ways: list[NDArray[np.int32]]


class MovingTree(APTree):
    """An AP-Tree whose clauses move, and whose nodes have lists of messages.

    What the tree does for messages is up to the pair that holds it; to an index, it is an AP-Tree.
    """

    name: ClassVar[str] = "ap-plus-tree"
    shifts = True

    def __init__(self, store: ClauseStore, stored: MessageRows, copies: int, **parameters: Any) -> None:
        super().__init__(store, **parameters)
        self._travels: Travels = Travels(store, self._divergence)
        self.lists = MessageLists(stored, copies)
        self._figures = np.zeros(moving.SCANNED + 1, np.int64)
        self._asked: _Ways | None = None

    # --- Clauses ---------------------------------------------------------------------------------------------------

    def build(self, sample: Probes | None = None, tell: Progress = silent) -> None:
        """Build the tree; its lists are empty, and complete from now on."""
        self._asked = None
        self._travels.refresh(self.members())
        super().build(sample, tell)
        self.lists.clear()
        used = int(self._tree.used[layout.USED_NODES])
        self.lists.adopt(self._tree, np.arange(used))

    def add(self, rows: NDArray[np.int64]) -> None:
        """Insert clauses."""
        self._asked = None
        self._travels.place(rows)
        super().add(rows)

    def drop(self, rows: NDArray[np.int64]) -> None:
        """Remove clauses."""
        if len(rows):
            self._asked = None
            super().drop(rows)

    def shift(self, rows: NDArray[np.int64]) -> None:
        """Move clauses to other leaves, or within those that they are in; the weights of all nodes follow."""
        boxes = rounded(self.store.clauses.boxes[rows])
        if not len(rows):
            return
        if self._rebuild is not None:  # the node that is being rebuilt must learn of it
            super().drop(rows)
            self._travels.move(rows, boxes)
            super().add(rows)
            return
        asked = self._asked
        if asked is None or not np.array_equal(asked.rows, rows):
            asked = self._ways_of(rows, self._travels.boxes(rows), boxes, BEFORE | AFTER)
        self._asked = None
        self._travels.move(rows, boxes)
        population = asked.population._replace(boxes=boxes)
        leaf = int(self._settings.leaf)
        large = max(leaf, int(config.AP_TREE_COVER * self.store.living))
        listed = np.empty(2 * len(rows) + 64, np.int32)
        count = 0
        for way in asked.ways:
            sides = way[:, SIDES] & (BEFORE | AFTER)
            left, came, stayed = (way[sides == side, :SIDES] for side in (BEFORE, AFTER, BEFORE | AFTER))
            _, count = maintain.drop(self._tree, population, left, 0, leaf, large, listed, count)
            count = self._nodes.run(maintain.add, ROOT, population, came, leaf, large, listed, count)
            self.lists.adopt(self._tree, self._tree.children[came[:, maintain.SLOT]])  # those that are new
            maintain.shift(self._tree, population, stayed)
        if count:
            self._wait_for_look(listed[:count].tolist())
        self._work(config.SUCCESSION_ROWS + config.AP_TREE_SHARE * len(rows))

    def _reconstruct(self, node: int, at_once: int) -> None:
        """Rebuild a node.

        The list of a leaf that is split stays where it is: above the new leaves, which need no messages from before.
        But what is below a node that was no leaf has not been sent to the new parts: messages that found an empty slot
        there are in no list. So the lists begin again.
        """
        was_leaf = self._tree.nodes[node, layout.KIND] == layout.LEAF
        super()._reconstruct(node, at_once)
        if self._rebuild is None:
            if was_leaf:
                self.lists.adopt(self._tree, self._nodes_below(node), 0)
            else:
                self._tree.nodes[node, layout.LIST] = 0

    def _nodes_below(self, node: int) -> NDArray[np.int32]:
        """Return all nodes below a node."""
        level, found = [node], [np.empty(0, np.int32)]
        tree = self._tree
        while level:
            children = [np.empty(0, np.int32)]
            for at in level:
                if tree.nodes[at, layout.KIND] != layout.LEAF:
                    first = int(tree.nodes[at, layout.SLOTS])
                    slots = tree.children[first : first + int(layout.parts_of(tree.nodes, at)) + 1]
                    children.append(slots[slots >= 0])
            found.append(np.concatenate(children))
            level = found[-1].tolist()
        return np.concatenate(found)

    # --- Messages --------------------------------------------------------------------------------------------------

    def attaching(self, probes: Probes, probe_rows: NDArray[np.int32]) -> Step:
        """Return a search that matches probes, and attaches those that have a row to the leaves that they visit."""
        kept = probe_rows[probe_rows >= 0]
        if self.lists.number(kept.astype(np.int64)):
            self._tree.nodes[:, layout.LIST] = 0
        self._travels.meet(len(probe_rows))
        self.lists.collect(self._tree, int(self._tree.used[layout.USED_NODES]))
        n, copies = len(probe_rows), self.lists.copies
        ends = np.empty(n, np.int64)
        visits = Visits(ends, np.empty(min(n, config.MATCH_CHUNK) * (copies + 1), np.int32), copies)
        arrays = self.view().arrays

        def step(start: int, stop: int, answers: Answers, filled: int) -> int:
            done: int = match_and_visit(arrays, probes, start, stop, answers, filled, visits)
            self.lists.attach(self._tree, arrays.ranks, probes, probe_rows, start, done, visits)
            return done

        return step

    def ask(
        self, rows: NDArray[np.int64], moves: Moves, *, comes: bool = False
    ) -> tuple[Questions, NDArray[np.bool_]]:
        """Return the lists that clauses read, and for which of them these have all valid messages.

        A clause that *comes* has no region before.
        """
        befores, afters, kept = rounded(moves.before), rounded(moves.after), rounded(moves.kept)
        found = self._ways_of(rows, befores, afters, AFTER if comes else BEFORE | AFTER)
        if not comes:
            self._asked = found
        births, ends = np.empty(len(rows), np.int32), np.empty(len(rows), np.int64)
        picked, total = [np.empty(0, np.int32)], 0
        for number, way in enumerate(found.ways):
            first = number * config.AP_TREE_ABREAST
            last = min(first + config.AP_TREE_ABREAST, len(rows))
            self.lists.reserve(len(way))
            out = np.empty(len(way), np.int32)
            count = moving.pick(
                self._tree, self.lists.arrays, way, first, last, kept, births, ends, out, self._figures
            )
            picked.append(out[:count])
            ends[first:last] += total
            total += count
        offsets = np.concatenate([[0], ends])
        return Questions(moves, offsets, np.concatenate(picked)), births <= self.lists.oldest()

    def message_view(self) -> MessageView:
        """Return the messages, for searches."""
        return MessageView(self.lists.stored.stored, self.lists.arrays, self._figures)

    def _ways_of(
        self,
        rows: NDArray[np.int64],
        befores: NDArray[np.float32],
        afters: NDArray[np.float32],
        sides: int,
    ) -> _Ways:
        """Return the ways of clauses from one region to another."""
        population = self._nodes.population(rows, self._ranking.ranks)
        ways = []
        for first in range(0, len(rows), config.AP_TREE_ABREAST):
            last = min(first + config.AP_TREE_ABREAST, len(rows))
            way = np.empty((12 * (last - first), moving.STEP), np.int32)
            while (
                steps := moving.route(self._tree, population, befores, afters, sides, first, last, way)
            ) < 0:
                way = np.empty((2 * len(way), moving.STEP), np.int32)
            ways.append(way[:steps])
        return _Ways(rows, population, ways)

    # --- Figures ---------------------------------------------------------------------------------------------------

    def stats(self) -> dict[str, Any]:
        """Return the shape of the tree, and what has been done for messages and moves."""
        cases = self._figures[moving.CASES : moving.CASES + 4].tolist()
        return (
            super().stats()
            | self.lists.stats()
            | {f"leaves_of_case_{case + 1}": count for case, count in enumerate(cases)}
            | {
                "entries_read": int(self._figures[moving.SCANNED]),
                "moves_per_message": round(self._travels.moves * self.store.living, 3),
                "speed": self._travels.speed,
            }
        )

    @property
    def nbytes(self) -> int:
        """Memory, without that of the stores."""
        return super().nbytes + self.lists.nbytes + self._travels.nbytes

    def check(self) -> list[str]:
        """Compare the tree with the clauses, and its lists with the messages."""
        found = super().check()
        lost = lost_messages(self._tree, self.lists, self._ranking.ranks, self._nodes.wait)
        if lost:
            found.append(f"{lost} times a message is not in a list where it belongs")
        boxes = rounded(self.store.clauses.boxes[self.members()])
        if not np.array_equal(self._travels.boxes(self.members()), boxes):
            found.append("a clause stands in the tree under another box than its own")
        return found
