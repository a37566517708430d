"""The verb `ab.place`, for tables of every kind.

Spark is not needed to plan: nothing here imports it before a Spark DataFrame is given.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from anabranch.errors import InvalidCall
from anabranch.placement import call
from anabranch.placement.corenet import CoreNetwork
from anabranch.placement.tables import COLUMNS, HOMES, listed
from anabranch.spark.frames import is_frame

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
        needs. Also what a template makes (`ab.template`), which brings its homes along. Or a Spark
        table of demand pairs, see below.
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
    Placement or DataFrame
        A plan with ``cost, baseline_cost, optimal, gap, location, table(), traffic(),
        explain(view), replan(changes), without(device)``; for demand pairs a DataFrame.

    Raises
    ------
    InvalidCall
        With every problem of the call and the ids concerned.

    Notes
    -----
    A Spark table of views is brought to the driver and planned there. A Spark table with columns
    ``a, b, rate_a, rate_b`` holds demand pairs, one view per pair of streams, each stream on the
    device of its own name: those are planned by Spark, and the result is the DataFrame with a
    column ``location`` more. Pairs take one cost for all devices, and no capacities or core; their
    `homes` is a dict of the streams that live in the "cloud", left out if there are none. Other
    columns are kept. A ``location`` that is there already, of an earlier plan, is replaced, so that
    a result with new rates can be planned again.

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
    >>> pairs = spark.createDataFrame(
    ...     [("ann", "bob", 10.0, 2.0), ("bob", "cy", 1.0, 1.0)],
    ...     "a string, b string, rate_a double, rate_b double",
    ... )
    >>> ab.place(pairs, up=1.0, down=1.0).orderBy("a").select("a", "b", "location").collect()
    [Row(a='ann', b='bob', location='ann'), Row(a='bob', b='cy', location='cloud')]
    """
    options = {
        "capacity": capacity,
        "load": load,
        "shared": shared,
        "core": core,
        "time_limit": time_limit,
    }
    _refuse_streams({"the DataFrame": inputs, "homes": homes})
    if is_frame(inputs) and not set(COLUMNS) <= set(inputs.columns):
        from anabranch.spark.demand_pairs import place_pairs  # with all of pyspark

        return place_pairs(inputs, homes, up, down, options)
    if is_frame(homes) and not set(HOMES) <= set(homes.columns):
        problem = f"homes needs columns {', '.join(HOMES)}; it has {listed(homes.columns)}"
        raise InvalidCall("place", [problem])
    return call.place(_on_driver(inputs, COLUMNS), _on_driver(homes, HOMES), up, down, **options)


def _refuse_streams(tables: Mapping[str, Any]) -> None:
    problems = [
        f"{name} is streaming: place plans tables; read it with spark.read"
        for name, table in tables.items()
        if is_frame(table) and table.isStreaming
    ]
    if problems:
        raise InvalidCall("place", problems)


def _on_driver(table: Any, columns: tuple[str, ...]) -> Any:
    """A Spark table as an Arrow table, anything else as it is."""
    return table.select(*columns).toArrow() if is_frame(table) else table
