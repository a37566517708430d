"""The verb `correlate`: a sliding-window join on similarity, on streaming and batch DataFrames."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DoubleType, LongType, StringType, StructType

from anabranch.calls import MISSING, Duration
from anabranch.correlation.call import Correlation, plan_correlation
from anabranch.correlation.forwarding import ForwardingJob
from anabranch.correlation.homes import Homes, homes_for
from anabranch.correlation.jobs import job_of
from anabranch.correlation.ordering import OrderJob, OrderPacking
from anabranch.correlation.packing import SidePacking
from anabranch.errors import InvalidCall, renamed
from anabranch.flow.announced import Announced, announce
from anabranch.flow.folders import absolute
from anabranch.flow.kernel import Job, operator_of
from anabranch.flow.metrics import alone_name, metrics_name, waiting_name
from anabranch.flow.rejects import Rejecting
from anabranch.flow.sides import Side, hash_column, keep_column
from anabranch.plans.controller import Adaptive
from anabranch.plans.current import CurrentPlans
from anabranch.plans.keeper import Keeping, warn_of_other_plan
from anabranch.plans.plan import LEFT, RIGHT, Plan
from anabranch.predicates import Predicate
from anabranch.spark.carriage import Carried, carry, carry_problems, names_of_each
from anabranch.spark.default_plan import default_plan
from anabranch.spark.frames import STREAMS, by_name, column_types, refuse_others
from anabranch.spark.keeper import attach, shared_path_problems
from anabranch.spark.lateness import WATERMARK, lateness_problems, mixed_problems, with_watermark
from anabranch.spark.layouts import layout_problems
from anabranch.spark.opening import lists_of_each, of_each, opened
from anabranch.spark.operator import CELLS, PACKED, Packer, over_batch, over_stream
from anabranch.spark.rejects import Rejection, begun, columns_of, rejection_of, rejection_problems
from anabranch.spark.settings import partitions, room_problems, setting_problems
from anabranch.spark.slots import slot_value
from anabranch.spark.unpacking import Posted, report_of_alone

__all__ = ["begin", "control_problems", "correlate", "run"]


@renamed(late="watermark", collect="keep")
def correlate(
    left: DataFrame,
    right: DataFrame | None = None,
    *,
    where: Predicate = MISSING,
    window: Duration | int | tuple[Duration, Duration] | tuple[int, int] = MISSING,
    time: Any = "ts",
    id: Any = "id",
    keep: Any = (),
    watermark: Duration | None = None,
    plan: Plan | Adaptive | None = None,
    control: str | None = None,
    bad_rows: str = "fail",
    rejects: str | None = None,
    how: str = "inner",
    device: str = "auto",
    ordered: bool = False,
) -> DataFrame:
    """Pairs of rows of two streams (or tables) that are close in time and satisfy a predicate.

    A left and a right row join iff ``-W_left <= left.time - right.time <= W_right``, both ends
    included, and the predicate holds. Every such pair of rows that are not late comes out exactly
    once, whatever the plan, the batching and the arrival order, and across restarts.

    Without `right` it is one stream against itself: every two rows that are at most the window
    apart and satisfy the predicate come out once, the earlier one, by time and id, on the left.

    Parameters
    ----------
    left, right
        Two streaming or two batch DataFrames, or one.
    where
        For example ``ab.cosine("v") >= 0.9``, or several of them combined with ``&``, ``|`` and
        ``~``. A column is a name, also inside a struct (``"payload.v"``), or a Column of Spark.
    window
        One duration, or ``(W_left, W_right)``: how long a row of each side waits for partners. One
        stream has one. Whole numbers count rows: with 1000, two rows may join iff at the later one
        the earlier one is among the newest 1000 of its side, by time and id. Pairs are then emitted
        when the watermark has passed them.
    time, id
        Column names, one for both sides or a pair. Times are timestamps; ids are long, int or
        string and unique within a side.
    keep
        Further columns to carry into the result: one list for both sides or a pair of lists.
    watermark
        Streaming: how far a row may lag behind the newest time seen on either side. Leave it out
        if both inputs have a watermark on their time column, as the output of an aggregate must.
    plan
        How the work is split; by default chosen from the number of shuffle partitions and, in
        batch, from row counts and times, which runs a job over the inputs. ``ab.adaptive(...)``
        changes it while the query runs.
    control
        Streaming: a directory for the plan log, which lets plans change while the query runs, by
        ``ab.adaptive`` or by hand (``ab.plans.PlanLog(control).append(...)``). It belongs to one
        checkpoint.
    bad_rows
        ``"fail"`` stops at the first row that cannot be compared and names it; ``"drop"`` leaves
        such rows out; a stream counts them.
    rejects
        A directory for late rows of a stream and for rows that ``bad_rows="drop"`` leaves out,
        each whole and once; ``ab.rejects(spark, path)`` reads them.
    how
        ``"inner"`` gives pairs. ``"left"``, ``"right"`` and ``"full"`` add rows of that side, or
        of both, that found no partner, with nulls for the other: in a stream once the watermark
        rules a partner out. ``"anti"`` gives only the left rows that found none.
    device
        ``"gpu"`` multiplies vectors on a GPU, for the same pairs and scores, and fails in a task
        that sees none; ``"auto"`` does so where there is one; ``"cpu"`` never. See docs/gpu.md.
    ordered
        One stream: whether terms may compare two columns, ``ab.within("asked", "bid", 0.5)``. The
        first is then that of the left row, the earlier one.

    Returns
    -------
    DataFrame
        ``left_<id>, right_<id>, left_<time>, right_<time>, ts, score``, then ``left_<c>`` and
        ``right_<c>`` for the kept columns. `ts` is the younger of the two times and carries the
        watermark, so the result can be fed to further stateful operators; with rows that found no
        partner it does not, for these are older. Of ``"anti"`` only the columns of the left.

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
    >>> ab.correlate(table, where=ab.euclidean("v") <= 1, window="1 second").count()
    3
    >>> ab.correlate(table, where=ab.euclidean("v") <= 9, window=2).count()
    5
    """
    given = inputs = {"stream": left} if right is None else {"left": left, "right": right}
    refuse_others("correlate", inputs)
    pairs = of_each(time), of_each(id), lists_of_each(keep)
    columns = (time, id, keep) if right is None else pairs
    frames, (time, id, keep, where) = opened(tuple(inputs.values()), columns, where)
    inputs = dict(zip(inputs, frames, strict=True))
    spark = frames[0].sparkSession
    settings = plan if isinstance(plan, Adaptive) else None
    fixed = settings.start if settings is not None else plan
    streaming = all(frame.isStreaming for frame in frames)
    found, problems = plan_correlation(
        column_types(frames[0]),
        None if right is None else column_types(frames[1]),
        where=where,
        window=window,
        time=time,
        id=id,
        keep=keep,
        watermark=watermark,
        plan=fixed,
        bad_rows=bad_rows,
        how=how,
        device=device,
        ordered=ordered,
    )
    times = time if isinstance(time, (tuple, list)) and len(time) == 2 else (time, time)
    problems += setting_problems(spark, streaming)
    for (label, frame), names in zip(inputs.items(), names_of_each(keep), strict=False):
        problems += carry_problems(f"keep: {label} column", frame, names)
    if isinstance(how, str) and how == "dedupe":  # what ab.dedupe asks for
        problems.append("how='dedupe' is ab.dedupe(stream, ...)")
    problems += mixed_problems(inputs) or lateness_problems(
        inputs, dict(zip(inputs, times, strict=False)), watermark
    )
    problems += control_problems(spark, settings, control, streaming, watermark)
    problems += rejection_problems(rejects, given)
    asked = settings if settings is not None else fixed
    problems += room_problems(spark, asked)
    problems += [] if found is None else layout_problems(frames, found.sides)
    if problems or found is None:
        raise InvalidCall("correlate", problems)
    vectors = [side.vectors for side in found.sides]
    rejection = rejection_of("correlate", rejects, given, vectors)
    return begin(found, frames, settings, control, rejection)


def begin(
    found: Correlation,
    frames: Sequence[DataFrame],
    settings: Adaptive | None,
    control: str | None,
    rejection: Rejection | None,
) -> DataFrame:
    """The result of a checked call, under its own plan, the first that adapts or the default."""
    if settings is not None:
        chosen = found.plan or settings.first_plan(found.has_key, found.one_stream)
    else:
        chosen = found.plan or default_plan(found, frames, partitions(frames[0].sparkSession))
    path = None if control is None else absolute(control)
    return run(found, chosen, frames, path, settings, rejection)


def run(
    correlation: Correlation,
    plan: Plan,
    frames: Sequence[DataFrame],
    control: str | None = None,
    settings: Adaptive | None = None,
    rejection: Rejection | None = None,
) -> DataFrame:
    """The result of a checked call."""
    verb = "dedupe" if correlation.how == "dedupe" else "correlate"
    spark, name = frames[LEFT].sparkSession, metrics_name(verb)
    fixed = plan if control is None else None
    streaming, tasks = frames[LEFT].isStreaming, partitions(spark)
    job = job_of(correlation, fixed, homes_for(tasks) if streaming else tasks)
    name = alone_name(name) if correlation.unmatched else name
    of_side = [frames[min(number, len(frames) - 1)] for number in (LEFT, RIGHT)]
    carried = [carry(f, side.keep) for f, side in zip(of_side, correlation.sides, strict=True)]
    plans = CurrentPlans(plan, control, operator_of(job), name)
    blocks = _packed(correlation, frames, carried, plans, rejection)
    fields = _fields(correlation, carried)
    first = waiting_name(name) if correlation.by_rows else name
    rejecting = begun(rejection, frames[LEFT], first)

    def through(
        job: Job,
        blocks: DataFrame,
        fields: StructType | Posted,
        name: str,
        rejecting: Rejecting | None = None,
    ) -> DataFrame:
        if streaming:
            carries = correlation.carries and fields is not CELLS
            return over_stream(job, blocks, fields, name, carries=carries, rejecting=rejecting)
        return over_batch(job, blocks, fields, rejecting=rejecting)

    if streaming:
        _announce(correlation, plan, control, name)
        if control is not None:
            _keep_log(control, plans, settings, correlation, spark)
        blocks = with_watermark(blocks, correlation.delay)
    if correlation.by_rows:  # the step that orders rows is the one that rejects some
        order = OrderJob(correlation, plans)
        blocks = through(order, blocks, CELLS, waiting_name(name), rejecting)
        rejecting = None
    last: StructType | Posted = fields
    if isinstance(job, ForwardingJob):
        last = Posted(fields, job.homes, Homes(correlation))
    pairs = through(job, blocks, last, name, rejecting)
    if streaming and isinstance(last, Posted):
        pairs = pairs.observe(waiting_name(name), report_of_alone(correlation.unmatched))
    return pairs.select(*_result(correlation, carried, of_side))


def _packed(
    correlation: Correlation,
    frames: Sequence[DataFrame],
    carried: Sequence[Sequence[Carried]],
    plans: CurrentPlans,
    rejection: Rejection | None,
) -> DataFrame:
    """The rows of all inputs as cells for workers."""
    packed = []
    for number, frame in enumerate(frames):
        of, room = (correlation, number, frame.isStreaming), partitions(frame.sparkSession)
        # Rows that are to be ordered are routed after that.
        by_rows = correlation.by_rows
        packer = Packer(OrderPacking(*of)) if by_rows else Packer(SidePacking(*of, room), plans)
        columns = _prepared(correlation.sides[number], carried[number])
        rows = frame.select(*columns, *columns_of(rejection, number))
        packed.append(rows.mapInArrow(packer, PACKED))
    return packed[LEFT] if correlation.one_stream else packed[LEFT].union(packed[RIGHT])


def _announce(correlation: Correlation, plan: Plan, control: str | None, name: str) -> None:
    """Let those who watch the query know what it does."""
    call = Announced(
        correlation.words,
        plan,
        None if correlation.by_rows else correlation.window,
        correlation.delay,
        control,
        correlation.one_stream,
    )
    announce(name, call)


def _fields(correlation: Correlation, carried: Sequence[Sequence[Carried]]) -> StructType:
    """The columns of a `Gathering`, as Spark knows them."""
    fields = StructType()
    for side in correlation.sides:
        fields.add(f"{side.label}_id", StringType() if side.id_is_text else LongType())
    fields.add("left_t", LongType()).add("right_t", LongType()).add("score", DoubleType())
    for side, kept in zip(correlation.sides, carried, strict=True):
        for number, column in enumerate(kept):
            fields.add(f"{side.label}_{keep_column(number)}", column.type)
    return fields


def _keep_log(
    control: str,
    plans: CurrentPlans,
    settings: Adaptive | None,
    correlation: Correlation,
    spark: SparkSession,
) -> None:
    """Have the plan log kept once the query runs."""
    if correlation.plan is not None:
        warn_of_other_plan(control, plans.plan, correlation.bound)
    assert correlation.delay is not None
    keeping = Keeping(
        control=control,
        plan=plans.plan,
        # Workers that count rows report up to which time all have expired: no window is to pass.
        window=(0, 0) if correlation.by_rows else correlation.window,
        delay=correlation.delay,
        most_workers=partitions(spark),
        operator=plans.operator,
        settings=settings,
        bind=correlation.bound,
        one_stream=correlation.one_stream,
    )
    attach(spark, plans.call, keeping)


def _prepared(side: Side, carried: Sequence[Carried]) -> list[Column]:
    """What the packer reads: time in microseconds, id, routing hashes, slots, kept columns."""
    ident = by_name(side.id).cast("string" if side.id_is_text else "bigint")
    columns = [F.unix_micros(by_name(side.time)).alias("t"), ident.alias("id")]
    keys = []
    for slot in side.slots:
        value = slot_value(slot)
        columns.append(value.alias(slot.name))
        if slot.kind == "text":
            columns.append(F.xxhash64(value).alias(hash_column(slot)))
        if slot.is_key:
            keys.append(value)
    columns.append(F.xxhash64(ident).alias("h"))
    columns.append((F.xxhash64(*keys) if keys else F.lit(0).cast("bigint")).alias("key"))
    return columns + [c.outward.alias(keep_column(n)) for n, c in enumerate(carried)]


def _result(
    correlation: Correlation, carried: Sequence[Sequence[Carried]], frames: Sequence[DataFrame]
) -> list[Column]:
    shown = correlation.shown
    sides = [side for number, side in enumerate(correlation.sides) if number in shown]
    frames, carried = [frames[n] for n in shown], [carried[n] for n in shown]
    columns = []
    for side, frame in zip(sides, frames, strict=True):
        type_, name = frame.schema[side.id].dataType, f"{side.label}_{side.id}"
        of = {STREAMS: 1 if correlation.one_stream else 2}
        columns.append(F.col(f"{side.label}_id").cast(type_).alias(name, metadata=of))
    for side in sides:
        columns.append(F.timestamp_micros(f"{side.label}_t").alias(f"{side.label}_{side.time}"))
    younger = F.timestamp_micros(F.greatest("left_t", "right_t"))
    mark = {WATERMARK: 0} if frames[0].isStreaming and correlation.carries else {}
    columns.append(younger.alias("ts", metadata=mark))
    if correlation.emits_pairs:
        columns.append(F.col("score"))
    for side, kept in zip(sides, carried, strict=True):
        columns += [
            c.inward(F.col(f"{side.label}_{keep_column(n)}")).alias(f"{side.label}_{c.name}")
            for n, c in enumerate(kept)
        ]
    return columns


def control_problems(
    spark: SparkSession, settings: Adaptive | None, control: Any, streaming: bool, late: Any
) -> list[str]:
    """What is wrong with a plan log, or with its lack."""
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
    if not streaming:
        problems.append("control= is for streaming; a batch query has one plan: leave it out")
    elif late is None:
        problems.append(
            "control= needs watermark=, which bounds how long a replaced plan stays live"
        )
    return problems + shared_path_problems(spark, "control", control)
