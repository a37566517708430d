"""How fast are verbs on a GPU, and are they exact there? Needs a GPU, and neither Spark nor Java.

::

    python -m benchmarks.gpu [--only PART ...] [--out FOLDER]

Parts: exact (pairs equal the CPU's bit for bit; what tensor cores lose against the bound), nearest
(hits equal the CPU's bit for bit; objects a second, and where a core is as fast), engine (steps of
a worker with full windows, transfers and decisions included), areas (Manhattan distances and EMD on
a line, beside one core), cpu (one core of the same machine), uploads, and kernels (comparisons a
second by tiles, window and match rate). A part that fails prints its traceback and the next one
begins. The whole takes about ten minutes and writes ``gpu.json``, where parts that are not run
again stay, each with the machine that it came from; 1 is returned if a part failed.
"""

from __future__ import annotations

import argparse
import cProfile
import importlib.metadata
import io
import json
import os
import pstats
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

import anabranch as ab
from anabranch.correlation.filters.tiles import Pair, comparisons
from anabranch.correlation.gpu.looks import ProductLook
from anabranch.correlation.gpu.search import GpuSearch
from anabranch.correlation.kernel import CorrelateJob, CorrelateKernel, CorrelateNotes
from anabranch.correlation.matching import Matcher
from anabranch.flow.blocks import Block
from anabranch.flow.gpu.choice import visible
from anabranch.flow.slices import Slices
from anabranch.plans.plan import LEFT, RIGHT
from benchmarks.gpu_areas import areas
from benchmarks.gpu_exact import exact
from benchmarks.gpu_nearest import nearest
from benchmarks.gpu_worlds import (
    BEGAN,
    SECOND,
    START,
    block_of,
    call_of,
    device,
    directions,
    edge,
    kernel_seconds,
    say,
)
from benchmarks.origin import origin, processor

