"""What is true of the driver and of the executors: the facts that ``anabranch doctor`` judges."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pyspark
from pyspark.sql import SparkSession

from anabranch.flow.folders import Folder

__all__ = ["PACKAGES", "examine", "start"]

PACKAGES = ("anabranch", "pyspark", "numpy", "numba", "pyarrow", "pandas", "protobuf")
_MOST_TASKS = 64
_JAVA = "java_method('java.lang.System', 'getProperty', 'java.version')"
_SETTINGS = {
    "partitions": "spark.sql.shuffle.partitions",
    "provider": "spark.sql.streaming.stateStore.providerClass",
}


def start(master: str | None = None, remote: str | None = None) -> SparkSession:
    """A session as a user's program would get it."""
    builder: Any = SparkSession.builder.appName("anabranch doctor")
    builder = builder.remote(remote) if remote else builder
    builder = builder.master(master) if master else builder
    session: SparkSession = builder.config("spark.ui.showConsoleProgress", "false").getOrCreate()
    return session


def examine(spark: SparkSession, control: str | None = None) -> dict[str, Any]:
    """The facts of a session, of this process, and of the Python of every executor.

    A probe file is written to the directory `control`, read by the executors, and removed.

    Examples
    --------
    >>> facts = examine(spark)
    >>> facts["error"], facts["executors"][0]["python"] == facts["driver"]["python"]
    (None, True)
    >>> facts["executors"][0]["java"] == facts["java"]  # here they are one process
    True
    """
    facts: dict[str, Any] = {name: spark.conf.get(of, None) for name, of in _SETTINGS.items()}
    facts["spark"] = {"client": pyspark.__version__, "server": spark.version}
    facts["java"] = _java(spark)
    facts["cores"] = _cores(spark)
    facts["control"] = control
    token = uuid.uuid4().hex
    folder = None
    try:
        if control is not None:
            folder = Folder(control)
            folder.write(f"doctor-{token}.probe", token.encode())
    except Exception as error:
        facts["control_error"] = _words(error)
        folder = None
    look = _looker(None if folder is None else folder.path, token, PACKAGES)
    facts["driver"] = look()
    try:
        facts["executors"], facts["error"] = _ask(spark, look, facts["cores"]), None
    except Exception as error:
        facts["executors"], facts["error"] = [], _words(error)
    facts["after"] = look()["time"]
    if folder is not None:
        with suppress(Exception):
            for name in folder.names("", ".probe"):
                if token in name:
                    folder.delete(name)
    return facts


def _java(spark: SparkSession) -> str:
    """The version of the JVM that plans queries, asked through SQL: Connect has no other way."""
    row = spark.sql(f"SELECT {_JAVA}").first()
    return str(row[0]) if row is not None else "unknown"


def _cores(spark: SparkSession) -> int | None:
    try:
        return int(spark.sparkContext.defaultParallelism)
    except Exception:  # Connect does not say
        return None


def _ask(spark: SparkSession, look: Callable[[], dict[str, Any]], cores: int | None) -> list[Any]:
    """What the Python processes of executors see, one entry for each, with the Java beside it."""
    tasks = min(_MOST_TASKS, 2 * (cores or 8))

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import json

        import pyarrow

        for batch in batches:
            found = {**look(), "java": batch.column(0)[0].as_py()}
            yield pyarrow.RecordBatch.from_pydict({"facts": [json.dumps(found)]})

    # Spark computes this column where the rows are, not while it plans: it could be another each
    # time.
    asked = spark.range(0, tasks, 1, tasks).selectExpr(f"{_JAVA} AS java")
    rows = asked.mapInArrow(run, "facts string").collect()
    found = [json.loads(row[0]) for row in rows]
    return list({(entry["host"], entry["pid"]): entry for entry in found}.values())


def _looker(
    control: str | None, token: str, packages: tuple[str, ...]
) -> Callable[[], dict[str, Any]]:
    """A function that looks at the process it runs in.

    It is made here, not written at the top, so that it travels as a whole: an executor that has no
    Anabranch must be able to say so.
    """

    def look() -> dict[str, Any]:
        import importlib.metadata
        import os
        import platform
        import socket
        import sys
        import time

        def version(name: str) -> str | None:
            try:
                return importlib.metadata.version(name)
            except importlib.metadata.PackageNotFoundError:
                module = sys.modules.get(name)
                return getattr(module, "__version__", None)

        found: dict[str, Any] = {
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "python": platform.python_version(),
            "executable": sys.executable,
            "time": time.time(),
        }
        try:
            from anabranch.flow.folders import Folder
            from anabranch.flow.process import cache_folder

            kept = cache_folder()
            found["cache"] = None if kept is None else str(kept)
        except Exception as error:
            found["import_error"] = f"{type(error).__name__}: {error}"
        found["packages"] = {name: version(name) for name in packages}
        if control is None or "import_error" in found:
            return found
        try:
            folder = Folder(control)
            found["control_read"] = folder.read(f"doctor-{token}.probe") == token.encode()
            folder.write(f"doctor-{token}-{os.getpid()}.probe", b"here")
            found["control_written"] = True
        except Exception as error:
            found["control_error"] = f"{type(error).__name__}: {error}"
        return found

    return look


def _words(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    ours = [line for line in lines if "Error" in line]
    return f"{type(error).__name__}: {(ours or lines or [''])[-1]}"[:300]
