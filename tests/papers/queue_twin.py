"""Queues played through event by event: the obvious twins that judge the solvers."""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np

from papers.dssis.tracing import Trace


@dataclass
class Played:
    """Time averages of a queue that was played."""

    L: float
    Lq: float
    W: float
    busy: float
    busy_at_arrivals: float
    loss: float


def play_bulk(gaps: np.ndarray, services: np.ndarray, a: int, b: int, room: int) -> Played:
    """One server takes a to b tuples at a time; `room` of them may wait."""
    clock = end = 0.0
    waiting: list[float] = []
    batch: list[float] = []
    busy_time = queue_time = system_time = stay = 0.0
    lost = seen_busy = 0
    served = 0

    def advance(to: float) -> None:
        nonlocal clock, busy_time, queue_time, system_time
        step = to - clock
        busy_time += step * bool(batch)
        queue_time += step * len(waiting)
        system_time += step * (len(waiting) + len(batch))
        clock = to

    def begin() -> None:
        nonlocal end, served, batch, waiting
        if len(waiting) >= a:
            batch, waiting = waiting[:b], waiting[b:]
            end = clock + services[served]
            served += 1

    accepted = 0
    arrival = 0.0
    for gap in gaps:
        arrival += gap
        while batch and end <= arrival:
            advance(end)
            stay += sum(clock - t for t in batch)
            accepted += len(batch)
            batch = []
            begin()
        advance(arrival)
        seen_busy += bool(batch)
        if batch and len(waiting) == room:
            lost += 1
            continue
        waiting.append(arrival)
        if not batch:
            begin()
    count = len(gaps)
    return Played(
        system_time / clock,
        queue_time / clock,
        stay / max(accepted, 1),
        busy_time / clock,
        seen_busy / count,
        lost / count,
    )


def play_windows(trace: Trace, size: int, timeout: float, key: np.ndarray | None = None):
    """Small windows, tuple by tuple: rows of (key, opened, closed, reason, tuple numbers)."""
    keys = trace.truth if key is None else key
    limit = int(timeout * 1e6)
    open_windows: dict[int, list[int]] = {}
    opened: dict[int, int] = {}
    deadlines: list[tuple[int, int]] = []
    rows = []

    def close(k: int, at: int, reason: str) -> None:
        rows.append((k, opened.pop(k), at, reason, open_windows.pop(k)))

    for number, (now, k) in enumerate(zip(trace.arrival_ts.tolist(), keys.tolist(), strict=True)):
        while deadlines and deadlines[0][0] <= now:
            due, who = heapq.heappop(deadlines)
            if opened.get(who) == due - limit:
                close(who, due, "timeout")
        if k not in open_windows:
            open_windows[k], opened[k] = [], now
            heapq.heappush(deadlines, (now + limit, k))
        open_windows[k].append(number)
        if len(open_windows[k]) == size:
            close(k, now, "full")
    for k in list(open_windows):
        close(k, opened[k] + limit, "timeout")
    return rows


def play_join(rates, windows, base: float, each: float, seconds: float, seed: int) -> float:
    """Mean wait of a windowed join whose work grows with the other side's window."""
    rng = np.random.default_rng(seed)
    times, sides = [], []
    for side, rate in enumerate(rates):
        count = rng.poisson(rate * seconds)
        times.append(np.sort(rng.random(count) * seconds))
        sides.append(np.full(count, side))
    work = []
    for side in (0, 1):
        other = times[1 - side]
        first = np.searchsorted(other, times[side] - windows[1 - side], side="right")
        found = np.searchsorted(other, times[side], side="left") - first
        work.append(base + each * found)
    at = np.concatenate(times)
    order = np.argsort(at, kind="stable")
    at, load = at[order], np.concatenate(work)[order]
    # Lindley's recursion in closed form: the walk less its running least value.
    walk = np.concatenate([[0.0], np.cumsum(load[:-1] - np.diff(at))])
    waits = walk - np.minimum.accumulate(walk)
    return float(waits[len(waits) // 10 :].mean())
