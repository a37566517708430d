"""One validated call of `nearest`: which objects, which queries, how measured and by which method.

The check needs two schemas and nothing else. `query_rows` reads the queries themselves.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from anabranch.calls import (
    DAY_TIME,
    EXACT,
    IDS,
    INTEGRAL,
    MISSING,
    TIMESTAMP,
    VECTORS,
    Check,
    Schema,
    describe,
    is_number,
)
from anabranch.flow.blocks import Block
from anabranch.flow.gpu.choice import DEVICES
from anabranch.flow.intake import Intake
from anabranch.flow.sides import Side, Slot, keep_column
from anabranch.neighbours.lists.algorithm import METRICS
from anabranch.neighbours.selective.routing import Selective
from anabranch.neighbours.where import Condition, read_where
from anabranch.plans.hashed import Broadcast
from anabranch.predicates import VectorMeasure
from anabranch.predicates.terms import nearest_float

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


@dataclass(frozen=True)
class Nearest:
    """A call of `nearest` that can run.

    `query_columns` are those of id, point, k, window, rows, since, op and ts that the queries
    have. `k`, `window` and `rows` are for queries that do not say themselves; 0 is unset. What is
    farther than `within` is left out of results; lists hold it, so another call may say otherwise.
    """

    measure: str
    objects: Side
    query_point: str
    query_id: str
    query_columns: Mapping[str, str]
    k: int
    window: int
    rows: int
    method: str
    error: float
    output: str
    plan: Broadcast | Selective | None
    delay: int | None
    drop_bad_rows: bool
    query_id_is_text: bool
    has_ops: bool
    streaming: bool = False
    where: tuple[Condition, ...] = ()
    within: float = math.inf
    device: str = "auto"

    @property
    def intake(self) -> Intake:
        """What brings objects in."""
        return Intake(self.objects, self.drop_bad_rows, self.streaming)

    @property
    def by_last_step(self) -> bool:
        """Whether late is what the watermark of the last step had passed (see `flow.lateness`)."""
        return self.delay is None

    @property
    def carried(self) -> tuple[str, ...]:
        """The columns of stored objects that come out with a hit."""
        return ("id", *(keep_column(number) for number in range(len(self.objects.keep))))

    @property
    def dim(self) -> int | None:
        """How long vectors are, if the call says it."""
        return self.objects.slots[0].dim

    @property
    def words(self) -> str:
        """What it does, for people."""
        most = f"The {self.k} nearest objects" if self.k else "The nearest objects"
        span = f", over {describe(self.window)}" if self.window else ""
        span = f", over the newest {self.rows:,} objects" if self.rows else span
        column = self.objects.slots[0].column
        return f"{most} of each saved search by {self.measure}({column!r}){span}"

    def settings(self, queries: Block | None) -> dict[str, str]:
        """What must stay the same for stored state to keep its meaning, as text by name.

        Lateness and the plan may change; so may the length of vectors, since to name it is a way
        out when one of another length has come. `queries` are the fixed ones, if they are.

        Examples
        --------
        >>> types = {"id": "int", "query_id": "int", "ts": "timestamp", "v": "array<float>"}
        >>> call, _ = plan_nearest(types, types, by="v", k=5, window="1 minute")
        >>> for name, text in call.settings(None).items():
        ...     print(name, "=", text)
        by = euclidean: v array<float>
        method = exact
        output = hits
        k = 5
        window = 1 minute
        rows = of each query
        queries = query_id bigint
        time = ts
        id = id bigint
        """
        slot, each = self.objects.slots[0], "of each query"
        columns = [f"{self.query_id} " + ("string" if self.query_id_is_text else "bigint")]
        columns += sorted(self.query_columns)
        content = [] if queries is None else [f"content {queries.digest()[:16]}"]
        probabilistic = {"error": repr(self.error)} if self.method == "probabilistic" else {}
        return {
            "by": f"{self.measure}: {slot.column} {slot.stored_type}",
            "method": self.method,
            **probabilistic,
            **{f"where[{n}]": test.settings() for n, test in enumerate(self.where)},
            "output": self.output,
            "k": str(self.k or each),
            "window": describe(self.window) if self.window else each,
            "rows": str(self.rows or each),
            "queries": ", ".join(columns + content),
            **self.objects.settings,
        }


@dataclass(frozen=True)
class _Given:
    """What a call of `nearest` gives by name, as it was written."""

    by: Any = MISSING
    where: Any = None
    time: Any = "ts"
    id: Any = "id"
    keep: Any = ()
    k: Any = None
    within: Any = None
    window: Any = None
    rows: Any = None
    watermark: Any = None
    plan: Any = None
    method: Any = "exact"
    error: Any = None
    output: Any = "hits"
    objects_per_window: Any = None
    bad_rows: Any = "fail"
    device: Any = "auto"
    streaming: bool = False


def plan_nearest(
    objects: Schema, queries: Schema, **options: Any
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
and the call names neither: add window='10 seconds' or rows=1000; over all objects of a table, \
rows= any number that they do not exceed, as rows=10**9"]
    """
    given = _Given(**options)
    check = Check(objects=objects, queries=queries)
    drops = check.choice("bad_rows", given.bad_rows, ("fail", "drop")) == "drop"
    measure = _measure(check, given.by, drops)
    tests = read_where(check, given.where)
    times = check.pair("time", given.time) or ("", "")
    instant = check.column("objects", times[0], "time", TIMESTAMP)
    ids = (given.id, QUERY_ID) if isinstance(given.id, str) else given.id
    ids = check.pair("id", ids) or ("", "")
    ident = check.column("objects", ids[0], "id", IDS)
    query_id = check.column("queries", ids[1], "id", IDS)
    kept = _kept(check, given.keep)
    numbers = (
        0 if given.k is None else check.whole("k", given.k, 1, MOST_K),
        0 if given.window is None else check.duration("window", given.window, 1),
        0 if given.rows is None else check.whole("rows", given.rows, 1, MOST_ROWS),
    )
    within = _within(check, given.within)
    if given.objects_per_window is not None:
        check.whole("objects_per_window", given.objects_per_window)
    delay = None if given.watermark is None else check.duration("watermark", given.watermark)
    columns = _query_columns(check, *numbers, times[1])
    ways, device = _ways(check, given, 1 in numbers[1:])
    has_ops = "op" in check.inputs["queries"]
    _check_plan(check, given.plan, ways[0], has_ops, bool(numbers[2]) or "rows" in columns)
    if check.problems or measure is None:
        return None, check.problems
    types = check.inputs["objects"]
    left, right = str(measure.left), str(measure.right)
    slot = Slot("v", left, "vector", types[left], measure.dim, measure.kind)
    carried = (tuple(kept), tuple(types[name] for name in kept))
    slots = (slot, *(given for test in tests for given in test.travelling(test.objects)))
    side = Side("object", instant, ident, types[ident] == "string", slots, *carried)
    found = Nearest(
        measure.kind,
        side,
        right,
        query_id,
        columns,
        *numbers,
        *ways,
        given.plan,
        delay,
        drops,
        check.inputs["queries"][query_id] == "string",
        has_ops,
        given.streaming,
        tests,
        within,
        device,
    )
    return found, []


