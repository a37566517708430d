"""`ab.video.topics`: what several channels show at about the same time, as stories."""

from __future__ import annotations

import math

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructType,
)

from anabranch.calls import (
    FLOATING,
    IDS,
    MISSING,
    TIMESTAMP,
    Check,
    Duration,
    is_number,
    microseconds,
)
from anabranch.correlation.pair_packing import PairPacking
from anabranch.errors import renamed
from anabranch.flow.metrics import metrics_name
from anabranch.spark.frames import by_name, column_types, refuse_others
from anabranch.spark.groups import grouped
from anabranch.spark.lateness import lateness_problems, mixed_problems
from anabranch.spark.layouts import NAMES
from anabranch.spark.settings import setting_problems
from anabranch.video.stories import BETWEEN, MOST, TopicCall, TopicsJob

__all__ = ["topics"]

_REPEATING = "10 minutes"
_EQUAL = "1 second"  # a key frame may be the next anchor after its shot's beginning
_ADVERT = "1 minute"
_CHANNEL = frozenset({"string"})


@renamed(
    rejects="a bad pair stops the query, and ab.metrics counts late ones; pairs of ab.correlate "
    "are neither, and its own rejects= keeps the key frames that are"
)
def topics(
    pairs: DataFrame,
    *,
    near: Duration = MISSING,
    gap: Duration = MISSING,
    channels: int = 2,
    repeats: DataFrame | None = None,
    alone: float | None = None,
    longest: Duration = "30 minutes",
    live: bool = False,
    watermark: Duration | None = None,
) -> DataFrame:
    """Topics: stories that several channels tell, out of pairs of their key frames.

    Two pairs belong to one topic if they share a key frame, or if they are of the same two channels
    and their times on either differ by at most `near`. A topic closes once no pair of it has come
    for `gap`, or after `longest`. Pairs are taken in the order of their times and ids once the
    watermark has passed them, so the result depends on the set of pairs alone.

    Parameters
    ----------
    pairs
        The result of ``correlate`` of one stream of key frames with ``keep=["channel"]``; with
        ``"words"`` kept too, captions count, and with ``"concepts"`` topics have some. Pairs of
        different channels make topics; those of one channel are its repetitions, as in `repeats`.
    near
        How far apart the shots of a story may be on either channel; at most `gap`.
    gap
        How long a topic stays open after its last pair. Its heat halves in this time.
    channels
        On how many channels a topic must be.
    repeats
        Repetitions out of another ``correlate`` of the same stream, if `pairs` have none: with
        ``ab.same("channel")``, and the channel kept. A key frame like more than 3 others of its
        channel in the 10 minutes before a pair is furniture: an ident, a studio, a weather map. At
        least 4 within a minute that come again, each as long after, are an advert. Neither connects
        anything.
    alone
        The score from which one pair is a topic. A topic otherwise has two pairs, or captions that
        agree.
    longest
        How long a topic may go on after its first pair.
    live
        Streaming: whether to emit how topics would be now as well, before the watermark has passed
        their pairs. Such rows are ``provisional``; they depend on when rows came.
    watermark
        Streaming: how far a pair may lag behind the newest. Leave it out for results of
        `correlate`, which carry their watermark.

    Returns
    -------
    DataFrame
        Append-only events, unique by ``topic`` and ``revision`` but for those that are
        ``provisional``: ``event`` is ``opened``, ``grew``,
        ``merged`` (``into`` another topic) or ``closed``; ``ts``, its time; ``began`` and ``last``,
        of its first and last pair; ``channels``; how many ``shots`` (key frames) and ``pairs``;
        how many of its shots were ``repeated`` on their channel while it was open;
        ``score``, ``best_left_id`` and ``best_right_id`` of its best pair; ``words``, the line that
        is most like all that its key frames show; at most three ``concepts`` of those that its key
        frames show most; its ``heat`` at ``ts``; ``left_id`` and
        ``right_id``, the pair that caused it; and of one that is closed or provisional its
        ``members``.

    Raises
    ------
    InvalidCall
        With every problem of the call.

    Examples
    --------
    >>> import anabranch as ab
    >>> keys = spark.sql('''SELECT concat(channel, n) AS id, channel, n AS scene,
    ...                            timestamp_seconds(1700000000 + 4 * n) AS ts
    ...                     FROM range(3) AS t(n), VALUES ('north'), ('south') AS c(channel)''')
    >>> pairs = ab.correlate(keys, where=ab.same("scene") & ab.differs("channel"),
    ...                      window="1 minute", keep=["channel"])
    >>> found = ab.video.topics(pairs, near="30 seconds", gap="5 minutes")
    >>> row = found.filter("event = 'closed'").first()
    >>> row.topic, row.channels, row.shots, row.pairs
    ('2023-11-14T22:13:20.000000Z|north0|south0', ['north', 'south'], 6, 3)
    """
    given = {"pairs": pairs} if repeats is None else {"pairs": pairs, "repeats": repeats}
    refuse_others("topics", given)
    types = {label: column_types(frame) for label, frame in given.items()}
    check = Check(**types)
    durations = _durations(check, near, gap, longest)
    delay = None if watermark is None else check.duration("watermark", watermark)
    least = check.whole("channels", channels, 2)
    if alone is not None and not is_number(alone):
        check.say(f"alone must be a score such as 0.6, or None, got {alone!r}")
    live = check.flag("live", live)
    _check_columns(check, given)
    for problem in [
        *setting_problems(pairs.sparkSession, pairs.isStreaming),
        *(mixed_problems(given) or lateness_problems(given, dict.fromkeys(given, "ts"), watermark)),
    ]:
        check.say(problem)
    check.refuse("topics")
    kind = "string" if types["pairs"]["left_id"] == "string" else "bigint"
    call = TopicCall(
        durations["gap"],
        True,
        delay,
        types=(kind, kind),
        near=durations["near"],
        longest=durations["longest"],
        repeating=microseconds(_REPEATING),
        equal=microseconds(_EQUAL),
        span=microseconds(_ADVERT),
        channels=least,
        alone=None if alone is None else float(alone),
        live=live and pairs.isStreaming,
    )
    counts = by_name("left_channel") != by_name("right_channel")
    rows = _rows(pairs, kind, counts)
    if repeats is not None:
        rows = rows.union(_rows(repeats, kind, F.lit(False)))
    job = TopicsJob(call)
    packing = PairPacking("ts", False, pairs.isStreaming, job.order + job.facts)
    events = grouped(job, rows, packing, _fields(kind), metrics_name("groups"), what="Topics")
    return _result(events, pairs.schema["left_id"].dataType)


