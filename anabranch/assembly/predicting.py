"""What an assembly will hold and how long it will take, before it runs: `ab.estimate_state`."""

from __future__ import annotations

import math
import reprlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from anabranch.assembly.closing import Count
from anabranch.assembly.estimate_drawing import estimate_html
from anabranch.assembly.fitting.distribution import Distribution
from anabranch.assembly.fitting.window_array import WindowArray, window_array
from anabranch.assembly.fitting.windows import WindowFit
from anabranch.calls import Duration, count, is_number, microseconds
from anabranch.errors import InvalidCall, renamed

__all__ = ["StateEstimate", "estimate_state"]

_OBSERVED = ("open_windows", "state_rows", "state_bytes")  # what `beside` looks at


@dataclass(frozen=True)
class StateEstimate:
    """What an assembly does in the long run.

    Attributes
    ----------
    windows, peak
        Open windows on average, and the number that is exceeded once in a thousand looks.
    tuples
        Events held on average.
    storage
        Their bytes on average; the rows themselves, not what a state store adds.
    closes_after
        Mean seconds from a window's first event to its close, as its row is due.
    row_after
        The same until the row comes out: lateness is waited for, and micro-batches.
    complete, second, full
        Share of instances complete in their first window; that open a second one; and of first
        windows that fill up before their timeout.
    rate
        Instances per second.
    array
        The model's own figures.
    """

    windows: float
    peak: float
    tuples: float
    storage: float
    closes_after: float
    row_after: float
    complete: float
    second: float
    full: float
    rate: float
    array: WindowArray

    def __str__(self) -> str:
        return (
            f"at {self.rate:.4g} instances/s this assembly holds {self.windows:,.0f} windows "
            f"({self.peak:,.0f} at peak), {_bytes(self.storage)}, and closes a window after "
            f"{self.closes_after:.3g} s; {self.complete:.1%} of instances are complete in their "
            "first window"
        )

    def _repr_html_(self) -> str:
        return estimate_html(self)

    def __repr__(self) -> str:
        lines = [
            str(self),
            "",
            f"  open windows      {self.windows:>12,.0f}   peak {self.peak:,.0f}",
            f"  events held  {self.tuples:>12,.0f}   {_bytes(self.storage)}",
            f"  window closes after {self.closes_after:>10.4g} s, its row comes after "
            f"{self.row_after:.4g} s",
            f"  full before timeout {self.full:>10.1%}   second windows {self.second:.1%} "
            "of instances",
        ]
        return "\n".join(lines)

    def beside(self, observed: Mapping[str, Any]) -> str:
        """The prediction and what a running query reports, in one line, for `ab.watch`.

        Parameters
        ----------
        observed
            Figures of a batch; of ``open_windows``, ``state_rows`` (events held) and
            ``state_bytes`` those that are there.

        Examples
        --------
        >>> from anabranch.assembly.fitting import Erlang
        >>> duration = Erlang(2, 1.0)
        >>> found = estimate_state(10.0, size=3, timeout=5.0, sizes=([2], [1.0]), duration=duration)
        >>> found.beside({"open_windows": 55})
        'predicted 52 open windows, observed 55 (6% more)'
        """
        if not isinstance(observed, Mapping):
            what = "figures by their names, for example ab.metrics(query)"
            raise InvalidCall(
                "StateEstimate.beside", [f"observed must be {what}; got {observed!r}"]
            )
        wrong = {name: observed[name] for name in _OBSERVED if name in observed}
        wrong = {n: it for n, it in wrong.items() if it is not None and not is_number(it)}
        if wrong:
            raise InvalidCall("StateEstimate.beside", [f"observed must be numbers; got {wrong!r}"])
        parts = []
        for name, label, value in (
            ("open_windows", "open windows", self.windows),
            ("state_rows", "events held", self.tuples),
        ):
            if (seen := observed.get(name)) is not None:
                parts.append(f"predicted {count(value)} {label}, observed {_compared(seen, value)}")
        if (seen := observed.get("state_bytes")) is not None:
            parts.append(f"predicted {_bytes(self.storage)} of rows, state {_bytes(float(seen))}")
        return "; ".join(parts) or f"predicted {count(self.windows)} open windows"


