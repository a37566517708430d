"""A Delta table: its log keeps, for every app, the version of that app's newest transaction."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from anabranch.flow.delivery import Progress
from anabranch.spark.sinks.places import absolute_path, path_problem, refuse_unshared
from anabranch.spark.sinks.sink import Batch, Target, Writer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["DeltaFolder"]


class DeltaFolder(Target):
    """A table by its folder or URI, written by delta-rs or by Delta's jar; both share the log."""

    verb = "sinks.delta"
    packages = ("deltalake",)

    def __init__(self, path: str, options: Mapping[str, str]) -> None:
        self.place = path
        self.options = dict(options)

    @contextmanager
    def open(self, batch: Batch) -> Iterator[Writer]:
        yield _ByDriver(self, batch) if batch.table is not None else _BySpark(self, batch)

    def place_problem(self, spark: SparkSession) -> str | None:
        return path_problem(spark, self.place)

    def spark_problem(self, spark: SparkSession) -> str | None:
        if "io.delta" in (spark.conf.get("spark.sql.extensions", "") or ""):
            return None
        return (
            "the session has no Delta: start it with --packages io.delta:delta-spark_<4.x>_2.13"
            " and spark.sql.extensions=io.delta.sql.DeltaSparkSessionExtension"
        )


class _ByDriver(Writer):
    def __init__(self, target: DeltaFolder, batch: Batch) -> None:
        from deltalake import DeltaTable

        self.target = target
        self.batch = batch
        self.query_app = f"{batch.app}#query"
        stored = target.options or None
        if not DeltaTable.is_deltatable(target.place, stored):
            return
        table = DeltaTable(target.place, storage_options=stored)
        self.columns = _columns(json.loads(table.schema().to_json()))
        version = table.transaction_version(batch.app)
        if version is not None:
            same = table.transaction_version(self.query_app) in (None, _number(batch.query))
            self.done = Progress(version, batch.query if same else "another")

    def write(self, columns: Mapping[str, str]) -> None:
        from deltalake import CommitProperties, Transaction, write_deltalake

        batch, target = self.batch, self.target
        noted = [Transaction(batch.app, batch.number)]
        if batch.query:
            # A version is a number and all that a transaction can hold.
            noted.append(Transaction(self.query_app, _number(batch.query)))
        batch.reached("ready")
        write_deltalake(
            target.place,
            batch.table,
            mode="append",
            storage_options=target.options or None,
            commit_properties=CommitProperties(app_transactions=noted),
        )


class _BySpark(Writer):
    def __init__(self, target: DeltaFolder, batch: Batch) -> None:
        self.target = target
        self.batch = batch
        self.place = absolute_path(target.place)
        spark: Any = batch.frame.sparkSession
        if not batch.query:  # through Connect Delta itself compares versions, and says nothing
            return
        log = spark._jvm.org.apache.spark.sql.delta.DeltaLog
        snapshot = log.forTable(spark._jsparkSession, self.place).unsafeVolatileSnapshot()
        if snapshot.version() < 0:
            return
        self.columns = _columns(json.loads(snapshot.schema().json()))
        version = snapshot.transactions().get(batch.app)
        if version.isDefined():
            noted = snapshot.transactions().get(f"{batch.app}#query")
            same = not noted.isDefined() or noted.get() == _number(batch.query)
            self.done = Progress(version.get(), batch.query if same else "another")

    def write(self, columns: Mapping[str, str]) -> None:
        batch = self.batch
        refuse_unshared(batch, self.place)
        batch.reached("ready")
        (
            batch.frame.write.format("delta")
            .options(**self.target.options)
            .option("txnAppId", batch.app)
            .option("txnVersion", batch.number)
            .mode("append")
            .save(self.place)
        )


def _columns(schema: dict[str, Any]) -> dict[str, str]:
    """Spark's names of the types in a table's schema, which is a schema of Spark's."""
    from pyspark.sql.types import StructType

    return {f.name: f.dataType.simpleString() for f in StructType.fromJson(schema)}


def _number(query: str) -> int:
    return int.from_bytes(blake2b(query.encode(), digest_size=7).digest(), "big")
