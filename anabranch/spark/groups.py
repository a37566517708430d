"""The verb `groups`: what pairs connect, as it opens, grows, merges and closes."""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructType,
)

from anabranch.calls import IDS, MISSING, TIMESTAMP, Check, Duration, is_whole
from anabranch.correlation.grouping import Grouping, GroupsJob
from anabranch.correlation.pair_packing import PairPacking
from anabranch.errors import renamed
from anabranch.flow.announced import Announced, announce
from anabranch.flow.metrics import metrics_name
from anabranch.flow.rejects import Rejecting
from anabranch.spark.frames import STREAMS, by_name, column_types, refuse_others
from anabranch.spark.lateness import lateness_problems, with_watermark
from anabranch.spark.opening import opened
from anabranch.spark.operator import PACKED, Packer, over_batch, over_stream
from anabranch.spark.rejects import begun, columns_of, rejection_of, rejection_problems
from anabranch.spark.settings import setting_problems

__all__ = ["grouped", "groups"]


@renamed(late="watermark", collect="keep")
def groups(
    pairs: DataFrame,
    *,
    gap: Duration = MISSING,
    id: Any = ("left_id", "right_id"),
    time: Any = "ts",
    keep: None = None,
    streams: int | None = None,
    watermark: Duration | None = None,
    plan: None = None,
    control: None = None,
    bad_rows: str = "fail",
    rejects: str | None = None,
) -> DataFrame:
    """Groups of rows that pairs connect: near-duplicate clusters, stories, entities.

    Rows are connected if they are in a pair, and with whom their partners are connected. A group
    closes once no pair of it has come for `gap`; later pairs of the same rows open another one.
    Pairs are taken in the order of their time and ids once the watermark has passed them, so the
    result depends on the set of pairs alone.

    Parameters
    ----------
    pairs
        The result of `correlate`, streaming or batch, or rows like it. A row with one id and a null
        for the other is a row without a partner: it is left out and counted.
    gap
        How long a group stays open after its last pair: a duration. It may change at a restart:
        open groups then close by the new one.
    id
        The columns of the two ids.
    time
        The column of the time of a pair.
    keep
        Not for this verb, which knows rows by their ids: join the members with your table.
    streams
        1 if both ids are of one stream, so that equal ids are one row; 2 if they are of two. By
        default what `correlate` says of its result.
    watermark
        Streaming: how far a pair may lag behind the newest. Leave it out for results of
        `correlate`, which carry their watermark.
    plan, control
        Not for this verb: one worker holds all open groups, for any pair may join two of them.
    bad_rows
        Pairs without a usable time, and rows without any id: ``"fail"`` stops at the first and
        names it; ``"drop"`` leaves them out and counts them.
    rejects
        A directory for pairs that are late or bad, each whole and once; ``ab.rejects(spark, path)``
        reads them.

    Returns
    -------
    DataFrame
        Append-only events, unique by ``group`` and ``revision``: ``event`` is ``opened``, ``grew``,
        ``merged`` (``into`` another group) or ``closed``; ``ts``, its time; ``rows`` and ``pairs``,
        how many; ``began`` and ``last``, the times of its first and last pair; ``left_id`` and
        ``right_id``, the pair that caused it; and of a closed one its ``members`` (``left_members``
        and ``right_members`` of two streams). A group is named by its first pair: the time in UTC,
        and the ids.

    Raises
    ------
    InvalidCall
        With every problem of the call.

    Examples
    --------
    >>> import anabranch as ab
    >>> table = spark.sql('''SELECT id, timestamp_seconds(1700000000 + id) AS ts,
    ...                             floor(id / 3) AS x FROM range(6)''')
    >>> pairs = ab.correlate(table, where=ab.same("x"), window="1 minute")
    >>> closed = ab.groups(pairs, gap="5 minutes").filter("event = 'closed'")
    >>> for row in closed.orderBy("group").collect():
    ...     print(row.group, row.rows, row.pairs, row.members)
    2023-11-14T22:13:21.000000Z|0|1 3 3 [0, 1, 2]
    2023-11-14T22:13:24.000000Z|3|4 3 3 [3, 4, 5]
    """
    refuse_others("groups", {"pairs": pairs})
    given = {"pairs": pairs}
    (frame,), (id, time) = opened((pairs,), (id, time))
    spark, types = frame.sparkSession, column_types(frame)
    check = Check(pairs=types)
    us = 0
    if check.given("gap", gap, "gap='5 minutes', how long a group waits for its next pair"):
        us = check.duration("gap", gap, 1)
    delay = None if watermark is None else check.duration("watermark", watermark)
    names = check.pair("id", id) or ("", "")
    if names[0] and names[0] == names[1]:
        check.say(f"id: {names[0]!r} would be both ids: name two, id=('left_id', 'right_id')")
    ids = [check.column("pairs", name, "id", IDS) for name in names]
    moment = check.column("pairs", check.name("time", time), "time", TIMESTAMP)
    one = _one_stream(check, frame, ids[0], streams)
    if all(ids) and one and types[ids[0]] != types[ids[1]]:
        check.say(f"id: both ids of one stream have one type, got {types[ids[0]]}, {types[ids[1]]}")
    drop = check.choice("bad_rows", bad_rows, ("fail", "drop")) == "drop"
    problems = _vocabulary_problems(keep=keep, plan=plan, control=control)
    problems += setting_problems(spark, frame.isStreaming)
    problems += lateness_problems({"pairs": frame}, {"pairs": moment}, watermark)
    problems += rejection_problems(rejects, given)
    for problem in problems:
        check.say(problem)
    check.refuse("groups")
    kinds = tuple("string" if types[name] == "string" else "bigint" for name in ids)
    job = GroupsJob(Grouping(us, one, delay, types=(kinds[0], kinds[1])))
    rejection = rejection_of("groups", rejects, given)
    columns = [by_name(name).cast(kind) for name, kind in zip(ids, kinds, strict=True)]
    rows = frame.select(
        F.unix_micros(by_name(moment)).alias("t"),
        columns[0].alias("left"),
        columns[1].alias("right"),
        *columns_of(rejection, 0),
    )
    packing = PairPacking(moment, drop, frame.isStreaming)
    name = metrics_name("groups")
    rejecting = begun(rejection, frame, name)
    events = grouped(job, rows, packing, _fields(kinds), name, rejecting)
    return _result(events, [frame.schema[name].dataType for name in ids], one)


