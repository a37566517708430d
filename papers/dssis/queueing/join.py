"""A windowed join as a queue: how busy it is, what it holds, and how long a tuple waits.

Two Poisson streams; a tuple of one is compared with all tuples of the other that are within their
window. Its work is ``base + each * (tuples there)``, so a burst costs twice: it brings more tuples,
and each of them finds more. The Pollaczek-Khinchine formula sees only the spread of single works
and comes out too low. Here the variance of the work of any stretch of time is taken exactly,
and the wait follows from the likeliest way in which so much work comes together.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from anabranch.assembly.fitting.distribution import Floats
from anabranch.errors import InvalidCall

__all__ = ["JoinFigures", "windowed_join"]


@dataclass(frozen=True)
class JoinFigures:
    """What a windowed join does in the long run.

    Attributes
    ----------
    utilisation
        Share of time the worker is busy.
    W, Wq
        Mean time from arrival to the end of the comparison, and to its beginning. Approximate:
        within about a tenth of simulations from 40 to 84 % utilisation.
    state
        Tuples held in both windows.
    storage
        Their bytes, if a tuple's size was given.
    comparisons, output
        Comparisons and results per second.
    pollaczek_khinchine
        The wait by Pollaczek and Khinchine, for comparison: too low.
    """

    utilisation: float
    W: float
    Wq: float
    state: float
    storage: float | None
    comparisons: float
    output: float
    pollaczek_khinchine: float


def windowed_join(
    rates: tuple[float, float],
    windows: tuple[float, float],
    base: float,
    each: float,
    *,
    selectivity: float = 1.0,
    tuple_bytes: float | None = None,
) -> JoinFigures:
    """Predict a sliding-window join on one worker.

    Parameters
    ----------
    rates
        Tuples per second of the two streams.
    windows
        Seconds that a tuple of each stream stays.
    base, each
        Seconds of work per tuple, and per comparison.
    selectivity
        Share of compared pairs that are results.
    tuple_bytes
        Size of a tuple, for the storage.

    Examples
    --------
    Without comparisons this is M/D/1, whose wait is known:

    >>> plain = windowed_join((30.0, 20.0), (5.0, 5.0), 0.01, 0.0)
    >>> round(plain.Wq / (50 * 0.01**2 / (2 * (1 - 0.5))), 3)
    1.0
    """
    problems = [
        f"{name} must be two finite numbers above 0, got {pair!r}"
        for name, pair in (("rates", rates), ("windows", windows))
        if not (len(pair) == 2 and all(v > 0 and math.isfinite(v) for v in pair))
    ]
    problems += [
        f"{name} must be a finite number of at least 0, got {value!r}"
        for name, value in (("base", base), ("each", each), ("selectivity", selectivity))
        if not (value >= 0 and math.isfinite(value))
    ]
    if not problems and base + each == 0:
        problems.append("base and each are both 0: there is no work to queue for")
    if problems:
        raise InvalidCall("windowed_join", problems)
    (r1, r2), (t1, t2) = rates, windows
    pairs = r1 * r2 * (t1 + t2)
    used = (r1 + r2) * base + each * pairs
    if used >= 1:
        raise InvalidCall(
            "windowed_join",
            [
                f"the worker is used to {used:.3g}: it cannot keep up; take at least "
                f"{math.floor(used) + 1} workers, shorter windows or lower rates"
            ],
        )
    mean_work = used / (r1 + r2)
    found = [base + each * r2 * t2, base + each * r1 * t1]
    spread = [each**2 * r2 * t2, each**2 * r1 * t1]
    second = sum(
        rate * (mean**2 + variance)
        for rate, mean, variance in zip((r1, r2), found, spread, strict=True)
    )
    wait = _wait(rates, windows, base, each, used)
    state = r1 * t1 + r2 * t2
    return JoinFigures(
        utilisation=used,
        W=wait + mean_work,
        Wq=wait,
        state=state,
        storage=None if tuple_bytes is None else state * tuple_bytes,
        comparisons=pairs,
        output=selectivity * pairs,
        pollaczek_khinchine=second / (2 * (1 - used)),
    )


def _wait(
    rates: tuple[float, float], windows: tuple[float, float], base: float, each: float, used: float
) -> float:
    """Mean wait: the chance of more than x is exp(-min over t of (x + (1 - used) t)^2 / 2 V(t))."""
    longest = max(windows)
    rough = sum(rates) * (used / sum(rates)) ** 2 / (2 * (1 - used))
    times = np.geomspace(
        min(rough / 100, longest / 1000), max(longest, rough) * 400 / (1 - used), 1200
    )
    variance = _work_variance(times, rates, windows, base, each)

    def above(x: Floats) -> Floats:
        exponents = (x[:, None] + (1 - used) * times) ** 2 / (2 * variance)
        return np.asarray(np.exp(-exponents.min(axis=1)))

    top = rough
    while above(np.array([top]))[0] > 1e-9:
        top *= 1.5
    x = np.concatenate([[0.0], np.geomspace(top * 1e-6, top, 1500)])
    return float(np.trapezoid(above(x), x))


def _work_variance(
    times: Floats,
    rates: tuple[float, float],
    windows: tuple[float, float],
    base: float,
    each: float,
) -> Floats:
    """Variance of the work that arrives within each stretch of time.

    A tuple of side i at time s within the stretch brings its own work and that of the tuples of the
    other side that will find it: base + each r_j (T_j + min(T_i, t - s)). One from before the
    stretch is still found: each r_j min(t, T_i - its age). Beyond that single pairs are random.
    """
    total = each**2 * rates[0] * rates[1] * sum(windows) * times
    for here, there in ((0, 1), (1, 0)):
        own = base + each * rates[there] * windows[there]
        slope, stay = each * rates[there], windows[here]
        short = np.minimum(times, stay)
        # Inside: the last `short` seconds see a rising part, all before see it whole.
        inside = ((own + slope * short) ** 3 - own**3) / (3 * slope) if slope else own**2 * short
        inside = inside + (times - short) * (own + slope * stay) ** 2
        # Before: found for the whole stretch, or for what is left of its stay.
        before = slope**2 * (short**3 / 3 + (stay - short) * short**2)
        total = total + rates[here] * (inside + before)
    return np.asarray(total)
