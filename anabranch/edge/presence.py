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
    >>> again = Presence()
    >>> again.load(presence.to_form())   # after a restart
    >>> again.due(), again.left
    ({'bye': False}, False)
    >>> again.load(presence.to_form(), restarted=False)
    >>> again.due(), again.left
    ({}, True)
    """

    def __init__(self) -> None:
        self.left = False  # by the last that it has to say
        self.waiting = False  # until that is said

    def leave(self) -> None:
        """It leaves, for now."""
        self.left = self.waiting = True

    def to_form(self) -> int:
        """What `load` takes; not 0 if it must say that it is back, once it starts again."""
        return 2 * self.left + self.waiting

    def load(self, form: int, restarted: bool = True) -> None:
        """As it was; if it has started again it is back, and says so if it had left."""
        self.left, self.waiting = bool(form & 2), bool(form & 1)
        if restarted:
            self.left, self.waiting = False, bool(form)

    def due(self) -> dict[str, Any]:
        """What is to be said now."""
        if not self.waiting:
            return {}
        self.waiting = False
        return {"bye": self.left}
