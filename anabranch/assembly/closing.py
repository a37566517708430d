"""Policies that say when a window closes, as the loop reads them; `ab.close` makes them.

A policy is a frozen description; the loop in `loop` obeys it. All of them open a window with the
first event of a key and close it once. They differ in when, and in what becomes of an
event that comes after the close while the key is still remembered : it opens a
second window (``seq`` 1, 2, ...) or is a revision of the closed one (``revision`` 1, 2, ...). Any
of them may have an end marker beside it, which closes a window earlier.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from anabranch.calls import describe
from anabranch.predicates.columns import Expression, Named

__all__ = ["MOST", "After", "Closing", "Count", "Gap", "Learned"]

MOST = 1 << 40  # a count that is never reached


@dataclass(frozen=True)
class Closing:
    """What every policy has, in microseconds; with a marker it is one of `ab.close.until`."""

    timeout: int
    remember: int
    marker: Named | None = None
    grace: int = 0

    # What the loop reads; policies override what they need.
    size = MOST  # this many events close a window as full
    expects = 0  # events that a whole instance has, if that is known beforehand
    proves = 0  # the size that was declared, so that who has it is complete; 0 if none was
    restarts = False  # whether the timeout starts anew with every event
    revises = False  # whether an event after the close is a revision or opens a window
    learns = False

    @property
    def columns(self) -> tuple[Any, Any]:
        """The columns of kind and marker, as the caller gave them; None if there are none.

        A marker in text is SQL, which finds fields of structs by itself.
        """
        kind, marker = getattr(self, "kind", None), self.marker
        own = kind, None if isinstance(marker, str) else marker
        return tuple(one.column if isinstance(one, Expression) else one for one in own)  # type: ignore[return-value]

    def named(self, kind: Any, marker: Any) -> Closing:
        """The same with the names that these columns have in the rows."""
        found = self if marker is None else replace(self, marker=marker)
        return found if kind is None else replace(found, kind=kind)  # type: ignore[call-arg]

    def __str__(self) -> str:
        if self.marker is None:
            return self._alone()
        grace = describe(self.grace)
        return f"ab.close.until({self.marker!r}, {grace!r}, otherwise={self._alone()})"

    def _alone(self) -> str:
        """The policy without its end marker, as it is written."""
        return type(self).__name__


@dataclass(frozen=True)
class Count(Closing):
    """See `ab.close.count`."""

    n: int = 1
    declared: bool = True  # else `n` is what many instances have, and proves nothing

    @property
    def size(self) -> int:  # type: ignore[override]
        return self.n

    @property
    def expects(self) -> int:  # type: ignore[override]
        return self.n

    @property
    def proves(self) -> int:  # type: ignore[override]
        return self.n if self.declared else 0

    def _alone(self) -> str:
        usual = "" if self.declared else ", declared=False"
        return f"ab.close.count({self.n}, {describe(self.timeout)!r}{usual})"


@dataclass(frozen=True)
class Gap(Closing):
    """See `ab.close.gap`."""

    restarts = True

    def _alone(self) -> str:
        return f"ab.close.gap({describe(self.timeout)!r})"


@dataclass(frozen=True)
class After(Closing):
    """See `ab.close.after`."""

    revises = True

    def _alone(self) -> str:
        return f"ab.close.after({describe(self.timeout)!r})"


@dataclass(frozen=True)
class Learned(Closing):
    """See `ab.close.learned`."""

    kind: Named | None = None
    risk: float = 0.01
    cap: int = 1000
    coverage: float = 0.5
    after: int = 20
    spread: int = 1
    max_kinds: int = 100_000

    restarts = True
    revises = True
    learns = True

    @property
    def size(self) -> int:  # type: ignore[override]
        return self.cap

    def _alone(self) -> str:
        return f"ab.close.learned({describe(self.timeout)!r}, risk={self.risk:g})"
