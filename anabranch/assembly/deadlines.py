"""Open windows by when they are due: a binary heap, compiled.

An entry is a slot of the table of windows and a time. Entries go out of date, when a window closes
or is due later than it was, and are put right when they come to the top.
"""

from __future__ import annotations

from anabranch.assembly.table import OPEN, Column, Counter
from anabranch.flow.instants import FOREVER
from anabranch.flow.process import njit

__all__ = ["pop", "push", "next_due"]

# mypy: disable-error-code="no-untyped-def, no-untyped-call"

W, C = Column, Counter


@njit
def _by_key(meta, a, b):
    """Whether slot a is before slot b where both are due at once: by key, never by slot."""
    if meta[a, W.H1] != meta[b, W.H1]:
        return meta[a, W.H1] < meta[b, W.H1]
    return meta[a, W.H2] < meta[b, W.H2]


@njit
def push(meta, c, heap, slot, time):
    """Put a window in that is due at this time."""
    at = c[C.HEAP]
    c[C.HEAP] += 1
    meta[slot, W.QUEUED] = time
    while at > 0:
        up = (at - 1) >> 1
        other, its = heap[up, 0], heap[up, 1]
        if its < time or (its == time and not _by_key(meta, slot, other)):
            break
        heap[at, 0], heap[at, 1] = other, its
        at = up
    heap[at, 0], heap[at, 1] = slot, time


@njit
def pop(meta, c, heap):
    """Take the first window out."""
    first = heap[0, 0]
    c[C.HEAP] -= 1
    last = c[C.HEAP]
    slot, time = heap[last, 0], heap[last, 1]
    at, child = 0, 1
    while child < last:
        other, its = heap[child, 0], heap[child, 1]
        if child + 1 < last:
            sister, hers = heap[child + 1, 0], heap[child + 1, 1]
            if hers < its or (hers == its and _by_key(meta, sister, other)):
                child += 1
                other, its = sister, hers
        if time < its or (time == its and not _by_key(meta, other, slot)):
            break
        heap[at, 0], heap[at, 1] = other, its
        at, child = child, 2 * child + 1
    heap[at, 0], heap[at, 1] = slot, time
    return first


@njit
def next_due(meta, c, heap):
    """Make the heap's top a window that is open and due then; its deadline, or FOREVER."""
    while c[C.HEAP] > 0:
        slot, time = heap[0, 0], heap[0, 1]
        if meta[slot, W.STATE] != OPEN or meta[slot, W.QUEUED] != time:
            pop(meta, c, heap)  # closed meanwhile
        elif meta[slot, W.DUE] != time:
            pop(meta, c, heap)  # the session went on
            push(meta, c, heap, slot, meta[slot, W.DUE])
        else:
            return time
    return FOREVER
