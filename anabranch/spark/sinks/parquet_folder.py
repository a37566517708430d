"""A folder of Parquet files, without a table format.

A batch is written beside the folder's files, where no reader looks; a note then says that it is
there and which files it has; then its files move to their places. A run that was killed in
between is finished by the next one: with the note the files move on, without it they are written
again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anabranch.errors import InvalidCall, StateMismatch
from anabranch.flow.delivery import Progress
from anabranch.spark.carriage import inside
from anabranch.spark.sinks.places import absolute_path, path_problem, refuse_lost, rows_in
from anabranch.spark.sinks.sink import Batch, Target, Writer

if TYPE_CHECKING:
    from pyarrow import fs
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["ParquetFolder"]

_INSTANTS = "spark.sql.parquet.outputTimestampType"
_NOTES = "_anabranch"  # readers skip what begins with an underscore
_NAME = re.compile(r"[\w-][\w.-]*\.parquet")  # without a separator; ".." cannot begin it


class ParquetFolder(Target):
    """A folder on any filesystem that Arrow and Spark both reach."""

    verb = "sinks.parquet"

    def __init__(self, path: str) -> None:
        self.place = path

    @contextmanager
    def open(self, batch: Batch) -> Iterator[Writer]:
        yield _Folder(self.place, batch)

    def place_problem(self, spark: SparkSession) -> str | None:
        return path_problem(spark, self.place)

    def driver_loss(self, frame: DataFrame) -> str | None:
        from pyspark.sql.types import DayTimeIntervalType, YearMonthIntervalType

        intervals = (DayTimeIntervalType, YearMonthIntervalType)
        for field in frame.schema:
            if any(isinstance(part, intervals) for part in inside(field.dataType)):
                return (
                    f"column {field.name!r} is {field.dataType.simpleString()}, and Spark takes "
                    "intervals in the driver's files for numbers: cast it, or use via='spark'"
                )
        return None


class _Folder(Writer):
    def __init__(self, place: str, batch: Batch) -> None:
        self.batch = batch
        self.place = place
        self.files, self.root = _filesystem(place)
        self.notes = f"{self.root}/{_NOTES}/{batch.app}"
        try:
            self.files.create_dir(self.notes)
        except NotADirectoryError:
            raise _no_folder(f"{place!r} is a file, or lies below one") from None
        newest = max(self._listed(self.notes, ".json"), default=None)
        if newest is not None:
            note = _checked(newest, self._read(newest))
            self.done = Progress.noted(note["batch"], note["query"])
            self.columns = note["columns"]
            self._move(note["batch"], note["files"])
        else:
            self.columns = self._columns_of_others()

    def write(self, columns: Mapping[str, str]) -> None:
        batch = self.batch
        staged = self._staged(batch.number)
        if self.files.get_file_info(staged).type.name != "NotFound":
            self.files.delete_dir(staged)  # of a run that was killed before its note
        if batch.table is not None:
            import pyarrow.parquet as pq

            self.files.create_dir(staged)
            pq.write_table(batch.table, f"{staged}/part-0.parquet", filesystem=self.files)
        else:
            inner = f"{_NOTES}/{batch.app}/batch-{batch.number:010d}"
            self._write_by_spark(f"{absolute_path(self.place).rstrip('/')}/{inner}")
        paths = self._listed(staged, ".parquet")
        refuse_lost(batch, rows_in(self.files, paths), self.place)
        batch.reached("staged")
        names = [path.rpartition("/")[2] for path in paths]
        self._note(sorted(names), columns)
        batch.reached("noted")
        self._move(batch.number, sorted(names))
        for path in self._listed(self.notes, ".json")[:-1]:
            self.files.delete_file(path)

    def _columns_of_others(self) -> Mapping[str, str] | None:
        """The columns that another app has given the folder, by the newest note; None if none."""
        from pyarrow import fs

        found = self.files.get_file_info(fs.FileSelector(f"{self.root}/{_NOTES}", recursive=True))
        # A name of an app, and so of a folder, may end like a note's.
        notes = [info for info in found if info.is_file and info.path.endswith(".json")]
        for info in sorted(notes, key=lambda info: info.mtime_ns or 0, reverse=True):
            try:
                columns: Mapping[str, str] = _checked(info.path, self._read(info.path))["columns"]
            except FileNotFoundError:
                continue  # its app has just written a newer one
            return columns
        return None

    def _write_by_spark(self, place: str) -> None:
        """With instants as the driver's files have them, not in the 96 bits of old Hive."""
        frame = self.batch.frame
        settings = frame.sparkSession.conf
        before = settings.get(_INSTANTS)
        settings.set(_INSTANTS, "TIMESTAMP_MICROS")
        try:
            frame.write.parquet(place)
        finally:
            settings.set(_INSTANTS, str(before))

    def _note(self, names: list[str], columns: Mapping[str, str]) -> None:
        """Say that the batch is there: the commit, for a file appears under its name or not."""
        batch = self.batch
        note = {
            "batch": batch.number,
            "query": batch.note.origin,
            "files": names,
            "columns": dict(columns),
        }
        final = f"{self.notes}/{batch.number:010d}.json"
        with self.files.open_output_stream(f"{final}.partial") as out:
            out.write(json.dumps(note).encode())
        self.files.move(f"{final}.partial", final)

    def _move(self, number: int, names: list[str]) -> None:
        """Give the files of a batch their places, those that have none yet."""
        staged = self._staged(number)
        if self.files.get_file_info(staged).type.name == "NotFound":
            return
        for n, name in enumerate(names):
            source = f"{staged}/{name}"
            if self.files.get_file_info(source).type.name == "NotFound":
                continue
            self.files.move(source, f"{self.root}/{self.batch.app}-{number:010d}-{n:05d}.parquet")
            self.batch.reached(f"moved {n}")
        self.files.delete_dir(staged)

    def _staged(self, number: int) -> str:
        return f"{self.notes}/batch-{number:010d}"

    def _listed(self, folder: str, ending: str) -> list[str]:
        from pyarrow import fs

        found = self.files.get_file_info(fs.FileSelector(folder))
        return sorted(info.path for info in found if info.path.endswith(ending))

    def _read(self, path: str) -> bytes:
        with self.files.open_input_stream(path) as file:
            content: bytes = file.read()
        return content


