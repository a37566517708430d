"""Assembling by the book: a dictionary of windows, one row at a time, every timer looked at.

An invocation is a dict with ``key`` (any tuple), ``head``, ``t``, ``end``, ``stream`` (a number)
and ``tie``. A result row is a dict; `items` are the invocations themselves.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from anabranch.assembly.closing import Closing

Row = dict[str, Any]
NEVER = 1 << 62


class Twin:
    """One bucket."""

    def __init__(
        self, closing: Closing, max_open: int | None = None, by_arrival: bool = False
    ) -> None:
        self.closing = closing
        self.max_open = max_open
        self.by_arrival = by_arrival
        self.clock = -NEVER
        self.waiting: list[Row] = []
        self.windows: dict[Any, Row] = {}
        self.results: list[Row] = []
        self.closings = 0
        self.heads: dict[Any, list[tuple[int, int]]] = {}
        self.spans: list[int] = []
        self.common: int | None = None

    def step(self, rows: Iterable[Row], clock: int, flush: bool = False) -> list[Row]:
        """What comes out when these rows arrive and the clock moves."""
        already = len(self.results)
        rows = sorted(rows, key=lambda r: (r["t"], r["key"], r["tie"]))
        if self.by_arrival:
            for row in rows:
                self.take(row, clock)
        else:
            self.waiting += [row for row in rows if row["t"] > clock]
            self.waiting.sort(key=lambda r: (r["t"], r["key"], r["tie"]))
            while self.waiting and self.waiting[0]["t"] <= clock:
                row = self.waiting.pop(0)
                self.take(row, row["t"])
            for row in rows:
                if row["t"] <= clock:
                    self.take(row, clock, late=True)
        self.fire(clock)
        if flush:
            for window in self.in_order("open"):
                self.close(window, "flush", clock)
        self.clock = clock
        return self.results[already:]

    def in_order(self, state: str) -> list[Row]:
        found = [w for w in self.windows.values() if w["state"] == state]
        rank = "closing" if state == "lingering" else "due"
        return sorted(found, key=lambda w: (w[rank], w["key"]))

    def fire(self, now: int) -> None:
        while True:
            opened, lingering = self.in_order("open"), self.in_order("lingering")
            due = opened[0]["due"] if opened else NEVER
            leaves = lingering[0]["closed"] + self.closing.linger if lingering else NEVER
            if min(due, leaves) > now:
                return
            if due <= leaves:
                self.close(opened[0], "timeout", due)
            else:
                self.learn(lingering[0])
                del self.windows[lingering[0]["key"]]

    def take(self, row: Row, now: int, late: bool = False) -> None:
        policy = self.closing
        self.fire(now)
        window = self.windows.get(row["key"])
        if window and (window["state"] == "open" or policy.revises or late):
            window["rows"].append(row)
            window["new"].append(row)
            if window["state"] == "lingering":
                window["revision"] += 1
                self.tell(window, "late", now)
                return
            if policy.restarts and not late:
                window["due"] = now + window["patience"]
        else:
            opened = self.in_order("open")
            if not late and self.max_open is not None and len(opened) >= self.max_open:
                self.close(opened[0], "evicted", now)
            expected, timeout = self.known(row["head"])
            window = {
                "key": row["key"], "head": row["head"], "state": "open", "opened": now,
                "due": now + timeout, "seq": window["seq"] + 1 if window else 0, "revision": 0,
                "rows": [row], "new": [row], "expected": expected,
                "patience": timeout,
            }  # fmt: skip
            self.windows[row["key"]] = window
            if late:
                window["opened"] = row["t"]
                self.close(window, "late", now)
                return
        if policy.learns and window["expected"] and len(window["rows"]) >= window["expected"]:
            self.close(window, "complete", now)
        elif len(window["rows"]) >= policy.size:
            self.close(window, "full", now)

    def close(self, window: Row, reason: str, at: int) -> None:
        window.update(state="lingering", closed=at, reason=reason, closing=self.closings)
        self.closings += 1
        self.tell(window, reason, at)

    def tell(self, window: Row, reason: str, closed: int) -> None:
        times = [row["t"] for row in window["rows"]]
        self.results.append(
            {
                "key": window["key"],
                "seq": window["seq"],
                "revision": window["revision"],
                "opened": window["opened"],
                "closed": closed,
                "reason": reason,
                "count": len(times),
                "expected": window["expected"] or None,
                "first": min(times),
                "last": max(times),
                "end": max(row["end"] for row in window["rows"]),
                "streams": sorted({row["stream"] for row in window["rows"]}),
                "items": window["new"],
            }
        )
        window["new"] = []

    def known(self, head: Any) -> tuple[int, int]:
        """Expected degree (0: unknown) and timeout for a window of this head."""
        policy = self.closing
        if not policy.learns:
            return policy.expects, policy.timeout
        seen = self.heads.get(head, [])
        recent = seen[-32:]
        timeout = self.common if self.common is not None else policy.timeout
        if len(seen) >= policy.timeout_after:
            timeout = self.longest([span for _, span in recent])
        degree = 0
        if len(seen) >= policy.after:
            degree = quantile([degree for degree, _ in recent], policy.coverage)
        return degree, timeout

    def longest(self, spans: Sequence[int]) -> int:
        policy = self.closing
        found = int(quantile(spans, policy.quantile) * policy.factor)
        return min(max(found, 1), policy.timeout + policy.linger)

    def learn(self, window: Row) -> None:
        if not self.closing.learns or window["reason"] == "late":
            return
        times = [row["t"] for row in window["rows"]]
        span = max(times) - min(times)
        if self.closing.restarts:
            latest = [max(times[:n]) for n in range(1, len(times))]
            span = max([0, *(t - before for t, before in zip(times[1:], latest, strict=True))])
        seen = self.heads.pop(window["head"], [])
        self.heads[window["head"]] = [*seen, (len(times), span)]
        while len(self.heads) > self.closing.max_heads:
            del self.heads[next(iter(self.heads))]
        self.spans.append(span)
        if len(self.spans) >= self.closing.timeout_after and len(self.spans) % 16 == 0:
            self.common = self.longest(self.spans[-512:])


def quantile(values: Sequence[int], q: float) -> int:
    """The least value that at least the share q does not exceed."""
    return sorted(values)[min(len(values) - 1, max(0, math.ceil(q * len(values) - 1e-9) - 1))]
