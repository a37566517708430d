"""``anabranch place``: plan a table of views from the command line.

``register(app)`` adds the command to a Typer application.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from typer.core import TyperCommand

from anabranch.errors import InvalidCall
from anabranch.flow.pictures import SUFFIXES

if TYPE_CHECKING:
    from anabranch.placement import Placement

__all__ = ["place", "register"]

_WRITERS = (".parquet", ".csv", ".json")
_NAMING = ("name yours with columns=", "name yours with --column, such as --column rate=mbit")
# What former options are called now.
_FORMER = {"--homes": "--sources", "--up": "--upload-cost", "--down": "--download-cost"}


class _Command(TyperCommand):
    """A command that refuses former options with their new names."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        for option in (text.partition("=")[0] for text in args):
            if option in _FORMER:
                ctx.fail(f"{option} is now called {_FORMER[option]}")
        return super().parse_args(ctx, args)


def register(app: typer.Typer) -> None:
    """Add the command to an application."""
    app.command("place", cls=_Command)(place)


def place(
    views: Annotated[
        Path,
        typer.Argument(
            help="Table view, input, rate: .parquet, .csv, .feather or .arrow, a file or a folder "
            "of parts."
        ),
    ],
    sources: Annotated[
        str | None,
        typer.Option(
            help="Table source, device ('cloud' for data there); or 'own': each source is on a "
            "device of its own name."
        ),
    ] = None,
    column: Annotated[
        list[str] | None, typer.Option(help="A column's name in your tables, such as rate=mbit.")
    ] = None,
    upload_cost: Annotated[
        list[str] | None, typer.Option(help="Per unit sent by a device: 1 or S1=2. Default 1.")
    ] = None,
    download_cost: Annotated[
        list[str] | None, typer.Option(help="Per unit sent to a device: 1 or S1=2. Default 0.5.")
    ] = None,
    capacity: Annotated[
        list[str] | None, typer.Option(help="What a device can carry: S1=10, or 10 for all.")
    ] = None,
    load: Annotated[
        list[str] | None, typer.Option(help="How heavy a view is: board=2, or 2 for all.")
    ] = None,
    reader: Annotated[
        list[str] | None,
        typer.Option(help="Who reads a view: board=cloud, or with a rate board=S1=0.5."),
    ] = None,
    pin: Annotated[list[str] | None, typer.Option(help="Where a view stays: board=cloud.")] = None,
    shared: Annotated[
        bool, typer.Option(help="Whether several views may use what one of them was sent.")
    ] = True,
    core: Annotated[
        Path | None,
        typer.Option(help="Sites behind the cloud, as JSON: links, attached, sites."),
    ] = None,
    replan: Annotated[
        Path | None, typer.Option(help="New rates, a table like the first: plan those too.")
    ] = None,
    without: Annotated[
        list[str] | None, typer.Option(help="A device that has failed: plan without it.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Write the plan here: .parquet, .csv or .json.")
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(help="Draw the plan as a map here (.svg, .png or .pdf).")
    ] = None,
    explain: Annotated[list[str] | None, typer.Option(help="Say why this view is there.")] = None,
    traffic: Annotated[bool, typer.Option(help="Show what crosses each link.")] = False,
    time_limit: Annotated[float, typer.Option(help="Seconds for each hard conflict.")] = 30.0,
) -> None:
    """Decide which views run on devices and which in the cloud, at the least traffic."""
    console = Console()
    named = {
        "upload_cost": upload_cost,
        "download_cost": download_cost,
        "capacity": capacity,
        "load": load,
        "readers": reader,
        "pin": pin,
    }
    try:
        with _progress(console) as progress:
            task = progress.add_task("reading", total=None)
            options = {"shared": shared, "time_limit": time_limit}
            # Checked before the work, so that a long run does not end in a wrong option.
            problems = _path_problems(out, plot)
            call = _Call.read(views, sources, column, named, core, options, problems)
            progress.update(task, description="planning")
            began = time.perf_counter()
            plan = call.plan(replan, without or ())
            seconds = time.perf_counter() - began
            reasons = [str(plan.explain(call.name(view))) for view in explain or ()]
            if out is not None:
                progress.update(task, description=f"writing {out}")
                _write(plan, out)
            if plot is not None:
                progress.update(task, description=f"drawing {plot}")
                plan.draw(plot)
        _summarise(console, plan, seconds, out, plot)
        if traffic:
            console.print(_links(plan))
        for reason in reasons:
            console.print(reason, highlight=False, markup=False)
    except InvalidCall as error:
        Console(stderr=True).print(str(error), highlight=False, markup=False, soft_wrap=True)
        raise typer.Exit(2) from None


