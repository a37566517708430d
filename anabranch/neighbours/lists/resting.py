"""When a filter that multiplies is of no use for a while."""

from __future__ import annotations

__all__ = ["Resting"]

# To score a proposed pair again costs a core as much as so many multiplications of a scan.
_SCORING = 512
_LONGEST = 64


class Resting:
    """Counts the batches that a filter leaves out after it has proposed too much in vain.

    That happens where its numbers cannot tell objects apart, for they lie close together and far
    from the origin. It rests for one batch, then for two, and so on, until it is of use again.

    Examples
    --------
    >>> resting = Resting()
    >>> resting.judge(useless=10, multiplied=100)
    >>> [resting.now() for _ in range(3)]
    [True, False, False]
    """

    # Without `__dict__`, as something that is not stored and weighs nothing.
    __slots__ = ("_left", "next")

    def __init__(self) -> None:
        self.next, self._left = 1, 0

    def now(self) -> bool:
        """Whether this batch is left out."""
        self._left, rests = max(self._left - 1, 0), self._left > 0
        return rests

    def judge(self, useless: int, multiplied: int) -> None:
        """Rest if too many were proposed in vain."""
        if useless * _SCORING <= multiplied:
            self.next = 1
        else:
            self.begin()

    def begin(self) -> None:
        """Rest for a while, and the longer the more often."""
        self._left, self.next = self.next, min(2 * self.next, _LONGEST)
