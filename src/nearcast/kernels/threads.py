"""Work that threads share; it pays because kernels hold no GIL."""

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
    """Return ``[work(item) for item in items]``, done by so many threads, the caller's among them.

    Each thread takes the next item when it is done with one. The caller works too: a thread that only waits would
    be woken at every answer, and take a core from one that works.

    >>> side_by_side(abs, [-1, 2, -3], threads=2)
    [1, 2, 3]
    """
    waiting = iter(range(len(items)))
    answers: dict[int, _Answer] = {}

    def labour() -> None:
        for number in waiting:  # a thread at a time takes the next one: the GIL sees to it
            answers[number] = work(items[number])

    helpers = min(threads, len(items)) - 1
    if helpers <= 0:
        labour()
    else:
        with ThreadPoolExecutor(helpers) as pool:
            others = [pool.submit(labour) for _ in range(helpers)]
            labour()
            for other in others:
                other.result()
    return [answers[number] for number in range(len(items))]
