"""Figures of a running correlation, out of the query's own progress reports."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, replace
from typing import Any

from anabranch.assembly.kernel import AssembleLoad
from anabranch.flow.load import Load

__all__ = ["batch_metrics", "loads_of", "metrics", "metrics_name", "observes", "verb_of"]

_VERBS = ("correlate", "nearest", "assemble")
_AT_ONCE = "now_"
State = dict[tuple[str, int], Load]  # by operator and worker

_ASSEMBLED = ("rows", "late", "rejected", "instances", "revisions", "timeouts", "evicted")
_HELD = ("open_windows", "remembered", "waiting_rows", "state_rows", "state_bytes")
_ROUTED = ("sent_at_once", "sent_later", "withheld", "dropped")
_COUNTS = ("rows_in", "comparisons", "pairs", "late_rows", "rejected_rows", *_ROUTED)


def metrics_name(verb: str, at_once: bool = False) -> str:
    """A new name for the observed metrics of one operator.

    `at_once` marks an operator whose results wait for no watermark though its verb's do.

    Examples
    --------
    >>> metrics_name("nearest").startswith("anabranch_nearest_")
    True
    """
    return f"{_prefix(verb)}{_AT_ONCE if at_once else ''}{secrets.token_hex(4)}"


def verb_of(name: str) -> str | None:
    """The verb whose metrics these are, if results of it wait for the watermark or may do so.

    Examples
    --------
    >>> verb_of("anabranch_assemble_1a2b"), verb_of("anabranch_assemble_now_1a2b"), verb_of("other")
    ('assemble', None, None)
    """
    for verb in _VERBS:
        if name.startswith(_prefix(verb)):
            return None if name.startswith(_prefix(verb) + _AT_ONCE) else verb
    return None


def observes(names: Iterable[str], *verbs: str) -> bool:
    """Whether metrics of one of these verbs are among observed ones.

    Examples
    --------
    >>> observes(["anabranch_nearest_1a2b"], "correlate", "nearest")
    True
    """
    return any(name.startswith(_prefix(verb)) for name in names for verb in verbs)


def _prefix(verb: str) -> str:
    return f"anabranch_{verb}_"


def metrics(query: Any) -> dict[str, Any]:
    """The latest figures of a streaming query that correlates or assembles.

    Counts are those of the newest micro-batch that did work; ``total`` adds up the batches that
    Spark still remembers (100 by default, ``spark.sql.streaming.numRecentProgressUpdates``).
    ``state_rows`` and ``state_bytes`` are of all workers, also those that had nothing to do.
    ``pruned`` (pairs ruled out, by filter), ``accepted_by_bound`` and ``solved`` say how pairs were
    decided under an Earth Mover's Distance. Under interest routing of `nearest`, ``sent_at_once``
    and ``sent_later`` count copies that went to owners of queries, ``withheld`` those that did not
    at first, ``dropped`` those that never will. ``workers`` holds all figures of each worker.
    A query that does both has the figures of its assembly under ``"assembly"``.

    Examples
    --------
    >>> ab.metrics(query)["pairs"]  # doctest: +SKIP
    17
    """
    state: State = {}
    latest: dict[str, Any] = {}
    total = dict.fromkeys(_COUNTS, 0)
    for progress in query.recentProgress:
        loads = loads_of(progress)
        if loads:
            latest = batch_metrics(progress, loads, state)
            total = {name: total[name] + latest[name] for name in _COUNTS}
    assembled = _assembly_metrics(query)
    if not latest:
        return assembled
    found = {**latest, "total": total}
    return {**found, "assembly": assembled} if assembled else found


def _assembly_metrics(query: Any) -> dict[str, Any]:
    """The same for `assemble`: counts of the newest batch with work, sums, and what is held."""
    buckets: dict[tuple[str, int], AssembleLoad] = {}
    latest: dict[str, Any] = {}
    total = dict.fromkeys(_ASSEMBLED, 0)
    for progress in query.recentProgress:
        loads = [
            replace(AssembleLoad.from_json(text), operator=name)
            for name, row in (progress.observedMetrics or {}).items()
            if name.startswith(_prefix("assemble"))
            for text in _texts(row)
        ]
        if not loads:
            continue
        # A bucket may report twice in a batch: for its rows, then for its timer.
        buckets.update(((load.operator, load.worker), load) for load in loads)
        counts = {name: sum(getattr(load, name) for load in loads) for name in _ASSEMBLED}
        total = {name: total[name] + counts[name] for name in _ASSEMBLED}
        latest = {
            "batch": progress.batchId,
            "seconds": dict(progress.durationMs).get("triggerExecution", 0) / 1000,
            **counts,
            "watermark": max(load.watermark for load in loads),
            "buckets": [asdict(load) for load in loads],
        }
    if not latest:
        return {}
    held = {name: sum(getattr(load, name) for load in buckets.values()) for name in _HELD}
    return {**latest, **held, "total": total}


def loads_of(progress: Any, prefix: str | None = None) -> list[Load]:
    """The workers' reports inside one progress report, of `correlate` and `nearest` or of one."""
    prefixes = (_prefix("correlate"), _prefix("nearest")) if prefix is None else (prefix,)
    return [
        replace(Load.from_json(text), operator=name)
        for name, row in (progress.observedMetrics or {}).items()
        if name.startswith(prefixes)
        for text in _texts(row)
    ]


def _texts(row: Any) -> Iterable[str]:
    """The reports in an observed row; Connect wraps it into another with its schema."""
    fields = row.asDict() if hasattr(row, "asDict") else dict(row)
    if "load" not in fields and "values" in fields:
        return fields["values"][0] or ()
    return fields["load"] or ()


def batch_metrics(progress: Any, loads: Iterable[Load], state: State) -> dict[str, Any]:
    """Figures of one micro-batch; `state` remembers each worker's last report."""
    loads = list(loads)
    state.update(((load.operator, load.worker), load) for load in loads)
    rows = sum(load.rows_left + load.rows_right for load in loads)
    copies = sum(load.copies_left + load.copies_right for load in loads)
    seconds = dict(progress.durationMs).get("triggerExecution", 0) / 1000
    compared = sum(load.comparisons for load in loads)
    busy = [load.busy_seconds for load in loads]
    return {
        "batch": progress.batchId,
        "seconds": seconds,
        "rows_in": rows + sum(load.rejected for load in loads),
        "comparisons": compared,
        "pairs": sum(load.pairs for load in loads),
        "comparisons_per_second": compared / seconds if seconds else 0.0,
        "copies_per_row": copies / rows if rows else 0.0,
        "late_rows": sum(load.late for load in loads),
        "rejected_rows": sum(load.rejected for load in loads),
        "pruned": dict(sum((Counter(load.pruned) for load in loads), Counter())),
        "accepted_by_bound": sum(load.accepted for load in loads),
        "solved": sum(load.solved for load in loads),
        **{name: sum(getattr(load, name) for load in loads) for name in _ROUTED},
        "state_rows": sum(load.state_rows for load in state.values()),
        "state_bytes": sum(load.state_bytes for load in state.values()),
        "slowest_worker_seconds": max(busy, default=0.0),
        "mean_worker_seconds": sum(busy) / len(busy) if busy else 0.0,
        "watermark": max((load.watermark for load in loads), default=0),
        "workers": [asdict(load) for load in loads],
    }
