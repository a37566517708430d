"""A Delta table: its log keeps, for every app, the version of that app's newest transaction.

That is a number and no more. What else is to be noted of a batch is in the ``userMetadata`` of its
commit, which is read only if the batch comes again. And the number stays when a table is restored.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from anabranch.errors import StateMismatch
from anabranch.flow.delivery import Progress
from anabranch.spark.sinks.places import absolute_path, path_problem, refuse_unshared
from anabranch.spark.sinks.sink import Batch, Target, Writer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["DeltaFolder"]

_SAID = "userMetadata"  # as Delta's jar calls it, in commits of both
_COMMITS = 1000
"""So many of the newest commits are searched for a batch that comes again."""
_UNKNOWN = -1  # the version that a table was restored to, if by a time


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
            if same and version == batch.number:
                self.done = _noted(batch, table.history(_COMMITS)) or self.done

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
            commit_properties=CommitProperties(
                custom_metadata={_SAID: _said(batch)}, app_transactions=noted
            ),
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
            if same and version.get() == batch.number:
                self.done = _noted(batch, self._history()) or self.done

    def _history(self) -> Iterator[dict[str, Any]]:
        place = self.place.replace("`", "``")
        history = f"DESCRIBE HISTORY delta.`{place}` LIMIT {_COMMITS}"
        return (row.asDict() for row in self.batch.frame.sparkSession.sql(history).collect())

    def write(self, columns: Mapping[str, str]) -> None:
        batch = self.batch
        refuse_unshared(batch, self.place)
        batch.reached("ready")
        (
            batch.frame.write.format("delta")
            .options(**self.target.options)
            .option("txnAppId", batch.app)
            .option("txnVersion", batch.number)
            .option(_SAID, _said(batch))
            .mode("append")
            .save(self.place)
        )


def _said(batch: Batch) -> str:
    """What a batch's commit says of it."""
    return f"anabranch {batch.app} {batch.number} {batch.note.origin}"


def _noted(batch: Batch, history: Iterable[Mapping[str, Any]]) -> Progress | None:
    """What the commit of a batch says of it, newest commits first; None if it is not found.

    A table that was restored to an older version no longer has the rows of later ones.
    """
    newest = None  # the version whose rows the table has, if it is not the one just looked at
    for commit in history:
        standing = newest is None or commit["version"] <= newest
        app, number, origin = _words_of(commit.get(_SAID))
        if (app, number) == (batch.app, str(batch.number)):
            if standing:
                return Progress.noted(batch.number, origin)
            raise _restored(batch, newest, newest != _UNKNOWN)
        if standing and commit.get("operation") == "RESTORE":
            # By a time, it does not say to which version, so that no earlier commit is known to
            # stand.
            to = str((commit.get("operationParameters") or {}).get("version"))
            newest = int(to) if to.isdecimal() else _UNKNOWN
    if newest is not None:  # the commit is older than all that are left, or were looked at
        raise _restored(batch, newest, False)
    return None


def _restored(batch: Batch, version: int | None, sure: bool) -> StateMismatch:
    """What to say of a batch whose rows were taken back, or if that is not `sure` may have been."""
    place = "an older version" if version == _UNKNOWN else f"version {version}"
    done = f"app={batch.app!r} has written batch {batch.number}, and the table was restored to "
    why = "Delta's note of an app's newest batch does not go back with the rows"
    if sure:
        return StateMismatch(f"{done}{place}, from before it: {why}. Continue under a new app=")
    return StateMismatch(
        f"{done}{place}: it is not known whether the batch is still there, for {why}. Delete "
        "the rows of the batch if they are there, and continue under a new app="
    )


def _words_of(said: str | None) -> tuple[str, str, str]:
    """App, batch and origin, as a commit says them; nothing if another one wrote it."""
    ours, _, rest = (said or "").partition(" ")
    app, _, rest = rest.partition(" ") if ours == "anabranch" else ("", "", "")
    number, _, origin = rest.partition(" ")
    return app, number, origin


def _columns(schema: dict[str, Any]) -> dict[str, str]:
    """Spark's names of the types in a table's schema, which is a schema of Spark's."""
    from pyspark.sql.types import StructType

    return {f.name: f.dataType.simpleString() for f in StructType.fromJson(schema)}


def _number(query: str) -> int:
    return int.from_bytes(blake2b(query.encode(), digest_size=7).digest(), "big")
