"""What workers report of a micro-batch, read out of the query's own progress reports."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, replace
from typing import Any

from anabranch.assembly.kernel import AssembleLoad
from anabranch.flow.load import Load

__all__ = [
    "VERBS",
    "batch_metrics",
    "counts_of",
    "loads_of",
    "metrics_name",
    "observes",
    "reports_of",
    "verb_of",
    "verbs_of",
]

VERBS = ("correlate", "nearest", "assemble")
_AT_ONCE = "now_"
State = dict[tuple[str, int], Load]  # by operator and worker

_ALWAYS = {"rows_in": "rows_in", "late_rows": "late_rows", "rejected_rows": "rejected_rows"}
_ROUTED = ("sent_at_once", "sent_later", "withheld", "dropped")
_COUNTED = {
    "correlate": {
        **_ALWAYS,
        "pairs": "pairs",
        "comparisons": "comparisons",
        "accepted_by_bound": "accepted_by_bound",
        "solved": "solved",
    },
    "nearest": {
        **_ALWAYS,
        "hits": "pairs",
        "comparisons": "comparisons",
        **{name: name for name in _ROUTED},
    },
}
_ASSEMBLED = {
    "rows_in": "rows",
    "late_rows": "late",
    "rejected_rows": "rejected",
    **{name: name for name in ("instances", "revisions", "timeouts", "evicted")},
}


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
    for verb in VERBS:
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


def verbs_of(progress: Any) -> list[str]:
    """The verbs that have reported in a micro-batch."""
    names = list(progress.observedMetrics or {})
    return [verb for verb in VERBS if any(name.startswith(_prefix(verb)) for name in names)]


def counts_of(progress: Any, verb: str) -> dict[str, int]:
    """What a micro-batch of a verb did, under the names that `metrics` has for it."""
    loads = reports_of(progress, verb)
    if verb == "assemble":
        return {name: sum(getattr(load, of) for load in loads) for name, of in _ASSEMBLED.items()}
    figures = batch_metrics(progress, loads, {})
    return {name: figures[of] for name, of in _COUNTED[verb].items()}


def reports_of(progress: Any, verb: str) -> list[Any]:
    """The workers' reports of a verb inside one progress report."""
    if verb != "assemble":
        return list(loads_of(progress, _prefix(verb)))
    return [
        replace(AssembleLoad.from_json(text), operator=name)
        for name, row in (progress.observedMetrics or {}).items()
        if name.startswith(_prefix(verb))
        for text in _texts(row)
    ]


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
