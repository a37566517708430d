"""Queues of many servers, from two moments: G/G/c after Allen and Cunneen, and G/G/infinity."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy import special

from anabranch.assembly.fitting.distribution import Distribution
from anabranch.calls import is_whole
from anabranch.errors import InvalidCall

__all__ = ["GGInfinity", "GGc", "gg_infinity", "ggc"]


@dataclass(frozen=True)
class GGc:
    """Figures of a queue with `servers` servers and unlimited room."""

    L: float
    Lq: float
    W: float
    Wq: float
    P_wait: float
    utilisation: float
    servers: int


@dataclass(frozen=True)
class GGInfinity:
    """Figures of a queue where nobody waits.

    `peak` is exceeded with the probability that was asked for, by the normal law that such queues
    follow when they are busy; `spread` is variance over mean, 1 for Poisson arrivals.
    """

    L: float
    W: float
    spread: float
    peak: float


def ggc(
    rate: float,
    service_mean: float,
    servers: int,
    *,
    arrival_scv: float = 1.0,
    service_scv: float = 1.0,
) -> GGc:
    """G/G/c: the wait of M/M/c times the mean of the two variations (Allen and Cunneen).

    Exact for M/M/c; for M/G/1 it is the Pollaczek-Khinchine formula.

    Examples
    --------
    >>> round(ggc(0.9, 1.0, 1).Lq, 6)   # M/M/1: rho^2 / (1 - rho)
    8.1
    >>> ggc(2.0, 1.0, 2)
    Traceback (most recent call last):
        ...
    anabranch.errors.InvalidCall: ggc cannot start: 2 servers of mean time 1 cannot keep up with a \
rate of 2 (utilisation 1); take at least 3
    """
    problems = _moments(rate, service_mean, arrival_scv, service_scv)
    if not is_whole(servers):
        problems.append(f"servers must be a whole number of at least 1, got {servers!r}")
    if not problems and rate * service_mean >= servers:
        load = rate * service_mean
        problems.append(
            f"{servers} servers of mean time {service_mean:g} cannot keep up with a rate of "
            f"{rate:g} (utilisation {load / servers:.4g}); take at least {math.floor(load) + 1}"
        )
    if problems:
        raise InvalidCall("ggc", problems)
    load = rate * service_mean
    used = load / servers
    wait = _erlang_c(int(servers), load)
    Lq = wait * used / (1 - used) * (arrival_scv + service_scv) / 2
    return GGc(
        L=Lq + load,
        Lq=Lq,
        W=Lq / rate + service_mean,
        Wq=Lq / rate,
        P_wait=wait,
        utilisation=used,
        servers=int(servers),
    )


def gg_infinity(
    rate: float,
    service: Distribution | float,
    *,
    arrival_scv: float = 1.0,
    peak: float = 0.999,
) -> GGInfinity:
    """G/G/infinity: nobody waits, and the number in the system is rate times mean time.

    Parameters
    ----------
    rate
        Arrivals per unit of time.
    service
        The distribution of the time in the system, or its mean if it is a constant.
    arrival_scv
        Squared coefficient of variation of the gaps.
    peak
        Probability that the peak is not exceeded.

    Examples
    --------
    >>> many = gg_infinity(102.27, 20.7137)
    >>> round(many.L, 1), round(many.peak)
    (2118.4, 2261)
    """
    constant = not isinstance(service, Distribution)
    mean = service.mean if isinstance(service, Distribution) else float(service)
    problems = _moments(rate, mean, arrival_scv, 0.0)
    if not 0.5 <= peak < 1:
        problems.append(f"peak must be a probability from 0.5 to below 1, got {peak!r}")
    if problems:
        raise InvalidCall("gg_infinity", problems)
    L = rate * mean
    squared = mean if constant else _squared_survival(service)  # type: ignore[arg-type]
    spread = max(1 + (arrival_scv - 1) * squared / mean, 0.0)
    return GGInfinity(
        L=L,
        W=mean,
        spread=spread,
        peak=L + float(special.ndtri(peak)) * math.sqrt(spread * L),
    )


def _squared_survival(service: Distribution) -> float:
    """Integral of the squared probability of lasting longer."""
    edges = np.unique(
        np.concatenate([[0.0], service.ppf(np.linspace(0.001, 0.999, 60)), service.ppf([1 - 1e-9])])
    )
    nodes, weights = np.polynomial.legendre.leggauss(8)
    widths = np.diff(edges) / 2
    points = edges[:-1, None] + widths[:, None] * (nodes + 1)
    return float((service.sf(points) ** 2 @ weights) @ widths)


def _erlang_c(servers: int, load: float) -> float:
    """Probability of waiting in M/M/c, in logarithms: c may be in the thousands."""
    log_full = servers * math.log(load) - load - math.lgamma(servers + 1)
    below = float(special.gammaincc(servers, load))
    full = math.exp(log_full) / (1 - load / servers)
    return full / (below + full)


def _moments(rate: float, mean: float, arrival_scv: float, service_scv: float) -> list[str]:
    problems = [
        f"{name} must be a finite number above 0, got {value!r}"
        for name, value in (("rate", rate), ("the mean service time", mean))
        if not (value > 0 and math.isfinite(value))
    ]
    problems += [
        f"{name} must be a finite number of at least 0, got {value!r}"
        for name, value in (("arrival_scv", arrival_scv), ("service_scv", service_scv))
        if not (value >= 0 and math.isfinite(value))
    ]
    return problems
