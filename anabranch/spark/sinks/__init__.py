"""Exactly-once sinks for ``foreachBatch``, as `ab.sinks`.

Each remembers, in the same commit as the rows, which micro-batch it has written for which `app`.
A query that is killed and restarted from its checkpoint then writes every row once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from anabranch.calls import Check
from anabranch.errors import InvalidCall, renamed
from anabranch.spark.sinks.delta_table import DeltaFolder
from anabranch.spark.sinks.iceberg_table import IcebergTable
from anabranch.spark.sinks.kafka_topic import KafkaTopic
from anabranch.spark.sinks.parquet_folder import ParquetFolder
from anabranch.spark.sinks.postgres_table import PostgresTable
from anabranch.spark.sinks.sink import SPARK, Sink

__all__ = ["delta", "iceberg", "kafka", "parquet", "postgres"]

_SMALL = 100_000  # rows; some 10 MB of pairs


@renamed()
def delta(
    path: str,
    *,
    app: str,
    via: str | None = None,
    small: int = _SMALL,
    options: Mapping[str, str] | None = None,
) -> Sink:
    """Append to a Delta table; rows and batch number are one commit of its log.

    Parameters
    ----------
    path
        The table's folder or URI. It is made by the first batch if it is not there. Give a scheme
        (``hdfs://``, ``file://``) where Hadoop's default is not the local disk.
    app
        The name under which the table remembers the batches of this query. Keep it for as long as
        the checkpoint; a new checkpoint needs a new name.
    via
        ``"driver"`` writes with the package ``deltalake``, without any jar; ``"spark"`` with
        Delta's jar, from the executors. By default the number of rows decides, or what there is.
    small
        So many rows of a batch go through the driver.
    options
        ``storage_options`` of ``deltalake``, or write options of Spark.

    Examples
    --------
    >>> delta("/data/pairs", app="news-pairs")
    ab.sinks.delta('/data/pairs', app='news-pairs')
    """
    _texts("sinks.delta", path=path)
    return Sink(DeltaFolder(path, _pairs("sinks.delta", options)), app, via, small)


@renamed()
def iceberg(
    table: str,
    *,
    app: str,
    catalog: Mapping[str, str] | None = None,
    via: str | None = None,
    small: int = _SMALL,
) -> Sink:
    """Append to an Iceberg table; rows and batch number are one snapshot.

    Parameters
    ----------
    table
        ``catalog.namespace.table``. It is made by the first batch if it is not there.
    app
        The name under which the table remembers the batches of this query. Keep it for as long as
        the checkpoint; a new checkpoint needs a new name.
    catalog
        Properties of the catalogue for ``pyiceberg``; by default those of its configuration file.
    via
        ``"driver"`` writes with the package ``pyiceberg``, without any jar; ``"spark"`` with
        Iceberg's jar and the catalogue of that name of the session. By default the number of rows
        decides, or what there is.
    small
        So many rows of a batch go through the driver.

    Examples
    --------
    >>> iceberg("lake.news.pairs", app="news-pairs")
    ab.sinks.iceberg('lake.news.pairs', app='news-pairs')
    """
    _texts("sinks.iceberg", table=table)
    if table.count(".") < 2 or not all(table.split(".")):
        wanted = "table must be named catalog.namespace.table"
        raise InvalidCall("sinks.iceberg", [f"{wanted}, got {table!r}"])
    return Sink(IcebergTable(table, _pairs("sinks.iceberg", catalog, "catalog")), app, via, small)


@renamed()
def postgres(
    dsn: str,
    table: str,
    *,
    app: str,
    via: str | None = None,
    small: int = _SMALL,
    jdbc: str | None = None,
) -> Sink:
    """Append to a PostgreSQL table; rows and batch number are one transaction.

    Parameters
    ----------
    dsn
        How to connect: ``"host=db user=me dbname=news"`` or ``"postgresql://me@db/news"``.
    table
        ``table`` or ``schema.table``. It is made by the first batch if it is not there. Structs
        and maps become ``jsonb``.
    app
        The name under which the database remembers the batches of this query, in the table
        ``anabranch_progress``. Keep it for as long as the checkpoint; a new checkpoint needs a new
        name.
    via
        ``"driver"`` copies through the driver; ``"spark"`` lets the executors write to a table
        beside it by JDBC, which one transaction then moves. By default the number of rows
        decides, or whether Spark has PostgreSQL's JDBC driver and can connect as `dsn` says.
    small
        So many rows of a batch go through the driver.
    jdbc
        The URL for ``via="spark"``, if it cannot be told from `dsn`.

    Examples
    --------
    >>> postgres("host=db dbname=news", "pairs", app="news-pairs")
    ab.sinks.postgres('pairs', app='news-pairs')
    """
    _texts("sinks.postgres", dsn=dsn, table=table, **({} if jdbc is None else {"jdbc": jdbc}))
    if not all(table.split(".")):
        wanted = "table must be named table or schema.table"
        raise InvalidCall("sinks.postgres", [f"{wanted}, got {table!r}"])
    target = PostgresTable(dsn, table, jdbc)
    made = Sink(target, app, via, small)
    if target.driver_problem() is None:
        problem = target.dsn_problem()
        if problem is None and made.via == SPARK and (way := target.address_problem()):
            problem = f"via='spark': {way}"
        if problem:
            raise InvalidCall("sinks.postgres", [problem])
    return made


@renamed()
def kafka(
    servers: str,
    topic: str,
    *,
    app: str,
    key: str | Sequence[str] = (),
    via: str | None = None,
    small: int = _SMALL,
    options: Mapping[str, str] | None = None,
) -> Sink:
    """Produce to a Kafka topic; the records and the batch number are one transaction.

    Consumers must read with ``isolation.level=read_committed``. A row becomes a JSON object that
    ``from_json`` reads back; a result that has a column ``value`` of text or bytes, and at most a
    column ``key`` beside it, is sent as it is.

    Parameters
    ----------
    servers
        ``bootstrap.servers``.
    topic
        Where to.
    app
        The name under which Kafka remembers the batches of this query, in the compacted topic
        ``anabranch.progress.<app>``; also its ``transactional.id``. Keep it for as long as the
        checkpoint; a new checkpoint needs a new name.
    key
        Columns that become the record's key: the text of one, a JSON object of several.
    via
        ``"driver"`` collects the batch, ``"spark"`` fetches it partition by partition. Either way
        one producer on the driver sends it: a transaction has only one.
    small
        So many rows of a batch are collected.
    options
        More settings of librdkafka, for example for security.

    Examples
    --------
    >>> kafka("broker:9092", "pairs", app="news-pairs", key=["left_id", "right_id"])
    ab.sinks.kafka('pairs', app='news-pairs')
    """
    _texts("sinks.kafka", servers=servers, topic=topic)
    check = Check()
    names = check.names("key", key)
    check.refuse("sinks.kafka")
    return Sink(KafkaTopic(servers, topic, names, _pairs("sinks.kafka", options)), app, via, small)


@renamed()
def parquet(path: str, *, app: str, via: str | None = None, small: int = _SMALL) -> Sink:
    """Add Parquet files to a folder; files without a note of their batch are not seen.

    Parameters
    ----------
    path
        The folder, local or a URI that Arrow and Spark both know. Give a scheme (``hdfs://``,
        ``file://``) where Hadoop's default is not the local disk.
    app
        The name under which ``_anabranch`` in the folder remembers the batches of this query.
        Keep it for as long as the checkpoint; a new checkpoint needs a new name.
    via
        ``"driver"`` writes one file per batch, ``"spark"`` one per partition, to a folder that
        executors share with the driver. By default the number of rows decides.
    small
        So many rows of a batch go through the driver.

    Examples
    --------
    >>> parquet("/data/pairs", app="news-pairs")
    ab.sinks.parquet('/data/pairs', app='news-pairs')
    >>> parquet("/data/pairs")
    Traceback (most recent call last):
        ...
    anabranch.errors.InvalidCall: sinks.parquet cannot start: app= is missing
    """
    _texts("sinks.parquet", path=path)
    return Sink(ParquetFolder(path), app, via, small)


def _texts(verb: str, **given: Any) -> None:
    problems = [
        f"{name} must be a text, got {value!r}"
        for name, value in given.items()
        if not isinstance(value, str) or not value
    ]
    if problems:
        raise InvalidCall(verb, problems)


def _pairs(verb: str, options: Any, name: str = "options") -> dict[str, str]:
    if options is None or isinstance(options, Mapping):
        return {str(key): str(value) for key, value in (options or {}).items()}
    raise InvalidCall(verb, [f"{name} must be a dict of settings, got {options!r}"])


def __getattr__(name: str) -> Any:
    have = ", ".join(__all__)
    raise AttributeError(f"module 'anabranch.sinks' has no attribute {name!r}; it has {have}")
