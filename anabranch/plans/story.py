"""The plan log as sentences: what changed, when, and because of which figures."""

from __future__ import annotations

from collections.abc import Iterable

from anabranch.plans.drawing import moment
from anabranch.plans.log import Entry, Refusal

__all__ = ["story"]


def story(entries: Iterable[Entry], refused: Iterable[Refusal] = ()) -> list[str]:
    """One sentence per entry, in order, then one for every request that was refused.

    Examples
    --------
    >>> from anabranch.plans.hashed import broadcast, grid
    >>> start = {"rule": "start", "new": "broadcast(4, side=right)"}
    >>> first = Entry(0, 0, broadcast(4), 0, (0,), start)
    >>> cause = {"rule": "shape", "why": "a grid makes fewer copies",
    ...          "figures": {"left rate": 120.0, "right rate": 110.5}}
    >>> second = Entry(1, 1, grid(2, 2), 7, (0, 1), cause)
    >>> for line in story([first, second]): print(line)
    batch 0: starts with plan 0, broadcast(4, side=right).
    batch 7: plan 1, grid(2, 2), replaces plan 0, broadcast(4, side=right) (shape: a grid makes \
fewer copies; left rate 120, right rate 110.5); 2 plans are live.
    >>> asked = Refusal("grid(9, 9)", "by hand", "the session has 4 shuffle partitions", "")
    >>> print(story([], [asked])[0])
    refused: grid(9, 9) (by hand): the session has 4 shuffle partitions.
    """
    lines: list[str] = []
    before: Entry | None = None
    for entry in entries:
        clock = f" ({moment(entry.written)})" if entry.written else ""
        lines.append(f"batch {entry.first}{clock}: {_sentence(entry, before)}")
        before = entry
    for refusal in refused:
        cause = f" ({refusal.cause})" if refusal.cause else ""
        lines.append(f"refused: {refusal.asked}{cause}: {refusal.why}.")
    return lines


def _sentence(entry: Entry, before: Entry | None) -> str:
    if before is None:
        return f"starts with plan {entry.epoch}, {entry.plan}."
    parts = []
    if entry.epoch != before.epoch:
        parts.append(
            f"plan {entry.epoch}, {entry.plan}, replaces plan {before.epoch}, {before.plan}"
            f" ({_reason(entry)})"
        )
    gone = sorted(set(before.live) - set(entry.live))
    if gone:
        plural = "plans" if len(gone) > 1 else "plan"
        parts.append(f"{plural} {', '.join(map(str, gone))} retired")
    closed = sorted(set(entry.marks) - set(before.marks) - set(gone))
    if closed and not parts:
        parts.append(f"the last row of plan {', '.join(map(str, closed))} is known")
    many = f"{len(entry.live)} plans are live" if len(entry.live) > 1 else "one plan is live"
    return "; ".join([*parts, many]) + "."


def _reason(entry: Entry) -> str:
    cause = entry.cause
    figures = [f"{name} {_number(value)}" for name, value in cause.get("figures", {}).items()]
    parts = [str(part) for part in (cause.get("why"), ", ".join(figures)) if part]
    rule = str(cause.get("rule", "by hand"))
    return f"{rule}: {'; '.join(parts)}" if parts else rule


def _number(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
