"""Work shared by threads, which pays because kernels hold no GIL."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

__all__ = ["CORES", "side_by_side"]

CORES = os.cpu_count() or 1  # asking takes longer than a small piece of work

_Item = TypeVar("_Item")
_Answer = TypeVar("_Answer")


def side_by_side(work: Callable[[_Item], _Answer], items: Sequence[_Item], threads: int) -> list[_Answer]:
    """Return ``[work(item) for item in items]``, computed by the given number of threads, including the caller's.

    Each thread takes the next item when it has finished one. The caller works too: if it only waited, it would be woken
    by every answer and take a core from a thread that works.

    >>> side_by_side(abs, [-1, 2, -3], threads=2)
    [1, 2, 3]
    """
    waiting = iter(range(len(items)))
    answers: dict[int, _Answer] = {}

    def take_items() -> None:
        for number in waiting:  # the GIL lets one thread at a time take the next one
            answers[number] = work(items[number])

    helpers = min(threads, len(items)) - 1
    if helpers <= 0:
        take_items()
    else:
        with ThreadPoolExecutor(helpers) as pool:
            others = [pool.submit(take_items) for _ in range(helpers)]
            take_items()
            for other in others:
                other.result()
    return [answers[number] for number in range(len(items))]
