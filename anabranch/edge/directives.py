"""What a device or a bucket of the cloud is told about the views that concern it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from anabranch.edge.definitions import Definition, Stream, View, listed, read_definition, read_view
from anabranch.edge.ownership import Boundary

__all__ = ["Directive", "Hosted", "read_directive", "write_directive"]


@dataclass(frozen=True)
class Hosted:
    """A view that a place computes, or did and still has pairs to find."""

    number: int
    view: View
    bounds: tuple[Boundary, ...]


@dataclass(frozen=True)
class Directive:
    """What an entry changes for a device or a bucket of the cloud; `whole` replaces all before.

    For a device also what it sends: `uploads` of its own streams, as (stream, share, until): rows
    with a priority below the share and a time up to `until` leave the device.
    """

    epoch: int
    whole: bool
    streams: tuple[tuple[int, Stream], ...] = ()  # by number: own ones, and inputs of hosted views
    definitions: tuple[Definition, ...] = ()
    hosted: tuple[Hosted, ...] = ()
    uploads: tuple[tuple[int, float, int], ...] | None = None  # None: as before
    named: tuple[tuple[int, View], ...] = ()  # of which it gets results that others compute


def write_directive(directive: Directive) -> list[Any]:
    """A directive as lists, texts and numbers."""
    return [
        directive.epoch,
        directive.whole,
        [(number, listed(stream)) for number, stream in directive.streams],
        [listed(definition) for definition in directive.definitions],
        [
            (one.number, _briefly(one.view), list(map(_bound, one.bounds)))
            for one in directive.hosted
        ],
        directive.uploads
        and [(stream, _share(share), until) for stream, share, until in directive.uploads],
        [(number, _briefly(view)) for number, view in directive.named],
    ]


def _share(share: float) -> float:
    """The share of nearly all views in one byte, as a whole number."""
    return int(share) if share == 1 else share


def _briefly(view: View) -> list[Any]:
    *others, shares = listed(view)
    return [*others, list(map(_share, shares))]


def _bound(bound: Boundary) -> list[Any]:
    """A boundary without the ends that every newest one has."""
    form = listed(bound)
    return form[:2] if form[2:] == listed(Boundary(0, ""))[2:] else form


def read_directive(form: Any) -> Directive:
    """The directive of `write_directive`."""
    epoch, whole, streams, definitions, hosted, uploads, named = form
    return Directive(
        epoch,
        whole,
        tuple((number, Stream(*stream)) for number, stream in streams),
        tuple(map(read_definition, definitions)),
        tuple(
            Hosted(number, read_view(view), tuple(Boundary(*bound) for bound in bounds))
            for number, view, bounds in hosted
        ),
        None if uploads is None else tuple((s, float(share), until) for s, share, until in uploads),
        tuple((number, read_view(view)) for number, view in named),
    )
