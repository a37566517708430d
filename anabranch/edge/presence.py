"""What a device says of itself: that it leaves, and that it is back."""

from __future__ import annotations

from typing import Any

__all__ = ["Presence"]


class Presence:
    """Said in a frame, so that it is neither lost nor overtaken.

    Examples
    --------
    >>> presence = Presence()
    >>> presence.leave()
    >>> presence.due(), presence.due(), presence.left
    ({'bye': True}, {}, True)
    >>> presence.load(True)   # after a restart
    >>> presence.due(), presence.left
    ({'bye': False}, False)
    """

    def __init__(self) -> None:
        self.left = False  # by the last that it has to say
        self.waiting = False  # until that is said

    def leave(self) -> None:
        """It leaves, for now."""
        self.left = self.waiting = True

    def to_form(self) -> bool:
        """What `load` takes: whether it must say that it is back, once it starts again."""
        return self.left or self.waiting

    def load(self, left: bool) -> None:
        """It starts again; it may have left before."""
        self.left, self.waiting = False, left

    def due(self) -> dict[str, Any]:
        """What is to be said now."""
        if not self.waiting:
            return {}
        self.waiting = False
        return {"bye": self.left}
