"""The figures of queries in Prometheus's text format; labels are query, side, worker, never ids."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import Any

from anabranch.spark.dashboard.feed import Query
from anabranch.spark.dashboard.health import BAD, GOOD, OFF, WARN, judge
from anabranch.spark.dashboard.history import BUCKETS, History
from anabranch.spark.dashboard.view import histories_of, vitals_of

__all__ = ["COUNTERS", "GAUGES", "LIGHTS", "exposition"]

COUNTERS = {
    "comparisons": "Pairs of rows that were compared.",
    "pairs": "Pairs emitted by correlate.",
    "unmatched_rows": "Rows emitted without a partner.",
    "emitted_rows": "Rows emitted by dedupe.",
    "duplicates": "Rows that dedupe left out, since an earlier one is alike.",
    "hits": "Hits emitted by nearest.",
    "sent_at_once": "Copies that nearest under selective sent to owners at the first look.",
    "sent_later": "Copies that it sent at a later look.",
    "withheld": "Copies that it did not send at the first look.",
    "dropped": "Copies that it will never send.",
    "instances": "Rows emitted by assemble.",
    "revisions": "Revisions emitted by assemble.",
    "timeouts": "Windows that were closed by their timeout.",
    "evicted": "Windows that were removed by max_open.",
    "groups_opened": "Groups that opened.",
    "groups_grown": "Pairs that groups took in.",
    "groups_merged": "Groups that merged into another.",
    "groups_closed": "Groups that closed.",
    "dropped_pairs": "Pairs that connect nothing.",
    "late_rows": "Rows that were late.",
    "rejected_rows": "Rows that could not be compared.",
}
GAUGES = {
    "watermark_lag_seconds": ("lag", "Clock at the end of the newest micro-batch less watermark."),
    "side_skew_seconds": ("skew", "Newest left event time less newest right one."),
    "backlog": ("backlog", "What sources have not sent yet, where they say it."),
    "open_windows": ("open_windows", "Windows of assemble that are open."),
    "open_groups": ("open_groups", "Groups that are open."),
    "last_batch_timestamp_seconds": ("at", "When the newest micro-batch was triggered."),
    "last_batch_seconds": ("seconds", "How long the newest micro-batch took."),
}
_OF_WORKERS = {
    "state_rows": ("state_rows", "Rows held by a worker."),
    "state_bytes": ("state_bytes", "Bytes held by a worker."),
    "worker_busy_seconds": ("busy_seconds", "How long a worker computed in the newest batch."),
}
LIGHTS = (GOOD, OFF, WARN, BAD)
"""In the order of their numbers."""


class _Figures:
    """All families of the queries of a board.

    Two runs of one name would have the same labels: the newest counts, or the one that still runs.
    One that has not reported yet has no verb, and says only how it is.
    An ended query has counts and its end, and no figures of now that alerts would always use.
    """

    def __init__(self, queries: Iterable[Query]) -> None:
        from prometheus_client import core  # an extra, which only those who ask for it need

        self._core = core
        newest: dict[str, Query] = {}
        for query in sorted(queries, key=lambda one: (one.active, one.since or 0.0)):
            if histories_of(query):
                newest[query.label] = query
        self._all = [(query, one) for query in newest.values() for one in histories_of(query)]
        self._known = [(query, history) for query, history in self._all if history.verb]
        self._live = [(query, history) for query, history in self._known if query.active]

    def collect(self) -> Iterator[Any]:
        """What a registry asks for."""
        yield from self._counters()
        yield from self._gauges()
        yield from self._states()
        yield self._durations()

    def _counters(self) -> Iterator[Any]:
        rows = self._core.CounterMetricFamily(
            "anabranch_rows",
            "Rows of the input, without those rejected.",
            labels=["query", "verb", "side"],
        )
        families = {
            name: self._core.CounterMetricFamily(
                f"anabranch_{name}", text, labels=["query", "verb"]
            )
            for name, text in COUNTERS.items()
        }
        for query, history in self._known:
            where = [query.label, history.part]
            totals = history.totals
            compared = totals["rows_in"] - totals["rejected_rows"]
            for side, count in (history.sides or {"all": compared}).items():
                rows.add_metric([*where, side], count)
            for name, family in families.items():
                if name in totals:
                    family.add_metric(where, totals[name])
        yield rows
        yield from families.values()

    def _gauges(self) -> Iterator[Any]:
        for name, (column, text) in GAUGES.items():
            family = self._core.GaugeMetricFamily(
                f"anabranch_{name}", text, labels=["query", "verb"]
            )
            for query, history in self._live:
                if (value := history.latest.get(column)) is not None:
                    family.add_metric([query.label, history.part], value)
            yield family
        for name, (key, text) in _OF_WORKERS.items():
            labels = ["query", "verb", "worker"]
            family = self._core.GaugeMetricFamily(f"anabranch_{name}", text, labels=labels)
            for query, history in self._live:
                for worker in history.workers:
                    where = [query.label, history.part, str(worker["worker"])]
                    if worker["live"] or key != "busy_seconds":
                        family.add_metric(where, worker.get(key, 0))
            yield family

    def _states(self) -> Iterator[Any]:
        texts = {
            "query_active": "Whether the query runs.",
            "query_failed": "Whether an error has ended the query.",
            "health": "The light: 0 good, 1 off, 2 warn, 3 bad.",
            "plan_epoch": "The number of the plan that stamps rows.",
            "plan_live": "Plans under which rows are sent.",
            "trigger_interval_seconds": "Seconds between triggers, if the query has an interval.",
            "batch_cadence_seconds": "Seconds from trigger to trigger, the median of the newest.",
        }
        families = {
            name: self._core.GaugeMetricFamily(f"anabranch_{name}", text, labels=["query", "verb"])
            for name, text in texts.items()
        }
        now = time.time()
        for query, history in self._all:
            vitals, drawn = vitals_of(query, history, now), history.plan()[2]
            found: dict[str, Any] = {
                "query_active": int(query.active),
                "query_failed": int(query.error is not None),
                "health": LIGHTS.index(judge(vitals)[0].light),
            }
            if query.active:
                found |= {
                    "plan_epoch": drawn.get("epoch"),
                    "plan_live": drawn.get("live"),
                    "trigger_interval_seconds": query.interval,
                    "batch_cadence_seconds": vitals.cadence,
                }
            for name, value in found.items():
                if value is not None:
                    families[name].add_metric([query.label, history.part], value)
        yield from families.values()

    def _durations(self) -> Any:
        family = self._core.HistogramMetricFamily(
            "anabranch_batch_seconds", "How long micro-batches took.", labels=["query", "verb"]
        )
        for query, history in self._known:
            family.add_metric([query.label, history.part], _cumulative(history), history.seconds)
        return family


def exposition(queries: Iterable[Query]) -> tuple[str, bytes]:
    """The type and the text that Prometheus reads."""
    from prometheus_client import CollectorRegistry
    from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Figures(queries))
    return CONTENT_TYPE_LATEST, generate_latest(registry)


def _cumulative(history: History) -> list[tuple[str, float]]:
    """Micro-batches up to each bound, as a histogram has them."""
    found, total = [], 0
    for bound, count in zip([*map(str, BUCKETS), "+Inf"], history.buckets, strict=True):
        total += count
        found.append((bound, float(total)))
    return found
