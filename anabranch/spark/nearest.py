"""The verb `nearest`: continuous k-nearest-neighbour queries over sliding windows."""

from __future__ import annotations

import logging
import warnings
from dataclasses import replace
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from anabranch.calls import MISSING, Duration
from anabranch.errors import InvalidCall, renamed
from anabranch.flow.announced import Announced, announce
from anabranch.flow.blocks import Block
from anabranch.flow.folders import absolute
from anabranch.flow.intake import whole_of
from anabranch.flow.kernel import operator_of
from anabranch.flow.metrics import metrics_name
from anabranch.neighbours.call import MOST_K, QUERY_ID, Nearest, plan_nearest
from anabranch.neighbours.job import NearestJob
from anabranch.neighbours.lists.zones import workers_for
from anabranch.neighbours.packing import HomePacking, ObjectPacking, QueryPacking
from anabranch.neighbours.queries import fixed_queries
from anabranch.neighbours.selective.jobs import HomeJob, OwnerJob
from anabranch.neighbours.selective.routing import Selective, cheaper_plan
from anabranch.plans.current import CurrentPlans
from anabranch.plans.hashed import Broadcast, broadcast
from anabranch.plans.keeper import Keeping, warn_of_other_plan
from anabranch.plans.plan import LEFT, Plan
from anabranch.predicates import Predicate, VectorMeasure, euclidean
from anabranch.spark.carriage import carry_problems, names_of
from anabranch.spark.frames import by_name, column_types, refuse_others
from anabranch.spark.keeper import attach
from anabranch.spark.lateness import with_watermark
from anabranch.spark.nearest_checks import (
    choice_problems,
    control_problems,
    kind_problems,
    watermark_problems,
)
from anabranch.spark.nearest_results import fields_of, shown
from anabranch.spark.nearest_rows import object_rows, query_rows
from anabranch.spark.opening import OfEach, of_each, opened
from anabranch.spark.operator import CELLS, PACKED, Packer, over_batch, over_stream
from anabranch.spark.rejects import (
    Rejection,
    begun,
    rejection_of,
    rejection_problems,
)
from anabranch.spark.settings import partitions, room_problems, setting_problems

__all__ = ["nearest"]

_LOG = logging.getLogger("anabranch")


