"""`ab.video.shots`: the key frames of channels."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructType, TimestampType

from anabranch.calls import Check, Duration
from anabranch.errors import renamed
from anabranch.flow.metrics import metrics_name
from anabranch.spark.frames import by_name, column_types, refuse_others
from anabranch.spark.operator import PACKED, Packer, over_batch, over_stream
from anabranch.spark.settings import partitions, setting_problems
from anabranch.video.shot_kernel import CARRIED, FramePacking, ShotsJob

__all__ = ["shots"]

_NEEDED = {
    **{"id": "string", "channel": "string", "ts": "timestamp", "segment": "string"},
    **{"run": "bigint", "pts": "bigint", "anchor": "boolean", "sig": "binary"},
    **{"features": "array<float>", "grey": "array<int>", "grey_centred": "array<int>"},
    **{"phash": "bigint", "picture": "binary"},
}


@renamed(rejects="a frame without channel or time stops the query; ab.video.frames gives none")
def shots(frames: DataFrame, *, longest: Duration = "10 seconds") -> DataFrame:
    """The key frames of channels: the first described frame of each shot, once the picture is
    steady.

    A shot begins with a cut, a gradual change or a fade. Any cutting into segments and any batching
    gives the key frames of one pass over the whole film. No watermark is needed; the decision about
    a frame waits for the two after it.

    Parameters
    ----------
    frames
        The rows of `ab.video.frames` or `ab.video.table`.
    longest
        A key frame comes at least so often, whatever is shown.

    Returns
    -------
    DataFrame
        ``id, channel, ts, segment, pts, features, grey, grey_centred, phash, picture`` of a frame;
        ``began``, when its shot did; ``reason``: start, cut, gradual, fade or longest.

    Raises
    ------
    InvalidCall
        With every problem of the call.

    Examples
    --------
    >>> import anabranch as ab
    >>> keys = ab.video.shots(ab.video.frames(spark, "channels", start="2024-05-01T12:00:00"))
    >>> keys.columns[:6]
    ['id', 'channel', 'ts', 'began', 'reason', 'segment']
    """
    refuse_others("video.shots", {"frames": frames})
    spark = frames.sparkSession
    check = Check(frames=column_types(frames))
    for name, kind in _NEEDED.items():
        check.column("frames", name, "shots", {kind})
    us = check.duration("longest", longest, 1)
    for problem in setting_problems(spark, frames.isStreaming):
        check.say(problem)
    check.refuse("video.shots")
    rows = frames.select(
        F.unix_micros("ts").alias("t"),
        *(by_name(name) for name in ("channel", "run", "anchor", "sig", *CARRIED)),
    )
    blocks = rows.mapInArrow(Packer(FramePacking(partitions(spark))), PACKED)
    fields = StructType()
    for name in ("channel", "ts", "began", "reason"):
        fields.add(name, TimestampType() if name in ("ts", "began") else StringType())
    for name in CARRIED:
        fields.add(frames.schema[name])
    job = ShotsJob(us)
    if frames.isStreaming:
        found = over_stream(job, blocks, fields, metrics_name("shots"), timed=False)
    else:
        found = over_batch(job, blocks, fields)
    first = ("id", "channel", "ts", "began", "reason")
    return found.select(*first, *(name for name in CARRIED if name not in first))
