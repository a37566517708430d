"""The law: every pair has one owner, and both of its rows are brought there."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.edge.book import Book
from anabranch.edge.definitions import Definition, Stream, View
from anabranch.edge.ownership import NOWHERE, Boundary, owner, owners, reach
from anabranch.edge.placements import Entry
from tests.examples import examples

PLACES = ["cloud", "ann", "bob"]


@st.composite
def boundaries(draw: st.DrawFn, kinds: tuple[str, ...]) -> tuple[Boundary, ...]:
    epochs = draw(st.sets(st.integers(0, 12), min_size=1, max_size=5))
    return tuple(
        Boundary(epoch, draw(st.sampled_from(PLACES)), draw(st.sampled_from(kinds)))
        for epoch in sorted(epochs)
    )


def spelled_out(bounds: tuple[Boundary, ...], i: int, j: int) -> Boundary | None:
    """The owner as the text of the law has it."""
    i, j = min(i, j), max(i, j)
    before = [bound for bound in bounds if bound.epoch <= i]
    if not before:
        return None
    between = [b for b in bounds if i < b.epoch <= j and b.kind == "backfill"]
    return (between or before)[-1]


@given(boundaries(("overlap", "backfill")))
def test_the_owner_is_the_laws(bounds: tuple[Boundary, ...]) -> None:
    stamps = np.arange(14)
    many = owners(bounds, *(part.ravel() for part in np.meshgrid(stamps, stamps, indexing="ij")))
    for (i, j), number in zip(itertools.product(stamps, stamps), many, strict=True):
        law = spelled_out(bounds, i, j)
        assert owner(bounds, i, j) == number
        assert (None if number < 0 else bounds[number]) is law


@given(boundaries(("overlap",)), st.integers(0, 13), st.integers(0, 13))
def test_both_rows_reach_the_owner_of_a_pair(bounds: tuple[Boundary, ...], i: int, j: int) -> None:
    law = spelled_out(bounds, i, j)
    for stamp in (i, j):
        assert law is None or law.place in {place for place, _ in reach(bounds, stamp)}


@given(boundaries(("overlap",)), st.integers(0, 13))
def test_a_view_that_has_ended_needs_no_rows(bounds: tuple[Boundary, ...], stamp: int) -> None:
    ended = (*bounds, Boundary(13, NOWHERE, "backfill"))
    assert owner(ended, bounds[0].epoch, 13) == len(bounds)
    assert reach(ended, 13) == []
    assert stamp == 13 or reach(ended, stamp) == reach(bounds, stamp)


# ---------------------------------------------------------------- retirement

WINDOW = 10


@st.composite
def lives(draw: st.DrawFn) -> tuple[list[str], dict[str, list[tuple[int, int]]]]:
    """Places of a view by epoch, and for either device times at which it puts a row or adopts."""
    places = draw(st.lists(st.sampled_from(PLACES), min_size=2, max_size=4))
    lives = {}
    for device in ("ann", "bob"):
        times = sorted(draw(st.lists(st.integers(0, 60), min_size=3, max_size=12)))
        adopt = sorted(draw(st.lists(st.sampled_from(times), max_size=len(places) - 1)))
        stamps = [sum(at < t for at in adopt) for t in times]
        lives[device] = list(zip(times, stamps, strict=True))
    return places, lives


@settings(max_examples=examples(100))
@given(lives())
def test_rows_after_a_retirement_meet_none_before(
    given: tuple[list[str], dict[str, list[tuple[int, int]]]],
) -> None:
    """Sources that adopt at any time: a pair's owner gets both rows, though places are retired."""
    places, rows = given
    book = Book()
    streams = tuple(Stream(f"gps[{device}]", device, {}) for device in rows)
    view = View("near", "near", (0, 1))
    near = Definition("near", "pairs", (WINDOW, WINDOW))
    book.enact(Entry(0, streams, (near,), ((view, places[0]),)))
    for place in places[1:]:
        book.enact(Entry(book.epoch + 1, moves=((0, place),)))
    for device, mine in rows.items():
        for epoch in range(1, len(places)):
            before = [t for t, stamp in mine if stamp < epoch]
            if any(stamp >= epoch for _, stamp in mine):
                book.adopted(device, epoch, max(before, default=-1))
    bounds = book.bounds[0]
    for (s, i), (t, j) in itertools.product(rows["ann"], rows["bob"]):
        if abs(s - t) <= WINDOW:
            place = bounds[owner(bounds, i, j)].place
            for time, stamp in ((s, i), (t, j)):
                assert place in {to for to, until in reach(bounds, stamp) if time <= until}
