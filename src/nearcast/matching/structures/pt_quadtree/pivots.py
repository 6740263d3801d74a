"""Pivotal tokens: a small set of tokens that has at least one token of each clause in a list.

This is section 4.1 of Yu, Li and Feng, "A Cost-based Method for Location-Aware Publish/Subscribe Services" (2015).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearcast.columns.ragged import offsets_of
from nearcast.kernels import kernel

__all__ = ["counted", "node_sets", "parents_of", "pivotal_tokens"]


def pivotal_tokens(
    starts: NDArray[np.int64], items: NDArray[np.int32], offsets: NDArray[np.int64], tokens: NDArray[np.int32]
) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.bool_]]:
    """Return the ascending pivotal tokens of each list, as (offsets, tokens), and which lists have bare clauses.

    A bare clause has no tokens. The pivotal tokens are the greedy hitting set: first the token of most clauses, then
    that of most of the remaining ones, until no clause remains.

    >>> clauses = np.array([0, 2, 4, 5]), np.array([1, 2, 2, 3, 5], np.int32)
    >>> pivotal_tokens(np.array([0, 3]), np.arange(3, dtype=np.int32), *clauses)[1]
    array([2, 5], dtype=int32)
    """
    least = int(tokens.min(initial=0 if not len(tokens) else tokens[0]))
    longest = int(np.diff(starts).max(initial=0))
    most = int(np.diff(offsets_of(np.diff(offsets)[items])[starts]).max(initial=0))
    pivots = np.empty(len(items), np.int32)
    counts = np.zeros(len(starts) - 1, np.int64)
    bare = np.zeros(len(starts) - 1, np.bool_)
    work = np.empty((5, most + 1), np.int32)
    filled = _hit_all(
        starts,
        items,
        offsets,
        tokens,
        least,
        np.zeros(int(tokens.max(initial=least)) - least + 1, np.int32),
        work,
        np.empty((2, longest + 1), np.int32),
        np.empty(longest, np.bool_),
        pivots,
        counts,
        bare,
    )
    return offsets_of(counts), pivots[:filled], bare


@kernel
def _hit_all(
    starts: NDArray[np.int64],
    items: NDArray[np.int32],
    offsets: NDArray[np.int64],
    tokens: NDArray[np.int32],
    least: int,
    local: NDArray[np.int32],
    work: NDArray[np.int32],
    bounds: NDArray[np.int32],
    hit: NDArray[np.bool_],
    pivots: NDArray[np.int32],
    counts: NDArray[np.int64],
    bare: NDArray[np.bool_],
) -> Any:
    """Write the greedy hitting set of each list, sorted; return how many tokens there are in all.

    The tokens of a list get local numbers, so that everything else happens in the cache. Each token has the clauses
    that hold it (a CSR in *work*) and the count of those that are not hit yet. Counts only fall, so a bucket queue
    finds the largest in linear time: a token that is found in a bucket above its count moves down.
    """
    filled = 0
    names, left, after, where, mine = work[0], work[1], work[2], work[3], work[4]
    heads, firsts = bounds[0], bounds[1]
    for node in range(starts.size - 1):
        begin, end = starts[node], starts[node + 1]
        distinct, used = 0, 0
        for i in range(end - begin):
            c = items[begin + i]
            hit[i] = offsets[c + 1] == offsets[c]
            bare[node] |= hit[i]
            firsts[i] = used
            for k in range(offsets[c], offsets[c + 1]):
                token = tokens[k] - least
                if local[token] == 0:
                    names[distinct] = token
                    left[distinct] = 0
                    distinct += 1
                    local[token] = distinct
                t = local[token] - 1
                left[t] += 1
                mine[used] = t
                used += 1
        firsts[end - begin] = used
        # Note where the clauses of each token end in *where*; filling moves this back to where they begin.
        total = 0
        for t in range(distinct):
            local[names[t]] = 0
            total += left[t]
            after[t] = total
        stops = after[:distinct].copy()
        begins = after[:distinct].copy()
        for i in range(end - begin):
            for k in range(firsts[i], firsts[i + 1]):
                begins[mine[k]] -= 1
                where[begins[mine[k]]] = i
            heads[i + 1] = -1
        for t in range(distinct):
            after[t] = heads[left[t]]
            heads[left[t]] = t
        first = filled
        count = end - begin
        while count > 0:
            t = heads[count]
            if t < 0:
                count -= 1
                continue
            heads[count] = after[t]
            if left[t] < count:
                after[t] = heads[left[t]]
                heads[left[t]] = t
                continue
            pivots[filled] = names[t] + least
            filled += 1
            for w in range(begins[t], stops[t]):
                i = where[w]
                if not hit[i]:
                    hit[i] = True
                    for k in range(firsts[i], firsts[i + 1]):
                        left[mine[k]] -= 1
        pivots[first:filled].sort()
        counts[node] = filled - first
    return filled


def parents_of(first: NDArray[np.int32]) -> NDArray[np.int64]:
    """Return the parent of each node, and -1 for the root; *first* has the first of its four children, or 0."""
    parents = np.full(len(first), -1, np.int64)
    inner = np.flatnonzero(first)
    for corner in range(4):
        parents[first[inner] + corner] = inner
    return parents


def node_sets(
    first: NDArray[np.int32],
    levels: NDArray[np.int64],
    offsets: NDArray[np.int64],
    pivots: NDArray[np.int32],
    bare: NDArray[np.bool_],
    under: NDArray[np.int64],
) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int64], NDArray[np.int32], NDArray[np.bool_]]:
    """Return the cover sets (CSet) and other sets (NSet) of all nodes, and which nodes every message must enter.

    Each kind of set comes as (offsets, tokens). The pivotal tokens of a node are those of its list and of its children.
    A token that all children have (except those without clauses) is in the node's cover set, and is removed from the
    children's sets.
    """
    nodes = len(first)
    parents = parents_of(first)
    families = np.bincount(parents[1:], weights=under[1:] > 0, minlength=nodes).astype(np.int64)
    keys = np.repeat(np.arange(nodes), np.diff(offsets)) << 32 | pivots
    always = bare.copy()
    covers: list[NDArray[np.int64]] = []
    rests: list[NDArray[np.int64]] = []
    # The tokens that the level below hands to its parents, once for each child that has them.
    risen = np.empty(0, np.int64)
    below, cover = np.empty(0, np.int64), np.empty(0, np.int64)  # the two sets of the level below
    for level in range(len(levels) - 2, -1, -1):
        begin, end = levels[level], levels[level + 1]
        own = keys[offsets[begin] : offsets[end]]
        shared, times = counted(risen)
        common = shared[times == families[shared >> 32]]
        for sets, part in ((covers, cover), (rests, below)):
            lifted = parents[part >> 32] << 32 | part & 0xFFFFFFFF
            sets.append(part[~_among(lifted, common)])
        cover = common
        everything, _ = counted(np.concatenate([own, shared]))
        below = everything[~_among(everything, cover)]
        if begin:
            risen = parents[everything >> 32] << 32 | everything & 0xFFFFFFFF
            np.logical_or.at(always, parents[begin:end], always[begin:end])
    cover = np.sort(np.concatenate([*covers, cover]))
    rest = np.sort(np.concatenate([*rests, below]))
    return (
        offsets_of(np.bincount(cover >> 32, minlength=nodes)),
        (cover & 0xFFFFFFFF).astype(np.int32),
        offsets_of(np.bincount(rest >> 32, minlength=nodes)),
        (rest & 0xFFFFFFFF).astype(np.int32),
        always,
    )


def counted(keys: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the distinct keys, ascending, and how often each occurs."""
    # A stable sort merges the runs that are sorted already.
    keys = np.sort(keys, kind="stable")
    begins = np.flatnonzero(np.append(True, keys[1:] != keys[:-1])[: len(keys)])
    return keys[begins], np.diff(np.append(begins, len(keys)))


def _among(keys: NDArray[np.int64], those: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Tell which keys are among *those*, which are sorted."""
    if not len(those):
        return np.zeros(len(keys), np.bool_)
    found: NDArray[np.bool_] = those[np.minimum(np.searchsorted(those, keys), len(those) - 1)] == keys
    return found
