"""The verb `correlate`: a sliding-window join on similarity, on streaming and batch DataFrames."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    DoubleType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from anabranch.calls import MISSING, Duration
from anabranch.correlation.call import Correlation, Side, Slot, plan_correlation
from anabranch.correlation.kernel import former_fingerprint, query_fingerprint
from anabranch.errors import InvalidCall
from anabranch.flow.sides import hash_column, keep_column
from anabranch.plans.controller import Adaptive
from anabranch.plans.plan import LEFT, RIGHT, Plan
from anabranch.predicates import Predicate
from anabranch.spark.carriage import Carried, carry, carry_problems
from anabranch.spark.default_plan import default_plan
from anabranch.spark.frames import by_name, column_types, refuse_others
from anabranch.spark.keeper import PlanKeeper, begun_log, engage
from anabranch.spark.lateness import late_problems
from anabranch.spark.metrics import METRICS_PREFIX
from anabranch.spark.packing import PACKED, Packer
from anabranch.spark.processor import BatchWorker, CorrelateProcessor
from anabranch.spark.settings import (
    has_large_types,
    partitions,
    room_problems,
    setting_problems,
)

__all__ = ["correlate"]

_WATERMARK = "spark.watermarkDelayMs"


def correlate(
    left: DataFrame,
    right: DataFrame,
    *,
    where: Predicate = MISSING,
    window: Duration | tuple[Duration, Duration] = MISSING,
    time: str | tuple[str, str] = "ts",
    id: str | tuple[str, str] = "id",
    keep: Sequence[str] | tuple[Sequence[str], Sequence[str]] = (),
    late: Duration | None = None,
    plan: Plan | Adaptive | None = None,
    control: str | None = None,
    bad_rows: str = "fail",
) -> DataFrame:
    """Pairs of rows of two streams (or tables) that are close in time and satisfy a predicate.

    A left and a right row join iff ``-W_left <= left.time - right.time <= W_right``, both ends
    included, and the predicate holds. Every such pair of rows that are not late comes out exactly
    once, whatever the plan, the batching and the arrival order, and across restarts.

    Parameters
    ----------
    left, right
        Two streaming or two batch DataFrames.
    where
        For example ``ab.cosine("v") >= 0.9``, or several of them combined with ``&``.
    window
        One duration, or ``(W_left, W_right)``: how long a row of each side waits for partners.
    time, id
        Column names, one for both sides or a pair. Times are timestamps; ids are long, int or
        string and unique within a side.
    keep
        Further columns to carry into the result: one list for both sides or a pair of lists.
    late
        Streaming: how far a row may lag behind the newest time seen on either side. Leave it out
        if both inputs have a watermark on their time column, as what an aggregate tells must.
    plan
        How the work is split; by default chosen from the number of shuffle partitions and, in
        batch, from row counts and times (one pass over the inputs). ``ab.adaptive(...)`` changes
        it while the query runs.
    control
        Streaming: a directory for the plan log, which lets plans change while the query runs, by
        ``ab.adaptive`` or by hand (``ab.PlanLog(control).append(...)``). It belongs to one
        checkpoint.
    bad_rows
        ``"fail"`` stops at the first row that cannot be compared and names it; ``"drop"`` leaves
        such rows out; a stream counts them.

    Returns
    -------
    DataFrame
        ``left_<id>, right_<id>, left_<time>, right_<time>, ts, score``, then ``left_<c>`` and
        ``right_<c>`` for the kept columns. `ts` is the younger of the two times and carries the
        watermark, so the result can be fed to further stateful operators.

    Raises
    ------
    InvalidCall
        With every problem of the call.

    Examples
    --------
    >>> import anabranch as ab
    >>> table = spark.sql('''SELECT id, timestamp_seconds(1700000000 + id) AS ts,
    ...                             array(float(id), float(1)) AS v FROM range(4)''')
    >>> pairs = ab.correlate(table, table, where=ab.euclidean("v") <= 1, window="1 second")
    >>> pairs.count()
    10
    """
    refuse_others("correlate", {"left": left, "right": right})
    spark = left.sparkSession
    settings = plan if isinstance(plan, Adaptive) else None
    fixed = settings.start if settings is not None else plan
    found, problems = plan_correlation(
        column_types(left),
        column_types(right),
        where=where,
        window=window,
        time=time,
        id=id,
        keep=keep,
        late=late,
        plan=fixed,
        bad_rows=bad_rows,
        streaming=left.isStreaming and right.isStreaming,
    )
    streaming = left.isStreaming and right.isStreaming
    problems += setting_problems(spark, streaming)
    for label, frame, names in zip(("left", "right"), (left, right), _kept(keep), strict=True):
        problems += carry_problems(label, frame, names)
    problems += _streaming_problems(left, right, time, late) or late_problems(
        {"left": left, "right": right}, late, takes_told=True
    )
    problems += _control_problems(settings, control, streaming, late)
    asked = settings if settings is not None else fixed
    problems += room_problems(spark, asked)
    if problems or found is None:
        raise InvalidCall("correlate", problems)
    if settings is not None:
        chosen = found.plan or settings.first_plan(found.has_key)
    else:
        chosen = found.plan or default_plan(found, left, right, partitions(spark))
    path = None if control is None else os.fspath(control)
    return _run(found, chosen, left, right, streaming, path, settings)


def _run(
    correlation: Correlation,
    plan: Plan,
    left: DataFrame,
    right: DataFrame,
    streaming: bool,
    control: str | None,
    settings: Adaptive | None,
) -> DataFrame:
    carried = [
        carry(frame, side.keep)
        for frame, side in zip((left, right), correlation.sides, strict=True)
    ]
    packed = [
        frame.select(*_prepared(side, of)).mapInArrow(
            Packer(correlation, number, plan, control), PACKED
        )
        for number, (frame, side, of) in enumerate(
            zip((left, right), correlation.sides, carried, strict=True)
        )
    ]
    blocks = packed[LEFT].union(packed[RIGHT])
    schema = StructType()
    for side in correlation.sides:
        schema.add(f"{side.label}_id", StringType() if side.id_is_text else LongType())
    schema.add("left_t", LongType()).add("right_t", LongType()).add("score", DoubleType())
    for side, kept in zip(correlation.sides, carried, strict=True):
        for number, column in enumerate(kept):
            schema.add(f"{side.label}_{keep_column(number)}", column.type)
    if streaming:
        name = METRICS_PREFIX + secrets.token_hex(4)
        if control is not None:
            _keep_log(control, plan, settings, correlation, left.sparkSession, name)
        pairs = _streaming(correlation, blocks, schema, name)
    else:
        pairs = _batch(correlation, blocks, schema, partitions(left.sparkSession))
    return pairs.select(*_result(correlation, carried, (left, right)))


def _keep_log(
    control: str,
    plan: Plan,
    settings: Adaptive | None,
    correlation: Correlation,
    spark: SparkSession,
    name: str,
) -> None:
    """Begin the plan log if it is new, and have it kept."""
    log = begun_log(control, plan, correlation.plan is not None, correlation.bound)
    assert correlation.late is not None
    keeper = PlanKeeper(
        spark,
        log,
        name,
        correlation.window,
        correlation.late,
        settings,
        partitions(spark),
        correlation.bound,
        query_fingerprint(correlation),
        former_fingerprint(correlation),
    )
    engage(spark, keeper)


def _streaming(
    correlation: Correlation, blocks: DataFrame, fields: StructType, name: str
) -> DataFrame:
    if correlation.late is not None:
        delay = f"{-(-correlation.late // 1000)} milliseconds"
        blocks = blocks.withColumn("newest", F.timestamp_micros("newest")).withWatermark(
            "newest", delay
        )
    schema = StructType([StructField("t", TimestampType()), *fields.fields]).add(
        "load", StringType()
    )
    arrow = to_arrow_schema(schema, timezone="UTC")
    # Without a timestamp among its inputs Spark drops no late copies; the kernel drops rows and
    # counts them.
    pairs = (
        blocks.select("worker", "block")
        .groupBy("worker")
        .transformWithStateInPandas(
            CorrelateProcessor(correlation, arrow),
            outputStructType=schema,
            outputMode="Append",
            timeMode="EventTime",
            eventTimeColumnName="t",
        )
    )
    return pairs.observe(name, F.collect_list("load").alias("load")).filter(F.col("load").isNull())


def _batch(
    correlation: Correlation, blocks: DataFrame, fields: StructType, tasks: int
) -> DataFrame:
    schema = StructType([StructField("t", LongType()), *fields.fields])
    arrow = to_arrow_schema(
        schema, timezone="UTC", prefers_large_types=has_large_types(blocks.sparkSession)
    )
    worker = BatchWorker(correlation, arrow)

    def run(
        key: tuple[pa.Scalar, ...], batches: Iterator[pa.RecordBatch]
    ) -> Iterator[pa.RecordBatch]:
        return worker.run(batches)

    # The annotations, which Spark reads to tell an iterator function, must be objects.
    run.__annotations__ = {
        "key": tuple[pa.Scalar, ...],
        "batches": Iterator[pa.RecordBatch],
        "return": Iterator[pa.RecordBatch],
    }
    # A number given by hand keeps adaptive execution from merging the few, heavy tasks.
    return blocks.repartition(tasks, "worker").groupBy("worker").applyInArrow(run, schema)


def _prepared(side: Side, carried: Sequence[Carried]) -> list[Column]:
    """What the packer reads: time in microseconds, id, routing hashes, slots, kept columns."""
    ident = by_name(side.id).cast("string" if side.id_is_text else "bigint")
    columns = [F.unix_micros(by_name(side.time)).alias("t"), ident.alias("id")]
    keys = []
    for slot in side.slots:
        value = _slot_value(slot)
        columns.append(value.alias(slot.name))
        if slot.kind == "text":
            columns.append(F.xxhash64(value).alias(hash_column(slot)))
        if slot.kind in ("code", "text"):
            keys.append(value)
    columns.append(F.xxhash64(ident).alias("h"))
    columns.append((F.xxhash64(*keys) if keys else F.lit(0).cast("bigint")).alias("key"))
    return columns + [c.outward.alias(keep_column(n)) for n, c in enumerate(carried)]


def _slot_value(slot: Slot) -> Column:
    column = by_name(slot.column)
    if slot.kind in ("int", "code"):
        if slot.type == "timestamp":
            return F.unix_micros(column)
        if slot.type == "date":
            return F.unix_date(column).cast("bigint")
        # timestamp_ntz travels as it is: Arrow holds its microseconds.
        return column if slot.type == "timestamp_ntz" else column.cast("bigint")
    if slot.kind == "float":
        return column.cast("double")
    if slot.kind == "text":
        return F.hex(column) if slot.type == "binary" else column.cast("string")
    return column


def _result(
    correlation: Correlation, carried: Sequence[Sequence[Carried]], frames: Sequence[DataFrame]
) -> list[Column]:
    columns = []
    for side, frame in zip(correlation.sides, frames, strict=True):
        type_ = frame.schema[side.id].dataType
        columns.append(F.col(f"{side.label}_id").cast(type_).alias(f"{side.label}_{side.id}"))
    for side in correlation.sides:
        columns.append(F.timestamp_micros(f"{side.label}_t").alias(f"{side.label}_{side.time}"))
    # Renaming keeps the watermark that `t` carries; a batch's `t` is still a number.
    columns += [F.col("t").alias("ts"), F.col("score")]
    for side, kept in zip(correlation.sides, carried, strict=True):
        columns += [
            c.inward(F.col(f"{side.label}_{keep_column(n)}")).alias(f"{side.label}_{c.name}")
            for n, c in enumerate(kept)
        ]
    if not frames[LEFT].isStreaming:
        columns[4] = F.timestamp_micros("t").alias("ts")
    elif correlation.late is None:
        # `t` is no earlier than the watermark; the pair may be, if upstream tells its rows late.
        younger = F.timestamp_micros(F.greatest("left_t", "right_t"))
        columns[4] = younger.alias("ts", metadata={_WATERMARK: 0})
    return columns


def _kept(keep: Any) -> tuple[Sequence[str], Sequence[str]]:
    """The kept columns of either side, of a call that may be wrong."""
    names = keep if isinstance(keep, (list, tuple)) else ()
    if len(names) == 2 and all(isinstance(part, (list, tuple)) for part in names):
        return names[0], names[1]
    return names, names


def _streaming_problems(left: DataFrame, right: DataFrame, time: Any, late: Any) -> list[str]:
    if left.isStreaming != right.isStreaming:
        one, other = ("left", "right") if left.isStreaming else ("right", "left")
        return [
            f"{one} is streaming and {other} is not: read both with spark.readStream or both with "
            "spark.read (to look rows up in a static table, use an ordinary Spark join)"
        ]
    if not left.isStreaming:
        return []
    times = time if isinstance(time, (tuple, list)) else (time, time)
    marked = [
        name
        for name, frame, column in zip(("left", "right"), (left, right), times, strict=False)
        if any(f.name == column and _WATERMARK in (f.metadata or {}) for f in frame.schema)
    ]
    if late is not None and marked:
        return [
            f"{' and '.join(marked)} already has a watermark: leave late= out and give both inputs "
            "one, or remove withWatermark"
        ]
    if late is None and len(marked) < 2:
        missing: dict[str, list[str]] = {}
        for name, column in zip(("left", "right"), times, strict=False):
            if name not in marked:
                missing.setdefault(column, []).append(name)
        hints = " and ".join(
            f".withWatermark({column!r}, '10 seconds') to {' and '.join(names)}"
            for column, names in missing.items()
        )
        return [
            "streaming needs a bound on lateness, or state would grow for ever: add "
            f"late='10 seconds' to the call (or {hints})"
        ]
    return []


def _control_problems(
    settings: Adaptive | None, control: Any, streaming: bool, late: Any
) -> list[str]:
    if settings is not None and not streaming:
        return [
            "plan=ab.adaptive(...) is for streaming; tables are joined under one plan: give one "
            "such as ab.grid(2, 2), or leave plan= and control= out"
        ]
    if control is None:
        if settings is None:
            return []
        return ["plan=ab.adaptive(...) keeps a plan log: add control='path/of/a/directory'"]
    problems = []
    if not isinstance(control, (str, os.PathLike)) or not os.fspath(control):
        problems.append(f"control must be the path of a directory, got {control!r}")
    if not streaming:
        problems.append("control= is for streaming; a batch query has one plan")
    elif late is None:
        problems.append("control= needs late=, which bounds how long a replaced plan stays live")
    return problems
