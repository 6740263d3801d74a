"""Coded messages on their way to another process: Arrow columns of bytes, which are made and read without a loop.

A message is read once, by the process that finds out where to send it, and travels as codes:

===============  ===================================================================================================
``_words``       the codes of its words, int32
``_boxes``       its boxes, four float64 each
``_attributes``  the numbers of its attributes, int32
``_values``      their values, float64; strings as codes
``_shape``       the circle (three float64: x, y, radius) or the polygon (WKB) that its boxes bound; null without one
===============  ===================================================================================================

These codes mean the same wherever the same saved coding was opened. A coding that has grown since may give other codes
to new words than the coding of another process, which grew in another order. So whatever is not among the codes that
both began with (:class:`Known`) travels as it is written:

===============  ===================================================================================================
``_new_words``   words
``_new_values``  attributes and their values
===============  ===================================================================================================
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from nearcast.columns.coding import Coding
from nearcast.columns.messages import MessageBatch
from nearcast.columns.ragged import code_sets, offsets_of, ragged_take
from nearcast.columns.shapes import NO_SHAPES, Shapes
from nearcast.columns.values import Values
from nearcast.kernels.verify import Probes

__all__ = ["NEW_SCHEMA", "WIRE_SCHEMA", "Known", "from_wire", "pack", "to_wire", "unpack"]

WIRE_SCHEMA = pa.schema(
    [(name, pa.binary()) for name in ("_words", "_boxes", "_attributes", "_values", "_shape")]
)
_VALUE = pa.struct(
    [("name", pa.string()), ("text", pa.bool_()), ("number", pa.float64()), ("string", pa.string())]
)
#: The columns for what a coding has learnt since it was opened.
NEW_SCHEMA = pa.schema([("_new_words", pa.list_(pa.string())), ("_new_values", pa.list_(_VALUE))])
_CIRCLE_BYTES = 24  # no polygon takes as few as a circle


class Known(NamedTuple):
    """How many codes of words, attributes and strings a coding had when it was opened: these travel as codes."""

    words: int
    attributes: int
    strings: int

    @classmethod
    def of(cls, coding: Coding) -> Known:
        """Return the present numbers of codes."""
        vocabulary, attributes = coding.words()
        return cls(vocabulary.span, attributes.span, attributes.strings.span)


def to_wire(batch: MessageBatch, known: Known | None = None) -> dict[str, pa.Array]:
    """Return the columns of *batch*; with *known* there are also those of :data:`NEW_SCHEMA`."""
    probes, starts = batch.probes, batch.probe_offsets
    offsets, words, values = probes.keyword_offsets, probes.keywords, batch.values
    if len(batch.owners) != len(batch):  # the probes of a message differ in their boxes alone
        offsets, words = ragged_take(offsets, words, starts[:-1])
        values = values.take(starts[:-1])
    new: dict[str, pa.Array] = {}
    if known is not None:
        (offsets, words), new["_new_words"] = _part_words(batch.coding, offsets, words, known)
        values, new["_new_values"] = _part_values(batch.coding, values, known)
    return {
        "_words": pack(offsets, words),
        "_boxes": pack(starts, probes.boxes),
        "_attributes": pack(values.offsets, values.attributes),
        "_values": pack(values.offsets, values.values),
        "_shape": _write_shapes(batch, starts[:-1]),
    } | new


def from_wire(columns: pa.RecordBatch, coding: Coding) -> MessageBatch:
    """Return the messages that :func:`to_wire` wrote, in *coding*; they have neither ids nor times."""
    m = len(columns)
    offsets, words = unpack(columns["_words"], np.int32)
    starts, numbers = unpack(columns["_boxes"], np.float64)
    starts //= 4
    value_offsets, attributes = unpack(columns["_attributes"], np.int32)
    values = Values(value_offsets, attributes, unpack(columns["_values"], np.float64)[1])
    if "_new_words" in columns.schema.names:
        offsets, words = _join_words(coding, offsets, words, columns["_new_words"])
        values = _join_values(coding, values, columns["_new_values"])
    counts = np.diff(starts)
    owners = np.repeat(np.arange(m, dtype=np.int32), counts)
    if len(owners) != m:
        offsets, words = ragged_take(offsets, words, owners.astype(np.int64))
        values = values.take(owners.astype(np.int64))
    probes = Probes(numbers.reshape(-1, 4), offsets, words, *values)
    shapes = _read_shapes(columns["_shape"], counts)
    return MessageBatch(probes, owners, m, shapes, None, None, None, coding)


# --- Bytes -----------------------------------------------------------------------------------------------------------


def pack(offsets: NDArray[np.int64], rows: NDArray[Any]) -> pa.Array:
    """Return ragged rows of numbers as an array of bytes, over the numbers themselves."""
    row = rows.itemsize * int(np.prod(rows.shape[1:]))
    ends = pa.py_buffer((offsets * row).astype(np.int32))
    content = pa.py_buffer(np.ascontiguousarray(rows))
    return pa.Array.from_buffers(pa.binary(), len(offsets) - 1, [None, ends, content])


def unpack(column: pa.Array, kind: Any) -> tuple[NDArray[np.int64], NDArray[Any]]:
    """Return (offsets, numbers) of an array of bytes; copied, since kernels are compiled for arrays of their own."""
    _, ends, content = column.buffers()
    if not len(column):
        return np.zeros(1, np.int64), np.empty(0, kind)
    offsets = np.frombuffer(ends, np.int32)[column.offset : column.offset + len(column) + 1].astype(np.int64)
    data = np.frombuffer(b"" if content is None else content, np.uint8)[offsets[0] : offsets[-1]]
    return (offsets - offsets[0]) // np.dtype(kind).itemsize, data.copy().view(kind)


# --- Shapes ----------------------------------------------------------------------------------------------------------


def _write_shapes(batch: MessageBatch, first: NDArray[np.int64]) -> pa.Array:
    """Return the shape of each message, given its first probe row."""
    if not batch.shapes:
        return pa.nulls(len(batch), pa.binary())
    import shapely

    shapes = batch.shapes
    written = np.array([circle.tobytes() for circle in shapes.circles], object)
    polygons = np.flatnonzero(shapely.is_geometry(shapes.polygons))
    written[polygons] = shapely.to_wkb(shapes.polygons[polygons])
    numbers = shapes.index[first]
    return pa.array(written.tolist(), pa.binary()).take(pa.array(numbers, mask=numbers < 0))


def _read_shapes(column: pa.Array, counts: NDArray[np.int64]) -> Shapes:
    """Return the shapes of probe rows, of which each message has *counts*."""
    if column.null_count == len(column):
        return NO_SHAPES
    import shapely

    given = np.asarray(column.is_valid())
    written = np.array(column.drop_null().to_pylist(), object)
    numbers = np.where(given, np.cumsum(given) - 1, -1).astype(np.int32)
    round_ones = np.array([len(one) == _CIRCLE_BYTES for one in written], np.bool_)
    circles, polygons = np.full((len(written), 3), np.nan), np.empty(len(written), object)
    circles[round_ones] = np.frombuffer(b"".join(written[round_ones]), np.float64).reshape(-1, 3)
    polygons[~round_ones] = shapely.from_wkb(written[~round_ones])
    return Shapes(np.repeat(numbers, counts), circles, polygons)


# --- What is not known elsewhere -------------------------------------------------------------------------------------


def _part_words(
    coding: Coding, offsets: NDArray[np.int64], codes: NDArray[np.int32], known: Known
) -> tuple[tuple[NDArray[np.int64], NDArray[np.int32]], pa.Array]:
    """Return the (offsets, codes) that are known elsewhere, and the other words as lists of strings."""
    new = codes >= known.words
    rows = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    words = coding.words()[0].take(codes[new]).cast(pa.string())
    lists = pa.ListArray.from_arrays(_ends(rows[new], len(offsets) - 1).astype(np.int32), words)
    return (_ends(rows[~new], len(offsets) - 1), codes[~new]), lists


def _join_words(
    coding: Coding, offsets: NDArray[np.int64], codes: NDArray[np.int32], lists: pa.Array
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Return the (offsets, codes) with the codes of new words; those that nobody asks for are left out."""
    new_rows, words = _flat(lists)
    if not len(words):
        return offsets, codes
    rows = np.concatenate([np.repeat(np.arange(len(offsets) - 1), np.diff(offsets)), new_rows])
    every = np.concatenate([codes, coding.words()[0].encode(words)])
    order = np.argsort(rows, kind="stable")
    m = len(offsets) - 1
    return code_sets(_ends(rows[order], m), every[order], m, "keyword", drop_negative=True)


