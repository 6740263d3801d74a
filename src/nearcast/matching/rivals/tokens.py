"""Token filters: the sets of representative tokens that the nodes of an R^t++-Tree carry, in one pool.

A filter is a small hash table, so it can be used both ways: each word of a short message is looked up in the filter, or
each token of the filter in the message. Each token has a *need*: the least number of representatives that a clause with
this token has below the node. A node can hold a match only if, for some number j, j of the message's words are tokens
with a need of at most j.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearcast import config
from nearcast.kernels import kernel

__all__ = ["NO_TOKEN", "Filters", "add_token", "clear", "copy_tokens", "has", "passes", "put", "room_for"]

NO_TOKEN = -1
_MIX = np.uint64(0x9E3779B97F4A7C15)
_START = config.RT_FILTER_START
_MOST = config.RT_REPRESENTATIVES


class Filters(NamedTuple):
    """The filters of all nodes; slots of a filter are ``starts[n]`` to ``starts[n] + 2^bits[n]``."""

    starts: NDArray[np.int64]
    bits: NDArray[np.int32]
    sizes: NDArray[np.int32]
    tokens: NDArray[np.int32]
    needs: NDArray[np.uint8]
    used: NDArray[np.int64]  # [1]: the end of the pool


@kernel
def _find(tokens: NDArray[np.int32], start: int, bits: int, token: int) -> Any:
    """Return the slot of a token, or the free one where it would stand."""
    mask = (1 << bits) - 1
    at = np.int64((np.uint64(token) * _MIX) >> np.uint64(40)) & mask
    while tokens[start + at] != token and tokens[start + at] != NO_TOKEN:
        at = (at + 1) & mask
    return start + at


@kernel
def has(tokens: NDArray[np.int32], start: int, bits: int, token: int) -> Any:
    """Tell whether a set has a token."""
    return tokens[_find(tokens, start, bits, token)] == token


@kernel
def put(tokens: NDArray[np.int32], bits: int, words: NDArray[np.int32], first: int, last: int) -> None:
    """Make the first 2^bits slots of *tokens* the set of words[first:last]."""
    tokens[: 1 << bits] = NO_TOKEN
    for k in range(first, last):
        tokens[_find(tokens, 0, bits, words[k])] = words[k]


@kernel
def passes(
    starts: NDArray[np.int64],
    bits: NDArray[np.int32],
    tokens: NDArray[np.int32],
    needs: NDArray[np.uint8],
    node: int,
    words: NDArray[np.int32],
    first: int,
    last: int,
    message: NDArray[np.int32],
    message_bits: int,
    hits: NDArray[np.int64],
) -> bool:
    """Tell whether the message words[first:last], which is also the set *message*, may match below a node.

    The shorter of the two is looked up in the other. *hits* is room for a count by need.
    """
    start, own_bits = starts[node], bits[node]
    size = 1 << own_bits
    for need in range(2, _MOST + 1):
        hits[need] = 0
    if last - first <= size:
        for k in range(first, last):
            at = _find(tokens, start, own_bits, words[k])
            if tokens[at] == words[k]:
                if needs[at] == 1:
                    return True
                hits[needs[at]] += 1
    else:
        for at in range(start, start + size):
            if tokens[at] != NO_TOKEN and has(message, 0, message_bits, tokens[at]):
                if needs[at] == 1:
                    return True
                hits[needs[at]] += 1
    met = 0
    for need in range(2, _MOST + 1):
        met += hits[need]
        if met >= need:
            return True
    return False


@kernel
def room_for(filters: Filters, node: int, size: int) -> bool:
    """Give a node an empty filter for *size* tokens, in its own room where that is enough; False: the pool is full."""
    starts, bits, _, tokens, _, used = filters
    need = _START
    while (1 << need) < 2 * size:
        need += 1
    if bits[node] < need:
        if used[0] + (1 << need) > tokens.size:
            return False
        starts[node], bits[node] = used[0], need
        used[0] += 1 << need
    clear(filters, node)
    return True


@kernel
def clear(filters: Filters, node: int) -> None:
    """Empty the filter of a node; its room remains."""
    start = filters.starts[node]
    filters.tokens[start : start + (1 << filters.bits[node])] = NO_TOKEN
    filters.sizes[node] = 0


@kernel
def add_token(filters: Filters, node: int, token: int, need: int) -> bool:
    """Add a token to the filter of a node, which must have room; False: the filter is full and unchanged."""
    starts, bits, sizes, tokens, needs, _ = filters
    at = _find(tokens, starts[node], bits[node], token)
    if tokens[at] == token:
        needs[at] = min(needs[at], need)
        return True
    if 2 * (sizes[node] + 1) > 1 << bits[node]:
        return False
    tokens[at], needs[at] = token, need
    sizes[node] += 1
    return True


@kernel
def copy_tokens(filters: Filters, source_start: int, source_bits: int, node: int) -> None:
    """Add all tokens of other slots to the filter of a node, which has room for them."""
    starts, bits, sizes, tokens, needs, _ = filters
    start, own_bits, added = starts[node], bits[node], 0
    for at in range(source_start, source_start + (1 << source_bits)):
        if tokens[at] != NO_TOKEN:
            to = _find(tokens, start, own_bits, tokens[at])
            added += tokens[to] == NO_TOKEN
            tokens[to], needs[to] = tokens[at], needs[at]
    sizes[node] += added
