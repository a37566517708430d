"""Ours beside what people use instead, on the same data in the same run.

::

    python -m benchmarks.rivals [--quick] [--only SECTION] [--flink PYTHON] [--pathway PYTHON]

Sections; each row has their time divided by ours, so that above 1 ours is faster. Each section ends
with the smallest size from which ours wins, and the sizes at which it loses:

- ``vectors``, one core, no Spark: the matcher of `correlate` against FAISS's flat range search, on
  one core and on two, and against a consumer that one writes in numpy.
- ``histograms``, one core: `correlate` by Earth Mover's Distance against POT.
- ``tables``, two cores on Spark: `ab.correlate` against a cross join with Spark's own vector
  function, and `ab.nearest` against Spark's `nearestByJoin`.
- ``bands``, two cores: a band join of two streams on two attributes against Flink and Pathway, by
  the Pythons of environments that have ``apache-flink`` and ``pathway``.
- ``windows``, two cores on Spark: `ab.assemble` with gaps against Spark's ``session_window``.

Every answer is compared with the rival's: sets of pairs, of neighbours and of windows. Of matches
there are thousands where sizes allow it, at no more than one in 100,000 comparisons. Packages that
are not installed are left out, and said so; ``make flink`` and ``make pathway`` make environments.
rapidfuzz has a benchmark of its own, ``text``. A full run writes ``rivals.json``, each section with
its machine, date and commit; with ``--only`` it replaces those sections there.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.measuring import Screen, beside_earlier, by_section, machine
from benchmarks.rivals_bands import bands
from benchmarks.rivals_tables import tables
from benchmarks.rivals_vectors import histograms, vectors
from benchmarks.rivals_windows import windows

Section = Callable[[Screen, bool], dict[str, Any]]
SECTIONS: dict[str, Section] = {
    "vectors": vectors,
    "histograms": histograms,
    "tables": tables,
    "bands": partial(bands, flink=None, pathway=None),
    "windows": windows,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the sections asked for."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="small sizes, a smoke test")
    parser.add_argument("--only", action="append", choices=SECTIONS, help="may be repeated")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    parser.add_argument("--flink", help="the Python of an environment with apache-flink")
    parser.add_argument("--pathway", help="the Python of an environment with pathway")
    call = parser.parse_args(arguments)
    screen, about = Screen(), machine()
    sections: dict[str, Section] = {
        **SECTIONS,
        "bands": partial(bands, flink=call.flink, pathway=call.pathway),
    }
    details = {name: sections[name](screen, call.quick) for name in call.only or sections}
    screen.table("beside the rivals")
    rows = [row.to_dict() for row in screen.rows]
    result = {"benchmark": "rivals", "quick": call.quick, "machine": about}
    result = {**result, "rows": rows, "details": details}
    path = call.out / ("rivals-quick.json" if call.quick else "rivals.json")
    call.out.mkdir(parents=True, exist_ok=True)
    result = beside_earlier(path, result) if call.only else by_section(result)
    path.write_text(json.dumps(result, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
