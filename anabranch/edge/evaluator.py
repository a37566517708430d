"""Computes the views that are at one place, incrementally, each result once.

One class runs on devices and, in the state of Spark, in the cloud. What it computes depends on the
rows and the boundaries alone, not on order or batching: a row is taken once, by its number, and
freed when no partner can come, by the watermarks of the streams *at this place*.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Any

import msgpack
import numpy as np

from anabranch.edge.definitions import Definition, Stream, View, listed, read_view
from anabranch.edge.directives import Directive, Hosted, read_directive, write_directive
from anabranch.edge.held import Held
from anabranch.edge.ownership import LATEST, horizon, marks, owners
from anabranch.edge.sections import Results, Section
from anabranch.edge.versions import check_version
from anabranch.errors import StateMismatch
from anabranch.predicates.conditions import PairConditions, RowConditions

__all__ = ["Evaluator"]

_VERSION = 1
_AT_ONCE = 256  # rows that may come before others are freed


class Evaluator:
    """The views of one place: a device, or a bucket of the cloud, whose place is ``cloud``.

    Examples
    --------
    >>> from anabranch.edge.ownership import Boundary
    >>> streams = [(k, Stream(f"gps[{who}]", who, {"xy": "array<double>"})) for k, who in
    ...            enumerate(["ann", "bob"])]
    >>> near = Definition("near", "pairs", (10, 10), ["euclidean", "xy", "xy", None, "<=", 5.0])
    >>> view = Hosted(0, View("near(ann,bob)", "near", (0, 1)), (Boundary(0, "cloud"),))
    >>> place = Evaluator("cloud")
    >>> place.learn(Directive(0, True, tuple(streams), (near,), (view,)))
    >>> def rows(stream, n, t, xy):
    ...     return Section(stream, 0, np.array([n]), np.array([t]), (np.array([xy]),))
    >>> place.step([rows(0, 0, 100, [1.0, 1.0])])
    []
    >>> [found] = place.step([rows(1, 7, 105, [4.0, 5.0])])
    >>> found.view, found.n[0].tolist(), found.n[1].tolist(), found.score.tolist()
    (0, [0], [7], [5.0])
    >>> place = Evaluator.restore(place.snapshot())
    >>> place.step([rows(1, 7, 105, [4.0, 5.0])])   # a row that it holds
    []
    """

    def __init__(self, place: str) -> None:
        self.place = place
        self.epoch = -1
        self.views: dict[int, Hosted] = {}
        self.done: set[int] = set()  # views that have found all their pairs here
        self.known: dict[int, View] = {}
        self.streams: dict[int, Stream] = {}
        self.definitions: dict[str, Definition] = {}
        self._held: dict[int, Held] = {}
        self._by_stream: dict[int, set[int]] | None = None  # numbers of views
        self._taken = 0  # rows since rows were last freed
        self._packed: bytes | None = None
        self._blob: bytes | None = None  # the last snapshot, as long as it holds
        self._conditions: dict[tuple[str, ...], PairConditions | RowConditions] = {}

    @property
    def rows(self) -> int:
        """How many rows are held that may meet others."""
        self._free()
        return sum(len(held.n) for held in self._held.values())

    def learn(self, directive: Directive) -> None:
        """Take what an entry changes.

        Raises `StateMismatch` if a boundary was retired though rows before it come after its mark.
        """
        if directive.whole:
            self.views.clear()
            self.done.clear()
            self._held.clear()
        self.epoch, self._packed, self._by_stream = directive.epoch, None, None
        self._blob = None
        self.streams.update(directive.streams)
        self.definitions.update((found.name, found) for found in directive.definitions)
        self.known.update(directive.named)
        for hosted in directive.hosted:
            self.views[hosted.number] = hosted
            self.done.discard(hosted.number)
            self.known[hosted.number] = hosted.view
            for stream in hosted.view.inputs:
                self._held.setdefault(stream, Held())
                self._check(hosted, self._held[stream])
        self._free()

    def take(self, steps: Iterable[Section | Directive]) -> list[Results]:
        """Take the steps of a frame in their order: `learn` of directives, `step` of sections."""
        found = []
        for told, run in itertools.groupby(steps, lambda step: isinstance(step, Directive)):
            if told:
                for directive in run:
                    self.learn(directive)  # type: ignore[arg-type]
            else:
                found += self.step(list(run))  # type: ignore[arg-type]
        return found

    def step(self, sections: Sequence[Section]) -> list[Results]:
        """Take the sections of one frame, and find the results that they complete."""
        by_stream: dict[int, list[Section]] = {}
        for section in sections:
            if section.stream in self._held:
                by_stream.setdefault(section.stream, []).append(section)
        if not by_stream:
            return []
        self._blob = None
        rows = sum(len(section.n) for mine in by_stream.values() for section in mine)
        found = self._meet(by_stream) if rows else []  # most frames are watermarks alone
        for stream, mine in by_stream.items():
            held = self._held[stream]
            held.watermark = max(held.watermark, *(section.watermark for section in mine))
        self._taken += rows
        if rows and self._taken > _AT_ONCE + sum(len(h.n) for h in self._held.values()) // 2:
            self._free()
        return found

    def _meet(self, by_stream: dict[int, list[Section]]) -> list[Results]:
        """Add rows to those that are held, and find what they complete."""
        for stream, mine in by_stream.items():
            self._held[stream].take(mine, self.streams[stream])
        found = []
        for hosted in self._touched(by_stream):
            for stream in hosted.view.inputs:
                self._check(hosted, self._held[stream])
            if hosted.number not in self.done:
                found += self._evaluate(hosted)
        for stream in by_stream:
            held = self._held[stream]
            held.fresh = np.zeros(len(held.n), bool)
        return found

    def _touched(self, streams: Iterable[int]) -> list[Hosted]:
        """The views over streams that have fresh rows."""
        fresh = [stream for stream in streams if self._held[stream].fresh.any()]
        if self._by_stream is None:
            self._by_stream = {}
            for number, hosted in self.views.items():
                for stream in hosted.view.inputs:
                    self._by_stream.setdefault(stream, set()).add(number)
        numbers = {n for stream in fresh for n in self._by_stream.get(stream, ())}
        return [self.views[number] for number in sorted(numbers)]

    def _check(self, hosted: Hosted, held: Held) -> None:
        """Raise if a row says that a boundary has been retired too early."""
        window = max(self.definitions[hosted.view.definition].window)
        for epoch, mark in marks(hosted.bounds, window):
            early = (held.stamp < epoch) & (held.t > mark)
            if early.any():
                at = np.flatnonzero(early)[0]
                raise StateMismatch(
                    f"view {hosted.view.name!r} was retired too early at {self.place!r}: row "
                    f"{held.n[at]} at {held.t[at]} has stamp {held.stamp[at]}, though no row "
                    f"stamped below {epoch} was to come after {mark}"
                )

    def _evaluate(self, hosted: Hosted) -> list[Results]:
        definition = self.definitions[hosted.view.definition]
        sides = [self._held[stream] for stream in hosted.view.inputs]
        if definition.kind == "each":
            rows = np.flatnonzero(sides[0].fresh & (sides[0].priority < hosted.view.shares[0]))
            index = [rows]
        else:
            index = list(_candidates(sides, hosted.view.shares, definition.window))
        stamps = [held.stamp[rows] for held, rows in zip(sides, index, strict=True)]
        own = owners(hosted.bounds, stamps[0], stamps[-1])
        here = np.array([bound.place == self.place for bound in hosted.bounds] + [False])[own]
        index = [rows[here] for rows in index]
        good, score = self._decide(hosted, definition, sides, index)
        if not len(good):
            return []
        index = [rows[good] for rows in index]
        stamp = np.maximum(stamps[0], stamps[-1])[here][good]
        kept = []
        for held, rows, names, stream in zip(
            sides, index, definition.keep, hosted.view.inputs, strict=False
        ):
            order = list(self.streams[stream].columns)
            kept += [held.columns[order.index(name)][rows] for name in names]
        n = tuple(held.n[rows] for held, rows in zip(sides, index, strict=True))
        t = tuple(held.t[rows] for held, rows in zip(sides, index, strict=True))
        return [Results(hosted.number, n, t, stamp, score, tuple(kept))]

    def _decide(
        self, hosted: Hosted, definition: Definition, sides: list[Held], index: list[np.ndarray]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Which candidates satisfy the view's condition, and their scores."""
        if not len(index[0]):
            return index[0], np.empty(0)
        types = [self.streams[stream].columns for stream in hosted.view.inputs]
        key = (definition.name, *(repr(list(columns.items())) for columns in types))
        if key not in self._conditions:
            kind: Any = RowConditions if definition.kind == "each" else PairConditions
            self._conditions[key] = kind(definition.where, *types)
        conditions = self._conditions[key]
        named = [
            dict(zip(columns, held.columns, strict=True))
            for columns, held in zip(types, sides, strict=True)
        ]
        if isinstance(conditions, PairConditions):
            return conditions.decide(named[0], named[1], index[0], index[1])
        some = {name: column[index[0]] for name, column in named[0].items()}
        good = conditions.decide(some, len(index[0]))
        return good, np.full(len(good), np.nan)

    def _free(self) -> None:
        """Forget rows that can meet no other; note which views have found all their pairs."""
        self._taken = 0
        held = {stream: held for stream, held in self._held.items() if len(held.n)}
        needed = {stream: np.zeros(len(of.n), bool) for stream, of in held.items()}
        for number, hosted in self.views.items():
            if number in self.done:
                continue
            inputs = hosted.view.inputs
            until = horizon(hosted.bounds, self.place)
            if until < LATEST and all(self._held[s].watermark >= until for s in inputs):
                self.done.add(number)
                continue
            window = self.definitions[hosted.view.definition].window
            for stream, partner, span in zip(inputs, inputs[::-1], window, strict=False):
                if stream != partner and stream in held:
                    t, heard = held[stream].t, self._held[partner].watermark
                    needed[stream] |= (t <= until) & (np.minimum(t + span, until) > heard)
        for stream, rows in needed.items():
            held[stream].keep(rows)

    def snapshot(self) -> bytes:
        """All that it knows, with a version."""
        if self._blob is not None:
            return self._blob
        self._free()
        if self._packed is None:  # which changes with directives alone
            known = Directive(
                self.epoch,
                True,
                tuple(self.streams.items()),
                tuple(self.definitions.values()),
                tuple(self.views.values()),
            )
            views = [(number, listed(view)) for number, view in self.known.items()]
            self._packed = msgpack.packb([self.place, write_directive(known), views])
        held = {stream: held.to_form() for stream, held in self._held.items()}
        blob: bytes = msgpack.packb([_VERSION, self._packed, held, sorted(self.done)])
        self._blob = blob
        return blob

    @classmethod
    def restore(cls, blob: bytes) -> Evaluator:
        """The evaluator of a snapshot."""
        version, *rest = msgpack.unpackb(blob, strict_map_key=False)
        check_version("the state of an evaluator", version, _VERSION, "begin anew")
        packed, held, done = rest
        place, directive, views = msgpack.unpackb(packed)
        found = cls(place)
        found.done = set(done)
        found._held = {stream: Held.from_form(form) for stream, form in held.items()}
        found.known = {number: read_view(view) for number, view in views}
        known = read_directive(directive)
        found.epoch, found.streams = known.epoch, dict(known.streams)
        found.definitions = {definition.name: definition for definition in known.definitions}
        found.views = {hosted.number: hosted for hosted in known.hosted}
        return found


