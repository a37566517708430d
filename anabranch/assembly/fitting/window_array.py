"""The small window array as a queue without waiting: how many windows are open, and for how long.

After section 6.4 of the DSSIS paper, which takes the operator for G/G/c with the mean life of a
window as service time. Two things are added. The life follows from size, timeout, sizes and spans
and need not be measured; and an instance that outlives its window, by count or by time, opens a
*second window*, and perhaps further ones, which mostly wait for their timeout. Without them a
smaller size seems to save memory where it costs memory.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from anabranch.assembly.fitting.distribution import Distribution, Floats
from anabranch.calls import is_number, is_whole
from anabranch.errors import InvalidCall

__all__ = ["WindowArray", "window_array"]

_SPANS = 300
_AGES = 64
_COUNTS = 100
_MOST = 2**53  # counts above are no longer whole as floats


@dataclass(frozen=True)
class WindowArray:
    """What a small window array holds in the long run.

    Attributes
    ----------
    windows, peak
        Mean number of open windows, and the number that is exceeded only rarely.
    tuples
        Mean number of events held in them.
    first_life, life
        Mean life in seconds of an instance's first window, and of any window.
    second, later
        Share of instances that open a second window; windows of an instance after its first.
    full
        Share of first windows that close because they are full; the others wait for the timeout.
    complete
        Share of instances whose events all fall into the first window.
    storage, reserved
        Bytes held on average; and if every window reserves room for `size` events.
    """

    size: int
    timeout: float
    rate: float
    windows: float
    peak: float
    tuples: float
    first_life: float
    life: float
    second: float
    later: float
    full: float
    complete: float
    storage: float
    reserved: float


def window_array(
    rate: float,
    size: int,
    timeout: float,
    sizes: tuple[ArrayLike, ArrayLike],
    span: Distribution,
    *,
    arrival_scv: float = 1.0,
    tuple_bytes: float = 135.0,
    peak: float = 0.999,
) -> WindowArray:
    """Open windows, their life and their storage.

    Calls of an instance are taken to lie anywhere between its first and its last, and its span to
    be independent of its degree.

    Parameters
    ----------
    rate
        Instances per second.
    size, timeout
        A window closes at this count or after so many seconds.
    sizes
        Numbers of events and their probabilities.
    span
        Seconds from the first to the last event of an instance.
    arrival_scv
        Squared coefficient of variation of the time between instances; 1 for a Poisson process.
    tuple_bytes
        Size of an event; the paper's is 135 bytes.
    peak
        The probability that `WindowArray.peak` is not exceeded.

    Examples
    --------
    Smaller windows may need more memory, because they leave more second ones:

    >>> from anabranch.assembly.fitting import Erlang, HyperErlang
    >>> x = np.arange(1, 31)
    >>> degree = Erlang(100, 8.7963)
    >>> share = degree.cdf(x - 0.5) - degree.cdf(x - 1.5)   # 1 + round(X)
    >>> span = HyperErlang([0.0247, 0.9753], [1, 4], [0.0404 / 0.68, 0.3666 / 0.68])
    >>> [round(window_array(102.27, n, 22, (x, share / share.sum()), span).windows) > 2500
    ...  for n in (10, 13)]
    [True, False]
    """
    counts, shares = _check(rate, size, timeout, sizes, arrival_scv, tuple_bytes, peak)
    spans = span.ppf((np.arange(_SPANS) + 0.5) / _SPANS)
    nodes, weights = np.polynomial.legendre.leggauss(_AGES)
    ages, weights = (nodes + 1) * timeout / 2, weights * timeout / 2
    open_at = np.zeros(_AGES)
    held, full = 0.0, 0.0
    after = np.zeros(3)  # how many have later windows, how many those are, and how long they last
    for count, share in zip(counts, shares, strict=True):
        still, inside = _first_window(int(count), size, ages, spans)
        open_at += share * still
        held += share * float(inside @ weights)
        full += share * float(1 - _first_window(int(count), size, np.array([timeout]), spans)[0][0])
        *found, events = _later_windows(int(count), size, timeout, spans)
        after += share * np.array(found)
        held += share * events
    first_life = float(open_at @ weights)
    second = 1.0 - float(shares[counts <= size].sum() * span.cdf(timeout))
    # Very long instances outlive their second window too, and so on.
    later, later_life = second, second * timeout
    if after[0]:
        later, later_life = (second * after[1:] / after[0]).tolist()
    windows = rate * (first_life + later_life)
    # Each instance has one window at a time; how crowded it gets depends on how regular they come.
    squared = float(open_at**2 @ weights) + later_life**2 / timeout
    spread = max(1 + (arrival_scv - 1) * squared * rate / windows, 0.0) if windows else 1.0
    return WindowArray(
        size=size,
        timeout=timeout,
        rate=rate,
        windows=windows,
        peak=windows + float(special.ndtri(peak)) * math.sqrt(spread * windows),
        tuples=rate * held,
        first_life=first_life,
        life=(first_life + later_life) / (1 + later),
        second=second,
        later=later,
        full=full,
        complete=1.0 - second,
        storage=rate * held * tuple_bytes,
        reserved=windows * size * tuple_bytes,
    )


def _first_window(count: int, size: int, ages: Floats, spans: Floats) -> tuple[Floats, Floats]:
    """Whether the first window is open at each age, and how many events it then holds."""
    if count == 1:
        return (np.ones(len(ages)),) * 2 if size > 1 else (np.zeros(len(ages)),) * 2
    age, span = ages[:, None], spans[None, :]
    running = age < span
    with np.errstate(divide="ignore", invalid="ignore"):
        passed = np.where(running, age / span, 1.0)
    between = count - 2
    if count < size:
        # It never fills: everything that has come is in it.
        held = np.where(running, 1 + between * passed, count)
        return np.ones(len(ages)), held.mean(axis=1)
    # Open while fewer than `size` have come: the first, and at most size - 2 of those between.
    still = np.where(running, _at_most(size - 2, between, passed), 0.0)
    among = _at_most(size - 3, between - 1, passed) if between else np.zeros(passed.shape)
    held = np.where(running, still + between * passed * among, 0.0)
    return still.mean(axis=1), held.mean(axis=1)


def _later_windows(
    count: int, size: int, timeout: float, spans: Floats
) -> tuple[float, float, float, float]:
    """Means over instances of so many events, evenly spaced, of windows after the first.

    Whether there are any, how many, how long they last together, and the events held times how
    long. All but the last one hold as many events as the first.
    """
    gap = spans / max(count - 1, 1)
    fills = ((size - 1) * gap <= timeout) & (size <= count)
    within = np.ceil(timeout / np.maximum(gap, 1e-12 * timeout))
    each = np.where(fills, size, np.clip(within, 1, count))
    rest = np.where(fills | (spans > timeout), count - each, 0)
    whole, left = rest // each, rest % each
    life = np.where(fills, (size - 1) * gap, timeout)
    events = whole * each * (life - gap * (each - 1) / 2)
    events += left * (timeout - gap * (left - 1) / 2)
    lasting = whole * life + (left > 0) * timeout
    several = (rest > 0, whole + (left > 0), lasting, events)
    any_, number, last, held = (float(np.mean(of)) for of in several)
    return any_, number, last, held


def _at_most(most: int, draws: int, chance: Floats) -> Floats:
    """Probability that at most `most` of so many draws succeed."""
    if most < 0:
        return np.zeros(chance.shape)
    if most >= draws:
        return np.ones(chance.shape)
    return np.asarray(special.betainc(draws - most, most + 1, 1 - chance))


def _check(
    rate: float,
    size: int,
    timeout: float,
    sizes: tuple[ArrayLike, ArrayLike],
    arrival_scv: float,
    tuple_bytes: float,
    peak: float,
) -> tuple[Floats, Floats]:
    problems = [
        f"{name} must be a finite number above 0, got {value!r}"
        for name, value in (("rate", rate), ("timeout", timeout), ("tuple_bytes", tuple_bytes))
        if not (is_number(value) and value > 0)
    ]
    if not is_whole(size):
        problems.append(f"size must be a whole number of at least 1, got {size!r}")
    if not (is_number(arrival_scv) and arrival_scv >= 0):
        problems.append(f"arrival_scv must be a finite number of at least 0, got {arrival_scv!r}")
    if not (is_number(peak) and 0.5 <= peak < 1):
        problems.append(f"peak must be a probability from 0.5 to below 1, got {peak!r}")
    counts = np.asarray(sizes[0], dtype=np.float64)
    shares = np.asarray(sizes[1], dtype=np.float64)
    if counts.ndim != 1 or counts.shape != shares.shape or not len(counts):
        problems.append("sizes must be two lists of one length: counts and their probabilities")
    else:
        if not np.all((counts >= 1) & (counts < _MOST) & (counts == np.rint(counts))):
            problems.append("sizes must count at least 1 event, in whole numbers")
        if not (np.all(shares >= 0) and abs(shares.sum() - 1) <= 1e-6):
            problems.append(
                "probabilities of sizes must be at least 0 and sum to 1, they sum to "
                f"{shares.sum():g}"
            )
    if problems:
        raise InvalidCall("window_array", problems)
    return _grouped(counts, shares / shares.sum(), size)


def _grouped(counts: Floats, shares: Floats, size: int) -> tuple[Floats, Floats]:
    """At most about a hundred distinct counts; those around `size` stay as they are."""
    order = np.argsort(counts)
    counts, shares = counts[order], shares[order]
    counts, shares = counts[shares > 0], shares[shares > 0]
    if len(counts) <= _COUNTS:
        return counts, shares
    kept = np.abs(counts - size) <= _COUNTS / 4
    rank = np.minimum((np.cumsum(shares) * _COUNTS / 2).astype(int), _COUNTS)
    # Groups never straddle the size.
    label = np.where(kept, np.arange(len(counts)) + 10 * _COUNTS, rank + (counts > size) * 4000)
    _, label = np.unique(label, return_inverse=True)
    total = np.bincount(label, shares)
    return np.rint(np.bincount(label, shares * counts) / total), np.asarray(total, np.float64)
