"""Which types of two columns can be compared, and in which form: keys, and values in a band."""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import Any, NamedTuple

from anabranch.calls import (
    COLLATED,
    DECIMAL,
    EXACT,
    FLOATING,
    INTEGRAL,
    TEXT,
    TIMES,
    Check,
    is_number,
    microseconds,
)
from anabranch.predicates.terms import Term
from anabranch.predicates.values import Within

__all__ = ["Form", "band_form", "key_form", "within_form"]

_DAY = 86_400_000_000
_DIGITS = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 19}


class Form(NamedTuple):
    """How values of a band are compared: ``int``, ``float`` or ``decimal``, of a `scale`.

    So many 64-bit `words` hold every number of the types. `limit` is that of ``within``, in the
    unit of the values.
    """

    kind: str
    scale: int = 0
    words: int = 1
    limit: float = 0


def key_form(check: Check, term: Term, types: tuple[str, str], got: str) -> str | None:
    """``code`` or ``text`` for columns that can be equal; None, with a problem, if they cannot.

    `got` says in words what the types are.
    """
    a, b = types
    if (a == b and a in TIMES) or {a, b} <= INTEGRAL:
        return "code"
    if a == b and TEXT.fullmatch(a):
        return "text"
    if a in FLOATING or b in FLOATING:
        check.say(
            f"{term!r}: equality of floating-point numbers ({got}) is not dependable; use "
            "ab.within with a small limit, or cast to decimal or string"
        )
    elif COLLATED in a or COLLATED in b:
        check.say(
            f"{term!r}: {got}, and texts are the same only if all their letters are: cast both "
            "to string, and make them alike before, as with lower()"
        )
    elif a == b:
        check.say(f"{term!r} does not compare {a}: cast both, for example to string")
    else:
        _unlike(check, term, got)
    return None


def within_form(check: Check, term: Within, types: tuple[str, str], got: str) -> Form | None:
    """The form of two columns within a limit; None, with a problem, if they have none."""
    limit: Any = term.limit
    number = is_number(limit, EXACT)
    form = band_form(check, term, types, got)
    if form is None:
        return None
    if types[0] in TIMES:
        if number and types[0] != "date":
            check.say(f"{term!r}: for timestamps write the limit as a duration such as '5 minutes'")
        elif not term.own_problems():  # which are reported already
            span = int(limit) * _DAY if number else microseconds(limit)
            return form._replace(limit=span // _DAY if types[0] == "date" else span)
    elif not number:
        if not term.own_problems():
            check.say(
                f"{term!r}: for numbers the limit must be a number such as 0.5, "
                f"Decimal('0.01') or '0.01'; {got}"
            )
    elif form.kind == "decimal":
        return form._replace(limit=int(term.limit_as_written * 10**form.scale // 1))
    else:
        # Distances of whole numbers are whole, and a float need not hold them.
        return form._replace(limit=int(limit) if form.kind == "int" else term.limit_as_float)
    return None


def band_form(check: Check, term: Term, types: Sequence[str], got: str) -> Form | None:
    """The form of columns that have an order; None, with a problem, if they share none."""
    kinds = set(types)
    if kinds & TIMES:
        if len(kinds) == 1:
            return Form("int")
        _unlike(check, term, got)
    elif not all(kind in INTEGRAL | FLOATING or DECIMAL.fullmatch(kind) for kind in kinds):
        check.say(f"{term!r} compares numbers, dates or timestamps; {got}: cast one")
    elif kinds <= INTEGRAL | FLOATING:
        return Form("int" if kinds <= INTEGRAL else "float")
    elif kinds & FLOATING:
        check.say(
            f"{term!r} compares decimals exactly, and floating-point numbers are not exact; "
            f"{got}: cast both to decimal, or both to double"
        )
    else:
        return _decimal(kinds)
    return None


def _unlike(check: Check, term: Term, got: str) -> None:
    check.say(f"{term!r} needs the same type on both sides; {got}: cast one")


def _decimal(kinds: Set[str]) -> Form:
    """Decimals, and whole numbers beside them, as integers at the finest scale of all.

    Examples
    --------
    >>> [_decimal({"decimal(18,2)", other})[1:3] for other in ("int", "bigint", "decimal(38,38)")]
    [(2, 1), (2, 2), (38, 3)]
    """
    digits = {(_DIGITS[kind], 0) for kind in kinds & INTEGRAL}
    for found in filter(None, map(DECIMAL.fullmatch, kinds)):
        precision, scale = map(int, found.groups())
        digits.add((precision - scale, max(0, scale)))
    before, after = (max(numbers) for numbers in zip(*digits, strict=True))
    return Form("decimal", after, (10 ** (before + after) - 1).bit_length() // 64 + 1)
