"""When a window closes: the paper's count or timeout, a session gap, a fixed wait, or learned.

A policy is a frozen description; the loop in `loop` obeys it. All of them open a window with the
first invocation of a key and close it once. They differ in when, and in what becomes of an
invocation that comes after the close while the key is still remembered (*lingers*): it opens a
second window (``seq`` 1, 2, ...) or is a revision of the closed one (``revision`` 1, 2, ...).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from anabranch.durations import Duration, describe, microseconds
from anabranch.errors import InvalidCall

__all__ = [
    "Closing",
    "CountOrTimeout",
    "Learned",
    "Session",
    "Wait",
    "count_or_timeout",
    "learned",
    "session",
    "wait",
]

_MOST = 1 << 40  # a count that is never reached


@dataclass(frozen=True)
class Closing:
    """What every policy has, in microseconds."""

    timeout: int
    linger: int

    # What the loop reads; policies override what they need.
    size = _MOST  # this many invocations close a window as full
    expects = 0  # invocations that a whole instance has, if that is known beforehand
    restarts = False  # whether the timeout starts anew with every invocation
    revises = False  # whether an invocation after the close is a revision or opens a window
    learns = False


@dataclass(frozen=True)
class CountOrTimeout(Closing):
    """See `count_or_timeout`."""

    n: int = 1

    @property
    def size(self) -> int:  # type: ignore[override]
        return self.n

    @property
    def expects(self) -> int:  # type: ignore[override]
        return self.n

    def __str__(self) -> str:
        return f"ab.count_or_timeout({self.n}, {describe(self.timeout)!r})"


@dataclass(frozen=True)
class Session(Closing):
    """See `session`."""

    restarts = True

    def __str__(self) -> str:
        return f"ab.session({describe(self.timeout)!r})"


@dataclass(frozen=True)
class Wait(Closing):
    """See `wait`."""

    revises = True

    def __str__(self) -> str:
        return f"ab.wait({describe(self.timeout)!r})"


@dataclass(frozen=True)
class Learned(Closing):
    """See `learned`."""

    head: str | None = None
    cap: int = 64
    coverage: float = 1.0
    after: int = 5
    timeout_after: int = 20
    quantile: float = 0.99
    factor: float = 1.25
    spread: int = 1
    max_heads: int = 100_000
    by: str = "span"

    revises = True
    learns = True

    @property
    def restarts(self) -> bool:  # type: ignore[override]
        return self.by == "gap"

    @property
    def size(self) -> int:  # type: ignore[override]
        return self.cap

    def __str__(self) -> str:
        return f"ab.learned(timeout={describe(self.timeout)!r})"


def count_or_timeout(n: int, timeout: Duration, *, linger: Duration | None = None) -> Closing:
    """The small window array of the DSSIS paper: `n` invocations, or `timeout` after the first.

    The clock starts with the first invocation and never restarts. An invocation after the close
    opens a second window of the key.

    Parameters
    ----------
    n
        The window's size; `expected` in the result.
    timeout
        Windows are ``[opened, opened + timeout)``.
    linger
        How long a key is remembered after its window closed, so that second windows are numbered
        and late invocations find their instance; by default the timeout.

    Examples
    --------
    >>> print(count_or_timeout(13, "22 seconds"))
    ab.count_or_timeout(13, '22 seconds')
    """
    problems = _whole("n", n)
    us, lingers = _times("count_or_timeout", timeout, linger, problems)
    return CountOrTimeout(us, lingers, n=n)


def session(gap: Duration, *, linger: Duration | None = None) -> Closing:
    """Close when no invocation of the key has come for `gap`.

    Examples
    --------
    >>> print(session("8 seconds"))
    ab.session('8 seconds')
    """
    us, lingers = _times("session", gap, linger, [])
    return Session(us, lingers)


def wait(duration: Duration, *, linger: Duration | None = None) -> Closing:
    """Close `duration` after the first invocation, however many have come.

    This is what OpenTelemetry's tail sampling does with its ``decision_wait``. Invocations after
    the close are revisions of the instance for as long as it lingers (by default as long again).

    Examples
    --------
    >>> print(wait("30 seconds"))
    ab.wait('30 seconds')
    """
    us, lingers = _times("wait", duration, linger, [])
    return Wait(us, lingers)


def learned(
    timeout: Duration = "30 seconds",
    *,
    head: str | None = None,
    cap: int = 64,
    coverage: float = 1.0,
    after: int = 5,
    timeout_after: int = 20,
    quantile: float = 0.99,
    factor: float = 1.25,
    linger: Duration | None = None,
    spread: int = 1,
    max_heads: int = 100_000,
    by: str = "span",
) -> Closing:
    """Close when an instance has as many invocations as its head's instances are seen to have.

    For every head the degrees and spans of recent instances are kept, counted at the end of their
    `linger`, when late invocations are in: what the timeout cut off is learned too. A window
    closes as ``complete`` at the learned degree, as ``full`` at `cap`, and otherwise after the
    learned timeout of its head, of all heads, or `timeout` while too little is known.

    Parameters
    ----------
    timeout
        The timeout while nothing is learned. No learned one exceeds it by more than `linger`.
    head
        The column whose values are learned about; by default the first of the key.
    cap
        A window never holds more than this.
    coverage
        The learned degree is at least that of this share of recent instances.
    after, timeout_after
        Instances of a head before its degree, and its timeout, are believed.
    quantile, factor
        The learned timeout is this quantile of recent spans (or gaps), times `factor`.
    linger
        How long an instance is remembered after its close; invocations that come meanwhile are
        revisions of it. By default as long as `timeout`.
    spread
        Split every head into so many parts by key, each of which learns for itself; for heads
        that are too hot for one worker.
    max_heads
        Heads remembered per bucket; the one that was learned about longest ago is forgotten first.
    by
        ``"span"``: the timeout runs from the first invocation, and first-to-last spans are
        learned. ``"gap"``: it starts anew with every invocation, and longest gaps are learned;
        better where invocations come in bursts, but slower to learn without bias.

    Examples
    --------
    >>> print(learned("22 seconds"))
    ab.learned(timeout='22 seconds')
    >>> learned(factor=0)
    Traceback (most recent call last):
        ...
    anabranch.errors.InvalidCall: learned cannot start: factor must be at least 1, got 0
    """
    problems: list[str] = []
    for name, value in (
        ("cap", cap),
        ("after", after),
        ("timeout_after", timeout_after),
        ("spread", spread),
        ("max_heads", max_heads),
    ):
        problems += _whole(name, value)
    for name, share in (("coverage", coverage), ("quantile", quantile)):
        if not _number(share) or not 0 < share <= 1:
            problems.append(f"{name} must be above 0 and at most 1, got {share!r}")
    if not _number(factor) or factor < 1:
        problems.append(f"factor must be at least 1, got {factor!r}")
    if by not in ("gap", "span"):
        problems.append(f"by must be 'gap' or 'span', got {by!r}")
    if head is not None and not isinstance(head, str):
        problems.append(f"head must be the name of a column, got {head!r}")
    us, lingers = _times("learned", timeout, linger, problems)
    return Learned(
        us,
        lingers,
        head=head,
        cap=cap,
        coverage=float(coverage),
        after=after,
        timeout_after=timeout_after,
        quantile=float(quantile),
        factor=float(factor),
        spread=spread,
        max_heads=max_heads,
        by=by,
    )


def _times(verb: str, timeout: Any, linger: Any, problems: list[str]) -> tuple[int, int]:
    """Both durations in microseconds; raises with all problems."""
    found: list[int] = []
    for name, value in (("the duration", timeout), ("linger", linger)):
        if value is None:
            found.append(found[0])
            continue
        try:
            us = microseconds(value)
        except ValueError as error:
            problems.append(str(error))
            us = 1
        if us < (1 if name == "the duration" else 0):
            problems.append(f"{name} must be longer than nothing, got {value!r}")
        found.append(us)
    if problems:
        raise InvalidCall(verb, problems)
    return found[0], found[1]


def _whole(name: str, value: Any) -> list[str]:
    if isinstance(value, int) and not isinstance(value, bool) and value >= 1:
        return []
    return [f"{name} must be a whole number of at least 1, got {value!r}"]


def _number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
