"""Which outbox is the one that the cloud knows: not one that went back, and not a copy.

Two outboxes with one past give the same numbers to other rows. So every frame says the checksum of
the one before it, and its own speaks for all before. The relay takes a frame only after the one
that it has, and says with every acknowledgement which that is; an agent with another frame stops.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping

from anabranch.edge.frames import Down

__all__ = ["FORGOTTEN", "LOST", "TAKEN_OVER", "checksum", "contradiction", "other_past"]

LOST = (
    "the broker has lost a part of its mailbox: run `anabranch edge recover` on the hub, then "
    "start this agent again"
)
TAKEN_OVER = "another incarnation of this device has taken over"
_REMEDY = (
    "this outbox was put back from a backup, or is one of two copies. Keep the folder, for the "
    "cloud may lack rows of it, and begin with an empty one"
)

FORGOTTEN = f"the outbox went back: it asks for a part of its mailbox that it has had; {_REMEDY}"


def checksum(frame: bytes) -> int:
    """Of a frame, which has that of the frame before it in it."""
    return zlib.crc32(frame)


def contradiction(down: Down, following: int, acked: int, frames: Mapping[int, bytes]) -> str:
    """What an acknowledgement of the cloud says against the frames here; empty if nothing.

    Here are `frames` after `acked`, which the cloud is known to have, and before `following`.

    Examples
    --------
    >>> frames = {3: b"three", 4: b"four"}
    >>> contradiction(Down(9, 70, 4, check=checksum(b"four")), 5, 2, frames)
    ''
    >>> contradiction(Down(9, 70, 4, check=checksum(b"FOUR")), 5, 2, frames)[:60]
    'the cloud has a frame 4 of this device that is not the one h'
    >>> contradiction(Down(9, 70, 5, check=7), 5, 2, frames)[:58]
    'the outbox went back: the cloud has 6 frames of this devic'
    """
    # A frame that is acknowledged and not here is another's; before `acked` there is none to ask.
    there = {down.acked: frames.get(down.acked, b"")} if down.acked > acked else {}
    return other_past(down.acked + 1, down.check, following, there)


def other_past(had: int, check: int, following: int, frames: Mapping[int, bytes]) -> str:
    """What the number of frames that the cloud had, and the last of them, say against these."""
    if had > following:
        return (
            f"the outbox went back: the cloud has {had} frames of this device, and {following} "
            f"were made here; {_REMEDY}"
        )
    if had - 1 in frames and checksum(frames[had - 1]) != check:
        return f"the cloud has a frame {had - 1} of this device that is not the one here; {_REMEDY}"
    return ""
