"""What workers report of a micro-batch, read out of the query's own progress reports."""

from __future__ import annotations

import json
import secrets
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from anabranch.flow.load import AssembleLoad, Figures, GroupsLoad, Load

__all__ = [
    "HELD",
    "SPANS",
    "VERBS",
    "alone_name",
    "batch_metrics",
    "counts_of",
    "found_in",
    "has_rejects",
    "held_by",
    "loads_of",
    "metrics_name",
    "messages_rejected",
    "named",
    "observes",
    "operators_of",
    "rates_of",
    "reports_of",
    "seconds_of",
    "texts_of",
    "verb_of",
    "verbs_of",
    "waiting_name",
    "waits",
    "worker_figures",
]

SPANS = "spans_of"
"""It has no workers that report, and counts what it rejects."""
VERBS = ("correlate", "dedupe", "nearest", "assemble", "groups")
_PAIRING = ("correlate", "dedupe")  # the same workers, in two steps if rows are to wait
_AT_ONCE, _WAITS, _ALONE = "now_", "waits_", "alone_"
State = dict[tuple[str, int], Load]  # by operator and worker

# What a worker did, by the names that `ab.metrics` has for it: sums of these attributes of its
# report. `rows_in` counts every row of the input once, also those that were rejected.
_ALWAYS = {"late_rows": ("late",), "rejected_rows": ("rejected",)}
_COMPARED = {
    "rows_in": ("rows_left", "rows_right", "rejected"),
    **_ALWAYS,
    "comparisons": ("comparisons",),
}
_ROUTED = ("sent_at_once", "sent_later", "withheld", "dropped")
_COUNTED: dict[str, dict[str, tuple[str, ...]]] = {
    "correlate": {
        **_COMPARED,
        "pairs": ("pairs",),
        "unmatched_rows": ("unmatched",),
        "accepted_by_bound": ("accepted",),
        "solved": ("solved",),
    },
    "dedupe": {
        **_COMPARED,
        "emitted_rows": ("unmatched",),
        "duplicates": ("matched",),
        "accepted_by_bound": ("accepted",),
        "solved": ("solved",),
    },
    "nearest": {**_COMPARED, "hits": ("pairs",), **{name: (name,) for name in _ROUTED}},
    "assemble": {
        "rows_in": ("rows", "rejected"),
        **_ALWAYS,
        **{name: (name,) for name in ("instances", "revisions", "timeouts", "evicted")},
    },
    "groups": {
        "rows_in": ("rows", "rejected"),
        **_ALWAYS,
        **{f"groups_{name}": (name,) for name in ("opened", "grown", "merged", "closed")},
        "dropped_pairs": ("dropped",),
    },
}
# What of it a verb emits.
_FOUND = {
    "correlate": ("pairs",),
    "dedupe": ("emitted_rows",),
    "nearest": ("hits",),
    "assemble": ("instances",),
    "groups": ("groups_opened", "groups_grown", "groups_merged", "groups_closed"),
}
_STATE = ("state_rows", "state_bytes")
HELD = {
    "correlate": _STATE,
    "dedupe": _STATE,
    "nearest": _STATE,
    "assemble": ("open_windows", "remembered", "waiting_rows", *_STATE),
    "groups": ("open_groups", "waiting_pairs", *_STATE),
}
"""What workers of a verb hold now."""
_OF_A_WORKER = {
    "correlate": ("bytes_in", "compare_seconds", "pruned", "ranges"),
    "dedupe": ("bytes_in", "compare_seconds", "pruned", "ranges"),
    "nearest": ("bytes_in", "compare_seconds"),
    "assemble": ("peak_windows",),
    "groups": (),
}
_REPORTS: dict[str, type[Figures]] = {"assemble": AssembleLoad, "groups": GroupsLoad}  # else a Load


def metrics_name(verb: str, at_once: bool = False) -> str:
    """A new name for the observed metrics of one operator.

    `at_once` marks an operator whose results wait for no watermark though its verb's do.

    Examples
    --------
    >>> metrics_name("nearest").startswith("anabranch_nearest_")
    True
    """
    return f"{_prefix(verb)}{_AT_ONCE if at_once else ''}{secrets.token_hex(4)}"


