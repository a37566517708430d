"""One validated call of `nearest`: which objects, which queries, how measured and by which method.

The check needs two schemas and nothing else. `query_rows` reads the queries themselves.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from anabranch.calls import LONGEST, describe, is_whole, microseconds
from anabranch.correlation.call import Side, Slot
from anabranch.flow.blocks import Block
from anabranch.flow.intake import Intake
from anabranch.neighbours.interest.routing import Interest
from anabranch.neighbours.lists.algorithm import METRICS
from anabranch.plans.hashed import Ssp
from anabranch.predicates import VectorMeasure

__all__ = [
    "METHODS",
    "MOST_K",
    "MOST_ROWS",
    "OUTPUTS",
    "QUERY_ID",
    "Nearest",
    "plan_nearest",
]

METHODS = ("exact", "probabilistic", "relaxed", "filtered")
OUTPUTS = ("hits", "top")
QUERY_ID = "query_id"
MOST_K = 1_000_000
"""Room for the k nearest is taken when a query begins: 16 bytes for each."""
MOST_ROWS = 10**15

Schema = Mapping[str, str]

_INTEGRAL = ("tinyint", "smallint", "int", "bigint")
_VECTORS = ("array<float>", "array<double>")
_DAY_TIME = re.compile(r"interval (day|hour|minute|second)( to (hour|minute|second))?")


@dataclass(frozen=True)
class Nearest:
    """A call of `nearest` that can run.

    `query_columns` are those of id, point, k, window, rows, since, op and ts that the queries
    have. `k`, `window` and `rows` are for queries that do not say themselves; 0 is unset.
    """

    measure: str
    objects: Side
    query_point: str
    query_columns: Mapping[str, str]
    k: int
    window: int
    rows: int
    method: str
    error: float
    output: str
    plan: Ssp | Interest | None
    late: int | None
    drop_bad_rows: bool
    query_id_is_text: bool
    has_ops: bool

    @property
    def intake(self) -> Intake:
        """What brings objects in."""
        return Intake(self.objects, self.drop_bad_rows)

    @property
    def dim(self) -> int | None:
        """How long vectors are, if the call says it."""
        return self.objects.slots[0].dim

    def settings(self, queries: Block | None) -> dict[str, str]:
        """What must stay the same for stored state to keep its meaning, by name.

        The length of vectors is not part of it: to name it is a way out when one of another length
        has come.
        """
        objects = replace(self.objects, slots=(replace(self.objects.slots[0], dim=None),))
        return {
            "measure": self.measure,
            "method": f"{self.method} {self.error}",
            "output": self.output,
            "objects": repr(objects),
            "queries": repr([self.k, self.window, self.rows, sorted(self.query_columns)]),
            "fixed queries": "" if queries is None else queries.digest(),
        }


def plan_nearest(
    objects: Schema,
    queries: Schema,
    *,
    by: Any,
    time: Any = "ts",
    id: Any = "id",
    k: Any = None,
    window: Any = None,
    rows: Any = None,
    late: Any = None,
    plan: Any = None,
    method: Any = "exact",
    error: Any = None,
    output: Any = "hits",
    expected: Any = None,
    bad_rows: Any = "fail",
) -> tuple[Nearest | None, list[str]]:
    """The call and the problems that stand in its way; one of them is empty.

    Examples
    --------
    >>> things = {"id": "bigint", "ts": "timestamp", "v": "array<float>"}
    >>> wanted = {"query_id": "string", "v": "array<double>", "k": "int", "window": "string"}
    >>> found, problems = plan_nearest(things, wanted, by="v")
    >>> found.measure, problems
    ('euclidean', [])
    >>> plan_nearest(things, {"query_id": "int", "v": "array<float>"}, by="v", k=0)[1]
    ['k must be a whole number of at least 1, got 0', "queries have no column 'window' or 'rows' \
and the call names neither: add window='10 seconds' or rows=1000"]
    """
    check = _Check(objects, queries)
    measure = check.measure(by)
    times = time if isinstance(time, (tuple, list)) and len(time) == 2 else (time, time)
    if not all(isinstance(name, str) for name in times):
        check.say(f"time must be a column name or a pair (objects, queries), got {time!r}")
        times = ("", "")
    if not isinstance(id, str):
        check.say(f"id must be a column name, got {id!r}")
        id = ""
    ids = ("bigint", "int", "string")
    check.column("objects", times[0], ("timestamp",), "time", "cast it with to_timestamp")
    check.column("objects", id, ids, "id", "cast it to long or string")
    check.column("queries", QUERY_ID, ids, "the query's id", "rename or cast the column")
    has_ops = "op" in queries
    if has_ops:
        check.column("queries", "op", ("string",), "add or cancel", "cast it to string")
        check.column("queries", times[1], ("timestamp",), "time", "cast it with to_timestamp")
    count = check.number("k", k, 1, MOST_K)
    span = check.duration("window", window, 1)
    length = check.number("rows", rows, 1, MOST_ROWS)
    columns = check.query_columns(count, span, length, has_ops, times[1])
    delay = check.duration("late", late, 0)
    if bad_rows not in ("fail", "drop"):
        check.say(f"bad_rows must be 'fail' or 'drop', got {bad_rows!r}")
    share = check.method(method, error, output)
    if method == "filtered" and 1 in (span, length):
        check.say("method='filtered' needs a window of at least 2 us or 2 rows, got 1")
    check.number("expected", expected, 1)
    check.plan(plan, method, has_ops, bool(length) or "rows" in columns)
    if bad_rows == "drop" and measure is not None and measure.dim is None:
        check.say(
            f"bad_rows='drop' needs the length of {measure.left!r}, by=ab.{measure.kind}(..., "
            "dim=64), or it would depend on what arrives first which rows are dropped"
        )
    if check.problems or measure is None:
        return None, list(dict.fromkeys(check.problems))
    slot = Slot("v", measure.left, "vector", objects[measure.left], measure.dim, measure.kind)
    side = Side("object", times[0], id, objects[id] == "string", (slot,), ())
    return (
        Nearest(
            measure.kind,
            side,
            measure.right,
            columns,
            count,
            span,
            length,
            method,
            share,
            output,
            plan,
            None if late is None else delay,
            bad_rows == "drop",
            queries[QUERY_ID] == "string",
            has_ops,
        ),
        [],
    )


class _Check:
    """Collects what is wrong with one call."""

    def __init__(self, objects: Schema, queries: Schema) -> None:
        self.schemas = {"objects": objects, "queries": queries}
        self.problems: list[str] = []

    def say(self, problem: str) -> None:
        self.problems.append(problem)

    def column(
        self, frame: str, name: str, allowed: tuple[str, ...], use: str, remedy: str
    ) -> None:
        schema = self.schemas[frame]
        if not name:
            return
        if name not in schema:
            self.say(f"{frame} have no column {name!r} ({use}); they have {', '.join(schema)}")
        elif schema[name] not in allowed:
            wanted = " or ".join(allowed)
            self.say(f"{use}: {frame} column {name!r} is {schema[name]}, not {wanted}; {remedy}")

    def measure(self, by: Any) -> VectorMeasure | None:
        found = VectorMeasure("euclidean", by, by) if isinstance(by, str) else by
        if not isinstance(found, VectorMeasure) or found.kind not in METRICS:
            self.say(
                "by must be the name of a vector column (Euclidean distance) or ab.euclidean(...), "
                f"ab.manhattan(...) or ab.cosine(...), got {by!r}"
            )
            return None
        for frame, name in (("objects", found.left), ("queries", found.right)):
            self.column(frame, name, _VECTORS, "by", "cast it to array<float>")
        return found

    def number(self, name: str, value: Any, least: int, most: int | None = None) -> int:
        if value is None:
            return 0
        if not is_whole(value, least):
            self.say(f"{name} must be a whole number of at least {least}, got {value!r}")
            return least
        if most is not None and value > most:
            self.say(f"{name} must be at most {most:,}, got {value!r}")
        return int(value)

    def duration(self, name: str, value: Any, least: int) -> int:
        if value is None:
            return 0
        try:
            found = microseconds(value)
        except ValueError as error:
            self.say(f"{name}: {error}")
            return least
        if found < least:
            self.say(f"{name} must be {'positive' if least else 'zero or more'}, got {value!r}")
        if found > LONGEST:
            self.say(f"{name} must be at most {describe(LONGEST)}, got {value!r}")
        return found

    def query_columns(
        self, k: int, window: int, rows: int, has_ops: bool, time: str
    ) -> dict[str, str]:
        """Which of the optional columns the queries have, as name and type."""
        schema = self.schemas["queries"]
        found = {name: schema[name] for name in ("k", "window", "rows") if name in schema}
        for name in ("k", "rows"):
            if name in found:
                self.column("queries", name, _INTEGRAL, name, "cast it to int")
        kind = found.get("window", "string")
        if kind != "string" and not _DAY_TIME.fullmatch(kind):
            self.say(
                f"window: queries column 'window' is {kind}, not a text such as '10 seconds' or an "
                "interval of days, hours, minutes and seconds, as make_dt_interval gives; cast "
                "it, or use a column 'rows' for counts"
            )
        if window and rows:
            self.say("window= and rows= were both given: a query has one kind of window")
        if "k" not in found and not k:
            self.say("queries have no column 'k' and the call names none: add k=10")
        if not ({"window", "rows"} & set(found) or window or rows):
            self.say(
                "queries have no column 'window' or 'rows' and the call names neither: add "
                "window='10 seconds' or rows=1000"
            )
        if has_ops:
            found["ts"] = time
        elif "since" in schema:
            self.column("queries", "since", ("timestamp",), "since", "cast it with to_timestamp")
            found["since"] = schema["since"]
        return found

    def plan(self, plan: Any, method: Any, has_ops: bool, counts: bool) -> None:
        if plan is None or (isinstance(plan, Ssp) and plan.master == "left"):
            return
        if not isinstance(plan, Interest):
            self.say(
                "plan must be ab.ssp(workers), which spreads queries and sends objects to all "
                "workers, or ab.interest(workers), which sends them where they may matter, "
                f"got {plan!r}"
            )
            return
        for wrong, what in (
            (method != "exact", f"method='exact', got {method!r}"),
            (has_ops, "fixed queries, without a column 'op'"),
            (counts, "windows of time, given by window and not by rows"),
        ):
            if wrong:
                self.say(f"plan {plan} needs {what}; or use ab.ssp(workers)")

    def method(self, method: Any, error: Any, output: Any) -> float:
        if method not in METHODS:
            self.say(f"method must be one of {', '.join(METHODS)}, got {method!r}")
        if output not in OUTPUTS:
            self.say(f"output must be one of {', '.join(OUTPUTS)}, got {output!r}")
        elif output == "top" and method != "exact":
            self.say(f"output='top' needs method='exact', got method={method!r}")
        if error is None:
            return 1e-3
        if method != "probabilistic":
            self.say(f"error= is for method='probabilistic'; method={method!r} has no error")
        number = isinstance(error, (int, float)) and not isinstance(error, bool)
        if not number or not 0 < error < 1:
            self.say(f"error must lie between 0 and 1, got {error!r}; 0.001 is usual")
            return 1e-3
        return float(error)
