"""Mergeable summaries of a figure: count, mean, spread, quantiles, count_ratio; with decay.

Quantiles come from a histogram whose classes grow by a constant factor, so that every quantile is
within 1 % of a value that is there. Classes are fixed beforehand: merging is adding, in any order
and with any weights, which is what lets summaries fade with age.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from anabranch.assembly.service_stats.wilson import wilson_lower, wilson_upper
from anabranch.calls import is_number
from anabranch.errors import InvalidCall

__all__ = ["ACCURACY", "Summary", "class_of", "middle_of"]

ACCURACY = 0.01
_GAMMA = (1 + ACCURACY) / (1 - ACCURACY)
_LOG = math.log(_GAMMA)
_ONE = 1 << 20  # the class of 1; zero is class 0, and what is negative has the negative class


def class_of(values: Any) -> np.ndarray:
    """The histogram class of each value.

    Examples
    --------
    >>> (class_of([1.0, 1.01, 100.0]) - class_of(1.0)).tolist()
    [0, 1, 231]
    >>> bool(class_of(-3.0) == -class_of(3.0) < class_of(0.0) == 0)
    True
    """
    found = np.asarray(values, np.float64)
    size = np.where(found == 0, 1.0, np.abs(found))
    # Rounding before the ceiling keeps a class's own upper end inside it.
    number = np.ceil(np.round(np.log(size) / _LOG, 9)).astype(np.int64)
    return np.where(found == 0, 0, np.sign(found) * (number + _ONE)).astype(np.int64)


def middle_of(number: int) -> float:
    """A value within 1 % of every value of a class.

    Examples
    --------
    >>> abs(middle_of(int(class_of(42.0))) / 42 - 1) <= 0.01
    True
    """
    if not number:
        return 0.0
    return math.copysign(2 * math.exp((abs(number) - _ONE) * _LOG) / (_GAMMA + 1), number)


@dataclass
class Summary:
    """What is left of many figures. Counts are weights, so they need not be whole.

    Attributes
    ----------
    count, mean, m2
        Weight, mean, and sum of squared deviations from the mean.
    complete, rated
        Sum of count_ratio, and the weight of those whose count_ratio is known.
    met, violated, unknown
        What came of the promise, if there is one.
    classes
        Weight of every histogram class.

    Examples
    --------
    >>> a, b = Summary.of([1.0, 2.0, 3.0]), Summary.of([10.0, 20.0])
    >>> both = a.merge(b)
    >>> both.count, round(both.mean, 6), round(both.variance, 3)
    (5.0, 7.2, 50.96)
    >>> round(both.quantile(0.5), 1)
    3.0
    >>> Summary.from_json(both.to_json()) == both
    True
    """

    count: float = 0.0
    mean: float = 0.0
    m2: float = 0.0
    complete: float = 0.0
    rated: float = 0.0
    met: float = 0.0
    violated: float = 0.0
    unknown: float = 0.0
    classes: dict[int, float] = field(default_factory=dict)

    @classmethod
    def of(cls, values: Any, count_ratio: Sequence[float | None] | None = None) -> Summary:
        """The summary of figures, each of weight 1.

        Figures that are NaN or infinite have no place in a mean and are left out.

        Examples
        --------
        >>> Summary.of([1.0, float("inf")]).count, Summary.of([], [0.5]).count_ratio
        (1.0, 0.5)
        """
        figures = np.asarray(values, np.float64)
        figures = figures[np.isfinite(figures)]
        mean = float(figures.mean()) if len(figures) else 0.0
        numbers, counts = np.unique(class_of(figures), return_counts=True)
        known = [c for c in count_ratio or () if c is not None]
        return cls(
            count=float(len(figures)),
            mean=mean,
            m2=float(((figures - mean) ** 2).sum()),
            complete=float(sum(known)),
            rated=float(len(known)),
            classes=dict(zip(numbers.tolist(), counts.astype(float).tolist(), strict=True)),
        )

    def merge(self, other: Summary) -> Summary:
        """Both together."""
        count = self.count + other.count
        # Verdicts may be known of instances that have no figure.
        share = other.count / count if count else 0.0
        apart = other.mean - self.mean
        classes = dict(self.classes)
        for number, weight in other.classes.items():
            classes[number] = classes.get(number, 0.0) + weight
        return Summary(
            count=count,
            mean=self.mean + apart * share,
            m2=self.m2 + other.m2 + apart * apart * self.count * share,
            complete=self.complete + other.complete,
            rated=self.rated + other.rated,
            met=self.met + other.met,
            violated=self.violated + other.violated,
            unknown=self.unknown + other.unknown,
            classes=classes,
        )

    def decay(self, age: float, half_life: float) -> Summary:
        """The same, `age` later: every weight times 0.5 ** (age / half_life).

        Examples
        --------
        >>> round(Summary.of([5.0]).decay(age=10, half_life=10).count, 4)
        0.5
        """
        w = 0.5 ** (max(age, 0.0) / half_life)
        return Summary(
            count=self.count * w,
            mean=self.mean,
            m2=self.m2 * w,
            complete=self.complete * w,
            rated=self.rated * w,
            met=self.met * w,
            violated=self.violated * w,
            unknown=self.unknown * w,
            classes={n: weight * w for n, weight in self.classes.items() if weight * w > 0},
        )

    @property
    def variance(self) -> float:
        """Of the figures themselves, not of a larger population."""
        return self.m2 / self.count if self.count else 0.0

    @property
    def count_ratio(self) -> float | None:
        """The mean count_ratio of those for which it is known."""
        return self.complete / self.rated if self.rated else None

    @property
    def judged(self) -> float:
        """The weight of instances with a verdict."""
        return self.met + self.violated + self.unknown

    @property
    def low(self) -> float | None:
        """The share that kept the promise, if no unknown one did; None without a verdict."""
        return self.met / self.judged if self.judged else None

    @property
    def high(self) -> float | None:
        """The share that kept the promise, if every unknown one did; None without a verdict."""
        return (self.met + self.unknown) / self.judged if self.judged else None

    @property
    def compliance(self) -> float | None:
        """The share that kept the promise; None where some are unknown: see `low`, `high`."""
        return None if self.unknown else self.low

    @property
    def lower(self) -> float:
        """The lower end of the 95 % Wilson interval of `low`."""
        return wilson_lower(self.met, self.judged)

    @property
    def upper(self) -> float:
        """The upper end of the 95 % Wilson interval of `high`."""
        return wilson_upper(self.met + self.unknown, self.judged)

    def quantile(self, q: float) -> float | None:
        """A value within 1 % of the figure of rank q (0 to 1); None if there is no figure."""
        if not (is_number(q) and 0 <= q <= 1):
            raise InvalidCall("quantile", [f"q must be a number from 0 to 1, got {q!r}"])
        if not self.classes:
            return None
        numbers = sorted(self.classes)
        weights = np.cumsum([self.classes[number] for number in numbers])
        place = int(np.searchsorted(weights, q * weights[-1] * (1 - 1e-12), "left"))
        return middle_of(numbers[min(place, len(numbers) - 1)])

    def to_json(self) -> str:
        """One line that `from_json` reads."""
        form = {**self.__dict__, "classes": sorted(self.classes.items())}
        return json.dumps(form)

    @classmethod
    def from_json(cls, text: str) -> Summary:
        """The summary that `to_json` wrote."""
        form = json.loads(text)
        form["classes"] = {int(number): weight for number, weight in form["classes"]}
        return cls(**form)
