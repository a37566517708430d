"""View templates: a few logical views, materialised over reference data into many physical ones.

A *feed* is a logical input with one stream per key; a *template* joins feeds and other templates.
The rows of a reference table (a social network, say) bind the keys, one set of physical views per
row. Equal expressions get equal names and are one physical view (section 2.1 of the
paper), needed at the largest rate that anybody needs.

Keys of feeds become words: equal keys get equal words, different ones different words. Streams of
a template are known by name, so a name must say as much as the key. The same user may be 2 in one
column and 2.0 in another, which is what pandas leaves of whole numbers after a left merge: both are
``2``. Where a key holds a character that names are made of, a backslash is put before it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from numbers import Real
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from anabranch.errors import InvalidCall, renamed
from anabranch.placement.feeds import Feed
from anabranch.placement.graph import CLOUD_NAME
from anabranch.placement.tables import id_problems, is_cost, listed, numbers

__all__ = ["KeyColumn", "Materialised", "Template", "template"]


@dataclass(frozen=True)
class Template:
    """A logical view over feeds and other templates, each with the rate that it samples."""

    name: str
    inputs: tuple[tuple[Feed | Template, float | str], ...]
    where: str = ""
    symmetric: bool = False

    def over(self, reference: Any) -> Materialised:
        """One physical view per row of the reference table, and whatever it is made of.

        Parameters
        ----------
        reference
            A pandas or Arrow table with the key columns of the feeds and the rate columns.
        """
        table = reference.to_pandas() if isinstance(reference, pa.Table) else reference
        problems = _reference_problems(self, table)
        if problems:
            raise InvalidCall(f"template {self.name!r}", problems)
        rows: list[pd.DataFrame] = []
        sources: list[pd.DataFrame] = []
        self._expand(table, rows, sources, {})
        every = pd.concat(rows, ignore_index=True)
        inputs = every.groupby(["view", "input"], sort=False, as_index=False)["rate"].max()
        houses = pd.concat(sources, ignore_index=True).drop_duplicates("source", ignore_index=True)
        return Materialised(inputs, houses)

    def _expand(
        self,
        table: pd.DataFrame,
        rows: list[pd.DataFrame],
        sources: list[pd.DataFrame],
        done: dict[Any, np.ndarray],
    ) -> np.ndarray:
        if self in done:
            return done[self]
        names = []
        for part, _ in self.inputs:
            if isinstance(part, Template):
                names.append(part._expand(table, rows, sources, done))
            else:
                names.append(_feed_names(part, table, sources))
        shown = (
            np.sort(np.column_stack(names), axis=1) if self.symmetric else np.column_stack(names)
        )
        own = pd.Series(shown[:, 0])
        for k in range(1, shown.shape[1]):
            own = own + "," + shown[:, k]
        where = f"|{self.where}" if self.where else ""
        full: np.ndarray = (f"{self.name}(" + own + where + ")").to_numpy(object)
        for name, (_, rate) in zip(names, self.inputs, strict=True):
            value = numbers(table[rate]) if isinstance(rate, str) else float(rate)
            rows.append(pd.DataFrame({"view": full, "input": name, "rate": value}))
        done[self] = full
        return full


@dataclass(frozen=True, eq=False)
class Materialised:
    """A physical view graph: what `ab.place` takes as inputs and sources."""

    inputs: pd.DataFrame
    sources: pd.DataFrame


@renamed()
def template(
    name: str,
    inputs: Mapping[Feed | Template, float | str],
    *,
    where: str = "",
    symmetric: bool = False,
) -> Template:
    """A logical view: what it joins, at which rates, under which filter.

    Parameters
    ----------
    name
        Of the operator; physical views are named ``name(input,input|where)``.
    inputs
        Feeds and templates, each with the rate needed of it: a number, or the column of the
        reference table that holds it. Join keys are the columns that the feeds are bound by.
    where
        The operator's filter, as text: views that differ in it are not shared.
    symmetric
        Whether the order of the inputs does not matter, so that the views of (a, b) and (b, a) are
        one.

    Examples
    --------
    >>> import pandas as pd
    >>> from anabranch.placement.feeds import feed
    >>> me, them = feed("gps", by="user"), feed("gps", by="friend")
    >>> nearby = template("nearby", {me: "rate", them: "rate_back"}, symmetric=True)
    >>> friends = pd.DataFrame({"user": ["ann", "bob"], "friend": ["bob", "cy"],
    ...                         "rate": [5.0, 1.0], "rate_back": [2.0, 4.0]})
    >>> nearby.over(friends).inputs.to_numpy().tolist()[:2]
    [['nearby(gps[ann],gps[bob])', 'gps[ann]', 5.0], ['nearby(gps[bob],gps[cy])', 'gps[bob]', 1.0]]
    """
    problems = []
    if not isinstance(name, str) or not name:
        problems.append(f"name must be a word, got {name!r}")
    if not isinstance(inputs, Mapping) or not inputs:
        problems.append(f"inputs must be a dict of feeds and templates to rates, got {inputs!r}")
    if not isinstance(where, str):
        problems.append(f"where must be the filter as text, got {where!r}")
    if not isinstance(symmetric, bool):
        problems.append(f"symmetric must be True or False, got {symmetric!r}")
    for part, rate in inputs.items() if isinstance(inputs, Mapping) else ():
        if not isinstance(part, (Feed, Template)):
            problems.append(
                f"inputs must be made by ab.feed or ab.placement.template, got {part!r}"
            )
        if isinstance(rate, bool) or not isinstance(rate, (int, float, str)):
            problems.append(f"the rate of {part!r} must be a number or a column name, got {rate!r}")
        elif not isinstance(rate, str) and not is_cost(rate):
            problems.append(
                f"the rate of {part!r} must be at least 0 and finite, got {listed([rate])}"
            )
    if problems:
        raise InvalidCall("template", problems)
    return Template(name, tuple(inputs.items()), where, symmetric)


def _feed_names(part: Feed, table: pd.DataFrame, sources: list[pd.DataFrame]) -> np.ndarray:
    several = len(part.by) > 1
    keys = [KeyColumn(table[column], several) for column in part.by]
    words = pd.Series(keys[0].words)
    for key in keys[1:]:
        words = words + "," + key.words
    names: np.ndarray = (f"{part.name}[" + words + "]").to_numpy(object)
    device = keys[0].values if part.home is None else CLOUD_NAME
    sources.append(pd.DataFrame({"source": names, "device": device}))
    return names


def _parts(whole: Template) -> tuple[dict[Feed, None], dict[str, None]]:
    """The feeds below a template and the columns of its rates, each once."""
    feeds: dict[Feed, None] = {}
    rates: dict[str, None] = {}

    def visit(part: Feed | Template) -> None:
        if isinstance(part, Feed):
            feeds[part] = None
            return
        for inner, rate in part.inputs:
            visit(inner)
            if isinstance(rate, str):
                rates[rate] = None

    visit(whole)
    return feeds, rates


def _reference_problems(whole: Template, table: Any) -> list[str]:
    if not isinstance(table, pd.DataFrame):
        return [f"reference data must be a pandas or Arrow table, got {type(table).__name__}"]
    feeds, rates = _parts(whole)
    wanted = dict.fromkeys([*(column for part in feeds for column in part.by), *rates])
    lacking = [column for column in wanted if column not in table.columns]
    problems = _feed_problems(list(feeds))
    twice = [column for column in wanted if list(table.columns).count(column) > 1]
    if twice:
        problems.append(f"the reference table has more than one column {listed(twice)}")
    if lacking:
        problems.append(
            f"the reference table has no column {', '.join(map(repr, lacking))}; it has "
            f"{', '.join(map(repr, table.columns))}"
        )
    if not len(table):
        problems.append("the reference table is empty: no view would come of it")
    return problems or [*_key_problems(list(feeds), table), *_rate_problems(list(rates), table)]


def _feed_problems(feeds: list[Feed]) -> list[str]:
    """Feeds of one name are one feed, bound by different columns; they must agree in all else."""
    problems = []
    for name in dict.fromkeys(part.name for part in feeds):
        mine = [part for part in feeds if part.name == name]
        if len({part.home for part in mine}) > 1:
            problems.append(
                f"feed {name!r} is in the cloud in one place and on devices in another: give both "
                "the same home, or different names"
            )
        if len({(part.tick, part.columns) for part in mine}) > 1:
            problems.append(f"feed {name!r} has different ticks or columns: give both the same")
        if len({len(part.by) for part in mine}) > 1:
            problems.append(
                f"feed {name!r} has keys of different numbers of columns: "
                f"{listed(part.by for part in mine)}: give such feeds different names"
            )
    return problems


def _key_problems(feeds: list[Feed], table: pd.DataFrame) -> list[str]:
    problems = []
    columns = dict.fromkeys(column for part in feeds for column in part.by)
    for column in columns:
        if missing := int(table[column].isna().sum()):
            problems.append(f"column {column!r} has no key in {missing:,} rows: leave them out")
    problems += id_problems(table, list(columns), "the reference table")
    if problems:
        return problems
    keys = {column: KeyColumn(table[column]) for column in columns}
    on_devices = dict.fromkeys(part.by[0] for part in feeds if part.home is None)
    for column in on_devices:
        if CLOUD_NAME in keys[column].distinct:
            problems.append(
                f"column {column!r} names devices, and one of them is {CLOUD_NAME!r}, which no "
                "device can be called: rename it"
            )
    for name in dict.fromkeys(part.name for part in feeds):
        for same in zip(*(part.by for part in feeds if part.name == name), strict=True):
            kinds = {column: keys[column].kinds for column in same}
            if len(set().union(*kinds.values())) > 1:
                held = "; ".join(f"{c!r} holds {' and '.join(sorted(k))}" for c, k in kinds.items())
                problems.append(
                    f"keys of feed {name!r} are of different kinds, so that nobody knows which are "
                    f"the same: {held}: make the columns one type"
                )
    return problems


def _rate_problems(columns: list[str], table: pd.DataFrame) -> list[str]:
    # Before equal views are merged at their largest rate, which would hide what is wrong.
    problems = []
    for column in columns:
        rates = numbers(table[column])
        at = np.flatnonzero(~(np.isfinite(rates) & (rates >= 0)))
        if len(at):
            problems.append(
                f"rate must be a number of at least 0, but column {column!r} holds "
                f"{listed(table[column].iloc[at])}: correct or leave out such rows"
            )
    return problems


class KeyColumn:
    r"""A column of keys, each as it is and as a word.

    Parameters
    ----------
    column
        The keys. None may be missing.
    several
        Whether they are a part of longer keys, whose parts are separated by commas.

    Examples
    --------
    >>> keys = KeyColumn(pd.Series([2.0, 3.5, 2.0]))
    >>> keys.words.tolist(), keys.values.tolist(), keys.kinds
    (['2', '3.5', '2'], [2, 3.5, 2], {'number'})
    >>> KeyColumn(pd.Series(["x,y"])).words.tolist()
    ['x,y']
    >>> print(KeyColumn(pd.Series(["x,y"]), several=True).words[0])
    x\,y
    """

    def __init__(self, column: pd.Series, several: bool = False) -> None:
        code, found = pd.factorize(column)
        self.distinct = [_plain(key) for key in found]
        self._code = code
        self._several = several

    @property
    def kinds(self) -> set[str]:
        """Kinds of keys in the column, as people call them."""
        return {_kind(key) for key in self.distinct}

    @property
    def values(self) -> np.ndarray:
        """The keys, whole numbers as integers."""
        return self._spread(self.distinct)

    @property
    def words(self) -> np.ndarray:
        """The keys as they are written in names."""
        words = []
        for key in self.distinct:
            word = str(key).replace("\\", "\\\\").replace("]", "\\]")
            words.append(word.replace(",", "\\,") if self._several else word)
        return self._spread(words)

    def _spread(self, distinct: list[Any]) -> np.ndarray:
        held = np.empty(len(distinct), object)
        held[:] = distinct
        found: np.ndarray = held[self._code]
        return found


def _plain(key: Any) -> Any:
    """The key as a value of Python, and as an integer if it is whole."""
    key = key.item() if isinstance(key, np.generic) else key
    if isinstance(key, (float, Decimal)) and key == key and abs(key) != float("inf"):
        return int(key) if key == int(key) else key
    return key


def _kind(key: Any) -> str:
    if isinstance(key, str):
        return "text"
    if isinstance(key, (Real, Decimal)) and not isinstance(key, bool):
        return "number"
    return type(key).__name__