@dataclass
class _Call:
    """What the options say, as `ab.place` takes it."""

    inputs: Any
    sources: Any
    columns: dict[str, str]
    options: dict[str, Any]

    @classmethod
    def read(
        cls,
        views: Path,
        sources: str | None,
        column: list[str] | None,
        named: dict[str, list[str] | None],
        core: Path | None,
        options: dict[str, Any],
        problems: list[str],
    ) -> _Call:
        """Tables and options; every problem is said, also those that are known already."""
        from anabranch.placement.call import read_tables, time_limit_problems
        from anabranch.placement.tables import column_problems

        columns = dict(_pair("--column", text, problems) for text in column or ())
        wrong = column_problems({name: theirs for name, theirs in columns.items() if theirs})
        problems += [f"--column{text.removeprefix('columns')}" for text in wrong]
        if sources is None:
            problems.append(
                "--sources is missing: name a table source, device, or 'own' for each source on a "
                "device of its own name"
            )
        unread: list[str] = []
        inputs, houses = read_tables(views, sources, columns, unread)
        problems += [text.replace(*_NAMING) for text in unread]
        call = cls(inputs, houses, columns, options)
        for name in ("upload_cost", "download_cost", "capacity", "load"):
            if given := named[name]:
                call.options[name] = call._numbers(name, given, problems)
        if given := named["pin"]:
            pairs = [_pair("--pin", text, problems) for text in given]
            call.options["pin"] = {call.name(v): call.name(place) for v, place in pairs if place}
        if given := named["readers"]:
            call.options["readers"] = call._readers(given, problems)
        if core is not None:
            call.options["core"] = _core(core, call, problems)
        if problems:
            problems += time_limit_problems(options["time_limit"])
            raise InvalidCall("place", problems + ([] if unread else call._problems()))
        return call

    def _problems(self) -> list[str]:
        """What else the plan would reject, if not all options can be read."""
        from anabranch.placement.pinning import Wishes
        from anabranch.placement.reading import read_graph
        from anabranch.placement.tables import named_as_given

        names = ("upload_cost", "download_cost", "capacity", "load", "shared")
        given = {name: self.options[name] for name in names if name in self.options}
        core = self.options.get("core")
        sites = () if core is None else core.nodes
        wishes = Wishes(self.options.get("readers"), self.options.get("pin"), sites)
        try:
            read_graph(
                self.inputs, "own" if self.sources is None else self.sources, wishes=wishes, **given
            )
        except InvalidCall as error:
            return named_as_given(error.problems, self.columns)
        return []

    def plan(self, replan: Path | None, without: Sequence[str]) -> Placement:
        """The plan: of new rates, and without devices that failed, if there are any."""
        from anabranch.placement import place as planned
        from anabranch.placement.tables import named_as_given

        try:
            found = planned(self.inputs, self.sources, **self.options)
            if replan is not None:
                found = found.replan(self.table(replan, "replan"))
            return found.without(*map(self.name, without)) if without else found
        except InvalidCall as error:
            raise InvalidCall(error.verb, named_as_given(error.problems, self.columns)) from None

    def table(self, path: Path, name: str) -> Any:
        """Another table of views."""
        from anabranch.placement.call import read_tables

        problems: list[str] = []
        found, _ = read_tables(path, "own", self.columns, problems, name)
        if problems:
            raise InvalidCall("place", [text.replace(*_NAMING) for text in problems])
        textual = self.inputs["view"].map(type).eq(str).any()
        for id_column in ("view", "input") if textual else ():
            found[id_column] = found[id_column].astype(str)
        return found

    def name(self, text: str) -> Any:
        """An id as the tables have it: typed names are text, ids may be numbers."""
        whole = re.fullmatch("-?[0-9]+", text)
        if not whole or self._is_known(text):
            return text
        return int(text) if self._is_known(int(text)) else text

    def _is_known(self, name: Any) -> bool:
        tables = [t for t in (self.inputs, self.sources) if hasattr(t, "columns")]
        columns = [
            table[c]
            for table in tables
            for c in ("view", "input", "source", "device")
            if c in table
        ]
        return any((column == name).any() for column in columns)

    def _numbers(self, name: str, given: list[str], problems: list[str]) -> Any:
        found: dict[Any, Any] = {}
        for text in given:
            what, _, value = text.rpartition("=")
            try:
                found[self.name(what) if what else None] = float(value)
            except ValueError:
                option = name.replace("_", "-")
                problems.append(f"--{option} must be a number or NAME=NUMBER, got {text!r}")
        if list(found) == [None] and name.endswith("cost"):
            return found[None]
        return found

    def _readers(self, given: list[str], problems: list[str]) -> dict[Any, Any]:
        found: dict[Any, dict[Any, float | None]] = {}
        for text in given:
            view, _, rest = text.partition("=")
            place, _, rate = rest.partition("=")
            try:
                amount = float(rate) if rate else None
            except ValueError:
                place = ""
            if not view or not place:
                problems.append(f"--reader must be VIEW=PLACE or VIEW=PLACE=RATE, got {text!r}")
                continue
            found.setdefault(self.name(view), {})[self.name(place)] = amount
        return found


