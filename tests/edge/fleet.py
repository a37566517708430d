"""A fleet of devices, the cloud's evaluators without Spark, and the twin that knows the answer."""

from __future__ import annotations

import asyncio
import math
import sqlite3
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from anabranch.edge.definitions import Definition, Stream, View
from anabranch.edge.frames import decode_output
from anabranch.testing.lab.results import Identity, identities, rows_of

WINDOW, NEAR = 2_000_000, 10.0


def friends(devices: Iterable[str], pairs: Iterable[tuple[int, int]], place: str = "cloud") -> Any:
    """Streams, definition and views of who is near whom, for `KeeperState.add`."""
    names = list(devices)
    streams = [Stream(f"gps[{name}]", name, {"xy": "array<double>"}) for name in names]
    near = Definition(
        "near",
        "pairs",
        (WINDOW, WINDOW),
        ["euclidean", "xy", "xy", None, "<=", NEAR],
        deliver=("cloud", "inputs"),
    )
    views = [(View(f"near({names[a]},{names[b]})", "near", (a, b)), place) for a, b in pairs]
    return streams, [near], views


def ring(count: int) -> list[tuple[int, int]]:
    """Everybody has two friends."""
    return [(k, (k + step) % count) for k in range(count) for step in (1, 2)]


def kept(folder: Path) -> tuple[list[tuple[int, int, list[float]]], Counter[Identity]]:
    """The rows of a device's outbox, and the results that it has been shown or will be."""
    base = sqlite3.connect(folder / "outbox.db")
    results: Counter[Identity] = Counter()
    for (content,) in base.execute("SELECT content FROM results"):
        results += identities(decode_output(content).results)
    base.close()
    return rows_of(folder), results


def twin(
    rows: Mapping[int, list[tuple[int, int, list[float]]]], pairs: list[tuple[int, int]]
) -> Counter[Identity]:
    """Every pair of every view within the window; rows by number of their stream, by time."""
    found: Counter[Identity] = Counter()
    for view, (left, right) in enumerate(pairs):
        times = [t for _, t, _ in rows[right]]
        assert times == sorted(times)
        for n, t, (x, y) in rows[left]:
            some = slice(bisect_left(times, t - WINDOW), bisect_right(times, t + WINDOW))
            for m, _, (v, w) in rows[right][some]:
                if math.hypot(x - v, y - w) <= NEAR:
                    found[view, n, m] += 1
    return found


async def quiet(holds: Any, patience: float = 30.0) -> None:
    """Wait for what must happen, and fail loudly if it does not."""
    for _ in range(int(patience / 0.05)):
        if holds():
            return
        await asyncio.sleep(0.05)
    raise AssertionError(f"it did not happen within {patience} seconds")


def walk(rng: np.random.Generator, steps: int) -> np.ndarray:
    """Positions of one who wanders in a small town."""
    return np.cumsum(rng.normal(0, 2, (steps, 2)), axis=0) + rng.uniform(0, 20, 2)
