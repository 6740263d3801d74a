"""What is specific to the MO-Tree: cells, widths (section 5 of its paper), layers, buckets, updates."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from answers import answers
from nearcast import MessageBatch, SubscriptionTable, build_index, config, open_index
from nearcast.errors import ColumnError, InputError
from nearcast.kernels.slabs import END
from nearcast.matching.structures.mo_tree import widths as section5
from nearcast.matching.structures.mo_tree.cells import cell_of, cells_touched
from nearcast.matching.structures.mo_tree.choice import DIRECTORY
from nearcast.matching.structures.scale import knots_of, position, scales_of
from nearcast.matching.structures.sketch import RUN_CELLS, RUN_GUARDS, passes, run_code, value_code
from rooms import free_slots

shares = st.floats(0, 1)


# --- Section 5 ------------------------------------------------------------------------------------------------------
def uniform_law(points=1024):
    """Section 5.3: both ends of the intervals and the values are uniform, P_w(x) = 2(1 - x)."""
    return section5.Law(1.0 - np.sqrt(1.0 - (np.arange(points) + 0.5) / points))


def test_worked_example_of_section_5_3():
    counts, targets = section5.level_counts(4), np.arange(1, 5) / 4
    law = uniform_law()
    widths = section5.optimal_widths(counts, targets, 6, law)
    np.testing.assert_allclose(widths, [3 / 8, 11 / 18, 5 / 6, 1], atol=1e-3)
    stabbed = [section5.mean_stabbed(int(c), float(w), None) for c, w in zip(counts, widths)]
    assert 5.99 < sum(stabbed) <= 6
    free = section5.optimal_widths(counts, targets, np.inf, law)
    np.testing.assert_allclose(free, [7 / 16, 2 / 3, 7 / 8, 1])  # W_max of each level


@given(st.integers(2, 50), st.floats(0.01, 1))
def test_lemma_1_overlap(count, share):
    """Cells of equal width that fill the domain from end to end overlap by o_i."""
    width = 1 / count + share * (1 - 1 / count)
    starts = np.linspace(0, 1 - width, count)
    np.testing.assert_allclose(starts[:-1] + width - starts[1:], section5.overlap(count, width), atol=1e-9)


@pytest.mark.parametrize("levels", [2, 3, 4, 6, 8])
def test_lemma_2_even_targets(levels):
    """Where widths become rarer in proportion, the targets are about i / L, and all cells hold as many."""
    counts, law = section5.level_counts(levels), uniform_law(100_000)
    targets = section5.even_targets(counts, law.widths)
    np.testing.assert_allclose(targets, np.arange(1, levels + 1) / levels, atol=0.35 / levels + 0.01)
    held = np.diff(np.searchsorted(law.widths, targets), prepend=0) / counts
    np.testing.assert_allclose(held, held[0], rtol=0.01)


@given(st.floats(0.01, 0.99), st.integers(2, 50))
def test_lemma_3_useful_widths(target, count):
    """At W_max neighbours overlap by the target; at W_min an interval of that width fits in one place only."""
    most = section5.most_width(target, count)
    assert section5.least_width(target) <= most + 1e-12
    assert section5.overlap(count, most) == pytest.approx(target, abs=1e-9)
    at_least = section5.success_rate(count, section5.least_width(target), np.array([target]), None)
    at_most = section5.success_rate(count, most, np.array([target]), None)
    assert at_least[0] == pytest.approx(0, abs=1e-9)
    assert at_most[0] == pytest.approx(1, abs=1e-6)


@given(st.integers(2, 12), st.floats(0, 1), st.floats(0.01, 0.9), st.integers(0, 2**32 - 1))
def test_lemma_4_success_rate(count, share, x, seed):
    """The formula for uniform low ends is what counting them gives."""
    width = min(x + share * (section5.most_width(x, count) - x), 1.0)
    lows = np.random.default_rng(seed).uniform(0, 1 - x, 20_000)
    counted = section5.success_rate(count, width, np.full(len(lows), x), lows).mean()
    told = section5.success_rate(count, width, np.array([x]), None)[0]
    assert counted == pytest.approx(told, abs=0.02)


@given(
    st.lists(st.tuples(shares, shares), min_size=1, max_size=30),
    st.floats(4, 12),
    st.lists(shares, max_size=20),
)
def test_widths_keep_the_threshold(ends, threshold, values):
    """For measured distributions too: widths stay between W_min and W_max, and η is kept where it can be."""
    ends = np.sort(np.array(ends), axis=1)
    law = section5.Law(ends[:, 1] - ends[:, 0], ends[:, 0], np.array(values) if values else None)
    counts = section5.level_counts(4)
    targets = section5.even_targets(counts, law.widths)
    widths = section5.optimal_widths(counts, targets, threshold, law)
    least = np.array([section5.least_width(t) for t in targets])
    most = np.array([section5.most_width(t, int(c)) for t, c in zip(targets, counts)])
    assert (widths >= least - 1e-9).all()
    assert (widths <= np.maximum(most, least) + 1e-9).all()

    def stabbed(all_widths):
        return sum(section5.mean_stabbed(int(c), float(w), law.values) for c, w in zip(counts, all_widths))

    assert stabbed(widths) <= max(threshold, stabbed(least)) + 1e-9


# --- Cells, scales, sketches ------------------------------------------------------------------------------------------
@st.composite
def partitions(draw):
    counts = np.array([draw(st.integers(2, 9)), draw(st.integers(2, 5)), 1], np.int32)[None]
    widths = np.array([draw(st.floats(0.05, 0.5)), draw(st.floats(0.3, 0.9)), 1.0])[None]
    widths = np.maximum(widths, 1 / counts)
    steps = np.where(counts > 1, (1 - widths) / np.maximum(counts - 1, 1), 0.0)
    rates = np.divide(1, steps, out=np.zeros_like(steps), where=steps > 0)
    firsts = (np.cumsum(counts, axis=1) - counts).astype(np.int32)
    return counts, firsts, steps, rates, widths


@given(partitions(), shares, shares, shares)
def test_an_interval_is_in_the_smallest_cell_that_contains_it(cells, a, b, value):
    counts, firsts, steps, _, widths = cells
    low, high = min(a, b), max(a, b)
    own = cell_of(*cells, 0, low, high)
    best = None
    for level in range(3):
        fitting = []
        for j in range(counts[0, level]):
            start = steps[0, level] * j
            if low >= start and high <= start + widths[0, level]:
                fitting.append((abs(start + widths[0, level] / 2 - (low + high) / 2), firsts[0, level] + j))
        if fitting:
            best = fitting
            break
    nearest = min(distance for distance, _ in best)
    assert own in [cell for distance, cell in best if distance <= nearest + 1e-12]
    out = np.empty(counts.sum() + 1, np.int32)
    touched = set(out[: cells_touched(*cells, 0, value, value, out)].tolist())
    if low <= value <= high:
        assert own in touched
    expected = set()
    for level in range(3):
        for j in range(counts[0, level]):
            start = steps[0, level] * j
            if start <= value <= start + widths[0, level]:
                expected.add(int(firsts[0, level] + j))
    assert touched == expected


def test_figure_2_of_the_paper():
    """The value 0.3 stabs two cells of the first level, two of the second, and the last one."""
    counts = np.array([[7, 3, 1]], np.int32)
    widths = np.array([[1 / 4, 1 / 2, 1.0]])
    steps = np.array([[1 / 8, 1 / 4, 0.0]])
    cells = counts, np.array([[0, 7, 10]], np.int32), steps, np.array([[8, 4, 0.0]]), widths
    out = np.empty(12, np.int32)
    found = cells_touched(*cells, 0, 0.3, 0.3, out)
    assert (out[:found] + 1).tolist() == [2, 3, 8, 9, 11]
    assert [cell_of(*cells, 0, *ends) + 1 for ends in ((0.2, 0.3), (0.5, 0.8), (0.3, 0.7))] == [2, 10, 9]


numbers = st.floats(allow_nan=False, width=64)


@given(st.lists(numbers, max_size=40), st.lists(numbers, min_size=2, max_size=40))
def test_a_scale_never_falls(seen, values):
    _, knots, slopes, _ = scales_of([0], [knots_of(np.array(seen))])
    positions = [position(knots, slopes, 0, value) for value in sorted(values)]
    assert positions == sorted(positions)
    assert all(0 <= place <= 1 for place in positions)


cells_of_8 = st.lists(st.integers(0, 127), min_size=8, max_size=8)


@given(cells_of_8, cells_of_8, cells_of_8)
def test_eight_comparisons_at_once(values, firsts, lasts):
    def word(cells):
        return np.uint64(sum(cell << 8 * i for i, cell in enumerate(cells)))

    told = bool(passes(word(values), word(firsts), word(lasts)))
    assert told == all(low <= value <= high for low, value, high in zip(firsts, values, lasts))


@given(
    st.lists(st.tuples(shares, shares, shares, shares, st.booleans(), st.booleans()), min_size=1, max_size=8)
)
def test_runs_of_cells_in_one_word(layers):
    """A message that touches every interval meets the code; one that lacks a tested attribute does not."""
    fields = np.arange(len(layers), dtype=np.int32)
    clause = np.array([sorted(ends[:2]) if tested else [-1, -1] for *ends, tested, _ in layers])
    message = np.array([sorted(ends[2:4]) if there else [-1, -1] for *ends, there in layers])
    met = bool((value_code(fields, message) - run_code(fields, clause)) & RUN_GUARDS == RUN_GUARDS)

    def cell(place):
        return min(int(place * RUN_CELLS), RUN_CELLS - 1)

    assert met == all(
        low == -1 or (first != -1 and cell(low) <= cell(last) and cell(first) <= cell(high))
        for (low, high), (first, last) in zip(clause.tolist(), message.tolist())
    )


# --- The index --------------------------------------------------------------------------------------------------------
def crowd(rows, seed=0, attributes=12):
    """Subscriptions with places, intervals with all kinds of ends on many attributes, a few words."""
    rng = np.random.default_rng(seed)
    centres, reach = rng.random((rows, 2)), rng.choice([0.01, 0.05, 0.3, np.inf], (rows, 1))
    counts = rng.integers(0, 5, rows)
    total = counts.sum()
    ends = np.sort(rng.normal(size=(total, 2)), axis=1)
    ends[rng.random((total, 2)) < 0.1] *= np.inf
    ends = np.sort(ends, axis=1)
    same = rng.random(total) < 0.2
    ends[same] = np.floor(ends[same, :1] * 2) if same.any() else ends[same]
    ends[np.isinf(ends).all(axis=1)] = [-np.inf, np.inf]
    flags = np.where(np.isinf(ends).any(axis=1) | same, 0, rng.integers(0, 8, total))
    intervals = (
        np.append(0, np.cumsum(counts)),
        rng.zipf(1.4, total) % attributes,
        ends[:, 0],
        ends[:, 1],
        flags,
    )
    words = np.append(0, np.cumsum(rng.random(rows) < 0.2))
    return SubscriptionTable.from_arrays(
        np.hstack([centres - reach, centres + reach]), words, rng.integers(0, 5, words[-1]), intervals
    )


def events(rows, seed=1, attributes=12):
    rng = np.random.default_rng(seed)
    values = np.where(rng.random((rows, attributes)) < 0.3, np.nan, rng.normal(size=(rows, attributes)))
    values[:, ::3] = np.floor(values[:, ::3] * 2)
    words = np.append(0, np.cumsum(rng.integers(0, 3, rows)))
    return MessageBatch.from_arrays(rng.random((rows, 2)), words, rng.integers(0, 5, words[-1]), values)


@pytest.mark.parametrize("sampled", [False, True])
@pytest.mark.parametrize(
    "parameters", [{}, {"levels": 2, "layers": 2}, {"levels": 3, "layers": 6, "threshold": 4.0}]
)
def test_equals_the_scan(parameters, sampled):
    table, batch = crowd(5_000), events(200)
    index = build_index("mo-tree", table, messages=events(500, 7) if sampled else None, **parameters)
    assert index.check() == []
    assert answers(index, batch) == answers(build_index("scan", table), batch)
    assert max(index.match(batch).counts) > 1


@pytest.mark.parametrize("name", ["mo-tree", "auto"])
def test_areas_where_the_place_is_not_in_the_directory(name):
    """Values tell these clauses apart better than their place, so that an axis stands in the code."""
    rng = np.random.default_rng(4)
    rows = 4_000
    low = rng.random((rows, 2)) * 0.7
    starts = rng.integers(0, 40, (rows, 3)).astype(float)
    intervals = (np.arange(rows + 1) * 3, np.tile(np.arange(3), rows), starts.ravel(), starts.ravel())
    boxes = np.hstack([low, low + rng.random((rows, 2)) * 0.3])
    table = SubscriptionTable.from_arrays(boxes, np.zeros(rows + 1, int), [], intervals)
    corner = rng.random((300, 2))
    areas = np.hstack([corner, corner + rng.choice([0.0, 0.01, 0.5], (300, 2))])
    values = np.where(rng.random((300, 3)) < 0.2, np.nan, starts[:300])
    batch = MessageBatch.from_arrays(None, np.zeros(301, int), [], values, boxes=areas)
    index = build_index(name, table)
    layers = [layer["attribute"] for layer in index.stats()["layers"]]
    assert not {"x", "y"} & set(layers[:DIRECTORY])
    assert {"x", "y"} & set(layers[DIRECTORY:])
    scan = build_index("scan", table)
    found = answers(index, batch)
    assert found == answers(scan, batch)
    assert sum(map(len, found)) > 5
    moved = table.take(np.arange(0, rows, 2))
    moved.clauses.boxes[:] += 0.2
    for each in (index, scan):
        each.update(np.arange(0, rows, 2), moved)
    assert index.check() == []
    found = answers(index, batch)
    assert found == answers(scan, batch)
    assert sum(map(len, found)) > 5


def test_many_attribute_sets():
    """Thousands of attributes, each of a few clauses: those that are not indexed are decided on the clause."""
    table, batch = crowd(3_000, attributes=2_000), events(100, attributes=2_000)
    index = build_index("mo-tree", table)
    assert answers(index, batch) == answers(build_index("scan", table), batch)


def test_layers_by_popularity_selectivity_uniformity():
    rng = np.random.default_rng(3)
    rows = 4_000
    centres = rng.random((rows, 2))
    lows = rng.random((rows, 4)) * 0.9
    highs = lows + np.array(
        [0.05, 0.9, 0.05, 0.05]
    )  # 0: good; 1: not selective; 2: rarely tested; 3: not uniform
    lows[:, 3], highs[:, 3] = 0.5, 0.5
    tested = rng.random((rows, 4)) < [0.9, 0.9, 0.05, 0.9]
    intervals = (
        np.append(0, np.cumsum(tested.sum(axis=1))),
        np.tile(np.arange(4), (rows, 1))[tested],
        lows[tested],
        highs[tested],
    )
    boxes = np.hstack([centres - 0.4, centres + 0.4])
    table = SubscriptionTable.from_arrays(boxes, np.zeros(rows + 1, int), [], intervals)
    values = rng.random((2_000, 4))
    values[:, 3] = 0.5
    messages = MessageBatch.from_arrays(rng.random((2_000, 2)), np.zeros(2_001, int), [], values)
    layers = build_index("mo-tree", table, messages=messages).stats()["layers"]
    assert layers[0]["attribute"] == "0"
    assert "3" not in [layer["attribute"] for layer in layers[:DIRECTORY]]
    order = [layer["attribute"] for layer in layers]
    assert {"x", "y"} <= set(order)
    assert layers[0]["popularity"] == pytest.approx(0.9, abs=0.03)
    assert layers[0]["selectivity"] > 0.8
    assert all(0 <= layer["uniformity"] <= 1 for layer in layers)


def test_updates_stay_in_their_bucket_or_move(tmp_path):
    table, other, batch = crowd(3_000), crowd(3_000, seed=5), events(100)
    index, scan = build_index("mo-tree", table), build_index("scan", table)
    rng = np.random.default_rng(0)
    rows = rng.choice(3_000, 500, replace=False)
    nudged = table.take(rows)
    nudged.clauses.boxes[:] += 1e-3  # the same counts: in place
    for pair in ((rows, nudged), (rows[:200], other.take(rows[:200]))):  # then others: removed and inserted
        for each in (index, scan):
            each.update(*pair)
        assert index.check() == []
        assert len(index) == 3_000
        assert answers(index, batch) == answers(scan, batch)
    assert index.table.size == 3_000
    opened = open_index(index.save(tmp_path / "index"), verify=True)
    assert opened.stats()["layers"] == index.stats()["layers"]
    assert answers(opened, batch) == answers(scan, batch)


def altered(table, rows, kinds):
    """The given rows of a table, each altered as its kind says; the numbers of words and tests stay."""
    taken = table.take(rows)
    clauses = taken.clauses
    of_words = np.repeat(kinds, np.diff(clauses.keyword_runs)[:, 0])
    of_tests = np.repeat(kinds, np.diff(clauses.test_runs)[:, 0])
    clauses.boxes[kinds == "nudge"] += 1e-4
    clauses.boxes[kinds == "leave"] += 0.4
    clauses.keywords[of_words == "words"] += 1
    clauses.test_attributes[of_tests == "attributes"] += 1
    clauses.test_lows[of_tests == "lows"] -= 0.3
    clauses.test_highs[of_tests == "highs"] += 0.3
    clauses.test_flags[of_tests == "flags"] ^= 4
    for column in clauses:  # everything at once
        if column.dtype == np.float64:
            own = kinds if column.ndim > 1 else of_tests
            column[own == "all"] *= 1.01
    clauses.keywords[of_words == "all"] += 1
    return taken


KINDS = ["nothing", "nudge", "leave", "words", "attributes", "lows", "highs", "flags", "all"]


@pytest.mark.parametrize("kinds", [[kind] for kind in KINDS] + [KINDS], ids=[*KINDS, "mixed"])
def test_updates_in_place(kinds):
    table, batch = crowd(3_000), events(100)
    index, scan = build_index("mo-tree", table), build_index("scan", table)
    rng = np.random.default_rng(2)
    for _ in range(3):
        rows = rng.choice(3_000, 700, replace=False)
        update = rows, altered(scan.table, rows, rng.choice(kinds, 700))
        for each in (index, scan):
            each.update(*update)
        assert index.check() == []
        assert answers(index, batch) == answers(scan, batch)
    assert index.stats()["free_clauses"] == 0


def test_updates_with_other_numbers_of_words_tests_or_clauses():
    table, batch = crowd(300), events(50)
    index, scan = build_index("mo-tree", table), build_index("scan", table)
    twice = SubscriptionTable.from_arrays(
        [[0, 0, 0.5, 0.5], [0.5, 0, 1, 1], [0, 0.5, 1, 1]], [0, 0, 0, 0], [], owners=[0, 0, 1]
    )
    rows = np.arange(40)
    for update in (
        (rows, altered(table, rows, np.full(40, "nudge"))),
        (rows, crowd(300, seed=5).take(rows)),
        ([7, 3], twice),
        ([3, 9], twice),
        (rows, altered(table, rows, np.full(40, "leave"))),
    ):
        for each in (index, scan):
            each.update(*update)
        assert index.check() == []
        assert len(index) == 300
        assert answers(index, batch) == answers(scan, batch)


def test_update_does_not_touch_the_table_it_was_built_from():
    table = crowd(100)
    before = table.clauses.boxes.copy()
    index = build_index("mo-tree", table)
    nudged = table.take([3])
    nudged.clauses.boxes[:] += 1
    index.update([3], nudged)
    np.testing.assert_array_equal(table.clauses.boxes, before)


@pytest.mark.parametrize("name", ["mo-tree", "scan", "auto"])
def test_update_refuses_what_does_not_fit(name):
    index = build_index(name, crowd(10))
    with pytest.raises(ColumnError, match="one subscription for each of the 2 rows"):
        index.update([1, 2], crowd(3))
    with pytest.raises(ColumnError, match="named twice"):
        index.update([1, 1], crowd(2))


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"layers": 1}, "layers must be a whole number from 2 to 10, not 1"),
        ({"levels": True}, "levels must be a whole number from 2 to 8, not True"),
        ({"threshold": 2.0}, "threshold must be at least the number of levels, 4, not 2.0"),
    ],
)
def test_parameters_are_checked(parameters, message):
    with pytest.raises(InputError, match=message):
        build_index("mo-tree", crowd(10), **parameters)


def test_layers_are_chosen_again_when_the_index_has_grown():
    index = build_index("mo-tree", SubscriptionTable.from_arrays(np.empty((0, 4)), [0], []))
    table = crowd(6_000)
    for start in range(0, 6_000, 500):
        index.insert(table.take(np.arange(start, start + 500)))
    assert 2 <= index.stats()["layouts"] <= 4
    assert index.stats()["lists_in_use"] > 20
    assert index.check() == []
    batch = events(100)
    assert answers(index, batch) == answers(build_index("scan", table), batch)


def test_a_structure_is_outgrown_by_many_times_what_it_was_laid_out_for():
    structure = build_index("mo-tree", crowd(1_000)).structure
    assert not structure.outgrown(config.MO_TREE_GROWTH * 1_000 - 1_000)
    assert structure.outgrown(config.MO_TREE_GROWTH * 1_000)
    assert not structure.successor().outgrown(config.MO_TREE_GROWTH * 1_000)


@pytest.mark.parametrize("parameters", [{}, {"levels": 3, "layers": 6, "threshold": 4.0}])
def test_a_successor_that_is_filled_row_by_row_answers_as_the_first(parameters, tmp_path):
    table, batch = crowd(5_000), events(200)
    index = build_index("mo-tree", table, **parameters)
    index.remove(np.arange(0, 5_000, 7))
    expected, built = answers(index, batch), index.structure
    successor = built.successor()
    for row in built.members():
        successor.add(np.array([row]))
    index.structure = successor
    index.insert(crowd(0))  # publishes
    assert index.check() == []
    assert answers(index, batch) == expected
    assert index.stats()["layouts"] == 2
    assert (successor._most_layers, successor._levels, successor._threshold) == (
        built._most_layers,
        built._levels,
        built._threshold,
    )
    opened = open_index(index.save(tmp_path / "index"), verify=True)
    for each in (opened, index):
        each.insert(crowd(500, seed=9))
        each.remove(np.arange(1, 5_000, 7))
        assert each.check() == []
    assert answers(opened, batch) == answers(index, batch)


def rooms(structure):
    """Slots of the pool, of the lists' rooms and of free ones."""
    buckets = structure._buckets
    free = free_slots(buckets._slabs, buckets.pool.rows)
    return int(buckets._slabs[END]), int(buckets.pool.heads[:, 2].sum()), free