def _pair(option: str, text: str, problems: list[str]) -> tuple[str, str]:
    name, sign, value = text.partition("=")
    if not (name and sign and value):
        problems.append(f"{option} must be NAME=VALUE, got {text!r}")
    return name, value


def _core(path: Path, call: _Call, problems: list[str]) -> Any:
    from anabranch.placement import CoreNetwork

    try:
        form = json.loads(path.read_text())
        links = [(a, b, cost) for a, b, cost in form["links"]]
        attached, sites = (
            {call.name(key): site for key, site in form.get(name, {}).items()}
            for name in ("attached", "sites")
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        problems.append(
            f'--core: cannot read {path}: {error!r}; it must hold {{"links": [["east", "west", '
            '3.0]], "attached": {"S1": "east"}, "sites": {"news": "west"}}'
        )
        return None
    return CoreNetwork(links, attached, sites)


def _path_problems(out: Path | None, plot: Path | None) -> list[str]:
    problems = []
    for path in filter(None, (out, plot)):
        if not path.absolute().parent.is_dir():
            problems.append(f"no folder {path.parent} to write {path.name} to")
        elif path.is_dir():
            problems.append(f"{path} is a folder: name a file to write")
    if out is not None and out.suffix not in _WRITERS:
        problems.append(f"--out must end in {', '.join(_WRITERS)}, got {out}")
    if plot is not None and plot.suffix not in SUFFIXES:
        problems.append(f"--plot must end in {', '.join(SUFFIXES)}, got {plot}")
    if plot is not None:
        try:
            import matplotlib  # noqa: F401
        except ImportError:
            problems.append("--plot needs matplotlib: pip install 'anabranch[plots]'")
    return problems


def _write(plan: Placement, out: Path) -> None:
    """The plan; CSV has no lists, so there what crosses links is JSON text."""
    table = plan.table()
    if out.suffix == ".parquet":
        from pyarrow import parquet

        parquet.write_table(table, out)
    elif out.suffix == ".csv":
        rows = table.to_pandas()
        for name in ("uploads", "downloads"):
            rows[name] = [json.dumps(found, default=str) for found in table[name].to_pylist()]
        rows.to_csv(out, index=False)
    else:
        out.write_text(json.dumps(table.to_pylist(), indent=1, default=str) + "\n")


def _summarise(
    console: Console, plan: Placement, seconds: float, out: Path | None, plot: Path | None
) -> None:
    count = len(plan.location)
    held = sum(place != "cloud" for place in plan.location.values())
    table = Table(show_header=False, box=None)
    table.add_row(
        "views",
        f"{count:,}: {held:,} on devices, {count - held:,} in the cloud",
    )
    table.add_row("cost", f"{plan.cost:,.6g}")
    times = f" ({plan.baseline_cost / plan.cost:.2f} times as much)" if plan.cost > 0 else ""
    table.add_row("all uploaded", f"{plan.baseline_cost:,.6g}{times}")
    proof = "proved" if plan.optimal else f"NOT proved: at most {plan.gap:.2%} above the optimum"
    table.add_row("optimal", proof)
    how = ", ".join(f"{n}: {c:,}" for n, c in plan.methods.items())
    table.add_row("planned by", how or "nothing: no data are on devices")
    table.add_row("time", f"{seconds:.2f} s")
    for name, path in (("plan", out), ("plot", plot)):
        if path is not None:
            table.add_row(name, str(path))
    console.print(table)


def _links(plan: Placement) -> Table:
    """What crosses each link, the most expensive first."""
    rows = plan.traffic().to_pandas().sort_values("cost", ascending=False, kind="stable")
    table = Table(*rows.columns, box=None)
    for row in rows.itertuples(index=False):
        table.add_row(*(f"{v:,.6g}" if isinstance(v, float) else str(v) for v in row))
    return table


def _progress(console: Console) -> Progress:
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    return Progress(*columns, console=console, transient=True)
