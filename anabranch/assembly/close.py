"""When a window closes, as `ab.close`: by count, gap, fixed time, what was learned, an end marker.

All policies open a window with the first event of a key and close it once. They differ in when, and
in what becomes of an event that comes after the close while the key is still remembered: it opens
a second window (``seq`` 1, 2, ...) or is a revision of the closed one (``revision`` 1, 2, ...).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from anabranch.assembly.closing import MOST, After, Closing, Count, Gap, Learned
from anabranch.calls import Check, Duration, is_number
from anabranch.errors import InvalidCall, renamed
from anabranch.predicates.columns import Named, column_of

__all__ = ["after", "count", "gap", "learned", "until"]

# What former policies are called now.
_FORMER = {
    "wait": "after",
    "session": "gap",
    "count_or_timeout": "count",
}
_WHOLE = "; what ab.fit_windows found is given whole, close=fit"
_LONGEST = 30 * 365 * 86_400_000_000  # microseconds; deadlines must not overflow


@renamed(linger="remember")
def count(
    n: int, timeout: Duration, *, remember: Duration | None = None, declared: bool = True
) -> Closing:
    """The small window array of the DSSIS paper: `n` events, or `timeout` after the first.

    The clock starts with the first event and never restarts. An event after the close
    opens a second window of the key.

    Parameters
    ----------
    n
        The window's size; `usual_count` in the result.
    timeout
        Windows are ``[opened, opened + timeout)``.
    remember
        How long a key is remembered after its window closed, so that second windows are numbered
        and late events find their instance; by default the timeout.
    declared
        Whether an instance has `n` events, and is complete with them; ``ab.sla`` takes that as
        proof. False if `n` is only what most instances have, as what ``ab.fit_windows`` found.

    Examples
    --------
    >>> print(count(13, "22 seconds"))
    ab.close.count(13, '22 seconds')
    """
    check = Check()
    check.whole("n", n, 1, MOST - 1)
    check.flag("declared", declared)
    us, remembered = _times(check, "close.count", "timeout", timeout, remember, _WHOLE)
    return Count(us, remembered, n=int(n), declared=declared)


@renamed(linger="remember")
def gap(duration: Duration, *, remember: Duration | None = None) -> Closing:
    """Close when no event of the key has come for `duration`, with the reason ``gap``.

    Examples
    --------
    >>> print(gap("8 seconds"))
    ab.close.gap('8 seconds')
    """
    us, remembered = _times(Check(), "close.gap", "duration", duration, remember)
    return Gap(us, remembered)


@renamed(linger="remember")
def after(duration: Duration, *, remember: Duration | None = None) -> Closing:
    """Close `duration` after the first event, however many have come.

    This is what OpenTelemetry's tail sampling does with its ``decision_wait``. Events after the
    close are revisions of the instance for as long as it is remembered (by default as long again).

    Examples
    --------
    >>> print(after("30 seconds"))
    ab.close.after('30 seconds')
    """
    us, remembered = _times(Check(), "close.after", "duration", duration, remember)
    return After(us, remembered)


@renamed(linger="remember", head="kind", max_heads="max_kinds")
def learned(
    timeout: Duration = "30 seconds",
    *,
    risk: float = 0.01,
    kind: Any = None,
    cap: int = 1000,
    coverage: float = 0.5,
    after: int = 20,
    remember: Duration | None = None,
    spread: int = 1,
    max_kinds: int = 100_000,
) -> Closing:
    """Close when it is all but sure that nothing more is to come, by what was seen of its kind.

    For every kind the sizes of recent instances and their longest silences are kept, counted at
    the end of `remember`, when late events are in: what a close cut off is learned too. A
    window closes as soon as the chance that another event will come is at most `risk`: as
    ``complete`` with the last one, or by timer (``gap``) when a silence has lasted so long that
    this has become unlikely, at most `timeout` (``timeout``). At `cap` events it closes as
    ``full``.

    Parameters
    ----------
    timeout
        The longest silence that is waited for, also while too little is known.
    risk
        The chance to take that a window closes too early. Smaller waits longer. About this share of
        instances, or less, gets revisions.
    kind
        The column of the key whose values are learned about; by default its first. A name, also
        inside a struct (``"page.kind"``), or a Column of Spark.
    cap
        A window never holds more than this.
    coverage
        `usual_count` in the result is the least size that this share of the kind's recent
        instances does not exceed: by default their median.
    after
        Instances of several events before their silences are used, of the kind and of all
        kinds; a quarter of them before there is an `usual_count`.
    remember
        How long an instance is remembered after its close; events that come meanwhile are
        revisions of it. By default as long as `timeout`. What comes later still is never learned,
        so it must be longer than most silences.
    spread
        Split every kind into so many parts by key, each of which learns for itself; for kinds
        that are too hot for one worker.
    max_kinds
        Kinds remembered per bucket; the one that was learned about longest ago is forgotten first.

    Examples
    --------
    >>> print(learned("22 seconds"))
    ab.close.learned('22 seconds', risk=0.01)
    >>> learned(risk=0)
    Traceback (most recent call last):
        ...
    anabranch.errors.InvalidCall: close.learned cannot start: risk must lie between 1e-9 and 1, \
