"""An Iceberg table: every snapshot says in its summary which batch of which app it brought."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from anabranch.flow.delivery import Progress
from anabranch.spark.sinks.places import qualified, refuse_unshared
from anabranch.spark.sinks.sink import Batch, Target, Writer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["IcebergTable"]

_APP, _BATCH, _QUERY = "anabranch.app", "anabranch.batch", "anabranch.query"
_STAGED = ("spark.wap.branch", "spark.wap.id")
"""Settings by which Iceberg's jar commits beside the main branch, where no batch is looked for."""
_WIDER = {"tinyint": "int", "smallint": "int"}


class IcebergTable(Target):
    """A table by its whole name, written by pyiceberg or by Iceberg's jar."""

    verb = "sinks.iceberg"
    packages = ("pyiceberg",)

    def __init__(self, table: str, catalog: Mapping[str, str]) -> None:
        self.place = table
        self.catalog, _, self.name = table.partition(".")
        self.properties = dict(catalog)

    @contextmanager
    def open(self, batch: Batch) -> Iterator[Writer]:
        yield _ByDriver(self, batch) if batch.table is not None else _BySpark(self, batch)

    def elsewhere(self, batch: Batch) -> Progress | None:
        return (_BySpark if batch.table is not None else _ByDriver)(self, batch).done

    def types(self, frame: DataFrame) -> Mapping[str, str]:
        """Iceberg has no integers below 32 bits."""
        return {name: _WIDER.get(kind, kind) for name, kind in super().types(frame).items()}

    def spark_problem(self, spark: SparkSession) -> str | None:
        setting = f"spark.sql.catalog.{self.catalog}"
        staged = [name for name in _STAGED if spark.conf.get(name, "")]
        if staged:
            names = " and ".join(staged)
            return (
                f"the session sets {names}, by which rows do not go to the table's main branch, "
                f"where a batch that comes again is looked for: unset {names}, or give via='driver'"
            )
        if spark.conf.get(setting, ""):
            return None
        return (
            f"the session has no catalogue {self.catalog!r}: start it with --packages "
            f"org.apache.iceberg:iceberg-spark-runtime-<4.x>_2.13 and {setting}="
            "org.apache.iceberg.spark.SparkCatalog"
        )


def _noted(batch: Batch) -> dict[str, str]:
    """What the summary of a batch's snapshot says."""
    return {_APP: batch.app, _BATCH: str(batch.number), _QUERY: batch.note.origin}


class Snapshot(NamedTuple):
    """What a table lists of a snapshot."""

    ident: int
    parent: int | None
    summary: Mapping[str, str]


def _found(
    app: str, current: int | None, snapshots: Iterable[Snapshot], properties: Mapping[str, str]
) -> Progress | None:
    """The newest batch of an app whose rows the table has.

    A table that was rolled back still lists the snapshots of after, and its properties stay. So
    only the ancestors of the current snapshot count. Where none of them names the app, and their
    line ends at one that has expired, all that is left is asked: it may say too much, which stops
    a query, and never too little.
    """
    known = {snapshot.ident: snapshot for snapshot in snapshots}
    line, at = [], current
    while at is not None and at in known:
        line.append(known[at].summary)
        at = known[at].parent
    found = _newest(app, line)
    if found is None and at is not None:
        left = [snapshot.summary for snapshot in known.values()]
        found = _newest(app, [*left, *_kept(app, properties)])
    return found


def _newest(app: str, summaries: Iterable[Mapping[str, str]]) -> Progress | None:
    """The newest batch of an app, by the summaries that are left and by the table's property."""
    found = [
        Progress.noted(int(summary[_BATCH]), summary.get(_QUERY, ""))
        for summary in summaries
        if summary.get(_APP) == app
    ]
    return max(found, key=lambda progress: progress.batch, default=None)


def _kept(app: str, properties: Mapping[str, str]) -> list[dict[str, str]]:
    """What the property of an app says, as a summary: snapshots expire, properties stay.

    Spark hides values of properties whose names look like secrets; those say nothing.
    """
    number, _, query = properties.get(f"anabranch.{app}", "").partition(" ")
    return [{_APP: app, _BATCH: number, _QUERY: query}] if number.isdecimal() else []


