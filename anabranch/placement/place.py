"""The verb: `place`."""

from __future__ import annotations

import importlib
import math
from dataclasses import replace
from typing import Any

import numpy as np

from anabranch.errors import InvalidCall
from anabranch.placement.corenet import CoreNetwork, core_problems, place_on_core
from anabranch.placement.graph import CLOUD
from anabranch.placement.placement import Placement, plan_graph
from anabranch.placement.reading import read_graph
from anabranch.placement.templates import Materialised

__all__ = ["place"]


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
) -> Any:
    """Decide which views run on which device and which in the cloud, at the least traffic.

    Devices talk to the cloud only. A view runs in the cloud or where one of its inputs is. A stream
    crosses a link in one direction once, at the largest rate needed behind it. The result is the
    cheapest placement, with a proof, or says how far from it it may be.

    Parameters
    ----------
    inputs
        One row per input of a view: ``view, input, rate``, as a pandas, Arrow or Spark table or a
        list of tuples. An input is a source or another view; the rate is how much of it the view
        needs. Also what a template makes (`ab.template`), which brings its homes along. A Spark
        table of demand pairs (``a, b, rate_a, rate_b``) is planned by Spark, and the result is a
        DataFrame; see `anabranch.spark.place`.
    homes
        The device of each source, "cloud" for data that lives there: a dict or a table ``source,
        device``.
    up, down
        Cost per unit sent from and to a device: one for all, or dicts by device.
    capacity, load
        How much each device can carry and how heavy each view is (1 unless given). Devices left
        out of `capacity` are not limited.
    shared
        False if each stream is made for one view alone, so that nothing is shared.
    core
        Sites behind the cloud, see `CoreNetwork`.
    time_limit
        Seconds for each integer program, which only conflicts and capacities need.

    Returns
    -------
    Placement
        With ``cost, baseline_cost, optimal, gap, location, table(), traffic(), explain(view),
        replan(changes), without(device)``.

    Raises
    ------
    InvalidCall
        With every problem of the call and the ids concerned.

    Examples
    --------
    >>> import anabranch as ab
    >>> plan = ab.place(
    ...     [("nearby", "gps_alice", 10.0), ("nearby", "gps_bob", 2.0)],
    ...     {"gps_alice": "alice", "gps_bob": "bob"},
    ... )
    >>> plan.location, plan.cost, plan.baseline_cost, plan.optimal
    ({'nearby': 'alice'}, 3.0, 12.0, True)
    >>> print(plan.explain("nearby"))
    nearby runs on alice.
      needs gps_alice (on alice) at 10; its device uploads 0 of it for all views
      needs gps_bob (on bob) at 2; its device uploads 2 of it for all views
      in the cloud the plan would cost +9
      on bob the plan would cost +12
    """
    if hasattr(inputs, "mapInArrow"):
        distributed = importlib.import_module("anabranch.spark.place")
        return distributed.place_frame(
            inputs,
            homes,
            up,
            down,
            capacity=capacity,
            load=load,
            shared=shared,
            core=core,
            time_limit=time_limit,
        )
    if isinstance(inputs, Materialised):
        if homes is not None:
            raise InvalidCall("place", ["homes come with the template: leave them out"])
        inputs, homes = inputs.inputs, inputs.homes
    problems = []
    if homes is None:
        problems.append('homes is missing: give the device of each source, or "cloud"')
    if core is not None and not isinstance(core, CoreNetwork):
        problems.append(f"core must be a CoreNetwork, got {type(core).__name__}")
    if isinstance(time_limit, bool) or not isinstance(time_limit, (int, float)):
        problems.append(f"time_limit must be a number of seconds, got {time_limit!r}")
    elif not math.isfinite(time_limit) or time_limit <= 0:
        problems.append(f"time_limit must be above 0 seconds, got {time_limit!r}")
    if problems:
        raise InvalidCall("place", problems)
    graph = read_graph(inputs, homes, up, down, capacity, load, shared)
    if core is not None and (problems := core_problems(core, graph)):
        raise InvalidCall("place", problems)
    plan = plan_graph(graph, time_limit)
    return plan if core is None else _with_core(plan, core)


def _with_core(plan: Placement, core: CoreNetwork) -> Placement:
    graph = plan.graph
    placed = place_on_core(core, graph, plan.places)
    everything_up = place_on_core(core, graph, np.full(graph.views, CLOUD))
    cost = plan.cost + placed.cost
    return replace(
        plan,
        cost=cost,
        baseline_cost=plan.baseline_cost + everything_up.cost,
        bound=min(plan.bound + placed.bound, cost),
        methods={**plan.methods, "core min cut": len(core.links)},
        core=placed,
    )
