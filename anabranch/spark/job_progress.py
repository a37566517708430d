"""Progress of the jobs of a batch, which run when a result is asked for, after the call is over."""

from __future__ import annotations

import threading
import time
from typing import Any

from pyspark.sql import SparkSession

from anabranch.flow.progress import screen, step, working

__all__ = ["jobs_of", "show_jobs", "tasks_of"]

_PAUSE = 0.3  # seconds between looks
_PATIENCE = 120.0  # seconds without a job after which nobody looks, until the next call
_FOLLOWED: set[str] = set()  # applications


def show_jobs(spark: SparkSession) -> None:
    """Show the batch jobs of a session that follow, where there is somebody to see it.

    Jobs of streaming queries and of groups that a user named are left out. Connect shows its own.
    """
    if screen() is None:
        return
    try:
        context = spark.sparkContext
    except Exception:  # Connect has none
        return
    own_bars = context.getConf().get("spark.ui.showConsoleProgress", "false") == "true"
    if own_bars or context.applicationId in _FOLLOWED:
        return
    _FOLLOWED.add(context.applicationId)
    threading.Thread(target=_watch, args=(context,), daemon=True).start()


def jobs_of(tracker: Any) -> list[int]:
    """The jobs without a group that run now; streaming queries give theirs one."""
    return sorted(set(tracker.getActiveJobsIds()) & set(tracker.getJobIdsForGroup(None)))


def tasks_of(tracker: Any, job: int) -> tuple[int, int]:
    """Tasks of a job that are done, and all that are known of."""
    info = tracker.getJobInfo(job)
    stages = [tracker.getStageInfo(stage) for stage in (info.stageIds if info else ())]
    known = [stage for stage in stages if stage is not None]
    return sum(it.numCompletedTasks for it in known), sum(it.numTasks for it in known)


def _watch(context: Any) -> None:
    tracker, seen = context.statusTracker(), time.monotonic()
    while context._jsc is not None and time.monotonic() - seen < _PATIENCE:
        try:
            if jobs_of(tracker):
                _show(tracker)
                seen = time.monotonic()
        except Exception:  # the session is being stopped
            break
        time.sleep(_PAUSE)
    _FOLLOWED.discard(context.applicationId)


def _show(tracker: Any) -> None:
    """Show jobs until two looks have found none: what one call asks for is often several jobs."""
    with working("Spark"):
        idle = 0
        while idle < 2:
            if jobs := jobs_of(tracker):
                done, of = tasks_of(tracker, jobs[0])
                step(f"job {jobs[0]}, {done} of {of} tasks", done, of)
            idle = 0 if jobs else idle + 1
            time.sleep(_PAUSE)
