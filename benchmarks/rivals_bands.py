"""Two streams read to their end: rows that differ by little in both of two attributes.

`correlate` on Spark with two cores beside Flink's and Pathway's joins over a window of time, each
in a process of its own. The second run of a process counts, when workers have started and code is
compiled. All decide by the same float64 comparisons, so the pairs must be the same: their number,
and a sum of a number that each pair makes of its two ids.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from pyspark.sql import functions as F

import anabranch as ab
from benchmarks.measuring import Row, Screen
from benchmarks.rivals_tables import session
from benchmarks.rivals_vectors import TIMES, winning

__all__ = ["bands"]

_SECONDS = 10
_RATE = 9e-6  # of the pairs that the window lets join
_PLAIN = 30_000  # rows a side
_ROUNDS = {60_000: 3}  # up to so many rows


def bands(screen: Screen, quick: bool, flink: str | None, pathway: str | None) -> dict[str, Any]:
    """A minute of either stream, at several sizes; rivals by the Pythons that have them."""
    sizes = (5000,) if quick else (15_000, 30_000, 60_000, 120_000, 240_000)
    found: dict[str, Any] = {}
    gains: dict[str, dict[int, float]] = {}
    for rival, python in (("Flink", flink), ("Pathway", pathway)):
        if not python:
            screen.step(f"bands: no {rival}, its Python is not given")
    for size in sizes if flink or pathway else ():
        with tempfile.TemporaryDirectory() as folder:
            screen.step(f"bands: {size:,} rows a side")
            band = _write(Path(folder), size)
            rounds = 1 if quick else next((n for most, n in _ROUNDS.items() if size <= most), 1)
            found[str(size)] = told = _one_size(folder, band, size, rounds, (flink, pathway))
        pairs, share = told["pairs"], told["match rate"]
        for rival, gain in told[TIMES].items():
            gains.setdefault(rival, {})[size] = gain
            what = f"correlate against {rival}, {size:,} rows a side"
            note = f"{pairs:,} pairs, match rate {share:.1e}"
            screen.add(Row("bands", what, gain, TIMES, note=note))
    found["wins"] = {r: winning(screen, "bands", r, by_size) for r, by_size in gains.items()}
    return found


def _one_size(
    folder: str, band: float, size: int, rounds: int, pythons: tuple[str | None, str | None]
) -> dict[str, Any]:
    flink, pathway = pythons
    took: dict[str, list[list[float]]] = {}
    answers: dict[str, tuple[int, int]] = {}
    commands: dict[str, list[str]] = {}
    # Without cells Flink compares every row with a third of the others: minutes at 60,000.
    for way in () if not flink else ("cells",) if size > _PLAIN else ("plain", "cells"):
        commands[f"Flink ({way})"] = [str(flink), _beside("flink_band.py"), way]
    if pathway:
        commands["Pathway (cells)"] = [pathway, _beside("pathway_band.py")]
    for _ in range(rounds):
        seconds, *answer = _ours(folder, band)
        took.setdefault("ours", []).append(seconds)
        answers["ours"] = answer[0], answer[1]
        for rival, (python, program, *more) in commands.items():
            told = _told([python, program, folder, repr(band), str(_SECONDS), *more])
            took.setdefault(rival, []).append(told["seconds"])
            answers[rival] = told["pairs"], told["sum"]
    assert answers["ours"][0] > 0 and len(set(answers.values())) == 1, answers
    share = 1 - (1 - _SECONDS / 60) ** 2
    return {
        "seconds, cold and warm": took,
        TIMES: {
            rival: statistics.median(
                theirs[-1] / ours[-1]
                for theirs, ours in zip(took[rival], took["ours"], strict=True)
            )
            for rival in commands
        },
        "pairs": answers["ours"][0],
        "match rate": answers["ours"][0] / (share * size**2),
    }


def _write(folder: Path, size: int) -> float:
    """Two CSV files of ids, milliseconds and two attributes, a minute long; the band."""
    for side, name in enumerate(("left", "right")):
        random = np.random.default_rng(side)
        t = np.sort(random.integers(0, 60_000, size)) + 1_700_000_000_000
        columns = [np.arange(size), t, *random.random((2, size)).round(6)]
        (folder / name).mkdir()
        rows = "\n".join(f"{i},{t},{x},{y}" for i, t, x, y in zip(*columns, strict=True))
        (folder / name / "rows.csv").write_text(rows + "\n")
    # A band covers (2 band)² of what there is.
    return round(float(np.sqrt(_RATE) / 2), 6)


def _ours(folder: str, band: float) -> tuple[list[float], int, int]:
    spark = session()
    took: list[float] = []
    pairs = total = 0
    try:
        for turn in range(2):
            began = time.perf_counter()
            left, right = (
                spark.readStream.schema("id long, t long, x double, y double")
                .csv(f"{folder}/{name}")
                .withColumn("ts", F.timestamp_millis("t"))
                for name in ("left", "right")
            )
            near = ab.within("x", band) & ab.within("y", band)
            found = ab.correlate(left, right, where=near, window=f"{_SECONDS} s", watermark="1 s")
            found = found.select("left_id", "right_id")
            writer = found.writeStream.format("memory").queryName(f"found{turn}")
            writer.trigger(availableNow=True).start().awaitTermination()
            took.append(time.perf_counter() - began)
        code = (F.col("left_id") * 31 + F.col("right_id")) % 1_000_003
        row = spark.table("found1").agg(F.count("*"), F.sum(code)).first()
        assert row is not None
        pairs, total = int(row[0]), int(row[1] or 0)
    finally:
        spark.stop()
    return took, pairs, total


def _told(command: list[str]) -> Any:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{command[1]} failed:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def _beside(name: str) -> str:
    return str(Path(__file__).with_name(name))