@renamed(late="watermark", expected="objects_per_window", collect="keep")
def nearest(
    objects: DataFrame,
    queries: DataFrame,
    *,
    by: str | Column | VectorMeasure = MISSING,
    where: Predicate | None = None,
    time: Any = "ts",
    id: Any = ("id", QUERY_ID),
    keep: Any = (),
    k: int | None = None,
    within: float | None = None,
    window: Duration | None = None,
    rows: int | None = None,
    watermark: Duration | None = None,
    plan: Broadcast | Selective | None = None,
    method: str = "exact",
    error: float | None = None,
    output: str = "hits",
    control: str | None = None,
    objects_per_window: int | None = None,
    bad_rows: str = "fail",
    rejects: str | None = None,
    device: str = "auto",
) -> DataFrame:
    """Tell many standing queries of each object that gets among their k nearest.

    A query has a point, k and a window. At every instant its top-k are the k objects of its window
    that are nearest to its point; of two at the same distance, the one earlier by (time, id). An
    object comes out once for each query whose top-k it ever enters, at the instant at which it
    first does: when it arrives, or when a nearer one leaves the window.

    Parameters
    ----------
    objects
        A streaming or batch DataFrame with an id, a time and a vector.
    queries
        Either a batch DataFrame, which a job brings to the driver, with ``query_id``, the vector,
        ``k`` and ``window`` or ``rows``, and perhaps ``since``, whose queries hold for the whole
        run; or a DataFrame of the same kind as `objects` with two more columns, ``op`` (``add`` or
        ``cancel``) and a time; a job counts those of a table, unless `plan` is given. Of all that
        is asked of one id the latest by time holds; what is delivered again has no effect.
    by
        The vector column, for the Euclidean distance; or ``ab.euclidean("v")``,
        ``ab.manhattan("v")``, ``ab.cosine("v")``, also with two names, of objects and of queries.
    where
        Which objects may be neighbours of which queries: ``ab.same("category")``,
        ``ab.differs("owner")``, ``ab.within("price", 5)``, with one name or two (objects, queries),
        ``ab.within("price", low="min_price", high="max_price")`` with the bounds in columns of the
        queries, combined with ``&``. The k nearest are those among the objects that pass; what is
        null never does.
    time, id
        Column names: one for both inputs, or a pair, of objects and of queries. One `id` is that of
        the objects; that of the queries is then ``query_id``.
    keep
        Columns of the objects to return with each hit, as ``object_<name>``.
    k, window, rows
        For queries that have no such column: how many neighbours, over which duration or over how
        many of the newest objects.
    within
        The largest distance: farther objects are not among the neighbours, even if fewer than k
        are left. By default any.
    watermark
        Streaming: how far a row may lag behind the newest object seen, by which time goes. Leave
        it out if the objects have a watermark of their own. Queries that come in a stream must have
        none, for it would stand still while none comes.
    plan
        ``ab.broadcast(workers)`` spreads the queries over so many workers and sends every object to
        all; ``ab.selective(workers)`` sends an object only where it may matter, and needs
        `control`. By default as many as pay for the queries' number and k, or one per shuffle
        partition if queries come in a stream, under ``broadcast`` unless `objects_per_window` says
        that ``selective`` is cheaper.
    method
        ``"exact"`` (the list with repair), ``"relaxed"`` and ``"filtered"`` (both exact, as the
        literature has them) or ``"probabilistic"``, which may miss objects.
    error
        With ``method="probabilistic"``: the share of results that may be missed where the order of
        objects is random.
    output
        ``"hits"``; or ``"top"``: after each micro-batch, the whole top-k of every query whose
        top-k has changed, for `ab.top`; one row of rank 0 if it is empty or the query has ended.
    control
        Streaming, with fixed queries and windows of time: a directory that driver and workers
        share. Under ``broadcast`` for the plan log, through which workers join and leave
        (``ab.plans.PlanLog(control).append(ab.broadcast(4))``); under ``selective`` for thresholds.
    objects_per_window
        About how many objects a window holds, if you know it, to choose between ``broadcast`` and
        ``selective`` by. That choice needs ``control=``, fixed queries and the exact method; where
        it is not to be made, `objects_per_window` is refused.
    bad_rows
        ``"fail"`` stops at the first row that cannot be compared and names it; ``"drop"`` leaves
        such rows out and warns of fixed queries among them; a stream counts them. It needs `dim`
        in `by`.
    rejects
        A directory for late objects of a stream and for rows that ``bad_rows="drop"`` leaves out,
        each whole and once; ``ab.rejects(spark, path)`` reads them.

    device
        ``"gpu"`` multiplies vectors on a GPU, for the same hits and scores, and fails in a task
        that sees none; ``"auto"`` does so where there is one and many queries make it the faster;
        ``"cpu"`` never. See docs/gpu.md.

    Returns
    -------
    DataFrame
        ``query_id, object_id, object_ts, entered_ts, distance, rank`` and the kept columns; with
        ``output="top"`` ``query_id, ts, rank, object_id, object_ts, distance`` and these. The
        query's id has the name that it has in `queries`.

    Raises
    ------
    InvalidCall
        With every problem of the call.

    Examples
    --------
    >>> import anabranch as ab
    >>> things = spark.sql('''SELECT id, timestamp_seconds(1700000000 + id) AS ts,
    ...                              array(float(id)) AS v FROM range(5)''')
    >>> wanted = spark.sql('''SELECT 'q' AS query_id, array(float(0)) AS v, 1 AS k,
    ...                              '2 seconds' AS window''')
    >>> hits = ab.nearest(things, wanted, by="v")
    >>> [(hit.object_id, hit.distance) for hit in hits.orderBy("entered_ts").collect()]
    [(0, 0.0), (1, 1.0), (2, 2.0), (3, 3.0), (4, 4.0)]
    """
    given = {"queries": queries, "objects": objects}  # in the order of their numbers
    refuse_others("nearest", {"objects": objects, "queries": queries})
    if isinstance(by, Column) or (isinstance(by, str) and by):
        by = euclidean(by)
    if isinstance(id, (str, Column)):  # of objects
        id = (id, QUERY_ID)
    columns = of_each(time), of_each(id), OfEach((keep, ()))
    (objects, queries), (time, id, (keep, _), by, where) = opened(
        (objects, queries), columns, by, where, points=False
    )
    spark = objects.sparkSession
    types = [column_types(frame) for frame in (objects, queries)]
    found, problems = plan_nearest(
        *types,
        by=by,
        where=where,
        time=time,
        id=id,
        keep=keep,
        k=k,
        within=within,
        window=window,
        rows=rows,
        watermark=watermark,
        plan=plan,
        method=method,
        error=error,
        output=output,
        objects_per_window=objects_per_window,
        bad_rows=bad_rows,
        device=device,
        streaming=objects.isStreaming,
    )
    problems += setting_problems(spark, objects.isStreaming)
    problems += kind_problems(objects, queries, types[1])
    problems += carry_problems("keep: objects column", objects, names_of(keep))
    problems += watermark_problems(objects, queries, time, watermark)
    problems += control_problems(control, objects, types[1], watermark, rows, plan)
    problems += room_problems(spark, plan)
    problems += choice_problems(objects_per_window, plan, control, found)
    problems += rejection_problems(rejects, given)
    if problems or found is None:
        raise InvalidCall("nearest", problems)
    rejection = rejection_of("nearest", rejects, given, [{}, found.objects.vectors])
    fixed = None
    if not found.has_ops:
        fixed, rejection = _collected(found, queries, rejection)
    chosen = found.plan or _chosen(
        found, queries, fixed, partitions(spark), objects_per_window, control
    )
    path = None if control is None else absolute(control)
    return _run(found, chosen, (objects, queries), fixed, path, rejection)


