"""`rescale`: let a checkpoint continue with more or fewer partitions, on a copy of it."""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession

from anabranch.calls import is_whole
from anabranch.errors import AnabranchError, InvalidCall, renamed
from anabranch.flow.folders import copy_folder, delete_folder, path_problems, what_is_at
from anabranch.spark.checkpoint import Checkpoint
from anabranch.spark.frames import kind_of
from anabranch.spark.settings import partitions_for
from anabranch.spark.versions import repartition_problems, repartition_state

__all__ = ["Rescaled", "rescale"]

_LOG = logging.getLogger("anabranch")


@dataclass(frozen=True)
class Rescaled:
    """Where a query continues, and over how many partitions; `batch` is the one that moved it."""

    checkpoint: str
    control: str | None
    partitions: int
    batch: int


@renamed()
def rescale(
    checkpoint: str | os.PathLike[str],
    workers: int,
    *,
    to: str | os.PathLike[str] | None = None,
    control: str | os.PathLike[str] | None = None,
    spark: SparkSession | None = None,
) -> Rescaled:
    """Copy the checkpoint of a stopped query, with its state over another number of partitions.

    A checkpoint keeps the number of partitions that it was begun with. This copies it and has Spark
    (4.2 or newer) repartition the state of the copy; the checkpoint itself is only read. The query
    must have been stopped, and its last micro-batch must be finished.

    More partitions are room for more workers, which a plan must use: see `docs/operate.md`.

    Parameters
    ----------
    checkpoint
        The ``checkpointLocation`` of the query.
    workers
        For how many workers there shall be room; the number of partitions becomes the one that
        ``ab.configure(spark, workers)`` sets.
    to
        Where the copy goes, which must not exist; by default beside the checkpoint, with
        ``-<partitions>`` after its name.
    control
        The directory that was given to the verb as ``control=``, if any. It is copied too, to its
        name with ``-<partitions>`` after it, which must not exist, so that the old checkpoint can
        still be continued.
    spark
        The session, classic; by default the active one.

    Returns
    -------
    Rescaled
        ``checkpoint`` and ``control``, to continue with; ``partitions``; and ``batch``, the
        micro-batch that the repartition has used up.

    Raises
    ------
    InvalidCall
        With every problem of the call; also if the query runs, or was stopped in mid-batch.

    Examples
    --------
    >>> moved = ab.rescale("/data/checkpoint", 16, control="/data/control")  # doctest: +SKIP
    >>> moved.checkpoint, moved.control, moved.partitions  # doctest: +SKIP
    ('file:/data/checkpoint-16', '/data/control-16', 16)
    """
    problems = path_problems("checkpoint", checkpoint)
    if not is_whole(workers):
        problems.append(f"workers must be a whole number of at least 1, got {workers!r}")
    for name, path in (("to", to), ("control", control)):
        problems += path_problems(name, path) if path is not None else []
    session = spark if spark is not None else SparkSession.getActiveSession()
    problems += _session_problems(session) + repartition_problems()
    if problems or session is None:
        raise InvalidCall("rescale", problems)
    count = partitions_for(int(workers))
    old = Checkpoint(session, checkpoint)
    new = Checkpoint(session, to if to is not None else f"{old.path}-{count}")
    log = None if control is None else _beside(os.fspath(control), count)
    if problems := _problems(old, new, count) + _log_problems(control, log):
        raise InvalidCall("rescale", problems)
    begun = old.batches("offsets")
    _copy_unless_it_changes(old, new)
    try:
        repartition_state(session, new.path, count)
        if control is not None and log is not None:
            _copy_log(control, log)
    except BaseException:
        new.delete()
        raise
    _LOG.info("rescaled %s to %d partitions in %s", old.path, count, new.path)
    return Rescaled(new.path, log, count, begun[-1] + 1)


def _session_problems(session: Any) -> list[str]:
    if session is None:
        return ["there is no active session: name one with spark="]
    if not isinstance(session, SparkSession) or not hasattr(session, "_jsparkSession"):
        return [
            f"spark must be a classic SparkSession, got {kind_of(session)}: Connect has no way to "
            "a checkpoint's state"
        ]
    return []


def _problems(old: Checkpoint, new: Checkpoint, count: int) -> list[str]:
    """What stands in the way of rescaling a checkpoint."""
    begun, ended = old.batches("offsets"), old.batches("commits")
    if old.query is None or not begun:
        return [f"{old.path} is no checkpoint of a query that has run"]
    problems = []
    if old.is_active():
        problems.append(f"query {old.query} is running on {old.path}: stop it first")
    elif begun[-1] not in ended:
        problems.append(
            f"micro-batch {begun[-1]} of {old.path} was begun and not finished: the query is still "
            "running, or was stopped in mid-batch; start it once more with "
            ".trigger(availableNow=True) and let it end"
        )
    elif (now := old.partitions(begun[-1])) == count:
        problems.append(f"{old.path} has {now} partitions already")
    if new.exists:
        problems.append(f"there is something at {new.path}: name another place with to=")
    return problems


def _beside(control: str, count: int) -> str:
    """Where the copy of a plan log goes."""
    # An address may have settings after it, such as s3://bucket/control?region=eu-west-1.
    place, mark, rest = control.partition("?") if "://" in control else (control, "", "")
    return f"{place.rstrip('/')}-{count}{mark}{rest}"


def _log_problems(control: str | os.PathLike[str] | None, log: str | None) -> list[str]:
    """What stands in the way of copying a plan log: entries of two logs must never be mixed."""
    if control is None or log is None:
        return []
    problems = []
    if (found := what_is_at(control)) != "a folder":
        problems.append(
            f"control must be the directory that the verb was given, and at {os.fspath(control)} "
            f"there is {found}"
        )
    if what_is_at(log) != "nothing":
        problems.append(
            f"there is something at {log}, where the copy of control goes: remove it or move it "
            "away, if no query uses it"
        )
    return problems


def _copy_log(control: str | os.PathLike[str], log: str) -> None:
    try:
        copy_folder(control, log)
    except BaseException:
        delete_folder(log)
        raise


def _copy_unless_it_changes(old: Checkpoint, new: Checkpoint) -> None:
    """Copy; if batches come in meanwhile, a query of another application runs on it."""
    before = [old.batches(log) for log in ("offsets", "commits")]
    try:
        old.copy(new)
        if [old.batches(log) for log in ("offsets", "commits")] != before:
            raise AnabranchError(
                f"{old.path} changed while it was copied: its query is running elsewhere; stop it "
                "first"
            )
    except BaseException:
        new.delete()
        raise
