"""A PostgreSQL table, and a table of its own for what it holds of which app."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from difflib import get_close_matches
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anabranch.errors import StateMismatch
from anabranch.flow.delivery import Progress
from anabranch.flow.jdbc import jdbc_address, with_own_files
from anabranch.spark.frames import JSON_FORM, by_name
from anabranch.spark.sinks.sink import Batch, Target, Writer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["PostgresTable", "postgres_type"]

_PLAIN = {
    "boolean": "boolean",
    "tinyint": "smallint",
    "smallint": "smallint",
    "int": "integer",
    "bigint": "bigint",
    "float": "real",
    "double": "double precision",
    "string": "text",
    "binary": "bytea",
    "date": "date",
    "timestamp": "timestamp with time zone",
    "timestamp_ntz": "timestamp without time zone",
}
_PROGRESS = """
CREATE TABLE anabranch_progress (
    app text, target text, batch bigint NOT NULL, query text NOT NULL, PRIMARY KEY (app, target))
"""
# Also locks the row, so that of two writers under one name the second waits and then sees.
_LOCK = """
INSERT INTO anabranch_progress VALUES (%s, %s, -1, '')
ON CONFLICT (app, target) DO UPDATE SET batch = anabranch_progress.batch RETURNING batch, query
"""
_ADVANCE = "UPDATE anabranch_progress SET batch = %s, query = %s WHERE app = %s AND target = %s"
_COLUMNS = """
SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute
WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped ORDER BY attnum
"""
_PART = "_anabranch_part"
# Rows of one attempt of a task have one transaction, whose number PostgreSQL keeps with each row.
_MOVE = """
INSERT INTO {table} ({names}) SELECT {names} FROM {stage} WHERE (_anabranch_part, xmin::text) IN
    (SELECT _anabranch_part, min(xmin::text) FROM {stage} GROUP BY _anabranch_part)
