"""Similar names and sets, against all pairs by rapidfuzz and a cross join of Spark.

::

    python -m benchmarks.text [--names 6000] [--rounds 3]

Two registers of company names, a tenth of them the same company spelt otherwise. On one core the
kernel is timed in turns with `rapidfuzz.process.cdist` over all pairs (with its cut-off), and for
sets with a product of sparse matrices. On Spark `ab.correlate` is timed in turns with a cross join
on Spark's own `levenshtein`, with its cut-off too. All must find the same pairs.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from rapidfuzz.distance import JaroWinkler, Levenshtein
from rapidfuzz.process import cdist
from scipy import sparse

import anabranch as ab
from anabranch.correlation.filters.tiles import Pair
from anabranch.correlation.matching import Matcher
from anabranch.flow.blocks import Block
from benchmarks.correlate_kernel import specification
from benchmarks.measuring import Row, Screen, beside_earlier, in_turns, machine, rate, ratio

RESULTS = Path(__file__).parent / "results"
_START = 1_700_000_000_000_000
_SYLLABLES = [c + v for c in "bcdfghklmnprstvwz" for v in "aeiou"] + ["er", "an", "sch", "in"]
_FORMS = ["Ltd", "Limited", "GmbH", "AG", "Inc", "Holding", "& Co KG", "Services", "Group"]


def registers(names: int) -> tuple[list[str], list[str]]:
    """The names of two registers."""
    draw = np.random.default_rng(16)

    def word() -> str:
        return "".join(draw.choice(_SYLLABLES, int(draw.integers(2, 5)))).capitalize()

    def misspelt(name: str) -> str:
        at = int(draw.integers(1, len(name)))
        return name[:at] + str(draw.choice(list("aeinrst"))) + name[at + int(draw.integers(2)) :]

    left = [f"{word()} {word()} {draw.choice(_FORMS)}" for _ in range(names)]
    right = [f"{word()} {word()} {draw.choice(_FORMS)}" for _ in range(names)]
    right[: names // 10] = map(misspelt, left[: names // 10])
    return left, [right[n] for n in draw.permutation(names)]


def sets_of(names: list[str]) -> list[list[str]]:
    """Names as sets of runs of three letters."""
    return [sorted({name[n : n + 3] for n in range(len(name) - 2)}) for name in names]


def kernel(where: Any, kind: str, sides: tuple[pa.Array, pa.Array]) -> Callable[[], int]:
    """How many pairs match; from new blocks each time it is called."""
    matcher = Matcher(specification({"v": kind}, where))

    def run() -> int:
        left, right = (
            Block.of(np.full(len(side), _START), {"id": np.arange(len(side)), "s0": side})
            for side in sides
        )
        return sum(len(found.left) for found in matcher.matches(Pair(left, right, (0, 0))))

    return run


def by_cdist(scorer: Any, limit: float, near: bool, sides: tuple[list[str], list[str]]) -> int:
    """The same by the whole matrix, a thousand rows at a time."""
    left, right = sides
    found, kind = 0, np.uint8 if near else np.float64
    for first in range(0, len(left), 1000):
        part = left[first : first + 1000]
        matrix = cdist(part, right, scorer=scorer, score_cutoff=limit, dtype=kind)
        found += int(np.count_nonzero(matrix <= limit if near else matrix >= limit))
    return found


def by_product(limit: float, sides: tuple[list[list[str]], list[list[str]]]) -> int:
    """Pairs of sets by a product of sparse matrices of elements."""
    codes: dict[str, int] = {}
    matrices = []
    for side in sides:
        columns = [codes.setdefault(element, len(codes)) for row in side for element in row]
        ends = np.cumsum([0, *map(len, side)])
        matrices.append((np.ones(len(columns), np.int32), columns, ends))
    x, y = (sparse.csr_matrix(m, shape=(len(m[2]) - 1, len(codes))) for m in matrices)
    both = (x @ y.T).tocoo()
    sizes = [np.diff(m[2]) for m in matrices]
    every = sizes[0][both.row] + sizes[1][both.col] - both.data
    return int(np.count_nonzero(both.data >= limit * every))


def on_one_core(screen: Screen, names: int, rounds: int) -> None:
    """The kernel against all pairs."""
    texts = registers(names)
    sets = sets_of(texts[0]), sets_of(texts[1])
    strings = tuple(pa.array(side, pa.string()) for side in texts)
    lists = tuple(pa.array(side, pa.list_(pa.string())) for side in sets)
    cases: dict[str, tuple[Callable[[], int], Callable[[], int], str, float]] = {
        "edit <= 2": (
            kernel(ab.edit("v") <= 2, "string", strings),
            lambda: by_cdist(Levenshtein.distance, 2, True, texts),
            "rapidfuzz cdist",
            4.0,
        ),
        "jaro_winkler >= 0.92": (
            kernel(ab.jaro_winkler("v") >= 0.92, "string", strings),
            lambda: by_cdist(JaroWinkler.similarity, 0.92, False, texts),
            "rapidfuzz cdist",
            4.0,
        ),
        "jaccard >= 0.6": (
            kernel(ab.jaccard("v") >= 0.6, "array<string>", lists),
            lambda: by_product(0.6, sets),
            "a sparse matrix product",
            4.0,
        ),
    }
    for what, (ours, theirs, other, target) in cases.items():
        screen.step(f"{what}: {names:,} by {names:,} names, {rounds} rounds in turns")
        counts = ours(), theirs()
        if counts[0] != counts[1]:
            raise AssertionError(f"{what}: we found {counts[0]} pairs, {other} {counts[1]}")
        seconds = in_turns({"ours": ours, "theirs": theirs}, rounds)
        faster = ratio(seconds["theirs"], seconds["ours"])
        screen.add(Row("kernel", f"{what}: times as fast as {other}", faster, target=target))
        found = f"{counts[0]:,} pairs"
        screen.add(Row("kernel", f"{what}: pairs/s", rate(names**2, seconds["ours"]), note=found))


def on_spark(screen: Screen, names: int, rounds: int) -> None:
    """`ab.correlate` against Spark's cross join."""
    from pyspark.sql import SparkSession

    builder: Any = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    spark = ab.configure(builder.getOrCreate(), workers=2)
    spark.sparkContext.setLogLevel("OFF")
    tables = []
    for side in registers(names):
        rows = pa.table({"id": np.arange(len(side)), "name": side})
        table = spark.createDataFrame(rows.to_pandas()).repartition(2)
        tables.append(table.selectExpr("id", "timestamp_seconds(1700000000) AS ts", "name").cache())
        tables[-1].count()
    left, right = tables

    def ours() -> int:
        where = ab.edit("name") <= 2
        plan = ab.grid(1, 2)
        return int(ab.correlate(left, right, where=where, window="0 s", plan=plan).count())

    def theirs() -> int:
        crossed = left.alias("l").crossJoin(right.alias("r"))
        return int(crossed.filter("levenshtein(l.name, r.name, 2) >= 0").count())

    screen.step(f"Spark: {names:,} by {names:,} names, {rounds} rounds in turns")
    if ours() != theirs():
        raise AssertionError("the cross join finds other pairs")
    seconds: dict[str, list[float]] = {"ours": [], "theirs": []}
    for _ in range(rounds):
        for name, run in (("ours", ours), ("theirs", theirs)):
            began = time.perf_counter()
            run()
            seconds[name].append(time.perf_counter() - began)
    faster = ratio(seconds["theirs"], seconds["ours"])
    note = "levenshtein(l.name, r.name, 2), by the clock, two cores"
    screen.add(Row("spark", "edit <= 2: times as fast as a cross join", faster, "", 3.0, note=note))
    screen.add(Row("spark", "edit <= 2: pairs/s", rate(names**2, seconds["ours"])))
    spark.stop()


def main() -> None:
    """Measure, show and store."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--names", type=int, default=6000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    screen = Screen()
    about = machine()
    details = {"names": options.names, "rounds": options.rounds}
    on_one_core(screen, options.names, options.rounds)
    on_spark(screen, options.names, options.rounds)
    screen.table("Texts and sets")
    path = RESULTS / "text.json"
    rows = [row.to_dict() for row in screen.rows]
    result = {"machine": about, "rows": rows, "details": details}
    path.write_text(json.dumps(beside_earlier(path, result), indent=1) + "\n")


if __name__ == "__main__":
    main()
