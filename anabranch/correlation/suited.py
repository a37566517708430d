"""Which plans suit a predicate: by what rows of a pair have in common, and by the window."""

from __future__ import annotations

from typing import Any

from anabranch.calls import Check
from anabranch.correlation.emd.locality import Locality
from anabranch.correlation.emd.measure import EmdMeasure
from anabranch.flow.sides import slot_column
from anabranch.plans.plan import Plan, Routing
from anabranch.plans.ranges import Ranges
from anabranch.plans.segments import Segments
from anabranch.plans.triangle import Triangle
from anabranch.predicates import Compared, Predicate, Same, Term
from anabranch.predicates.naming import columns_of

__all__ = ["check_plan", "has_key", "locality_of", "misfit"]


def check_plan(check: Check, plan: Any, where: Predicate | None, one: bool, by_rows: bool) -> None:
    """Say what is wrong with the plan of a call."""
    if plan is None:
        return
    if isinstance(plan, Routing):
        check.say(
            f"plan {plan} is for {plan.verb}; correlate takes ab.broadcast(...), ab.segments(...), "
            "ab.grid(...), ab.ranges(...), ab.keyed(...) or, of one stream, ab.triangle(...)"
        )
    elif not isinstance(plan, Plan):
        check.say(
            "plan must be one of ab.broadcast(...), ab.segments(...), ab.grid(...), "
            f"ab.ranges(...), ab.keyed(...), ab.triangle(...), got {plan!r}"
        )
    elif where is not None and not where.problems():
        problem = misfit(plan, where, one, by_rows)
        if problem:
            check.say(problem)


def misfit(plan: Plan, where: Predicate, one: bool, by_rows: bool) -> str:
    """Why rows of this predicate cannot be routed by a plan; "" if they can."""
    if by_rows and isinstance(plan, Segments):
        return (
            f"plan {plan} cuts time, and it is not known how much time a window of so many rows "
            "will cover: take ab.grid(...) or ab.broadcast(...), or a window of time"
        )
    if isinstance(plan, Triangle) and not one:
        return (
            f"plan {plan} is for one stream against itself, ab.correlate(stream, ...); for two "
            "take for example ab.grid(2, 2)"
        )
    if plan.needs == "key" and not has_key(where, one):
        if has_key(where):
            return (
                f"plan {plan} spreads by key, and ab.same(...) of two columns of one stream gives "
                "a row two keys: take for example ab.triangle(2)"
            )
        if any(isinstance(leaf, Same) for leaf in where.leaves):
            return (
                f"plan {plan} spreads by key, and rows that match by another side of | have other "
                "keys: put ab.same(...) beside it, ab.same('k') & (a | b), or take ab.grid(2, 2)"
            )
        return f"plan {plan} spreads by key: add ab.same(...) to the predicate"
    if isinstance(plan, Ranges) and locality_of(where, one) is None:
        inside = [
            getattr(leaf, "measure", None) for leaf in where.leaves if leaf not in where.terms
        ]
        if any(isinstance(measure, EmdMeasure) for measure in inside):
            return (
                f"plan {plan} cuts the keys of an Earth Mover's Distance, and rows that match by "
                "another side of | may have any keys: take for example ab.grid(2, 2)"
            )
        return (
            f"plan {plan} cuts the keys of an Earth Mover's Distance: it needs a term such as "
            "ab.emd('hist', dim=256) <= 0.5, with the number of bins, in the predicate"
        )
    return ""


def has_key(where: Predicate, one: bool = False) -> bool:
    """Whether an equality is among the terms; in one stream, one by which a row has one key."""
    return any(isinstance(term, Same) and _routes(term, one) for term in where.terms)


def _routes(term: Term, one: bool) -> bool:
    """Whether a row goes by one value, be it the left or the right one of a pair."""
    left, right = columns_of(term)
    return not one or left == right


def locality_of(where: Predicate, one: bool = False) -> Locality | None:
    """The keys of an Earth Mover's Distance that bound where rows match, if there is one."""
    for number, term in enumerate(where.leaves):
        if all(term is not own for own in where.terms):
            continue  # rows that match by another side of | may have any keys
        if isinstance(term, Compared) and isinstance(term.measure, EmdMeasure):
            near, ground = not term.upward, term.measure.ground
            if _routes(term, one) and near and ground.bins is not None:
                return Locality(slot_column(number), ground, float(term.threshold))
    return None
