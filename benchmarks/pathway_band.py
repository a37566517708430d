"""A band join on two attributes in Pathway, as a process of its own; see `rivals_bands`.

::

    python benchmarks/pathway_band.py FOLDER BAND SECONDS

runs in an environment that has ``pathway`` (and not necessarily Anabranch): it joins the CSV files
of ``FOLDER/left`` and ``FOLDER/right`` twice in one process with two threads, once cold and once
warm, and prints the seconds, the number of pairs and a sum over them as JSON. Pathway's interval
join wants equalities to be fast: a grid of cells as wide as the band is laid over both attributes,
and left rows are copied into the nine cells around their own.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from pathlib import Path

_MODULUS = 1_000_003
_WIDER = 1.000001  # cells, so that rounding in a division moves no pair two cells apart


def main() -> None:
    """Run the join twice."""
    os.environ.setdefault("PATHWAY_THREADS", "2")
    folder, band, seconds = sys.argv[1:]
    with tempfile.TemporaryDirectory() as named:
        for side in ("left", "right"):  # Pathway reads the names of columns from the file
            (Path(named) / side).mkdir()
            for path in (Path(folder) / side).glob("*.csv"):
                (Path(named) / side / path.name).write_text("n,t,x,y\n" + path.read_text())
        runs = [_joined(named, float(band), int(seconds) * 1000) for _ in range(2)]
    took, answers = zip(*runs, strict=True)
    pairs, total = answers[-1]
    print(json.dumps({"seconds": list(took), "pairs": pairs, "sum": total}))


def _joined(folder: str, band: float, span: int) -> tuple[float, tuple[int, int]]:
    import pathway as pw  # of its own environment
    from pathway.internals.parse_graph import G

    class Rows(pw.Schema):  # type: ignore[misc]
        n: int
        t: int
        x: float
        y: float

    began = time.perf_counter()
    left, right = (
        pw.io.csv.read(f"{folder}/{side}", schema=Rows, mode="static") for side in ("left", "right")
    )
    wide = band * _WIDER
    cx, cy = (pw.cast(int, value // wide) for value in (pw.this.x, pw.this.y))
    around = [left.select(*pw.this, cx=cx + i, cy=cy + j) for i in (-1, 0, 1) for j in (-1, 0, 1)]
    copies = pw.Table.concat_reindex(*around)
    cells = right.select(*pw.this, cx=cx, cy=cy)
    met = copies.interval_join(
        cells,
        copies.t,
        cells.t,
        pw.temporal.interval(-span, span),
        copies.cx == cells.cx,
        copies.cy == cells.cy,
    ).select(
        code=(copies.n * 31 + cells.n) % _MODULUS, dx=copies.x - cells.x, dy=copies.y - cells.y
    )
    near = met.filter(
        (pw.this.dx <= band) & (pw.this.dx >= -band) & (pw.this.dy <= band) & (pw.this.dy >= -band)
    )
    answer = near.reduce(pairs=pw.reducers.count(), total=pw.reducers.sum(pw.this.code))
    found: dict[str, int] = {"pairs": 0, "total": 0}

    def told(key: object, row: dict[str, int], time: int, is_addition: bool) -> None:
        if is_addition:
            found.update(row)

    pw.io.subscribe(answer, told)
    pw.run(monitoring_level=pw.MonitoringLevel.NONE)
    took = time.perf_counter() - began
    G.clear()
    return took, (int(found["pairs"]), int(found["total"]))


if __name__ == "__main__":
    main()
