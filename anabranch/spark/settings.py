"""Session settings that the operators need, and what to say when one is wrong."""

from __future__ import annotations

import functools
import logging
import os
import subprocess
import sys
import warnings
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from pyspark.sql import SparkSession

from anabranch.errors import InvalidCall, renamed
from anabranch.flow.hashing import spreads
from anabranch.flow.progress import screen
from anabranch.plans.arguments import worker_problems
from anabranch.plans.controller import Adaptive
from anabranch.plans.plan import Plan, Routing
from anabranch.spark.class_archive import use_archive
from anabranch.spark.frames import kind_of
from anabranch.spark.quiet import QUIET
from anabranch.spark.versions import version_problems

__all__ = [
    "DAEMON",
    "configure",
    "has_large_types",
    "partitions",
    "partitions_for",
    "room_problems",
    "session_problems",
    "setting_problems",
]

_LOG = logging.getLogger("anabranch")
_PROVIDER = "spark.sql.streaming.stateStore.providerClass"
_ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
_PARTITIONS = "spark.sql.shuffle.partitions"
_PROGRESS = "spark.ui.showConsoleProgress"
_DAEMON = "spark.python.daemon.module"
_PYTHON = "spark.pyspark.python"
DAEMON = "anabranch.spark.daemon"
"""The module that starts Python workers with everything loaded."""
_CHANGELOG = "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"


@renamed()
def configure(spark: Any, workers: int = 8) -> Any:
    """Set what Anabranch's operators need on a session, or on its builder, and return it.

    Sets the number of shuffle partitions *of every query of the session* to the least number,
    `workers` or a little more, over which workers spread one per task; the RocksDB state store,
    which Python state needs; and its changelog checkpoints, which make commits cheap. With a local
    master it keeps the chatter of Spark's Python workers off the terminal, and on a builder also
    Spark's progress bars, unless the builder asks for them. What was set is said in one line on a
    terminal and in a notebook, unless ``ANABRANCH_PROGRESS=off``, and logged (logger
    ``anabranch``). A running checkpoint keeps the number of partitions that it
    was begun with. With a local master, and unless ``PYSPARK_PYTHON`` or ``spark.pyspark.python``
    says otherwise, Python workers are this interpreter; and they are started by
    ``anabranch.spark.daemon``, which loads what they need once and not in each of them, unless
    ``spark.python.daemon.module`` names another.

    Parameters
    ----------
    spark
        The session, classic or Connect; or a ``SparkSession.builder``.
    workers
        How many workers a plan may use: about the number of cores. Every partition costs about
        65 ms per micro-batch, so more is not better.

    Examples
    --------
    >>> import anabranch as ab
    >>> ab.configure(spark, workers=2) is spark
    True
    >>> builder = ab.configure(SparkSession.builder.appName("mine"), workers=2)
    >>> type(builder).__name__
    'Builder'
    """
    problems = worker_problems("workers", workers)
    is_builder = hasattr(spark, "getOrCreate") and hasattr(spark, "config")
    if not is_builder and not hasattr(spark, "conf"):
        problems.append(
            "spark, the first argument, must be a SparkSession or SparkSession.builder, got "
            f"{kind_of(spark)}"
        )
    if problems:
        raise InvalidCall("configure", problems)
    workers = int(workers)
    count = partitions_for(workers)
    before = "" if is_builder else spark.conf.get(_PARTITIONS)
    chosen = {_PARTITIONS: str(count), _PROVIDER: _ROCKSDB, _CHANGELOG: "true", QUIET: "true"}
    for name, value in chosen.items():
        if is_builder:
            spark.config(name, value)
        else:
            spark.conf.set(name, value)
    chosen |= _start_this_python(spark) if is_builder else _use_this_python(spark)
    if count != workers:
        _LOG.warning("workers=%d: %d partitions, over which they spread evenly", workers, count)
    _LOG.info("configured %s", ", ".join(f"{name}={value}" for name, value in chosen.items()))
    _say(count, before, chosen)
    return spark


def _say(count: int, before: str | None, chosen: Mapping[str, str]) -> None:
    """What was set, to a person who looks on: it holds of queries that are not ours too."""
    if screen() is None:
        return
    instead = f", {before} before" if before and before != str(count) else ""
    off = "its state servers" + (" and progress bars" if _PROGRESS in chosen else "")
    said = [
        f"{count} shuffle partitions for every query of this session{instead}",
        "state in RocksDB with changelog checkpoints",
        f"Spark's chatter off ({off})",
    ]
    if _PYTHON in chosen:
        said.append(f"Python workers are {chosen[_PYTHON]}")
    if _DAEMON in chosen:
        said.append(f"they are started by {DAEMON}")
    print(f"anabranch: {'; '.join(said)}", file=sys.stderr)


