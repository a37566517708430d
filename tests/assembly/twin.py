"""Assembling by the book: a dictionary of windows, one row at a time, every timer looked at.

An event is a dict with ``key`` (any tuple), ``kind``, ``t``, ``end``, ``stream`` (a number),
``ends`` (whether it has an end marker) and ``tie``. A result row is a dict; `items` are the events
themselves.
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
        self.first: int | None = None
        self.kinds: dict[Any, list[tuple[int, int]]] = {}
        self.sizes: list[int] = []
        self.silences: list[int] = []
        self.met: list[tuple[Any, bool]] = []
        self.rare: list[int] = []

    def step(self, rows: Iterable[Row], clock: int, flush: bool = False) -> list[Row]:
        """What comes out when these rows arrive and the clock moves."""
        already = len(self.results)
        rows = sorted(rows, key=lambda r: (r["t"], r["key"], r["tie"]))
        if self.by_arrival:
            rows = sorted(rows, key=lambda r: r["key"])
            for n, row in enumerate(rows):
                following = rows[n + 1 : n + 2]
                self.take(row, clock, followed=row["key"] in [r["key"] for r in following])
        else:
            self.waiting += [row for row in rows if row["t"] > clock]
            self.waiting.sort(key=lambda r: (r["t"], r["key"], r["tie"]))
            while self.waiting and self.waiting[0]["t"] <= clock:
                row = self.waiting.pop(0)
                following = [r for r in self.waiting if r["t"] == row["t"]]
                self.take(row, row["t"], followed=row["key"] in [r["key"] for r in following])
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
        rank = "closing" if state == "remembered" else "due"
        return sorted(found, key=lambda w: (w[rank], w["key"]))

    def fire(self, now: int) -> None:
        while True:
            opened, remembered = self.in_order("open"), self.in_order("remembered")
            due = opened[0]["due"] if opened else NEVER
            leaves = remembered[0]["closed"] + self.closing.remember if remembered else NEVER
            if min(due, leaves) > now:
                return
            if due <= leaves:
                policy, silence = self.closing, due - opened[0]["seen"]
                gap = policy.restarts and (not policy.learns or silence < policy.timeout)
                ended = due == opened[0]["ends"]
                self.close(opened[0], "end" if ended else "gap" if gap else "timeout", due)
            else:
                self.learn(remembered[0])
                del self.windows[remembered[0]["key"]]

    def take(self, row: Row, now: int, late: bool = False, followed: bool = False) -> None:
        policy = self.closing
        self.fire(now)
        self.first = now if self.first is None else self.first
        window = self.windows.get(row["key"])
        alone = window is not None and window.get("reason") == "late"
        if window and (window["state"] == "open" or late or (policy.revises and not alone)):
            before = window["seen"] if self.by_arrival else max(r["t"] for r in window["rows"])
            window["silences"].append(max(0, (now if self.by_arrival else row["t"]) - before))
            window["seen"] = now
            window["rows"].append(row)
            window["new"].append(row)
            if window["state"] == "remembered":
                window["revision"] += 1
                self.tell(window, "late", now)
                return
            if policy.restarts and not late:
                window["due"] = now + policy.timeout
        else:
            opened = self.in_order("open")
            if not late and self.max_open is not None and len(opened) >= self.max_open:
                self.close(opened[0], "evicted", now)
            window = {
                "key": row["key"], "kind": row["kind"], "state": "open", "opened": now,
                "due": now + policy.timeout, "seq": window["seq"] + 1 if window else 0,
                "revision": 0, "rows": [row], "new": [row], "seen": now, "silences": [],
                "usual_count": self.expected(row["kind"]), "ends": NEVER,
            }  # fmt: skip
            self.windows[row["key"]] = window
            if late:
                window["opened"] = row["t"]
                self.close(window, "late", now)
                return
        if policy.marker is not None and row.get("ends"):
            window["ends"] = min(window["ends"], now + max(policy.grace, 1))
        wait = None
        if policy.marker is None or window["ends"] < NEVER:
            wait = self.patience(row["kind"], len(window["rows"]), now)
        if wait is not None and not late:
            window["due"] = now + min(max(wait, 1), policy.timeout)
        window["due"] = min(window["due"], window["ends"])
        if wait == 0 and not followed:
            self.close(window, "complete", now)
        elif window["ends"] < NEVER and policy.grace == 0 and not followed:
            self.close(window, "end", now)
        elif len(window["rows"]) >= policy.size:
            self.close(window, "full", now)

    def close(self, window: Row, reason: str, at: int) -> None:
        window.update(state="remembered", closed=at, reason=reason, closing=self.closings)
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
                "usual_count": window["usual_count"] or None,
                "first": min(times),
                "last": max(times),
                "end": max(row["end"] for row in window["rows"]),
                "streams": sorted({row["stream"] for row in window["rows"]}),
                "items": window["new"],
            }
        )
        window["new"] = []

    def expected(self, kind: Any) -> int:
        """The size that a window of this kind is expected to reach; 0 if unknown."""
        policy = self.closing
        if not policy.learns:
            return policy.expects
        seen = self.kinds.get(kind, [])
        if len(seen) < max(policy.after // 4, 1):
            return 0
        return quantile([size for size, _ in seen[-32:]], policy.coverage)

    def patience(self, kind: Any, count: int, now: int) -> int | None:
        """How long to wait for another event, or None if nothing says so."""
        policy = self.closing
        if not policy.learns or now < self.first + policy.timeout + 2 * policy.remember:
            return None
        if len(self.sizes) < policy.after:
            return None
        known = [size for size, _ in self.kinds.get(kind, [])][-32:]
        p = self.chance(known, count)
        share = policy.risk * (1 - p) / (p * (1 - policy.risk))
        if share >= 1:
            return 0
        if len(self.silences) < policy.after:
            return None
        own = [silence for size, silence in self.kinds.get(kind, []) if size > 1]
        lengths = sorted(own[-32:] if len(own) >= policy.after else self.silences[-512:])
        if p < 0.5 and len(self.rare) >= policy.after:
            lengths = sorted(self.rare[-128:])
        n = len(lengths)
        if share * (n + 1) >= 1:
            return quantile(lengths, 1 - share) + 1
        k = min(max(8, n // 20), n - 1)
        if k == 0:
            return lengths[0] + 1
        edge = lengths[n - 1 - k]
        beyond = sum(length - edge for length in lengths[n - k :])
        fraction, exponent = math.frexp(k / (n * share))
        far = edge + int(beyond / k * math.log(2) * (exponent + 2 * fraction - 2))
        return max(far, lengths[-1]) + 1

    def chance(self, known: Sequence[int], count: int) -> float:
        """How likely it is that an instance with so many events gets more."""
        reached = [size for size in self.sizes if size >= min(count, 64)]
        usual = (sum(d > min(count, 64) for d in reached) + 1) / (len(reached) + 2)
        if not known:
            return usual
        if count >= max(known):
            same = [more for s, more in self.met if s == situation(known, count)]
            return (sum(same) + usual) / (len(same) + 1)
        own = [size for size in known if size >= count]
        return (usual + sum(size > count for size in own)) / (1 + len(own))

    def learn(self, window: Row) -> None:
        if not self.closing.learns or window["reason"] == "late":
            return
        count, silence = len(window["rows"]), max([0, *window["silences"]])
        seen = self.kinds.pop(window["kind"], [])
        known = [size for size, _ in seen[-32:]]
        if count > 1 and self.chance(known, count - 1) < 0.5:
            self.rare.append(window["silences"][-1])
        if known:
            for c in range(max(known), count + 1):
                self.met.append((situation(known, c), c < count))
        self.kinds[window["kind"]] = [*seen, (count, silence)]
        while len(self.kinds) > self.closing.max_kinds:
            del self.kinds[next(iter(self.kinds))]
        self.sizes.append(count)
        if count > 1:
            self.silences.append(silence)


def situation(known: Sequence[int], count: int) -> tuple[int, bool]:
    """Kinds of which as much is known, up to a factor of two, and one event or several."""
    return int(math.log2(len(known))), count > 1


def quantile(values: Sequence[int], q: float) -> int:
    """The least value that at least the share q does not exceed."""
    return sorted(values)[min(len(values) - 1, max(0, math.ceil(q * len(values) - 1e-9) - 1))]
