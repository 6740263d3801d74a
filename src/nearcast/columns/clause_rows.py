"""Turns regions and normal forms into clause rows: the steps that objects and tables share.

A subscription with k clauses and a region of b boxes becomes k × b clause rows. Expressions repeat in real tables,
so each distinct one is coded once (:class:`ClauseLists`), regions are laid out separately (:class:`Placement`), and
:func:`cross` combines the two without a Python loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearcast.columns.clauses import clauses_from_csr, take_clauses
from nearcast.columns.ragged import code_sets, offsets_of, ragged_take
from nearcast.columns.shapes import NO_SHAPES, Shapes
from nearcast.columns.values import Values
from nearcast.kernels.verify import HIGH_OPEN, LOW_OPEN, NEGATED, Clauses, Probes

if TYPE_CHECKING:
    from nearcast.columns.attributes import AttributeNames
    from nearcast.columns.vocabulary import Vocabulary
    from nearcast.geometry import Circle, Place, Polygon, Region
    from nearcast.predicates import Clause

__all__ = ["ClauseLists", "Placement", "code_clauses", "cross", "place", "probe_rows"]

_NO_BOXES = np.empty((0, 4))
_NO_CODES, _NO_RUN = np.empty(0, np.int32), np.zeros((1, 2), np.int32)
_NO_TESTS = _NO_CODES, np.empty(0), np.empty(0), np.empty(0, np.uint8)
_ONE_EACH = np.array([0, 1])  # the offsets of one expression with one clause


class ClauseLists(NamedTuple):
    """Distinct expressions; each is a run of clauses that have no box yet."""

    offsets: NDArray[np.int64]
    clauses: Clauses


class Placement(NamedTuple):
    """The boxes of each row's region, and the shapes of those regions that are not boxes."""

    offsets: NDArray[np.int64]  # row i has the boxes offsets[i] to offsets[i + 1]
    boxes: NDArray[np.float64]
    shapes: Shapes


def code_clauses(
    expressions: Sequence[Sequence[Clause]], vocabulary: Vocabulary, attributes: AttributeNames
) -> ClauseLists:
    """Code the normal forms of expressions; new words and attributes get codes."""
    if len(expressions) == 1 and len(expressions[0]) == 1 and not expressions[0][0].tests:
        return _code_one_clause(expressions[0][0], vocabulary)
    clauses = [clause for expression in expressions for clause in expression]
    tests = [(test.attribute, test.interval) for clause in clauses for test in clause.tests]
    texts = np.array([isinstance(interval.low, str) for _, interval in tests], bool)
    n = len(clauses)

    def words(sets: list[frozenset[str]], name: str) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        codes = vocabulary.add([word for words in sets for word in sorted(words)])
        return code_sets(offsets_of(np.array([len(words) for words in sets], np.int64)), codes, n, name)

    # A test for a string has that string at both ends.
    strings = attributes.strings.add([str(interval.low) for (_, interval), text in zip(tests, texts) if text])

    def ends(values: list[float | str]) -> NDArray[np.float64]:
        out = np.array([0.0 if text else value for value, text in zip(values, texts)], np.float64)
        out[texts] = strings
        return out

    coded = clauses_from_csr(
        _NO_BOXES,
        *words([clause.keywords for clause in clauses], "keyword"),
        *words([clause.forbidden for clause in clauses], "forbidden"),
        offsets_of(np.array([len(clause.tests) for clause in clauses], np.int64)),
        np.array([attributes.add(name, text=bool(text)) for (name, _), text in zip(tests, texts)], np.int32),
        ends([interval.low for _, interval in tests]),
        ends([interval.high for _, interval in tests]),
        np.array(
            [LOW_OPEN * i.low_open | HIGH_OPEN * i.high_open | NEGATED * i.negated for _, i in tests],
            np.uint8,
        ),
    )
    return ClauseLists(offsets_of(np.array([len(expression) for expression in expressions], np.int64)), coded)


