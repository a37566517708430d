"""The trace of the DSSIS experiments: page instances scattered over two streams, seeded.

The paper's trace (its sections 3.5 and 5.4) is not public. It is described well enough to be drawn
again: 13,997 instances of 10,000 pages, their sizes (equation 4), their spans (equation 5) and
their spacing. The default settings are *calibrated*, so that the number of events and the
length of the replay come out as printed; `LITERAL` takes the two distributions as they stand.

====================  ===========================  ===========================================
what                  calibrated (default)         literal
====================  ===========================  ===========================================
degree                1 + round(X): the kind is    round(X); 159,154 events
                      not counted in X; 173,151
                      events (printed
                      174,069)
first-to-last span    0.68 times equation 5, at    equation 5 as it stands
                      most 28 s; the replay lasts
                      164 s (printed 164.6 s)
====================  ===========================  ===========================================
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.calls import is_whole
from anabranch.errors import InvalidCall

__all__ = ["LITERAL", "Trace", "TraceSettings", "generate_trace"]

Ints = np.ndarray[Any, np.dtype[np.int64]]
Floats = np.ndarray[Any, np.dtype[np.float64]]

_SECOND = 1_000_000
# Equation 4: the degree of a page.
_DEGREE_SHAPE, _DEGREE_RATE = 100, 8.7963
# Equation 5 with its brackets restored: weight, shape and rate of the two branches, in seconds.
_SPAN_BRANCHES = ((0.0247, 1, 0.0404), (0.9753, 4, 0.3666))

LITERAL: Mapping[str, Any] = MappingProxyType(
    {"kind_in_degree": True, "span_factor": 1.0, "span_cap": None}
)
"""The changes that take equations 4 and 5 as they stand: ``generate_trace(seed=1, **LITERAL)``."""


@dataclass(frozen=True)
class TraceSettings:
    """What a trace is like; the defaults are the calibrated experiment of the paper.

    Parameters
    ----------
    instances, kinds, clients
        How many page views, pages and clients.
    spacing_ms
        Mean time between the starts of two instances.
    spacing
        ``"poisson"`` draws it, ``"even"`` makes every gap the same.
    popularity
        None draws how often each page is viewed from a zeta distribution truncated at
        `multiplicity_cap`, whose exponent gives the mean ``instances / kinds``. A number draws each
        view's page with a chance in proportion to ``rank ** -popularity``; 0 makes pages alike.
    kind_in_degree
        Whether the drawn degree counts the kind already (literal) or the kind is one more.
    span_factor, span_cap
        The first-to-last span is this factor times equation 5, at most so many seconds.
    kind_span_sigma
        Pages differ: every span is multiplied by its page's own log-normal factor of mean 1 and
        this sigma. The cap then is not applied, as it would cut slow pages only.
    optional_calls
        Share of subordinate calls that a view leaves out, so that sizes of a page vary.
    jitter_s
        The second stream arrives late by up to so many seconds, uniformly. Event times stay.
    start
        Event time of the beginning, in microseconds since 1970.
    """

    instances: int = 13_997
    kinds: int = 10_000
    clients: int = 2_000
    spacing_ms: float = 9.778
    spacing: str = "poisson"
    popularity: float | None = None
    multiplicity_cap: int = 50
    kind_in_degree: bool = False
    span_factor: float = 0.68
    span_cap: float | None = 28.0
    kind_span_sigma: float = 0.0
    optional_calls: float = 0.0
    jitter_s: float = 0.0
    start: int = 1_298_653_889_000_000

    def __post_init__(self) -> None:
        wrong = [
            f"{name} must be a whole number of at least 1, got {getattr(self, name)!r}"
            for name in ("instances", "kinds", "clients", "multiplicity_cap")
            if not is_whole(getattr(self, name))
        ]
        wrong += [
            f"{name} must be a number above 0, got {getattr(self, name)!r}"
            for name in ("spacing_ms", "span_factor")
            if not getattr(self, name) > 0
        ]
        wrong += [
            f"{name} must not be negative, got {getattr(self, name)!r}"
            for name in ("kind_span_sigma", "jitter_s")
            if not getattr(self, name) >= 0
        ]
        if self.spacing not in ("poisson", "even"):
            wrong.append(f"spacing must be 'poisson' or 'even', got {self.spacing!r}")
        if not 0 <= self.optional_calls < 1:
            wrong.append(f"optional_calls must be in [0, 1), got {self.optional_calls!r}")
        if self.span_cap is not None and not self.span_cap > 0:
            wrong.append(f"span_cap must be above 0 seconds, or None, got {self.span_cap!r}")
        if not wrong and self.popularity is None:
            most = self.kinds * self.multiplicity_cap
            if not self.kinds <= self.instances <= most:
                wrong.append(
                    f"{self.instances} instances do not fit {self.kinds} kinds with 1 to "
                    f"{self.multiplicity_cap} views each; take {self.kinds} to {most} instances, "
                    "or say popularity=1.0 to draw each view's page instead"
                )
        if wrong:
            raise InvalidCall("generate_trace", wrong)


@dataclass(frozen=True)
class Trace:
    """Events in order of arrival, one array per column; names are whole numbers here.

    `table` gives the same as an Arrow table with names as text.

    Attributes
    ----------
    event_ts, arrival_ts
        When the call was made and when its tuple arrives, microseconds since 1970.
    kind, service
        Number of the page, and of the object within it; 0 is the page itself.
    instance_ts
        The kind's time, cut to the whole second, in microseconds.
    client, response_ms, stream
        Who called, how long the answer took, and which of the two streams reports it.
    truth, degree
        Number of the instance and how many events it has: what assembling should find.
    """

    event_ts: Ints
    arrival_ts: Ints
    kind: Ints
    service: Ints
    instance_ts: Ints
    client: Ints
    response_ms: Floats
    stream: Ints
    truth: Ints
    degree: Ints

    def __len__(self) -> int:
        return len(self.event_ts)

    def spans(self) -> Floats:
        """First-to-last span of every instance, in seconds."""
        order = np.lexsort((self.event_ts, self.truth))
        times = self.event_ts[order]
        firsts = np.flatnonzero(np.diff(self.truth[order], prepend=-1))
        lasts = np.append(firsts[1:], len(times)) - 1
        return np.asarray((times[lasts] - times[firsts]) / _SECOND, dtype=np.float64)

    def sizes(self) -> Ints:
        """Number of events of every instance."""
        return np.bincount(self.truth)

    def table(self) -> pa.Table:
        """The trace as an Arrow table, times as int64 microseconds and names as text."""
        kind = _names("page-", self.kind)
        part = pc.binary_join_element_wise(kind, _names("", self.service), "/")
        columns = {
            "event_ts": self.event_ts,
            "arrival_ts": self.arrival_ts,
            "service": pc.if_else(pa.array(self.service == 0), kind, part),
            "kind": kind,
            "instance_ts": self.instance_ts,
            "client": _names("client-", self.client),
            "response_ms": self.response_ms,
            "stream": self.stream,
            "truth": self.truth,
            "degree": self.degree,
        }
        return pa.table(columns)


def generate_trace(
    settings: TraceSettings | None = None, *, seed: int = 0, **changes: Any
) -> Trace:
    """Draw a trace.

    Parameters
    ----------
    settings
        What the trace is like; by default the calibrated experiment.
    seed
        The same seed gives the same trace.
    **changes
        Settings to change, by name.

    Examples
    --------
    >>> trace = generate_trace(seed=1)
    >>> len(np.unique(trace.truth)), len(np.unique(trace.kind))
    (13997, 10000)
    >>> round(len(trace) / 173_151, 2)
    1.0
    >>> trace.table().slice(0, 1).select(["service", "kind", "stream"]).to_pylist()
    [{'service': 'page-6516', 'kind': 'page-6516', 'stream': 0}]
    >>> generate_trace(seed=1, instance=5)
    Traceback (most recent call last):
        ...
    anabranch.errors.InvalidCall: generate_trace cannot start: no setting 'instance'; there are \
