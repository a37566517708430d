"""The log of placements as sentences: what runs where since when, and why it moved."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from anabranch.edge.book import Book
from anabranch.edge.ownership import CLOUD
from anabranch.edge.placements import Entry

__all__ = ["story"]

_SHOWN = 5


def story(entries: Iterable[Entry]) -> list[str]:
    """A paragraph per entry, in order: one line, and one more for each view that moved.

    Examples
    --------
    >>> from anabranch.edge.definitions import Definition, Stream, View
    >>> streams = Stream("gps[ann]", "ann", {}), Stream("gps[bob]", "bob", {})
    >>> near = View("near(ann,bob)", "near", (0, 1))
    >>> first = Entry(0, streams, (Definition("near", "pairs", (5, 5)),), ((near, "cloud"),))
    >>> why = {"why": "staying in the cloud has cost 6.4 k, moving to bob costs 2.8 k",
    ...        "cost": 900.0, "predicted": 300.0}
    >>> cause = {"rule": "rates", "moves": {"near(ann,bob)": why}}
    >>> for line in story([first, Entry(1, moves=((0, "bob"),), cause=cause)]): print(line)
    entry 0: 1 view begins, in the cloud.
    entry 1: 1 view moves (rates); 900 a second before, 300 predicted, 67 % less.
      near(ann,bob) from the cloud to bob: staying in the cloud has cost 6.4 k, moving to bob \
costs 2.8 k.
    """
    book, lines = Book(), []
    for entry in entries:
        old = {view: book.place(view) for view, _ in entry.moves}
        book.enact(entry)
        clock = f" ({_moment(entry.written)})" if entry.written else ""
        lines.append(f"entry {entry.number}{clock}: {'; '.join(_parts(entry, book))}.")
        lines += _moved(entry, book, old)
        for device, ahead in entry.cause.get("clocks", {}).items():
            way = "ahead" if ahead > 0 else "behind"
            lines.append(f"  The clock of {device} is {abs(ahead):,.0f} s {way}.")
        late = [f"{_count(rows, 'row')} of {n}" for n, rows in entry.cause.get("late", {}).items()]
        lines += [f"  Late, and left out so far: {_listed(late)}."] if late else []
        others = [f"{what}, {count:,}" for what, count in entry.cause.get("left out", {}).items()]
        lines += [f"  Left out so far: {'; '.join(others)}."] if others else []
    return lines


def _parts(entry: Entry, book: Book) -> list[str]:
    parts = []
    if entry.views:
        places = [place for _, place in entry.views]
        cloud = places.count(CLOUD)
        devices = len(set(places) - {CLOUD})
        where = [f"{len(places) - cloud} on {_count(devices, 'device')}"] if devices else []
        where += [f"{cloud} in the cloud"] if cloud else []
        at = "in the cloud" if not devices else ", ".join(where)
        parts.append(f"{_count(len(places), 'view')} {_verb('begin', len(places))}, {at}")
    if entry.moves:
        count, rule = len(entry.moves), entry.cause.get("rule", "by hand")
        parts.append(f"{_count(count, 'view')} {_verb('move', count)} ({rule})")
        # All views that move at once have the same.
        figures: Mapping[str, Any] = next(iter(entry.cause.get("moves", {}).values()), {})
        before, after = figures.get("cost"), figures.get("predicted")
        if before and after is not None:
            less = f"{1 - after / before:.0%}".replace("%", " %")
            parts.append(f"{before:,.3g} a second before, {after:,.3g} predicted, {less} less")
    if entry.removed:
        parts.append(f"{_count(len(entry.removed), 'view')} {_verb('end', len(entry.removed))}")
    if entry.presumed:
        names = [book.streams[stream].name for stream, _ in entry.presumed]
        parts.append(f"silent, and no longer waited for: {_listed(names)}")
    return parts or ["nothing changes"]


def _moved(entry: Entry, book: Book, old: Mapping[int, str]) -> list[str]:
    causes: Mapping[str, Any] = entry.cause.get("moves", {})
    lines = []
    for view, place in entry.moves[:_SHOWN]:
        name = book.views[view].name
        why = causes.get(name, {}).get("why")
        because = f": {why}" if why else ""
        lines.append(f"  {name} from {_place(old[view])} to {_place(place)}{because}.")
    more = len(entry.moves) - _SHOWN
    return [*lines, f"  and {more:,} more"] if more > 0 else lines


def _place(place: str) -> str:
    return "the cloud" if place == CLOUD else place


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"


def _verb(verb: str, number: int) -> str:
    return f"{verb}s" if number == 1 else verb


def _listed(names: list[str]) -> str:
    more = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {more:,} more" if more > 0 else "")


def _moment(written: str) -> str:
    return f"{datetime.fromisoformat(written):%Y-%m-%d %H:%M:%S} UTC"
