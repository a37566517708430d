"""What is read of an input, and the names under which its columns travel.

Users name columns as they like, dots and spaces included; inside, rows have ``t`` (event time),
``id``, ``h`` and ``key`` (hashes that route them), ``s0, s1, ...`` (what is compared, one *slot* a
term) and ``k0, k1, ...`` (what is only carried). Where windows count rows, ``t`` is the rank of a
row in its side, ``at`` its event time, and ``before`` how many rows of the other side precede it.
Of the copies of a row one has ``lead``, and stands for it where rows are counted.
Where a row of one stream has other columns as the right one of a pair, these are ``r0, r1, ...``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from anabranch.calls import INTEGRAL
from anabranch.flow.blocks import Block

__all__ = [
    "AT",
    "BEFORE",
    "HASH",
    "ID",
    "KEY",
    "LEAD",
    "PRESENT",
    "REASON",
    "TIME",
    "UNKNOWN",
    "WHOLE",
    "Side",
    "Slot",
    "hash_column",
    "in_roles",
    "keep_column",
    "present_column",
    "right_role",
    "slot_column",
]

TIME, ID, HASH, KEY, AT, BEFORE, LEAD = "t", "id", "h", "key", "at", "before", "lead"
PRESENT = "_known"
"""How the name of the column ends that says where another is not null."""

UNKNOWN = -(2**63)
"""A null among the whole numbers of a nullable slot."""
WHOLE, REASON = "whole", "reason"
"""The row as it came, for those who want to know what was rejected, and why it was."""


def slot_column(term: int, place: int | None = None) -> str:
    """The column of a term's compared value; a custom function's arguments have places.

    Examples
    --------
    >>> slot_column(0), slot_column(1, 2)
    ('s0', 's1_2')
    """
    return f"s{term}" if place is None else f"s{term}_{place}"


def hash_column(slot: Slot) -> str:
    """The column that holds the hash of a ``text`` slot."""
    return slot.name + "_h"


def present_column(slot: Slot) -> str:
    """The column that says where an `optional` slot is not null."""
    return slot.name + PRESENT


def in_roles(left: Sequence[Slot], right: Sequence[Slot]) -> list[Slot]:
    """The slots of a term as columns of one row, which may be the left or the right of a pair.

    Examples
    --------
    >>> slots = in_roles([Slot("s1", "bid", "int", "int")], [Slot("s1", "ask", "int", "int")])
    >>> [(slot.name, slot.column, slot.compared_name) for slot in slots]
    [('s1', 'bid', 's1'), ('r1', 'ask', 's1')]
    """
    if [slot.column for slot in left] == [slot.column for slot in right]:
        return list(left)
    return [
        *(replace(slot, role="left") for slot in left),
        *(replace(slot, name=f"r{slot.name[1:]}", role="right") for slot in right),
    ]


_OF_A_TERM = re.compile(r"([rs])(\d+)(_|$)")


def right_role(block: Block) -> Block:
    """The rows as right ones of pairs of one stream; itself if these compare the same columns.

    Examples
    --------
    >>> import numpy as np
    >>> block = Block.of([5], {"s0": np.array([1]), "r0": np.array([2])})
    >>> {name: column.tolist() for name, column in right_role(block).columns.items()}
    {'s0': [2]}
    """
    places = {name: found for name in block.columns if (found := _OF_A_TERM.match(name))}
    changed = {found[2] for found in places.values() if found[1] == "r"}
    if not changed:
        return block  # derived of itself it would hold itself

    def make(of: Block) -> Block:
        columns = {}
        for name, column in of.columns.items():
            found = places.get(name)
            if found is None or found[2] not in changed:
                columns[name] = column
            elif found[1] == "r":
                columns[f"s{name[1:]}"] = column
        return Block(of.t, of.epoch, of.mask, columns, of.meta)

    return block.derive("right role", make, shares=True)


def keep_column(number: int) -> str:
    """The column that carries the kept column of this number (names may hold anything)."""
    return f"k{number}"


@dataclass(frozen=True)
class Slot:
    """One compared column of one side.

    `kind` is one of ``vector`` (f4 or f8 matrix), ``bits`` (64-bit words), ``int``, ``float``,
    ``decimal`` (an integer of so many 64-bit `words`, in units of 10 to the minus `scale`),
    ``code`` (an integer that is the key), ``text`` (a key as text, with its hash in a second
    column), ``string`` (compared letter by letter), ``set`` (of texts or integers, each once) or
    ``raw`` (handed to a custom function).
    `measure` names the measure. An `optional` one is compared inside ``|`` and may be null, which a
    column of its own says; null in a `nullable` one is `UNKNOWN`, or no number. One of one `role`
    is compared only while its row is the left one of a pair of one stream, or only while it is the
    right one, which has another column.
    """

    name: str
    column: str
    kind: str
    type: str
    dim: int | None = None
    measure: str = ""
    scale: int = 0
    words: int = 1
    optional: bool = False
    nullable: bool = False
    role: str = ""

    @property
    def is_key(self) -> bool:
        """Whether rows of a pair agree in it, so that it can route them."""
        agree = self.measure != "differs" and not self.optional and not self.role
        return agree and self.kind in ("code", "text")

    @property
    def compared_name(self) -> str:
        """Its name where it is compared; `name` is that of the stored column."""
        return f"s{self.name[1:]}"

    @property
    def term(self) -> int:
        """The number of the term that compares it."""
        return int(self.name[1:].partition("_")[0])

    @property
    def stored_type(self) -> str:
        """The type of what is compared and stored: numbers are brought to 64 bits first.

        Examples
        --------
        >>> [Slot("s0", "x", "int", kind).stored_type for kind in ("smallint", "date")]
        ['bigint', 'date']
        """
        if self.kind == "float":
            return "double"
        if self.kind == "decimal":
            bits = f" in {64 * self.words} bits" if self.words > 1 else ""
            return f"decimal of scale {self.scale}{bits}"
        if self.kind == "string":
            return "string"
        if self.kind == "set" and self.type != "array<string>":
            return "array<bigint>"
        return "bigint" if self.kind in ("int", "code") and self.type in INTEGRAL else self.type


@dataclass(frozen=True)
class Side:
    """What a query reads of one input; `keep` are the columns that it only carries."""

    label: str
    time: str
    id: str
    id_is_text: bool
    slots: tuple[Slot, ...]
    keep: tuple[str, ...]
    keep_types: tuple[str, ...] = ()

    @property
    def vectors(self) -> dict[str, str]:
        """The names inside of the vectors that are compared, by the user's names.

        Whole numbers are none of these, for they are compared as floats.
        """
        real = ("array<float>", "array<double>")
        compared = [slot for slot in self.slots if slot.kind == "vector" and slot.type in real]
        return {slot.column: slot.name for slot in compared}

    @property
    def settings(self) -> dict[str, str]:
        """What stored rows of this side depend on, as text.

        Examples
        --------
        >>> side = Side("left", "ts", "nr", False, (), ("x", "y"), ("int", "map<int,int>"))
        >>> side.settings
        {'time': 'ts', 'id': 'nr bigint', 'keep': 'x int, y map<int,int>'}
        """
        kept = zip(self.keep, self.keep_types, strict=True)
        found = {"time": self.time, "id": f"{self.id} {'string' if self.id_is_text else 'bigint'}"}
        if self.keep:
            found["keep"] = ", ".join(f"{name} {kind}" for name, kind in kept)
        return found
