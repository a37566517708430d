"""How good a service is at least and at most, given how often it kept its promise."""

from __future__ import annotations

import math

__all__ = ["Z95", "wilson_lower", "wilson_upper"]

Z95 = 1.959963984540054


def wilson_lower(met: float, total: float, z: float = Z95) -> float:
    """The lower end of Wilson's interval for a share; 0 if nothing is known.

    A service that kept 9 of 10 promises is worth less than one that kept 88 of 100: we know less
    of it.

    Examples
    --------
    >>> round(wilson_lower(9, 10), 3), round(wilson_lower(88, 100), 3)
    (0.596, 0.802)
    >>> wilson_lower(0, 0)
    0.0
    """
    if total <= 0 or met <= 0:
        return 0.0
    # Multiplied out, so that next to no weight does no harm.
    spread = z * math.sqrt(max(met * (1 - met / total), 0.0) + z * z / 4)
    return max(0.0, (met + z * z / 2 - spread) / (total + z * z))


def wilson_upper(met: float, total: float, z: float = Z95) -> float:
    """The upper end of Wilson's interval for a share; 1 if nothing is known.

    Examples
    --------
    >>> round(wilson_upper(9, 10), 3), wilson_upper(10, 10), wilson_upper(0, 0)
    (0.982, 1.0, 1.0)
    """
    return 1.0 - wilson_lower(total - met, total, z)