def waiting_name(name: str) -> str:
    """The name of the metrics of the step of `correlate` in which rows wait for the watermark.

    It does not begin with that of the first step, whose figures plans are made from.
    """
    prefix = _pairing(name)
    return f"{prefix}{_WAITS}{name.removeprefix(prefix)}"


def alone_name(name: str) -> str:
    """The name of the metrics of a `correlate` whose rows wait where they are compared."""
    prefix = _pairing(name)
    return f"{prefix}{_ALONE}{name.removeprefix(prefix)}"


def _pairing(name: str) -> str:
    return next(_prefix(verb) for verb in _PAIRING if name.startswith(_prefix(verb)))


def verb_of(name: str) -> str | None:
    """The verb whose metrics these are, if results of it wait for the watermark or may do so.

    Examples
    --------
    >>> verb_of("anabranch_assemble_1a2b"), verb_of("anabranch_assemble_now_1a2b"), verb_of("other")
    ('assemble', None, None)
    >>> verb_of(waiting_name("anabranch_correlate_1a2b"))
    'correlate_waits'
    """
    for verb in _PAIRING:
        if name.startswith(tuple(_prefix(verb) + kind for kind in (_WAITS, _ALONE))):
            return f"{verb}_waits"
    for verb in VERBS:
        if name.startswith(_prefix(verb)):
            return None if name.startswith(_prefix(verb) + _AT_ONCE) else verb
    return None


def named(names: Iterable[str], verb: str) -> tuple[str, ...]:
    """Those of observed names that are of a verb.

    Examples
    --------
    >>> named(["anabranch_nearest_1a2b", "anabranch_assemble_3c4d"], "assemble")
    ('anabranch_assemble_3c4d',)
    """
    return tuple(name for name in names if name.startswith(_prefix(verb)))


def operators_of(names: Iterable[str], verb: str) -> list[tuple[str, ...]]:
    """The names of a verb, those of each operator together: it may observe two of its steps.

    Examples
    --------
    >>> operators_of(["anabranch_correlate_1a", "anabranch_correlate_waits_1a",
    ...     "anabranch_correlate_2b"], "correlate")
    [('anabranch_correlate_1a', 'anabranch_correlate_waits_1a'), ('anabranch_correlate_2b',)]
    """
    found: dict[str, list[str]] = {}
    for name in named(names, verb):
        found.setdefault(name.rpartition("_")[2], []).append(name)
    return [tuple(each) for each in found.values()]


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


def counts_of(loads: Iterable[Any], verb: str) -> dict[str, int]:
    """What workers of a verb did, under the names that `ab.metrics` has for it.

    Examples
    --------
    >>> counts_of([AssembleLoad(0, rows=3, late=1), AssembleLoad(1, rejected=2)], "assemble")
    {'rows_in': 5, 'late_rows': 1, 'rejected_rows': 2, 'instances': 0, 'revisions': 0, \
'timeouts': 0, 'evicted': 0}
    """
    loads = list(loads)
    return {
        name: sum(getattr(load, part) for load in loads for part in parts)
        for name, parts in _COUNTED[verb].items()
    }


def found_in(counts: Mapping[str, int], verb: str) -> int:
    """How many rows a verb has emitted, of what it counted.

    Examples
    --------
    >>> found_in({"rows_in": 5, "hits": 3}, "nearest")
    3
    """
    return sum(counts[name] for name in _FOUND[verb])


def held_by(loads: Iterable[Any], verb: str) -> dict[str, int]:
    """What workers of a verb hold, by their last reports."""
    loads = list(loads)
    return {name: sum(getattr(load, name) for load in loads) for name in HELD[verb]}


def rates_of(loads: Iterable[Any], verb: str, seconds: float) -> dict[str, Any]:
    """What follows from the counts of a micro-batch that took so long."""
    loads = list(loads)
    # The report of rows without a partner is of no worker.
    busy = [load.busy_seconds for load in loads if load.busy_seconds or not waits(load)]
    times = {
        "slowest_worker_seconds": max(busy, default=0.0),
        "mean_worker_seconds": sum(busy) / len(busy) if busy else 0.0,
    }
    if verb in _REPORTS:
        return times
    rows = sum(load.rows_left + load.rows_right for load in loads)
    compared = sum(load.comparisons for load in loads)
    found = {
        "comparisons_per_second": compared / seconds if seconds else 0.0,
        "copies_per_row": sum(map(_copies, loads)) / rows if rows else 0.0,
    }
    if verb in _PAIRING:
        found["pruned"] = dict(sum((Counter(load.pruned) for load in loads), Counter()))
    return {**found, **times}


