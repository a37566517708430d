"""Load shedding: how much of the input may be admitted so that hardly any of it is lost."""

from __future__ import annotations

import math
from dataclasses import dataclass

from anabranch.errors import InvalidCall
from anabranch.fitting.erlang import HyperErlang
from anabranch.fitting.phasetype import PhaseType
from anabranch.queueing.arrivals import MAP
from anabranch.queueing.bulk import _arrivals, bulk_queue

__all__ = ["Shedding", "max_rate_for_loss"]


@dataclass(frozen=True)
class Shedding:
    """How fast the input may be.

    Attributes
    ----------
    factor
        The input may run at this many times its rate.
    rate
        That rate.
    shed
        Share of today's input to drop at the door; 0 if there is room to spare.
    loss
        Loss at that rate, which was asked for.
    loss_now
        Loss at today's rate.
    """

    factor: float
    rate: float
    shed: float
    loss: float
    loss_now: float


def max_rate_for_loss(
    arrivals: MAP | PhaseType | HyperErlang,
    service: PhaseType | HyperErlang,
    room: int,
    loss: float,
    *,
    a: int = 1,
    b: int | None = None,
) -> Shedding:
    """The highest rate at which an operator loses at most a share `loss` of its tuples.

    The input keeps its shape and changes its speed. Dropping tuples at the door thins a stream
    instead; a thinned stream is less bursty, so what this says is on the safe side for bursty
    input.

    Parameters
    ----------
    arrivals, service, room, a, b
        The queue, as in `bulk_queue`.
    loss
        Share of tuples that may be lost.

    Examples
    --------
    M/M/1 with room for one waiting tuple loses r^2 / (1 + r + r^2):

    >>> from anabranch.fitting import Erlang
    >>> from anabranch.queueing import poisson
    >>> plan = max_rate_for_loss(poisson(1.0), Erlang(1, 1.0), 1, 1 / 7)
    >>> round(plan.factor, 6), round(plan.shed, 6)
    (0.5, 0.5)
    """
    if not 0 < loss < 1:
        raise InvalidCall("max_rate_for_loss", [f"loss must be in (0, 1), got {loss!r}"])
    process = _arrivals(arrivals)

    def lost(log_factor: float) -> float:
        faster = process.faster(math.exp(log_factor))
        return bulk_queue(faster, service, room, a=a, b=b).P_loss

    low = high = 0.0
    now = lost(0.0)
    if now <= loss:
        while high < 60 and lost(high := high + 1.0) <= loss:
            low = high
    else:
        while low > -60 and lost(low := low - 1.0) > loss:
            high = low
    for _ in range(60):
        middle = (low + high) / 2
        if lost(middle) <= loss:
            low = middle
        else:
            high = middle
        if high - low < 1e-12:
            break
    factor = math.exp(low)
    return Shedding(
        factor=factor,
        rate=process.rate * factor,
        shed=max(0.0, 1.0 - factor),
        loss=lost(low),
        loss_now=now,
    )
