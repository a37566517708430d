"""Figures of a running query, out of its own progress reports."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace
from typing import Any

from anabranch.assembly.kernel import AssembleLoad
from anabranch.errors import InvalidCall
from anabranch.flow.load import Load
from anabranch.spark.frames import is_frame, kind_of

__all__ = [
    "batch_metrics",
    "counts_of",
    "loads_of",
    "metrics",
    "metrics_name",
    "observes",
    "verb_of",
    "verbs_of",
]

_VERBS = ("correlate", "nearest", "assemble")
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
_RATES = (
    "comparisons_per_second",
    "copies_per_row",
    "pruned",
    "slowest_worker_seconds",
    "mean_worker_seconds",
)
_STATE = ("state_rows", "state_bytes")
_HELD = {
    "correlate": _STATE,
    "nearest": _STATE,
    "assemble": ("open_windows", "lingering", "waiting_rows", *_STATE),
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
    """The latest figures of a streaming query that correlates, finds neighbours or assembles.

    Every verb has ``verb, batch, seconds, rows_in, late_rows, rejected_rows, state_rows,
    state_bytes, watermark`` (as Spark writes it), ``workers`` (all figures of each worker) and
    ``total``, and what is its own:

    ===========  ===================================================================================
    correlate    ``pairs, comparisons, comparisons_per_second, copies_per_row``; ``pruned`` (by
                 filter), ``accepted_by_bound, solved`` under an Earth Mover's Distance
    nearest      ``hits, comparisons, comparisons_per_second, copies_per_row``; under interest
                 routing ``sent_at_once, sent_later`` (copies to owners of queries), ``withheld``
                 (at first), ``dropped`` (for good)
    assemble     ``instances, revisions, timeouts, evicted, open_windows, lingering, waiting_rows``
    ===========  ===================================================================================

    Counts are those of the newest micro-batch that did work: batches in which only timers fire are
    passed over. State is that of now. ``total`` counts since this run of the query was started; a
    restart begins anew. A query of several verbs has the figures of the others under ``"also"``.

    Examples
    --------
    >>> ab.metrics(query)["pairs"]  # doctest: +SKIP
    17
    """
    from anabranch.spark.totals import since_start  # which reads reports as this module does

    recent = getattr(query, "recentProgress", None) if not is_frame(query) else None
    if recent is None:
        raise InvalidCall(
            "metrics",
            [
                "metrics takes the running query, query = result.writeStream...start(), got "
                f"{kind_of(query)}"
            ],
        )
    totals = since_start(query, recent)
    found = [_figures(verb, recent, totals.get(verb, {})) for verb in _VERBS]
    found = [figures for figures in found if figures]
    if len(found) < 2:
        return found[0] if found else {}
    return {**found[0], "also": found[1:]}


def verbs_of(progress: Any) -> list[str]:
    """The verbs that have reported in a micro-batch."""
    names = list(progress.observedMetrics or {})
    return [verb for verb in _VERBS if any(name.startswith(_prefix(verb)) for name in names)]


def counts_of(progress: Any, verb: str) -> dict[str, int]:
    """What a micro-batch of a verb did, under the names that `metrics` has for it."""
    loads = _reports(progress, verb)
    if verb == "assemble":
        return {name: sum(getattr(load, of) for load in loads) for name, of in _ASSEMBLED.items()}
    figures = batch_metrics(progress, loads, {})
    return {name: figures[of] for name, of in _COUNTED[verb].items()}


def _figures(verb: str, recent: Iterable[Any], total: Mapping[str, int]) -> dict[str, Any]:
    """Figures of one verb: counts of the newest batch that did work, state of now."""
    state: dict[tuple[str, int], Any] = {}
    latest: dict[str, Any] = {}
    seen: dict[str, Any] = {}
    mark = None
    for progress in recent:
        loads = _reports(progress, verb)
        mark = dict(getattr(progress, "eventTime", None) or {}).get("watermark", mark)
        if not loads:
            continue
        # A worker may report twice in a batch: for its rows, then for its timer.
        state.update(((load.operator, load.worker), load) for load in loads)
        counts = counts_of(progress, verb)
        seen = {
            "verb": verb,
            "batch": progress.batchId,
            "seconds": dict(progress.durationMs).get("triggerExecution", 0) / 1000,
            **counts,
            **({} if verb == "assemble" else _rates(progress, loads)),
            "workers": [asdict(load) for load in loads],
        }
        if any(counts.values()):
            latest = seen
    if not seen:
        return {}
    held = {name: sum(getattr(load, name) for load in state.values()) for name in _HELD[verb]}
    return {**(latest or seen), **held, "watermark": mark, "total": dict(total)}


def _rates(progress: Any, loads: list[Any]) -> dict[str, Any]:
    figures = batch_metrics(progress, loads, {})
    return {name: figures[name] for name in _RATES}


def _reports(progress: Any, verb: str) -> list[Any]:
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