def waits(load: Any) -> bool:
    """Whether a report is of the step in which rows wait, and not of a worker that compares."""
    return str(load.operator).startswith(tuple(_prefix(verb) + _WAITS for verb in _PAIRING))


def worker_figures(load: Any, verb: str) -> dict[str, Any]:
    """One worker's report, in the words of the whole.

    Examples
    --------
    >>> worker_figures(AssembleLoad(3, rows=9, open_windows=2), "assemble")["rows_in"]
    9
    """
    copies = {} if verb in _REPORTS else {"copies": _copies(load)}
    return {
        "worker": load.worker,
        "busy_seconds": load.busy_seconds,
        **counts_of([load], verb),
        **held_by([load], verb),
        **copies,
        **{name: getattr(load, name) for name in _OF_A_WORKER[verb]},
    }


def seconds_of(progress: Any) -> float:
    """How long a micro-batch took."""
    return float(dict(progress.durationMs).get("triggerExecution", 0) / 1000)


def _copies(load: Load) -> int:
    return load.copies_left + load.copies_right


def reports_of(progress: Any, verb: str) -> list[Any]:
    """The workers' reports of a verb inside one progress report."""
    if verb not in _REPORTS:
        return list(loads_of(progress, _prefix(verb)))
    return [
        replace(_REPORTS[verb].from_json(text), operator=name)
        for name, row in (progress.observedMetrics or {}).items()
        if name.startswith(_prefix(verb))
        for text in texts_of(row)
    ]


def loads_of(progress: Any, prefix: str | None = None) -> list[Load]:
    """The workers' reports inside one progress report, of verbs that compare or of one prefix."""
    compare = tuple(_prefix(verb) for verb in VERBS if verb not in _REPORTS)
    prefixes = compare if prefix is None else (prefix,)
    return [
        replace(Load.from_json(text), operator=name)
        for name, row in (progress.observedMetrics or {}).items()
        if name.startswith(prefixes)
        for text in texts_of(row)
    ]


def texts_of(row: Any) -> Iterable[str]:
    """The reports in an observed row; Connect wraps it into another with its schema."""
    fields = row.asDict() if hasattr(row, "asDict") else dict(row)
    if "load" not in fields and "values" in fields:
        return fields["values"][0] or ()
    return fields["load"] or ()


def messages_rejected(progress: Any) -> int | None:
    """How many messages `spans_of` has left out in a micro-batch; None where nothing counts them.

    Examples
    --------
    >>> from types import SimpleNamespace as Progress
    >>> observed = {"anabranch_spans_of_1a": {"rejected_rows": 2}, "anabranch_groups_2b": {}}
    >>> messages_rejected(Progress(observedMetrics=observed))
    2
    """
    counts = []
    for name, row in (progress.observedMetrics or {}).items():
        if name.startswith(_prefix(SPANS)):
            fields = row.asDict() if hasattr(row, "asDict") else dict(row)
            counts.append(int(fields.get("rejected_rows", next(iter(fields.get("values", [0]))))))
    return sum(counts) if counts else None


def has_rejects(row: Any) -> bool:
    """Whether workers report late or bad rows in an observed row."""
    reports = map(json.loads, texts_of(row))
    return any(report["late"] or report["rejected"] for report in reports)


def batch_metrics(progress: Any, loads: Iterable[Load], state: State) -> dict[str, Any]:
    """Figures of one micro-batch that compares; `state` remembers each worker's last report."""
    loads = list(loads)
    state.update(((load.operator, load.worker), load) for load in loads)
    seconds = seconds_of(progress)
    return {
        "batch": progress.batchId,
        "seconds": seconds,
        **counts_of(loads, "nearest"),
        **counts_of(loads, "dedupe"),
        **counts_of(loads, "correlate"),
        **rates_of(loads, "correlate", seconds),
        **held_by(state.values(), "correlate"),
        "watermark": max((load.watermark for load in loads), default=0),
        "workers": [worker_figures(load, "correlate") for load in loads if not waits(load)],
    }
