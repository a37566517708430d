"""The relaxed k-skyband of one query: the k best, and those that may follow them; compiled.

The k best are a ranked list. The candidates lie in arrival order, so that a newcomer is appended
and an expiry drops the first; they are searched only when one of the k best expires. A candidate
with k younger, strictly better objects can never be among the k best; such ones are pruned now
and then (D-ZaLaPS paper, section 4.1).

``n`` holds three numbers: how many are best, where the candidates begin, where they end.
"""

from __future__ import annotations

from anabranch.flow.process import njit
from anabranch.neighbours.methods.ranked import better, place, take_out

__all__ = ["expire", "holds", "limit", "load", "offer", "prune", "unload"]

_SLACK = 16

# The functions below are compiled; mypy and coverage do not see their insides.
# mypy: disable-error-code="no-untyped-def, no-untyped-call"


@njit(nogil=True)
def load(
    scores, ints, begin, best, end, top, top_ints, cand, cand_ints, n
):  # pragma: no cover  # fmt: skip
    """Read a skyband that lies from `begin` to `end`, the best first."""
    n[0], n[1], n[2] = best, 0, end - begin - best
    for i in range(best):
        top[i] = scores[begin + i]
        top_ints[i] = ints[begin + i]
    for i in range(n[2]):
        cand[i] = scores[begin + best + i]
        cand_ints[i] = ints[begin + best + i]


@njit(nogil=True)
def unload(top, top_ints, cand, cand_ints, n, kept, kept_ints, at):  # pragma: no cover
    """Write a skyband from `at` on; returns where it ends."""
    for i in range(n[0]):
        kept[at] = top[i]
        kept_ints[at] = top_ints[i]
        at += 1
    for i in range(n[1], n[2]):
        kept[at] = cand[i]
        kept_ints[at] = cand_ints[i]
        at += 1
    return at


@njit(nogil=True)
def _append(scores, ints, n, score, seq, clock, emitted):  # pragma: no cover
    """Put a candidate at its place in arrival order, mostly the end."""
    at = n[2]
    while at > n[1] and ints[at - 1, 0] > seq:
        scores[at] = scores[at - 1]
        ints[at, 0] = ints[at - 1, 0]
        ints[at, 1] = ints[at - 1, 1]
        ints[at, 2] = ints[at - 1, 2]
        at -= 1
    scores[at] = score
    ints[at, 0] = seq
    ints[at, 1] = clock
    ints[at, 2] = emitted
    n[2] += 1


@njit(nogil=True)
def offer(top, top_ints, scores, ints, n, k, score, seq, clock):  # pragma: no cover
    """Take an object in; there must be room for one more. Whether it is among the k best."""
    if n[0] < k:  # then there are no candidates
        place(top, top_ints, n[0], score, seq, clock, 0)
        n[0] += 1
        return True
    last = k - 1
    if better(score, seq, top[last], top_ints[last, 0]):
        _append(scores, ints, n, top[last], top_ints[last, 0], top_ints[last, 1], top_ints[last, 2])
        place(top, top_ints, last, score, seq, clock, 0)
        return True
    _append(scores, ints, n, score, seq, clock, 0)
    return False


@njit(nogil=True)
def expire(top, top_ints, scores, ints, n, k, last):  # pragma: no cover
    """Drop objects whose clock is at most `last` and let the best candidates take their place."""
    while n[1] < n[2] and ints[n[1], 1] <= last:
        n[1] += 1
    n[0] = take_out(top, top_ints, n[0], last)
    while n[0] < k and n[1] < n[2]:
        best = n[1]
        for i in range(n[1] + 1, n[2]):
            if scores[i] < scores[best]:  # in arrival order, so the first of equals is the older
                best = i
        place(top, top_ints, n[0], scores[best], ints[best, 0], ints[best, 1], ints[best, 2])
        n[0] += 1
        for i in range(best, n[1], -1):
            scores[i] = scores[i - 1]
            ints[i, 0] = ints[i - 1, 0]
            ints[i, 1] = ints[i - 1, 1]
            ints[i, 2] = ints[i - 1, 2]
        n[1] += 1


@njit(nogil=True)
def _push(heap, size, score):  # pragma: no cover
    """Keep the least `len(heap)` scores seen, the greatest of them first."""
    k = len(heap)
    if size < k:
        at = size
        while at > 0 and heap[(at - 1) // 2] < score:
            heap[at] = heap[(at - 1) // 2]
            at = (at - 1) // 2
        heap[at] = score
        return size + 1
    if score < heap[0]:
        at = 0
        while True:
            child = 2 * at + 1
            if child >= k:
                break
            if child + 1 < k and heap[child + 1] > heap[child]:
                child += 1
            if heap[child] <= score:
                break
            heap[at] = heap[child]
            at = child
        heap[at] = score
    return size


@njit(nogil=True)
def prune(top, top_ints, scores, ints, n, k, last, order, heap):  # pragma: no cover
    """Drop candidates that expired by `last` or have k younger and strictly better objects.

    `order` and `heap` are scratch for k integers and k scores.
    """
    while n[1] < n[2] and ints[n[1], 1] <= last:
        n[1] += 1
    for i in range(n[0]):  # the best by arrival; few
        at = i
        while at > 0 and top_ints[order[at - 1], 0] > top_ints[i, 0]:
            order[at] = order[at - 1]
            at -= 1
        order[at] = i
    size = 0
    best = n[0] - 1
    write = n[2]
    for i in range(n[2] - 1, n[1] - 1, -1):
        while best >= 0 and top_ints[order[best], 0] > ints[i, 0]:
            size = _push(heap, size, top[order[best]])
            best -= 1
        if size == k and heap[0] < scores[i]:
            continue
        size = _push(heap, size, scores[i])
        write -= 1
        scores[write] = scores[i]
        ints[write, 0] = ints[i, 0]
        ints[write, 1] = ints[i, 1]
        ints[write, 2] = ints[i, 2]
    n[1] = write


@njit(nogil=True)
def limit(size, gamma):  # pragma: no cover
    """How many candidates there may be until the next pruning, after one that left `size`.

    A few more than the paper's (1 + gamma) size where that is so near that pruning never ends.
    """
    return size + max(int(gamma * size), _SLACK)


@njit(nogil=True)
def holds(top_ints, ints, n, seq):  # pragma: no cover
    """Whether an object is among the best or the candidates."""
    low, high = n[1], n[2]
    while low < high:
        middle = (low + high) // 2
        if ints[middle, 0] < seq:
            low = middle + 1
        else:
            high = middle
    if low < n[2] and ints[low, 0] == seq:
        return True
    for i in range(n[0]):  # noqa: SIM110, compiled
        if top_ints[i, 0] == seq:
            return True
    return False
