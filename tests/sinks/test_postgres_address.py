"""Executors reach the database as the driver does, with all that its address says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from scripts.services.jars import fetched
from scripts.services.postgres import server
from tests.sinks.stories import SCRIPT, installed, needed
from tests.spark.feeds import Feed, scripted
from tests.spark.processes import driver


@pytest.mark.services
@pytest.mark.spark
def test_rows_by_executors_into_the_schema_of_the_address(tmp_path: Path) -> None:
    """They write beside the table, where the transaction that moves the rows finds them."""
    installed("psycopg")
    import psycopg

    jars = ",".join(map(str, needed(lambda: fetched("postgres"))))
    running = server()
    dsn = needed(running.__enter__)
    try:
        with psycopg.connect(dsn) as connection:
            connection.execute("CREATE SCHEMA fresh")
        call = {
            "dsn": f"{dsn} options='-c search_path=fresh' connect_timeout=30",
            "table": "pairs",
            "app": "rows",
            "via": "spark",
        }
        Feed(tmp_path).add(scripted(2, rows=(8, 8), seed=21))
        options = ["--result", "distinct", "--conf", json.dumps({"spark.jars": jars})]
        given = (json.dumps(call), "--sink", "postgres", *options)
        with driver(tmp_path, *given, script=SCRIPT) as run:
            run.finish()
        with psycopg.connect(dsn) as connection:
            counted = connection.execute("SELECT count(*) FROM fresh.pairs").fetchone()
            assert counted == (16,)
            tables = "SELECT schemaname, tablename FROM pg_tables WHERE schemaname !~ '^(pg_|inf)'"
            found = sorted(connection.execute(tables).fetchall())
            assert found == [("fresh", "anabranch_progress"), ("fresh", "pairs")]
    finally:
        running.__exit__(None, None, None)
