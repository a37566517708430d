"""Counts of a query since it was started, and one plain line when it stops on an error of ours.

Spark remembers the last 100 reports of a query and no more, so sums over them fall. What a
session's queries report is added up as it comes.
"""

from __future__ import annotations

import logging
import re
from collections import Counter, OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import SparkSession

from anabranch.flow.metrics import SPANS, counts_of, messages_rejected, reports_of, verbs_of
from anabranch.spark.listening import hearer_of, hearers

__all__ = ["Counting", "Run", "follow", "plain_line", "run_of", "since_start"]

_LOG = logging.getLogger("anabranch")
_RUNS = 64  # that a session remembers
_OURS = re.compile(r"anabranch\.errors\.(\w+): (.*)")


@dataclass
class Run:
    """What one run of a query has reported, up to a batch."""

    last: int = -1
    totals: dict[str, Counter[str]] = field(default_factory=dict)
    worked: dict[str, Any] = field(default_factory=dict)  # the newest report of work, by verb

    def add(self, progress: Any) -> None:
        """Count a micro-batch; one that was counted already changes nothing."""
        verbs, rejected = verbs_of(progress), messages_rejected(progress)
        if not (verbs or rejected is not None) or int(progress.batchId) <= self.last:
            return
        self.last = int(progress.batchId)
        for verb in verbs:
            counts = counts_of(reports_of(progress, verb), verb)
            self.totals.setdefault(verb, Counter()).update(counts)
            if any(counts.values()):
                self.worked[verb] = progress
        if rejected is not None:
            self.totals.setdefault(SPANS, Counter())["rejected_rows"] += rejected
            self.worked[SPANS] = progress


class Counting:
    """Counts the micro-batches of all queries of a session."""

    def __init__(self) -> None:
        self.runs: OrderedDict[str, Run] = OrderedDict()

    def progressed(self, progress: Any) -> None:
        """Add up what the micro-batch did."""
        if verbs_of(progress) or messages_rejected(progress) is not None:
            self.runs.setdefault(str(progress.runId), Run()).add(progress)
            self.runs.move_to_end(str(progress.runId))  # one that reports is not forgotten
            while len(self.runs) > _RUNS:
                self.runs.popitem(last=False)

    def ended(self, event: Any) -> None:
        """Say in one line what stopped it, if that was an error of ours."""
        if line := plain_line(event.exception):
            _LOG.error("query %s stopped: %s", event.id, line)


def plain_line(trace: str | None) -> str | None:
    """The error of ours inside a trace of Spark, on one line.

    Examples
    --------
    >>> plain_line("Traceback ... anabranch.errors.StateMismatch: begun with k='5'")
    "StateMismatch: begun with k='5'"
    >>> plain_line("java.lang.Error") is None
    True
    """
    found = _OURS.findall(trace or "")
    return ": ".join(found[-1]) if found else None


def follow(spark: SparkSession) -> None:
    """Have the queries of a session counted from now on."""
    hearer_of(spark, Counting)


def since_start(query: Any, recent: Iterable[Any]) -> Mapping[str, Mapping[str, int]]:
    """What a run has counted, by verb; `recent` are the reports that Spark remembers."""
    return run_of(query, recent).totals


def run_of(query: Any, recent: Iterable[Any]) -> Run:
    """What is known of a run; `recent` are the reports that Spark remembers.

    Listeners hear a little later: what they have not heard of yet is among the recent ones.
    """
    known = [heard.runs.get(str(query.runId)) for heard in hearers(Counting)]
    run = Run()
    for found in known:
        if found is not None and found.last > run.last:
            totals = {verb: Counter(c) for verb, c in found.totals.items()}
            run = Run(found.last, totals, dict(found.worked))
    for progress in recent:
        run.add(progress)
    return run
