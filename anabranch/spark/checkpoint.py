"""The files of a streaming checkpoint, through Hadoop's filesystems, as Spark itself reads them."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any, cast

from pyspark.sql import SparkSession

__all__ = ["Checkpoint"]

_SCHEMAS = "/_stateSchema/"


class Checkpoint:
    """What Spark has noted of a query in a folder, local or at any address that Hadoop opens."""

    def __init__(self, spark: SparkSession, path: str | os.PathLike[str]) -> None:
        self._spark = spark
        self._jvm = cast(Any, spark.sparkContext._jvm)
        self._conf = spark._jsparkSession.sessionState().newHadoopConf()
        given = self._jvm.org.apache.hadoop.fs.Path(os.fspath(path))
        self._files = given.getFileSystem(self._conf)
        self._root = self._files.makeQualified(given)
        self.path = str(self._root.toString())

    @property
    def exists(self) -> bool:
        """Whether there is anything at this place."""
        return bool(self._files.exists(self._root))

    @property
    def query(self) -> str | None:
        """The id of the query; None if this is no checkpoint of a streaming query."""
        text = self._read("metadata")
        return None if text is None else str(json.loads(text)["id"])

    def batches(self, log: str) -> list[int]:
        """The micro-batches in ``"offsets"`` (begun) or in ``"commits"`` (finished)."""
        return sorted(int(name) for name in self._names(log) if name.isdigit())

    def partitions(self, batch: int) -> int:
        """Over how many partitions a micro-batch spread its state."""
        lines = (self.offsets(batch) or "").splitlines()
        return int(json.loads(lines[1])["conf"]["spark.sql.shuffle.partitions"])

    def offsets(self, batch: int) -> str | None:
        """What was noted of a micro-batch before it began; None if it never did."""
        return self._read(f"offsets/{batch}")

    def is_active(self) -> bool:
        """Whether a query of this Spark application, in whatever session, runs on it."""
        running = self._spark._jsparkSession.sharedState().activeStreamingQueries()
        return self.query in {str(ident) for ident in running.keySet()}

    def copy(self, to: Checkpoint) -> None:
        """Copy everything.

        Operators note the whole paths of their state's schemas, so those of the copy are changed to
        be its own: otherwise it would break as soon as this checkpoint is removed.
        """
        copied = self._jvm.org.apache.hadoop.fs.FileUtil.copy
        copied(self._files, self._root, to._files, to._root, False, False, self._conf)
        for name in to._metadata():
            version, _, text = (to._read(name) or "").partition("\n")
            form = json.loads(text)
            operator = name.removesuffix(name[name.index("/_metadata/") :])
            for store in form["stateStoreInfo"]:
                store["stateSchemaFilePaths"] = [
                    f"{to.path}/{operator}{_SCHEMAS}{path.rpartition(_SCHEMAS)[2]}"
                    for path in store["stateSchemaFilePaths"]
                ]
            to._write(name, f"{version}\n{json.dumps(form, separators=(',', ':'))}")

    def delete(self) -> None:
        """Remove it."""
        self._files.delete(self._root, True)

    def _metadata(self) -> Iterator[str]:
        """The files in which operators describe their state."""
        for operator in self._names("state"):
            folder = f"state/{operator}/_metadata/v2"
            yield from (f"{folder}/{name}" for name in self._names(folder) if name.isdigit())

    def _at(self, name: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(self._root, name)

    def _names(self, folder: str) -> list[str]:
        if not self._files.exists(self._at(folder)):
            return []
        return [
            str(found.getPath().getName()) for found in self._files.listStatus(self._at(folder))
        ]

    def _read(self, name: str) -> str | None:
        if not self._files.exists(self._at(name)):
            return None
        stream = self._files.open(self._at(name))
        try:
            return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def _write(self, name: str, text: str) -> None:
        """Put a file in the place of one, whose checksum, if Spark has kept one, is no longer."""
        self._files.delete(self._at(f"{name}.crc"), False)
        stream = self._files.create(self._at(name), True)
        try:
            stream.write(bytearray(text.encode()))
        finally:
            stream.close()
