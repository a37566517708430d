"""`ab.video.frames` and `ab.video.table`: the frames of films as rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from anabranch.calls import Check, Duration
from anabranch.errors import renamed
from anabranch.flow.metrics import metrics_name
from anabranch.spark.layouts import LAYOUT, UNPICTURED
from anabranch.spark.settings import session_problems
from anabranch.spark.versions import limit_problems
from anabranch.spark.video.source import MAX_FILES, VideoSource, options_of
from anabranch.video.layout import VERSION
from anabranch.video.rows import COUNTS
from anabranch.video.starts import start_text, start_times

__all__ = ["frames", "table"]

_REJECTS = (
    "segments that cannot be read stay where they are; the query's observedMetrics count them and "
    "name each with its reason, under anabranch_video_"
)


@renamed(bad="bad_rows", keep="remove_after", rejects=_REJECTS)
def frames(
    spark: SparkSession,
    path: str,
    *,
    start: Any = None,
    every: Duration | None = None,
    anchors: Duration = "1 second",
    picture: tuple[int, int] | None = (640, 360),
    bad_rows: str = "drop",
    timestamps: str = "auto",
    closed: str = "auto",
    remove_after: Duration | None = None,
    max_files: int | None = MAX_FILES,
    max_bytes: int | None = None,
) -> DataFrame:
    """The frames of live channels, a row each, as a stream over folders of closed segments.

    Parameters
    ----------
    spark
        The session.
    path
        A film, a folder of segments, or a folder of channels' folders. All executors must see it.
    start
        When a channel begins: a datetime, an ISO text, or a dict of these by channel. By default
        the names tell it (``%Y%m%dT%H%M%S``, UTC), or the container's ``creation_time``.
    every
        Take a frame at this interval only; by default all of them.
    anchors
        Describe a frame at this interval, whatever happens; ``"1 ms"`` describes every frame.
    picture
        The JPEG of a described frame fits in this width and height; None leaves it out.
    bad_rows
        ``"drop"`` leaves out what cannot be read of a segment, and counts it; ``"fail"`` stops the
        query.
    timestamps
        ``"running"`` through segments, or ``"restart"`` with each; ``"auto"`` finds out.
    closed
        How a closed segment is known: ``"list"``, the recorder's CSV names it; ``"later"``, a later
        name exists; ``"all"``, every name without a leading dot; ``"auto"`` finds out.
    remove_after
        Remove segments so long after they were written, once they are processed; None keeps all.
    max_files, max_bytes
        The most segments, and bytes, of a channel in a micro-batch; None for no limit.

    Returns
    -------
    DataFrame
        ``id, channel, ts, segment, run, pts, key, anchor, sig``; and of described frames, which are
        anchors and those unlike the frame before, ``features, grey, grey_centred, phash, picture``.

    Raises
    ------
    InvalidCall
        With every problem of the call.

    Examples
    --------
    >>> rows = frames(spark, "channels", start="2024-05-01T12:00:00")
    >>> rows.isStreaming, rows.columns[:4]
    (True, ['id', 'channel', 'ts', 'segment'])
    """
    options = {
        **{"path": path, "start": start, "every": every, "anchors": anchors, "picture": picture},
        **{"bad_rows": bad_rows, "timestamps": timestamps, "closed": closed},
        **{"remove_after": remove_after, "max_files": max_files, "max_bytes": max_bytes},
    }
    usual = max_files is None or (isinstance(max_files, int) and max_files == MAX_FILES)
    limited = not (usual and max_bytes is None and remove_after is None)
    problems = session_problems(spark) + (limit_problems() if limited else [])
    texts = _texts("video.frames", options, problems)
    spark.dataSource.register(VideoSource)
    return _rows(spark.readStream.format("video").options(**texts).load(), picture is not None)


@renamed(bad="bad_rows", rejects=_REJECTS)
def table(
    spark: SparkSession,
    path: str,
    *,
    start: Any = None,
    every: Duration | None = None,
    anchors: Duration = "1 second",
    picture: tuple[int, int] | None = (640, 360),
    bad_rows: str = "drop",
    timestamps: str = "auto",
) -> DataFrame:
    """The frames of films as a table: the rows of `frames`, of every file that is there.

    Parameters
    ----------
    spark, path, start, every, anchors, picture, bad_rows, timestamps
        As of `frames`.

    Examples
    --------
    >>> table(spark, ".", every="soon")
    Traceback (most recent call last):
        ...
    anabranch.errors.InvalidCall: video.table cannot start: every: 'soon' is not a duration; \
write for example '60 seconds', '1h30m' or a datetime.timedelta; units are w, d, h, m, s, ms, us, \
ns and their names (weeks, days, hours, minutes, seconds, ...)
    """
    options = {
        **{"path": path, "start": start, "every": every, "anchors": anchors, "picture": picture},
        **{"bad_rows": bad_rows, "timestamps": timestamps},
    }
    found = not isinstance(path, str) or Path(path.removeprefix("file://")).exists()
    problems = session_problems(spark) + ([] if found else [f"path: there is no {path!r} here"])
    texts = _texts("video.table", options, problems)
    spark.dataSource.register(VideoSource)
    return _rows(spark.read.format("video").options(**texts).load(), picture is not None)


def _texts(verb: str, options: dict[str, Any], problems: list[str]) -> dict[str, str]:
    """Options of Spark, which are texts; raises if any is wrong."""
    check = Check()
    given = {name: value for name, value in options.items() if value is not None}
    given |= {name: "none" for name in ("picture", "max_files") if options.get(name, "") is None}
    options_of(check, given)
    for problem in problems:
        check.say(problem)
    check.refuse(verb)
    if "start" in given:
        given["start"] = start_text(start_times(check, given["start"]))
    for name in ("every", "anchors", "remove_after"):
        if name in given:
            given[name] = f"{check.duration(name, given[name])} us"
    if isinstance(given["picture"], (tuple, list)):
        given["picture"] = "x".join(map(str, given["picture"]))
    return {**{name: str(value) for name, value in given.items()}, "reports": "true"}


def _rows(found: DataFrame, pictured: bool) -> DataFrame:
    """Frames alone, with the reports of segments added up in the query's metrics."""

    def counted(name: str, kind: str) -> Any:
        each = F.get_json_object("report", f"$.{name}").cast(kind)
        return F.coalesce(F.sum(each), F.lit(0).cast(kind)).alias(name)

    problems = F.from_json(F.get_json_object("report", "$.problems"), "array<string>")
    observed = found.observe(
        metrics_name("video"),
        *(counted(name, "bigint") for name in COUNTS),
        counted("decode_seconds", "double"),
        F.flatten(F.collect_list(problems)).alias("problems"),
    )
    rows = observed.filter("report IS NULL").drop("report")
    rows = rows.withMetadata("features", {LAYOUT: VERSION})
    return rows if pictured else rows.withMetadata("picture", {UNPICTURED: True})
