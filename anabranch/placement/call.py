"""The call: what `place` is given, checked, and planned."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pandas as pd

from anabranch.errors import InvalidCall, renamed
from anabranch.placement.corenet import CoreNetwork, core_problems, place_on_core
from anabranch.placement.pinning import Wishes
from anabranch.placement.placement import Placement, plan_graph
from anabranch.placement.reading import DOWNLOAD_COST, OWN, UPLOAD_COST, read_graph
from anabranch.placement.tables import (
    COLUMNS,
    SOURCES,
    column_problems,
    is_cost,
    named_as_given,
    read_table,
)
from anabranch.placement.templates import Materialised

__all__ = ["place", "read_tables", "time_limit_problems"]


@renamed(homes="sources", up="upload_cost", down="download_cost")
def place(
    inputs: Any,
    sources: Any = None,
    upload_cost: Any = UPLOAD_COST,
    download_cost: Any = DOWNLOAD_COST,
    capacity: Any = None,
    load: Any = None,
    *,
    readers: Any = None,
    pin: Any = None,
    columns: Mapping[str, str] | None = None,
    shared: bool = True,
    core: CoreNetwork | None = None,
    time_limit: float = 30.0,
) -> Placement:
    """The best plan for tables in memory: `ab.place` without Spark, and with the same parameters.

    Examples
    --------
    >>> place([("w", "p", 10.0), ("w", "q", 2.0)], {"p": "P", "q": "Q"}).location
    {'w': 'P'}
    >>> place([("w", "p", 10.0), ("w", "q", 2.0)], {"p": "P", "q": "Q"}, up=2.0)
    Traceback (most recent call last):
        ...
    anabranch.errors.InvalidCall: place cannot start: up= is now called upload_cost=
    """
    problems: list[str] = []
    if isinstance(inputs, Materialised):
        if sources is not None:
            problems.append("sources come with the template: leave them out")
        inputs, sources = inputs.inputs, inputs.sources
    elif sources is None:
        problems.append(
            'sources is missing: give the device of each source, or "cloud"; sources="own" puts '
            "each on a device of its own name"
        )
    if core is not None and not isinstance(core, CoreNetwork):
        problems.append(f"core must be a CoreNetwork, got {type(core).__name__}")
    problems += time_limit_problems(time_limit)
    problems += (wrong := column_problems(columns))
    if not wrong:
        inputs, sources = read_tables(inputs, sources, columns, problems)
    if problems:
        raise InvalidCall("place", problems)
    wishes = Wishes(readers, pin, () if core is None else core.nodes)
    given = (inputs, sources, upload_cost, download_cost, capacity, load, shared, wishes)
    try:
        graph = read_graph(*given)
    except InvalidCall as error:
        raise InvalidCall("place", named_as_given(error.problems, columns)) from None
    if core is not None and (problems := core_problems(core, graph)):
        raise InvalidCall("place", problems)
    plan = plan_graph(graph, time_limit)
    return plan if core is None else _with_core(plan, core)


def time_limit_problems(time_limit: Any) -> list[str]:
    """What is wrong with the seconds for an integer program."""
    if is_cost(time_limit) and time_limit > 0:
        return []
    return [f"time_limit must be a number of seconds above 0, got {time_limit!r}"]


def read_tables(
    inputs: Any, sources: Any, own: Any, problems: list[str], name: str = "inputs"
) -> tuple[Any, Any]:
    """Both tables under our names for columns; what is no file and has our names is left alone.

    Files differ in types: where the ids are text in one and numbers in another, all become text.
    """
    files: list[pd.DataFrame] = []
    found = []
    for table, columns, what in ((inputs, COLUMNS, name), (sources, SOURCES, "sources")):
        is_file = (isinstance(table, str) and table != OWN) or hasattr(table, "__fspath__")
        if is_file or (own and hasattr(table, "columns")):
            read = read_table(table, columns, what, problems, own)
            if read is not None:
                table = read
                files += [read] if is_file else []
        found.append(table)
    ids = [(t, c) for t in files for c in ("view", "input", "source") if c in t]
    if len({t[c].map(type).eq(str).any() for t, c in ids if t[c].notna().any()}) > 1:
        for t, c in ids:
            t[c] = t[c].map(str).astype(object).where(t[c].notna(), None)
    return found[0], found[1]


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
