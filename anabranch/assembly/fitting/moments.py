"""Phase-type distributions of given moments, in closed form."""

from __future__ import annotations

import math
from decimal import Decimal, localcontext

import numpy as np
from numpy.typing import ArrayLike

from anabranch.assembly.fitting.erlang import Erlang, HyperErlang
from anabranch.assembly.fitting.phasetype import PhaseType
from anabranch.calls import is_number
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
    if not (is_number(mean) and mean > 0):
        problems.append(f"mean must be a finite number above 0, got {mean!r}")
    if not (is_number(scv) and scv >= 1e-9):
        problems.append(
            f"scv must be a finite number of at least 1e-9, got {scv!r}; a constant has no "
            "phase-type form, take a small scv such as 0.001"
        )
    if problems:
        raise InvalidCall("fit_two_moments", problems)
    if scv > 1:
        root = math.sqrt((scv - 1) / (scv + 1))
        # The smaller share is 1 less the larger, free of cancellation.
        shares = (1 + root) / 2, 1 / (scv + 1) / (1 + root)
        return HyperErlang(shares, [1, 1], [2 * share / mean for share in shares])
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
    second otherwise. Its three moments leave a quadratic equation for the rates. Every distribution
    of two phases has such a chain; where rounding has moved its moments to where no chain is, the
    nearest one is taken.

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
1, 1.1, 1.3 (scv 0.1; two phases reach down to 0.5); take fit_two_moments, or fit_hyper_erlang on \
the data
    """
    if not all(is_number(value) and value > 0 for value in (first, second, third)):
        raise InvalidCall(
            "fit_three_moments",
            [f"moments must be finite numbers above 0, got {first!r}, {second!r}, {third!r}"],
        )
    with localcontext() as exact:
        exact.prec = _DIGITS
        mean = Decimal(float(first))
        # In units of the mean, with factorials divided out: s2 = m2/2, s3 = m3/6.
        s2 = Decimal(float(second)) / mean**2 / 2
        s3 = Decimal(float(third)) / mean**3 / 6
        found = _two_phases(s2, s3)
    if found is None:
        scv = float(2 * s2 - 1)
        below = "; two phases reach down to 0.5" if scv < 0.5 else ""
        raise InvalidCall(
            "fit_three_moments",
            [
                f"no two phases have the moments {first:g}, {second:g}, {third:g} (scv {scv:.3g}"
                f"{below}); take fit_two_moments, or fit_hyper_erlang on the data"
            ],
        )
    share, u, v = (float(part) for part in found)
    x, y = 1 / (u * first), 1 / (v * first)
    return PhaseType([share, 1 - share], [[-x, x], [0.0, -y]])


# Near a squared variation of 1 the equation's coefficients are what is left of numbers that nearly
# cancel: they are computed with digits to spare, so that only the rounding of the moments remains.
_DIGITS = 80
_ROUNDING = Decimal(2) ** -50  # of a moment that was computed in floats
_LEAST = Decimal(2) ** -56  # of the mean: a phase that takes no time, as a float holds it
_CLOSE = Decimal("1e-13")  # moments that are missed by no more are met

_Chain = tuple[Decimal, Decimal, Decimal]  # start share p, mean times u and v


def _two_phases(s2: Decimal, s3: Decimal) -> _Chain | None:
    """The chain with reduced moments 1, s2, s3, if there is one.

    With u = 1/x and v = 1/y the reduced moments are

        1 = v + p u,  s2 = v^2 + p u (u + v),  s3 = v^3 + p u (u^2 + u v + v^2).

    The first gives p u = 1 - v = w. The second becomes 1 - s2 = (1 - u)(1 - v) = d, hence
    u = 1 - d / w. Put into the third, cubes cancel: d w^2 + (1 - 3 d - s3) w + d^2 = 0.

    A third moment that is out of reach for this second one may be within it for one that is the
    same but for rounding: next to the exponential it grows without end.
    """
    found = [chain for step in (0, -_ROUNDING, _ROUNDING) for chain in _chains(1 - s2 + step, s3)]
    # Of two answers take the canonical one: the slower phase last is reached from both starts.
    error, _, chain = min((_error(chain, s2, s3), chain[1] > chain[2], chain) for chain in found)
    return chain if error <= _CLOSE else None


def _chains(d: Decimal, s3: Decimal) -> list[_Chain]:
    """Chains of this d whose third moment is the nearest to s3: one, or one in either order.

    Chains have w from 0 to 1 where d < 0, and their third moment falls with w. Where d > 0 they lie
    between the ends w^2 - w + d = 0, at which p = 1, and their third moment is least in the middle,
    w^2 = d, at which u = v.
    """
    if not d:
        return [(Decimal(0), Decimal(1), Decimal(1))]
    b = 1 - 3 * d - s3
    root = max(b * b - 4 * d**3, Decimal(0)).sqrt()
    if d < 0:
        return [_chain(d, min((b + root) / (-2 * d), 1 - _LEAST))]
    # Below the least third moment there is no root above 0, or none at all.
    large = max((root - b) / (2 * d), d.sqrt())
    last = (1 + max(1 - 4 * d, Decimal(0)).sqrt()) / 2
    large = min(large, last)
    return [_chain(d, large), _chain(d, d / large)]


def _chain(d: Decimal, w: Decimal) -> _Chain:
    u, v = max(1 - d / w, _LEAST), max(1 - w, _LEAST)
    return min(w / u, Decimal(1)), u, v


def _error(chain: _Chain, s2: Decimal, s3: Decimal) -> Decimal:
    """By how much a chain misses the moments, of themselves; next to nothing counts as nothing."""
    p, u, v = chain
    w = p * u
    reached = v + w, v**2 + w * (u + v), v**3 + w * (u * u + u * v + v * v)
    missed = (abs(m / s - 1) for m, s in zip(reached, (Decimal(1), s2, s3), strict=True))
    return max(_ROUNDING, *missed)
