"""What a task of Spark knows of itself: its query, micro-batch and run, and its GPUs."""

from __future__ import annotations

from pyspark import TaskContext

__all__ = ["gpus", "local_property", "place"]


def gpus() -> tuple[str, ...]:
    """The addresses of the GPUs that Spark assigned to this task."""
    task = TaskContext.get()
    found = None if task is None else (task.resources() or {}).get("gpu")
    return () if found is None else tuple(found.addresses)


def place() -> tuple[str, int, str, tuple[str, ...]]:
    """The query, the micro-batch and the run that this task is part of, and its GPUs."""
    # Spark's name of a run's jobs is the run's id.
    query, run = (
        local_property("sql.streaming.queryId") or "",
        local_property("spark.jobGroup.id") or "",
    )
    return query, int(local_property("streaming.sql.batchId") or 0), run, gpus()


def local_property(name: str) -> str | None:
    """What the driver says to the tasks of a job under a name; None if nothing."""
    task = TaskContext.get()
    # Beside a task, as where a function is tried out, there is a context without properties.
    if task is None or task._localProperties is None:
        return None
    return task.getLocalProperty(name)
