"""`metrics`: the figures of a running query."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypedDict, cast

from anabranch.errors import InvalidCall, renamed
from anabranch.flow.figures_drawing import figures_html
from anabranch.flow.metrics import (
    SPANS,
    VERBS,
    counts_of,
    held_by,
    messages_rejected,
    rates_of,
    reports_of,
    seconds_of,
    verbs_of,
    waits,
    worker_figures,
)
from anabranch.spark.frames import is_frame, kind_of
from anabranch.spark.totals import Run, run_of

__all__ = ["Metrics", "WorkerMetrics", "metrics"]


class _Counts(TypedDict, total=False):
    """What a batch and each of its workers have; a verb has those that are its own."""

    rows_in: int
    late_rows: int
    rejected_rows: int
    state_rows: int
    state_bytes: int
    comparisons: int
    pairs: int
    unmatched_rows: int
    emitted_rows: int
    duplicates: int
    accepted_by_bound: int
    solved: int
    pruned: dict[str, int]
    hits: int
    sent_at_once: int
    sent_later: int
    withheld: int
    dropped: int
    instances: int
    revisions: int
    timeouts: int
    evicted: int
    open_windows: int
    remembered: int
    waiting_rows: int
    groups_opened: int
    groups_grown: int
    groups_merged: int
    groups_closed: int
    dropped_pairs: int
    open_groups: int
    waiting_pairs: int


class WorkerMetrics(_Counts, total=False):
    """What one worker reported."""

    worker: int
    busy_seconds: float
    copies: int
    bytes_in: int
    compare_seconds: float
    ranges: list[float]
    peak_windows: int


class Metrics(_Counts, total=False):
    """What `ab.metrics` returns; docs/spark.md says what each key means."""

    verb: str | None  # None until a query has reported, by which its verb is known
    batch: int | None  # None until a batch has done work
    seconds: float
    watermark: str | None
    slowest_worker_seconds: float
    mean_worker_seconds: float
    comparisons_per_second: float
    copies_per_row: float
    workers: list[WorkerMetrics]
    total: dict[str, int]
    also: list[Metrics]


class _Drawn(dict[str, Any]):
    """Figures that a notebook draws; else the plain dict that they are."""

    def _repr_html_(self) -> str:
        return figures_html(self)


@renamed()
def metrics(query: Any) -> Metrics:
    """The latest figures of a streaming query with a verb of Anabranch.

    Every verb has ``verb, batch, seconds, rows_in, late_rows, rejected_rows, state_rows,
    state_bytes, slowest_worker_seconds, mean_worker_seconds, watermark`` (as Spark writes it),
    ``workers`` and ``total``, and what is its own:

    ===========  ===================================================================================
    correlate    ``pairs, unmatched_rows, comparisons``, rates per second and row; ``pruned`` (by
                 filter), ``accepted_by_bound, solved`` under an Earth Mover's Distance
    dedupe       ``emitted_rows, duplicates``, and the rest as correlate
    nearest      ``hits, comparisons, comparisons_per_second, copies_per_row``; under
                 ``selective`` ``sent_at_once, sent_later`` (copies to owners), ``withheld``
                 (at first), ``dropped`` (for good)
    assemble     ``instances, revisions, timeouts, evicted, open_windows, remembered, waiting_rows``
    groups       ``groups_opened, groups_grown, groups_merged, groups_closed`` (events emitted),
                 ``dropped_pairs, open_groups, waiting_pairs``; ``rows_in`` are pairs
    spans_of     of one that drops messages, ``rejected_rows`` and ``total`` alone
    ===========  ===================================================================================

    Each of ``workers`` has the same counts and state under the same names, its number ``worker``
    and its ``busy_seconds``. ``rows_in`` includes rows that were rejected.

    Counts are those of the newest micro-batch that did work: batches in which only timers fire are
    passed over, however many they are. Until one has done work, counts are 0 and ``batch`` is None;
    until the query has reported at all, so is ``verb``, and the keys are those that all verbs have.
    State is that of now. ``total`` counts since this run of the query was started; a restart begins
    anew. A query of several verbs has the figures of the others under ``"also"``.

    Examples
    --------
    >>> ab.metrics(query)["pairs"]  # doctest: +SKIP
    17
    """
    recent = getattr(query, "recentProgress", None) if not is_frame(query) else None
    if recent is None:
        raise InvalidCall(
            "metrics",
            [
                "metrics takes the running query, query = result.writeStream...start(), got "
                f"{kind_of(query)}"
            ],
        )
    run = run_of(query, recent)
    found = [_figures(verb, recent, run) for verb in VERBS]
    if SPANS in run.totals:
        found.append(_messages(run))
    found = [figures for figures in found if figures]
    first: dict[str, Any] = dict(found[0] if found else _unknown())
    also = {"also": found[1:]} if found[1:] else {}
    return cast(Metrics, _Drawn(first, **also))


def _figures(verb: str, recent: Iterable[Any], run: Run) -> Metrics:
    """Figures of one verb: counts of the newest batch that did work, state of now."""
    state: dict[tuple[str, int], Any] = {}
    mark, reported = None, False
    for progress in recent:
        loads = reports_of(progress, verb)
        reported = reported or verb in verbs_of(progress)
        mark = dict(getattr(progress, "eventTime", None) or {}).get("watermark", mark)
        if not loads:
            continue
        # A worker may report twice in a batch: for its rows, then for its timer.
        state.update(((load.operator, load.worker), load) for load in loads)
    # Spark remembers 100 reports, and all of them may be of timers: the session remembers more.
    worked = run.worked.get(verb)
    if not reported and worked is None:
        return {}
    last = state.values() or (() if worked is None else reports_of(worked, verb))
    total = run.totals.get(verb) or counts_of((), verb)
    return _shape(verb, worked, last, mark, total)


def _messages(run: Run) -> Metrics:
    """What `spans_of` has left out, in the newest micro-batch and since the start."""
    progress = run.worked[SPANS]
    newest = {"batch": progress.batchId, "seconds": seconds_of(progress)}
    newest["rejected_rows"] = messages_rejected(progress)
    return cast(Metrics, {"verb": SPANS, **newest, "total": dict(run.totals[SPANS])})


def _shape(
    verb: str, worked: Any, last: Iterable[Any], mark: str | None, total: Mapping[str, int]
) -> Metrics:
    """Every key of a verb, whatever is known of it."""
    found = {**_work(verb, worked), **held_by(last, verb), "watermark": mark, "total": dict(total)}
    return cast(Metrics, found)


def _unknown() -> dict[str, Any]:
    """The keys that all verbs have, for a query that has not reported yet."""
    every: list[Any] = [_shape(verb, None, (), None, counts_of((), verb)) for verb in VERBS]
    counts = set.intersection(*(set(one["total"]) for one in every))
    shared = set.intersection(*map(set, every))
    found = {name: value for name, value in every[0].items() if name in shared}
    total = {name: 0 for name in every[0]["total"] if name in counts}
    return {**found, "verb": None, "total": total}


def _work(verb: str, progress: Any | None) -> dict[str, Any]:
    """What a micro-batch did; nothing if there has been none."""
    loads = [] if progress is None else reports_of(progress, verb)
    seconds = 0.0 if progress is None else seconds_of(progress)
    return {
        "verb": verb,
        "batch": None if progress is None else progress.batchId,
        "seconds": seconds,
        **counts_of(loads, verb),
        **rates_of(loads, verb, seconds),
        "workers": [worker_figures(load, verb) for load in loads if not waits(load)],
    }