"""


def postgres_type(kind: str) -> str:
    """PostgreSQL's name of a type that Spark calls `kind`; what it has no name for is ``jsonb``.

    Examples
    --------
    >>> [postgres_type(kind) for kind in ("bigint", "decimal(9,2)", "array<float>", "map<int,int>")]
    ['bigint', 'numeric(9,2)', 'real[]', 'jsonb']
    """
    inner = kind.removeprefix("array<")[:-1]
    if kind.startswith("array<") and (inner in _PLAIN or inner.startswith("decimal")):
        return f"{postgres_type(inner)}[]"
    if kind.startswith("decimal"):
        return kind.replace("decimal", "numeric")
    return _PLAIN.get(kind, "jsonb")


class PostgresTable(Target):
    """A table of a database that the driver, and for ``via="spark"`` the executors, can reach."""

    verb = "sinks.postgres"
    packages = ("psycopg",)

    def __init__(self, dsn: str, table: str, jdbc: str | None) -> None:
        self.dsn = dsn
        self.place = table
        self.jdbc = jdbc

    @contextmanager
    def open(self, batch: Batch) -> Iterator[Writer]:
        import psycopg

        with psycopg.connect(self.dsn) as connection:
            yield _Table(self, batch, connection)

    def shaped(self, frame: DataFrame) -> DataFrame:
        """Structs and maps as text of JSON."""
        from pyspark.sql import functions as F

        return frame.select(
            *(
                F.to_json(by_name(name), JSON_FORM).alias(name)
                if kind == "jsonb"
                else by_name(name).alias(name)
                for name, kind in self._kinds(frame).items()
            )
        )

    def types(self, frame: DataFrame) -> Mapping[str, str]:
        return self._kinds(frame)

    def _kinds(self, frame: DataFrame) -> dict[str, str]:
        return {name: postgres_type(kind) for name, kind in super().types(frame).items()}

    def spark_problem(self, spark: Any) -> str | None:
        problem = self.driver_problem()  # the driver moves what the executors wrote
        if problem or self.jdbc:
            return problem
        problem = self.address_problem()
        if problem:
            return problem
        if not hasattr(spark, "_jvm"):
            return "give jdbc=, the address that Spark is to use"
        loader = spark._jvm.java.lang.Thread.currentThread().getContextClassLoader()
        try:
            loader.loadClass("org.postgresql.Driver")
        except Exception:  # whatever class Py4J gives to ClassNotFoundException
            return (
                "the session has no JDBC driver: start it with --packages org.postgresql:postgresql"
            )
        return None

    @property
    def url(self) -> str | None:
        """Where Spark writes to; None if that cannot be said."""
        return self.jdbc or jdbc_address(self._given())[0]

    def dsn_problem(self) -> str | None:
        """What is wrong with dsn, as far as it can be said without connecting."""
        from psycopg import ProgrammingError
        from psycopg.conninfo import conninfo_to_dict

        try:
            conninfo_to_dict(self.dsn)
        except ProgrammingError as error:
            wanted = "such as 'host=db user=me dbname=news' or 'postgresql://me@db/news'"
            return f"dsn must be an address of PostgreSQL, {wanted}: {_unreadable(str(error))}"
        return None

    def address_problem(self) -> str | None:
        """Why executors cannot connect as the driver does; None if they can."""
        if self.jdbc:
            return None
        address, unknown = jdbc_address(self._given())
        if unknown:
            return (
                f"dsn sets {', '.join(unknown)}, which JDBC cannot be given: via='driver' needs no "
                "JDBC; or give jdbc=, with settings that are as safe"
            )
        if address is None:
            return "no JDBC address follows from dsn: it has no host; give jdbc="
        return None

    def _given(self) -> dict[str, str]:
        """What the driver's library connects by: dsn, and what it finds beside it.

        That is the environment, the user of the system, and files in that user's folder.
        Executors have another environment, and may run as another user of their system.
        """
        from psycopg import pq
        from psycopg.conninfo import conninfo_to_dict

        given = {name: str(value) for name, value in conninfo_to_dict(self.dsn).items()}
        for option in pq.Conninfo.get_defaults():
            if option.val and option.val != option.compiled:
                given.setdefault(option.keyword.decode(), option.val.decode())
        return with_own_files(given, Path(os.path.expanduser("~")))


class _Table(Writer):
    """The table inside one transaction, which holds the row of its progress."""

    def __init__(self, target: PostgresTable, batch: Batch, connection: Any) -> None:
        from psycopg import sql

        self.target = target
        self.batch = batch
        self.connection = connection
        self.name = sql.Identifier(*target.place.split("."))
        _make_progress(connection)
        found = connection.execute(_LOCK, (batch.app, target.place)).fetchone()
        self.done = None if found[0] < 0 else Progress.noted(*found)
        quoted = self.name.as_string(connection)
        rows = connection.execute(_COLUMNS, (quoted,)).fetchall()
        self.columns = dict(rows) or None

    def write(self, columns: Mapping[str, str]) -> None:
        from psycopg import sql

        batch = self.batch
        if self.columns is None:
            self.connection.execute(
                sql.SQL("CREATE TABLE {} ({})").format(self.name, _declared(columns))
            )
        names = sql.SQL(", ").join(map(sql.Identifier, columns))
        if batch.table is not None:
            self._copy(names)
        else:
            self._move(names, self._stage(columns))
        advanced = (batch.number, batch.note.origin, batch.app, self.target.place)
        self.connection.execute(_ADVANCE, advanced)
        batch.reached("ready")
        self.connection.commit()

    def _copy(self, names: Any) -> None:
        from psycopg import sql

        table: Any = self.batch.table
        into = sql.SQL("COPY {} ({}) FROM STDIN").format(self.name, names)
        columns = [column.to_pylist() for column in table.columns]
        with self.connection.cursor().copy(into) as copy:
            for row in zip(*columns, strict=True):
                copy.write_row(row)

    def _stage(self, columns: Mapping[str, str]) -> Any:
        """The executors write to a table of this batch alone; what a killed run left is dropped."""
        import psycopg
        from psycopg import sql
        from pyspark.sql import functions as F

        batch, url = self.batch, str(self.target.url)
        name = blake2b(f"{batch.app} {self.target.place}".encode(), digest_size=8).hexdigest()
        stage = sql.Identifier(f"anabranch_stage_{name}")
        declared = _declared({**columns, _PART: "integer"})
        with psycopg.connect(self.target.dsn) as beside:
            beside.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(stage))
            beside.execute(sql.SQL("CREATE UNLOGGED TABLE {} ({})").format(stage, declared))
        batch.reached("stage made")
        untyped = "stringtype=unspecified"  # so that text may become jsonb
        (
            batch.frame.withColumn(_PART, F.spark_partition_id())
            .write.format("jdbc")
            .option("url", f"{url}{'&' if '?' in url else '?'}{untyped}")
            .option("driver", "org.postgresql.Driver")
            .option("dbtable", f"anabranch_stage_{name}")
            .mode("append")
            .save()
        )
        batch.reached("staged")
        return stage

    def _move(self, names: Any, stage: Any) -> None:
        """Into the table, one attempt of each task: a task that was repeated wrote twice."""
        from psycopg import sql

        moved = self.connection.execute(
            sql.SQL(_MOVE).format(table=self.name, names=names, stage=stage)
        ).rowcount
        if moved != self.batch.rows:
            raise StateMismatch(
                f"batch {self.batch.number} has {self.batch.rows} rows, and {moved} reached "
                f"{self.target.place}: another query writes as app={self.batch.app!r}, or jdbc= "
                "leads to another database than dsn"
            )
        self.connection.execute(sql.SQL("DROP TABLE {}").format(stage))


def _make_progress(connection: Any) -> None:
    """The table of progress, if it is not there: only then must the user be allowed to make one."""
    from psycopg import errors

    there = connection.execute("SELECT to_regclass('anabranch_progress')").fetchone()
    if there[0] is None:
        try:
            connection.execute(_PROGRESS)
        except (errors.UniqueViolation, errors.DuplicateTable):
            connection.rollback()  # another query has just made it
    connection.commit()


def _declared(columns: Mapping[str, str]) -> Any:
    from psycopg import sql

    return sql.SQL(", ").join(
        sql.SQL("{} {}").format(sql.Identifier(name), sql.SQL(kind))
        for name, kind in columns.items()
    )


def _unreadable(said: str) -> str:
    """What is wrong with a dsn, by what libpq says, which may quote a password."""
    from psycopg.pq import Conninfo

    if found := re.match(r'invalid (?:connection option|URI query parameter:) "(\w+)"', said):
        known = [one.keyword.decode() for one in Conninfo.get_defaults()]
        if near := get_close_matches(found[1], known, 1):
            return f"it has a setting that there is not; did you mean {near[0]!r}?"
        return "it has a setting that there is not"
    reasons = {
        'missing "="': "a name has no = after it; a value with spaces needs quotes, 'like this'",
        "invalid percent": "in an address % is written %25",
        "unexpected spaces": "in an address a space is written %20",
        "unterminated": "a quote has no end",
    }
    for begin, reason in reasons.items():
        if said.startswith(begin):
            return reason
    return "it cannot be read"
