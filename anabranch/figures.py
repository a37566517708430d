"""Figures as people read them."""

from __future__ import annotations

__all__ = ["count"]


def count(number: float) -> str:
    """A count as people read it.

    Examples
    --------
    >>> [count(n) for n in (0, 7, 999, 1234, 56_789, 1_234_567, 3.4e8, 2.5e12)]
    ['0', '7', '999', '1.2k', '57k', '1.2M', '340M', '2.5T']
    """
    units = iter(("", "k", "M", "G"))
    unit = next(units)
    while abs(number) >= 999.5:
        number /= 1000
        unit = next(units, "T")
    if unit and abs(number) < 9.95:
        return f"{number:.1f}{unit}"
    return f"{number:.0f}{unit}"
