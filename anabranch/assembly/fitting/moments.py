"""Phase-type distributions of given moments, in closed form."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from anabranch.assembly.fitting.erlang import Erlang, HyperErlang
from anabranch.assembly.fitting.phasetype import PhaseType
from anabranch.errors import InvalidCall

__all__ = ["fit_three_moments", "fit_two_moments", "moments_of"]


def moments_of(data: ArrayLike, count: int = 3) -> tuple[float, ...]:
    """The first moments of data about zero.

    Examples
    --------
    >>> moments_of([1.0, 3.0], 2)
    (2.0, 5.0)
    """
    values = np.asarray(data, dtype=np.float64)
    return tuple(float(np.mean(values**order)) for order in range(1, count + 1))


def fit_two_moments(mean: float, scv: float) -> HyperErlang:
    """The usual distribution of this mean and squared coefficient of variation.

    Below 1 a mixture of two Erlang distributions of neighbouring shapes and one rate; at 1 the
    exponential; above 1 two exponentials with balanced means.

    Examples
    --------
    >>> fit = fit_two_moments(2.0, 0.3)
    >>> fit.shapes.tolist(), round(fit.mean, 12), round(fit.scv, 12)
    ([3, 4], 2.0, 0.3)
    >>> fit = fit_two_moments(2.0, 5.0)
    >>> fit.shapes.tolist(), round(fit.mean, 12), round(fit.scv, 12)
    ([1, 1], 2.0, 5.0)
    """
    problems = []
    if not (mean > 0 and math.isfinite(mean)):
        problems.append(f"mean must be a finite number above 0, got {mean!r}")
    if not (scv > 0 and math.isfinite(scv)):
        problems.append(
            f"scv must be a finite number above 0, got {scv!r}; a constant has no phase-type "
            "form, take a small scv such as 0.001"
        )
    if problems:
        raise InvalidCall("fit_two_moments", problems)
    if scv > 1:
        share = (1 + math.sqrt((scv - 1) / (scv + 1))) / 2
        return HyperErlang([share, 1 - share], [1, 1], [2 * share / mean, 2 * (1 - share) / mean])
    shape = max(1, math.ceil(1 / scv - 1e-12))
    if shape == 1 or abs(shape * scv - 1) < 1e-12:
        return Erlang(shape, shape / mean)
    root = math.sqrt(max(shape * (1 + scv) - shape**2 * scv, 0.0))
    shorter = (shape * scv - root) / (1 + scv)
    rate = (shape - shorter) / mean
    return HyperErlang([shorter, 1 - shorter], [shape - 1, shape], [rate, rate])


def fit_three_moments(first: float, second: float, third: float) -> PhaseType:
    """The two-phase distribution with these moments about zero.

    A chain of two phases of rates *x* and *y*, begun at the first with probability *p* and at the
    second otherwise. Its three moments leave a quadratic equation for the rates.

    Examples
    --------
    >>> truth = PhaseType([0.4, 0.6], [[-2.0, 2.0], [0.0, -0.5]])
    >>> found = fit_three_moments(*(truth.moment(order) for order in (1, 2, 3)))
    >>> all(abs(found.moment(k) / truth.moment(k) - 1) < 1e-10 for k in (1, 2, 3))
    True
    >>> fit_three_moments(1.0, 1.1, 1.3)
    Traceback (most recent call last):
        ...
    anabranch.errors.InvalidCall: fit_three_moments cannot start: no two phases have the moments \
1, 1.1, 1.3 (scv 0.1; two phases reach down to 0.5); take fit_two_moments or fit_acyclic with more \
phases
    """
    if not all(value > 0 and math.isfinite(value) for value in (first, second, third)):
        raise InvalidCall(
            "fit_three_moments",
            [f"moments must be finite and above 0, got {first!r}, {second!r}, {third!r}"],
        )
    # In units of the mean, with factorials divided out: s2 = m2/2, s3 = m3/6.
    s2, s3 = second / first**2 / 2, third / first**3 / 6
    found = _two_phases(s2, s3)
    if found is None:
        scv = second / first**2 - 1
        below = "; two phases reach down to 0.5" if scv < 0.5 else ""
        raise InvalidCall(
            "fit_three_moments",
            [
                f"no two phases have the moments {first:g}, {second:g}, {third:g} (scv {scv:.3g}"
                f"{below}); take fit_two_moments or fit_acyclic with more phases"
            ],
        )
    share, x, y = found
    x, y = x / first, y / first
    return PhaseType([share, 1 - share], [[-x, x], [0.0, -y]])


def _two_phases(s2: float, s3: float) -> tuple[float, float, float] | None:
    """Start share and rates of the chain with reduced moments 1, s2, s3, if there is one.

    With u = 1/x and v = 1/y the reduced moments are

        1 = v + p u,  s2 = v^2 + p u (u + v),  s3 = v^3 + p u (u^2 + u v + v^2).

    The first gives p u = 1 - v = w. The second becomes 1 - s2 = (1 - u)(1 - v) = d, hence
    u = 1 - d / w. Put into the third, cubes cancel: d w^2 + (1 - 3 d - s3) w + d^2 = 0.
    """
    if abs(s2 - 1) < 1e-12:
        return (0.0, 1.0, 1.0) if abs(s3 - 1) < 1e-9 else None
    d = 1 - s2
    a, b, c = d, 1 - 3 * d - s3, d * d
    root = b * b - 4 * a * c
    # Equal rates make a double root, which rounding may push apart.
    if root < -1e-8 * b * b:
        return None
    root = math.sqrt(max(root, 0.0))
    answers = []
    for w in ((-b + root) / (2 * a), (-b - root) / (2 * a)):
        v = 1 - w
        if abs(w) < 1e-14:
            continue
        u = 1 - d / w
        if v <= 0 or u <= 0:
            continue
        share = w / u
        if -1e-9 <= share <= 1 + 1e-9:
            answers.append((min(max(share, 0.0), 1.0), 1 / u, 1 / v))
    # Of two answers take the canonical one: the slower phase last is reached from both starts.
    return min(answers, key=lambda found: found[1] < found[2]) if answers else None
