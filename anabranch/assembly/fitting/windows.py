"""Window size and timeout from a sample of events: `ab.fit_windows`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
from numpy.typing import ArrayLike

from anabranch.assembly import close
from anabranch.assembly.closing import Closing
from anabranch.assembly.fitting.distribution import Distribution, Floats
from anabranch.assembly.fitting.erlang import HyperErlang
from anabranch.assembly.fitting.hypererlang import fit_hyper_erlang
from anabranch.assembly.fitting.plotting import plot_windows, windows_html
from anabranch.assembly.fitting.reading import Instances, read_instances
from anabranch.assembly.fitting.survival import Survival
from anabranch.assembly.fitting.window_array import window_array
from anabranch.assembly.fitting.zeros import WithZeros
from anabranch.calls import Duration, is_number, microseconds
from anabranch.errors import InvalidCall
from anabranch.flow.pictures import refuse_unwritable
from anabranch.flow.progress import step

__all__ = ["WindowFit", "check", "choose_window", "fit_instances", "fit_windows"]

_GOOD_FIT = 0.05
# What former attributes of a fit are called now.
_FORMER = {
    "alpha": "cover",
    "beta": "cut",
    "span": "instance_duration",
    "span_fit": "duration_fit",
    "degree": "instance_size",
    "degree_fit": "size_fit",
    "degrees": "sizes",
    "invocations": "events",
}


@dataclass(frozen=True)
class WindowFit:
    """Window parameters and what they rest on.

    Attributes
    ----------
    size, timeout
        Close a window at this count, or after so many seconds.
    cover, cut, tolerance
        What was asked for.
    instance_size, instance_duration
        Events per instance and seconds from the first to the last, as seen; what was cut off
        is accounted for.
    size_fit, duration_fit
        The distributions fitted to them.
    instances, events
        Number of instances used, and of their events.
    rate
        Instances per second of the sample; None if it is too short to tell.
    unsettled, rejected, incomplete
        Instances left out because they began too close to the sample's end; events without
        a key or a time; instances known to be incomplete.
    notes
        What to know before relying on it.
    """

    size: int
    timeout: float
    cover: float
    cut: float
    tolerance: float | None
    instance_size: Survival
    instance_duration: Survival
    size_fit: HyperErlang
    duration_fit: Distribution
    instances: int
    events: int
    rate: float | None
    unsettled: int
    rejected: int
    incomplete: int
    notes: tuple[str, ...]

    @property
    def duration(self) -> str:
        """The timeout as a duration, rounded up to whole milliseconds."""
        return f"{math.ceil(self.timeout * 1000 - 1e-6)} milliseconds"

    @property
    def closing(self) -> Closing:
        """The policy of these windows; ``close=fit`` says the same."""
        # A window ends before its timeout, and the longest duration that is to fit must fit.
        longest = math.floor(self.timeout * 1000 + 1e-6) + 1
        # The size is that of many instances: who has it may still be without a part.
        return close.count(self.size, f"{longest} milliseconds", declared=False)

    @property
    def sizes(self) -> tuple[Floats, Floats]:
        """Sizes and their probabilities, as the queueing models take them."""
        return self.instance_size.shares()

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            if (now := _FORMER.get(name)) is not None:
                raise AttributeError(f"WindowFit.{name} is now called {now}")
            have = ", ".join(self.__dataclass_fields__)
            raise AttributeError(f"WindowFit has no attribute {name!r}; it has {have}")

    def table(self) -> list[dict[str, Any]]:
        """One row for sizes and one for durations: chosen value, what it covers, and the fit."""
        rows = []
        for name, unit, chosen, seen, fit, shift in (
            ("size", "events", self.size, self.instance_size, self.size_fit, 0.5),
            ("duration", "seconds", self.timeout, self.instance_duration, self.duration_fit, 0.0),
        ):
            rows.append(
                {
                    "what": name,
                    "unit": unit,
                    "chosen": chosen,
                    "covers_seen": float(seen.cdf(chosen)),
                    "covers_fitted": float(fit.cdf(chosen + shift)),
                    "mean": seen.mean,
                    "median": float(seen.ppf(0.5)),
                    "p95": float(seen.ppf(0.95)),
                    "fit": repr(fit),
                    "distance": seen.distance(fit.cdf(seen.values + shift), counts=shift > 0),
                }
            )
        return rows

    def plot(self, path: Any = None) -> Any:
        """Draw densities and distributions, seen and fitted; write them to `path` if given."""
        refuse_unwritable("WindowFit.plot", path)
        figure = plot_windows(self)
        if path is not None:
            figure.savefig(path, dpi=100)
        return figure

    def _repr_html_(self) -> str:
        return windows_html(self)

    def __repr__(self) -> str:
        asked = (
            f"tolerance {self.tolerance:g}"
            if self.tolerance is not None
            else f"cover {self.cover:g}, cut {self.cut:g}"
        )
        rate = "" if self.rate is None else f", {self.rate:.4g}/s"
        lines = [
            f"close at {self.size} events or after {self.timeout:.4g} seconds  ({asked})",
            f"from {self.instances:,} instances of {self.events:,} events{rate}",
            "",
            f"{'':8}{'chosen':>8}{'covers':>9}{'fitted':>9}{'mean':>9}{'median':>9}{'p95':>9}"
            f"{'gap':>8}",
        ]
        for row in self.table():
            lines.append(
                f"{row['what']:8}{row['chosen']:>8.4g}{row['covers_seen']:>9.2%}"
                f"{row['covers_fitted']:>9.2%}{row['mean']:>9.4g}{row['median']:>9.4g}"
                f"{row['p95']:>9.4g}{row['distance']:>8.3f}"
            )
        lines += ["", f"size      {self.size_fit!r}", f"duration  {self.duration_fit!r}"]
        lines += [f"note: {note}" for note in self.notes]
        return "\n".join(lines)


def fit_windows(
    sample: Any,
    cover: float = 0.9,
    cut: float = 0.05,
    *,
    tolerance: float | None = None,
    key: str | Sequence[str] | None = None,
    time: str | None = None,
    complete: str | None = None,
    settle: float | Duration | None = None,
) -> WindowFit:
    """`ab.fit_windows` of a pandas DataFrame or an Arrow table.

    Examples
    --------
    >>> from papers.dssis.tracing import generate_trace
    >>> fit = fit_windows(generate_trace(seed=1).table())
    >>> fit.size, round(fit.timeout)
    (14, 15)
    >>> fit_windows(generate_trace(seed=1).table(), tolerance=0.05).size > fit.size
    True
    """
    seconds = check(cover, cut, tolerance, settle)
    found = read_instances(sample, key, time, complete, seconds)
    return fit_instances(found, cover=cover, cut=cut, tolerance=tolerance)


def check(cover: Any, cut: Any, tolerance: Any, settle: Any) -> float | None:
    """Raise with all that is wrong with these; otherwise `settle` in seconds."""
    problems = [
        f"{name} must be a number between 0 and 1, got {value!r}"
        for name, value in (("cover", cover), ("cut", cut), ("tolerance", tolerance))
        if not ((is_number(value) and 0 < value < 1) or (name == "tolerance" and value is None))
    ]
    seconds = None
    if settle is not None:
        try:
            seconds = float(settle) if is_number(settle) else microseconds(settle) / 1e6
        except ValueError:
            seconds = -1.0
        if seconds < 0:
            problems.append(
                "settle must be a number of seconds of at least 0, or a duration such as "
                f"'5 seconds'; got {settle!r}"
            )
    if problems:
        raise InvalidCall("fit_windows", problems)
    return seconds


def fit_instances(
    found: Instances, *, cover: float = 0.9, cut: float = 0.05, tolerance: float | None = None
) -> WindowFit:
    """Choose window parameters from sizes and spans that are known already.

    Examples
    --------
    >>> rng = np.random.default_rng(1)
    >>> seen = Instances.of(rng.integers(1, 9, 5000), rng.gamma(4, 3, 5000))
    >>> fit = fit_instances(seen)
    >>> fit.size, abs(fit.timeout - 23.3) < 1
    (8, True)
    """
    seen_sizes = Survival(found.sizes, found.complete)
    span = Survival(found.spans, found.complete)
    notes = list(found.notes)
    step("fits sizes", 0, 3)
    size_fit = fit_hyper_erlang(found.sizes, complete=found.complete, counts=True)
    step("fits durations", 1, 3)
    duration_fit = _fit_spans(found.spans, found.complete)
    gap = span.distance(duration_fit.cdf(span.values))
    step("chooses size and timeout", 2, 3)
    if tolerance is not None:
        size, timeout = choose_window(seen_sizes.shares(), duration_fit, tolerance)
    else:
        size = _least(seen_sizes, size_fit, cover, notes)
        timeout = float(duration_fit.ppf(1 - cut))
        seen = float(span.ppf(1 - cut))
        if gap > _GOOD_FIT and math.isfinite(seen):
            notes.append(
                f"durations are fitted poorly (gap {gap:.3f}): the timeout is the sample's own "
                "quantile"
            )
            timeout = seen
    if found.count < 500:
        notes.append(f"only {found.count} instances: expect other values from another sample")
    # A window of no length would close before its second event.
    timeout = max(timeout, 1e-3)
    return WindowFit(
        size=size,
        timeout=timeout,
        cover=cover,
        cut=cut,
        tolerance=tolerance,
        instance_size=seen_sizes,
        instance_duration=span,
        size_fit=size_fit,
        duration_fit=duration_fit,
        instances=found.count,
        events=int(found.sizes.sum()),
        rate=found.rate,
        unsettled=found.unsettled,
        rejected=found.rejected,
        incomplete=int((~found.complete).sum()),
        notes=tuple(notes),
    )


def choose_window(
    sizes: tuple[ArrayLike, ArrayLike], span: Distribution, tolerance: float
) -> tuple[int, float]:
    """The cheapest size and timeout that keep a share ``1 - tolerance`` of instances whole.

    Among all pairs with ``P(events <= size) * P(span <= timeout) >= 1 - tolerance`` the one with
    the fewest open windows, by `window_array`; timeouts go in round steps.

    Examples
    --------
    The paper's pages, of which at most 5 % may be incomplete:

    >>> from anabranch.assembly.fitting import Erlang, HyperErlang
    >>> x = np.arange(1, 31)
    >>> share = Erlang(100, 8.7963).cdf(x - 0.5) - Erlang(100, 8.7963).cdf(x - 1.5)
    >>> span = HyperErlang([0.0247, 0.9753], [1, 4], [0.0404, 0.3666])
    >>> choose_window((x, share), span, 0.05)
    (17, 22.0)
    """
    counts, shares = np.asarray(sizes[0]), np.asarray(sizes[1], dtype=np.float64)
    shares = shares / shares.sum()
    order = np.argsort(counts)
    covered = np.cumsum(shares[order])
    floor = float(span.ppf(1 - tolerance))
    if floor <= 0:
        return int(counts[order][np.searchsorted(covered, 1 - tolerance - 1e-12)]), 1e-3
    step = 10.0 ** math.floor(math.log10(floor)) / 10
    best: tuple[float, int, float] | None = None
    for size, share in zip(counts[order], covered, strict=True):
        if share < 1 - tolerance:
            continue
        needed = (1 - tolerance) / min(share, 1.0)
        at_least = float(span.ppf(min(needed, 1.0)))
        if not math.isfinite(at_least):
            continue
        timeout = round(math.ceil(at_least / step - 1e-9) * step, 9)
        cost = window_array(1.0, int(size), timeout, (counts, shares), span).windows
        # Windows that differ by less than the model can tell cost the same: the smaller size wins.
        if best is None or cost < best[0] * (1 - 1e-3):
            best = (cost, int(size), timeout)
        if share >= 1 - 1e-9:
            break
    assert best is not None
    return best[1], best[2]


def _fit_spans(spans: Floats, complete: np.ndarray) -> Distribution:
    positive = spans > 0
    zeros = float(np.mean(~positive & complete))
    if not (positive & complete).any():
        # Nothing ever lasts: a density as good as zero keeps the rest working.
        return WithZeros(1 - 1e-9, HyperErlang([1.0], [1], [1e6]))
    fit = fit_hyper_erlang(spans[positive], complete=complete[positive])
    return WithZeros(zeros, fit) if zeros else fit


def _least(seen: Survival, fit: HyperErlang, cover: float, notes: list[str]) -> int:
    size = float(seen.ppf(cover))
    if math.isfinite(size):
        return int(size)
    notes.append(
        f"so many instances were cut off that {cover:g} of the sizes were never seen whole: "
        "the size is the fit's"
    )
    return max(1, math.ceil(float(fit.ppf(cover)) - 0.5))
