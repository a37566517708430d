"""Views that are executed: a template, and what it computes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from anabranch.calls import MISSING, Check, Duration, is_names, microseconds
from anabranch.edge.definitions import Definition, Stream
from anabranch.edge.definitions import View as EdgeView
from anabranch.edge.naming import key_problems
from anabranch.edge.sampling import share_of
from anabranch.edge.wishes import Wishes
from anabranch.errors import InvalidCall, renamed
from anabranch.placement.feeds import Feed
from anabranch.placement.graph import CLOUD_NAME
from anabranch.placement.tables import listed
from anabranch.placement.templates import Materialised, Template
from anabranch.predicates import Either, Predicate, VectorMeasure
from anabranch.predicates.conditions import PairConditions, comparison_problems, to_form

__all__ = ["View", "Views", "as_list", "view", "wishes_of"]

_PLACES = ("cloud", "inputs")
_SECOND = 1_000_000


@dataclass(frozen=True)
class View(Template):
    """A template with a definition; `every` is how far rows of each input are apart, at least.

    It is in microseconds (0 for all rows), or a column of the reference table with durations.
    """

    definition: Definition = None  # type: ignore[assignment]
    condition: Predicate | None = None
    every: tuple[int | str, ...] = ()

    def over(self, reference: Any) -> Views:
        """One physical view per row of the reference table.

        Parameters
        ----------
        reference
            A pandas or Arrow table with the key columns of the feeds, and durations in the columns
            that say how often.
        """
        table = reference.to_pandas() if isinstance(reference, pa.Table) else reference
        problems: list[str] = []
        if isinstance(table, pd.DataFrame):
            shares = {
                f"share of {k}": _shares(part, every, table, problems)
                for k, ((part, _), every) in enumerate(zip(self.inputs, self.every, strict=True))
            }
            keys = dict.fromkeys(key for part in self.feeds for key in part.by)
            if lacking := [key for key in keys if key not in table.columns]:
                problems.append(
                    f"the reference table has no column {listed(lacking)}; it has "
                    f"{listed(list(table.columns))}"
                )
            if problems:
                raise InvalidCall(f"view {self.name!r}", problems)
            table = table.assign(**shares)
        sampled = tuple((part, f"share of {k}") for k, (part, _) in enumerate(self.inputs))
        found = Template(self.name, sampled, "", self.symmetric).over(table)
        rows = found.inputs.rename(columns={"rate": "share"})
        if self.symmetric:
            rows = rows.sort_values(["view", "input"], kind="stable", ignore_index=True)
        count = rows.groupby("view", sort=False)["input"].transform("size")
        if (alone := rows["view"][count < len(self.inputs)]).size:
            raise InvalidCall(
                f"view {self.name!r}",
                [f"{listed(alone)} would compare a stream with itself: leave such rows out"],
            )
        ticks = {part.name: part.tick / _SECOND or 1.0 for part in self.feeds}
        tick = rows["input"].str.partition("[")[0].map(ticks)
        inputs = rows[["view", "input"]].assign(rate=rows["share"] / tick)
        return Views(inputs, found.sources, self, rows)

    @property
    def feeds(self) -> list[Feed]:
        """What it reads."""
        return [part for part, _ in self.inputs if isinstance(part, Feed)]


@dataclass(frozen=True, eq=False)
class Views(Materialised):
    """The physical views of one `View`: what `ab.follow` runs and `ab.place` places.

    `rows` has the columns view, input and share: the inputs of a view in the order of its sides.
    """

    view: View
    rows: pd.DataFrame

    @property
    def streams(self) -> list[Stream]:
        """Every stream that the views read."""
        by_name = {part.name: part for part in self.view.feeds}
        found = []
        for name, device in self.sources.itertuples(index=False):
            part = by_name[name.split("[", 1)[0]]
            found.append(Stream(name, str(device), dict(part.columns), part.tick))
        return found


def wishes_of(views: Sequence[Views], **settings: Any) -> Wishes:
    """What a keeper is asked for, to run all of these; raises for keys that name no device."""
    streams = {stream.name: stream for one in views for stream in one.streams}
    if problems := key_problems(stream.home for stream in streams.values()):
        raise InvalidCall("view", problems)
    numbers = {name: number for number, name in enumerate(streams)}
    physical = [
        EdgeView(name, one.view.name, tuple(numbers[i] for i in inputs), tuple(shares))
        for one in views
        for name, inputs, shares in one.rows.groupby("view", sort=False).agg(list).itertuples()
    ]
    definitions = tuple(one.view.definition for one in views)
    return Wishes(tuple(streams.values()), definitions, tuple(physical), **settings)


@renamed(every="inputs")
def view(
    name: str,
    inputs: Mapping[Feed, Duration | str | None],
    *,
    where: Any = None,
    window: Duration | tuple[Duration, Duration] = MISSING,
    symmetric: bool = False,
    keep: Any = (),
    deliver: Any = ("cloud",),
) -> View:
    """A view over the streams of devices, to be computed wherever that costs least.

    Over two feeds it is all pairs of rows that are close in time and match, as `ab.correlate`
    finds them; over one feed, all rows that match.

    Parameters
    ----------
    name
        Of the views; physical ones are named ``name(input,input)``.
    inputs
        One or two feeds with their columns, each with how far apart its rows are to be, at least:
        a duration, a column of the reference table that holds durations, or None for all. Samples
        are nested, so that a row serves everybody who asks for as much or more.
    where
        Over two feeds a predicate that devices know: euclidean, cosine, dot, manhattan, within,
        same, differs, and these with ``&``, ``|`` and ``~``. Over one feed a list of comparisons,
        ``[("speed", ">=", 30)]``. Without it everything matches.
    window
        Over two feeds: one duration, or ``(W_left, W_right)``, as in `ab.correlate`.
    symmetric
        Whether (a, b) and (b, a) are one view.
    keep
        Columns to carry into the result: one list for both sides, or a pair of lists.
    deliver
        Who gets the results besides the place that computes them: ``"cloud"``, ``"inputs"`` (the
        devices whose streams are compared), or both.

    Examples
    --------
    >>> import pandas as pd
    >>> import anabranch as ab
    >>> me = ab.feed("gps", by="user", tick="1 second", columns="xy array<double>")
    >>> them = ab.feed("gps", by="friend", tick="1 second", columns="xy array<double>")
    >>> near = ab.view("nearby", {me: "every", them: "20 seconds"},
    ...                where=ab.euclidean("xy") <= 100, window="30 seconds")
    >>> friends = pd.DataFrame({"user": ["ann"], "friend": ["bob"], "every": ["5 seconds"]})
    >>> near.over(friends).rows["share"].tolist()
    [0.2, 0.05]
    """
    check = Check()
    if not isinstance(name, str) or not name:
        check.say(f"name must be a word, got {name!r}")
    if not isinstance(symmetric, bool):
        check.say(f"symmetric must be True or False, got {symmetric!r}")
    places = (deliver,) if isinstance(deliver, str) else deliver
    if not is_names(places) or set(places) - set(_PLACES):
        check.say(f"deliver must be 'cloud', 'inputs' or both, got {deliver!r}")
    parts = _parts(inputs, check)
    every = tuple(_every(part, value, check) for part, value in parts)
    feeds = [part for part, _ in parts]
    times = _window(window, len(feeds), check)
    kept = _kept(keep, feeds, check)
    alike = len({part.name for part in feeds}) == len(set(times)) == len(set(kept)) == 1
    if symmetric is True and not (alike and len(feeds) == 2):
        check.say(
            "symmetric views compare one feed with itself, with one window and keep for both: "
            "leave it out"
        )
    check.refuse("view")
    kind = "pairs" if len(feeds) == 2 else "each"
    form = _form(name, where, feeds)
    definition = Definition(name, kind, times, form, kept, tuple(places))
    condition = where if isinstance(where, Predicate) else None
    rates: tuple[tuple[Feed | Template, float | str], ...] = tuple((part, 1.0) for part in feeds)
    return View(name, rates, "", symmetric, definition, condition, every)


def _parts(inputs: Any, check: Check) -> list[tuple[Feed, Any]]:
    given = list(inputs.items()) if isinstance(inputs, Mapping) else []
    if len(given) not in (1, 2) or not all(isinstance(part, Feed) for part, _ in given):
        check.say(
            "inputs must be a dict of one or two feeds of ab.feed, each with a duration, a column "
            f"of durations or None, got {inputs!r}"
        )
        return []
    for part, _ in given:
        if not part.columns:
            check.say(f"feed {part.name!r} has no columns: name them, as columns='x double'")
        if part.home == CLOUD_NAME:
            check.say(f"feed {part.name!r} is in the cloud, and only streams of devices can be run")
    return given


def _every(part: Feed, value: Any, check: Check) -> int | str:
    """How far apart rows are to be, or the column that says so."""
    if value is None:
        return 0
    try:
        length = microseconds(value)
    except ValueError as error:
        if isinstance(value, str) and value:
            return value
        check.say(f"inputs: {error}")
        return 0
    problem = _distance_problem(part, length)
    if problem:
        check.say(problem)
    return length


def _distance_problem(part: Feed, length: int) -> str | None:
    if length <= 0:
        return f"rows of feed {part.name!r} must be some time apart, or None for all"
    if not part.tick:
        return f"feed {part.name!r} has no tick=, and without one views get every row: say None"
    if length < part.tick:
        return f"rows of feed {part.name!r} are a tick apart, and cannot be closer"
    return None


def _shares(
    part: Any, every: int | str, table: pd.DataFrame, problems: list[str]
) -> float | np.ndarray:
    """The share of ticks that each row of the reference table asks for."""
    if not isinstance(every, str):
        return share_of(every, part.tick) if every else 1.0
    if every not in table.columns:
        problems.append(f"the reference table has no column {every!r}; it is no duration either")
        return 1.0
    code, found = pd.factorize(table[every])
    shares = []
    for value in found:
        try:
            length = microseconds(value)
            problem = _distance_problem(part, length)
        except ValueError as error:
            length, problem = 1, str(error)
        if problem:
            problems.append(f"column {every!r}: {problem}")
        shares.append(share_of(max(length, 1), part.tick))
    if (code < 0).any():
        problems.append(f"column {every!r} has no duration in {int((code < 0).sum()):,} rows")
    found_shares: np.ndarray = np.array([*shares, 1.0])[code]
    return found_shares


def _window(window: Any, sides: int, check: Check) -> tuple[int, int]:
    if sides == 1:
        if window is not MISSING:
            check.say("window= is for views over two feeds: leave it out")
        return 0, 0
    if not check.given("window", window, "window='30 seconds', how far apart two times may be"):
        return 0, 0
    both = check.pair("window", window, "a duration") or ("0 s", "0 s")
    return check.duration("window", both[0]), check.duration("window", both[1])


def _kept(keep: Any, feeds: list[Feed], check: Check) -> tuple[tuple[str, ...], ...]:
    names = (keep,) if isinstance(keep, str) else keep
    pair = isinstance(names, (list, tuple)) and len(names) == 2 and len(feeds) == 2
    sides = names if pair and all(isinstance(n, (list, tuple)) for n in names) else [names] * 2
    found = []
    for part, side in zip(feeds, sides, strict=False):
        kept = check.names("keep", side)
        lacking = [name for name in kept if name not in dict(part.columns)]
        if lacking:
            have = listed(dict(part.columns))
            check.say(f"keep: feed {part.name!r} has no column {listed(lacking)}; it has {have}")
        found.append(kept)
    return tuple(found)


def _form(name: str, where: Any, feeds: list[Feed]) -> Any:
    """The condition as data; raises if devices cannot decide it."""
    if len(feeds) == 2:
        if where is not None and not isinstance(where, Predicate):
            problem = f"where must be such as ab.euclidean('xy') <= 100, got {where!r}"
            raise InvalidCall("view", [problem])
        form = None if where is None else to_form(where)
        PairConditions(form, *(dict(part.columns) for part in feeds))
        if problems := _length_problems(where):
            raise InvalidCall(f"view {name!r}", problems)
        return form
    comparisons = None if where is None else where
    if comparisons is not None and not (
        isinstance(where, (list, tuple))
        and all(isinstance(c, (list, tuple)) and len(c) == 3 for c in where)
    ):
        problem = "where over one feed is a list of comparisons, such as [('speed', '>=', 30)]"
        raise InvalidCall("view", [f"{problem}, got {where!r}"])
    form = None if comparisons is None else [list(one) for one in comparisons]
    if problems := comparison_problems(form or [], dict(feeds[0].columns)):
        raise InvalidCall("view", problems)
    return None if form is None else [[*of, _plain(value)] for *of, value in form]


def _length_problems(where: Predicate | None) -> list[str]:
    """Where a batch has no length for vectors that may be null: inside ``|``, as of correlate."""
    terms = () if where is None else where.terms
    either = [term for term in terms if isinstance(term, Either)]
    measures = [getattr(leaf.plain, "measure", None) for term in either for leaf in term.leaves]
    return [
        f"inside | ab.{measure.kind}({measure.left!r}) needs the length of the vectors: add dim=, "
        "such as dim=64"
        for measure in measures
        if isinstance(measure, VectorMeasure) and measure.dim is None
    ]


def _plain(value: Any) -> Any:
    """A constant as it can be sent: numpy's numbers are Python's."""
    if isinstance(value, (bool, str)):
        return value
    return int(value) if isinstance(value, Integral) else float(value)


def as_list(views: Any, problems: list[str]) -> list[Views]:
    """The views of a call: one `Views`, or a list of them, each of a template of its own."""
    given = [views] if isinstance(views, Views) else views
    if not isinstance(given, Iterable) or not (given := list(given)):
        given = [views]
    if not all(isinstance(one, Views) for one in given):
        problems.append(
            "views must be what ab.view(...).over(table) makes, or a list of such, got "
            f"{type(views).__name__}"
        )
        return []
    names = [one.view.name for one in given]
    if len(set(names)) < len(names):
        problems.append(f"views of one name are made by one ab.view: {listed(names)}")
    return given
