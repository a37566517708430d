"""Placement on Spark: demand pairs too many for one machine, planned by the same kernel.

Every stream's upload level depends on its own pairs only, so the work is one shuffle by stream and
the prefix rule in each partition. Pairs that both ends want, which cheap downloads alone can cause,
are few: they are settled on the driver.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import IntegralType, StringType

from anabranch.errors import InvalidCall
from anabranch.placement.graph import pair_graph
from anabranch.placement.optima import LocalOptima
from anabranch.placement.place import place
from anabranch.placement.prefix import prefix_rule
from anabranch.placement.reading import listed
from anabranch.placement.settling import settle

__all__ = ["pair_cost", "place_frame"]

_TABLE = ("view", "input", "rate")
_PAIRS = ("a", "b", "rate_a", "rate_b")
_HOMES = ("source", "device")
_SHOWN = 5

# Columns of ours beside the caller's.
_OWN = "_anabranch_"
_STREAM = f"{_OWN}stream"
_LEVELS = (f"{_OWN}level_a", f"{_OWN}level_b")
_KEEPS = (f"{_OWN}keeps_a", f"{_OWN}keeps_b")


def place_frame(
    frame: DataFrame,
    homes: Any = None,
    up: Any = 1.0,
    down: Any = 0.5,
    *,
    capacity: Any = None,
    load: Any = None,
    shared: bool = True,
    core: Any = None,
    time_limit: float = 30.0,
) -> Any:
    """`ab.place` on a Spark DataFrame.

    With columns ``view, input, rate`` the table is brought to the driver and planned there; the
    result is the usual plan. With columns ``a, b, rate_a, rate_b`` it holds demand pairs, one view
    per pair of streams, each stream on the device of its own name: those are planned by Spark, and
    the result is the DataFrame with a column ``location`` more. Other columns are kept. A
    ``location`` that is there already, of an earlier plan, is replaced, so that a result with new
    rates can be planned again.

    Parameters
    ----------
    frame
        One of the two.
    homes
        For a table, as in `ab.place` (also a Spark DataFrame). For pairs a dict of the streams
        that live in the "cloud"; left out if there are none.
    up, down, capacity, load, shared, core, time_limit
        As in `ab.place`; pairs take one cost for all devices, and no capacities or core.

    Examples
    --------
    >>> import anabranch as ab
    >>> pairs = spark.createDataFrame(
    ...     [("ann", "bob", 10.0, 2.0), ("bob", "cy", 1.0, 1.0)],
    ...     "a string, b string, rate_a double, rate_b double",
    ... )
    >>> ab.place(pairs, up=1.0, down=1.0).orderBy("a").select("a", "b", "location").collect()
    [Row(a='ann', b='bob', location='ann'), Row(a='bob', b='cy', location='cloud')]
    """
    problems = _streaming_problems(frame, homes)
    if set(_TABLE) <= set(frame.columns):
        if hasattr(homes, "mapInArrow") and not set(_HOMES) <= set(homes.columns):
            problems.append(
                f"homes needs columns {', '.join(_HOMES)}; it has {listed(homes.columns)}"
            )
        if problems:
            raise InvalidCall("place", problems)
        if hasattr(homes, "mapInArrow"):
            homes = homes.select(*_HOMES).toArrow()
        return place(
            frame.select(*_TABLE).toArrow(),
            homes,
            up,
            down,
            capacity,
            load,
            shared=shared,
            core=core,
            time_limit=time_limit,
        )
    if not set(_PAIRS) <= set(frame.columns):
        problems.append(
            f"a Spark DataFrame needs columns {', '.join(_TABLE)} or {', '.join(_PAIRS)}; it has "
            f"{listed(frame.columns)}"
        )
    problems += _option_problems(homes, up, down, capacity, load, shared, core)
    if not problems:
        problems = _column_problems(frame, homes)
    if not problems:
        problems = _row_problems(frame)
    if problems:
        raise InvalidCall("place", problems)
    return _place_pairs(frame, dict(homes or {}), float(up), float(down), time_limit)


def pair_cost(placed: DataFrame, up: float, down: float) -> float:
    """What placed demand pairs cost, computed by Spark from the result alone.

    Examples
    --------
    >>> rows = [("ann", "bob", 10.0, 2.0, "ann")]
    >>> schema = "a string, b string, rate_a double, rate_b double, location string"
    >>> placed = spark.createDataFrame(rows, schema)
    >>> pair_cost(placed, up=1.0, down=0.5)
    3.0
    """
    sides = [
        placed.select(
            F.col(own).cast("string").alias("stream"),
            F.col(f"rate_{own}").alias("own"),
            F.col(f"rate_{other}").alias("other"),
            (F.col("location") == F.col(own).cast("string")).alias("here"),
        )
        for own, other in (("a", "b"), ("b", "a"))
    ]
    per_stream = (
        sides[0]
        .unionByName(sides[1])
        .groupBy("stream")
        .agg(
            F.max(F.when(~F.col("here"), F.col("own")).otherwise(0.0)).alias("sent"),
            F.sum(F.when(F.col("here"), F.col("other")).otherwise(0.0)).alias("brought"),
        )
    )
    found = per_stream.agg(
        F.sum(F.lit(up) * F.col("sent") + F.lit(down) * F.col("brought"))
    ).first()
    assert found is not None
    return float(found[0] or 0.0)


def _streaming_problems(frame: DataFrame, homes: Any) -> list[str]:
    return [
        f"{name} is streaming: place plans tables; read it with spark.read"
        for name, value in (("the DataFrame", frame), ("homes", homes))
        if getattr(value, "isStreaming", False)
    ]


def _option_problems(
    homes: Any, up: Any, down: Any, capacity: Any, load: Any, shared: bool, core: Any
) -> list[str]:
    advice = "collect the pairs into a table view, input, rate and plan that"
    problems = []
    for name, value in (("up", up), ("down", down)):
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not number or not math.isfinite(value) or value < 0:
            problems.append(
                f"{name} must be one cost of at least 0 for demand pairs, got {value!r}; for costs "
                f"per device {advice}"
            )
    for name, value in (("capacity", capacity), ("load", load), ("core", core)):
        if value is not None:
            problems.append(f"{name} is not for demand pairs: {advice}")
    if shared is not True:
        problems.append(f"shared=False is not for demand pairs: {advice}")
    if homes is not None and (
        not isinstance(homes, Mapping) or any(device != "cloud" for device in homes.values())
    ):
        problems.append(
            "homes of demand pairs is a dict of the streams that live in the cloud, such as "
            '{"news": "cloud"}; all others are on the device of their own name. Otherwise '
            f"{advice}"
        )
    return problems


def _column_problems(frame: DataFrame, homes: Mapping[Any, str] | None) -> list[str]:
    problems = []
    streams, others = frame.schema["a"].dataType, frame.schema["b"].dataType
    if streams != others:
        problems.append(
            "columns a and b must have the same type, as they name streams of one kind: a is "
            f"{streams.simpleString()}, b {others.simpleString()}"
        )
    allowed: tuple[type, ...] = (object,)
    if isinstance(streams, StringType):
        allowed = (str,)
    elif isinstance(streams, IntegralType):
        allowed = (int, np.integer)
    strange = [key for key in homes or () if not isinstance(key, allowed) or key is True]
    if strange:
        problems.append(
            f"homes names streams that cannot be in columns a and b, which are "
            f"{streams.simpleString()}: {listed(strange)}"
        )
    for field in frame.schema.fields:
        if field.name.lower() == "location" and not isinstance(field.dataType, StringType):
            problems.append(
                f"column {field.name!r} would be replaced by the plan, and its type "
                f"{field.dataType.simpleString()} says that it is no earlier plan: rename it"
            )
        if field.name.lower().startswith(_OWN):
            problems.append(f"column names that begin with {_OWN} are ours: rename {field.name!r}")
    return problems


def _row_problems(frame: DataFrame) -> list[str]:
    problems = []
    wrong = F.lit(False)
    for rate in ("rate_a", "rate_b"):
        value = F.col(rate).cast("double")
        fine = value.isNotNull() & ~F.isnan(value) & (value >= 0) & (value < float("inf"))
        wrong = wrong | ~fine
    odd = F.col("a").isNull() | F.col("b").isNull() | (F.col("a") == F.col("b"))
    found = frame.filter(wrong | odd).select(*_PAIRS).limit(_SHOWN).collect()
    if found:
        problems.append(
            "every pair needs two different streams and two rates of at least 0, but there is "
            + "; ".join(str(tuple(row)) for row in found)
        )
    low, high = F.least("a", "b"), F.greatest("a", "b")
    twice = frame.groupBy(low.alias("a"), high.alias("b")).count().filter("count > 1").limit(_SHOWN)
    found = twice.collect()
    if found:
        problems.append(
            "the same pair is listed more than once, so that a download could serve two views: "
            + "; ".join(f"({row['a']!r}, {row['b']!r})" for row in found)
            + ". Merge them, or plan a table view, input, rate, where that is allowed"
        )
    return problems


def _place_pairs(
    frame: DataFrame, homes: Mapping[Any, str], up: float, down: float, time_limit: float
) -> DataFrame:
    levels = _levels(frame, homes, up, down).persist()
    if up > down:
        levels = _settled(frame, levels, up, down, time_limit)
    return _located(frame, levels).drop(*_LEVELS, *_KEEPS)


def _levels(frame: DataFrame, homes: Mapping[Any, str], up: float, down: float) -> DataFrame:
    """The upload level of every stream that lives on a device."""
    sides = [
        frame.select(
            F.col(own).alias("stream"),
            F.col(f"rate_{own}").cast("double").alias("own"),
            F.col(f"rate_{other}").cast("double").alias("other"),
        )
        for own, other in (("a", "b"), ("b", "a"))
    ]
    both = sides[0].unionByName(sides[1])
    if homes:
        both = both.filter(~F.col("stream").isin(list(homes)))
    name = frame.schema["a"].dataType.simpleString()

    def plan(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        held = list(batches)
        if not held:
            return
        table = pa.Table.from_batches(held)
        code, streams = pd.factorize(table.column("stream").to_pandas())
        rule = prefix_rule(
            code,
            table.column("own").to_numpy(),
            down * table.column("other").to_numpy(),
            np.full(len(streams), up),
        )
        yield pa.RecordBatch.from_arrays(
            [pa.array(streams, table.schema.field("stream").type), pa.array(rule.threshold)],
            ["stream", "level"],
        )

    return both.repartition("stream").mapInArrow(plan, f"stream {name}, level double")


def _located(frame: DataFrame, levels: DataFrame) -> DataFrame:
    """Pairs with the end that keeps them. Streams without a level are in the cloud, keep none.

    The caller's columns are passed on untouched: all that is joined has names of its own.
    """
    out = frame
    for end, own, keeps in zip(("a", "b"), _LEVELS, _KEEPS, strict=True):
        level = levels.select(F.col("stream").alias(_STREAM), F.col("level").alias(own))
        out = out.join(level, F.col(end) == F.col(_STREAM), "left").drop(_STREAM)
        above = F.col(f"rate_{end}") > F.coalesce(F.col(own), F.lit(float("inf")))
        out = out.withColumn(keeps, above)
    location = (
        F.when(F.col(_KEEPS[0]), F.col("a").cast("string"))
        .when(F.col(_KEEPS[1]), F.col("b").cast("string"))
        .otherwise(F.lit("cloud"))
    )
    return out.withColumn("location", location)


def _settled(
    frame: DataFrame, levels: DataFrame, up: float, down: float, time_limit: float
) -> DataFrame:
    """Levels after streams that both want a pair have been settled, on the driver."""
    placed = _located(frame, levels)
    both = placed.filter(F.col(_KEEPS[0]) & F.col(_KEEPS[1]))
    rivals = both.select(F.explode(F.array("a", "b")).alias("stream")).distinct().persist()
    kept = None
    for end, keeps in zip(("a", "b"), _KEEPS, strict=True):
        mine = (
            placed.filter(keeps)
            .select(*_PAIRS, *_LEVELS)
            .join(F.broadcast(rivals.withColumnRenamed("stream", end)), on=end, how="left_semi")
        )
        kept = mine if kept is None else kept.unionByName(mine)
    assert kept is not None
    table = kept.dropDuplicates(["a", "b"]).toArrow().to_pandas()
    names = rivals.toArrow().column("stream").to_pandas()
    rivals.unpersist()
    if not len(names):
        return levels
    raised = _raise_levels(table, pd.Index(names), up, down, time_limit)
    spark = frame.sparkSession
    name = frame.schema["a"].dataType.simpleString()
    changes = spark.createDataFrame(raised, f"stream {name}, raised double")
    return levels.join(F.broadcast(changes), on="stream", how="left").select(
        "stream", F.coalesce("raised", "level").alias("level")
    )


def _raise_levels(
    table: pd.DataFrame, rivals: pd.Index, up: float, down: float, time_limit: float
) -> pd.DataFrame:
    code, streams = pd.factorize(pd.concat([table["a"], table["b"]], ignore_index=True))
    pairs = len(table)
    a, b = code[:pairs], code[pairs:]
    device = rivals.get_indexer(pd.Index(streams)).astype(np.int32)
    level = np.full(len(streams), np.inf)
    for own, at in zip(_LEVELS, (a, b), strict=True):
        mine = device[at] >= 0
        level[at[mine]] = table[own].to_numpy(float)[mine]
    graph = pair_graph(
        a,
        b,
        table["rate_a"].to_numpy(float),
        table["rate_b"].to_numpy(float),
        sources=len(streams),
        up=up,
        down=down,
        home=device,
    )
    value = np.zeros(len(rivals))
    kept = graph.rates > level[graph.inputs]
    at = graph.home[graph.inputs[kept]]
    value += np.bincount(at, down * graph.others_of(np.flatnonzero(kept)), len(rivals))
    own = device >= 0
    value[device[own]] += up * level[own]
    none = np.empty(0, np.int64)
    plain = np.zeros(len(rivals), np.int8)
    local = LocalOptima(level, none, none, value, value, plain, plain.astype(bool))
    settled = settle(graph, local, time_limit)
    worst = [c for c in settled.components if c.method == "local search"]
    if worst:
        cost, bound = sum(c.cost for c in worst), sum(c.bound for c in worst)
        warnings.warn(
            f"{len(worst)} groups of streams that want the same pairs were not settled to the "
            f"optimum in {time_limit} s: the plan may cost up to {cost - bound:g} too much; raise "
            "time_limit",
            stacklevel=6,
        )
    # A stream's new level is the largest rate that it no longer keeps.
    lost = kept & (graph.home[graph.inputs] != settled.location[graph.row_view])
    np.maximum.at(level, graph.inputs[lost], graph.rates[lost])
    return pd.DataFrame({"stream": np.asarray(streams)[own], "raised": level[own]})