def _durations(check: Check, near: Duration, gap: Duration, longest: Duration) -> dict[str, int]:
    found = {"near": 0, "gap": 0, "longest": check.duration("longest", longest, 1)}
    if check.given("near", near, "near='30 seconds', how far apart the shots of a story may be"):
        found["near"] = check.duration("near", near)
    if check.given("gap", gap, "gap='5 minutes', how long a topic waits for its next pair"):
        found["gap"] = check.duration("gap", gap, 1)
        if found["near"] > found["gap"]:
            check.say(f"near must be at most gap, got {near!r} and {gap!r}")
    return found


def _check_columns(check: Check, given: dict[str, DataFrame]) -> None:
    """Columns as `correlate` names them, of key frames with ``id``, ``ts`` and ``channel``."""
    for label in given:
        check.column(label, "ts", "time", TIMESTAMP)
        for side in ("left", "right"):
            check.column(label, f"{side}_id", "id", IDS)
            check.column(label, f"{side}_channel", "keep", _CHANNEL)
            check.column(label, f"{side}_ts", "time", TIMESTAMP)
    check.column("pairs", "score", "score", FLOATING)


def _rows(frame: DataFrame, kind: str, counts: Column) -> DataFrame:
    """What the kernel reads; repetitions, which are no pairs of channels, do not count."""

    def text(name: str) -> Column:
        known = by_name(name).cast("string") if name in frame.columns else F.lit("")
        return F.coalesce(known, F.lit(""))

    counts = F.coalesce(counts, F.lit(True))  # one without a channel is no repetition
    score = F.coalesce(by_name("score"), F.lit(0)) if "score" in frame.columns else F.lit(0)
    return frame.select(
        F.unix_micros("ts").alias("t"),
        counts.cast("bigint").alias("counts"),
        by_name("left_id").cast(kind).alias("left"),
        by_name("right_id").cast(kind).alias("right"),
        *(text(f"{side}_channel").alias(f"{side}_channel") for side in ("left", "right")),
        *(F.unix_micros(by_name(f"{side}_ts")).alias(f"{side}_t") for side in ("left", "right")),
        F.when(counts, score).otherwise(0).cast("double").alias("score"),
        *(text(f"{side}_words").alias(f"{side}_words") for side in ("left", "right")),
        *(_concepts(frame, side).alias(f"{side}_concepts") for side in ("left", "right")),
    )


def _concepts(frame: DataFrame, side: str) -> Column:
    """The names of the most likely concepts of a key frame, the first one first, as one text."""
    name = f"{side}_concepts"
    field = frame.schema[name] if name in frame.columns else None
    names = None if field is None else field.metadata.get(NAMES)
    kinds = ("array<float>", "array<double>")
    if field is None or not names or field.dataType.simpleString() not in kinds:
        return F.lit("")
    called = F.array(*(F.lit(one) for one in names))
    ranked = F.array_sort(
        F.transform(
            by_name(name),
            lambda score, n: F.struct(
                F.coalesce(-score, F.lit(math.inf)).alias("less"), n.alias("n")
            ),
        )
    )
    first = F.transform(F.slice(ranked, 1, MOST), lambda one: F.get(called, one["n"]))
    return F.coalesce(F.array_join(first, BETWEEN), F.lit(""))


def _fields(kind: str) -> StructType:
    ident: DataType = StringType() if kind == "string" else LongType()
    fields = StructType().add("topic", StringType()).add("revision", IntegerType())
    fields.add("event", StringType()).add("t", LongType()).add("into", StringType())
    fields.add("began", LongType()).add("last", LongType())
    fields.add("channels", ArrayType(StringType()))
    fields.add("shots", IntegerType()).add("pairs", IntegerType()).add("repeated", IntegerType())
    fields.add("best_left_id", ident).add("best_right_id", ident).add("score", DoubleType())
    fields.add("words", StringType()).add("concepts", ArrayType(StringType()))
    fields.add("heat", DoubleType())
    fields.add("left_id", ident).add("right_id", ident)
    return fields.add("members", ArrayType(ident)).add("provisional", BooleanType())


def _result(events: DataFrame, kind: DataType) -> DataFrame:
    moments = {"t": "ts", "began": "began", "last": "last"}
    ids = ("best_left_id", "best_right_id", "left_id", "right_id")
    columns = []
    for name in events.columns:
        column = F.col(name)
        if name in moments:
            column = F.timestamp_micros(name)
        elif name in ids:
            column = column.cast(kind)
        elif name == "members":
            column = column.cast(ArrayType(kind))
        columns.append(column.alias(moments.get(name, name)))
    return events.select(*columns)
