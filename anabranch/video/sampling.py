"""Which frames are taken, as a pure function of the frame.

The first frame of each slot of time would be the obvious rule, but a segment that begins inside a
slot cannot know whether its predecessor had filled it. So a frame decides for itself: it is taken
if a slot begins between the end of a frame of its length before it and itself.
"""

from __future__ import annotations

from typing import Any

__all__ = ["anchored", "taken"]


def taken(ts: Any, duration: Any, every: int) -> Any:
    """Whether frames at these times, of these lengths, are taken; all in whole microseconds.

    At a constant rate each slot has one frame, however a film is cut into segments. A variable rate
    may skip or double a slot. Numbers or arrays of them.

    Examples
    --------
    >>> times = [0, 40_000, 80_000, 120_000, 160_000, 200_000]
    >>> [t for t in times if taken(t, 40_000, 100_000)]
    [0, 120000, 200000]
    >>> import numpy as np
    >>> taken(np.array(times), 40_000, 1).all()
    np.True_
    """
    return ts // every != (ts - duration) // every


def anchored(ts: Any, duration: Any, every: int | None, anchors: int) -> Any:
    """Whether frames that are taken are anchors.

    A frame that stands for slots of `every` is one if an anchor is due in any of them: `anchors`
    need be no multiple of `every`, and a frame may last longer than both.

    Examples
    --------
    >>> times = range(0, 4_000_000, 300_000)
    >>> [t // 1000 for t in times if anchored(t, 40_000, 300_000, 1_000_000)]
    [0, 900, 1800, 3000, 3900]
    """
    if every is None:
        return taken(ts, duration, anchors)
    begin, end = ((ts - duration) // every + 1) * every, ts // every * every + every
    return (begin - 1) // anchors != (end - 1) // anchors