def _measure(check: Check, by: Any, drops: bool) -> VectorMeasure | None:
    """The measure, with the columns as they are spelt."""
    if not check.given("by", by, "by='v', the vector column, or by=ab.cosine('v')"):
        return None
    found = VectorMeasure("euclidean", by, by) if isinstance(by, str) and by else by
    if not isinstance(found, VectorMeasure) or found.kind not in METRICS:
        check.say(
            "by must be the name of a vector column (Euclidean distance) or ab.euclidean(...), "
            f"ab.manhattan(...) or ab.cosine(...), got {by!r}"
        )
        return None
    for problem in found.own_problems():
        check.say(f"by: {problem}")
    if drops and found.dim is None:
        check.say(
            f"bad_rows='drop' needs the length of {found.left!r}, by=ab.{found.kind}(..., "
            "dim=64), or it would depend on what arrives first which rows are dropped"
        )
    left = check.column("objects", str(found.left), repr(found), VECTORS)
    right = check.column("queries", str(found.right), repr(found), VECTORS)
    return VectorMeasure(found.kind, left, right, found.dim) if left and right else None


def _kept(check: Check, keep: Any) -> list[str]:
    """The columns of the objects that come out with each hit."""
    kept = [check.column("objects", name, "keep") for name in check.names("keep", keep)]
    for name in kept:
        if name.lower() in ("id", "ts") or kept.count(name) > 1:
            check.say(f"keep: the result would have two columns named {f'object_{name}'!r}")
    return kept