instances, kinds, clients, spacing_ms, spacing, popularity, multiplicity_cap, kind_in_degree, \
span_factor, span_cap, kind_span_sigma, optional_calls, jitter_s, start
    """
    known = [field.name for field in fields(TraceSettings)]
    if unknown := [name for name in changes if name not in known]:
        have = ", ".join(known)
        raise InvalidCall(
            "generate_trace", [f"no setting {name!r}; there are {have}" for name in unknown]
        )
    base = settings or TraceSettings()
    settings = TraceSettings(**{name: getattr(base, name) for name in known} | changes)
    rng = np.random.default_rng(seed)
    kinds = _views(settings, rng)
    starts = _starts(settings, rng)
    count = settings.instances

    drawn = np.rint(rng.gamma(_DEGREE_SHAPE, 1 / _DEGREE_RATE, settings.kinds)).astype(np.int64)
    page_degree = np.maximum(drawn, 1) if settings.kind_in_degree else drawn + 1
    degree = page_degree[kinds]
    spans = settings.span_factor * _equation_5(count, rng)
    if settings.kind_span_sigma:
        sigma = settings.kind_span_sigma
        spans *= rng.lognormal(-(sigma**2) / 2, sigma, settings.kinds)[kinds]
    elif settings.span_cap is not None:
        spans = np.minimum(spans, settings.span_cap)

    truth = np.repeat(np.arange(count), degree)
    first = np.cumsum(degree) - degree
    service = np.arange(len(truth)) - first[truth]
    # The kind at the beginning, one call at the end, the others anywhere between: the span is
    # what was drawn.
    place = rng.random(len(truth))
    place[first] = 0.0
    place[(first + degree - 1)[degree > 1]] = 1.0
    offset = np.rint(place * spans[truth] * _SECOND).astype(np.int64)
    response = rng.lognormal(np.log(80.0), 0.6, len(truth))
    late = rng.random(len(truth))
    clients = rng.integers(0, settings.clients, count)
    kept = (rng.random(len(truth)) >= settings.optional_calls) | (service == 0)

    event = starts[truth] + offset
    # Where an object lives never changes: pages and scripts in one stream, pictures in the other.
    stream = ((kinds[truth] * 31 + service * 17) % 10 < 6).astype(np.int64)
    stream[service == 0] = 0
    delay = np.rint(late * settings.jitter_s * _SECOND).astype(np.int64)
    arrival = event + np.where(stream == 1, delay, 0)
    rows = np.flatnonzero(kept)
    rows = rows[np.lexsort((rows, arrival[rows]))]
    truth = truth[rows]
    return Trace(
        event_ts=event[rows],
        arrival_ts=arrival[rows],
        kind=kinds[truth],
        service=service[rows],
        instance_ts=(starts // _SECOND * _SECOND)[truth],
        client=clients[truth],
        response_ms=np.round(response[rows], 3),
        stream=stream[rows],
        truth=truth,
        degree=np.bincount(truth, minlength=count)[truth],
    )


def _starts(settings: TraceSettings, rng: np.random.Generator) -> Ints:
    mean = settings.spacing_ms * 1e-3 * _SECOND
    count = settings.instances - 1
    gaps = rng.exponential(mean, count) if settings.spacing == "poisson" else np.full(count, mean)
    offsets = np.concatenate([[0.0], np.cumsum(gaps)])
    return np.asarray(settings.start + np.rint(offsets).astype(np.int64))


def _equation_5(count: int, rng: np.random.Generator) -> Floats:
    (weight, *slow), fast = _SPAN_BRANCHES[0], _SPAN_BRANCHES[1][1:]
    is_slow = rng.random(count) < weight
    shape = np.where(is_slow, slow[0], fast[0])
    rate = np.where(is_slow, slow[1], fast[1])
    return rng.gamma(shape) / rate


def _views(settings: TraceSettings, rng: np.random.Generator) -> Ints:
    """The page of every instance, in order of time."""
    if settings.popularity is not None:
        weights = np.arange(1, settings.kinds + 1) ** -float(settings.popularity)
        return np.asarray(rng.choice(settings.kinds, settings.instances, p=weights / weights.sum()))
    values = np.arange(1, settings.multiplicity_cap + 1)
    weights = values ** -_zeta_exponent(settings.instances / settings.kinds, values)
    views = rng.choice(values, settings.kinds, p=weights / weights.sum())
    # The sum is random; a few pages get one view more or less until it is the number asked for.
    while missing := settings.instances - int(views.sum()):
        room = views < settings.multiplicity_cap if missing > 0 else views > 1
        open_pages = np.flatnonzero(room)
        chosen = rng.choice(open_pages, min(abs(missing), len(open_pages)), replace=False)
        views[chosen] += 1 if missing > 0 else -1
    return np.asarray(rng.permutation(np.repeat(np.arange(settings.kinds), views)))


def _zeta_exponent(mean: float, values: Ints) -> float:
    """The exponent whose zeta distribution over `values` has this mean, by bisection."""
    low, high = -60.0, 60.0
    logs = np.log(values)
    for _ in range(200):
        middle = (low + high) / 2
        scaled = -middle * logs
        weights = np.exp(scaled - scaled.max())
        if (weights * values).sum() / weights.sum() > mean:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def _names(prefix: str, numbers: Ints) -> pa.Array:
    return pc.binary_join_element_wise(prefix, pa.array(numbers).cast(pa.string()), "")