def test_rooms_that_lists_leave_serve_others():
    """Crowds gather in one place after the other: the pool is never much larger than what it holds."""
    n, index = 2_000, build_index("mo-tree", crowd(4_000))
    begin = rooms(index.structure)[0]
    rows, pools = None, []
    for generation in range(24):
        table = crowd(n, seed=generation)
        table.clauses.boxes[:] = np.tile(np.random.default_rng(generation).random(2) * 0.9, 2)
        table.clauses.boxes[:, 2:] += 0.01
        fresh = index.insert(table)
        if rows is not None:
            index.remove(rows)
        rows = fresh
        used, taken, free = rooms(index.structure)
        assert taken + free == used
        pools.append(used)
    assert max(pools) < begin + 9 * n
    assert max(pools[6:]) == max(pools[:6])
    assert index.check() == []


def test_lists_become_smaller_and_empty_ones_have_no_room():
    index = build_index("mo-tree", crowd(3_000))
    index.insert(crowd(3_000, seed=1))  # the pool has room behind its lists
    index.remove(np.arange(0, 6_000, 2))
    index.remove(np.arange(1, 5_400, 2))
    used, taken, free = rooms(index.structure)
    assert taken + free == used
    lists = index.stats()["lists_in_use"]
    assert taken <= config.POSTING_SHORT * (300 + lists)
    index.remove(np.arange(5_401, 6_000, 2))
    assert rooms(index.structure) == (used, 0, used)
    index.insert(crowd(1_000, seed=2))
    assert index.check() == []
    assert rooms(index.structure)[0] == used
