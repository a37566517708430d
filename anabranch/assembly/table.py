"""The table of windows and what a step works on: columns, settings, state.

A row of the table is a window, and every column an integer. Compiled code takes these as tuples,
whose columns are constants to it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from anabranch.assembly.learning import Known

__all__ = [
    "CAUSES",
    "Column",
    "Counter",
    "Event",
    "Held",
    "MARK",
    "Memory",
    "Settings",
    "State",
]


class _Columns(NamedTuple):
    """Columns of the table of windows, and how many there are.

    `CLOSED` of a window that is open is when its end marker will close it; `FOREVER` without one.
    """

    H1: int
    H2: int
    KIND: int
    STATE: int
    DUE: int
    OPENED: int
    CLOSED: int
    REASON: int
    COUNT: int
    EXPECTED: int
    SEQ: int
    REVISION: int
    FIRST: int
    LAST: int
    END: int
    STREAMS: int
    ORDER: int
    LINK: int
    LINK_END: int
    QUEUED: int
    GAP: int
    LAST_GAP: int
    SEEN: int
    WIDTH: int


Column = _Columns(*range(24))

FREE, OPEN, REMEMBERED = 0, 1, 2
CAUSES = ("full", "complete", "timeout", "evicted", "flush", "late", "gap", "end")
FULL, COMPLETE, TIMEOUT, EVICTED, FLUSH, LATE, QUIET, ENDED = range(8)
MARK = 1 << 62  # of an event with an end marker, a bit beside that of its stream


class _Events(NamedTuple):
    """Columns of an event: key hashes, kind, event time, end, stream bit, late or not."""

    H1: int
    H2: int
    KIND: int
    T: int
    END: int
    STREAM: int
    LATE: int


Event = _Events(*range(7))


class _Counters(NamedTuple):
    """Counters of a step, and how many there are."""

    SLOTS: int
    HEAP: int
    FIRST_OUT: int
    LAST_IN: int
    EMITTED: int
    ITEMS: int
    OPENS: int
    ORDERS: int
    PEAK: int
    KINDS: int
    LIVE_KINDS: int
    KIND_OUT: int
    KIND_IN: int
    LEARNED: int
    COUNT: int


Counter = _Counters(*range(15))


class Settings(NamedTuple):
    """How windows close, as `closing` describes it; times in microseconds.

    `grace` is -1 without an end marker. Nothing that is learned is believed before `hold` has
    passed since the first event.
    """

    by_arrival: bool
    restarts: bool
    revises: bool
    learns: bool
    size: int
    expects: int
    timeout: int
    remember: int
    grace: int
    max_open: int
    risk: float
    coverage: float
    after: int
    max_kinds: int
    hold: int


class Held(NamedTuple):
    """What a step begins with.

    Attributes
    ----------
    meta, windows
        The table of windows, and how many there are; behind them is room for one per event.
        Those that are remembered come in the order they closed.
    links
        The chains of events of open windows: the number of the next one, or -1.
    offset
        Event i of the step is number ``offset + i``.
    order, learned, kinds
        Windows closed and instances learned from so far, and kinds of which something is known.
    """

    meta: np.ndarray
    windows: int
    links: np.ndarray
    offset: int
    order: int
    learned: int
    kinds: int


class State(NamedTuple):
    """What the parts of a step share, beside what it begins with.

    Attributes
    ----------
    heap
        Slots of open windows and when each is due, as a heap; some entries are out of date.
    queue
        Slots of windows that are remembered, and what number each had when it closed.
    out, items
        The result: windows, each with the place where its events start (`Column.LINK`), and
        the events.
    """

    heap: np.ndarray
    queue: np.ndarray
    out: np.ndarray
    items: np.ndarray


class Memory(NamedTuple):
    """What is known of kinds, the hash table over them, and the order of learning about them."""

    known: Known
    table: np.ndarray
    queue: np.ndarray
    seen: np.ndarray