def grouped(
    job: GroupsJob,
    rows: DataFrame,
    packing: PairPacking,
    fields: StructType,
    name: str,
    rejecting: Rejecting | None = None,
    what: str = "Groups of rows",
) -> DataFrame:
    """The events of a job; `rows` have the columns of its packing, and `what` says what comes."""
    blocks = rows.mapInArrow(Packer(packing), PACKED)
    if not rows.isStreaming:
        return over_batch(job, blocks, fields, rejecting=rejecting)
    announce(name, Announced(job.grouping.words(what), delay=job.grouping.delay))
    blocks = with_watermark(blocks, job.grouping.delay)
    return over_stream(job, blocks, fields, name, carries=False, rejecting=rejecting)


def _vocabulary_problems(**given: Any) -> list[str]:
    """What other verbs take and this one cannot use; why, and what to do."""
    why = {
        "keep": "groups knows rows by their ids alone; join the members with your table",
        "plan": "one worker holds all open groups, for any pair may join two of them; split the "
        "pairs by a key and call groups for each part",
        "control": "a plan log lets plans change while a query runs, and groups has none",
    }
    return [
        f"{name}={value!r} would have no effect: {why[name]}; leave {name}= out"
        for name, value in given.items()
        if value is not None
    ]


def _one_stream(check: Check, frame: DataFrame, ident: str, streams: Any) -> bool:
    said = (frame.schema[ident].metadata or {}).get(STREAMS) if ident else 2
    if streams is None:
        streams = said
    if not is_whole(streams) or streams > 2:
        got = "pairs do not say" if streams is None else f"got {streams!r}"
        check.say(
            "streams must be 1 if both ids are of one stream, so that equal ids are one row, or 2 "
            f"if they are of two; {got}"
        )
    return is_whole(streams) and int(streams) == 1


def _fields(kinds: tuple[str, ...]) -> StructType:
    ids: list[DataType] = [StringType() if kind == "string" else LongType() for kind in kinds]
    fields = StructType().add("group", StringType()).add("revision", IntegerType())
    fields.add("event", StringType()).add("t", LongType()).add("into", StringType())
    fields.add("rows", IntegerType()).add("pairs", IntegerType())
    fields.add("began", LongType()).add("last", LongType())
    for side, kind in zip(("left", "right"), ids, strict=True):
        fields.add(f"{side}_id", kind)
    for side, kind in zip(("left", "right"), ids, strict=True):
        fields.add(f"{side}_members", ArrayType(kind))
    return fields


def _result(events: DataFrame, kinds: list[DataType], one: bool) -> DataFrame:
    columns = [
        F.col("group"),
        F.col("revision"),
        F.col("event"),
        F.timestamp_micros("t").alias("ts"),
        F.col("into"),
        F.col("rows"),
        F.col("pairs"),
        F.timestamp_micros("began").alias("began"),
        F.timestamp_micros("last").alias("last"),
        F.col("left_id").cast(kinds[0]),
        F.col("right_id").cast(kinds[1]),
    ]
    if one:
        members = F.col("left_members").cast(ArrayType(kinds[0]))
        return events.select(*columns, members.alias("members"))
    for side, kind in zip(("left", "right"), kinds, strict=True):
        columns.append(F.col(f"{side}_members").cast(ArrayType(kind)).alias(f"{side}_members"))
    return events.select(*columns)
