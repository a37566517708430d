"""The verb `follow`: views over the streams of devices, while they run and over tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from anabranch.calls import Check, Duration
from anabranch.edge.address import Broker
from anabranch.errors import InvalidCall, renamed
from anabranch.flow.folders import absolute, path_problems
from anabranch.placement.tables import is_cost
from anabranch.placement.views import Views, as_list, wishes_of
from anabranch.spark.follow_source import Followed, asking
from anabranch.spark.follow_stream import follow_frames
from anabranch.spark.follow_tables import (
    follow_tables,
    kept_problems,
    result_columns,
    table_problems,
)
from anabranch.spark.settings import session_problems, setting_problems

__all__ = ["follow"]


@renamed(
    late="watermark",
    up="upload_cost",
    down="download_cost",
    plan="the hub places views, by what they cost; ab.placement.PlacementLog says where they are",
    keep="a view says what its results carry, ab.view(..., keep=)",
    bad_rows="a device refuses bad rows as they are put",
    rejects="rows that are late or bad do not reach Spark: a device refuses bad rows as they are "
    "put, and the hub leaves late ones out; `anabranch edge serve` names their streams, and "
    "`anabranch story` counts them",
)
def follow(
    spark: SparkSession,
    views: Any,
    *,
    broker: str | None = None,
    control: str | None = None,
    credentials: str | None = None,
    watermark: Duration = "10 minutes",
    upload_cost: Any = 1.0,
    download_cost: Any = 0.5,
    max_frames: int = 10_000,
    feeds: Mapping[str, DataFrame] | None = None,
) -> DataFrame:
    """Every result of views over the streams of devices, wherever it is computed.

    With `broker` and `control` it is a stream: when a query starts, the keeper is asked for the
    views, devices and the cloud compute them, and each result comes once. With `feeds` it is the
    same answer from tables.

    Parameters
    ----------
    spark
        The session.
    views
        What ``ab.view(...).over(table)`` makes, or a list of such.
    broker
        The address of the hub's broker, ``"tls://hub:4222"``.
    control
        The control directory of the hub, where the log of placements is.
    credentials
        The folder with the hub's credentials for the cloud, on the driver and all executors.
    watermark
        How long rows may take: one that comes within it is never late, and one of a silent device
        that comes after twice as long always is. Late rows are left out, and counted.
    upload_cost, download_cost
        Cost per byte sent from and to a device: one for all, or dicts by device.
    max_frames
        How many frames a micro-batch reads at most. What is not read waits in the broker.
    feeds
        A table for each feed, with the columns ``key``, ``n`` (rows of a key are numbered),
        ``time`` and those of the feed: the answer over all of their rows, at once.

    Returns
    -------
    DataFrame
        ``view``, then ``key``, ``n`` and ``time`` of either row (``left_key``, ``right_key``, ...),
        ``score``, the kept columns ``left_<c>`` and ``right_<c>``, and where and under which entry
        of the placement log it was computed: ``place``, ``epoch``, both null in a batch.

    Examples
    --------
    >>> import pandas as pd
    >>> import anabranch as ab
    >>> me = ab.feed("gps", by="user", tick="1 second", columns="x double")
    >>> them = ab.feed("gps", by="friend", tick="1 second", columns="x double")
    >>> near = ab.view("nearby", {me: None, them: "2 seconds"}, where=ab.within("x", 1.0),
    ...                window="1 second")
    >>> friends = pd.DataFrame({"user": ["ann"], "friend": ["bob"]})
    >>> gps = spark.sql('''SELECT key, id AS n, timestamp_seconds(id) AS time, double(id) AS x
    ...                    FROM range(4), (VALUES ('ann'), ('bob')) AS t(key)''')
    >>> found = ab.follow(spark, near.over(friends), feeds={"gps": gps})
    >>> found.columns[:7]
    ['view', 'left_key', 'right_key', 'left_n', 'right_n', 'left_time', 'right_time']
    """
    problems = session_problems(spark)
    given = as_list(views, problems)
    problems += kept_problems(given)
    if feeds is not None:
        also = {"broker": broker, "control": control, "credentials": credentials}
        also = {name: value for name, value in also.items() if value is not None}
        if also:
            problems.append(f"{', '.join(also)} and feeds= exclude each other: a stream or tables")
        problems += table_problems(given, feeds)
        if problems:
            raise InvalidCall("follow", problems)
        return follow_tables(spark, given, feeds)
    check = Check()
    late = check.duration("watermark", watermark, least=1)
    most = check.whole("max_frames", max_frames)
    problems += check.problems + _running_problems(broker, control, credentials)
    for name, cost in (("upload_cost", upload_cost), ("download_cost", download_cost)):
        costs = list(cost.values()) if isinstance(cost, Mapping) else [cost]
        if not all(map(is_cost, costs)):
            problems.append(f"{name} must be at least 0, or a dict by device, got {cost!r}")
    problems += [] if problems else setting_problems(spark, True)
    if problems or broker is None or control is None:
        raise InvalidCall("follow", problems)
    wishes = wishes_of(
        given,
        upload_cost=upload_cost,
        download_cost=download_cost,
        watermark=late,
        cause="ab.follow",
    )
    options = {"max_rows": str(most), **asking(absolute(control), wishes)}
    return _frames(spark, given, control, Broker(broker, credentials), options)


def _running_problems(broker: Any, control: Any, credentials: Any) -> list[str]:
    """What is wrong with the arguments of a stream."""
    problems = []
    if not isinstance(broker, str) or "://" not in broker:
        problems.append(
            'broker= must be an address such as "tls://hub:4222"; for tables give feeds=, got '
            f"{broker!r}"
        )
    problems += path_problems("control", control)
    if credentials is not None:
        problems += path_problems("credentials", credentials)
    return problems


def _frames(
    spark: SparkSession,
    views: Sequence[Views],
    control: str,
    broker: Broker,
    options: Mapping[str, str],
) -> DataFrame:
    """The stream of results."""
    spark.dataSource.register(Followed)
    where = {"url": broker.url, "stream": "IN"}
    if broker.credentials is not None:
        where["credentials"] = broker.credentials
    source = spark.readStream.format(Followed.name())
    frames = source.options(**where, **options).load()
    return follow_frames(frames, result_columns(views), control, broker)