class _ByDriver(Writer):
    def __init__(self, target: IcebergTable, batch: Batch) -> None:
        from pyiceberg.catalog import load_catalog

        self.target = target
        self.batch = batch
        self.catalog: Any = load_catalog(target.catalog, **target.properties)
        self.table: Any = None
        if not self.catalog.table_exists(target.name):
            return
        self.table = self.catalog.load_table(target.name)
        self.columns = _columns(self.table.schema().as_arrow())
        snapshots = [
            Snapshot(
                s.snapshot_id,
                s.parent_snapshot_id,
                s.summary.additional_properties if s.summary else {},
            )
            for s in self.table.snapshots()
        ]
        current = self.table.metadata.current_snapshot_id
        self.done = _found(batch.app, current, snapshots, self.table.properties)

    def write(self, columns: Mapping[str, str]) -> None:
        batch, table = self.batch, self.table
        rows: Any = batch.table
        if table is None:
            self.catalog.create_namespace_if_not_exists(self.target.name.rpartition(".")[0])
            table = self.catalog.create_table(self.target.name, schema=rows.schema)
            batch.reached("table made")
        with table.transaction() as change:
            change.append(rows, snapshot_properties=_noted(batch))
            change.set_properties({f"anabranch.{batch.app}": f"{batch.number} {batch.note.origin}"})
            batch.reached("ready")


class _BySpark(Writer):
    def __init__(self, target: IcebergTable, batch: Batch) -> None:
        self.target = target
        self.batch = batch
        parts = (part.replace("`", "``") for part in target.place.split("."))
        self.name = ".".join(f"`{part}`" for part in parts)
        spark = batch.frame.sparkSession
        self.there = spark.catalog.tableExists(self.name)
        if not self.there:
            return
        spark.catalog.refreshTable(self.name)  # the driver may have written since it was read
        table = spark.table(self.name)
        self.columns = {f.name: f.dataType.simpleString() for f in table.schema}
        listed = f"SELECT snapshot_id, parent_id, summary FROM {self.name}.snapshots"
        snapshots = [Snapshot(*row) for row in spark.sql(listed).collect()]
        refs = f"SELECT snapshot_id FROM {self.name}.refs WHERE name = 'main'"
        current = next((row.snapshot_id for row in spark.sql(refs).collect()), None)
        # By the driver, before `via` changed.
        properties = {
            row["key"]: row["value"]
            for row in spark.sql(f"SHOW TBLPROPERTIES {self.name}").collect()
        }
        self.done = _found(batch.app, current, snapshots, properties)

    def write(self, columns: Mapping[str, str]) -> None:
        batch = self.batch
        if not self.there:
            place = self.name.rpartition(".")[0]
            batch.frame.sparkSession.sql(f"CREATE NAMESPACE IF NOT EXISTS {place}")
            batch.frame.limit(0).writeTo(self.name).using("iceberg").create()
            batch.reached("table made")
        folder = qualified(batch.frame.sparkSession, self._location())
        if folder is not None:
            refuse_unshared(batch, folder)
        writer = batch.frame.writeTo(self.name)
        for name, value in _noted(batch).items():
            writer = writer.option(f"snapshot-property.{name}", value)
        batch.reached("ready")
        writer.append()

    def _location(self) -> str:
        """Where its files are, as the table itself says it."""
        rows = self.batch.frame.sparkSession.sql(f"DESCRIBE TABLE EXTENDED {self.name}").collect()
        return next((row["data_type"] for row in rows if row["col_name"] == "Location"), "")


def _columns(schema: Any) -> dict[str, str] | None:
    """Spark's names of the types of a table; None if it has one that Spark has not."""
    from pyspark.errors import PySparkException
    from pyspark.sql.pandas.types import from_arrow_schema

    try:
        found = from_arrow_schema(schema, prefer_timestamp_ntz=True)
    except PySparkException:
        return None
    return {field.name: field.dataType.simpleString() for field in found}
