"""The verb `assemble`: instances out of events that are scattered over streams or tables."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from anabranch.assembly.call import FIGURES, Assembly, plan_assembly
from anabranch.assembly.closing import Closing, Learned
from anabranch.assembly.fitting import WindowFit
from anabranch.assembly.job import AssembleJob
from anabranch.assembly.packing import EventPacking
from anabranch.calls import FLOATING, MISSING, Duration, microseconds
from anabranch.errors import InvalidCall, renamed
from anabranch.flow.announced import Announced, announce
from anabranch.flow.hashing import worker_keys
from anabranch.flow.intake import FAR
from anabranch.flow.metrics import metrics_name
from anabranch.plans.hashed import Keyed
from anabranch.spark.carriage import carry_problems
from anabranch.spark.frames import (
    ASSEMBLY_KEY,
    ASSEMBLY_SIZE,
    by_name,
    column_types,
    condition,
    hashable,
    refuse_others,
)
from anabranch.spark.lateness import WATERMARK, lateness_problems, mixed_problems, with_watermark
from anabranch.spark.opening import opened
from anabranch.spark.operator import PACKED, Packer, over_batch, over_stream
from anabranch.spark.rejects import begun, columns_of, rejection_of, rejection_problems
from anabranch.spark.settings import partitions, setting_problems

_LOG = logging.getLogger("anabranch")
_REPEATED = 0.1  # the share of kinds that must last longer than one instance may

__all__ = ["assemble"]


@renamed(
    late="watermark",
    collect="keep",
    buckets="write plan=ab.keyed(8)",
    id="the columns that name an instance are key=",
)
def assemble(
    inputs: DataFrame | Sequence[DataFrame],
    *,
    key: Any = MISSING,
    close: Closing | WindowFit = MISSING,
    time: Any = "ts",
    keep: Any = (),
    response: Any = None,
    watermark: Duration | None = None,
    max_open: int | None = None,
    clock: str = "event",
    idle: Duration | None = None,
    plan: Keyed | None = None,
    control: None = None,
    bad_rows: str = "drop",
    rejects: str | None = None,
) -> DataFrame:
    """Instances: the events of each key, gathered in windows that close by a policy.

    Parameters
    ----------
    inputs
        One or several streaming (or batch) DataFrames of the same columns; they are united. With
        tables the call runs a job, which finds their newest time.
    key
        The columns that together name an instance, such as ``["page", "client"]``. Rows in which
        one of them, or the time, is null belong to no instance: see `bad_rows`.
    close
        When a window closes: ``ab.close.count(13, "22 seconds")``, ``ab.close.learned()``,
        ``ab.close.gap("8 seconds")`` or ``ab.close.after("30 seconds")``, each also with an end
        marker, ``ab.close.until("is_last", otherwise=...)``; or what ``ab.fit_windows`` found.
    time
        The column of the event time.
    keep
        Columns to keep of every event, in order of time, in `items`.
    response
        A column of response times in milliseconds, by name, inside a struct too (``"http.ms"``), or
        as a Column; `duration` then reaches to the last response.
        Null, NaN and infinite ones count as none.
    watermark
        Streaming: how far an event may lag behind the newest one. Leave it out if the inputs
        have watermarks of their own.
    max_open
        Windows that may be open at once; the one with the earliest deadline is evicted for a new
        one.
    clock
        ``"event"``: events count at their own time, whatever order they come in.
        ``"processing"``: at the time of their micro-batch (streaming only).
    idle
        Streaming, event time: the wall clock less this moves the watermark too, so that windows
        close while all inputs are silent. For live data only.
    plan
        ``ab.keyed(workers)``: into how many parts the keys are split; by default as many as there
        are shuffle partitions. The checkpoint remembers the number, and rejects another.
    control
        Not for this verb, whose plan never changes while a checkpoint lives: keys stay where their
        windows are open.
    bad_rows
        Rows without a key or a usable time: ``"drop"`` leaves them out, warns of those of a table
        and counts those of a stream; ``"fail"`` stops at the first and names it.
    rejects
        A directory for the rows that are left out, each whole and once; ``ab.rejects(spark, path)``
        reads them. Late events are none of these: they come out as revisions.

    Returns
    -------
    DataFrame
        The key, then ``seq, revision, opened, closed, reason, count, usual_count, count_ratio,
        first_ts, last_ts, duration`` (seconds), ``streams`` (numbers of the inputs), and `items`
        if anything is collected. `closed` carries the watermark. A row with ``revision > 0``
        brings later events of the same instance: its figures are those of the whole instance,
        its `items` only what is new.

    Raises
    ------
    InvalidCall
        With every problem of the call.

    Examples
    --------
    >>> import anabranch as ab
    >>> calls = spark.sql('''SELECT id % 3 AS page, timestamp_seconds(1700000000 + id) AS ts, id
    ...                      FROM range(9)''')
    >>> close = ab.close.count(3, "1 minute")
    >>> pages = ab.assemble(calls, key="page", close=close, keep="id")
    >>> pages.select("page", "reason", "count", "items.id").orderBy("page").collect()
    [Row(page=0, reason='full', count=3, id=[0, 3, 6]), Row(page=1, reason='full', count=3, \
id=[1, 4, 7]), Row(page=2, reason='full', count=3, id=[2, 5, 8])]
    """
    several: Any = inputs
    frames: list[DataFrame] = list(several) if isinstance(several, (list, tuple)) else [several]
    given = named = {f"input {n}": frame for n, frame in enumerate(frames)}
    refuse_others("assemble", named)
    policy: Any = getattr(close, "closing", close)  # of what ab.fit_windows found
    said: Sequence[Any] = policy.columns if isinstance(policy, Closing) else ()
    arguments = (key, time, keep, response, *said)
    frames, (key, time, keep, response, *said) = opened(frames, arguments)
    policy = policy.named(*said) if said else policy
    named = dict(zip(named, frames, strict=True))
    schemas = [column_types(frame) for frame in frames]
    streaming = bool(frames) and all(frame.isStreaming for frame in frames)
    call, problems = plan_assembly(
        schemas,
        key=key,
        time=time,
        close=policy,
        keep=keep,
        response=response,
        watermark=watermark,
        max_open=max_open,
        clock=clock,
        bad_rows=bad_rows,
    )
    problems += mixed_problems(named) or _clock_problems(streaming, watermark, clock, idle)
    if not (isinstance(clock, str) and clock == "processing"):
        problems += lateness_problems(named, dict.fromkeys(named, time), watermark)
    if frames:
        problems += setting_problems(frames[0].sparkSession, streaming)
    problems += _plan_problems(plan, control)
    problems += rejection_problems(rejects, given)
    if call is not None:
        problems += carry_problems("column", frames[0], [*call.key, *call.keep])
        problems += _marker_problems(call, frames[0])
    if problems or call is None:
        raise InvalidCall("assemble", problems)
    _warn_of_kinds_seen_once(call, frames, streaming)
    rejection = rejection_of("assemble", rejects, given)
    count = plan.workers if plan is not None else partitions(frames[0].sparkSession)
    packed = [
        frame.select(
            *_prepared(call, number, frame, schemas[0]), *columns_of(rejection, number)
        ).mapInArrow(Packer(EventPacking(call, number, count, streaming)), PACKED)
        for number, frame in enumerate(frames)
    ]
    blocks = reduce(DataFrame.union, packed)
    job, fields = AssembleJob(call, count, streaming), _fields(call, frames[0])
    name = metrics_name("assemble", at_once=call.by_arrival)
    rejecting = begun(rejection, frames[0], name)
    if not streaming:
        found = over_batch(job, blocks, fields, _newest(call, frames), rejecting)
        return found.select(*_result(call, streaming))
    if idle is not None:
        blocks = blocks.union(_heartbeat(frames[0], microseconds(idle), count))
    announce(name, Announced(call.words, plan or Keyed(count), None, call.delay))
    blocks = with_watermark(blocks, call.delay)
    # Late rows become revisions; windows close in the order of the watermark.
    found = over_stream(job, blocks, fields, name, by_clock=call.by_arrival, rejecting=rejecting)
    return found.select(*_result(call, streaming))


def _warn_of_kinds_seen_once(call: Assembly, frames: Sequence[DataFrame], streaming: bool) -> None:
    """What is learned of a value that names a single instance is of use for no other."""
    if not isinstance(call.closing, Learned) or call.key != (call.kind,):
        return
    remedy = (
        "put a column that many instances share first in the key, key=['page', 'client'], or name "
        "it with kind="
    )
    if streaming:
        _LOG.warning(
            "ab.close.learned learns by %r, which is the whole key: if a value of it does not come "
            "again, it learns only from all kinds together, and no usual_count; then %s",
            call.kind,
            remedy,
        )
        return
    t = F.unix_micros(by_name(call.time))
    rows = [frame.select(by_name(call.kind).alias("kind"), t.alias("t")) for frame in frames]
    _LOG.info("assemble runs a job over its tables, to see whether values of %r repeat", call.kind)
    spans = reduce(DataFrame.union, rows).groupBy("kind").agg((F.max("t") - F.min("t")).alias("s"))
    again = F.coalesce(F.col("s") >= F.lit(call.closing.timeout), F.lit(False))
    found = spans.agg(F.count(F.lit(1)), F.count_if(again)).first()
    # Some last long all the same: it takes more than a few to say that kinds come again.
    if found is not None and found[0] > 1 and found[1] < _REPEATED * found[0]:
        warnings.warn(
            f"nearly every value of {call.kind!r} was seen once, so ab.close.learned learns only "
            f"from all kinds together, and no usual_count: {remedy}",
            stacklevel=4,
        )


def _plan_problems(plan: Any, control: Any) -> list[str]:
    """What is wrong with a plan: keys go to one worker each, and to all workers alike."""
    problems = []
    if control is not None:
        problems.append(
            f"control={control!r} would have no effect: a plan log lets plans change while a query "
            "runs, and the keys of assemble stay with the worker that holds their windows; leave "
            "control= out. The checkpoint remembers plan=ab.keyed(workers) and rejects another"
        )
    if isinstance(plan, Keyed) and plan.weights is not None:
        problems.append("plan: assemble spreads keys evenly: leave weights out")
    if not (plan is None or isinstance(plan, Keyed)):
        what = "plan must be ab.keyed(workers), which sends a key to one worker"
        problems.append(f"{what}, got {plan!r}")
    return problems


def _marker_problems(call: Assembly, frame: DataFrame) -> list[str]:
    """What is wrong with the end marker of the policy, if it has one."""
    if call.closing.marker is not None:
        try:
            condition(frame, str(call.closing.marker), "the marker of close.until")
        except ValueError as error:
            return [str(error)]
    return []


def _newest(call: Assembly, frames: Sequence[DataFrame]) -> int:
    """The newest time of all tables, at which windows that are still open are flushed."""
    _LOG.info("assemble runs a job over its tables, to find their newest time")
    newest, rejected = None, 0
    bad = reduce(Column.__or__, (by_name(name).isNull() for name in (call.time, *call.key)))
    bad = bad | F.coalesce(~F.unix_micros(by_name(call.time)).between(-FAR, FAR), F.lit(False))
    for frame in frames:
        t = F.max(F.when(~bad, F.unix_micros(by_name(call.time))))
        found = frame.agg(t, F.count_if(bad)).first()
        assert found is not None
        rejected += found[1]
        if found[0] is not None:
            newest = found[0] if newest is None else max(newest, found[0])
    if rejected and call.drop_bad_rows:
        warnings.warn(
            f"{rejected} rows have no {' or no '.join((call.time, *call.key))}, which belong to no "
            "instance and are left out",
            stacklevel=5,
        )
    return newest or 0


def _prepared(
    call: Assembly, stream: int, frame: DataFrame, types: Mapping[str, str]
) -> list[Column]:
    """What the packer reads: times in microseconds, hashes, key and collected columns."""
    t = F.unix_micros(by_name(call.time))
    end = F.lit(None).cast("bigint")
    if call.response is not None:
        # No time, no number and no end of time are all no response.
        took = F.round(by_name(call.response).cast("double") * 1000).try_cast("bigint")
        end = F.try_add(t, took)
    keys = [hashable(by_name(name), types[name]) for name in call.key]
    h1 = F.xxhash64(*keys)
    kind = [hashable(by_name(call.kind), types[call.kind])]
    if isinstance(call.closing, Learned) and call.closing.spread > 1:
        kind.append(F.pmod(h1, F.lit(call.closing.spread)))
    # Rows of the same time and key are told apart by what they hold, whichever comes first.
    content = [F.lit(stream), end.isNull(), end]
    for name in call.keep:
        content += [by_name(name).isNull(), hashable(by_name(name), types[name])]
        if types[name] in FLOATING:  # the hash takes zero and negative zero for the same
            content.append(F.when(by_name(name) == 0, by_name(name).cast("string")))
    ends = []
    if call.closing.marker is not None:
        ends = [condition(frame, str(call.closing.marker))]
    columns = [
        t.alias("t"),
        end.alias("end"),
        h1.alias("h1"),
        F.xxhash64(F.lit(7), *keys).alias("h2"),
        F.xxhash64(*kind).alias("kind"),
        F.xxhash64(*content, *ends).alias("tie"),
        *(marked.alias("ends") for marked in ends),
    ]
    columns += [by_name(name).alias(f"k{n}") for n, name in enumerate(call.key)]
    return columns + [by_name(name).alias(f"c{n}") for n, name in enumerate(call.keep)]


def _fields(call: Assembly, frame: DataFrame) -> StructType:
    """The result's columns, under the names that they have inside the operator."""
    types = {field.name: field.dataType for field in frame.schema}
    fields = StructType()
    for number, name in enumerate(call.key):
        fields.add(f"k{number}", types[name])
    figures = {
        "seq": IntegerType(),
        "revision": IntegerType(),
        "reason": StringType(),
        "count": LongType(),
        "usual_count": LongType(),
        "count_ratio": DoubleType(),
        "duration": DoubleType(),
        "streams": ArrayType(IntegerType()),
    }
    for name in FIGURES:
        fields.add(name, figures.get(name, TimestampType()))
    if call.keep:
        items = [StructField(name, types[name]) for name in call.keep]
        fields.add("items", ArrayType(StructType(items)))
    return fields


