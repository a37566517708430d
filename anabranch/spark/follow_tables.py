"""The views over tables: what a running system must have found, all at once and by Spark alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any, NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.window import Window

from anabranch.calls import Check, describe
from anabranch.errors import InvalidCall
from anabranch.placement.feeds import Feed
from anabranch.placement.views import Views
from anabranch.predicates import same
from anabranch.predicates.deciding import Deciding
from anabranch.spark.correlate import correlate
from anabranch.spark.frames import by_name, is_frame

__all__ = ["SIDES", "follow_tables", "result_columns", "table_problems"]

SIDES = ("left", "right")
_FIXED = ("key", "n", "time")
_ALL_BITS = 0xFFFFFFFF


class _Own(NamedTuple):
    """Columns that a row has on its way beside those of its feed, under names that no feed has."""

    view: str
    id: str
    share: str
    priority: str
    first: str

    @classmethod
    def beside(cls, parts: Sequence[Feed]) -> _Own:
        """Names that are longer than all of the feeds'."""
        longest = max(len(name) for part in parts for name, _ in part.columns)
        return cls(*("_" * (longest + 1) + name for name in cls._fields))


def result_columns(views: Sequence[Views]) -> dict[str, str]:
    """The columns of the result and their types: over one feed those of the right are null."""
    found = {"view": "string"}
    for name, type_ in (("key", "string"), ("n", "bigint"), ("time", "timestamp")):
        found |= {f"{side}_{name}": type_ for side in SIDES}
    return {
        **found,
        "score": "double",
        **kept_types(views),
        "place": "string",
        "epoch": "bigint",
    }


def kept_types(views: Sequence[Views]) -> dict[str, str]:
    """The kept columns of all views, ``left_xy``, and their types."""
    found: dict[str, str] = {}
    for one in views:
        for side, part, names in zip(SIDES, one.view.feeds, one.view.definition.keep, strict=False):
            found |= {f"{side}_{name}": dict(part.columns)[name] for name in names}
    return found


def kept_problems(views: Sequence[Views]) -> list[str]:
    """Where views keep columns of one name and different types."""
    problems = []
    for one in views:
        own = kept_types([one])
        other = [name for name, type_ in own.items() if kept_types(views)[name] != type_]
        problems += [f"views keep {name} in different types: rename one" for name in other]
    spelt: dict[str, str] = {}
    for name in kept_types(views):
        first = spelt.setdefault(name.lower(), name)
        if first != name:
            problems.append(f"views keep {first} and {name}, one column to Spark: rename one")
    return problems


def table_problems(views: Sequence[Views], feeds: Any) -> list[str]:
    """What is wrong with the tables of a call."""
    if not isinstance(feeds, Mapping) or not all(map(is_frame, feeds.values())):
        return [f'feeds must be a dict of tables by feed, such as {{"gps": table}}, got {feeds!r}']
    check = Check(**{str(name): dict(table.dtypes) for name, table in feeds.items()})
    for part in dict.fromkeys(part for one in views for part in one.view.feeds):
        table = feeds.get(part.name)
        if table is None:
            check.say(f"feeds has no table {part.name!r}; it has {', '.join(map(repr, feeds))}")
            continue
        if table.isStreaming:
            check.say(f"feeds: {part.name!r} is a stream; the batch answer is over tables")
        kinds = {"key": {"string", "bigint", "int"}, "n": {"bigint", "int"}, "time": {"timestamp"}}
        for name, allowed in kinds.items():
            check.column(part.name, name, f"feed {part.name!r}", allowed)
        for name, type_ in part.columns:
            check.column(part.name, name, f"feed {part.name!r}", {type_})
    return check.problems


def follow_tables(
    spark: SparkSession, views: Sequence[Views], feeds: Mapping[str, DataFrame]
) -> DataFrame:
    """Every result of the views over all rows of the tables."""
    columns = result_columns(views)
    shown = []
    for one in views:
        found = _of_one(spark, one, feeds)
        shown.append(
            found.select(
                *(
                    (by_name(name) if name in found.columns else F.lit(None))
                    .cast(type_)
                    .alias(name)
                    for name, type_ in columns.items()
                )
            )
        )
    return reduce(DataFrame.unionByName, shown)


def _of_one(spark: SparkSession, views: Views, feeds: Mapping[str, DataFrame]) -> DataFrame:
    """The results of one template's views."""
    definition, parts = views.view.definition, views.view.feeds
    own = _Own.beside(parts)
    sides = [
        _asked(spark, views, number, _sampled(part, feeds[part.name], own), own)
        for number, part in enumerate(parts)
    ]
    if definition.kind == "each":
        rows = sides[0]
        if definition.where:
            names = rows.columns
            deciding = Deciding(definition.where, dict(parts[0].columns), own.id, names)
            # mapInArrow takes a dot in a name for a field.
            plain = rows.toDF(*(f"c{k}" for k in range(len(names))))
            rows = plain.mapInArrow(deciding, plain.schema).toDF(*names)
        shown = dict.fromkeys([*_FIXED, *definition.keep[0]])
        view = by_name(own.view).alias("view")
        return rows.select(view, *(by_name(name).alias(f"left_{name}") for name in shown))
    condition = views.view.condition
    where = same(own.view) if condition is None else same(own.view) & condition
    keep = tuple((own.view, "key", "n", *names) for names in definition.keep)
    try:
        pairs = correlate(
            *sides,
            where=where,
            window=(describe(definition.window[0]), describe(definition.window[1])),
            time="time",
            id=own.id,
            keep=tuple(map(list, keep)),
        )
    except InvalidCall as error:
        name = views.view.name
        raise InvalidCall("follow", [f"view {name!r}: {what}" for what in error.problems]) from None
    return pairs.withColumnRenamed(f"left_{own.view}", "view")


def _sampled(part: Feed, table: DataFrame, own: _Own) -> DataFrame:
    """The rows that can be sampled, each with its priority."""
    columns = [F.col("key").cast("string"), F.col("n").cast("bigint"), F.col("time")]
    rows = table.select(*columns, *(by_name(name).alias(name) for name, _ in part.columns))
    if not part.tick:
        return rows.withColumn(own.priority, F.lit(0.0))
    t = F.unix_micros("time")
    cell = F.expr(f"(unix_micros(time) - pmod(unix_micros(time), {part.tick})) div {part.tick}")
    first = Window.partitionBy("key", cell).orderBy(t, "n")
    bits = F.lpad(F.bin(cell.bitwiseAND(F.lit(_ALL_BITS))), 32, "0")
    priority = F.conv(F.reverse(bits), 2, 10).cast("double") / F.lit(2.0**32)
    first_rows = rows.withColumn(own.first, F.row_number().over(first))
    first_rows = first_rows.filter(by_name(own.first) == 1).drop(own.first)
    return first_rows.withColumn(own.priority, priority)


def _asked(spark: SparkSession, views: Views, side: int, rows: DataFrame, own: _Own) -> DataFrame:
    """The rows of one side once for each view that asks for them, with ids of their own."""
    devices = dict(views.sources.itertuples(index=False, name=None))
    mine = views.rows.groupby("view", sort=False).nth(side)
    asked = [
        (name, str(devices[stream]), float(share))
        for name, stream, share in mine[["view", "input", "share"]].itertuples(index=False)
    ]
    members = spark.createDataFrame(asked, f"{own.view} string, key string, {own.share} double")
    wanted = rows.join(F.broadcast(members), "key")
    wanted = wanted.filter(by_name(own.priority) < by_name(own.share))
    return wanted.withColumn(own.id, F.concat_ws(" ", own.view, "n"))
