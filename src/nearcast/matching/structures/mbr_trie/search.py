"""Search an MBRTrie: MBRTRIE-FILTER with SELECTPAIR, and MBRTRIE-VERIFY.

This is Algorithm 1 of Yu, Li and Feng, "A Cost-based Method for Location-Aware Publish/Subscribe Services" (2015). A
stack of candidate pairs takes the place of the recursion, and a list is verified as soon as its node is found.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearcast import config
from nearcast.kernels import kernel
from nearcast.kernels.postings import FULL
from nearcast.matching.structures.mbr_trie.trie import Postings, Trie
from nearcast.matching.structures.token_order import LAST

__all__ = [
    "COST",
    "TOKEN_SET",
    "TRIE",
    "clear_bits",
    "has_bit",
    "match_trie",
    "select_pairs",
    "set_bits",
    "touching",
    "with_room",
]

# How the children of a node are compared with the tokens of a message.
COST, TOKEN_SET, TRIE = range(3)
_BLOCK = config.TRIE_BLOCK
_BINARY_NS = config.TRIE_BINARY_NS
_BIT_NS = config.TRIE_BIT_NS
_BITS = np.int64(config.TOKEN_BITS - 1)
_WORD = np.int64(6)
_ONE = np.uint64(1)


@kernel
def set_bits(bits: NDArray[np.uint64], tokens: NDArray[np.int32], count: int) -> None:
    """Mark the tokens of a message in a small bitmap; several tokens may share a bit.

    The last bit is always marked: it stands for a token that a clause does not have.
    """
    bits[_BITS >> _WORD] |= _ONE << np.uint64(63)
    for i in range(count):
        slot = np.int64(tokens[i]) & _BITS
        bits[slot >> _WORD] |= _ONE << np.uint64(slot & 63)


@kernel
def clear_bits(bits: NDArray[np.uint64], tokens: NDArray[np.int32], count: int) -> None:
    """Undo :func:`set_bits`."""
    bits[_BITS >> _WORD] = np.uint64(0)
    for i in range(count):
        bits[(np.int64(tokens[i]) & _BITS) >> _WORD] = np.uint64(0)


@kernel
def has_bit(bits: NDArray[np.uint64], token: int) -> Any:
    """Return 1 if the message may have the token, and 0 if it certainly does not."""
    slot = np.int64(token) & _BITS
    return (bits[slot >> _WORD] >> np.uint64(slot & 63)) & _ONE


@kernel
def touching(
    boxes: NDArray[np.float32],
    rows: NDArray[np.int32],
    blocks: NDArray[np.float32],
    begin: int,
    end: int,
    query: NDArray[np.float32],
    out: NDArray[np.int32],
    filled: int,
) -> Any:
    """Write the rows of the postings begin:end that touch the query; return the new end.

    This is MBRTRIE-VERIFY for one list, whose cost is equation 2. The caller makes room for all of them. A row is
    written as its complement if the clause must still be checked: it has forbidden words or tests, or its rounded
    edge coincides with that of the query.
    """
    xmin, ymin, xmax, ymax = query[0], query[1], query[2], query[3]
    at = begin
    while at < end:
        block = at // _BLOCK
        stop = min(end, (block + 1) * _BLOCK)
        if end - begin <= _BLOCK or (blocks[block, 0] <= xmax) & (blocks[block, 2] >= xmin) & (
            blocks[block, 1] <= ymax
        ) & (blocks[block, 3] >= ymin):
            for i in range(at, stop):
                left, low, right, high = boxes[i, 0], boxes[i, 1], boxes[i, 2], boxes[i, 3]
                row = rows[i]
                sure = (left < xmax) & (right > xmin) & (low < ymax) & (high > ymin)
                out[filled] = row if sure else min(row, ~row)
                filled += (left <= xmax) & (right >= xmin) & (low <= ymax) & (high >= ymin)
        at = stop
    return filled


@kernel
def select_pairs(
    node_tokens: NDArray[np.int32],
    node_boxes: NDArray[np.float32],
    tops: NDArray[np.int32],
    node: int,
    child: int,
    end: int,
    tokens: NDArray[np.int32],
    at: int,
    count: int,
    probing: int,
    bits: NDArray[np.uint64],
    query: NDArray[np.float32],
    pairs: NDArray[np.int32],
    top: int,
) -> Any:
    """Write the candidate pairs <c, T_c> among a node's children child:end to *pairs* from *top* on; return the end.

    This is SELECTPAIR. T_n is tokens[at:count], and T_c begins after the token of c. *pairs* has room for all pairs.
    """
    xmin, ymin, xmax, ymax = query[0], query[1], query[2], query[3]
    fanout, left = end - child, count - at
    # Line 2: compare |T_n| log|n| with |n| log|T_n|; the latter is |n| here, for a bitmap tells what is in T_n.
    by_trie = probing == TRIE or (
        probing == COST and (node == 0 or _BINARY_NS * left * np.log2(fanout + 1.0) < _BIT_NS * fanout)
    )
    while child < end and at < count:
        if by_trie:  # lines 3 to 6: find the next token among the children
            token = tokens[at]
            at += 1
            if node == 0:
                rank = LAST - int(token)
                found = int(tops[rank]) if rank < tops.size else 0
                if found == 0:
                    continue
            else:
                high = end
                while child < high:
                    middle = (child + high) >> 1
                    if node_tokens[middle] < token:
                        child = middle + 1
                    else:
                        high = middle
                if child == end or node_tokens[child] != token:
                    continue
                found = child
                child += 1
        else:  # lines 8 to 11: find the next child among the tokens
            found = child
            child += 1
            token = node_tokens[found]
            if has_bit(bits, token) == 0:
                continue
            high = count
            while at < high:
                middle = (at + high) >> 1
                if tokens[middle] < token:
                    at = middle + 1
                else:
                    high = middle
            if at == count or tokens[at] != token:
                continue
            at += 1
        pairs[top, 0] = found
        pairs[top, 1] = at
        top += (
            (node_boxes[found, 0] <= xmax)
            & (node_boxes[found, 2] >= xmin)
            & (node_boxes[found, 1] <= ymax)
            & (node_boxes[found, 3] >= ymin)
        )
    return top


@kernel
def with_room(pairs: NDArray[np.int32], need: int) -> Any:
    """Return *pairs* if it has room for *need* of them, or else a longer copy."""
    if need < pairs.shape[0]:
        return pairs
    wider = np.empty((2 * need, pairs.shape[1]), np.int32)
    wider[: pairs.shape[0]] = pairs
    return wider


@kernel
def match_trie(
    trie: Trie,
    postings: Postings,
    probing: int,
    tokens: NDArray[np.int32],
    count: int,
    bits: NDArray[np.uint64],
    query: NDArray[np.float32],
    out: NDArray[np.int32],
    filled: int,
) -> Any:
    """Write the clauses that a message satisfies, as :func:`touching` does; return the new end, or FULL (Algorithm 1).

    The message has the ascending tokens[:count], which are marked in *bits*; *query* is its rounded box.
    """
    node_tokens, firsts, lows, ends, _, node_boxes, tops, _ = trie
    boxes, rows, blocks, _ = postings
    stack = np.empty((64, 2), np.int32)  # candidate pairs <n, T_n>: the node, and where T_n begins
    stack[0] = 0
    top = 1
    if filled + ends[0] > out.size:
        return FULL
    filled = touching(boxes, rows, blocks, 0, ends[0], query, out, filled)
    while top > 0:  # MBRTRIE-FILTER of the pair on top
        top -= 1
        node, at = int(stack[top, 0]), int(stack[top, 1])
        child, end = int(firsts[node]), int(firsts[node + 1])
        stack = with_room(stack, top + min(end - child, count - at))
        last = select_pairs(
            node_tokens,
            node_boxes,
            tops,
            node,
            child,
            end,
            tokens,
            at,
            count,
            probing,
            bits,
            query,
            stack,
            top,
        )
        for i in range(top, last):
            found, at = int(stack[i, 0]), int(stack[i, 1])
            low, stop = lows[found], ends[found]
            if filled + (stop - low) > out.size:
                return FULL
            filled = touching(boxes, rows, blocks, low, stop, query, out, filled)
            stack[top, 0] = found
            stack[top, 1] = at
            top += at < count and firsts[found + 1] > firsts[found]
    return filled
