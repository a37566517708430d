"""How a query is, in one sentence: the table "Reading the figures" of docs/spark.md as rules.

Each rule looks at the newest micro-batches and says nothing, or one finding. The worst finding is
the query's light; the others are listed below it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, takewhile
from statistics import median
from typing import Any, NamedTuple

from anabranch.calls import count
from anabranch.plans.costs import best_grid, copies
from anabranch.plans.hashed import Broadcast, Grid
from anabranch.spark.dashboard.points import Point

__all__ = ["BAD", "GOOD", "OFF", "RULES", "WARN", "Finding", "Vitals", "judge"]

BAD, WARN, GOOD, OFF = "bad", "warn", "good", "off"
_ORDER = (BAD, WARN, OFF, GOOD)
_RECENT = 10  # micro-batches that rules look at
_ENOUGH = 3  # before which figures are of the start
_HOUR = 3600.0
_STILL = 120.0  # seconds that a watermark may stand
_KIND = re.compile(r"\W*([\w.]*)")


class Finding(NamedTuple):
    """A light, what is seen, what to do about it, and by which rule."""

    light: str
    sentence: str
    do: str = ""
    rule: str = ""


@dataclass(frozen=True)
class Vitals:
    """What rules know of a query.

    Parameters
    ----------
    points
        The newest micro-batches, oldest first.
    active, error
        Whether the query runs, and what stopped it.
    now
        Seconds since 1970.
    interval
        Seconds between triggers if the query has a fixed interval.
    running
        How long the present micro-batch has been running, if one is.
    plan, one_stream
        The plan in force, and whether left and right are one stream.
    label
        What the query is called.
    """

    points: Sequence[Point] = ()
    active: bool = True
    error: str | None = None
    now: float = 0.0
    interval: float | None = None
    running: float | None = None
    plan: Any = None
    one_stream: bool = False
    label: str = ""

    @property
    def recent(self) -> Sequence[Point]:
        """The micro-batches that rules look at; the first ones start workers and are left out."""
        newest = self.points[-_RECENT:]
        return [point for point in newest if (point["batch"] or 0) > 0] or newest

    @property
    def cadence(self) -> float | None:
        """Seconds from trigger to trigger, usually; there may be no interval, or none is known."""
        ats = self.all("at")
        return median(later - earlier for earlier, later in pairwise(ats)) if ats[1:] else None

    def sum(self, name: str) -> float:
        """A count over the recent micro-batches."""
        return sum(point.get(name) or 0.0 for point in self.recent)

    def all(self, name: str) -> list[float]:
        """A figure of the recent micro-batches that have it."""
        return [value for point in self.recent if (value := point.get(name)) is not None]


def stopped(vitals: Vitals) -> Finding | None:
    """The query has ended, by an error or without."""
    if vitals.active:
        return None
    if vitals.error:
        return Finding(BAD, f"The query has stopped: {vitals.error}", "Mend the cause, restart it.")
    return Finding(OFF, "The query has ended.")


def starting(vitals: Vitals) -> Finding | None:
    """There is no micro-batch yet."""
    if vitals.points or not vitals.active:
        return None
    whose = f" of {vitals.label}" if vitals.label else ""
    return Finding(
        OFF, f"Waiting for the first micro-batch{whose}: Python workers start (10 to 30 s)."
    )


def stuck(vitals: Vitals) -> Finding | None:
    """The present micro-batch takes far longer than those before."""
    usual = median(vitals.all("seconds") or [0.0])
    if not vitals.points or vitals.running is None or vitals.running < max(60.0, 10 * usual):
        return None
    return Finding(
        BAD,
        f"A micro-batch has been running for {_long(vitals.running)}; usual are {usual:.1f} s.",
        "Look at the tasks in Spark's own page; the input may have grown at once.",
    )


def idle(vitals: Vitals) -> Finding | None:
    """No micro-batch has come for a while."""
    last = vitals.points[-1].get("at") if vitals.points else None
    if not vitals.active or last is None or vitals.running is not None:
        return None
    silent = vitals.now - last - (vitals.points[-1].get("seconds") or 0.0)
    if silent < max(30.0, 5 * (vitals.interval or 0.0)):
        return None
    return Finding(OFF, f"Idle: no new rows for {_long(silent)}.")


def all_late(vitals: Vitals) -> Finding | None:
    """Every row is late."""
    rows, late = vitals.sum("rows"), vitals.sum("late")
    if not rows or late < rows or len(vitals.recent) < _ENOUGH:
        return None
    return Finding(
        BAD,
        f"All {count(rows)} rows of the last {len(vitals.recent)} micro-batches are late.",
        "If the input is behind an aggregate, leave watermark= out; else raise it.",
    )


def late(vitals: Vitals) -> Finding | None:
    """More than one row in a hundred is late."""
    rows, late = vitals.sum("rows"), vitals.sum("late")
    if not rows or late / rows <= 0.01 or late >= rows:
        return None
    return Finding(
        WARN,
        f"{late / rows:.1%} of the rows are late and left out ({count(late)} of {count(rows)}).",
        "Raise watermark=: rows arrive later than it allows, or one side lags the other.",
    )


def rejected(vitals: Vitals) -> Finding | None:
    """Rows cannot be compared."""
    rows, bad = vitals.sum("rows"), vitals.sum("rejected")
    if not bad:
        return None
    return Finding(
        WARN,
        f"{count(bad)} of {count(rows)} rows were rejected: they cannot be compared.",
        "Look for nulls, NaN and vectors of another length in the input.",
    )


def behind(vitals: Vitals) -> Finding | None:
    """Micro-batches take longer than the interval, or the backlog grows."""
    seconds = vitals.all("seconds")
    if len(seconds) < _ENOUGH:
        return None
    usual = median(seconds)
    if vitals.interval and usual > vitals.interval:
        return Finding(
            BAD,
            f"It falls behind: a micro-batch takes {usual:.1f} s, and one is due every "
            f"{vitals.interval:g} s.",
            "Use more workers, a longer trigger, or bound the batch (maxOffsetsPerTrigger).",
        )
    backlog = vitals.all("backlog")
    grows = len(backlog) >= 5 and all(a < b for a, b in pairwise(backlog))
    if not grows:
        return None
    return Finding(
        BAD,
        f"It falls behind: the backlog grew from {count(backlog[0])} to {count(backlog[-1])} in "
        f"{len(backlog)} micro-batches.",
        "Use more workers, or a longer trigger: larger batches are cheaper per row.",
    )


def lagging(vitals: Vitals) -> Finding | None:
    """The watermark moves much slower than the clock, or not at all.

    Event times may be whole minutes: it counts as standing only after two of them.
    """
    known = [p for p in vitals.points if p.get("watermark") is not None and p.get("at")]
    if not known:
        return None
    still = list(takewhile(lambda p: p["watermark"] == known[-1]["watermark"], reversed(known)))
    stood = (known[-1]["at"] or 0.0) - (still[-1]["at"] or 0.0)
    if len(still) >= 5 and stood >= _STILL and any(p.get("rows") for p in still):
        return Finding(
            BAD,
            f"The watermark has stood still for {_long(stood)}, in {len(still)} micro-batches, so "
            "state grows.",
            "An idle side or another watermark of the query holds it: use watermark=, one query "
            "per correlate, or multipleWatermarkPolicy.",
        )
    since = (known[-1]["at"] or 0.0) - 5 * 60
    most = max(_RECENT, sum((p["at"] or 0.0) >= since for p in known))
    lately = [p for p in known[-most:] if p.get("lag") is not None]
    if len(lately) < 5 or not vitals.sum("rows"):
        return None
    passed = (lately[-1]["at"] or 0.0) - (lately[0]["at"] or 0.0)
    grown = (lately[-1]["lag"] or 0.0) - (lately[0]["lag"] or 0.0)
    every = vitals.interval or vitals.cadence or 0.0
    if passed < 60 or grown < max(passed / 2, 5 * every):
        return None
    return Finding(
        WARN,
        f"Event time falls behind the clock: the lag grew by {grown:.0f} s in {passed:.0f} s.",
        "The source sends old rows, or too few at a time.",
    )


def skewed(vitals: Vitals) -> Finding | None:
    """One worker computes far longer than the others."""
    worked = [p for p in vitals.recent if (p.get("mean") or 0.0) > 0.05]
    uneven = [(p["slowest"] or 0.0) / (p["mean"] or 1.0) for p in worked]
    if len(uneven) < _ENOUGH or median(uneven) <= 2:
        return None
    return Finding(
        WARN,
        f"Work is uneven: the slowest worker takes {median(uneven):.1f} times the mean.",
        "A hot key, or segments with short batches: try ab.grid, or ab.adaptive.",
    )


def growing(vitals: Vitals) -> Finding | None:
    """State has grown steadily for an hour."""
    known = [p for p in vitals.points if p.get("at") and p.get("state_bytes") is not None]
    if not known or (known[-1]["at"] or 0.0) - (known[0]["at"] or 0.0) < _HOUR:
        return None
    since = (known[-1]["at"] or 0.0) - _HOUR
    hour = [p["state_bytes"] or 0.0 for p in known if (p["at"] or 0.0) >= since]
    parts = [hour[n * (len(hour) - 1) // 4] for n in range(5)]
    if len(hour) < 8 or not all(b > a * 1.02 for a, b in pairwise(parts)):
        return None
    return Finding(
        WARN,
        f"State has grown without pause for an hour, from {parts[0] / 1e6:,.0f} to "
        f"{parts[-1] / 1e6:,.0f} MB.",
        "Input grows, or a watermark stands still.",
    )


def copied(vitals: Vitals) -> Finding | None:
    """Another grid of as many workers would make far fewer copies."""
    left, right = vitals.sum("left"), vitals.sum("right")
    rows, plan = left + right, vitals.plan
    if not isinstance(plan, (Grid, Broadcast)) or not rows or len(vitals.recent) < _ENOUGH:
        return None
    best = best_grid(plan.workers, (left, right), vitals.one_stream)
    now, fewer = (copies(of, (left, right), (0, 0), vitals.one_stream) for of in (plan, best))
    if fewer > 0.7 * now:
        return None
    return Finding(
        GOOD,
        f"The plan does not fit the rates: {now / rows:.1f} copies per row, {fewer / rows:.1f} "
        f"with {best}.",
        f"Use plan=ab.{best}, or plan=ab.adaptive(...).",
    )


def fixed_cost(vitals: Vitals) -> Finding | None:
    """Most of a micro-batch is not spent on computing."""
    worked = [p for p in vitals.recent if p.get("rows") and p.get("slowest") is not None]
    times = [p["seconds"] or 0.0 for p in worked]
    shares = [(p["slowest"] or 0.0) / t for p, t in zip(worked, times, strict=True) if t]
    if len(shares) < 5 or median(shares) >= 0.2 or median(times) < 1.0:
        return None
    return Finding(
        GOOD,
        f"Workers compute for {median(shares):.0%} of a micro-batch of {median(times):.1f} s; the "
        "rest is fixed cost.",
        "Use fewer partitions, or a longer trigger.",
    )


Rule = Callable[[Vitals], Finding | None]
RULES: tuple[Rule, ...] = (
    *(stopped, starting, stuck, all_late, behind, lagging, late, rejected),
    *(skewed, growing, copied, fixed_cost, idle),
)


def judge(vitals: Vitals, away: bool = False) -> list[Finding]:
    """Every finding, the worst first; that all is well if there is none that says otherwise.

    `away` is whether it is read beyond loopback: of an error there is then only its kind, since
    its words may quote a row.
    """
    if away and vitals.error:
        vitals = replace(vitals, error=_kind(vitals.error))
    found = _found(RULES, vitals)
    if not vitals.active:
        return [one for one in found if one.rule == stopped.__name__]
    found.sort(key=lambda finding: _ORDER.index(finding.light))
    if waiting := _found([idle], vitals):  # what micro-batches of the past were like comes second
        first = [*_standing(vitals), *waiting]
        found = [*first, *(one for one in found if one not in first)]
    if found and found[0].light != GOOD:
        return found
    return [_well(vitals), *found]


def _standing(vitals: Vitals) -> list[Finding]:
    """What is bad also while no row comes; a pace that was too slow is over then."""
    rules: list[Rule] = [all_late, lagging]
    if vitals.points and vitals.points[-1].get("backlog"):
        rules.append(behind)
    return [finding for finding in _found(rules, vitals) if finding.light == BAD]


def _found(rules: Iterable[Rule], vitals: Vitals) -> list[Finding]:
    """What rules say, each with its name."""
    said = [(rule, rule(vitals)) for rule in rules]
    return [one._replace(rule=rule.__name__) for rule, one in said if one is not None]


def _kind(error: str) -> str:
    """Which error it is, without its words.

    Examples
    --------
    >>> _kind("BadRow: left row 7 has no vector")
    "BadRow; its words are in the driver's log."
    """
    found = _KIND.match(error)
    return f"{found[1] if found else 'an error'}; its words are in the driver's log."


def _well(vitals: Vitals) -> Finding:
    if not any((point.get("batch") or 0) > 0 for point in vitals.points):
        return Finding(
            OFF,
            "Too early to say: only the micro-batch that starts workers has ended.",
            rule="early",
        )
    seconds = median(vitals.all("seconds") or [0.0])
    pace = f"a micro-batch takes {seconds:.1f} s"
    if vitals.interval:
        pace += f" of the {vitals.interval:g} s that it has"
    lost = vitals.sum("late")
    late = (
        f"{count(lost)} of {count(vitals.sum('rows'))} rows are late" if lost else "no row is late"
    )
    return Finding(GOOD, f"Healthy: {pace}, and {late}.", rule="well")


def _long(seconds: float) -> str:
    """A time as the page writes it.

    Examples
    --------
    >>> [_long(time) for time in (75, 600, 9000, 400_000)]
    ['75 s', '10 min', '2.5 h', '5 days']
    """
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 172_800 else f"{seconds / 86_400:.0f} days"