def _result(call: Assembly, streaming: bool) -> list[Column]:
    columns = [F.col(f"k{number}").alias(name) for number, name in enumerate(call.key)]
    for name in FIGURES:
        if name == "closed" and streaming and not call.by_arrival:
            # Windows close in the order of the watermark, which further operators may rely on.
            columns.append(F.col(name).alias(name, metadata={WATERMARK: 0}))
        elif name == "seq":
            # Who merges revisions must know if part of the key was dropped on the way.
            # And whether `full` is a size that was declared, or the cap of what is learned.
            told = {ASSEMBLY_KEY: list(call.key), ASSEMBLY_SIZE: call.closing.proves}
            columns.append(F.col(name).alias(name, metadata=told))
        else:
            columns.append(F.col(name))
    if call.keep:
        columns.append(F.col("items"))
    return columns


def _heartbeat(frame: DataFrame, idle: int, buckets: int) -> DataFrame:
    """A row a second without an event, whose time is the wall clock's less `idle`."""
    ticks = frame.sparkSession.readStream.format("rate").option("rowsPerSecond", 1).load()
    return ticks.select(
        F.lit(worker_keys(buckets)[0]).alias("worker"),
        F.timestamp_micros(F.unix_micros("timestamp") - F.lit(idle)).alias("newest"),
        F.lit(None).cast("binary").alias("block"),
    )


def _clock_problems(streaming: bool, watermark: Any, clock: Any, idle: Any) -> list[str]:
    problems = []
    if idle is not None:
        try:
            if microseconds(idle) < 0:
                problems.append(f"idle must not be negative, got {idle!r}")
        except ValueError as error:
            problems.append(f"idle: {error}")
        if watermark is None or not streaming:
            problems.append(
                "idle= moves the watermark of a stream: it needs streams and watermark="
            )
    if isinstance(clock, str) and clock == "processing" and not streaming:
        problems.append("clock='processing' is for streams; a table has no time of arrival")
    return problems
