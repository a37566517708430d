"""What the entries of a log add up to: streams, views, and where each has been.

The relay and the keeper hold one each. Boundaries are retired here as well: once every source of a
view has said that it adopted a later boundary, the newest time that any of them stamped before is
known, and with it the last time at which the older place is needed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

from anabranch.edge.definitions import Definition, Stream, View, listed, read_definition, read_view
from anabranch.edge.directives import Directive, Hosted
from anabranch.edge.ownership import (
    CLOUD,
    EARLIEST,
    LATEST,
    NOWHERE,
    Boundary,
    horizon,
    reach,
    retire,
)
from anabranch.edge.placements import Entry
from anabranch.errors import StateMismatch

__all__ = ["Book"]


class Book:
    """The present state of a log of placements.

    Examples
    --------
    >>> near = Definition("near", "pairs", (30, 30))
    >>> streams = Stream("gps[ann]", "ann", {}), Stream("gps[bob]", "bob", {})
    >>> book = Book()
    >>> book.enact(Entry(0, streams, (near,), ((View("near(ann,bob)", "near", (0, 1)), "cloud"),)))
    [0]
    >>> book.enact(Entry(1, moves=((0, "bob"),)))
    [0]
    >>> book.uploads("bob")   # the view is at bob, but the cloud still needs his rows
    ((1, 1.0, 9223372036854775807),)
    >>> book.adopted("bob", 1, 100), book.has_moved(0)
    ([], False)
    >>> book.adopted("ann", 1, 120), book.has_moved(0)
    ([0], True)
    >>> book.uploads("bob")   # up to 120 + 30
    ((1, 1.0, 150),)
    """

    def __init__(self) -> None:
        self.epoch = -1
        self.streams: list[Stream] = []
        self.definitions: dict[str, Definition] = {}
        self.views: list[View] = []
        self.bounds: list[tuple[Boundary, ...]] = []
        self.hosts: list[set[str]] = []  # of each view, all places that it ever had
        self.by_stream: dict[int, list[int]] = {}  # numbers of views
        self._reports: dict[str, list[tuple[int, int]]] = {}
        self._watermarks: dict[int, int] = {}
        self.doubtful: dict[int, int] = {}  # up to where rows may have been late, by stream

    def enact(self, entry: Entry) -> list[int]:
        """Take the next entry; the views that it changes."""
        if entry.number != self.epoch + 1:
            raise StateMismatch(f"entry {entry.number} does not follow entry {self.epoch}")
        self.epoch = entry.number
        self.streams += entry.streams
        self.definitions.update((found.name, found) for found in entry.definitions)
        changed = []
        for view, place in entry.views:
            changed.append(len(self.views))
            for stream in set(view.inputs):
                self.by_stream.setdefault(stream, []).append(len(self.views))
            self.views.append(view)
            self.bounds.append((Boundary(self.epoch, place),))
            self.hosts.append({place})
        ends = [(number, Boundary(self.epoch, NOWHERE, "backfill")) for number in entry.removed]
        moves = [(number, Boundary(self.epoch, place)) for number, place in entry.moves]
        for number, bound in moves + ends:
            changed.append(number)
            self.hosts[number].add(bound.place)
            self.bounds[number] = (*self._unfinished(number), bound)
        for stream, watermark in entry.presumed:
            self.promised(stream, watermark)
        silent = {view for stream, _ in entry.presumed for view in self.by_stream.get(stream, ())}
        ended = [v for v in sorted(silent) if self.place(v) == NOWHERE and self._retire(v)]
        return list(dict.fromkeys(changed + ended))

    def enact_again(self, entry: Entry) -> None:
        """Take an entry of before the broker lost messages.

        Its presumptions do not count: rows that came in time are sent again after it. But rows up
        to there may have been late.
        """
        self.enact(replace(entry, presumed=()))
        for stream, watermark in entry.presumed:
            self.doubtful[stream] = max(watermark, self.doubtful.get(stream, EARLIEST))

    def _unfinished(self, view: int) -> tuple[Boundary, ...]:
        """The boundaries of a view without the first ones, of which all pairs have been sent."""
        heard = min(self.watermark(stream) for stream in self.views[view].inputs)
        bounds = self.bounds[view]
        first = next(k for k, bound in enumerate(bounds) if bound.until > heard)
        return bounds[first:]

    def watermark(self, stream: int) -> int:
        """Up to where no further row of a stream comes."""
        return self._watermarks.get(stream, EARLIEST)

    def promised(self, stream: int, watermark: int) -> None:
        """No further row of a stream comes up to this time, or it is late."""
        self._watermarks[stream] = max(watermark, self.watermark(stream))

    def adopted(self, device: str, epoch: int, newest: int) -> list[int]:
        """A device has adopted an entry; `newest` is the time of its newest row stamped below it.

        The views of which a boundary is retired by it are returned.
        """
        reports = self._reports.setdefault(device, [])
        if reports and reports[-1][0] >= epoch:
            return []
        reports.append((epoch, newest))
        mine = [k for k, stream in enumerate(self.streams) if stream.home == device]
        views = sorted({view for stream in mine for view in self.by_stream.get(stream, ())})
        retired = [view for view in views if self._retire(view)]
        open_ = [b.epoch for v in views for b in self.bounds[v][1:] if not self.has_moved(v)]
        oldest = min(open_, default=LATEST)
        while len(reports) > 1 and reports[0][0] < oldest:
            del reports[0]  # no open boundary asks for it
        return retired

    def _retire(self, view: int) -> bool:
        """Retire the boundaries of a view whose successors all sources have adopted."""
        before = self.bounds[view]
        window = max(self.definitions[self.views[view].definition].window)
        homes = self.homes(view)
        for bound, later in pairwise(before):
            if later.place == NOWHERE:
                if bound.until == LATEST and self._is_over(view, later.epoch, window):
                    # No row that is yet to come is needed anywhere.
                    self.bounds[view] = tuple(replace(b, until=EARLIEST) for b in self.bounds[view])
            elif bound.until == LATEST:
                found = [self._newest(home, later.epoch) for home in homes]
                if None in found:
                    continue
                until = max(found) + window  # type: ignore[type-var, operator]
                self.bounds[view] = retire(self.bounds[view], bound.epoch, until)
        return self.bounds[view] != before

    def _is_over(self, view: int, epoch: int, window: int) -> bool:
        """Whether a view that ends at an epoch needs no row that is yet to come.

        Its rows are stamped below the epoch. Those of a source that has adopted it have come. Rows
        of another one, which may be lost for good, meet them up to a window later and no further.
        """
        newest = {home: self._newest(home, epoch) for home in self.homes(view)}
        known = [found for found in newest.values() if found is not None]
        if not known:
            return False
        waiting = [s for s in self.views[view].inputs if newest[self.streams[s].home] is None]
        return all(self.watermark(stream) >= min(known) + window for stream in waiting)

    def awaits(self, stream: int) -> bool:
        """Whether a view needs to know how far a stream is: one that runs, or has yet to end."""
        home = self.streams[stream].home
        for view in self.by_stream.get(stream, ()):
            last = self.bounds[view][-1]
            if last.place != NOWHERE:
                return True
            others = self.homes(view) - {home}
            if (
                not self.has_moved(view)
                and self._newest(home, last.epoch) is None
                and any(self._newest(other, last.epoch) is not None for other in others)
            ):
                return True
        return False

    def _newest(self, device: str, epoch: int) -> int | None:
        """The newest time that a device stamped below an epoch; None if it may yet do so."""
        reports = self._reports.get(device, ())
        return next((newest for adopted, newest in reports if adopted >= epoch), None)

    def has_moved(self, view: int) -> bool:
        """Whether all boundaries of a view but the last are retired."""
        return all(bound.until < LATEST for bound in self.bounds[view][:-1])

    def place(self, view: int) -> str:
        """Where a view is now."""
        return self.bounds[view][-1].place

    def uploads(self, device: str) -> tuple[tuple[int, float, int], ...]:
        """What a device sends of its streams: (stream, share, until)."""
        found: dict[tuple[int, int], float] = {}
        for number, stream in enumerate(self.streams):
            for view in self.by_stream.get(number, ()) if stream.home == device else ():
                for place, until in reach(self.bounds[view], self.epoch):
                    if place != device:
                        share = max(self.share(view, number), found.get((number, until), 0.0))
                        found[number, until] = share
        return tuple((stream, share, until) for (stream, until), share in sorted(found.items()))

    def takers(self, stream: int, stamp: int) -> Iterator[tuple[int, str, int]]:
        """Who needs rows of a stream with a stamp besides its own device: (view, place, until)."""
        for view in self.by_stream.get(stream, ()):
            for place, until in reach(self.bounds[view], stamp):
                if place != self.streams[stream].home:
                    yield view, place, until

    def share(self, view: int, stream: int) -> float:
        """The largest share of a stream that a view asks for."""
        asked = self.views[view]
        return max(s for k, s in zip(asked.inputs, asked.shares, strict=False) if k == stream)

    def _is_finished(self, view: int, place: str) -> bool:
        """Whether a place has been sent all that it needs for a view."""
        heard = min(self.watermark(stream) for stream in self.views[view].inputs)
        return horizon(self.bounds[view], place) <= heard

    def directive(
        self, place: str, views: Iterable[int], whole: bool, device: bool = True
    ) -> Directive:
        """What a place must know of some views; of all that it yet needs if it is `whole`."""
        views = list(views)
        hosted = tuple(
            Hosted(view, self.views[view], self.bounds[view])
            for view in views
            if any(bound.place == place for bound in self.bounds[view])
            and not (whole and self._is_finished(view, place))
        )
        needed = {stream for found in hosted for stream in found.view.inputs}
        needed |= {k for k, stream in enumerate(self.streams) if device and stream.home == place}
        here = {found.number for found in hosted}
        named = tuple(
            (view, self.views[view])
            for view in views
            if view not in here and place != CLOUD and place in self.receivers(view)
        )
        known = [*(found.view for found in hosted), *(view for _, view in named)]
        names = dict.fromkeys(view.definition for view in known)
        return Directive(
            self.epoch,
            whole,
            tuple((stream, self.streams[stream]) for stream in sorted(needed)),
            tuple(self.definitions[name] for name in names),
            hosted,
            self.uploads(place) if device else None,
            named,
        )

    def homes(self, view: int) -> set[str]:
        """The devices whose streams a view is over."""
        return {self.streams[stream].home for stream in self.views[view].inputs}

    def receivers(self, view: int) -> set[str]:
        """Who gets the results of a view, wherever they are computed."""
        deliver = self.definitions[self.views[view].definition].deliver
        found = {CLOUD} if "cloud" in deliver else set()
        return found | (self.homes(view) if "inputs" in deliver else set())

    def to_form(self) -> Any:
        """All of it as lists, texts and numbers."""
        return [
            self.epoch,
            [listed(stream) for stream in self.streams],
            [listed(definition) for definition in self.definitions.values()],
            [listed(view) for view in self.views],
            [[listed(bound) for bound in bounds] for bounds in self.bounds],
            [sorted(places) for places in self.hosts],
            self._reports,
            self._watermarks,
            self.doubtful,
        ]

    @classmethod
    def from_form(cls, form: Any) -> Book:
        """What `to_form` wrote."""
        book = cls()
        book.epoch, streams, definitions, views, bounds, hosts, reports, *rest = form
        book.streams = [Stream(*stream) for stream in streams]
        book.definitions = {d.name: d for d in map(read_definition, definitions)}
        book.views = list(map(read_view, views))
        book.hosts = list(map(set, hosts))
        book._watermarks, book.doubtful = rest
        book.bounds = [tuple(Boundary(*bound) for bound in of) for of in bounds]
        for number, view in enumerate(book.views):
            for stream in set(view.inputs):
                book.by_stream.setdefault(stream, []).append(number)
        book._reports = {device: [(e, t) for e, t in of] for device, of in reports.items()}
        return book
