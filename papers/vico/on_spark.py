"""The ViCo paper's prototype experiment on Spark, and what adapting is worth.

Run it on a machine that does nothing else::

    python -m papers.vico.on_spark [--quick] [--only SECTION] [--rate FRAMES] [--out FOLDER]

``prototype`` is the paper's section 4.2 (figures 7 and 8): two news videos, 576-d features of their
frames, windows of 60 s; one worker against three under SSP, CSP, grid and adaptive; throughput over
time, and routing time per frame. ``steady`` holds an adaptive query against the best fixed plan
where there is nothing to adapt to; ``swap`` counts copies while rates swap tenfold.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import anabranch as ab
from anabranch.flow.hashing import mix
from anabranch.flow.pictures import plain_number, pyplot
from anabranch.plans.costs import copies
from anabranch.plans.hashed import Broadcast, Grid
from anabranch.plans.plan import Plan, Rows
from anabranch.plans.routing import LivePlans, route
from anabranch.plans.segments import Segments
from anabranch.plans.story import story
from benchmarks.correlate_spark import Batch, Bench, Feed, median
from benchmarks.measuring import Row, Screen, beside_earlier, by_section, machine
from papers.style import PAGE, in_style, line_of, written

_SECOND = 1_000_000
_START = 1_700_000_000 * _SECOND
_SCHEMA = "id long, ts timestamp, v array<float>"
_WIDTH = 576
# Few frames a second would measure how rows are handled, not how they are compared: at 800 a frame
# meets up to 96,000 others.
_RATE = 800
_MARKED = 100  # samples of a curve, above which none has a mark


def news(seed: int, seconds: int, rate: int) -> tuple[np.ndarray, np.ndarray]:
    """Times and features of a news video: shots of a few seconds, some of them on both channels."""
    random, common = np.random.default_rng(seed), np.random.default_rng(99)
    stock = common.standard_normal((40, _WIDTH)).astype(np.float32)  # agency footage
    n = seconds * rate
    t = _START + np.sort(random.integers(0, seconds * _SECOND, n))
    features = np.empty((n, _WIDTH), np.float32)
    at = 0
    while at < n:
        length = int(random.exponential(4 * rate)) + 1
        shown = random.random() < 0.2
        scene = stock[random.integers(40)] if shown else random.standard_normal(_WIDTH)
        stop = min(at + length, n)
        noise = random.standard_normal((stop - at, _WIDTH)) * 0.3
        features[at:stop] = (scene + noise).astype(np.float32)
        at = stop
    return t, features


def write_news(folder: Path, seconds: int, rate: int, per_file: int) -> int:
    """Both channels as files of `per_file` seconds; how many files."""
    for side, seed in (("left", 1), ("right", 2)):
        (folder / side).mkdir(parents=True)
        t, features = news(seed, seconds, rate)
        for number in range(seconds // per_file):
            begin, end = np.searchsorted(
                t, [_START + (number + k) * per_file * _SECOND for k in (0, 1)]
            )
            part = pa.FixedSizeListArray.from_arrays(features[begin:end].ravel(), _WIDTH)
            table = pa.table(
                {
                    "id": np.arange(begin, end),
                    "ts": pa.array(t[begin:end], pa.timestamp("us", "UTC")),
                    "v": part.cast(pa.list_(pa.float32())),
                }
            )
            path = folder / side / f"{number:05d}.parquet"
            pq.write_table(table, path)
            os.utime(path, (_START / _SECOND + number,) * 2)
    return seconds // per_file


def prototype(screen: Screen, bench: Bench, rate: int = _RATE) -> dict[str, Any]:
    """Figures 7 and 8, at so many frames a second."""
    seconds, per_file = (120, 10) if bench.quick else (90, 5)
    rate = 40 if bench.quick else rate
    folder = bench.room("news")
    screen.step(f"prototype: two news videos, {seconds} s at {rate} frames/s, {_WIDTH} features")
    files = write_news(folder, seconds, rate, per_file)
    feed = Feed(folder, files, rate * per_file)
    plans: dict[str, Any] = {
        "centralised": ab.broadcast(1),
        "SSP, 3 workers": ab.broadcast(3),
        "CSP, 3 workers": ab.segments(3, "10 seconds"),
        "grid(3, 1)": ab.grid(3, 1),
        "adaptive, 3 workers": ab.adaptive(3),
    }
    screen.step("prototype: a short run that is not counted, to start Spark and its workers")
    run(bench, feed.cut(bench.room("warm"), 3), ab.broadcast(3), "60 seconds", 3)
    curves: dict[str, list[tuple[float, float]]] = {}
    told: list[str] = []
    for name, plan in plans.items():
        screen.step(f"prototype: {name}")
        control = None if isinstance(plan, Plan) else bench.room("prototype")
        batches = run(bench, feed, plan, "60 seconds", 3, control)
        if control is not None:
            told = story(ab.plans.PlanLog(str(control)).entries())
        curves[name] = cumulative(batches)
        compared, spent = curves[name][-1][1], curves[name][-1][0]
        screen.add(Row("figure 7", name, compared / spent, "comparisons/s"))
    best = max((curve[-1][1] / curve[-1][0], name) for name, curve in curves.items())
    alone = curves["centralised"][-1][1] / curves["centralised"][-1][0]
    screen.add(Row("figure 7", f"best ({best[1]}) against centralised", best[0] / alone, "x"))
    return {"curves": curves, "routing": routing_times(screen, feed), "story": told}


def routing_times(screen: Screen, feed: Feed) -> dict[str, float]:
    """Figure 8: microseconds per frame in the router."""
    t = _START + np.arange(200_000) * 50
    h = mix(np.arange(len(t)))
    window = (60 * _SECOND, 60 * _SECOND)
    found = {}
    for name, plan in (
        ("SSP", Broadcast(3)),
        ("CSP", Segments(3, 10 * _SECOND)),
        ("CSP, 16 workers", Segments(16, 10 * _SECOND)),
    ):
        spent = []
        for _ in range(5):
            began = time.perf_counter()
            for side in (0, 1):
                route(LivePlans({0: plan}), side, Rows(t, h), window)
            spent.append((time.perf_counter() - began) / (2 * len(t)) * 1e6)
        found[name] = median(spent)
        screen.add(Row("figure 8", f"routing, {name}", found[name], "us/frame", 10, at_most=True))
    return found


def steady(screen: Screen, bench: Bench) -> dict[str, Any]:
    """Adaptive against the best fixed plan where there is nothing to gain."""
    rows, window, rounds = (1000, 4, 1) if bench.quick else (8000, 8, 4)
    feed = Feed.write(bench.room("steady"), window + 12, rows)
    settings: dict[str, Any] = {
        "fixed": Broadcast(2),
        "adaptive": ab.adaptive(2, start=Broadcast(2)),
    }
    rates: dict[str, list[float]] = {name: [] for name in settings}
    for number in range(rounds):
        # Whoever goes first pays for a cold start or meets a busier machine: take turns.
        for name in sorted(settings, reverse=number % 2 == 0):
            screen.step(f"steady: {name}, round {number + 1} of {rounds}")
            batches = run(bench, feed, settings[name], f"{window} seconds")[window + 2 :]
            rates[name].append(median(batch.rate for batch in batches))
    share = median(a / b for a, b in zip(rates["adaptive"], rates["fixed"], strict=True))
    note = "rounds " + ", ".join(
        f"{a / b:.2f}" for a, b in zip(rates["adaptive"], rates["fixed"], strict=True)
    )
    what = "adaptive against the best fixed plan"
    screen.add(Row("steady", what, share, "of its rate", 0.95, note=note))
    return rates


def swap(screen: Screen, bench: Bench) -> dict[str, Any]:
    """Copies per row while the rates of the two streams swap tenfold."""
    regime, regimes = (20, 2) if bench.quick else (120, 2)
    fast, slow, per_batch = 60, 6, 2  # rows; seconds of event time in a micro-batch
    folder = bench.room("swap")
    write_swapping(folder, regime, regimes, (fast, slow), per_batch)
    feed = Feed(folder, regime * regimes, fast)
    control = bench.room("control")
    settings = ab.adaptive(4, start=Grid(2, 2), policies=["shape"])
    screen.step(f"swap: {regimes} regimes of {regime} micro-batches, {fast} to {slow} rows")
    # On a trigger, as streams run that keep up: a change is then as many micro-batches away as the
    # controller makes it, however busy the driver.
    every = "" if bench.quick else "1 second"
    batches = run(bench, feed, settings, "2 seconds", 4, control, every)
    got = copies_per_row(batches)
    entries = ab.plans.PlanLog(str(control)).entries()
    rates = [(fast, slow) if n // regime % 2 == 0 else (slow, fast) for n in range(len(batches))]
    predicted = expected_copies(entries, rates)
    window = (2 * _SECOND, 2 * _SECOND)
    rows = sum(map(sum, rates))
    shapes = (Broadcast(4, "right"), Broadcast(4, "left"), Grid(2, 2))
    static = {
        str(plan): sum(copies(plan, rate, window) for rate in rates) / rows for plan in shapes
    }
    best = min(static.values())
    ideal = sum(min(copies(plan, rate, window) for plan in shapes) for rate in rates) / rows
    screen.add(Row("swap", "copies per row, adaptive", got, "copies", best, at_most=True))
    for name, value in static.items():
        screen.add(Row("swap", f"copies per row, {name}", value, "copies"))
    screen.add(Row("swap", "fewer than the best fixed plan by", best / got, "x", 1.0))
    ready = abs((best / got) / (best / ideal) - 1)
    note = f"{best / ideal:.2f} if every change came at once"
    screen.add(Row("swap", "that factor, off the formulas'", ready, "", 0.15, True, note))
    what = "copies, off the formulas' for the plans then live"
    screen.add(Row("swap", what, abs(got / predicted - 1), "", 0.15, at_most=True))
    return {
        "adaptive": got,
        "predicted": predicted,
        "ideal": ideal,
        "static": static,
        "story": story(entries),
    }


def write_swapping(
    folder: Path, regime: int, regimes: int, rows: tuple[int, int], per_batch: int
) -> None:
    """Files of two streams whose rates swap after every regime."""
    random = np.random.default_rng(5)
    for side in (0, 1):
        name = ("left", "right")[side]
        (folder / name).mkdir(parents=True)
        for number in range(regime * regimes):
            n = rows[(number // regime + side) % 2]
            begin = _START + number * per_batch * _SECOND
            t = begin + np.sort(random.integers(0, per_batch * _SECOND, n))
            vectors = random.standard_normal((n, 4)).astype(np.float32)
            table = pa.table(
                {
                    "id": np.arange(n) + number * max(rows),
                    "ts": pa.array(t, pa.timestamp("us", "UTC")),
                    "v": pa.FixedSizeListArray.from_arrays(vectors.ravel(), 4).cast(
                        pa.list_(pa.float32())
                    ),
                }
            )
            path = folder / name / f"{number:05d}.parquet"
            pq.write_table(table, path)
            os.utime(path, (_START / _SECOND + number,) * 2)


def expected_copies(entries: Sequence[Any], rates: Sequence[tuple[int, int]]) -> float:
    """Copies per row by the formulas, for the plans that the log says were live."""
    plans = {entry.epoch: entry.plan for entry in entries}
    total = 0.0
    for batch, (left, right) in enumerate(rates):
        live = [e for e in entries if e.first <= batch][-1].live
        for side, rows in ((0, left), (1, right)):
            total += rows * union_of(tuple(plans[number] for number in live), side)
    return total / sum(map(sum, rates))


def union_of(live: tuple[Plan, ...], side: int) -> float:
    """How many workers a row of `side` reaches on average under all these plans."""
    h = mix(np.arange(2000))
    plans = LivePlans(dict(enumerate(live)))
    t = np.full(len(h), _START)
    return len(route(plans, side, Rows(t, h), (2 * _SECOND, 2 * _SECOND)).workers) / len(h)


def copies_per_row(batches: Sequence[Batch]) -> float:
    """Copies that workers received, by rows that came in."""
    loads = [load for batch in batches for load in batch.loads]
    sent = sum(load.copies_left + load.copies_right for load in loads)
    return sent / sum(load.rows_left + load.rows_right for load in loads)


def cumulative(batches: Sequence[Batch]) -> list[tuple[float, float]]:
    """Seconds since the first micro-batch began, comparisons until then."""
    total, curve = 0.0, []
    for batch in batches:
        total += batch.comparisons
        curve.append((batch.began + batch.trigger - batches[0].began, total))
    return curve


def run(
    bench: Bench,
    feed: Feed,
    plan: Any,
    window: str,
    partitions: int = 2,
    control: Path | None = None,
    every: str = "",
) -> list[Batch]:
    """The micro-batches of one query under a plan."""
    ab.configure(bench.spark, workers=partitions)
    reader = bench.spark.readStream.schema(_SCHEMA).option("maxFilesPerTrigger", 1)
    left, right = (reader.parquet(str(feed.folder / side)) for side in ("left", "right"))
    adapts = not isinstance(plan, Plan)
    path = str(control or bench.room("control")) if adapts or control else None
    pairs = ab.correlate(
        left,
        right,
        where=ab.cosine("v") >= 0.99,
        window=window,
        watermark="1 second",
        plan=plan,
        control=path,
    )
    return bench.drain(pairs, every=every)


Section = Callable[[Screen, Bench], dict[str, Any]]
SECTIONS: dict[str, Section] = {"prototype": prototype, "steady": steady, "swap": swap}


@in_style
def draw(result: dict[str, Any], path: Path) -> None:
    """Figure 7 as a picture."""
    title = "ViCo, figure 7, on two cores: plans hardly differ, one worker is slower"
    curves = result["details"]["prototype"]["curves"]
    draw_curves(curves, "seconds since the start", title, path)


def draw_curves(curves: dict[str, Any], seconds: str, title: str, path: Path) -> None:
    """What each method has compared, over time."""
    figure, axes = pyplot().subplots(figsize=(PAGE, 4.2), layout="constrained")
    for name, curve in curves.items():
        x, y = [0, *(x for x, _ in curve)], [0, *(y for _, y in curve)]
        style = line_of(name.split(",")[0].split("(")[0])
        if len(x) > _MARKED:
            style["marker"] = ""
        axes.plot(x, y, label=name, **style)
    axes.set_xlabel(seconds)
    axes.set_ylabel("comparisons so far")
    axes.yaxis.set_major_formatter(lambda value, _: plain_number(value))
    axes.set_title(title)
    axes.legend()
    written(figure, path)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the sections asked for; 1 if a target is not met."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    parser = argparse.ArgumentParser(description="The ViCo prototype experiment, and adaptation")
    parser.add_argument("--quick", action="store_true", help="small sizes, a smoke test")
    parser.add_argument("--only", action="append", choices=[*SECTIONS], help="may be repeated")
    parser.add_argument(
        "--rate",
        type=int,
        default=_RATE,
        help="frames a second of the prototype; another one writes files of its own",
    )
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    call = parser.parse_args(arguments)
    screen, about = Screen(), machine()
    details: dict[str, Any] = {}
    sections: dict[str, Section] = {**SECTIONS, "prototype": partial(prototype, rate=call.rate)}
    with tempfile.TemporaryDirectory(prefix="anabranch-bench-") as folder:
        bench = Bench(Path(folder), call.quick, screen.step)
        try:
            for name in call.only or SECTIONS:
                details[name] = sections[name](screen, bench)
        finally:
            bench.stop()
    screen.table("vico" + (" (quick: sizes too small for the targets)" if call.quick else ""))
    stem = "vico" if call.rate == _RATE else f"vico-{call.rate}"
    stem += "-quick" if call.quick else ""
    path = call.out / f"{stem}.json"
    result = {
        "benchmark": "vico",
        "quick": call.quick,
        "machine": about,
        "rows": [row.to_dict() for row in screen.rows],
        "details": details,
    }
    result = beside_earlier(path, result) if call.only else by_section(result)
    call.out.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, indent=1) + "\n")
    screen.console.print(f"wrote {stem}.json")
    return 0 if call.quick or all(row.met is not False for row in screen.rows) else 1


if __name__ == "__main__":
    sys.exit(main())
