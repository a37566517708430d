"""Load shedding: how much of the input may be admitted so that hardly any of it is lost."""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Real

from anabranch.assembly.fitting.erlang import HyperErlang
from anabranch.assembly.fitting.phasetype import PhaseType
from anabranch.errors import InvalidCall
from papers.dssis.queueing.arrivals import MAP
from papers.dssis.queueing.bulk import QueueFigures, _arrivals, bulk_queue

__all__ = ["Shedding", "max_rate_for_loss"]

_FURTHEST = 60  # as a power of e


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

    Raises
    ------
    InvalidCall
        Also if no rate within a factor of e^60 of today's has this loss.

    Examples
    --------
    M/M/1 with room for one waiting tuple loses r^2 / (1 + r + r^2):

    >>> from anabranch.assembly.fitting import Erlang
    >>> from papers.dssis.queueing import poisson
    >>> plan = max_rate_for_loss(poisson(1.0), Erlang(1, 1.0), 1, 1 / 7)
    >>> round(plan.factor, 6), round(plan.shed, 6)
    (0.5, 0.5)
    """
    if not (isinstance(loss, Real) and 0 < loss < 1):
        raise InvalidCall(
            "max_rate_for_loss", [f"loss must be a number between 0 and 1, got {loss!r}"]
        )
    process = _arrivals(arrivals)

    def at(log_factor: float) -> QueueFigures:
        faster = process.faster(math.exp(log_factor))
        return bulk_queue(faster, service, room, a=a, b=b)

    def kept(log_factor: float) -> bool:
        found = at(log_factor)
        # Near one a loss has few digits; what is not lost has all of them.
        if loss > 0.5:
            return found.effective_rate / found.rate >= 1 - loss
        return found.P_loss <= loss

    low = high = 0.0
    if kept(0.0):
        while kept(high):
            low, high = high, high + 1.0
            if high > _FURTHEST:
                raise _out_of_reach(loss, at(low).P_loss, f"e^{_FURTHEST} times as fast")
    else:
        while not kept(low):
            low, high = low - 1.0, low
            if low < -_FURTHEST:
                raise _out_of_reach(loss, at(high).P_loss, f"e^{_FURTHEST} times as slow")
    while high - low >= 1e-12:
        middle = (low + high) / 2
        if not low < middle < high:
            break
        if kept(middle):
            low = middle
        else:
            high = middle
    factor = math.exp(low)
    return Shedding(
        factor=factor,
        rate=process.rate * factor,
        shed=max(0.0, 1.0 - factor),
        loss=at(low).P_loss,
        loss_now=at(0.0).P_loss,
    )


def _out_of_reach(loss: float, found: float, where: str) -> InvalidCall:
    return InvalidCall(
        "max_rate_for_loss",
        [
            f"a loss of {loss!r} is out of reach: with input {where} as today it is still "
            f"{found:.4g}; ask for another loss, or change room or service"
        ],
    )
