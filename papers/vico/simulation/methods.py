"""How frames are spread over hosts: plans, adaptive plans, and the paper's two baselines."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from anabranch.plans.arguments import other_side
from anabranch.plans.costs import choose, weighted
from anabranch.plans.hashed import Broadcast
from anabranch.plans.plan import SIDES, Plan
from anabranch.plans.segments import Segments
from papers.vico.simulation.settings import Settings
from papers.vico.simulation.workload import SECOND, Hosts

__all__ = ["METHODS", "Method", "first_plan", "whole_operators"]


@dataclass(frozen=True)
class Method:
    """A start, and what may change it.

    `start` is ``broadcast``, ``segments``, ``grid``, ``distribution`` or ``diffusion``; `policies`
    are names of `anabranch.plans.policies`.
    """

    name: str
    start: str
    policies: tuple[str, ...] = ()


METHODS = {
    method.name: method
    for method in (
        Method("SSP", "broadcast"),
        Method("CSP", "segments"),
        Method("grid", "grid"),
        Method("LLF-Distribution", "distribution"),
        Method("LLF-Diffusion", "diffusion"),
        Method("SSP-roleAdapt", "broadcast", ("role",)),
        Method("SSP-shapeAdapt", "broadcast", ("shape",)),
        Method("CSP-segmentAdapt", "segments", ("segment",)),
        Method("CSP-roleAdapt", "segments", ("role",)),
        Method("CSP-fullAdapt", "segments", ("role", "segment")),
        Method("CSP-anyPlan", "segments", ("shape", "role", "kind", "weights", "segment")),
    )
}


def first_plan(
    start: str, settings: Settings, rates: tuple[float, float], speeds: np.ndarray
) -> Plan:
    """The plan to begin with, for an operator whose workers are as fast as this.

    Examples
    --------
    >>> speeds = np.array([1000.0, 500.0])
    >>> first_plan("broadcast", Settings(hosts=2, master="faster"), (1.0, 5.0), speeds)
    Broadcast(workers=2, weights=(1.3, 0.7), side='left')
    """
    # The paper's master is the side that is spread; plans name the other one, which is copied.
    k, master = settings.hosts, settings.master
    if master == "faster":
        master = SIDES[int(rates[1] > rates[0])]
    plan: Plan
    if start == "broadcast":
        plan = Broadcast(k, side=other_side(master))
    elif start == "segments":
        plan = Segments(k, settings.segment * SECOND, other_side(master))
    else:
        plan = choose(k, rates)
    if settings.shares == "speed":
        return weighted(plan, speeds.tolist()) or plan
    return plan


def whole_operators(settings: Settings, rates: np.ndarray, hosts: Hosts) -> list[int]:
    """LLF-Distribution: one host for each operator, each time the least loaded; the fastest first.

    Examples
    --------
    >>> hosts = Hosts(np.array([200.0, 100.0]), np.ones(2), np.ones(2))
    >>> whole_operators(Settings(hosts=2, operators=3), np.ones((2, 3)), hosts)
    [0, 1, 0]
    """
    load = np.zeros(settings.hosts)
    chosen = []
    for left, right in rates.T:
        host = int(np.argmin(load))
        pairs = left * right * sum(settings.window)
        units = settings.receive_cost * (left + right) + settings.compare_cost * pairs
        load[host] += units / hosts.speed[host]
        chosen.append(host)
    return chosen
