"""Placement on Spark: demand pairs too many for one machine, planned by the same kernel.

Every stream's upload level depends on its own pairs only, so the work is one shuffle by stream,
the prefix rule in each partition, and a join with the few pairs that a stream keeps. Pairs that
both ends want, which cheap downloads alone can cause, are fewer still: who gets them is decided on
the driver.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    DoubleType,
    IntegralType,
    MapType,
    NumericType,
    StringType,
    StructField,
    StructType,
    VariantType,
)

from anabranch.errors import InvalidCall
from anabranch.placement.call import time_limit_problems
from anabranch.placement.conflicts.resolution import resolve
from anabranch.placement.devices.optima import LocalOptima
from anabranch.placement.devices.prefix import prefix_rule
from anabranch.placement.graph import pair_graph
from anabranch.placement.tables import column_problems, is_cost, listed
from anabranch.spark.frames import by_name

__all__ = ["pair_cost", "plan_pairs", "row_problems"]

_PAIRS = ("a", "b", "rate_a", "rate_b")
_SHOWN = 5

# Columns of ours beside the caller's.
_OWN = "_anabranch_"
_WRITTEN = 1000
_KEPT = tuple(f"{_OWN}{name}" for name in ("a", "b", "first"))


def plan_pairs(
    frame: DataFrame, sources: Any, costs: tuple[Any, Any], columns: Any, time_limit: Any
) -> DataFrame:
    """See `ab.place_pairs`."""
    up, down = costs
    problems = column_problems(columns, _PAIRS)
    own = {name: name for name in _PAIRS} | ({} if problems else dict(columns or {}))
    problems = problems or _name_problems(frame, own)
    problems += _option_problems(sources, up, down) + time_limit_problems(time_limit)
    if not problems:
        problems = _column_problems(frame, sources, own)
    if problems:
        raise InvalidCall("place_pairs", problems)
    pairs = _renamed(frame, {theirs: ours for ours, theirs in own.items()})
    problems = row_problems(pairs) + _stranger_problems(pairs, sources)
    if problems:
        raise InvalidCall("place_pairs", problems)
    placed = _placed(pairs, dict(sources or {}), float(up), float(down), time_limit)
    return _renamed(placed, own)


def _stranger_problems(pairs: DataFrame, sources: Mapping[Any, str] | None) -> list[str]:
    """Names of streams that are in no pair; of very many, which no hand has written, none."""
    if not sources or len(sources) > _WRITTEN:
        return []
    names = list(sources)
    streams = pairs.select("a").union(pairs.select("b")).distinct()
    found = {row[0] for row in streams.filter(F.col("a").isin(names)).collect()}
    strange = [name for name in names if name not in found]
    return [f"sources names streams that are in no pair: {listed(strange)}"] if strange else []


def _renamed(frame: DataFrame, names: Mapping[str, str]) -> DataFrame:
    """The frame with other names of some columns; two may change places."""
    return frame.select(*(by_name(name).alias(names.get(name, name)) for name in frame.columns))


def _name_problems(frame: DataFrame, own: Mapping[str, str]) -> list[str]:
    """Which of the columns, by the names that the caller gives them, are not there or twice."""
    theirs = list(own.values())
    lacking = [name for name in theirs if name not in frame.columns]
    if lacking:
        return [
            f"pairs needs columns {', '.join(theirs)}; it has {listed(frame.columns)}: name yours "
            "with columns="
        ]
    if len(set(theirs)) < len(theirs):
        return [f"columns gives one name to two columns: {', '.join(theirs)}"]
    known = {name.lower() for name in theirs}
    beside = [name for name in frame.columns if name.lower() in own and name.lower() not in known]
    return [
        f"pairs has a column {name!r} beside {own[name.lower()]!r}, which columns= gives that "
        "meaning: rename or drop it"
        for name in beside
    ]


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


def _option_problems(homes: Any, up: Any, down: Any) -> list[str]:
    advice = "make a table view, input, rate of the pairs and call ab.place"
    problems = [
        f"{name} must be one cost of at least 0 for demand pairs, got {value!r}; for costs per "
        f"device {advice}"
        for name, value in (("upload_cost", up), ("download_cost", down))
        if not is_cost(value)
    ]
    if homes is not None and (
        not isinstance(homes, Mapping) or any(device != "cloud" for device in homes.values())
    ):
        problems.append(
            "sources of demand pairs is a dict of the streams that live in the cloud, such as "
            '{"news": "cloud"}; all others are on the device of their own name. Otherwise '
            f"{advice}"
        )
    return problems


def _column_problems(
    frame: DataFrame, homes: Mapping[Any, str] | None, own: Mapping[str, str]
) -> list[str]:
    problems = []
    a, b = own["a"], own["b"]
    streams, others = frame.schema[a].dataType, frame.schema[b].dataType
    if streams != others:
        problems.append(
            f"columns {a} and {b} must have the same type, as they name streams of one kind: {a} "
            f"is {streams.simpleString()}, {b} {others.simpleString()}"
        )
    if isinstance(streams, (ArrayType, MapType, StructType, VariantType)):
        problems.append(
            f"columns {a} and {b} name streams, by text or numbers for instance, not by "
            f"{streams.simpleString()}"
        )
    for rate in (own["rate_a"], own["rate_b"]):
        kind = frame.schema[rate].dataType
        if not isinstance(kind, (NumericType, StringType)):
            problems.append(f"column {rate} must hold numbers, got {kind.simpleString()}")
    allowed: tuple[type, ...] = (object,)
    if isinstance(streams, StringType):
        allowed = (str,)
    elif isinstance(streams, IntegralType):
        allowed = (int, np.integer)
    strange = [key for key in homes or () if not isinstance(key, allowed) or key is True]
    if strange:
        problems.append(
            f"sources names streams that cannot be in columns {a} and {b}, which are "
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


def row_problems(frame: DataFrame) -> list[str]:
    """What is wrong with rows, found in two passes over them: rates and ids, and repeated pairs."""
    problems = []
    wrong = F.lit(False)
    for rate in ("rate_a", "rate_b"):
        value = F.col(rate).try_cast("double")
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


def _placed(
    frame: DataFrame, homes: Mapping[Any, str], up: float, down: float, time_limit: float
) -> DataFrame:
    kept = _kept(frame, homes, up, down)
    if up > down:
        # Asked twice by what follows. Nothing stays cached: the result is a DataFrame of the
        # caller, who may keep it.
        kept.persist()
        try:
            raised = _raised(kept, up, down, time_limit)
        finally:
            kept.unpersist()
        if raised is not None:
            kept = kept.join(F.broadcast(raised), on="stream", how="left").filter(
                F.col("raised").isNull() | (F.col("own") > F.col("raised"))
            )
    return _located(frame, kept)


def _kept(frame: DataFrame, homes: Mapping[Any, str], up: float, down: float) -> DataFrame:
    """What every stream wants to keep: its pairs above its upload level.

    A row has the stream and its partner, whether the stream is the first of the pair, the rates of
    both and the level.
    """
    sides = [
        frame.select(
            F.col(own).alias("stream"),
            F.col(partner).alias("partner"),
            F.lit(own == "a").alias("first"),
            F.col(f"rate_{own}").cast("double").alias("own"),
            F.col(f"rate_{partner}").cast("double").alias("other"),
        )
        for own, partner in (("a", "b"), ("b", "a"))
    ]
    # A stream of rate 0 is served by any level.
    both = sides[0].unionByName(sides[1]).filter("own > 0")
    if homes:
        both = both.filter(~F.col("stream").isin(list(homes)))

    def plan(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        held = list(batches)
        if not held:
            return
        table = pa.Table.from_batches(held)
        code, streams = pd.factorize(table.column("stream").to_pandas(), use_na_sentinel=False)
        own = table.column("own").to_numpy()
        price = down * table.column("other").to_numpy()
        level = prefix_rule(code, own, price, np.full(len(streams), up)).threshold[code]
        yield from table.append_column("level", pa.array(level)).filter(own > level).to_batches()

    schema = StructType([*both.schema.fields, StructField("level", DoubleType())])
    return both.repartition("stream").mapInArrow(plan, schema)


def _located(frame: DataFrame, kept: DataFrame) -> DataFrame:
    """Pairs with the stream that keeps them, at most one of the two.

    The caller's columns are passed on untouched: all that is joined has names of its own.
    """
    first, ends = F.col("first"), (F.col("stream"), F.col("partner"))
    keepers = kept.select(
        F.when(first, ends[0]).otherwise(ends[1]).alias(_KEPT[0]),
        F.when(first, ends[1]).otherwise(ends[0]).alias(_KEPT[1]),
        first.alias(_KEPT[2]),
    )
    same = (F.col("a") == F.col(_KEPT[0])) & (F.col("b") == F.col(_KEPT[1]))
    location = (
        F.when(F.col(_KEPT[2]), F.col("a").cast("string"))
        .when(~F.col(_KEPT[2]), F.col("b").cast("string"))
        .otherwise(F.lit("cloud"))
    )
    return frame.join(keepers, same, "left").withColumn("location", location).drop(*_KEPT)


def _raised(kept: DataFrame, up: float, down: float, time_limit: float) -> DataFrame | None:
    """New levels of streams that want the same pairs, decided on the driver; None if none do."""
    low, high = F.least("stream", "partner"), F.greatest("stream", "partner")
    twice = kept.groupBy(low.alias("a"), high.alias("b")).count().filter("count > 1")
    rivals = twice.select(F.explode(F.array("a", "b")).alias("stream")).distinct().toArrow()
    if not len(rivals):
        return None
    spark = kept.sparkSession
    table = kept.join(F.broadcast(spark.createDataFrame(rivals)), on="stream", how="left_semi")
    names = pd.Index(rivals.column("stream").to_pandas())
    raised = _raise_levels(table.toArrow().to_pandas(), names, up, down, time_limit)
    kind = kept.schema["stream"].dataType.simpleString()
    return spark.createDataFrame(raised, f"stream {kind}, raised double")


def _raise_levels(
    table: pd.DataFrame, rivals: pd.Index, up: float, down: float, time_limit: float
) -> pd.DataFrame:
    code, streams = pd.factorize(pd.concat([table["stream"], table["partner"]]))
    a, b = code[: len(table)], code[len(table) :]
    device = rivals.get_indexer(pd.Index(streams)).astype(np.int32)
    level = np.full(len(streams), np.inf)
    level[a] = table["level"]
    # What two rivals want is there twice.
    once = np.unique(np.minimum(a, b) * len(streams) + np.maximum(a, b), return_index=True)[1]
    graph = pair_graph(
        a[once],
        b[once],
        table["own"].to_numpy()[once],
        table["other"].to_numpy()[once],
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
    resolved = resolve(graph, local, time_limit)
    worst = [c for c in resolved.components if c.method == "local search"]
    if worst:
        cost, bound = sum(c.cost for c in worst), sum(c.bound for c in worst)
        warnings.warn(
            f"{len(worst)} groups of streams that want the same pairs were not planned to the "
            f"optimum in {time_limit} s: the plan may cost up to {cost - bound:g} too much; raise "
            "time_limit",
            stacklevel=7,
        )
    # A stream's new level is the largest rate that it no longer keeps.
    lost = kept & (graph.home[graph.inputs] != resolved.location[graph.row_view])
    np.maximum.at(level, graph.inputs[lost], graph.rates[lost])
    return pd.DataFrame({"stream": np.asarray(streams)[own], "raised": level[own]})
