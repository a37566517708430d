"""``anabranch place``: plan a table of views from the command line.

``register(app)`` adds the command to a Typer application.
"""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from anabranch.errors import InvalidCall

if TYPE_CHECKING:
    from anabranch.placement import Placement

__all__ = ["place", "register"]

_RATIOS = (0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.4, 2.0)
_READERS = (".parquet", ".csv", ".feather", ".arrow")
_IDS = ("view", "input", "source", "device")


def register(app: typer.Typer) -> None:
    """Add the command to an application."""
    app.command("place")(place)


def place(
    views: Annotated[
        Path,
        typer.Argument(
            help="Table view, input, rate: .parquet, .csv, .feather or .arrow, a file or a folder "
            "of parts."
        ),
    ],
    homes: Annotated[
        Path | None,
        typer.Option(
            help="Table source, device ('cloud' for data there). Left out: each source is on a "
            "device of its own name."
        ),
    ] = None,
    up: Annotated[float, typer.Option(help="Cost per unit sent by a device.")] = 1.0,
    down: Annotated[float, typer.Option(help="Cost per unit sent to a device.")] = 0.5,
    out: Annotated[Path | None, typer.Option(help="Write the plan here, as Parquet.")] = None,
    plot: Annotated[
        Path | None, typer.Option(help="Draw cost against down/up here (.png or .svg).")
    ] = None,
    explain: Annotated[list[str] | None, typer.Option(help="Say why this view is there.")] = None,
    time_limit: Annotated[float, typer.Option(help="Seconds for each hard conflict.")] = 30.0,
) -> None:
    """Decide which views run on devices and which in the cloud, at the least traffic."""
    console = Console()
    try:
        # Checked before the work, so that a long run does not end in a wrong option.
        _check_paths(views, homes, out, plot)
        with _progress(console) as progress:
            task = progress.add_task("reading", total=None)
            inputs = _read(views)
            if homes is None:
                houses = _own_devices(inputs)
            else:
                inputs, houses = _same_ids(inputs, _read(homes))
            progress.update(task, description=f"planning {inputs.num_rows:,} inputs")
            began = time.perf_counter()
            plan = _plan(inputs, houses, up, down, time_limit)
            seconds = time.perf_counter() - began
            if out is not None:
                progress.update(task, description=f"writing {out}")
                _write(plan, out)
            curve = []
            if plot is not None:
                for number, ratio in enumerate(_RATIOS, 1):
                    progress.update(
                        task, description=f"down/up {ratio:g} ({number} of {len(_RATIOS)})"
                    )
                    again = _plan(inputs, houses, up, up * ratio, time_limit)
                    curve.append((ratio, again.cost, again.baseline_cost))
                _draw(curve, up, down / up if up > 0 else None, plot)
        _summarise(console, plan, seconds, out, plot)
        for view in explain or ():
            console.print(str(_explain(plan, view)), highlight=False, markup=False)
    except InvalidCall as error:
        Console(stderr=True).print(str(error), highlight=False, markup=False, soft_wrap=True)
        raise typer.Exit(2) from None


def _plan(inputs: Any, homes: Any, up: float, down: float, time_limit: float) -> Placement:
    from anabranch.placement import place as planned

    return planned(inputs, homes, up, down, time_limit=time_limit)


def _explain(plan: Placement, view: str) -> Any:
    whole = re.fullmatch("-?[0-9]+", view) and view not in plan.location
    return plan.explain(int(view) if whole else view)


def _check_paths(views: Path, homes: Path | None, out: Path | None, plot: Path | None) -> None:
    problems = []
    for path in filter(None, (views, homes)):
        if not path.exists():
            problems.append(f"no file {path}")
        elif path.suffix not in _READERS:
            problems.append(f"{path} must be one of {', '.join(_READERS)}")
    for path in filter(None, (out, plot)):
        if not path.absolute().parent.is_dir():
            problems.append(f"no folder {path.parent} to write {path.name} to")
        elif path.is_dir():
            problems.append(f"{path} is a folder: name a file to write")
    if out is not None and out.suffix != ".parquet":
        problems.append(f"--out must end in .parquet, got {out}")
    if plot is not None and plot.suffix not in (".png", ".svg"):
        problems.append(f"--plot must end in .png or .svg, got {plot}")
    if plot is not None:
        try:
            import matplotlib  # noqa: F401
        except ImportError:
            problems.append("--plot needs matplotlib: pip install matplotlib")
    if problems:
        raise InvalidCall("place", problems)