def _part_values(coding: Coding, values: Values, known: Known) -> tuple[Values, pa.Array]:
    """Return the values that mean the same elsewhere, and the others with their names."""
    attributes = coding.words()[1]
    textual = attributes.textual[values.attributes]
    new = (values.attributes >= known.attributes) | (textual & (values.values >= known.strings))
    m = len(values.offsets) - 1
    rows = np.repeat(np.arange(m), np.diff(values.offsets))
    text, given = textual[new], values.values[new]
    names = pa.array([None if column is None else column[0] for column in attributes.columns], pa.string())
    codes = np.where(text, given, -1).astype(np.int64)
    cells = pa.StructArray.from_arrays(
        [
            names.take(pa.array(values.attributes[new])),
            pa.array(text),
            pa.array(given, mask=text),
            attributes.strings.take(codes).cast(pa.string()),
        ],
        fields=list(_VALUE),
    )
    lists = pa.ListArray.from_arrays(_ends(rows[new], m).astype(np.int32), cells)
    return Values(_ends(rows[~new], m), values.attributes[~new], values.values[~new]), lists


def _join_values(coding: Coding, values: Values, lists: pa.Array) -> Values:
    """Return the values with the new ones; those of attributes that nobody asks for are left out."""
    new_rows, cells = _flat(lists)
    if not len(cells):
        return values
    attributes = coding.words()[1]
    names = cells.field("name").dictionary_encode()
    text = np.asarray(cells.field("text"))
    numbers = np.full(len(cells), -1, np.int64)
    which = np.asarray(names.indices)
    for kind in (False, True):
        found = [attributes.find(name, text=kind) for name in names.dictionary.to_pylist()]
        codes = np.array([-1 if number is None else number for number in found], np.int64)
        numbers[text == kind] = codes[which[text == kind]]
    given = np.where(
        text,
        attributes.strings.encode(cells.field("string")).astype(np.float64),
        cells.field("number").to_numpy(zero_copy_only=False),
    )
    asked = numbers >= 0
    m = len(values.offsets) - 1
    return Values.from_cells(
        m,
        np.concatenate([np.repeat(np.arange(m), np.diff(values.offsets)), new_rows[asked]]),
        np.concatenate([values.attributes, numbers[asked]]),
        np.concatenate([values.values, given[asked]]),
    )


def _flat(lists: pa.Array) -> tuple[NDArray[np.int64], pa.Array]:
    """Return the row of each element of lists, and the elements."""
    lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False)
    return np.repeat(np.arange(len(lists)), lengths), lists.flatten()


def _ends(rows: NDArray[np.int64], m: int) -> NDArray[np.int64]:
    """Return the offsets of *m* rows, given the row of each element, ascending."""
    return offsets_of(np.bincount(rows, minlength=m))
