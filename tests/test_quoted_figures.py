"""Figures that pages quote of benchmarks are those of the stored results."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]


def rows(name: str) -> dict[tuple[str, str], dict[str, Any]]:
    """What a stored result has, by section and name."""
    found = json.loads((ROOT / f"benchmarks/results/{name}.json").read_text())
    parts = [found] if "rows" in found else [one for one in found.values() if "rows" in one]
    return {(row["section"], row["what"]): row for part in parts for row in part["rows"]}


def page(name: str) -> str:
    return (ROOT / "docs" / name).read_text()


def short(value: float) -> str:
    """Two figures, as pages write a rate."""
    return f"{value:.1e}".replace("e+0", "e").replace("e+", "e")


def thousands(value: float) -> str:
    """Three figures of a large number."""
    return f"{float(f'{value:.3g}'):,.0f}"


def test_what_a_core_makes() -> None:
    found = rows("correlate")

    def rate(what: str) -> str:
        return short(float(found["filters", what]["note"].partition("/s")[0]))

    said = page("spark.md").partition("## Sizing")[2].partition("## Metrics")[0]
    scenes = rate("scenes, noise .25, d=64"), rate("scenes, noise .45, d=64")
    assert f"makes, for a cosine of at least 0.9, {rate('isotropic, d=64')} comparisons/s" in said
    assert f"{scenes[0]} to {scenes[1]} on rows of 300 scenes" in said
    assert f"{rate('isotropic, long, d=576')} at 576 dimensions" in said
    assert f"{rate('news texts, d=256')} on vectors of news texts" in said


def test_correlate_against_the_product() -> None:
    found, said = rows("correlate"), page("correlate.md").partition("\n## Cost\n")[2]

    def times(what: str, section: str = "filters") -> str:
        return f"{found[section, what]['reached']:.1f}"

    assert f"{times('isotropic, d=64')} times as fast on vectors without clusters" in said
    noise = [times(f"scenes, noise {level}, d=64") for level in (".25", ".45")]
    assert f"{noise[0]} and {noise[1]} on rows of 300 scenes" in said
    assert f"{times('isotropic, long, d=576')} at 576 dimensions" in said
    assert f"{times('news texts, d=256')} on vectors of news texts" in said
    rate = found["stream", "comparisons per second, median of micro-batches"]["reached"]
    assert f"**{short(rate)} comparisons/s**" in said
    end_to_end = times("end to end against the bare two-core product", "stream")
    inside = times("kernel inside Spark against the bare product", "stream")
    assert f"**{end_to_end} times** a bare float32" in said
    assert f"Inside the workers it is {inside} times" in said
    again = found["ways", "one stream against the stream twice: time"]["reached"]
    assert f"takes {again:.2f} of its time" in said
    windows = [
        found["rows", f"a window of {size} rows against one of time: time"]["reached"]
        for size in ("16,000", "500")
    ]
    assert f"{windows[0]:.2f} times as long" in said
    assert f"a window of 500 rows {windows[1]:.2f} times" in said


@pytest.mark.parametrize("workers", [4, 16])
def test_rows_without_a_partner(workers: int) -> None:
    found = rows("correlate")
    names = [
        f"{how} against inner, {workers} workers: time" for how in ("left", "right", "full", "anti")
    ] + [
        f"{how}, plan log against inner, plan log, {workers} workers: time"
        for how in ("left", "full", "anti")
    ]
    values = " | ".join(f"{found['partners', name]['reached']:.2f}" for name in names)
    assert f"| {workers} | {values} |" in page("correlate.md")


def test_what_assemble_makes() -> None:
    long, small = rows("assemble-12s"), rows("assemble-4s")
    said = page("assemble.md").partition("\n## Cost\n")[2]

    def ratio(found: Any, what: str) -> str:
        return f"{found['ratio', what]['reached']:.1f}"

    def per_second(found: Any, what: str) -> str:
        return thousands(found["Spark", what]["reached"])

    for call, what in (
        ('count(13, "22 seconds")', "assemble"),
        ('learned("22 seconds")', "assemble learned"),
        ('gap("8 seconds")', "assemble gap"),
    ):
        times = ratio(long, f"{what} to a key per instance")
        line = next(line for line in said.splitlines() if f"`ab.close.{call}`" in line)
        assert per_second(long, what) in line and f"{times}" in line
    beside = long["ratio", "gap: to Spark's session_window"]["reached"]
    assert f"{beside:.2f} of Spark's own `session_window`" in said
    assert f"({per_second(long, 'session_window')})" in said
    assert f"it is {per_second(small, 'assemble')} events/s" in said
    learned, gap = (
        ratio(small, f"assemble {how} to a key per instance") for how in ("learned", "gap")
    )
    assert f"**{ratio(small, 'assemble to a key per instance')} times** one key" in said
    assert f"({learned} learned, {gap} gap)" in said
    batch = long["Spark", "median batch of assemble"]["reached"]
    assert f"a micro-batch of the table takes {batch:.2f} s" in said


def test_what_selective_moves() -> None:
    found, said = rows("nearest"), page("internals/nearest.md")
    for queries in (1, 9, 81):
        moved = [
            found["routing", f"selective, k = {queries}, {workers} workers"]["reached"]
            for workers in (4, 8, 16)
        ]
        assert "| " + " / ".join(f"{rows_:.2f}" for rows_ in moved) + " |" in said
    both = found["operators", "a micro-batch under selective over broadcast"]["reached"]
    assert f"{both:.2f} times as long (`--only operators`)" in said
    lines = json.loads((ROOT / "benchmarks/results/scale.json").read_text())["lines"]
    for count in (4, 8, 16):
        selective, broadcast = (
            next(at["rate"] for at in lines[f"nearest, {plan}"] if at["workers"] == count)
            for plan in ("selective", "broadcast")
        )
        assert f"{thousands(selective)} and {thousands(broadcast)} on {count}" in said


def test_beside_the_rivals() -> None:
    """Each line of the table: its values, and the smallest size from which ours is faster."""
    found, said = rows("rivals"), page("correlate.md").partition("Beside what people use")[2]

    def line(begin: str, section: str, names: list[str], first: str) -> None:
        row = next(one for one in said.splitlines() if one.startswith(f"| {begin}"))
        values = [found[section, name]["reached"] for name in names]
        quoted = " / ".join(f"{value:.2g}" if value < 10 else f"{value:.0f}" for value in values)
        assert row.endswith(f"| {quoted} | {first} |"), (begin, quoted)
        # Where a line has its first size alone to name, all of its values are above 1.
        wins = [value > 1 for value in values]
        assert wins == sorted(wins) and wins[-1]

    ours = "correlate on one core against"
    for begin, rival, sizes in (
        ("FAISS, flat range search", "FAISS on one core", ("250", "4,000", "64,000")),
        ("FAISS on two cores", "FAISS on two cores", ("250", "4,000", "64,000")),
        ("a consumer written in numpy", "numpy", ("250", "4,000", "64,000")),
    ):
        line(begin, "vectors", [f"{ours} {rival}, {n} stored rows" for n in sizes], "250")
    sides = [
        f"correlate against a cross join, {n} rows a side"
        for n in ("1,000", "2,000", "4,000", "16,000")
    ]
    line("Spark's cross join", "tables", sides, "4,000")
    objects = [
        f"nearest against nearestByJoin, {n} objects" for n in ("500", "1,500", "6,000", "24,000")
    ]
    line("Spark's `nearestByJoin`", "tables", objects, "500")
    plain = [f"correlate against Flink (plain), {n} rows a side" for n in ("15,000", "30,000")]
    line("Flink, join on two attributes", "bands", plain, "15,000")
    cells = [
        f"correlate against Flink (cells), {n} rows a side"
        for n in ("15,000", "30,000", "60,000", "240,000")
    ]
    line("Flink, the same with grid cells", "bands", cells, "30,000")
    pot = ("1 x 10", "3 x 30", "10 x 100", "30 x 300", "100 x 1000")
    for solver, first in (("emd2", "1 x 10"), ("wasserstein_1d", "3 x 30")):
        names = [f"correlate against POT, {solver}, {size} rows" for size in pot]
        line(f"POT's `{solver}`", "histograms", names, first)
    sizes = ("8,000", "32,000", "96,000")
    windows = [
        found["windows", f"assemble against session_window, {size} events a micro-batch"]["reached"]
        for size in sizes
    ]
    assert f"| {' / '.join(f'{value:.2f}' for value in windows)} | 96,000 |" in said
    assert [value > 1 for value in windows] == [False, False, True]


def test_how_fast_state_comes_back() -> None:
    found, said = rows("state"), page("spark.md")
    two, alone = (
        found["read", f"read by one worker {who}, as stored"]["reached"]
        for who in ("of two", "alone")
    )
    assert f"each gets {two:.0f} MB/s, and one alone {alone:.0f}" in said
    gain = found["read", "as stored against as encoded"]["reached"]
    assert f"{gain:.1f} times the rate of slices as they were encoded" in said
    ahead = found["read", "fetched ahead against one after the other"]["reached"]
    assert f"would be {ahead:.2f} times as fast" in said
    per_core = sorted(
        1000 / found["bytes", f"vectors of {width}: pickled and read"]["reached"]
        for width in (64, 576)
    )
    assert f"takes a core {per_core[0]:.1f} to {per_core[1]:.1f} ms per MB of vectors" in said
    for codec, words in (("zstd 1", "zstd keeps"), ("lz4", "lz4")):
        low, high = (
            found["bytes", f"vectors of {width}: stored with {codec}"]["reached"]
            for width in (64, 576)
        )
        upper = max(high, found["bytes", "vectors of 576: stored with zstd 3"]["reached"])
        assert f"{words} {low:.2f} to {high if codec == 'lz4' else upper:.2f}" in said
