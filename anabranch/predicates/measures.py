"""Measures of two columns, those of vectors among them, and those that users write themselves."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from anabranch.calls import is_whole
from anabranch.predicates.columns import Named
from anabranch.predicates.terms import (
    Compared,
    Measure,
    Negated,
    Predicate,
    Term,
    columns_text,
    read_columns,
)

__all__ = ["Custom", "PairMeasure", "ScoreFunction", "VectorMeasure"]

ScoreFunction = Callable[[Mapping[str, Any], Mapping[str, Any]], Any]

_DISTANCES = frozenset({"euclidean", "manhattan", "hamming"})


@dataclass(frozen=True, eq=False, repr=False)
class PairMeasure(Measure):
    """A measure of one column of either side."""

    kind: str
    left: Named
    right: Named

    def __post_init__(self) -> None:
        read_columns(self, self.kind)

    def __repr__(self) -> str:
        return f"{self.kind}({columns_text(self.left, self.right)})"

    @property
    def example(self) -> str:
        return "<= 2" if self.kind in _DISTANCES | {"edit", "emd"} else super().example

    @property
    def label(self) -> str:
        """What stored values mean; state of another label cannot be read."""
        return self.kind


@dataclass(frozen=True, eq=False, repr=False)
class VectorMeasure(PairMeasure):
    """A similarity or distance of two vectors; `dim` fixes their length if given."""

    dim: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if is_whole(self.dim):
            object.__setattr__(self, "dim", int(self.dim))  # type: ignore[arg-type]

    def value(self, raw: np.ndarray) -> np.ndarray:
        """What is compared and shown, of what kernels compute for this kind."""
        return raw

    def reach(self, threshold: float, upward: bool) -> float:
        """The threshold in what kernels compute; filters add what rounding does."""
        return threshold

    def own_problems(self) -> list[str]:
        if self.dim is None or is_whole(self.dim):
            return []
        return [f"{self!r}: dim must be a whole number of at least 1, got {self.dim!r}"]

    def problems_with(self, term: Compared) -> list[str]:
        if self.kind == "cosine" and not -1 <= term.threshold <= 1:
            return [f"{term!r}: a cosine lies between -1 and 1, so compare with such a number"]
        if self.kind in _DISTANCES and term.threshold < 0:
            return [f"{term!r}: a distance is never negative, so compare with 0 or more"]
        return []


@dataclass(frozen=True, repr=False, eq=False)
class Custom(Measure, Term):
    """A user's function of two column batches; a term by itself if it returns booleans."""

    function: ScoreFunction
    left: tuple[Named, ...]
    right: tuple[Named, ...]

    __and__, __or__ = Predicate.__and__, Predicate.__or__
    __rand__ = __ror__ = Predicate.__rand__

    def __invert__(self) -> Predicate:
        return Negated(self)

    def __repr__(self) -> str:
        name = getattr(self.function, "__name__", repr(self.function))
        return f"custom({name}, left={list(self.left)}, right={list(self.right)})"

    def own_problems(self) -> list[str]:
        if not callable(self.function):
            return [f"{self!r}: the first argument must be a function, got {self.function!r}"]
        if not self.left or not self.right:
            return [f"{self!r}: name at least one column of each side"]
        return []
