"""Streams and views as they are declared and shipped: data, never code."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

__all__ = ["COLUMN_TYPES", "Definition", "Stream", "View", "listed", "read_definition", "read_view"]


COLUMN_TYPES: dict[str, Any] = {
    "double": np.float64,
    "float": np.float32,
    "bigint": np.int64,
    "int": np.int32,
    "boolean": np.bool_,
    "string": object,
}
"""The arrays of columns by their types; of array<...> there are vectors of these."""


@dataclass(frozen=True)
class Stream:
    """One feed of one device; its number is its place in the log of placements.

    `columns` maps names to types as Spark prints them: double, float, bigint, int, boolean, string,
    array<double>, array<float>. With a `tick`, in microseconds, only the first row of a tick can be
    sampled; without one (0) every row is needed by every view.
    """

    name: str  # gps[alice]
    home: str  # alice: the device
    columns: Mapping[str, str]
    tick: int = 0


@dataclass(frozen=True)
class Definition:
    """What views of one template compute.

    `kind` is ``pairs`` or ``each``. A pair (a, b) of ``pairs`` has ``-window[0] <= a.t - b.t <=
    window[1]``, in microseconds, as in `ab.correlate`. `where` is the form of a predicate
    (`conditions.to_form`), None if all match. `keep` lists the columns of either side that results
    carry. `deliver` says who gets results besides their place: ``cloud``, ``inputs``.
    """

    name: str
    kind: str
    window: tuple[int, int] = (0, 0)
    where: Any = None
    keep: tuple[tuple[str, ...], ...] = ((), ())
    deliver: tuple[str, ...] = ("cloud",)


@dataclass(frozen=True)
class View:
    """A definition over streams, each at a share; its number is its place in the log."""

    name: str  # nearby(gps[alice],gps[bob])
    definition: str
    inputs: tuple[int, ...]  # numbers of streams
    shares: tuple[float, ...] = field(default=(1.0, 1.0))


def listed(one: Any) -> list[Any]:
    """The fields of a dataclass in their order, from which it can be made again.

    Examples
    --------
    >>> listed(View("near", "near", (0, 1)))
    ['near', 'near', (0, 1), (1.0, 1.0)]
    """
    return list(vars(one).values())


def read_definition(form: Any) -> Definition:
    """A definition from its fields."""
    name, kind, window, where, keep, deliver = form
    sides = tuple(tuple(side) for side in keep)
    return Definition(name, kind, tuple(window), where, sides, tuple(deliver))


def read_view(form: Any) -> View:
    """A view from its fields."""
    name, definition, inputs, shares = form
    return View(name, definition, tuple(inputs), tuple(map(float, shares)))