def _chosen(
    call: Nearest,
    queries: DataFrame,
    fixed: Block | None,
    most: int,
    objects_per_window: int | None,
    control: Any,
) -> Broadcast | Selective:
    """The plan of a call that names none."""
    if fixed is None:
        return broadcast(most if queries.isStreaming else workers_for(*_added(call, queries), most))
    k = fixed.columns["k"]
    if objects_per_window is not None and control is not None and call.method == "exact":
        routed = cheaper_plan(len(k), float(k.mean()), objects_per_window, most)
        if isinstance(routed, Selective):
            return routed
    return broadcast(workers_for(len(k), int(k.sum()), most))


def _added(call: Nearest, queries: DataFrame) -> tuple[int, int]:
    """How many queries a table adds, and the sum of their k."""
    k = by_name("k").cast("bigint") if "k" in call.query_columns else F.lit(None).cast("bigint")
    each = F.least(F.coalesce(k, F.lit(call.k)), F.lit(MOST_K))
    _LOG.info("nearest runs a job, which counts its queries to choose a plan; plan= would save it")
    row = queries.filter("op = 'add'").agg(F.count("*"), F.sum(each)).collect()[0]
    return row[0], row[1] or 0


def _run(
    call: Nearest,
    plan: Broadcast | Selective,
    frames: tuple[DataFrame, DataFrame],
    fixed: Block | None,
    control: str | None,
    rejection: Rejection | None,
) -> DataFrame:
    objects, queries = frames
    table = None if fixed is None else fixed.encode(**fixed.meta)
    job, name = NearestJob(call, table), metrics_name("nearest")
    rows, fields = object_rows(call, objects, rejection), fields_of(call, objects)
    window = (call.window, call.window) if call.window else None
    announce(name, Announced(call.words, plan, window, call.delay, control))
    if isinstance(plan, Selective):
        assert table is not None and control is not None
        packed = rows.mapInArrow(Packer(HomePacking(call, plan)), PACKED)
        homes = HomeJob(call, table, plan.workers, control, name)
        owners = OwnerJob(call, table, control, name)
        blocks = with_watermark(packed, call.delay)
        rejecting = begun(rejection, objects, name + "_homes")
        sent = over_stream(
            homes, blocks, CELLS, name + "_homes", carries=False, rejecting=rejecting
        )
        result = over_stream(owners, sent, fields, name, carries=False)
        return shown(call, result, (objects, queries))
    plans = CurrentPlans(plan, control, operator_of(job), name)
    # Workers that a later plan may use must have heard of what came before.
    changes = control is not None or (call.streaming and call.by_last_step)
    room = partitions(objects.sparkSession) if changes else 1
    packed = rows.mapInArrow(Packer(ObjectPacking(call, room), plans), PACKED)
    if fixed is None:
        asked = query_rows(call, queries, rejection).mapInArrow(
            Packer(QueryPacking(call, room), CurrentPlans(plan)), PACKED
        )
        packed = packed.union(asked)
    rejecting = begun(rejection, objects, name)
    if objects.isStreaming:
        if control is not None:
            assert fixed is not None
            _keep_log(call, plan, fixed, control, objects, name, operator_of(job))
        # Hits come when the watermark has passed them, so their times cannot carry it on.
        blocks = with_watermark(packed, call.delay)
        result = over_stream(job, blocks, fields, name, carries=False, rejecting=rejecting)
    else:
        result = over_batch(job, packed, fields, rejecting=rejecting)
    return shown(call, result, (objects, queries))


def _keep_log(
    call: Nearest,
    plan: Broadcast,
    fixed: Block,
    control: str,
    objects: DataFrame,
    name: str,
    operator: str,
) -> None:
    """Have the plan log kept once the query runs."""
    if call.plan is not None:
        warn_of_other_plan(control, plan)
    # A query changes hands two windows after the new plan's bound; until then the old one is live.
    longest = 2 * int(fixed.columns["window"].max(initial=0)) + 3000
    assert call.delay is not None
    keeping = Keeping(
        control=control,
        plan=plan,
        window=(longest, longest),
        delay=call.delay,
        most_workers=partitions(objects.sparkSession),
        operator=operator,
        bind=_only_broadcast,
    )
    attach(objects.sparkSession, name, keeping)


def _only_broadcast(plan: Plan) -> Plan:
    if not isinstance(plan, Broadcast) or plan.side != "right":
        raise ValueError(
            f"{plan} was asked for, but a running nearest takes ab.broadcast(workers) alone"
        )
    return plan


def _collected(
    call: Nearest, queries: DataFrame, rejection: Rejection | None
) -> tuple[Block, Rejection | None]:
    """The fixed queries, read once; those that are rejected go along."""
    _LOG.info("nearest runs a job, which brings its queries to the driver")
    table = query_rows(call, queries, rejection).toArrow()
    block, faults = fixed_queries(call, table)
    if faults.count:
        warnings.warn(
            f"nearest leaves out {faults.count} of its queries: {'; '.join(faults.problems)}",
            stacklevel=4,
        )
    if rejection is not None:
        rejection = replace(rejection, beforehand=faults.cell(whole_of(table), LEFT))
    return block, rejection
