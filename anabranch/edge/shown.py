"""Results as the functions of an application get them, one by one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from anabranch.edge.definitions import Definition
from anabranch.edge.sections import Results

__all__ = ["results_of"]


def results_of(view: str, definition: Definition, found: Results) -> Iterator[dict[str, Any]]:
    """Results one by one, for people: numbers and times of their rows, and what is kept of them."""
    sides = ("left_", "right_") if len(found.n) == 2 else ("",)
    names = [
        side + name for side, kept in zip(sides, definition.keep, strict=False) for name in kept
    ]
    columns = {
        **{f"{side}n": n for side, n in zip(sides, found.n, strict=True)},
        **{f"{side}time": t for side, t in zip(sides, found.t, strict=True)},
        "score": found.score,
        **dict(zip(names, found.columns, strict=True)),
    }
    for k in range(len(found.stamp)):
        yield {"view": view} | {
            name: np.asarray(values[k]).tolist() for name, values in columns.items()
        }
