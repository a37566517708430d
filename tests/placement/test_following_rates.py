"""Meters of devices and the steering of a hub, second by second: a change of rates is followed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from anabranch.edge.meter import Meter
from anabranch.placement.call import place
from anabranch.placement.steering import Running, Steering

SECOND = 1_000_000
DEVICES, CHANGE, END = 100, 90, 150
ROW = 24.0  # bytes


def rows_in(second: int, device: int, rng: np.random.Generator) -> int:
    """Half of them look twice a second, half every fifth; then it is the other way round."""
    busy = (device % 2 == 0) != (second >= CHANGE)
    return int(rng.poisson(2.0 if busy else 0.2))


def friends() -> list[Running]:
    rng = np.random.default_rng(7)
    pairs = {
        (int(rng.integers(0, DEVICES // 2)) * 2, q) for q in range(1, DEVICES, 2) for _ in "ab"
    }
    return [
        Running(f"near({a},{b})", (f"gps[{a}]", f"gps[{b}]"), (1.0, 1.0), 5.0)
        for a, b in sorted(pairs)
    ]


def test_views_follow_a_change_of_rates_within_half_a_minute() -> None:
    rng = np.random.default_rng(1)
    meters = [Meter() for _ in range(DEVICES)]
    homes = {f"gps[{k}]": str(k) for k in range(DEVICES)}
    views = {view.name: view for view in friends()}
    steering = Steering()
    moved: dict[str, int] = {}
    for second in range(END):
        for device, meter in enumerate(meters):
            meter.count(second * SECOND, rows_in(second, device, rng))
            rate = meter.due(second * SECOND)
            if rate is not None:
                steering.report(f"gps[{device}]", {1.0: rate * ROW})
        for decision in steering.decide(float(second), list(views.values()), homes):
            since = -np.inf if decision.origin is None else float(second)
            views[decision.view] = replace(views[decision.view], place=decision.place, since=since)
            if second >= CHANGE and decision.origin is not None:
                moved.setdefault(decision.view, second - CHANGE)
                assert decision.cause["account"] > 0 and "saves" in decision.cause
    truth = {k: (0.2 if k % 2 == 0 else 2.0) * ROW for k in range(DEVICES)}
    demand = [
        (view.name, stream, truth[int(homes[stream])])
        for view in views.values()
        for stream in view.inputs
    ]
    homes = {stream: homes[stream] for _, stream, _ in demand}
    best = place(demand, homes, 1.0, 0.5)
    pinned = place(demand, homes, 1.0, 0.5, pin={name: v.place for name, v in views.items()})
    cloud = place(demand, homes, 1.0, 0.5, pin=dict.fromkeys(views, "cloud"))
    delays = sorted(moved.values())
    assert len(moved) == len(views) and delays[-1] <= 30
    assert pinned.cost < 1.1 * best.cost < 0.5 * cloud.cost