def partitions_for(workers: int) -> int:
    """The least number of partitions over which so many workers spread one per task.

    Examples
    --------
    >>> partitions_for(8), partitions_for(11)
    (8, 12)
    """
    return next((n for n in range(workers, 2 * workers + 64) if spreads(n)), workers)


def _use_this_python(spark: SparkSession) -> dict[str, str]:
    """Keep Spark from taking the system's python3, which knows nothing of a virtual environment.

    What was set comes back.
    """
    try:
        context = spark.sparkContext
    except Exception:  # Connect has none, and its server chooses
        return {}
    if not str(context.master).startswith("local"):
        return {}
    found, given = {}, context.getConf()
    if "PYSPARK_PYTHON" not in os.environ and not given.contains(_PYTHON):
        context.pythonExec = found[_PYTHON] = sys.executable
    if not given.contains(_DAEMON) and _knows_daemon(context.pythonExec):
        # A vendor's Spark may not let us: workers then load by themselves.
        with suppress(Exception):
            context._jsc.sc().conf().set(_DAEMON, DAEMON)
            found[_DAEMON] = DAEMON
    return found


def _start_this_python(builder: Any) -> dict[str, str]:
    """The same for a session that is yet to be started, which asks the environment; no bars."""
    options, found = getattr(builder, "_options", {}), {}
    if _PROGRESS not in options:
        found[_PROGRESS] = "false"
        builder.config(_PROGRESS, "false")
    local = str(options.get("spark.master", "local")).startswith("local")
    if not local or "spark.remote" in options:
        return found
    if _PYTHON not in options and "PYSPARK_PYTHON" not in os.environ:
        os.environ["PYSPARK_PYTHON"] = found[_PYTHON] = sys.executable
    python = options.get(_PYTHON) or os.environ["PYSPARK_PYTHON"]
    if _DAEMON not in options and _knows_daemon(str(python)):
        found[_DAEMON] = DAEMON
        builder.config(_DAEMON, DAEMON)
    use_archive()
    return found


@functools.cache
def _knows_daemon(python: str) -> bool:
    """Whether this Python finds the daemon; not so if the package is pickled by value."""
    ask = f"import sys, importlib.util as u; sys.exit(u.find_spec({DAEMON!r}) is None)"
    try:
        return subprocess.run([python, "-c", ask], capture_output=True, timeout=20).returncode == 0
    except (OSError, subprocess.SubprocessError):
        return False


def partitions(spark: SparkSession) -> int:
    """The session's number of shuffle partitions."""
    return int(spark.conf.get(_PARTITIONS) or 200)


def has_large_types(spark: SparkSession) -> bool:
    """Whether strings and bytes travel between Spark and Python with offsets of 64 bits."""
    return spark.conf.get("spark.sql.execution.arrow.useLargeVarTypes", "false") == "true"


def room_problems(spark: SparkSession, plan: Any) -> list[str]:
    """What to say of a plan with more workers than the session has partitions."""
    count = partitions(spark)
    if not isinstance(plan, (Plan, Routing, Adaptive)) or plan.workers <= count:
        return []
    return [
        f"plan {plan} has {plan.workers} workers, but {_PARTITIONS} is {count}: use fewer, or call "
        f"ab.configure(spark, workers={plan.workers})"
    ]


def session_problems(spark: Any) -> list[str]:
    """What is wrong with what was given as the session."""
    if hasattr(spark, "conf") and hasattr(spark, "readStream"):
        return []
    return [f"spark must be a SparkSession, got {kind_of(spark)}"]


def setting_problems(spark: SparkSession, streaming: bool) -> list[str]:
    """What stands in the way of running an operator on this session."""
    if found := version_problems():
        return found
    count = partitions(spark)
    if streaming and not spreads(count):
        warnings.warn(
            f"{_PARTITIONS} is {count}: workers may share tasks, and each partition costs about "
            "65 ms per micro-batch; call ab.configure(spark, workers=...) with about as many as "
            "there are cores",
            stacklevel=5,
        )
    if streaming and (provider := spark.conf.get(_PROVIDER, "")) != _ROCKSDB:
        short = (provider or "unset").rsplit(".", 1)[-1]
        return [
            f"{_PROVIDER} is {short}, but Python state needs RocksDBStateStoreProvider: call "
            "ab.configure(spark, workers=8) once after making the session"
        ]
    return []
