"""Count windows too large for the exact chain: at low load three straight lines say it all."""

from __future__ import annotations

import math
from dataclasses import dataclass

from anabranch.calls import is_whole
from anabranch.errors import InvalidCall

__all__ = ["LinearLaw", "linear_law"]


@dataclass(frozen=True)
class LinearLaw:
    """Figures of a count window of `size` tuples; see `linear_law`."""

    size: int
    L: float
    Lq: float
    W: float
    Wq: float
    utilisation: float


def linear_law(size: int, rate: float, service_mean: float) -> LinearLaw:
    """Length and stay of a count window (a = b = size) while the server is mostly idle.

    A tuple waits for on average half of its window to fill: Lq = (K - 1)/2 and
    Wq = (K - 1)/(2 rate), and then for the batch to be served. The DSSIS paper fits two lines to
    its model instead (equation 11, slopes 0.4994 and 0.5518); they need no fit.

    Parameters
    ----------
    size
        Tuples per window, K.
    rate
        Tuples per unit of time.
    service_mean
        Mean time to serve one window.

    Examples
    --------
    The paper's window of 8000 tuples, in milliseconds: printed 3994.47 tuples and 4413.9 ms.

    >>> law = linear_law(8000, 1 / 1.1049, 0.6121)
    >>> round(law.L, 1), round(law.W, 1)
    (4000.1, 4419.7)
    """
    problems = [
        f"{name} must be a finite number above 0, got {value!r}"
        for name, value in (("rate", rate), ("service_mean", service_mean))
        if not (value > 0 and math.isfinite(value))
    ]
    if not is_whole(size):
        problems.append(f"size must be a whole number of at least 1, got {size!r}")
    used = 0.0 if problems else rate * service_mean / size
    if used >= 0.9:
        problems.append(
            f"the server is used to {used:.3g}: batches would queue for each other, and the law "
            "holds only while they do not; take bulk_queue"
        )
    if problems:
        raise InvalidCall("linear_law", problems)
    Lq, Wq = (size - 1) / 2, (size - 1) / (2 * rate)
    return LinearLaw(
        size=size,
        L=Lq + rate * service_mean,
        Lq=Lq,
        W=Wq + service_mean,
        Wq=Wq,
        utilisation=used,
    )
