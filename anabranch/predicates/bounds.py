"""A term with the bounds of each row of the right side in its own columns."""

from __future__ import annotations

from dataclasses import dataclass

from anabranch.predicates.columns import Named, column_of
from anabranch.predicates.terms import Negated, Predicate, Term

__all__ = ["Between"]


@dataclass(frozen=True, repr=False, eq=False)
class Between(Term):
    """``low <= left <= high``, with the bounds in columns of the right side; one may be None."""

    left: Named
    low: Named | None
    high: Named | None

    def __post_init__(self) -> None:
        for side in ("left", "low", "high"):
            if side == "left" or getattr(self, side) is not None:
                object.__setattr__(self, side, column_of("within", getattr(self, side), side))

    @property
    def bounds(self) -> dict[str, Named]:
        """The bounds that there are, by name."""
        both = {"low": self.low, "high": self.high}
        return {name: column for name, column in both.items() if column is not None}

    @property
    def matches(self) -> str:
        return "within" if len(self.bounds) == 2 else "<=" if self.low is None else ">="

    def __invert__(self) -> Predicate:
        return Negated(self)

    def __repr__(self) -> str:
        given = ", ".join(f"{name}={column!r}" for name, column in self.bounds.items())
        return f"within({self.left!r}, {given})"
