"""The data source ``video``: segments in, a row per frame out, offsets by closed segment."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.types import StructType

from anabranch.calls import Check
from anabranch.spark.versions import AvailableNow, Limits, limits_of, read_limit
from anabranch.video.clock import TIMESTAMPS
from anabranch.video.planning import Folder, Limit, Offset, Planner
from anabranch.video.rows import Planned, Reading, rows_of
from anabranch.video.segments import CLOSED
from anabranch.video.starts import start_times

__all__ = ["MAX_FILES", "SCHEMA", "VideoSource", "options_of"]

MAX_FILES = 100
"""The most segments of a channel in a micro-batch, if nobody says: a query that is begun on a large
archive would otherwise read all of it in its first one."""

SCHEMA = (
    "id string, channel string, ts timestamp, segment string, run bigint, pts bigint, key boolean, "
    "anchor boolean, sig binary, features array<float>, grey array<int>, grey_centred array<int>, "
    "phash bigint, picture binary"
)
_REPORT = ", report string"


def options_of(check: Check, given: Mapping[str, Any]) -> tuple[Folder, Reading, Limit]:
    """What options say, with every problem noted."""

    def lasting(name: str, least: int) -> int | None:
        value = given.get(name)
        return None if value is None else check.duration(name, value, least)

    path = given.get("path")
    if not isinstance(path, str) or not path:
        check.say(f"path must name a film, a folder of segments or one of channels, got {path!r}")
    folder = Folder(
        str(path),
        start_times(check, given.get("start")),
        check.choice("timestamps", given.get("timestamps", "auto"), TIMESTAMPS),
        check.choice("closed", given.get("closed", "auto"), CLOSED),
        lasting("remove_after", 0),
    )
    anchors = check.duration("anchors", given.get("anchors", "1 second"), 1)
    fail = check.choice("bad_rows", given.get("bad_rows", "drop"), ("drop", "fail")) == "fail"
    for former, now in (("bad", "bad_rows"), ("keep", "remove_after")):
        if former in given:  # an option of Spark that nobody reads is an error nobody sees
            check.say(f"{former} is now called {now}")
    reading = Reading(lasting("every", 1), anchors, _size(check, given), fail)
    most = []
    for name, value in (("max_files", MAX_FILES), ("max_bytes", None)):
        value = given.get(name, value)
        none = value is None or (isinstance(value, str) and value == "none")
        most.append(None if none else check.whole(name, _number(value)))
    return folder, reading, Limit(*most)


def _number(value: Any) -> Any:
    return int(value) if isinstance(value, str) and value.isdigit() else value


def _size(check: Check, given: Mapping[str, Any]) -> tuple[int, int] | None:
    value = given.get("picture", (640, 360))
    if isinstance(value, str):  # as an option of Spark: "640x360", "none"
        value = None if value == "none" else tuple(map(_number, value.split("x")))
    if value is None:
        return None
    if isinstance(value, (tuple, list)) and len(value) == 2:
        return check.whole("picture", value[0], 2), check.whole("picture", value[1], 2)
    check.say(f"picture must be a width and a height, (640, 360), or None, got {value!r}")
    return None


class _Task(InputPartition):
    """A segment as a task reads it."""

    def __init__(self, planned: Planned) -> None:
        super().__init__(planned.segment.path)
        self.planned = planned


def _read(task: Any, reading: Reading, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    for batch in rows_of(task.planned, reading):
        if "report" not in columns:
            batch = batch.slice(
                0, batch.num_rows - (batch.column("report").null_count < len(batch))
            )
        yield batch.select(columns)


class VideoSource(DataSource):
    """``spark.read.format("video")`` and ``spark.readStream.format("video")``.

    Options are the arguments of `ab.video.frames` as text, with picture as ``640x360`` or ``none``
    and start as JSON if it is by channel.
    """

    @classmethod
    def name(cls) -> str:
        return "video"

    def schema(self) -> str:
        return SCHEMA + (_REPORT if self.options.get("reports") == "true" else "")

    def reader(self, schema: StructType) -> DataSourceReader:
        return _Batch(*self._parsed(), schema.names)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return _Stream(*self._parsed(), schema.names)

    def _parsed(self) -> tuple[Folder, Reading, Limit]:
        check = Check()
        found = options_of(check, dict(self.options))
        check.refuse("video")
        return found


class _Batch(DataSourceReader):
    def __init__(self, folder: Folder, reading: Reading, _: Limit, columns: Sequence[str]) -> None:
        self.planner = Planner(replace(folder, closed="all"))
        self.reading, self.columns = reading, columns

    def partitions(self) -> Sequence[InputPartition]:
        found = self.planner.between({}, self.planner.latest({}))
        return [_Task(planned) for planned in found]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        # Spark makes up a partition where there is none, as in an empty folder.
        planned = isinstance(partition, _Task)
        return _read(partition, self.reading, self.columns) if planned else iter(())


class _Stream(DataSourceStreamReader, AvailableNow):  # type: ignore[misc]
    def __init__(
        self, folder: Folder, reading: Reading, limit: Limit, columns: Sequence[str]
    ) -> None:
        self.planner, self.reading, self.limit = Planner(folder), reading, limit
        self.columns = columns
        self._goal: Mapping[str, str] | None = None
        self._reached: Offset = {}

    def initialOffset(self) -> Offset:
        return {}

    def getDefaultReadLimit(self) -> Any:
        return read_limit(Limits(self.limit.files, self.limit.bytes))

    def prepareForTriggerAvailableNow(self) -> None:
        self._goal = self.planner.newest()

    def latestOffset(self, start: Offset | None = None, limit: Any = None) -> Offset:
        # Spark 4.1 says neither: the time line is then followed from the first segment on.
        start = self._reached if start is None else start
        given = limits_of(limit)
        # Spark knows one limit, here that of files; beside it that of bytes holds too.
        most = given.bytes if given.files is None else self.limit.bytes
        self._reached = self.planner.latest(start, Limit(given.files, most), self._goal)
        return self._reached

    def reportLatestOffset(self) -> Offset | None:
        """The newest segment of each channel, and how many are left after those planned."""
        return self.planner.left(self._reached) if self._reached else None

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        return [_Task(planned) for planned in self.planner.between(start, end)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(partition, self.reading, self.columns)

    def commit(self, end: Offset) -> None:
        self.planner.forget(end)
