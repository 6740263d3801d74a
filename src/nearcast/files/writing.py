"""Writing tables to files, piece by piece; a file appears whole or not at all."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from nearcast import config
from nearcast.errors import InputError, shown
from nearcast.files.compression import endings, open_writer
from nearcast.storage.paths import local_path

__all__ = ["FORMATS", "write_table", "writing"]

FORMATS = {".parquet": "parquet", ".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl"}
Write = Callable[[pa.Table], None]


def write_table(table: pa.Table, path: str | os.PathLike[str], format: str | None = None) -> None:
    """Write a table of plain columns, or of dictionaries of plain values, as Parquet, CSV or JSON lines.

    The ending of the name determines the *format* unless it is given.
    """
    with writing(path, format) as write:
        write(table)


@contextmanager
def writing(path: str | os.PathLike[str], format: str | None = None) -> Iterator[Write]:
    """Open a file for tables of one schema; yield a function that writes the next table.

    The file gets its name when everything is written. After an error there is no file, or still the one from before.
    ``-`` is standard output (JSON lines unless *format* says otherwise). A file whose name ends in ``.gz`` or ``.zst``
    is compressed.
    """
    name = os.fspath(path)
    ending, codec = (".jsonl", None) if name == "-" else endings(Path(name).name)
    format = format or FORMATS.get(ending, "")
    if format not in FORMATS.values():
        raise InputError(
            f"the format of {name} is unknown; end the name in {', '.join(FORMATS)}, or give the format, one of "
            f"{', '.join(sorted(set(FORMATS.values())))}"
        )
    if format == "parquet" and codec is not None:
        raise InputError(f"Parquet is compressed already; end {name} in .parquet")
    if name == "-":
        with _writer(sys.stdout.buffer, format) as write:
            yield write
        sys.stdout.buffer.flush()
        return
    target = local_path(path)
    if target is None:
        raise InputError(
            f"{name} is not a file of this machine; give a path, or write it with Spark (--master)"
        )
    in_place = target.exists() and not target.is_file()  # /dev/null, a named pipe
    draft = target if in_place else target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        file = draft.open("wb")
    except OSError as error:
        raise InputError(f"cannot write {shown(name)}: {error.strerror}") from None
    stack = ExitStack()
    try:
        packed = stack.enter_context(open_writer(stack.enter_context(file), codec))
        write = stack.enter_context(_writer(packed, format))

        def write_next(table: pa.Table) -> None:
            with _naming(name):
                write(table)

        yield write_next
        with _naming(name):
            stack.close()
            if not in_place:
                draft.replace(target)
    finally:
        with suppress(OSError):  # an error before this one is the one to report
            stack.close()
        if not in_place:
            draft.unlink(missing_ok=True)


@contextmanager
def _naming(name: str) -> Iterator[None]:
    """Add the name of the file to an OSError that does not have one."""
    try:
        yield
    except OSError as error:
        error.filename = error.filename or name
        raise


@contextmanager
def _writer(file: BinaryIO, format: str) -> Iterator[Write]:
    opened: list[Any] = []  # the writer of a columnar format, once the first table has given the schema

    def write_part(table: pa.Table) -> None:
        if format == "jsonl":
            _write_lines(table, file)
            return
        if not opened:
            opened.append(_columnar_writer(file, table.schema, format))
        opened[0].write_table(table)

    def write(table: pa.Table) -> None:
        for start in range(0, max(len(table), 1), config.FILE_ROWS):
            write_part(_plain(table.slice(start, config.FILE_ROWS)))

    try:
        yield write
    finally:
        for writer in opened:
            writer.close()


def _plain(table: pa.Table) -> pa.Table:
    """Return a table without dictionaries: a file would hold all of their words, however few are used."""
    plain = [
        field.with_type(_PLAIN.get(field.type.value_type, field.type.value_type))
        if pa.types.is_dictionary(field.type)
        else field
        for field in table.schema
    ]
    return table.cast(pa.schema(plain, table.schema.metadata))


_PLAIN = {pa.large_string(): pa.string()}


def _columnar_writer(file: BinaryIO, schema: pa.Schema, format: str) -> Any:
    if format == "parquet":
        import pyarrow.parquet as pq

        return pq.ParquetWriter(file, schema, compression="zstd")
    from pyarrow import csv

    return csv.CSVWriter(file, schema)


def _write_lines(table: pa.Table, file: BinaryIO) -> None:
    """Write one object per line. Each distinct value is formatted only once, since ids repeat."""
    if not len(table):
        return
    parts: list[Any] = []
    fixed = "{"  # the text that all lines share before the next value that differs
    for name, column in zip(table.column_names, table.columns):
        distinct = column.combine_chunks().dictionary_encode(null_encoding="encode")
        written = [json.dumps(value, ensure_ascii=False) for value in distinct.dictionary.to_pylist()]
        fixed += f"{json.dumps(name)}: "
        if len(written) > 1:
            parts += [fixed, pa.array(written, pa.string()).take(distinct.indices)]
            fixed = ", "
        else:
            fixed += f"{written[0]}, "
    end = fixed.removesuffix(", ") + "}\n"
    lines = pc.binary_join_element_wise(*parts, end, "") if parts else pa.repeat(end, len(table))
    _, offsets, data = lines.buffers()
    ends = np.frombuffer(offsets, np.int32)
    file.write(memoryview(data)[: ends[len(lines)]])