@renamed(late="watermark", degrees="sizes", invocations="events", span="duration")
def estimate_state(
    rate: float | None = None,
    windows: WindowFit | None = None,
    *,
    events: float | None = None,
    close: Any = None,
    size: int | None = None,
    timeout: float | Duration | None = None,
    sizes: ArrayLike | tuple[ArrayLike, ArrayLike] | None = None,
    duration: Distribution | None = None,
    watermark: Duration | None = None,
    trigger: Duration | None = None,
    arrival_scv: float = 1.0,
    tuple_bytes: float = 135.0,
    peak: float = 0.999,
) -> StateEstimate:
    """Estimate what ``ab.assemble(..., close=ab.close.count(size, timeout))`` will hold.

    Parameters
    ----------
    rate
        Instances per second; by default the sample's.
    windows
        What `ab.fit_windows` returned: size, timeout, sizes, durations and rate, where the other
        arguments do not say otherwise.
    events
        Events per second, instead of `rate`.
    close
        The policy as `ab.assemble` takes it: ``ab.close.count(...)``, or what `ab.fit_windows`
        found, which is then `windows` too; or say
    size, timeout
        A window closes at this count, or after so many seconds (a number, or "22 seconds").
    sizes
        Events per instance: a list of observed ones, or counts and their probabilities.
    duration
        Distribution of the seconds from first to last event.
    watermark
        Lateness that event time waits for: windows are held so much longer.
    trigger
        Time between micro-batches: rows wait on average for half of it.
    arrival_scv
        Squared coefficient of variation of the time between instances; above 1 for bursts.
    tuple_bytes
        Bytes kept per event.
    peak
        Probability that the peak is not exceeded.

    Examples
    --------
    >>> from anabranch.assembly.fitting import HyperErlang
    >>> known = {"sizes": ([12, 13, 14], [.4, .4, .2]),
    ...          "duration": HyperErlang([0.0247, 0.9753], [1, 4], [0.0594, 0.5391])}
    >>> found = estimate_state(102.27, size=13, timeout="22 seconds", **known)
    >>> print(found)
    at 102.3 instances/s this assembly holds 1,820 windows (1,952 at peak), 1.7 MB, and closes a \
window after 14.7 s; 79.3% of instances are complete in their first window
    """
    if isinstance(close, WindowFit):  # which knows sizes, durations and rate as well
        windows = close if windows is None else windows
    size, timeout = _closing(getattr(close, "closing", close), size, timeout)
    values = _gather(rate, windows, events, size, timeout, sizes, duration)
    waits = [
        _seconds(name, given, values.problems)
        for name, given in (("watermark", watermark), ("trigger", trigger))
    ]
    if values.problems:
        raise InvalidCall("estimate_state", values.problems)
    try:
        array = window_array(
            values.rate,
            values.size,
            values.timeout,
            values.sizes,
            values.duration,
            arrival_scv=arrival_scv,
            tuple_bytes=tuple_bytes,
            peak=peak,
        )
    except InvalidCall as error:
        raise InvalidCall("estimate_state", error.problems) from None
    # Event time holds every window longer, by the lateness that the watermark waits for, and the
    # next micro-batch has to come round.
    wait = waits[0] + waits[1] / 2
    return _held(values, array, wait, tuple_bytes)


def _held(values: _Values, array: WindowArray, wait: float, tuple_bytes: float) -> StateEstimate:
    """What is held where every window waits for so many seconds more."""
    held_more = values.rate * (1 + array.later) * wait
    windows = array.windows + held_more
    tuples = array.tuples + held_more * values.mean_size / (1 + array.later)
    growth = windows / array.windows if array.windows else 1.0
    margin = (array.peak - array.windows) * math.sqrt(growth)
    return StateEstimate(
        windows=windows,
        peak=windows + margin,
        tuples=tuples,
        storage=tuples * tuple_bytes,
        closes_after=array.life,
        row_after=array.life + wait,
        complete=array.complete,
        second=array.second,
        full=array.full,
        rate=values.rate,
        array=array,
    )


def _closing(close: Any, size: Any, timeout: Any) -> tuple[Any, Any]:
    """Size and timeout, which a policy may say."""
    if close is None:
        return size, timeout
    if not isinstance(close, Count):
        problem = (
            f"close must be ab.close.count(...), got {close}; what other policies hold "
            "depends on each kind's own calls: run them and see ab.metrics"
        )
    elif size is not None or timeout is not None:
        problem = "close says size and timeout already: leave those out"
    else:
        return close.n, close.timeout / 1e6
    raise InvalidCall("estimate_state", [problem])