def _candidates(
    sides: list[Held], shares: tuple[float, ...], window: tuple[int, int]
) -> tuple[np.ndarray, np.ndarray]:
    """Pairs of sampled rows within the window of which at least one is fresh."""
    left, right = sides
    a = np.flatnonzero(left.priority < shares[0])
    b = np.flatnonzero(right.priority < shares[1])
    new_a, old_a, new_b = a[left.fresh[a]], a[~left.fresh[a]], b[right.fresh[b]]
    parts = [
        _within(left.t, new_a, right.t, b, window),
        _within(left.t, old_a, right.t, new_b, window),
    ]
    return tuple(np.concatenate(found) for found in zip(*parts, strict=True))  # type: ignore[return-value]


def _within(
    left: np.ndarray, a: np.ndarray, right: np.ndarray, b: np.ndarray, window: tuple[int, int]
) -> tuple[np.ndarray, np.ndarray]:
    """Rows of `a` and `b` whose times lie within the window; both are in order of time."""
    if not len(a) or not len(b):
        return a[:0], b[:0]
    t, others = left[a], right[b]
    first = np.searchsorted(others, t - window[1], side="left")
    count = np.searchsorted(others, t + window[0], side="right") - first
    count = np.maximum(count, 0)
    rows = np.repeat(np.arange(len(a)), count)
    begins = np.repeat(first - np.cumsum(count) + count, count)
    return a[rows], b[begins + np.arange(len(rows))]
