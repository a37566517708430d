"""Figures 7 and 8 of the ViCo paper on decoded frames: two channels of real footage.

    python -m papers.vico.decoded [--quick] [--out FOLDER]

Workers are simulated, as in `papers.emd.cluster`: each worker's step runs for real, one after the
other, and is timed by the processor's clock. A step is a second of event time, after which the
comparisons so far are sampled, as in the paper. It lasts as long as its slowest worker.

Two of the channels of ``anabranch news`` are decoded and described, frame by frame, and played in a
loop. Three rows: the key frames of both, as the paper has them; every frame of both; and saturated,
as many frames as of 20 channels at full speed, beside the made-up news of `papers.vico.on_spark`.
What decoding, features and shots cost is measured apart, on one core, in seconds of its processor.

It writes results/vico-decoded.json, the section of README.md, and the pictures.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import islice, pairwise
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
from threadpoolctl import threadpool_limits

import anabranch as ab
from anabranch.correlation.kernel import CorrelateJob
from anabranch.flow.hashing import mix
from anabranch.flow.pictures import pyplot
from anabranch.plans.controller import Adaptive, Controller, Report
from anabranch.plans.log import Entry, live_at
from anabranch.plans.plan import Plan, Rows
from anabranch.plans.routing import LivePlans, route
from anabranch.testing import InProcess
from anabranch.video.channels import programme
from anabranch.video.cutting import Cutter
from anabranch.video.decoding import Faults, decoded
from anabranch.video.layout import VERSION, features
from anabranch.video.planes import planes_of
from anabranch.video.signature import signature
from anabranch.video.studio import recorded
from benchmarks.measuring import Row, Screen, machine
from papers.emd.cluster import TimedWorkers
from papers.style import PAGE, in_style, line_of, written
from papers.vico.decoded_page import PAGE as README
from papers.vico.decoded_page import put, section
from papers.vico.on_spark import draw_curves, news

_SECOND = 1_000_000
_START = 1_700_000_000 * _SECOND
_WIDTH = 576
_WINDOW = 60 * _SECOND
CHANNELS = ("north", "south")
RESULTS = Path(__file__).parent / "results"
PLANS: dict[str, Plan | Adaptive] = {
    "centralised": ab.broadcast(1),
    "SSP, 3 workers": ab.broadcast(3),
    "CSP, 3 workers": ab.segments(3, "10 seconds"),
    "grid(3, 1)": ab.grid(3, 1),
    "adaptive, 3 workers": ab.adaptive(3),
}
_SCHEMA = pa.schema(
    {"id": pa.int64(), "ts": pa.timestamp("us", "UTC"), "v": pa.list_(pa.float32())}
)


@dataclass
class Channel:
    """The frames of a channel: their times from 0, features, and which are key frames."""

    t: np.ndarray
    v: np.ndarray
    keys: np.ndarray
    seconds: dict[str, float]

    def looped(self, rows: np.ndarray, seconds: int, copies: int, seed: int) -> tuple[Any, Any]:
        """These rows again and again for so long, `copies` of it beside each other, shifted."""
        random = np.random.default_rng(seed)
        length = int(self.t[-1]) + 40_000
        times, places = [], []
        for copy in range(copies):
            shift = int(random.integers(length)) if copy else 0
            for turn in range(-1, seconds * _SECOND // length + 1):
                t = self.t[rows] + turn * length + shift
                inside = (t >= 0) & (t < seconds * _SECOND)
                times.append(t[inside])
                places.append(rows[inside])
        t, place = np.concatenate(times), np.concatenate(places)
        order = np.argsort(t, kind="stable")
        return _START + t[order], self.v[place[order]]


def channel(paths: Sequence[Path]) -> Channel:
    """Decode, describe and cut a channel; processor seconds of each stage."""
    spent = dict.fromkeys(("decode", "planes and signature", "features", "shots"), 0.0)
    times, sigs, found = [], [], []
    for path in paths:
        began = time.process_time()
        shown = list(decoded(str(path), Faults()))
        spent["decode"] += time.process_time() - began
        for one in shown:
            began = time.process_time()
            planes = planes_of(one.frame)
            sigs.append(signature(planes))
            middle = time.process_time()
            found.append(features(planes))
            spent["planes and signature"] += middle - began
            spent["features"] += time.process_time() - middle
            times.append(one.at)
    t = np.array(times, np.int64)
    order = np.argsort(t, kind="stable")
    t = t[order] - t.min()
    matrix = np.frombuffer(b"".join(sigs), np.uint8).reshape(len(t), -1)[order]
    began = time.process_time()
    every = np.ones(len(t), bool)
    chosen = Cutter(10 * _SECOND).take(matrix, t, np.zeros(len(t), int), every, final=True)
    spent["shots"] = time.process_time() - began
    v = np.stack(found)[order]
    lively = np.asarray(v.any(axis=1))  # black frames have no direction
    keys = np.array([one.row for one in chosen if lively[one.row]])
    kept = np.flatnonzero(lively)
    place = np.searchsorted(kept, keys)
    return Channel(t[kept], v[kept], place, spent)


@dataclass
class Played:
    """Two sides that are played: times and features of each, for so many seconds."""

    sides: Sequence[tuple[np.ndarray, np.ndarray]]
    seconds: int

    def tables(self) -> Iterator[tuple[pa.Table, pa.Table]]:
        """Both sides, second by second."""
        edges = _START + np.arange(self.seconds + 1) * _SECOND
        for begin, end in pairwise(edges.tolist()):
            yield self._part(0, begin, end), self._part(1, begin, end)

    def _part(self, side: int, begin: int, end: int) -> pa.Table:
        t, v = self.sides[side]
        rows = slice(*np.searchsorted(t, (begin, end)))
        cells = pa.FixedSizeListArray.from_arrays(v[rows].ravel(), _WIDTH)
        times = pa.array(t[rows], _SCHEMA.field("ts").type)
        ids = np.arange(rows.start, rows.stop)
        return pa.table({"id": ids, "ts": times, "v": cells.cast(_SCHEMA.field("v").type)})


def all_played(channels: Sequence[Channel], quick: bool) -> dict[str, Played]:
    """Key frames and every frame of both channels, and as many as of 20 channels."""
    live, saturated = (90, 20) if quick else (1200, 120)
    copies = 3 if quick else 10  # of each of two channels
    rate = copies * round(len(channels[0].t) / (channels[0].t[-1] / _SECOND))
    keyed = [c.looped(c.keys, live, 1, n) for n, c in enumerate(channels)]
    every, many = (
        [c.looped(np.arange(len(c.t)), long, count, n) for n, c in enumerate(channels)]
        for long, count in ((live, 1), (saturated, copies))
    )
    made = [news(seed, saturated, rate) for seed in (1, 2)]
    return {
        "key frames": Played(keyed, live),
        "every frame": Played(every, live),
        "saturated": Played(many, saturated),
        "saturated, made up": Played(made, saturated),
    }


@dataclass(frozen=True)
class Outcome:
    """Comparisons, processor seconds of each worker, and the curve of figure 7.

    The curve has a sample for each second of event time: seconds of the slowest workers, and
    comparisons, both since the beginning.
    """

    comparisons: int
    seconds: float
    workers: list[float]
    event_seconds: int
    curve: list[tuple[float, int]]
    plans: list[str]  # the first, and what it was changed to

    @property
    def rate(self) -> float:
        """Comparisons per second, every worker on a core of its own."""
        return self.comparisons / self.curve[-1][0]


def simulate(plan: Plan | Adaptive, played: Played, most: int | None = None) -> Outcome:
    """Play it, or its first steps, through the workers of a plan, or of one that adapts.

    A change holds from the next step on, as in a query whose log every router reads.
    """
    first = plan.first_plan() if isinstance(plan, Adaptive) else plan
    cluster = InProcess(
        _SCHEMA,
        _SCHEMA,
        streaming=True,
        where=ab.cosine("v") >= 0.99,
        window="60 seconds",
        watermark="1 second",
        plan=first,
    )
    workers = TimedWorkers(CorrelateJob(cluster.correlation))
    cluster.workers = workers
    entries = [Entry(0, 0, first, 0, (0,), {"rule": "start", "new": str(first)})]
    settings = plan if isinstance(plan, Adaptive) else None
    controller = Controller(entries, (_WINDOW, _WINDOW), _SECOND, settings)
    compared, passed = 0, 0.0
    busy: defaultdict[int, float] = defaultdict(float)
    curve = []
    for number, (left, right) in enumerate(islice(played.tables(), most)):
        workers.spent = {}
        live, watermark = live_at(entries, number), cluster.watermark
        assert live is not None
        loads = cluster.step(left, right, (live, live))
        slowest = max(workers.spent.values(), default=0.0)
        compared += sum(load.comparisons for load in loads)
        passed += slowest
        for worker, spent in workers.spent.items():
            busy[worker] += spent
        curve.append((round(passed, 6), compared))
        change = controller.handle(Report(number, slowest, watermark, tuple(loads)))
        if change is not None:
            entries.append(change.entry(number + 1))
            controller.written(entries[-1])
    plans = [*{entry.epoch: str(entry.plan) for entry in entries}.values()]
    each = [busy[worker] for worker in range(max(entry.plan.workers for entry in entries))]
    return Outcome(compared, sum(each), each, len(curve), curve, plans)


def measure(screen: Screen, quick: bool) -> dict[str, Any]:
    """All rows under all plans."""
    screen.step("decoding two channels")
    segments = recorded(programme(7, 96.0))
    channel(segments[CHANNELS[0]][:1])  # compiled kernels are loaded
    channels = [channel(segments[name]) for name in CHANNELS]
    frames = sum(len(of.t) for of in channels)
    stages = {s: sum(c.seconds[s] for c in channels) for s in channels[0].seconds}
    for stage, seconds in stages.items():
        screen.add(Row("stages", stage, 1000 * seconds / frames, "ms a frame"))
    played = all_played(channels, quick)
    for of in played.values():  # compiled kernels are loaded here, too
        simulate(ab.broadcast(1), of, 3)
    found: dict[str, dict[str, Outcome]] = {name: {} for name in played}
    for name, plan in PLANS.items():
        for what, of in played.items():
            screen.step(f"{what}: {name}")
            outcome = found[what][name] = simulate(plan, of)
            note = f"{of.seconds / outcome.curve[-1][0]:,.0f} x real time"
            screen.add(Row(what, name, outcome.rate, "comparisons/s", note=note))
    real, made = (found[what] for what in ("saturated", "saturated, made up"))
    fixed = [name for name, plan in PLANS.items() if not isinstance(plan, Adaptive)]
    share = median(
        (real[n].comparisons / real[n].seconds) / (made[n].comparisons / made[n].seconds)
        for n in fixed
    )
    what = "of the rate with made-up features, by processor time"
    screen.add(Row("saturated", what, share, "x", 0.9))
    routing = routing_times(screen, played["every frame"].sides)
    by_channel = {name: of.seconds for name, of in zip(CHANNELS, channels, strict=True)}
    return {
        **{"stages": stages, "frames": frames, "keys": sum(len(of.keys) for of in channels)},
        **{"by_channel": by_channel, "layout": VERSION},
        "found": {what: {n: asdict(o) for n, o in of.items()} for what, of in found.items()},
        "routing": routing,
    }


def routing_times(screen: Screen, sides: Sequence[tuple[Any, Any]]) -> dict[str, float]:
    """Figure 8: microseconds per frame in the router, on the rows of every frame.

    Of all rows in one batch, and in the median of the batches of each second.
    """
    found: dict[str, float] = {}
    rows = [Rows(t, mix(np.arange(len(t)))) for t, _ in sides]
    count = sum(len(t) for t, _ in sides)
    seconds = [batch for of in rows for batch in by_second(of)]
    for name, plan in (("SSP", ab.broadcast(3)), ("CSP", ab.segments(3, "10 seconds"))):
        whole = [routed(plan, rows) / count for _ in range(15)]
        each = [routed(plan, [batch]) / len(batch.t) for batch in seconds]
        found |= {name: median(whole), f"{name}, second by second": median(each)}
        for what in (name, f"{name}, second by second"):
            screen.add(
                Row("figure 8", f"routing, {what}", found[what], "us/frame", 10, at_most=True)
            )
    return found


def by_second(rows: Rows) -> Iterator[Rows]:
    """The rows of each second that has some."""
    edges = np.flatnonzero(np.diff(rows.t // _SECOND)) + 1
    for begin, end in pairwise([0, *edges.tolist(), len(rows.t)]):
        yield Rows(rows.t[begin:end], rows.h[begin:end])


def routed(plan: Plan, batches: Sequence[Rows]) -> float:
    """Microseconds that it takes to route these batches."""
    began = time.perf_counter()
    for side, batch in enumerate(batches):
        route(LivePlans({0: plan}), side, batch, (_WINDOW, _WINDOW))
    return (time.perf_counter() - began) * 1e6


ROWS = {
    "key frames": "figure 7, key frames of two channels",
    "every frame": "figure 7, every frame of two channels",
    "saturated": "figure 7, decoded frames of 20 channels at full speed",
}


@in_style
def draw(what: str, result: dict[str, Any], path: Path) -> None:
    """Figure 7: one of its rows."""
    found = result["details"]["found"][what]
    curves = {name: outcome["curve"] for name, outcome in found.items()}
    title = f"ViCo, {ROWS[what]}"
    draw_curves(curves, "seconds, every worker on a core of its own", title, path)


@in_style
def draw_routing(result: dict[str, Any], path: Path) -> None:
    """Figure 8: what routing costs."""
    figure, axes = pyplot().subplots(figsize=(PAGE, 2.2), layout="constrained")
    routing = result["details"]["routing"]
    for name, spent in routing.items():
        axes.barh(name, spent, color=line_of(name.split(",")[0])["color"], height=0.6)
        axes.annotate(f" {spent:.3f}", (spent, name), va="center")
    axes.invert_yaxis()
    axes.set_xlim(0, 1.15 * max(routing.values()))
    axes.set_xlabel("microseconds per frame")
    axes.set_title("ViCo, figure 8, routing of every decoded frame")
    written(figure, path)


def compact(result: dict[str, Any]) -> str:
    """As JSON, a sample of a curve on a line."""
    text = json.dumps(result, indent=1)
    return re.sub(r"\[\s+([-+.\de]+),\s+([-+.\de]+)\s+\]", r"[\1, \2]", text)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, and write the result."""
    parser = argparse.ArgumentParser(description="ViCo, figures 7 and 8, on decoded frames")
    parser.add_argument("--quick", action="store_true", help="small sizes, a smoke test")
    parser.add_argument("--out", type=Path, default=RESULTS)
    call = parser.parse_args(arguments)
    screen, about = Screen(), machine()
    with threadpool_limits(1, "blas"):  # as in a Spark task: one core
        details = measure(screen, call.quick)
    stem = "vico-decoded" + ("-quick" if call.quick else "")
    screen.table(stem)
    rows = [row.to_dict() for row in screen.rows]
    result = {"quick": call.quick, "machine": about, "rows": rows, "details": details}
    call.out.mkdir(parents=True, exist_ok=True)
    (call.out / f"{stem}.json").write_text(compact(result) + "\n")
    if call.out.resolve() == RESULTS.resolve() and not call.quick:
        README.write_text(put(README.read_text(), section(result)))
        # Not above: it draws the pictures of every paper, and so imports this module.
        from papers.pictures import main as draw_all

        draw_all(["vico-decoded", *(f"vico-decoded-{of}" for of in ("keys", "every", "8"))])
    return 0 if call.quick or all(row.met is not False for row in screen.rows) else 1


if __name__ == "__main__":
    sys.exit(main())
