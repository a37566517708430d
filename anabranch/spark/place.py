"""The verbs `ab.place` and `ab.place_pairs`, for tables of every kind.

Spark is not needed to plan: nothing here imports it before a Spark DataFrame is given.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from anabranch.errors import InvalidCall, renamed
from anabranch.flow.progress import step, working
from anabranch.placement import call
from anabranch.placement.corenet import CoreNetwork
from anabranch.placement.placement import Placement
from anabranch.placement.tables import COLUMNS, SOURCES, column_problems, listed
from anabranch.spark.frames import by_name, is_frame, kind_of
from anabranch.spark.opening import opened

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["place", "place_pairs"]

_LOG = logging.getLogger("anabranch")


@renamed(homes="sources", up="upload_cost", down="download_cost")
@working("place")
def place(
    inputs: Any,
    sources: Any = None,
    upload_cost: Any = 1.0,
    download_cost: Any = 0.5,
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
    """Decide which views run on which device and which in the cloud, at the least traffic.

    Devices talk to the cloud only. A view runs in the cloud or where one of its inputs is. Each
    stream is sent over a link at most once per direction, at the highest rate that any receiver
    needs. The result is the cheapest placement, with a proof, or says how far from it it may be.

    Parameters
    ----------
    inputs
        One row per input of a view: ``view, input, rate``, as a pandas, Arrow or Spark table, a
        list of tuples, or the path of a file (.csv, .parquet, .feather, .arrow). An input is a
        source or another view; the rate is how much of it the view needs. Also what a template
        makes (`ab.placement.template`), which brings its sources along.
    sources
        The device of each source, "cloud" for data that lives there: a dict, a table ``source,
        device`` or the path of one. ``"own"``: each source is on a device of its own name.
    upload_cost, download_cost
        Cost per unit sent from and to a device: one for all, or dicts by device. Devices that a
        dict leaves out cost 1 and 0.5, or what it says of None.
    capacity, load
        How much each device can carry and how heavy each view is (1 unless given): one number for
        all, or dicts. Devices left out of `capacity` are not limited. None stands for all others.
    readers
        Who reads a view: ``{"board": "cloud"}``, a device, or a list of such places; a dict
        ``{"board": {"S1": 0.5}}`` says how much each reads. Otherwise they read all of it: the
        largest rate at which other views need it, or else as much as the view itself needs. With
        readers the last hop is counted; without them it is not.
    pin
        Views that must run at a place: ``{"board": "cloud"}``.
    columns
        Names that columns have in your tables: ``{"view": "board", "rate": "mbit"}``.
    shared
        False if each stream is made for one view alone, so that nothing is shared.
    core
        Sites behind the cloud, see `CoreNetwork`. Readers and pins may name a site.
    time_limit
        Seconds for each integer program, which only conflicts and capacities need.

    Returns
    -------
    Placement
        A plan with ``cost, baseline_cost, optimal, gap, location, table(), traffic(),
        explain(view), replan(changes), without(device)``.

    Raises
    ------
    InvalidCall
        With every problem of the call and the ids concerned. Names that are not known are such.

    Notes
    -----
    A Spark table is brought to the driver, which runs a job, and planned there. For very many views
    over two streams each there is `ab.place_pairs`.

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

    Who reads it decides, if its output is large:

    >>> tills = [("hq_board", "till_1", 10.0), ("hq_board", "till_2", 8.0)]
    >>> shops = {"till_1": "shop_1", "till_2": "shop_2"}
    >>> ab.place(tills, shops).location
    {'hq_board': 'shop_1'}
    >>> plan = ab.place(tills, shops, readers={"hq_board": "cloud"})
    >>> plan.location, plan.cost
    ({'hq_board': 'cloud'}, 18.0)
    """
    problems = column_problems(columns)
    problems += _stream_problems({"inputs": inputs, "sources": sources})
    if problems:
        raise InvalidCall("place", problems)
    tables = [
        _on_driver(table, names, what, columns or {}, problems)
        for table, names, what in ((inputs, COLUMNS, "inputs"), (sources, SOURCES, "sources"))
    ]
    if problems:
        raise InvalidCall("place", problems)
    return call.place(
        tables[0],
        tables[1],
        upload_cost,
        download_cost,
        capacity,
        load,
        readers=readers,
        pin=pin,
        columns=columns,
        shared=shared,
        core=core,
        time_limit=time_limit,
    )


@renamed(homes="sources", up="upload_cost", down="download_cost")
@working("place_pairs")
def place_pairs(
    pairs: DataFrame,
    sources: Mapping[Any, str] | None = None,
    upload_cost: float = 1.0,
    download_cost: float = 0.5,
    *,
    columns: Mapping[str, str] | None = None,
    time_limit: float = 30.0,
) -> DataFrame:
    """Place views over two streams each, planned by Spark: as many as there are.

    Runs jobs: two passes that check the pairs, and one that brings contested ones to the driver.

    Parameters
    ----------
    pairs
        One view per row, ``a, b, rate_a, rate_b``: over the streams `a` and `b`, each on the device
        of its own name. Other columns are kept. A ``location`` that is there already, of an
        earlier plan, is replaced, so that a result with new rates can be planned again.
    sources
        The streams that live in the cloud, ``{"news": "cloud"}``; None if there are none.
    upload_cost, download_cost
        Cost per unit sent from and to a device, one for all devices.
    columns
        Names that columns have in your table: ``{"a": "user", "b": "friend"}``.
    time_limit
        Seconds for each integer program.

    Returns
    -------
    DataFrame
        The pairs with a column ``location`` more.

    Examples
    --------
    >>> import anabranch as ab
    >>> pairs = spark.createDataFrame(
    ...     [("ann", "bob", 10.0, 2.0), ("bob", "cy", 1.0, 1.0)],
    ...     "a string, b string, rate_a double, rate_b double",
    ... )
    >>> found = ab.place_pairs(pairs, upload_cost=1.0, download_cost=1.0)
    >>> found.orderBy("a").select("a", "b", "location").collect()
    [Row(a='ann', b='bob', location='ann'), Row(a='bob', b='cy', location='cloud')]
    """
    problems = _stream_problems({"pairs": pairs})
    if not is_frame(pairs):
        problems.append(
            f"pairs must be a Spark DataFrame, got {kind_of(pairs)}; for tables in memory "
            "there is ab.place"
        )
    if problems:
        raise InvalidCall("place_pairs", problems)
    from anabranch.spark.demand_pairs import plan_pairs  # with all of pyspark

    _LOG.info("place_pairs runs jobs over its pairs, to check them and to resolve conflicts")
    costs = (upload_cost, download_cost)
    return plan_pairs(pairs, sources, costs, columns, time_limit)


def _stream_problems(tables: Mapping[str, Any]) -> list[str]:
    return [
        f"{name} is streaming: place plans tables; read it with spark.read"
        for name, table in tables.items()
        if is_frame(table) and table.isStreaming
    ]


def _on_driver(
    table: Any, names: tuple[str, ...], what: str, own: Mapping[str, str], problems: list[str]
) -> Any:
    """A Spark table as an Arrow table; anything else as it is."""
    if not is_frame(table):
        return table
    (table,), theirs = opened([table], [own.get(name, name) for name in names])
    lacking = [name for name in theirs if name not in table.columns]
    if lacking:
        also = "; for pairs of streams there is ab.place_pairs" if "rate_a" in table.columns else ""
        problems.append(
            f"{what} has no column {listed(lacking)}; it has {listed(table.columns)}: name yours "
            f"with columns={also}"
        )
        return table
    step(f"brings {what} to the driver")
    _LOG.info("place runs a job, which brings %s to the driver", what)
    return table.select(*map(by_name, theirs)).toArrow()
