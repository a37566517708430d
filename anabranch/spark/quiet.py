"""Keep Spark's own chatter about Python state off the user's terminal.

Two things are printed on standard error, whatever the query:

- The state server of each task warns when its Python worker is done (``No more data to read from
  the socket``) and of each value that is not there yet: lines for every task and micro-batch. They
  come from a logger of the JVM that runs the task, so with a local master they can be turned off.
- The process in which Spark tries out a stateful processor when a query starts prints five long
  lines, one of them before it knows whose processor it is. The others can be kept back there.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import Any

from pyspark.sql import SparkSession

__all__ = ["QUIET", "hush_server", "hush_trial"]

QUIET = "spark.anabranch.quiet"
"""The session setting that asks for quiet; `ab.configure` sets it."""

_SERVER = "org.apache.spark.sql.execution.python.streaming.TransformWithStateInPySparkStateServer"
_TRIAL = "pyspark.sql.streaming.transform_with_state_driver_worker"


def hush_server(spark: SparkSession) -> None:
    """Let the state servers of this JVM report errors only; elsewhere log4j2 must be told."""
    if spark.conf.get(QUIET, "false") != "true":
        return
    with suppress(Exception):  # Connect has no JVM here, and a Spark without log4j2 no such class
        jvm: Any = spark.sparkContext._jvm
        logs = jvm.org.apache.logging.log4j
        # Spark's own settings give INFO; whoever asks for more than that shall have it.
        if str(logs.LogManager.getLogger(_SERVER).getLevel()) in ("INFO", "WARN"):
            logs.core.config.Configurator.setLevel(_SERVER, logs.Level.ERROR)


def hush_trial() -> None:
    """In the process that only tries out a processor: print nothing more on standard output."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    if getattr(spec, "name", None) == _TRIAL:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.close(nowhere)