got 0; 0.01 is usual
    """
    check = Check()
    sizes = [("cap", cap), ("after", after), ("spread", spread), ("max_kinds", max_kinds)]
    for name, value in sizes:
        check.whole(name, value, 1, MOST - 1)
    if not is_number(coverage) or not 0 < coverage <= 1:
        check.say(f"coverage must be above 0 and at most 1, got {coverage!r}")
    if not is_number(risk) or not 1e-9 <= risk < 1:
        check.say(f"risk must lie between 1e-9 and 1, got {risk!r}; 0.01 is usual")
    named = None if kind is None else _column(check, "kind", kind)
    us, remembered = _times(check, "close.learned", "timeout", timeout, remember)
    if not remembered:
        what = "remember must be longer than 0 seconds, or what a close cuts off is never learned"
        raise InvalidCall("close.learned", [f"{what}; got {remember!r}"])
    return Learned(
        us,
        remembered,
        kind=named,
        risk=float(risk),
        cap=int(cap),
        coverage=float(coverage),
        after=int(after),
        spread=int(spread),
        max_kinds=int(max_kinds),
    )


@renamed()
def until(
    marker: Any, grace: Duration = "0 seconds", *, otherwise: Closing | None = None
) -> Closing:
    """Close `grace` after the first event that carries an end marker, with the reason ``end``.

    Another policy applies beside it, and the window closes by whichever is first: so instances
    whose end never comes are closed too. Only `learned` takes the end into account: before it, a
    window waits for the longest silence, its `timeout`; after it, what was learned may close the
    window before the grace is over. The other policy also decides how long instances are
    remembered, and whether an event after the close is a revision or opens a second window.

    Parameters
    ----------
    marker
        A column of truth values, also inside a struct (``"span.is_root"``); SQL text such as
        ``"status = 'done'"``; or a Column of Spark, ``F.col("status") == "done"``. Null is false.
    grace
        How long to wait for events that come after the end. Events of the very instant of the
        marker belong to the window in any case.
    otherwise
        The other policy, or what ``ab.fit_windows`` found; by default ``after("30 seconds")``.

    Examples
    --------
    >>> print(until("is_root", grace="2 seconds", otherwise=learned("30 seconds")))
    ab.close.until('is_root', '2 seconds', otherwise=ab.close.learned('30 seconds', risk=0.01))
    """
    check = Check()
    named = _column(check, "marker", marker, "; SQL text such as \"status = 'done'\" is one too")
    other = after("30 seconds") if otherwise is None else getattr(otherwise, "closing", otherwise)
    if not isinstance(other, Closing):
        check.say(f"otherwise must be a policy such as ab.close.learned(), got {otherwise!r}")
    elif other.marker is not None:
        both = f"ab.close.until({f'{marker} or {other.marker}'!r})"
        if not (isinstance(marker, str) and isinstance(other.marker, str)):
            both = "ab.close.until(one | other) of two Columns"
        check.say(
            f"otherwise has an end marker already, {other.marker!r}: write both as one, {both}"
        )
    us = check.duration("grace", grace, 0, _LONGEST)
    check.refuse("close.until")
    return replace(other, marker=named, grace=us)


def _column(check: Check, name: str, value: Any, also: str = "") -> Named | None:
    """A column of the rows that are to be assembled, by name or as a Column of Spark."""
    try:
        return column_of(name, value.strip() if isinstance(value, str) else value)
    except InvalidCall as error:
        check.say(f"{name}: {error.problems[0]}{also}")
        return None


def _times(
    check: Check, verb: str, name: str, timeout: Any, remember: Any, of_number: str = ""
) -> tuple[int, int]:
    """Both durations in microseconds; raises with all problems.

    `of_number` is said beside a time that is a bare number.
    """
    us = check.duration(name, timeout, 1, _LONGEST, of_number if is_number(timeout) else "")
    remembered = us if remember is None else check.duration("remember", remember, 0, _LONGEST)
    check.refuse(verb)
    return us, remembered


def __getattr__(name: str) -> Any:
    if name in _FORMER:
        raise AttributeError(f"close.{name} is now called close.{_FORMER[name]}")
    have = ", ".join(__all__)
    raise AttributeError(f"module 'anabranch.close' has no attribute {name!r}; it has {have}")