def _within(check: Check, within: Any) -> float:
    """The largest distance, as the greatest float that is no greater."""
    if within is None:
        return math.inf
    if is_number(within, EXACT) and within >= 0:
        return float(nearest_float(within, up=False))
    check.say(f"within must be a number of at least 0, the largest distance, got {within!r}")
    return math.inf


def _query_columns(check: Check, k: int, window: int, rows: int, time: str) -> dict[str, str]:
    """Which of the optional columns the queries have, as name and type; `ts` as its name."""
    schema = check.inputs["queries"]
    found = {name: schema[name] for name in ("k", "window", "rows") if name in schema}
    for name in ("k", "rows"):
        if name in found:
            check.column("queries", name, name, INTEGRAL)
    kind = found.get("window", "string")
    if kind != "string" and not DAY_TIME.fullmatch(kind):
        check.say(
            f"window: queries column 'window' is {kind}, not a text such as '10 seconds' or an "
            "interval of days, hours, minutes and seconds, as make_dt_interval gives; cast "
            "it, or use a column 'rows' for counts"
        )
    if window and rows:
        check.say(
            "window= and rows= were both given: a query has one kind of window, so leave one out"
        )
    if "k" not in found and not k:
        check.say("queries have no column 'k' and the call names none: add k=10")
    if not ({"window", "rows"} & set(found) or window or rows):
        check.say(
            "queries have no column 'window' or 'rows' and the call names neither: add "
            "window='10 seconds' or rows=1000; over all objects of a table, rows= any number "
            "that they do not exceed, as rows=10**9"
        )
    if "op" in schema:
        check.column("queries", "op", "op", {"string"})
        found["ts"] = check.column("queries", time, "time", TIMESTAMP)
    elif "since" in schema:
        check.column("queries", "since", "since", TIMESTAMP)
        found["since"] = schema["since"]
    return found


def _check_plan(check: Check, plan: Any, method: str, has_ops: bool, counts: bool) -> None:
    if plan is None or (isinstance(plan, Broadcast) and plan.side == "right"):
        return
    if isinstance(plan, Broadcast):
        check.say(
            f"plan={plan} has side={plan.side!r}, and nearest has one way to broadcast: every "
            "object goes to all workers, and queries are spread over them; write "
            f"ab.broadcast({plan.workers})"
        )
        return
    if not isinstance(plan, Selective):
        check.say(
            "plan must be ab.broadcast(workers), which spreads queries and sends objects to all "
            "workers, or ab.selective(workers), which sends them where they may matter, "
            f"got {plan!r}"
        )
        return
    for wrong, what in (
        (method != "exact", f"method='exact', got {method!r}"),
        (has_ops, "fixed queries, without a column 'op'"),
        (counts, "windows of time, given by window and not by rows"),
    ):
        if wrong:
            check.say(f"plan {plan} needs {what}; or use ab.broadcast(workers)")


def _device(check: Check, device: Any, method: str) -> str:
    found = check.choice("device", device, DEVICES)
    if found == "gpu" and method != "exact":
        check.say(
            f"device='gpu' knows method='exact' alone, and this is method={method!r}: leave one of "
            "them out"
        )
    return found


def _ways(check: Check, given: _Given, shortest: bool) -> tuple[tuple[str, float, str], str]:
    """Method, error and output; device. `shortest` says that a window is as short as can be."""
    method = check.choice("method", given.method, METHODS)
    output = check.choice("output", given.output, OUTPUTS)
    if output == "top" and method != "exact":
        check.say(f"output='top' needs method='exact', got method={method!r}")
    if method == "filtered" and shortest:
        check.say("method='filtered' needs a window of at least 2 us or 2 rows, got 1")
    device = _device(check, given.device, method)
    return (method, _share(check, method, given.error), output), device


def _share(check: Check, method: str, error: Any) -> float:
    """The share of wrong hits that is allowed."""
    if error is None:
        return 1e-3
    if method != "probabilistic":
        check.say(f"error= is for method='probabilistic'; method={method!r} has none: leave it out")
    if not is_number(error) or not 0 < error < 1:
        check.say(f"error must lie between 0 and 1, got {error!r}; 0.001 is usual")
        return 1e-3
    return float(error)
