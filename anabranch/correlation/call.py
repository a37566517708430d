"""One validated call of `correlate`: what to compare, over which window, and what to carry.

The check needs the two schemas and nothing else, so it runs without Spark, finds every problem at
once, and turns the predicate into *slots*: for each term, the columns of the left and the right
side in the form that the kernels compare (a vector, bits, an integer, a code, ...).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from anabranch.calls import (
    IDS,
    MISSING,
    TIMESTAMP,
    Check,
    Schema,
    describe,
    is_names,
)
from anabranch.correlation.emd.locality import Locality
from anabranch.correlation.slots import Slots
from anabranch.correlation.suited import check_plan, has_key, locality_of, misfit
from anabranch.correlation.windows import ANY_TIME, describe_window, read_window
from anabranch.flow.blocks import Block
from anabranch.flow.gpu.choice import DEVICES
from anabranch.flow.sides import Side, Slot
from anabranch.plans.plan import LEFT, RIGHT, SIDES, Plan
from anabranch.plans.ranges import Ranges
from anabranch.predicates import Custom, Measure, Predicate
from anabranch.predicates.globe import Latitudes
from anabranch.predicates.naming import columns_of
from anabranch.predicates.terms import uncompared

__all__ = ["Correlation", "Side", "Slot", "plan_correlation"]

HOW: Mapping[str, tuple[int, ...]] = {
    "inner": (),
    "left": (LEFT,),
    "right": (RIGHT,),
    "full": (LEFT, RIGHT),
    "anti": (LEFT,),
    "dedupe": (RIGHT,),
}
"""What is emitted, and the sides whose rows are if they find no partner."""

STREAM = "stream"
"""What the input is called in messages if there is only one."""


@dataclass(frozen=True)
class Correlation:
    """A call of `correlate` that can run."""

    where: Predicate
    window: tuple[int, int]
    left: Side
    right: Side
    plan: Plan | None
    drop_bad_rows: bool = False
    delay: int | None = None
    limits: Mapping[str, float] = field(default_factory=dict)
    one_stream: bool = False
    how: str = "inner"
    by_rows: bool = False  # whether the window counts rows
    device: str = "auto"

    @property
    def unmatched(self) -> tuple[int, ...]:
        """The sides whose rows are emitted if they find no partner."""
        return HOW[self.how]

    @property
    def by_last_step(self) -> bool:
        """Whether late is what the watermark of the last step had passed (see `flow.lateness`)."""
        return self.delay is None

    @property
    def carries(self) -> bool:
        """Whether the watermark continues in results: rows without a partner are older than it."""
        return not self.unmatched or self.how == "dedupe"

    @property
    def shown(self) -> tuple[int, ...]:
        """The sides whose columns the result has."""
        return (LEFT, RIGHT) if self.emits_pairs else self.unmatched

    @property
    def emits_pairs(self) -> bool:
        """Whether pairs are emitted, and not only rows without a partner."""
        return self.how not in ("anti", "dedupe")

    @property
    def sides(self) -> tuple[Side, Side]:
        return (self.left, self.right)

    @property
    def has_key(self) -> bool:
        """Whether an equality is among the terms."""
        return has_key(self.where, self.one_stream)

    @property
    def locality(self) -> Locality | None:
        """Where the keys of a plan by value come from; None if the predicate has none."""
        return locality_of(self.where, self.one_stream)

    def values(self, block: Block) -> np.ndarray | None:
        """The keys of rows of either side, for a plan by value."""
        locality = self.locality
        return None if locality is None else locality.keys(block)

    def bound(self, plan: Plan) -> Plan:
        """The plan with the range of keys if it needs it; `ValueError` if it does not fit."""
        problem = misfit(plan, self.where, self.one_stream, self.by_rows)
        if problem:
            raise ValueError(problem)
        if not isinstance(plan, Ranges):
            return plan
        assert self.locality is not None
        return self.locality.bind(plan)

    @property
    def apart(self) -> tuple[int, int]:
        """How far apart in time rows may be that join, as plans must know it.

        Of windows that count rows nothing is known of that.
        """
        return (ANY_TIME, ANY_TIME) if self.by_rows else self.window

    @property
    def words(self) -> str:
        """What it does, for people.

        Examples
        --------
        >>> from anabranch.predicates import cosine
        >>> types = {"id": "bigint", "ts": "timestamp", "v": "array<float>"}
        >>> call, _ = plan_correlation(types, types, where=cosine("v") >= 0.9, window="1 minute")
        >>> call.words
        "Pairs of left and right rows with cosine('v') >= 0.9, at most 1 minute apart"
        """
        left, right = self.window
        if self.by_rows:
            apart = f"among the newest {describe_window(self.window, True, self.one_stream)}"
        elif left == right or self.one_stream:
            apart = f"at most {describe(left)} apart"
        else:
            apart = f"left rows wait {describe(left)}, right rows {describe(right)}"
        both = "rows of one stream" if self.one_stream else "left and right rows"
        if self.how == "dedupe":
            return f"Rows without their near-duplicates: {self.where}, {apart}"
        if self.how == "anti":
            return f"Left rows that found no partner with {self.where}, {apart}"
        text = f"Pairs of {both} with {self.where}, {apart}"
        alone = " and ".join(SIDES[side] for side in self.unmatched)
        return f"{text}; {alone} rows without a partner too" if alone else text

    @property
    def settings(self) -> dict[str, str]:
        """What must stay the same for stored rows to keep their meaning, as text by name.

        Thresholds, lateness and the plan may change; so may the length of vectors, since to name it
        is a way out when one of another length has come. Numbers count as what they are stored as,
        so that a column may become wider.

        Examples
        --------
        >>> from anabranch.predicates import cosine, same
        >>> types = {"id": "int", "ts": "timestamp", "v": "array<float>", "n": "int"}
        >>> where = (cosine("v") >= 0.9) & same("n")
        >>> call, _ = plan_correlation(types, types, where=where, window=("1 s", "2 s"), keep=["n"])
        >>> for name, text in call.settings.items():
        ...     print(name, "=", text)
        streams = two
        how = inner
        window = 1 second, 2 seconds
        where[0] = cosine: v array<float>, v array<float>
        where[1] = same: n bigint, n bigint
        left.time = ts
        left.id = id bigint
        left.keep = n int
        right.time = ts
        right.id = id bigint
        right.keep = n int
        """
        spans = describe_window(self.window, self.by_rows, self.one_stream)
        found = {"streams": "one" if self.one_stream else "two", "how": self.how, "window": spans}
        for number, term in enumerate(self.where.leaves):
            slots = [slot for side in self.sides for slot in side.slots if slot.term == number]
            slots = [slot for slot in slots if slot.role != "right"]  # the right side has it too
            kind = slots[0].measure or type(term.plain).__name__.lower()
            kind += " or null" * slots[0].optional
            columns = ", ".join(f"{slot.column} {slot.stored_type}" for slot in slots)
            found[f"where[{number}]"] = f"{kind}: {columns}"
        for side in self.sides[: 1 if self.one_stream else 2]:
            found |= {f"{side.label}.{name}": text for name, text in side.settings.items()}
        return found


@dataclass(frozen=True)
class _Given:
    """What a call of `correlate` gives by name, as it was written."""

    where: Any = MISSING
    window: Any = MISSING
    time: Any = "ts"
    id: Any = "id"
    keep: Any = ()
    watermark: Any = None
    plan: Any = None
    bad_rows: Any = "fail"
    how: Any = "inner"
    device: Any = "auto"
    ordered: Any = False


def plan_correlation(
    left: Schema, right: Schema | None, **options: Any
) -> tuple[Correlation | None, list[str]]:
    """The correlation and the problems that stand in its way; one of them is empty.

    Without a right schema it is that of one stream with itself: a pair's left row is the earlier
    one, by time and id.

    Examples
    --------
    >>> from anabranch.predicates import cosine
    >>> schema = {"id": "bigint", "ts": "timestamp", "v": "array<float>"}
    >>> where = cosine("v") >= 0.9
    >>> spec, problems = plan_correlation(schema, schema, where=where, window="1 minute")
    >>> spec.window, problems
    ((60000000, 60000000), [])
    >>> plan_correlation(schema, schema, where=cosine("w") >= 0.9, window="-1 minute")[1]
    ["window must not be negative, got '-1 minute'; 0 seconds is allowed", "left has no column 'w' \
(needed by cosine('w') >= 0.9); it has id, ts, v", "right has no column 'w' \
(needed by cosine('w') >= 0.9); it has id, ts, v"]
    """
    given = _Given(**options)
    one = right is None
    labels = (STREAM, STREAM) if one else SIDES
    check = Check(stream=left) if right is None else Check(left=left, right=right)
    spans, by_rows = read_window(check, given.window, one)
    delay = None if given.watermark is None else check.duration("watermark", given.watermark)
    drops = check.choice("bad_rows", given.bad_rows, ("fail", "drop")) == "drop"
    how = _how(check, given.how, one, by_rows)
    device = _device(check, given.device, by_rows)
    predicate = _predicate(check, given.where)
    check_plan(check, given.plan, predicate, one, by_rows)
    slots = Slots(check, labels)
    if predicate is not None:
        _check_order(check, predicate, one, given.ordered, how)
        slots.read(predicate, drops)
    times, ids = check.pair("time", given.time), check.pair("id", given.id)
    kept = _kept(check, given.keep)
    if one:
        for name, both in (("time", times), ("id", ids), ("keep", kept)):
            if both is not None and both[0] != both[1]:
                check.say(f"{name}: one stream has one, and not a pair, got {both!r}")
    sides = [
        _side(
            check,
            (SIDES[n], labels[n]),
            times[n] if times is not None else "",
            ids[n] if ids is not None else "",
            kept[n],
            slots.found[n],
        )
        for n in (0, 1)
    ]
    if check.problems or predicate is None:
        return None, list(dict.fromkeys(check.problems))
    found = Correlation(
        predicate,
        spans,
        sides[0],
        sides[1],
        given.plan,
        drops,
        delay,
        slots.limits,
        one,
        how,
        by_rows,
        device,
    )
    if given.plan is None:
        return found, []
    try:
        return replace(found, plan=found.bound(given.plan)), []
    except ValueError as error:
        return None, [str(error)]


def _how(check: Check, how: Any, one: bool, by_rows: bool) -> str:
    if isinstance(how, str) and how == "dedupe" and one:
        found = "dedupe"
    else:
        found = check.choice("how", how, [name for name in HOW if name != "dedupe"])
    if found == "dedupe":
        if by_rows:
            check.say("window: ab.dedupe looks back over time, a duration such as '1 minute'")
        return found
    if by_rows and found != "inner":
        check.say(
            f"how={how!r} needs a window of time, a duration such as '1 minute': on a side that "
            "falls idle, rows that end a window by count never come, and nothing would be decided"
        )
    if one and found != "inner":
        check.say(
            f"how={how!r} needs two streams; for rows of one stream without an earlier alike one "
            "use ab.dedupe(stream, ...)"
        )
    return found


def _device(check: Check, device: Any, by_rows: bool) -> str:
    found = check.choice("device", device, DEVICES)
    if found == "gpu" and by_rows:
        check.say(
            "device='gpu' knows windows of time, and this window counts rows: give a duration such "
            "as '1 minute', or leave device out, and the CPU compares"
        )
    return found


def _predicate(check: Check, where: Any) -> Predicate | None:
    if not check.given("where", where, "where=ab.cosine('v') >= 0.9"):
        return None
    if isinstance(where, Measure) and not isinstance(where, Custom):
        check.say(f"where={uncompared(where)}")
        return None
    if not isinstance(where, Predicate):
        check.say(f"where must be a predicate such as ab.cosine('v') >= 0.9, got {where!r}")
        return None
    for problem in where.problems():
        check.say(problem)
    return where


def _check_order(check: Check, where: Predicate, one: bool, ordered: Any, how: str) -> None:
    """Two columns of one stream are compared only by who knows that order then counts."""
    other = ", or pass ordered=True to correlate, which takes it from the earlier row"
    advice = "name one column" + ("" if how == "dedupe" else other)
    if not isinstance(ordered, bool):
        check.say(f"ordered must be True or False, got {ordered!r}")
    elif ordered and not one:
        check.say(
            "ordered=True is for one stream, whose left row is the earlier one; of two streams the "
            "left row is that of the left: leave it out"
        )
    for term in where.leaves if one and not ordered else ():
        left, right = columns_of(term)
        if left != right and not isinstance(term, Latitudes):  # said of the points beside them
            check.say(
                f"{term!r} compares two different columns, and which row of a pair of one stream "
                f"has the first is not said: {advice}"
            )


def _kept(check: Check, keep: Any) -> tuple[Sequence[str], Sequence[str]]:
    if isinstance(keep, tuple) and len(keep) == 2 and all(map(is_names, keep)):
        return (keep[0], keep[1])
    if isinstance(keep, str) and keep:
        keep = [keep]
    if is_names(keep):
        return (keep, keep)
    check.say(
        "keep must be the name of a column or a list of them, or a pair (left_list, right_list), "
        f"got {keep!r}"
    )
    return ((), ())


def _side(
    check: Check,
    labels: tuple[str, str],
    time: str,
    ident: str,
    keep: Sequence[str],
    slots: Sequence[Slot],
) -> Side:
    label, source = labels
    types = check.inputs[source]
    time = check.column(source, time, "time", TIMESTAMP)
    ident = check.column(source, ident, "id", IDS)
    kept = [name for name in (check.column(source, name, "keep") for name in keep) if name]
    outputs = [name for name in (ident, time, *kept) if name]
    twice = sorted({name for name in outputs if outputs.count(name) > 1})
    if twice:
        check.say(f"keep: the result would have two columns named {f'{label}_{twice[0]}'!r}")
    is_text = bool(ident) and types[ident] == "string"
    keep_types = tuple(types[name] for name in kept)
    return Side(label, time, ident, is_text, tuple(slots), tuple(kept), keep_types)
