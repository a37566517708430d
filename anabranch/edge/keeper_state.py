"""The keeper without socket, thread or clock: wishes in, entries out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from anabranch.calls import Check
from anabranch.edge.book import Book
from anabranch.edge.definitions import Definition, Stream, View
from anabranch.edge.naming import key_problems
from anabranch.edge.ownership import NOWHERE
from anabranch.edge.placements import Entry
from anabranch.errors import InvalidCall
from anabranch.predicates.conditions import PairConditions, RowConditions

__all__ = ["KeeperState"]


class KeeperState:
    """Decides entries; its shell writes each to the log, then publishes it on ``k`` of UP.

    `book` is the relay's: what has been folded. An entry is decided when all before have been.

    Examples
    --------
    >>> book = Book()
    >>> keeper = KeeperState(book)
    >>> streams = Stream("gps[ann]", "ann", {}), Stream("gps[bob]", "bob", {})
    >>> keeper.add(streams, [Definition("near", "pairs", (5, 5))],
    ...            [(View("near(ann,bob)", "near", (0, 1)), "cloud")])
    >>> _ = book.enact(keeper.next_entry())
    >>> keeper.move(0, "bob"), keeper.next_entry().moves, keeper.next_entry()
    (True, ((0, 'bob'),), None)
    """

    def __init__(self, book: Book) -> None:
        self._book = book
        self._ahead: list[Entry] = []  # decided, and perhaps not folded
        self._wishes = Entry(-1)
        self._causes: dict[str, Any] = {}
        self.left: frozenset[str] = frozenset()  # devices that are not there for now

    def add(
        self,
        streams: Sequence[Stream],
        definitions: Iterable[Definition],
        views: Iterable[tuple[View, str]],
    ) -> None:
        """Wish for views, each at a place; their inputs are counted in `streams`.

        Streams, definitions and views that are known by name are not added again. A view that has
        ended begins anew: with another number, so that its results are no others' than its own. One
        that is there over other streams or with other shares ends, and begins anew with these.
        Views over devices that have left wait until these are back.
        """
        wish, book = self._wishes, self._book
        ahead = [*self.waiting(), wish]
        known = [stream.name for stream in book.streams]
        known += [stream.name for entry in ahead for stream in entry.streams]
        numbers = {name: number for number, name in enumerate(known)}
        fresh = [stream for stream in streams if stream.name not in numbers]
        numbers |= {stream.name: len(known) + k for k, stream in enumerate(fresh)}
        by_name = {definition.name: definition for definition in definitions}
        old = book.definitions | {d.name: d for entry in ahead for d in entry.definitions}
        changed = [name for name in by_name if old.get(name, by_name[name]) != by_name[name]]
        check = Check()
        check.problems += key_problems(stream.home for stream in streams)
        if changed:
            names = ", ".join(map(repr, changed))
            check.say(f"view {names} is there with another definition: give the new one a new name")
        asked, tried = [], set[str]()
        for view, place in views:
            check.problems += _problems(by_name.get(view.definition), view, streams, tried)
            if self.left.isdisjoint(streams[k].home for k in view.inputs):
                inputs = tuple(numbers[streams[k].name] for k in view.inputs)
                asked.append((replace(view, inputs=inputs), place))
        check.refuse("view")
        there = self._there(ahead)
        added = []
        for view, place in asked:
            number, runs = there.get(view.name, (None, None))
            if runs is not None and runs != view and number is not None and self.remove(number):
                runs = None
            if runs is None:
                added.append((view, place))
        new = [by_name[name] for name in by_name if name not in old]
        wish = self._wishes
        self._wishes = replace(
            wish,
            streams=(*wish.streams, *fresh),
            definitions=(*wish.definitions, *new),
            views=(*wish.views, *added),
        )

    def _there(self, ahead: Iterable[Entry]) -> dict[str, tuple[int | None, View]]:
        """Views whose end is not decided, by name; those that have begun with their number."""
        book, ahead = self._book, list(ahead)
        ended = {number for entry in ahead for number in entry.removed}
        found: dict[str, tuple[int | None, View]] = {
            view.name: (number, view)
            for number, view in enumerate(book.views)
            if number not in ended and book.place(number) != NOWHERE
        }
        return found | {view.name: (None, view) for entry in ahead for view, _ in entry.views}

    def move(self, view: int, place: str) -> bool:
        """Wish for a view at another place; False if it is there, has ended, or is yet moving."""
        book, wish = self._book, self._wishes
        ahead = [*self.waiting(), wish]
        taken = {n for entry in ahead for n in (*entry.removed, *(move[0] for move in entry.moves))}
        if view in taken or not book.has_moved(view) or book.place(view) in (place, NOWHERE):
            return False
        self._wishes = replace(wish, moves=(*wish.moves, (view, place)))
        return True

    def remove(self, view: int) -> bool:
        """Wish for a view to end, also while it moves; False if it has, or that is decided.

        A move that is not decided yet is left out.
        """
        wish = self._wishes
        ended = {number for entry in [*self.waiting(), wish] for number in entry.removed}
        if view in ended or self._book.place(view) == NOWHERE:
            return False
        moves = tuple(move for move in wish.moves if move[0] != view)
        self._wishes = replace(wish, moves=moves, removed=(*wish.removed, view))
        return True

    def without(self, devices: Mapping[str, bool]) -> None:
        """End the views over streams of devices that have left; until they are back none begins.

        Of those of which that is not sure, none ends either.
        """
        self.left, book = frozenset(devices), self._book
        mine = [k for k, stream in enumerate(book.streams if self.left else ())]
        mine = [k for k in mine if devices.get(book.streams[k].home)]
        for view in sorted({view for stream in mine for view in book.by_stream.get(stream, ())}):
            if book.place(view) != NOWHERE and self.remove(view):
                self.because({"rule": "bye"})

    def presume(self, stream: int, watermark: int) -> None:
        """A stream is silent: rows up to this watermark that have not come are late from now on."""
        presumed = (*self._wishes.presumed, (stream, watermark))
        self._wishes = replace(self._wishes, presumed=presumed)

    def because(self, cause: Mapping[str, Any]) -> None:
        """Note why the next entry is written."""
        self._causes.update(cause)

    def next_entry(self) -> Entry | None:
        """What is due now: to be written to the log, and then published."""
        empty = Entry(-1)
        if self._wishes == empty or self.waiting():
            return None
        entry = replace(self._wishes, number=self._book.epoch + 1, cause=self._causes)
        self._wishes, self._causes, self._ahead = empty, {}, [entry]
        return entry

    def unfolded(self, entries: Iterable[Entry]) -> list[Entry]:
        """Entries of the log that are to be published again after a restart."""
        self._ahead = list(entries)
        return self.waiting()

    def waiting(self) -> list[Entry]:
        """Entries that were decided and are not folded, oldest first."""
        self._ahead = [entry for entry in self._ahead if entry.number > self._book.epoch]
        return list(self._ahead)


def _problems(
    definition: Definition | None, view: View, streams: Sequence[Stream], tried: set[str]
) -> list[str]:
    """What is wrong with a view; of a definition over the same columns it is said once.

    `tried` holds what was looked at: thousands of views share a definition.
    """
    if definition is None:
        return [f"view {view.name!r} has no definition {view.definition!r}"]
    wanted = {"pairs": 2, "each": 1}.get(definition.kind)
    if wanted is None:
        return [f"kind must be 'pairs' or 'each', got {definition.kind!r}"]
    if len(view.inputs) != wanted or len(set(view.inputs)) != wanted:
        return [f"view {view.name!r} needs {wanted} different streams, got {len(view.inputs)}"]
    types = [streams[number].columns for number in view.inputs]
    same = repr((definition.name, types))
    if same in tried:
        return []
    tried.add(same)
    problems = [
        f"view {view.name!r} keeps {name!r}, and the stream has {', '.join(columns) or 'nothing'}"
        for names, columns in zip(definition.keep, types, strict=False)
        for name in names
        if name not in columns
    ]
    try:
        kind: Any = PairConditions if wanted == 2 else RowConditions
        kind(definition.where, *types)
    except InvalidCall as error:
        problems += error.problems
    return problems
