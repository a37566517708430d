"""The call: what `place` is given, checked, and planned."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from anabranch.errors import InvalidCall
from anabranch.placement.corenet import CoreNetwork, core_problems, place_on_core
from anabranch.placement.placement import Placement, plan_graph
from anabranch.placement.reading import read_graph
from anabranch.placement.tables import is_cost
from anabranch.placement.templates import Materialised

__all__ = ["place", "time_limit_problems"]


def place(
    inputs: Any,
    homes: Any = None,
    up: Any = 1.0,
    down: Any = 0.5,
    capacity: Any = None,
    load: Any = None,
    *,
    shared: bool = True,
    core: CoreNetwork | None = None,
    time_limit: float = 30.0,
) -> Placement:
    """The best plan for tables in memory: `ab.place` without Spark, and with the same parameters.

    Examples
    --------
    >>> place([("w", "p", 10.0), ("w", "q", 2.0)], {"p": "P", "q": "Q"}).location
    {'w': 'P'}
    """
    if isinstance(inputs, Materialised):
        if homes is not None:
            raise InvalidCall("place", ["homes come with the template: leave them out"])
        inputs, homes = inputs.inputs, inputs.homes
    problems = []
    if homes is None:
        problems.append('homes is missing: give the device of each source, or "cloud"')
    if core is not None and not isinstance(core, CoreNetwork):
        problems.append(f"core must be a CoreNetwork, got {type(core).__name__}")
    problems += time_limit_problems(time_limit)
    if problems:
        raise InvalidCall("place", problems)
    graph = read_graph(inputs, homes, up, down, capacity, load, shared)
    if core is not None and (problems := core_problems(core, graph)):
        raise InvalidCall("place", problems)
    plan = plan_graph(graph, time_limit)
    return plan if core is None else _with_core(plan, core)


def time_limit_problems(time_limit: Any) -> list[str]:
    """What is wrong with the seconds for an integer program."""
    if is_cost(time_limit) and time_limit > 0:
        return []
    return [f"time_limit must be a number of seconds above 0, got {time_limit!r}"]


def _with_core(plan: Placement, core: CoreNetwork) -> Placement:
    graph = plan.graph
    placed = place_on_core(core, graph, plan.places)
    cost = plan.cost + placed.cost
    return replace(
        plan,
        cost=cost,
        baseline_cost=plan.baseline_cost + placed.bound,  # the bound: every view is free
        bound=min(plan.bound + placed.bound, cost),
        methods={**plan.methods, "core min cut": len(core.links)},
        core=placed,
    )