_RARE, _USUAL = 5e-9, 1e-6
_LONGEST = 420.0  # no part begins later than this many seconds after the first


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the parts asked for."""
    parts: dict[str, Callable[[], Any]] = {
        "exact": exact,
        "nearest": nearest,
        "engine": engine,
        "areas": areas,
        "cpu": one_core,
        "uploads": uploads,
        "kernels": kernels,
    }
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", choices=parts, default=list(parts))
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    call = parser.parse_args(arguments)
    if not visible():
        print("there is no GPU here: nothing is measured")
        return 1
    path = call.out / "gpu.json"
    result: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    about = _machine()
    print(json.dumps(about), flush=True)
    failed = []
    for name in call.only:
        if time.perf_counter() - BEGAN > _LONGEST:
            say(f"{name}: left out, it is late")
            continue
        say(f"---- {name}")
        try:
            result[name] = parts[name]()
            result.setdefault("sections", {})[name] = about
        except Exception:
            failed.append(name)
            traceback.print_exc(file=sys.stdout)
        call.out.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(result, indent=1) + "\n")
    say(f"failed: {failed or 'nothing'}")
    return bool(failed)


def _machine() -> dict[str, Any]:
    import torch

    found = torch.cuda.get_device_properties(0)
    packages = ("torch", "triton", "numpy", "numba", "pyarrow")
    return {
        "gpu": found.name,
        "driver": _driver(),
        "processor": processor(),
        "multiprocessors": found.multi_processor_count,
        "gpu_memory_gb": round(found.total_memory / 1e9, 1),
        "cores": os.cpu_count(),
        "packages": {name: importlib.metadata.version(name) for name in packages},
        "load_average_at_start": round(os.getloadavg()[0], 2),
        **origin(),
    }


def _driver() -> str:
    """The version of the GPU's driver."""
    asked = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        said = subprocess.run(asked, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return said.split()[0]


# ---------------------------------------------------------------- kernels


def kernels() -> list[dict[str, Any]]:
    """Comparisons a second inside the kernels, rows resident, by width, tiles and match rate."""
    from anabranch.flow.gpu.tilings import Tiling, tiling_of, width_of

    rows = []
    tried: dict[int, list[Tiling]] = {
        64: [
            Tiling(128, 128, 16, 64, 3, 8),
            Tiling(128, 128, 16, 64, 2, 8),
            Tiling(128, 128, 16, 64, 4, 8),
            Tiling(128, 128, 64, 64, 3, 8),
            Tiling(128, 128, 16, 64, 3, 4),
            Tiling(128, 64, 32, 64, 3, 4),
            Tiling(128, 64, 32, 64, 4, 4),
            Tiling(128, 256, 8, 64, 3, 8),
            Tiling(128, 256, 32, 64, 2, 8),
            Tiling(256, 128, 16, 64, 3, 8),
            Tiling(64, 256, 16, 64, 3, 4),
            Tiling(64, 128, 16, 64, 3, 4),
        ],
        576: [
            Tiling(128, 256, 1, 64, 3, 8),
            Tiling(128, 256, 1, 64, 4, 8),
            Tiling(128, 256, 4, 64, 3, 8),
            Tiling(128, 128, 1, 64, 4, 8),
            Tiling(128, 128, 1, 64, 3, 8),
            Tiling(128, 128, 4, 64, 3, 8),
            Tiling(128, 128, 1, 64, 3, 4),
            Tiling(256, 128, 1, 64, 3, 8),
            Tiling(64, 256, 1, 64, 4, 4),
            Tiling(128, 256, 1, 32, 4, 8),
        ],
        16: [
            Tiling(128, 128, 16, 16, 3, 8),
            Tiling(128, 128, 16, 16, 3, 4),
            Tiling(128, 256, 16, 16, 3, 8),
        ],
        128: [
            Tiling(128, 128, 16, 128, 2, 8),
            Tiling(128, 128, 16, 128, 3, 8),
            Tiling(128, 256, 16, 128, 2, 8),
            Tiling(128, 256, 1, 64, 3, 8),
        ],
        256: [
            Tiling(128, 256, 1, 64, 3, 8),
            Tiling(128, 256, 4, 64, 3, 8),
            Tiling(128, 64, 16, 256, 2, 8),
        ],
    }
    for d, tilings in tried.items():
        n = 200_000 if d <= 128 else 100_000
        a, b = directions(n, d, 1), directions(n, d, 2)
        rare, usual = edge("cosine", _RARE, d), edge("cosine", _USUAL, d)
        for tiling in tilings:
            if time.perf_counter() - BEGAN > _LONGEST:
                continue
            rows.append(_timed(a, b, "cosine", rare, tiling, 2.0))
        if not any(row["d"] == d for row in rows):
            say(f"d={d}: left out, it is late")
            continue
        best = max((row for row in rows if row["d"] == d), key=lambda row: row["rate"])
        chosen = Tiling(*best["tiling"])
        say(f"best for d={d}: {chosen}; now in use: {tiling_of(width_of(d))}")
        for share in (2.0, 0.2517):
            rows.append(_timed(a, b, "cosine", usual, chosen, share))
        rows.append(_timed(a, b, "euclidean", edge("euclidean", _USUAL, d), chosen, 2.0))
    return rows


def _timed(
    a: np.ndarray, b: np.ndarray, kind: str, limit: float, tiling: Any, share: float
) -> dict[str, Any]:
    """One launch over slices as state holds them, repeated; rows came under two plans."""
    row = {"d": a.shape[1], "kind": kind, "tiling": list(tiling), "window": share}
    try:
        on = device(tiling)
        looking = GpuSearch(on, ProductLook("s0", kind, kind == "cosine", limit))
        size = max(2_000, (4 << 20) // (4 * a.shape[1]))
        left = block_of(a, 60, True, 1)
        slices = [block_of(b[top : top + size], 60, True, top) for top in range(0, len(b), size)]
        span = int(share * 60 * SECOND)
        pairs = [Pair(left, part, (span, span)) for part in slices]
        # As in a launch of the engine, but all slices at once.
        started = looking._start(pairs).launch
        hits = on.finish(started)
        assert hits is not None
        seconds = kernel_seconds(on, started)
        tested = sum(
            float((one.stretches[:, 1] - one.stretches[:, 0]).sum()) * on.run
            for one in started.work
        )
        admitted = sum((pair.reach[1] - pair.reach[0]).sum() for pair in pairs)
        row |= {"rate": float(admitted) / seconds, "seconds": seconds}
        row |= {"in_tiles": tested / seconds, "hits": len(hits.pair)}
        note = f"{row['rate']:.3g}/s in the window, {row['hits']} candidates"
    except Exception as error:
        row |= {"rate": 0.0, "error": repr(error)[:300]}
        note = row["error"]
    shape = " ".join(f"{name}={value}" for name, value in tiling._asdict().items())
    say(f"d={row['d']} {kind} {shape} window={share}: {note}")
    return row


def uploads() -> dict[str, float]:
    """How fast rows are rounded and uploaded, from float32 vectors of a block."""
    rates = {}
    for d, n in ((64, 200_000), (64, 16_384), (576, 20_000)):
        on = device()
        looking = GpuSearch(on, ProductLook("s0", "cosine", True, 0.9))
        blocks = [block_of(directions(n, d, seed), 60) for seed in range(6)]
        looking._resident(blocks[0])
        began = time.perf_counter()
        for block in blocks[1:]:
            looking._resident(block)
        rates[f"{d} x {n}"] = 5 * n / (time.perf_counter() - began)
        say(f"uploads, d={d}, {n} rows each: {rates[f'{d} x {n}']:.3g} rows/s")
    return rates


# ---------------------------------------------------------------- the engine


def engine() -> list[dict[str, Any]]:
    """Steps of one worker whose windows are full: arrivals in, pairs out."""
    found = []
    for d, fresh, steps in ((64, 200_000, 5), (64, 20_000, 5), (64, 2_000, 20), (576, 40_000, 5)):
        for rate in (_USUAL,) if d != 64 or fresh != 200_000 else (_USUAL, 1e-5):
            found.append(_stream(d, fresh, steps, rate))
    return found


def _stream(d: int, fresh: int, steps: int, rate: float) -> dict[str, Any]:
    """Steps of `fresh` rows a side, ten seconds each, with a window of `steps` of them."""
    call = call_of(ab.cosine("v") >= edge("cosine", rate, d), f"{10 * steps} seconds")
    job, on = CorrelateJob(call), device()
    slices = Slices(job.stays, CorrelateNotes())
    seconds, loads = [], []
    profile = cProfile.Profile()
    for number in range(steps + 4):
        arrivals = [_arrivals(d, fresh, number, side) for side in (LEFT, RIGHT)]
        kernel = CorrelateKernel(job, slices, device=on)
        last = number == steps + 3
        began = time.perf_counter()
        if last:
            profile.enable()
        for _ in kernel.step(arrivals, START + (number - steps) * 10 * SECOND):
            pass
        if last:
            profile.disable()
        else:
            seconds.append(time.perf_counter() - began)
            loads.append(kernel.load)
    full = range(steps, steps + 3)
    rates = [loads[n].comparisons / seconds[n] for n in full]
    row = {
        "d": d,
        "fresh": fresh,
        "stored": fresh * steps,
        "comparisons": loads[-1].comparisons,
        "match_rate": loads[-1].pairs / loads[-1].comparisons,
        "seconds": median(seconds[n] for n in full),
        "rate": median(rates),
        "device_mb": on.memory.nbytes >> 20,
    }
    say(f"engine: {json.dumps(row)}")
    text = io.StringIO()
    pstats.Stats(profile, stream=text).sort_stats("tottime").print_stats(14)
    print("\n".join(line for line in text.getvalue().splitlines()[6:] if line.strip()), flush=True)
    return row


def _arrivals(d: int, rows: int, number: int, side: int) -> Block:
    t = np.arange(rows) * (10 * SECOND) // rows + START + number * 10 * SECOND
    vectors = directions(rows, d, 1000 + 2 * number + side)
    columns = {"id": np.arange(rows) + number * rows, "s0": vectors, "lead": np.ones(rows, bool)}
    block = Block.of(t, columns)
    block.meta.update(side=side, epoch=0, live=1, plans={}, newest=int(t[-1]))
    return block


def one_core() -> dict[str, float]:
    """The same matcher on one core of this machine."""
    from anabranch.flow.process import single_threaded

    rates = {}
    for d in (64, 576):
        a, b = directions(8_000, d, 1), directions(8_000, d, 2)
        matcher = Matcher(call_of(ab.cosine("v") >= edge("cosine", _USUAL, d)))
        spent = []
        with single_threaded():
            for _ in range(4):
                pair = Pair(block_of(a, 60), block_of(b, 60), (10**9, 10**9))
                began = time.perf_counter()
                for _ in matcher.matches(pair):
                    pass
                spent.append(time.perf_counter() - began)
        rates[str(d)] = comparisons(pair) / median(spent[1:])
        say(f"one core, d={d}: {rates[str(d)]:.3g}/s")
    return rates


if __name__ == "__main__":
    sys.exit(main())
