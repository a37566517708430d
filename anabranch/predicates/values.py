"""Conditions on the values of two columns: a band, equality, inequality."""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from numbers import Integral
from typing import Any, ClassVar

from anabranch.calls import EXACT, Duration, is_number, microseconds
from anabranch.predicates.columns import Named
from anabranch.predicates.terms import (
    Negated,
    Predicate,
    Term,
    as_written,
    columns_text,
    nearest_float,
    read_columns,
)

__all__ = ["Differs", "Same", "Within"]

_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?")


@dataclass(frozen=True, repr=False, eq=False)
class Within(Term):
    """``|left - right| <= limit`` on numbers, dates or timestamps."""

    left: Named
    right: Named
    limit: float | Decimal | Duration

    @property
    def grade(self) -> int:
        return 1

    @property
    def matches(self) -> str:
        return "within"

    def __post_init__(self) -> None:
        read_columns(self, "within")
        limit: Any = self.limit
        if isinstance(limit, str) and _NUMBER.fullmatch(limit.strip()):
            object.__setattr__(self, "limit", Decimal(limit.strip()))
        elif is_number(limit, EXACT) and not isinstance(limit, Decimal):
            whole = isinstance(limit, Integral)  # exact, however great
            object.__setattr__(
                self, "limit", int(limit) if whole else nearest_float(limit, up=False)
            )

    @property
    def limit_as_float(self) -> float:
        """The greatest float that is no greater: among floats it draws the same line."""
        return nearest_float(self.limit, up=False)

    @property
    def limit_as_written(self) -> Fraction:
        """The limit as its digits say: 0.01 is a hundredth, whatever float stands for it."""
        return as_written(self.limit)

    def __repr__(self) -> str:
        return f"within({columns_text(self.left, self.right)}, {self.limit!r})"

    def __invert__(self) -> Predicate:
        return Negated(self)

    def own_problems(self) -> list[str]:
        if is_number(self.limit, EXACT):
            return [] if self.limit >= 0 else [f"{self!r}: the limit must not be negative"]  # type: ignore[operator]
        try:
            negative = microseconds(self.limit) < 0  # type: ignore[arg-type]
        except ValueError as error:
            return [
                f"{self!r}: the limit must be a number (0.5, Decimal('0.01') or '0.01'), or a "
                f"duration for dates; {error}"
            ]
        return [f"{self!r}: the limit must not be negative"] if negative else []


@dataclass(frozen=True, repr=False, eq=False)
class _Columns(Term):
    """A condition on two columns; its name is `label`."""

    left: Named
    right: Named
    label: ClassVar[str]

    def __post_init__(self) -> None:
        read_columns(self, self.label)

    @property
    def matches(self) -> str:
        return self.label

    def __repr__(self) -> str:
        return f"{self.label}({columns_text(self.left, self.right)})"


class Same(_Columns):
    """Equality of two columns."""

    label = "same"

    def __invert__(self) -> Predicate:
        return Differs(self.left, self.right)


class Differs(_Columns):
    """Inequality of two columns."""

    label = "differs"

    def __invert__(self) -> Predicate:
        return Same(self.left, self.right)
