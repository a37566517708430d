"""From a caller's tables to a view graph: every problem is found, none is guessed away."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pandas as pd

from anabranch.errors import InvalidCall
from anabranch.flow.process import njit
from anabranch.placement.graph import CLOUD, CLOUD_NAME, ViewGraph
from anabranch.placement.pinning import Wishes, declare, pinned_graph, read_wishes, unknown_views
from anabranch.placement.rows import RateChanges
from anabranch.placement.tables import (
    COLUMNS,
    SHOWN,
    SOURCES,
    id_problems,
    is_cost,
    listed,
    numbers,
    read_table,
)

__all__ = ["DOWNLOAD_COST", "OWN", "UPLOAD_COST", "read_changes", "read_graph"]

UPLOAD_COST, DOWNLOAD_COST = 1.0, 0.5
OWN = "own"
NO_WISHES = Wishes()

# mypy: disable-error-code="no-untyped-def, no-untyped-call"


def read_graph(
    inputs: Any,
    sources: Any,
    upload_cost: Any = UPLOAD_COST,
    download_cost: Any = DOWNLOAD_COST,
    capacity: Any = None,
    load: Any = None,
    shared: bool = True,
    wishes: Wishes = NO_WISHES,
) -> ViewGraph:
    """The view graph of a call of `place`.

    Examples
    --------
    >>> graph = read_graph([("w", "p", 10), ("w", "q", 6)], {"p": "P", "q": "Q"})
    >>> graph.views, list(graph.device_ids)
    (1, ['P', 'Q'])
    >>> try:
    ...     read_graph([("w", "p", -1), ("w", "r", 6)], {"p": "P"})
    ... except InvalidCall as error:
    ...     [problem[:40] for problem in error.problems]
    ['rate must be a number of at least 0, but', "unknown sources 'r': every input must be"]
    """
    problems: list[str] = []
    table = read_table(inputs, COLUMNS, "inputs", problems)
    houses = _houses(sources, table, problems)
    fixed = read_wishes(wishes, problems)
    if not isinstance(shared, bool):
        problems.append(f"shared must be True or False, got {shared!r}")
    if table is None or houses is None:
        raise InvalidCall("place", problems)
    try:
        rates = _rates(table, problems)
        _refuse_gaps(table, problems)
        view_code, view_ids = pd.factorize(table["view"])
        source_ids, device_ids, home = _homes(houses, problems)
        node = _nodes(table["input"], pd.Index(view_ids), source_ids, problems)
        _refuse_unread(node, source_ids, problems)
    except (TypeError, OverflowError):
        problems += id_problems(table, COLUMNS[:2], "inputs") + id_problems(
            houses, SOURCES, "sources"
        )
        if not problems:
            raise
        raise InvalidCall("place", problems) from None
    given = (("upload_cost", upload_cost), ("download_cost", download_cost))
    unknown_views(fixed, view_ids, problems)
    declare(fixed, device_ids, wishes.sites, _named(upload_cost, download_cost, capacity), problems)
    prices = [_per_device(value, name, device_ids, problems) for name, value in given]
    limit, weight = _limits(capacity, load, device_ids, pd.Index(view_ids), problems)
    if problems:
        raise InvalidCall("place", problems)
    if np.any(view_code[1:] < view_code[:-1]):
        order = np.argsort(view_code, kind="stable")
        view_code, node, rates = view_code[order], node[order], rates[order]
    sizes = np.bincount(view_code, minlength=len(view_ids))
    graph = ViewGraph(
        offsets=np.concatenate([[0], np.cumsum(sizes)]),
        inputs=node,
        rates=rates,
        home=home,
        up=prices[0],
        down=prices[1],
        capacity=limit,
        load=weight,
        shared=shared,
        source_ids=source_ids,
        view_ids=np.asarray(view_ids),
        device_ids=device_ids,
    )
    _structure(graph, problems)
    if not problems:
        graph = pinned_graph(graph, fixed, wishes.sites, problems)
    if problems:
        raise InvalidCall("place", problems)
    return graph


def _houses(sources: Any, table: pd.DataFrame | None, problems: list[str]) -> pd.DataFrame | None:
    """The table source, device."""
    if not (isinstance(sources, str) and sources == OWN):
        return read_table(sources, SOURCES, "sources", problems)
    if table is None:
        return None
    problems += id_problems(table, COLUMNS[:2], "inputs")
    return None if problems else _own_devices(table)


def _refuse_unread(node: np.ndarray, source_ids: Any, problems: list[str]) -> None:
    unread = np.ones(len(source_ids), bool)
    unread[node[(node >= 0) & (node < len(source_ids))]] = False
    if unread.any():
        names = source_ids[unread]
        problems.append(f"sources names {listed(names)}, which no view needs: leave them out")


def _named(*given: Any) -> set[Any]:
    """The devices that costs and capacities name."""
    return {name for value in given if isinstance(value, Mapping) for name in value}


def _own_devices(table: pd.DataFrame) -> pd.DataFrame:
    """Every source on a device of its own name."""
    names = pd.Index(table["input"].dropna().unique())
    own = names.difference(pd.Index(table["view"].dropna().unique()), sort=False)
    return pd.DataFrame({"source": own, "device": own})


def _refuse_gaps(table: pd.DataFrame, problems: list[str]) -> None:
    """Raise if a row lacks its view or its input; an empty table is a problem like others."""
    nameless, bare = table["view"].isna(), table["input"].isna()
    if nameless.any():
        problems.append(f"{int(nameless.sum())} rows of inputs have no view")
    if (bare & ~nameless).any():
        empty = table["view"][bare & ~nameless].unique()
        problems.append(f"views with no input: {listed(empty)}: give each one, or leave it out")
    if nameless.any() or bare.any():
        raise InvalidCall("place", problems)
    if not len(table):
        problems.append("inputs is empty: give one row (view, input, rate) per input of a view")


def _nodes(
    inputs: pd.Series, view_index: pd.Index, source_ids: Any, problems: list[str]
) -> np.ndarray:
    """The node that each row reads: sources first, views after them."""
    source_index = pd.Index(source_ids)
    both = view_index.intersection(source_index)
    if len(both):
        problems.append(
            f"duplicate ids: {listed(both)} are views and are in sources too: rename one of the two"
        )
    as_view = view_index.get_indexer(inputs)
    as_source = source_index.get_indexer(inputs) if source_index.is_unique else as_view
    node: np.ndarray = np.where(as_view >= 0, as_view + len(source_ids), as_source).astype(np.int32)
    unknown = node < 0
    if unknown.any():
        names = inputs[unknown].unique()
        problems.append(
            f"unknown sources {listed(names)}: every input must be a view of the table or have a "
            'device; add them to sources, with "cloud" for data that lives there'
            + _other_type(names, source_ids)
        )
    return node


def read_changes(graph: ViewGraph, changes: Any) -> tuple[np.ndarray, np.ndarray]:
    """Rows of the graph and their new rates, from a table like the one it was read from."""
    if isinstance(changes, RateChanges):
        return changes.rows, changes.rates
    if isinstance(changes, (list, tuple)) and not changes:
        return np.empty(0, np.int64), np.empty(0)
    problems: list[str] = []
    table = read_table(changes, COLUMNS, "changes", problems)
    if table is None:
        raise InvalidCall("replan", problems)
    rates = _rates(table, problems)
    if gaps := int(table[list(COLUMNS[:2])].isna().any(axis=1).sum()):
        raise InvalidCall("replan", [*problems, f"{gaps} rows of changes have no view or no input"])
    named = graph.views - graph.readers
    views = pd.Index(np.arange(named) if graph.view_ids is None else graph.view_ids)
    names = np.arange(graph.sources) if graph.source_ids is None else graph.source_ids
    try:
        view_code = views.get_indexer(table["view"])
        node = pd.Index(names).get_indexer(table["input"])
        as_view = views.get_indexer(table["input"])
    except (TypeError, OverflowError):
        problems += id_problems(table, COLUMNS[:2], "changes")
        if not problems:
            raise
        raise InvalidCall("replan", problems) from None
    node = np.where(as_view >= 0, as_view + graph.sources, node)
    known = (view_code >= 0) & (node >= 0)
    rows = np.full(len(table), -1, np.int64)
    candidates = graph.rows_of(np.unique(view_code[known]))
    nodes = graph.sources + graph.views
    keys = graph.row_view[candidates].astype(np.int64) * nodes + graph.inputs[candidates]
    order = np.argsort(keys)
    if len(keys):
        wanted = view_code * nodes + node
        at = np.minimum(np.searchsorted(keys[order], wanted), len(keys) - 1)
        hit = known & (keys[order[at]] == wanted)
        rows[hit] = candidates[order[at[hit]]]
    if (rows < 0).any():
        lost = [f"{v!r} <- {u!r}" for v, u in table.loc[rows < 0, ["view", "input"]].to_numpy()]
        problems.append(
            f"no such row: {', '.join(lost[:SHOWN])}: replan changes rates of inputs that exist; "
            "for new views call place again"
        )
    twice = pd.Series(rows[rows >= 0]).duplicated()
    if twice.any():
        problems.append("the same view and input are changed twice: give one rate for each")
    if problems:
        raise InvalidCall("replan", problems)
    return rows, rates


def _rates(table: pd.DataFrame, problems: list[str]) -> np.ndarray:
    rates = numbers(table["rate"])
    wrong = ~np.isfinite(rates) | (rates < 0)
    if wrong.any():
        at = np.flatnonzero(wrong)
        rows = table.iloc[at[:SHOWN]].itertuples(index=False)
        shown = ", ".join(
            f"view {row.view!r} for input {row.input!r} ({listed([row.rate])})" for row in rows
        )
        more = f" and {len(at) - SHOWN} more" if len(at) > SHOWN else ""
        problems.append(
            f"rate must be a number of at least 0, but is not in {shown}{more}: correct or leave "
            "out such rows"
        )
    return rates


def _homes(houses: pd.DataFrame, problems: list[str]) -> tuple[Any, list[Any], np.ndarray]:
    if missing := int(houses["source"].isna().sum()):
        problems.append(f"{missing} rows of sources name no source: leave them out")
        houses = houses[houses["source"].notna()]
    apart = houses.drop_duplicates()["source"]
    several = apart[apart.duplicated()].unique()
    if len(several):
        problems.append(f"sources on several devices: {listed(several)}: give each source one")
    again = houses["source"].duplicated()
    twice = houses["source"][again & ~houses["source"].isin(several)].unique()
    if len(twice):
        problems.append(f"sources listed twice: {listed(twice)}: give each source one row")
    houses = houses[~again]  # with the first home, all else can be checked
    homeless = houses["source"][houses["device"].isna()]
    if len(homeless):
        problems.append(
            f'sources without a device: {listed(homeless)}: name one, or "cloud" for data there'
        )
    code, found = pd.factorize(houses["device"])
    names = [d.item() if isinstance(d, np.generic) else d for d in found]
    if CLOUD_NAME in names:
        cloud = names.index(CLOUD_NAME)
        del names[cloud]
        code = np.where(code == cloud, CLOUD, code - (code > cloud))
    return houses["source"].to_numpy(), names, code.astype(np.int32)


def _other_type(unknown: Iterable[Any], sources: Iterable[Any]) -> str:
    """What to say of ids that are known, but as values of another type."""
    known = {str(name): name for name in sources}
    for name in unknown:
        if str(name) in known:
            other = known[str(name)]
            return (
                f". Sources has {listed([other])} ({type(other).__name__}), inputs have "
                f"{listed([name])} ({type(name).__name__}): make the ids one type"
            )
    return ""


def _per_device(value: Any, name: str, devices: list[Any], problems: list[str]) -> np.ndarray:
    if isinstance(value, Mapping):
        known = set(devices)
        strange = [d for d in value if d is not None and d not in known]
        if strange:
            problems.append(f"{name} names unknown devices {listed(strange)}: sources has none")
        wrong = [d for d, cost in value.items() if not is_cost(cost)]
        if wrong:
            problems.append(f"{name} must be at least 0 and finite, but is not for {listed(wrong)}")
        if strange or wrong:
            return np.zeros(len(devices))
        rest = UPLOAD_COST if name == "upload_cost" else DOWNLOAD_COST
        rest = value.get(None, rest)
        return np.array([float(value.get(d, rest)) for d in devices])
    if not is_cost(value):
        problems.append(
            f"{name} must be a cost per unit of at least 0, or a dict of them per device, got "
            f"{value!r}"
        )
        return np.zeros(len(devices))
    return np.full(len(devices), float(value))


def _limits(
    capacity: Any, load: Any, devices: list[Any], views: pd.Index, problems: list[str]
) -> tuple[np.ndarray | None, np.ndarray | None]:
    if capacity is None:
        if load is not None:
            problems.append("load is given without capacity, where it means nothing: give both")
        return None, None
    # One number is that of all, as of costs.
    capacity, load = ({None: value} if is_cost(value) else value for value in (capacity, load))
    both = (("capacity", capacity), ("load", {} if load is None else load))
    wrong = [(name, value) for name, value in both if not isinstance(value, Mapping)]
    if wrong:
        what = "must be a number of at least 0, or a dict of them"
        problems += [f"{n} {what}, got {type(v).__name__}" for n, v in wrong]
        return None, None
    for name, value in both:
        wrong = [k for k, v in value.items() if not is_cost(v)]
        if wrong:
            problems.append(f"{name} must be at least 0 and finite, but is not for {listed(wrong)}")
    strange = [d for d in capacity if d is not None and d not in set(devices)]
    if strange:
        problems.append(
            f"capacity names unknown devices {listed(strange)}: sources has none of them"
        )
    load = dict(load or {})
    weight = np.full(len(views), float(load.pop(None, 1.0)) if not problems else 1.0)
    if load:
        at = views.get_indexer(pd.Index(list(load)))
        if (at < 0).any():
            names = [name for name, k in zip(load, at, strict=True) if k < 0]
            problems.append(f"load names unknown views {listed(names)}")
        if not problems:
            weight[at] = [float(v) for v in load.values()]
    if problems:
        return None, None
    rest = float(capacity.get(None, np.inf))
    return np.array([float(capacity.get(d, rest)) for d in devices]), weight


def _structure(graph: ViewGraph, problems: list[str]) -> None:
    twice = _repeated(graph.offsets, graph.inputs, graph.sources + graph.views)
    if len(twice):
        pairs = [
            f"{graph.view_name(int(graph.row_view[k]))!r} <- "
            f"{graph.node_name(int(graph.inputs[k]))!r}"
            for k in twice[:SHOWN]
        ]
        more = f" and {len(twice) - SHOWN} more" if len(twice) > SHOWN else ""
        problems.append(
            f"the same input is listed twice for a view: {', '.join(pairs)}{more}: give one row "
            "for each"
        )
    cyclic = np.flatnonzero(graph.ranks < 0)
    if len(cyclic):
        names = [graph.view_name(int(v)) for v in cyclic[: SHOWN + 1]]
        names += [None] * (len(cyclic) - len(names))
        problems.append(
            f"views that depend on themselves, or on such views: {listed(names)}: break the cycle"
        )


@njit
def _repeated(offsets, inputs, nodes):
    stamp = np.full(nodes, -1, np.int32)
    found = []
    for v in range(len(offsets) - 1):
        for e in range(offsets[v], offsets[v + 1]):
            if stamp[inputs[e]] == v:
                found.append(e)
            stamp[inputs[e]] = v
    out = np.empty(len(found), np.int64)
    for k in range(len(found)):
        out[k] = found[k]
    return out
