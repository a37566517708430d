"""Starts Spark's Python workers with all that they need already loaded.

Spark forks its Python workers from one process, the daemon, which has loaded nothing: every worker
imports numpy, pandas, pyarrow, numba and this package for itself, and makes numba's compiler ready
for the first compiled function. That is a second and a half of a core for each worker, and a
micro-batch has two for each core: those of its stateful operator, and those that unpack results.
This daemon does it once, before it forks. Workers share the memory, too.

Spark asks that no thread be running at a fork, and none is: the background thread of one of Arrow's
allocators, which is not even the one in use, is asked not to start. What a worker does is decided
by Spark as ever: ``spark.python.daemon.module=anabranch.spark.daemon`` changes where workers come
from. If loading fails, workers load for themselves, as they would without it.
"""

from __future__ import annotations

import gc
import os
from contextlib import suppress

__all__ = ["load", "main"]

_NO_THREAD = ("JE_ARROW_MALLOC_CONF", "background_thread:false")


def load() -> None:
    """Load what workers need into this process, and leave it with one thread."""
    os.environ.setdefault(*_NO_THREAD)
    for part in (_import_ours, _import_sparks):
        with suppress(Exception):  # a worker that misses something says so itself
            part()
    # A collection writes to every object that it looks at, and what is written is not shared.
    gc.collect()
    gc.freeze()


def _import_ours() -> None:
    """What workers of every streaming verb import."""
    import numpy as np

    import anabranch.assembly.job
    import anabranch.correlation.jobs
    import anabranch.neighbours.job
    import anabranch.spark.operator  # noqa: F401
    from anabranch.flow.lanes import squared_norms

    # The first compiled function of a process makes numba ready, whichever it is.
    squared_norms(np.ones((1, 8), np.float32))


def _import_sparks() -> None:
    """What Spark's own part of a worker imports, which differs between versions."""
    import pyspark.sql.pandas.serializers
    import pyspark.sql.streaming.proto.StateMessage_pb2
    import pyspark.sql.streaming.stateful_processor_util
    import pyspark.worker  # noqa: F401


def main() -> None:
    """Load everything, then start workers as Spark asks for them."""
    from pyspark.daemon import manager

    # Spark reads the daemon's first bytes on standard output as its address.
    address = os.dup(1)
    os.dup2(2, 1)
    load()
    os.dup2(address, 1)
    os.close(address)
    manager()


if __name__ == "__main__":
    main()
