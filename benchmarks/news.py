"""How soon a topic of live channels is on the page, and whether all of them are found.

``python -m benchmarks.news`` plays the channels of ``anabranch news`` at their own speed, once for
each timetable, in a process of its own, and writes results/news.json and the table of
docs/video.md. ``--seed 7 --seed 8 --seed 9`` is the default; a seed that is given twice is played
twice. Run it on a machine that does nothing else: three channels leave two cores little to spare.

A pair is on the page with its topic so many seconds after its later key frame, the first of its
shot, was on air; and so many after the segment of that frame was closed, which nothing can undo.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from anabranch.video.channels import SECOND, SEGMENT
from anabranch.video.scoring import LEAST_RECALL, LEAST_SHOTS
from benchmarks.marked import put
from benchmarks.measuring import Row, Screen, machine
from benchmarks.needs import need

ROOT = Path(__file__).parents[1]
RESULT, PAGE = ROOT / "benchmarks" / "results" / "news.json", ROOT / "docs" / "video.md"
SEEDS = (7, 8, 9)
WITHIN = 2.0  # seconds, behind the segment
_SINCE = {
    "latency_from_frame_seconds": ("since its frame was on air", SEGMENT / SECOND + WITHIN),
    "latency_seconds": ("since its segment was closed", WITHIN),
}
_FOUND = {"shots": LEAST_SHOTS, "pairs": LEAST_RECALL, "topics": 1.0}
_PLAY = """
import sys
from pathlib import Path
from anabranch.spark.demo.news import NewsSettings, run_news
seconds, seed, out = float(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
plain = sys.argv[4] == "True"
run_news(NewsSettings(seconds=seconds, speed=1, seed=seed, page=False, out=out, plain=plain))
"""


def runs(seeds: Sequence[int]) -> dict[str, int]:
    """The seed of each run by its name.

    Examples
    --------
    >>> runs([7, 8, 7])
    {'seed 7': 7, 'seed 8': 8, 'seed 7, run 2': 7}
    """
    found: dict[str, int] = {}
    for n, seed in enumerate(seeds):
        again = seeds[:n].count(seed)
        found[f"seed {seed}, run {again + 1}" if again else f"seed {seed}"] = seed
    return found


def played(seconds: float, seed: int, plain: bool) -> dict[str, Any]:
    """The verdict on one run; a run that does not say one is an error."""
    python = {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "verdict.json"
        command = [sys.executable, "-c", _PLAY, str(seconds), str(seed), str(out), str(plain)]
        subprocess.run(command, check=True, cwd=ROOT, env={**os.environ, **python})
        found: dict[str, Any] = json.loads(out.read_text())
    return found


def add_rows(screen: Screen, section: str, verdict: Mapping[str, Any]) -> None:
    """What one run found, and how long it took."""
    for what, least in _FOUND.items():
        tally = verdict[what]
        told, due = tally["found"] + tally["false"], tally["found"] + tally["missed"]
        note = f"{tally['found']} found, {tally['missed']} missed, {tally['twice']} twice"
        screen.add(Row(section, f"{what}: recall", tally["found"] / due, "", least, note=note))
        screen.add(Row(section, f"{what}: precision", tally["found"] / told, "", 1.0))
    for name, (since, most) in _SINCE.items():
        of = verdict[name]
        screen.add(Row(section, f"median, {since}", of["median"], "s", note=f"{of['count']} pairs"))
        screen.add(Row(section, f"95 of 100, {since}", of["p95"], "s", most, at_most=True))


def table(result: Mapping[str, Any]) -> str:
    """The rows of all runs as the page has them: a line for each thing, a column for each run."""
    rows: Sequence[Mapping[str, Any]] = result["rows"]
    about = result["machine"]
    runs = list(dict.fromkeys(row["section"] for row in rows))
    lines = [
        f"| a pair on the page, and what was found | goal | {' | '.join(runs)} |",
        "|---|---|" + "---:|" * len(runs),
    ]
    for what in dict.fromkeys(row["what"] for row in rows):
        of = [row for row in rows if row["what"] == what]
        unit = " s" if of[0]["unit"] else ""
        sign = "at most" if of[0]["at_most"] else "at least"
        goal = "" if of[0]["target"] is None else f"{sign} {of[0]['target']:g}{unit}"
        cells = " | ".join(
            f"{row['reached']:.2f}{unit}{', missed' if row['met'] is False else ''}" for row in of
        )
        lines.append(f"| {what} | {goal} | {cells} |")
    read = result["details"]["runs"][0].get("read", [])
    beside = f", with {' and '.join(read)} of key frames" if read else ""
    load = f"{about['cores']} cores, load average {about['load_average_at_start']:.1f} at the start"
    return "\n".join([*lines, "", f"Measured on {load}{beside}: work of others makes it slower."])


def main(arguments: Sequence[str] | None = None) -> None:
    """Play, and write the result and the page's table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=96)
    parser.add_argument("--seed", type=int, action="append", help="may be repeated; 7, 8 and 9")
    parser.add_argument(
        "--plain", action="store_true", help="no captions and concepts, extras or not"
    )
    given = parser.parse_args(arguments)
    need("benchmarks.news", ["av"])
    screen, about, verdicts = Screen(), machine(), []
    for name, seed in runs(given.seed or SEEDS).items():
        screen.step(f"{name}: three channels, {given.seconds:g} s")
        verdicts.append(played(given.seconds, seed, given.plain))
        add_rows(screen, name, verdicts[-1])
    screen.table("news")
    rows = [row.to_dict() for row in screen.rows]
    result = {"machine": about, "rows": rows, "details": {"runs": verdicts}}
    RESULT.write_text(json.dumps(result, indent=1) + "\n")
    PAGE.write_text(put(PAGE.read_text(), "news", table(result)))


if __name__ == "__main__":
    main()