def _checked(path: str, content: bytes) -> dict[str, Any]:
    """What a note says, whoever wrote it: its files are names, and lie in the batch's folder."""
    try:
        note: dict[str, Any] = json.loads(content)
        names, columns = note["files"], note["columns"]
        if type(note["batch"]) is not int or note["batch"] < 0 or type(note["query"]) is not str:
            raise ValueError(f"batch {note['batch']!r} of query {note['query']!r}")
        if not isinstance(columns, dict) or not isinstance(names, list):
            raise ValueError("columns must be named with their types, and files listed")
        wrong = [name for name in names if not (isinstance(name, str) and _NAME.fullmatch(name))]
        if wrong:
            raise ValueError(f"{wrong[0]!r} is no name of a Parquet file")
    except (ValueError, KeyError, TypeError) as error:
        raise StateMismatch(
            f"the note {path} cannot be read ({error}): it says which batch is in this folder; "
            "bring it back as it was, or write to a new folder from a new checkpoint"
        ) from None
    return note


def _no_folder(why: str) -> InvalidCall:
    return InvalidCall("sinks.parquet", [f"path must be a folder: {why}"])


def _filesystem(place: str) -> tuple[fs.FileSystem, str]:
    """Arrow's filesystem, and the folder's path in it; Spark's names of S3 are Arrow's ``s3``."""
    from pyarrow import ArrowInvalid, fs

    for spoken in ("s3a://", "s3n://"):
        if place.startswith(spoken):
            place = "s3://" + place.removeprefix(spoken)
    if "://" not in place and not place.startswith("file:"):
        place = str(Path(place).absolute())
    try:
        found: Any = fs.FileSystem.from_uri(place)
    except ArrowInvalid as error:
        raise _no_folder(str(error)) from None
    return found[0], str(found[1]).rstrip("/")