def _read(path: Path) -> Any:
    """A table out of a file, or out of the parts in a folder, which is what Spark writes."""
    import pyarrow as pa

    parts = [path]
    if path.is_dir() and path.suffix != ".parquet":  # whose reader knows folders
        files = sorted(part for part in path.rglob("*") if part.is_file())
        parts = [part for part in files if part.name[0] not in "._" and part.stat().st_size]
        if not parts:
            raise InvalidCall("place", [f"the folder {path} holds no data"])
    try:
        tables = [_read_file(part, path.suffix) for part in parts]
        found = pa.concat_tables(tables, promote_options="permissive")
    except (pa.ArrowException, OSError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InvalidCall("place", [f"cannot read {path} as {path.suffix[1:]}: {reason}"]) from None
    problems = [
        f"column {field.name!r} of {path} holds {field.type}: an id must be text or a number"
        for field in found.schema
        if field.name in _IDS and pa.types.is_nested(field.type)
    ]
    if problems:
        raise InvalidCall("place", problems)
    return found


def _read_file(path: Path, suffix: str) -> Any:
    if suffix == ".csv":
        import pyarrow as pa
        from pyarrow import csv

        # CSV has no types: an id is what is written, 007 or NA too, and only nothing is nothing.
        options = csv.ConvertOptions(
            column_types=dict.fromkeys(_IDS, pa.string()),
            null_values=[""],
            strings_can_be_null=True,
        )
        return csv.read_csv(path, convert_options=options)
    if suffix == ".parquet":
        from pyarrow import parquet

        return parquet.read_table(path)
    from pyarrow import feather

    return feather.read_table(path)


def _same_ids(inputs: Any, homes: Any) -> tuple[Any, Any]:
    """Both tables with their ids as text, if they are text in one and numbers in the other."""
    import pyarrow as pa

    def textual(kind: Any) -> bool:
        kind = kind.value_type if pa.types.is_dictionary(kind) else kind
        return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))

    ids = [f.type for table in (inputs, homes) for f in table.schema if f.name in _IDS[:3]]
    if len({textual(kind) for kind in ids}) < 2:
        return inputs, homes
    found = []
    for table in (inputs, homes):
        for name in set(_IDS[:3]) & set(table.column_names):
            at = table.column_names.index(name)
            table = table.set_column(at, name, table.column(name).cast(pa.string()))
        found.append(table)
    return found[0], found[1]


def _own_devices(inputs: Any) -> Any:
    import pandas as pd

    if not {"view", "input"} <= set(inputs.column_names):
        return {}  # the planner says what is missing
    table = inputs.select(["view", "input"]).to_pandas()
    sources = pd.Index(table["input"].dropna().unique()).difference(
        pd.Index(table["view"].unique())
    )
    return pd.DataFrame({"source": sources, "device": sources})


def _write(plan: Placement, out: Path) -> None:
    from pyarrow import parquet

    parquet.write_table(plan.table(), out)


def _draw(
    curve: list[tuple[float, float, float]], up: float, chosen: float | None, path: Path
) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axis = plt.subplots(figsize=(6, 4))
    x = [ratio for ratio, _, _ in curve]
    axis.plot(x, [cost for _, cost, _ in curve], "o-", label="planned")
    axis.plot(x, [whole for _, _, whole in curve], "k--", label="all uploaded")
    if chosen is not None:
        axis.axvline(chosen, color="grey", lw=0.8, label="down/up as given")
    axis.set(
        xscale="log", xlabel="download cost / upload cost", ylabel=f"cost (upload cost {up:g})"
    )
    axis.set_ylim(bottom=0)
    axis.grid(alpha=0.3)
    axis.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    plt.close(figure)


def _summarise(
    console: Console, plan: Placement, seconds: float, out: Path | None, plot: Path | None
) -> None:
    held = int((plan.places >= 0).sum())
    table = Table(show_header=False, box=None)
    table.add_row(
        "views",
        f"{len(plan.places):,}: {held:,} on devices, {len(plan.places) - held:,} in the cloud",
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


def _progress(console: Console) -> Progress:
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    return Progress(*columns, console=console, transient=True)
