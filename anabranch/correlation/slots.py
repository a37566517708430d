"""From the terms of a predicate to *slots*: which columns are compared, and in which form."""

from __future__ import annotations

import re
from collections.abc import Sequence

from anabranch.calls import COUNTS, ML_VECTOR, VECTORS, Check, unwrapped
from anabranch.correlation.emd.measure import EmdMeasure
from anabranch.flow.sides import Slot, in_roles, slot_column
from anabranch.plans.plan import SIDES
from anabranch.predicates import (
    Between,
    Compared,
    Custom,
    Either,
    Predicate,
    Term,
    VectorMeasure,
    Within,
)
from anabranch.predicates.comparable import Form, key_form, within_form
from anabranch.predicates.globe import Globe
from anabranch.predicates.naming import columns_of
from anabranch.predicates.sets import SetMeasure
from anabranch.predicates.texts import TextMeasure

__all__ = ["Slots"]

_LETTERS = re.compile(r"string|varchar\(.*\)|char\(.*\)")


class Slots:
    """Compared columns of both sides, with the limits of ``within`` in their columns' units."""

    def __init__(self, check: Check, labels: Sequence[str] = SIDES) -> None:
        self.check, self.labels = check, labels
        self.found: tuple[list[Slot], list[Slot]] = ([], [])
        self.limits: dict[str, float] = {}
        self.forms: dict[str, Form] = {}

    def read(self, where: Predicate, drops: bool = False) -> None:
        """The slots of every term whose columns are there and can be compared.

        Rows that cannot be compared may be dropped if `drops`.
        """
        inside = [isinstance(term, Either) for term in where.terms for _ in term.leaves]
        for number, (term, optional) in enumerate(zip(where.leaves, inside, strict=True)):
            columns = [
                [self.check.column(label, str(name), repr(term)) for name in names]
                for label, names in zip(self.labels, columns_of(term), strict=True)
            ]
            if not all(name for names in columns for name in names) or not all(columns):
                continue
            types = [
                [self.check.inputs[label][name] for name in names]
                for label, names in zip(self.labels, columns, strict=True)
            ]
            kind = self._kind(slot_column(number), term.plain, types[0][0], types[1][0])
            if kind is None:
                continue
            measure = getattr(term, "measure", term.plain)
            dim, label = getattr(measure, "dim", None), getattr(measure, "label", "")
            form = self.forms.get(slot_column(number), Form(kind))
            for n in (0, 1):
                for place, (name, type_) in enumerate(zip(columns[n], types[n], strict=True)):
                    slot = slot_column(number, place if kind == "raw" else None)
                    self.found[n].append(
                        Slot(slot, name, kind, type_, dim, label, form.scale, form.words, optional)
                    )
        self._demand_lengths(drops)
        if len(set(self.labels)) == 1:
            self._share()

    def _share(self) -> None:
        """Have rows of one stream carry what they are compared by in either role.

        Where that is the same column, it is stored once.
        """
        terms = dict.fromkeys(slot.term for slot in self.found[0])
        sides = [[[s for s in of if s.term == term] for of in self.found] for term in terms]
        self.found[0][:] = [slot for both in sides for slot in in_roles(*both)]

    def _demand_lengths(self, drops: bool) -> None:
        """Lengths must be named where rows may be dropped or values may be null."""
        for slot in self.found[0]:
            long = slot.kind == "vector" or (slot.kind == "bits" and slot.type == "binary")
            if not long or slot.dim is not None:
                continue
            length = f"the length of {slot.column!r}, ab.{slot.measure.split()[0]}(..., dim=64)"
            if drops:
                self.check.say(
                    f"bad_rows='drop' needs {length}, or it would depend on what arrives first "
                    "which rows are dropped"
                )
            elif slot.optional:
                self.check.say(f"inside | a value may be null, and | needs {length}, to hold it")

    def _kind(self, name: str, term: Term, a: str, b: str) -> str | None:
        got = f"left is {a}, right is {b}"
        if len(set(self.labels)) == 1:
            (left, *_), (right, *_) = columns_of(term)
            got = f"it is {a}" if left == right else f"{left!r} is {a}, {right!r} is {b}"
        measure = term.measure if isinstance(term, Compared) else term
        if isinstance(measure, Globe) and term.problems():
            return None  # which has been said
        if isinstance(measure, Custom):
            return "raw"
        if isinstance(measure, VectorMeasure):
            return self._vector(term, measure, a, b, got)
        if isinstance(measure, TextMeasure):
            return self._text(term, a, b, got)
        if isinstance(measure, SetMeasure):
            return self._set(term, a, b, got)
        if isinstance(term, Between):
            self.check.say(
                f"{term!r}: bounds in columns are for ab.nearest, whose queries have them; here "
                "give a limit, for example ab.within('price', 0.5)"
            )
            return None
        if isinstance(term, Within):
            form = within_form(self.check, term, (a, b), got)
            if form is not None:
                self.limits[name], self.forms[name] = form.limit, form
            return None if form is None else form.kind
        return key_form(self.check, term, (a, b), got)

    def _vector(self, term: Term, measure: VectorMeasure, a: str, b: str, got: str) -> str | None:
        counted = isinstance(measure, EmdMeasure)
        allowed = VECTORS | COUNTS if counted else VECTORS
        if a in allowed and b in allowed:
            return "vector"
        wanted = "array<float> or array<double>" + (", or arrays of whole numbers" * counted)
        if measure.kind == "hamming":
            if a == b and a in ("binary", "bigint"):
                return "bits"
            wanted = "array<float>, array<double>, or binary or bigint on both sides"
        hint = ""
        for column, type_ in ((measure.right, b), (measure.left, a)):
            if type_ not in allowed and type_.startswith("array<"):
                hint = f"; cast it, F.col({column!r}).cast('array<double>')"
            if type_ == ML_VECTOR:
                hint = f"; {unwrapped(str(column))}"
        self.check.say(f"{term!r} compares {wanted}; {got}{hint}")
        return None

    def _text(self, term: Term, a: str, b: str, got: str) -> str | None:
        if all(_LETTERS.fullmatch(kind) for kind in (a, b)):
            return "string"
        self.check.say(f"{term!r} compares texts; {got}: cast to string")
        return None

    def _set(self, term: Term, a: str, b: str, got: str) -> str | None:
        if {a, b} <= COUNTS or {a, b} == {"array<string>"}:
            return "set"
        self.check.say(
            f"{term!r} compares sets, array<string> or arrays of whole numbers on both sides; "
            f"{got}: cast, or make an array of a text with split()"
        )
        return None