def _code_one_clause(clause: Clause, vocabulary: Vocabulary) -> ClauseLists:
    """Code a single clause without tests: the usual case when subscribers come one by one."""
    wanted = len(clause.keywords)
    if clause.forbidden:
        codes = vocabulary.add([*sorted(clause.keywords), *sorted(clause.forbidden)])
        keywords, forbidden = np.sort(codes[:wanted]), np.sort(codes[wanted:])
        forbidden_runs = np.array([[0, len(forbidden)]], np.int32)
    else:
        keywords = vocabulary.add(sorted(clause.keywords))
        keywords.sort()
        forbidden, forbidden_runs = _NO_CODES, _NO_RUN
    runs = np.array([[0, wanted]], np.int32)
    coded = Clauses(_NO_BOXES, runs, keywords, forbidden_runs, forbidden, _NO_RUN, *_NO_TESTS)
    return ClauseLists(_ONE_EACH, coded)


def place(regions: Sequence[Region | Place]) -> Placement:
    """Lay out the boxes and shapes of regions, one or two boxes each."""
    if len(regions) == 1 and regions[0].exact:
        boxes = np.array(regions[0].boxes(), np.float64)
        return Placement(np.array([0, len(boxes)]), boxes, NO_SHAPES)
    layouts = [region.boxes() for region in regions]
    counts = np.array([len(boxes) for boxes in layouts], np.int64)
    boxes = np.array([box for layout in layouts for box in layout], np.float64).reshape(-1, 4)
    exact = np.array([region.exact for region in regions], bool)
    if exact.all():
        return Placement(offsets_of(counts), boxes, NO_SHAPES)
    shaped: list[Circle | Polygon] = [region for region in regions if not region.exact]  # type: ignore[misc]
    numbers = np.where(exact, -1, np.cumsum(~exact) - 1).astype(np.int32)
    return Placement(offsets_of(counts), boxes, Shapes.of(shaped, np.repeat(numbers, counts)))


def cross(
    lists: ClauseLists, expression_of: NDArray[np.int64], placed: Placement
) -> tuple[Clauses, NDArray[np.int32], Shapes]:
    """Return (clauses, owners, shapes): for each row, each clause of its expression with each box of its region."""
    n = len(expression_of)
    if n == len(placed.boxes) == len(lists.offsets) - 1 == 1 and lists.offsets[1] == 1:
        return lists.clauses._replace(boxes=placed.boxes), np.zeros(1, np.int32), placed.shapes
    box_counts = np.diff(placed.offsets)
    clause_counts = np.diff(lists.offsets)[expression_of]
    if (box_counts == 1).all() and (clause_counts == 1).all():
        picks = lists.offsets[expression_of]
        as_they_are = np.array_equal(picks, np.arange(len(lists.clauses.keyword_runs)))
        clauses = lists.clauses if as_they_are else take_clauses(lists.clauses, picks)
        return clauses._replace(boxes=placed.boxes), np.arange(n, dtype=np.int32), placed.shapes
    counts = clause_counts * box_counts
    owners = np.repeat(np.arange(n), counts)
    nth = np.arange(counts.sum()) - np.repeat(offsets_of(counts)[:-1], counts)
    clause_rows = lists.offsets[expression_of][owners] + nth // box_counts[owners]
    box_rows = placed.offsets[owners] + nth % box_counts[owners]
    clauses = take_clauses(lists.clauses, clause_rows)._replace(boxes=placed.boxes[box_rows])
    return clauses, owners.astype(np.int32), placed.shapes.take(box_rows)


def probe_rows(
    placed: Placement, offsets: NDArray[np.int64], keywords: NDArray[np.int32], values: Values
) -> tuple[Probes, NDArray[np.int32]]:
    """Return (probes, owners): each message's words and values with each box of its place."""
    if len(placed.boxes) == len(placed.offsets) - 1:  # one box each
        return Probes(placed.boxes, offsets, keywords, *values), np.arange(len(placed.boxes), dtype=np.int32)
    counts = np.diff(placed.offsets)
    owners = np.repeat(np.arange(len(counts), dtype=np.int32), counts)
    if len(owners) != len(counts):
        rows = owners.astype(np.int64)
        offsets, keywords = ragged_take(offsets, keywords, rows)
        values = values.take(rows)
    return Probes(placed.boxes, offsets, keywords, *values), owners
