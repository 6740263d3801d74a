"""Real data from a directory: texts with places.

Words are runs of a-z and 0-9 in the lower-cased text, as in the statistics of the data. Only rows inside the contiguous
United States with at least one word are used.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from nearcast.columns.vocabulary import Vocabulary
from nearcast.errors import InputError
from nearcast.workloads.sampling import Extent, Ragged

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

__all__ = ["CONTIGUOUS_US", "TEXT_FILES", "check_data", "data_file", "texts"]

CONTIGUOUS_US = Extent(-125.0, 24.5, -66.5, 49.5)  # degrees of longitude and latitude

# The file and the text columns of the workloads that read real data.
TEXT_FILES: dict[str, tuple[str, tuple[str, ...]]] = {
    "tweets": ("messages_tweets.parquet", ("text",)),
    "places": ("places_gn.parquet", ("name", "feature_class", "admin2", "admin1")),
}


def check_data(data: Path) -> None:
    """Refuse a directory that lacks one of the files of real data."""
    for file, _ in TEXT_FILES.values():
        data_file(file, data)


def data_file(name: str, data: Path) -> Path:
    """Return the path of a file in the data directory; refuse a directory that lacks it."""
    path = data / name
    if not path.is_file():
        raise InputError(
            f"there is no {name} in the data directory; give the directory that holds it with --data DIR"
        )
    return path


def texts(name: str, data: Path) -> tuple[NDArray[np.float64], Ragged, Vocabulary]:
    """Return the places, the distinct words and the vocabulary of the texts called *name*."""
    file, columns = TEXT_FILES[name]
    return _read(data_file(file, data), columns)


@lru_cache(maxsize=len(TEXT_FILES))  # the experiments make many workloads from one file
def _read(path: Path, columns: tuple[str, ...]) -> tuple[NDArray[np.float64], Ragged, Vocabulary]:
    """Return the places, distinct words and vocabulary of a file with ``lon``, ``lat`` and text columns."""
    table = pq.read_table(path, columns=["lon", "lat", *columns])
    points = np.column_stack([table["lon"].to_numpy(), table["lat"].to_numpy()])
    texts = [pc.fill_null(table[column].cast(pa.large_string()), "") for column in columns]
    text = pc.utf8_lower(pc.binary_join_element_wise(*texts, pa.scalar(" ", pa.large_string())))
    text = pc.utf8_trim(pc.replace_substring_regex(text, "[^a-z0-9]+", " "), " ")
    low, high = CONTIGUOUS_US.low, CONTIGUOUS_US.low + CONTIGUOUS_US.size
    inside = ((points >= low) & (points <= high)).all(axis=1)
    usable = inside & pc.not_equal(text, "").to_numpy(zero_copy_only=False)
    lists = pc.split_pattern(text.filter(pa.array(usable)), " ").combine_chunks()
    vocabulary = Vocabulary()
    codes = vocabulary.add(lists.flatten()).astype(np.int64)
    count = int(usable.sum())
    row = np.repeat(np.arange(count), pc.list_value_length(lists).to_numpy())
    row, word = np.divmod(np.unique(row * len(vocabulary) + codes), len(vocabulary))
    offsets = np.searchsorted(row, np.arange(count + 1))
    return points[usable], Ragged(offsets.astype(np.int64), word.astype(np.int32)), vocabulary
