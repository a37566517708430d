"""``where=`` of `nearest`: the terms of a condition between object and query, checked and read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from anabranch.calls import Check
from anabranch.flow.sides import Slot
from anabranch.predicates import Between, Differs, Predicate, Same, Term, Within
from anabranch.predicates.comparable import Form, band_form, key_form, within_form
from anabranch.predicates.naming import columns_of

__all__ = ["Condition", "read_where"]

_LABELS = ("objects", "queries")


@dataclass(frozen=True)
class Condition:
    """One condition on an object and a query.

    `kind` is ``same``, ``differs``, ``within`` (a `limit`) or ``between`` (bounds of each query).
    The slots of one name travel as one column; those of the queries' bounds are named by them.
    All equalities are one test, since rows that are the same in all of them form a part.
    """

    kind: str
    objects: tuple[Slot, ...]
    queries: tuple[Slot, ...]
    limit: float = 0

    @property
    def name(self) -> str:
        """The column of the objects' value."""
        return self.objects[0].name

    @property
    def has_codes(self) -> bool:
        """Whether values are compared for equality alone."""
        return self.kind in ("same", "differs")

    def travelling(self, slots: Sequence[Slot]) -> tuple[Slot, ...]:
        """One slot for each column that travels; keys do so as texts."""
        kind = "text" if self.has_codes else self.objects[0].kind
        return tuple({slot.name: replace(slot, kind=kind) for slot in slots}.values())

    def settings(self) -> str:
        """What stored lists depend on, as text."""
        sides = [
            ", ".join(f"{slot.column} {slot.stored_type}" for slot in side)
            for side in (self.objects, self.queries)
        ]
        limit = f" within {self.limit}" if self.kind == "within" else ""
        bounds = "/".join(slot.name.partition("_")[2] for slot in self.queries)
        return f"{self.kind}: {' | '.join(sides)}{limit} {bounds}".rstrip(" /")


def read_where(check: Check, where: Any) -> tuple[Condition, ...]:
    """The tests of a condition, equalities first; problems go to `check`.

    Examples
    --------
    >>> from anabranch.predicates import same, within
    >>> check = Check(objects={"kind": "string", "price": "double"},
    ...               queries={"kind": "string", "most": "double"})
    >>> tests = read_where(check, within("price", high="most") & same("kind"))
    >>> for test in tests:
    ...     print(test.name, test.settings())
    where0 same: kind string | kind string
    where1 between: price double | most double high
    """
    if where is None:
        return ()
    if not isinstance(where, Predicate):
        check.say(f"where must be a condition such as ab.same('category'), got {where!r}")
        return ()
    for problem in where.problems():
        check.say(problem)
    found = [test for term in where.terms if (test := _test(check, term)) is not None]
    equal = [test for test in found if test.kind == "same"]
    tests = [test for test in found if test.kind != "same"]
    if equal:
        objects, queries = (
            tuple(slot for test in equal for slot in getattr(test, side)) for side in _LABELS
        )
        tests.insert(0, Condition("same", objects, queries))
    return tuple(_numbered(test, n) for n, test in enumerate(tests))


def _numbered(test: Condition, number: int) -> Condition:
    """The test with the names under which its columns travel; keys travel as text."""

    def named(slot: Slot) -> Slot:
        bound = f"_{slot.name}" if slot.name else ""
        return replace(slot, name=f"where{number}{bound}", nullable=True)

    return replace(
        test,
        objects=tuple(map(named, test.objects)),
        queries=tuple(map(named, test.queries)),
    )


def _test(check: Check, term: Term) -> Condition | None:
    """One term as a test; None, with a problem, if it is none."""
    if not isinstance(term, (Same, Differs, Within, Between)):
        check.say(
            f"where={term!r}: nearest takes ab.same(...), ab.differs(...) and ab.within(...) "
            "between object and query, joined by &, and neither | nor ~ab.within(...): ask each "
            "side in a query of its own; vectors are compared by by=, with within= as the largest "
            "distance"
        )
        return None
    sides = [
        [check.column(label, str(name), repr(term)) for name in names]
        for label, names in zip(_LABELS, columns_of(term), strict=True)
    ]
    if not all(name for side in sides for name in side):
        return None
    types = [
        [check.inputs[label][name] for name in side]
        for label, side in zip(_LABELS, sides, strict=True)
    ]
    got = f"objects have {types[0][0]}, queries {' and '.join(dict.fromkeys(types[1]))}"
    form = _form(check, term, [*types[0], *types[1]], got)
    if form is None:
        return None
    bounds = list(term.bounds) if isinstance(term, Between) else [""]
    slots = [
        tuple(
            Slot(name, column, form.kind, type_, scale=form.scale, words=form.words)
            for name, column, type_ in zip(names, side, kinds, strict=True)
        )
        for names, side, kinds in zip(([""], bounds), sides, types, strict=True)
    ]
    return Condition(type(term).__name__.lower(), slots[0], slots[1], form.limit)


def _form(
    check: Check, term: Same | Differs | Within | Between, types: Sequence[str], got: str
) -> Form | None:
    both = (types[0], types[1])
    if isinstance(term, Between):
        return band_form(check, term, types, got)
    if isinstance(term, Within):
        return within_form(check, term, both, got)
    kind = key_form(check, term, both, got)
    return None if kind is None else Form(kind)
