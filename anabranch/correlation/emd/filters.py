"""The names of filters, and chains of them; see `line`, `circle` and `chain` for what they do."""

from __future__ import annotations

from typing import Any

from anabranch.correlation.emd.ground import Ground

__all__ = ["CHAINS", "CLOSED", "GENERAL", "read_filters"]

CLOSED = ("mean", "blocks-8", "blocks-32")
GENERAL = (
    "key",
    "centroid",
    "normal",
    "potentials",
    "duals",
    "latest-duals",
    "projections",
    "reference",
    "im",
    "source-greedy",
    "im-cancelled",
    "greedy",
    "exchange",
    "regret",
    "triangle",
)
_NEED_PLACES = ("centroid", "normal", "projections")
# What the EMD-DDSJ paper runs (its figure 3), what it says of Head-SJ, and what is fastest here.
_CHEAP = ("source-greedy", "im-cancelled", "greedy", "regret")
CHAINS = {
    "default": ("key", "centroid", "potentials", "duals", *_CHEAP),
    "paper": ("key", "latest-duals", "im", "source-greedy", "triangle"),
    "head-sj": ("normal", "key", "centroid", "reference"),
}


def read_filters(filters: Any, ground: Ground) -> tuple[tuple[str, ...], list[str]]:
    """The filters that a user asks for, and what is wrong with them.

    Examples
    --------
    >>> read_filters("default", Ground("line", 4))
    (('mean', 'blocks-8', 'blocks-32'), [])
    >>> read_filters(["mean", "greedy"], Ground("line", 4))[1]
    ["filters: 'mean' belongs to the closed form and 'greedy' to the solver: name one sort only"]
    """
    closed = ground.kind in ("line", "circle")
    if isinstance(filters, str):
        if filters not in CHAINS:
            known = ", ".join(repr(name) for name in CHAINS)
            return (), [f"filters must be a list of names or one of {known}, got {filters!r}"]
        return (CLOSED if closed and filters == "default" else CHAINS[filters]), []
    try:
        names = tuple(filters)
    except TypeError:
        return (), [f"filters must be a list of names, got {filters!r}"]
    allowed = (*(CLOSED if closed else ()), *GENERAL)
    problems = [
        f"filters: {name!r} is not one; with ground={ground.kind!r} there are {', '.join(allowed)}"
        for name in names
        if name not in allowed
    ]
    ours = [name for name in names if name in CLOSED]
    others = [name for name in names if name in GENERAL]
    if ours and others and not problems:
        problems.append(
            f"filters: {ours[0]!r} belongs to the closed form and {others[0]!r} to the solver: "
            "name one sort only"
        )
    if ground.kind in ("circle", "matrix"):
        problems += [
            f"filters: {name!r} needs bins with places, and ground is a {ground.kind}"
            for name in names
            if name in _NEED_PLACES
        ]
    return names, problems
