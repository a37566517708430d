"""What is true of the driver and of the executors: the facts that ``anabranch doctor`` judges."""

from __future__ import annotations

import json
import time
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
_MOST_TASKS = 4096
_ROUNDS = 4  # of tasks, until every executor has had one
_PATIENCE = 30  # looks, a second apart, until the executors are there
_STILL = 3  # looks that find as many, where it is not said how many are to come
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
    asked = _asked(spark)
    settled(lambda: len(_registered(spark) or ()), asked)
    facts["asked"] = asked or None
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
    known = _registered(spark)
    facts["registered"] = known and {
        "executors": len(known),
        "hosts": len({host.rpartition(":")[0] for host in known}),
    }
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


def settled(
    registered: Callable[[], int], asked: int | None, sleep: Callable[[float], None] = time.sleep
) -> int:
    """Wait until as many executors are there as are asked for, or no more come; how many there are.

    A session starts before its executors have registered, and would be taken for a small one.

    Examples
    --------
    >>> coming = iter([0, 1, 2, 4, 4])
    >>> settled(lambda: next(coming), 4, sleep=lambda _: None)
    4
    """
    counts: list[int] = []
    while len(counts) < _PATIENCE:
        counts.append(registered())
        there = counts[-1]
        if asked is None and there and counts[-_STILL:] == [there] * _STILL:
            break
        if asked is not None and there >= asked:
            break
        sleep(1)
    return counts[-1]


def _asked(spark: SparkSession) -> int | None:
    """How many executors are to come; 0 where none do, None where it is not said."""
    if _registered(spark) is None or str(spark.conf.get("spark.master", "")).startswith("local"):
        return 0
    said = spark.conf.get("spark.executor.instances", None) or ""
    return int(said) if said.isdecimal() else None


def _registered(spark: SparkSession) -> list[str] | None:
    """Addresses of the executors that Spark has; None through Connect, which does not say."""
    try:
        context: Any = spark.sparkContext
        listed = context._jsc.sc().statusStore().executorList(True)
        found = [listed.apply(n) for n in range(listed.size())]
        local = context.master.startswith("local")
        return [str(e.hostPort()) for e in found if local or e.id() != "driver"]
    except Exception:
        return None


def _ask(spark: SparkSession, look: Callable[[], dict[str, Any]], cores: int | None) -> list[Any]:
    """What the Python processes of executors see, one entry for each, with the Java beside it.

    Several times, if an executor got no task because others had finished theirs.
    """
    found: dict[Any, Any] = {}
    for _ in range(_ROUNDS):
        there = len(_registered(spark) or ())
        tasks = min(_MOST_TASKS, max(2 * (cores or 8), 4 * there))
        found |= {(entry["host"], entry["pid"]): entry for entry in _asked_once(spark, look, tasks)}
        if len({(e["host"], e["parent"]) for e in found.values()}) >= there:
            break
    return list(found.values())


def _asked_once(spark: SparkSession, look: Callable[[], dict[str, Any]], tasks: int) -> list[Any]:

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
    return [json.loads(row[0]) for row in rows]


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
            "parent": os.getppid(),  # of which an executor has one
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