def _seconds(name: str, given: Duration | None, problems: list[str]) -> float:
    """A duration that may be left out."""
    try:
        found = 0.0 if given is None else microseconds(given) / 1e6
    except ValueError as error:
        problems.append(f"{name}: {error}")
        return 0.0
    if found < 0:
        problems.append(f"{name} must not be negative, got {given!r}")
    return found


@dataclass
class _Values:
    rate: Any
    size: Any
    timeout: float
    sizes: tuple[Any, Any]
    duration: Any
    problems: list[str]

    @property
    def mean_size(self) -> float:
        counts, shares = self.sizes
        return float(np.asarray(counts, dtype=float) @ np.asarray(shares, dtype=float))


def _gather(
    rate: float | None,
    windows: WindowFit | None,
    events: float | None,
    size: int | None,
    timeout: float | Duration | None,
    sizes: Any,
    duration: Distribution | None,
) -> _Values:
    problems = []
    if windows is not None and not isinstance(windows, WindowFit):
        problems.append(
            f"windows must be what ab.fit_windows(sample) returned, got {type(windows).__name__}"
        )
    elif windows is not None:
        size = windows.size if size is None else size
        timeout = windows.timeout if timeout is None else timeout
        sizes = windows.sizes if sizes is None else sizes
        duration = windows.duration_fit if duration is None else duration
        if rate is None and events is None:
            rate = windows.rate
    for name, value in (
        ("size", size),
        ("timeout", timeout),
        ("sizes", sizes),
        ("duration", duration),
    ):
        if value is None:
            problems.append(f"{name} is missing: say {name}=..., or windows=ab.fit_windows(sample)")
    if sizes is not None:
        sizes, found = _sizes(sizes)
        problems += found
    if duration is not None and not isinstance(duration, Distribution):
        problems.append(
            f"duration must be a distribution, got {type(duration).__name__}; "
            "anabranch.assembly.fitting.fit_two_moments(mean, scv) makes one"
        )
    seconds = math.nan
    if timeout is not None:
        try:
            plain = isinstance(timeout, (int, float))
            seconds = float(timeout) if plain else microseconds(timeout) / 1e6  # type: ignore[arg-type]
        except ValueError as error:
            problems.append(f"timeout: {error}")
    if rate is not None and events is not None:
        problems.append("rate and events are both given: leave one out")
    elif rate is None and events is None:
        problems.append("rate is missing: say rate= instances per second, or events=")
    for name, value in (("rate", rate), ("events", events)):
        if value is not None and not (is_number(value) and value > 0):
            problems.append(f"{name} must be a finite number above 0, got {value!r}")
    if events is not None and sizes is not None and not problems:
        rate = events / float(sizes[0] @ sizes[1])
    return _Values(rate, size, seconds, sizes, duration, problems)


def _sizes(given: Any) -> tuple[Any, list[str]]:
    """Counts and their probabilities, or what is wrong with them."""
    try:
        if isinstance(given, tuple) and len(given) == 2 and not any(map(np.isscalar, given)):
            counts, shares = (np.asarray(part, dtype=np.float64) for part in given)
        else:
            counts, seen = np.unique(np.asarray(given, dtype=np.float64), return_counts=True)
            shares = seen / max(seen.sum(), 1)
    except (TypeError, ValueError):
        counts = shares = np.empty(0)
    if counts.ndim != 1 or counts.shape != shares.shape or not len(counts):
        return None, [
            "sizes must be a list of counts, or counts and their probabilities; got "
            + reprlib.repr(given)
        ]
    if not (counts >= 1).all():
        return None, [f"sizes must count at least 1 event, got {counts.min():g}"]
    return (counts, shares), []


def _compared(seen: float, found: float) -> str:
    if not found:
        return count(seen)
    change = seen / found - 1
    if abs(change) < 0.005:
        return f"{count(seen)} (as predicted)"
    return f"{count(seen)} ({abs(change):.0%} {'more' if change > 0 else 'fewer'})"


def _bytes(number: float) -> str:
    return f"{number / 1e6:.2g} MB" if number < 1e7 else f"{number / 1e6:,.0f} MB"
