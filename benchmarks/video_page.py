"""The parts of docs/video.md that are written from stored results: rates, shots and recall.

``python -m benchmarks.video_page`` writes all of them again, without measuring anything.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.marked import put

__all__ = ["PAGE", "with_recall", "with_video"]

_ROOT = Path(__file__).parents[1]
PAGE = _ROOT / "docs" / "video.md"
RESULTS = _ROOT / "benchmarks" / "results"
_RATES = {
    "decode": "decode",
    "decode and signature": "and signature, what every frame needs",
    "decode and all features, picture=None": (
        'and all features of every frame, `anchors="1 ms"`, `picture=None`'
    ),
    "decode, all features and the default picture": "and the default picture of every frame",
}
_KINDS = ("content", "adaptive", "histogram", "hash")
_NAMES = {"layout, three views": "three views", "hash, bits": "hash"}


def with_video(page: str, result: Mapping[str, Any]) -> str:
    """The page with rates and shots as they were measured."""
    rows = {(row["section"], row["what"]): row for row in result["rows"]}
    return put(put(page, "rates", _rates(rows, result)), "shots", _shots(rows, result["seeds"]))


def with_recall(page: str, stored: str) -> str:
    """The page with what results/video-recall.md says."""
    return put(page, "recall", _recall(tables(stored)))


def _rates(rows: Mapping[tuple[str, str], Mapping[str, Any]], result: Mapping[str, Any]) -> str:
    of = {what: row for (section, what), row in rows.items() if section == "720p, one core"}
    lines = ["| | frames/s | goal |", "|---|---:|---|"]
    for what, said in _RATES.items():
        lines.append(f"| {said} | {of[what]['reached']:.0f} | {_goal(of[what])} |")
    described, pictured = (of[what]["reached"] for what in list(_RATES)[2:])
    kilobytes = f" and {of['a picture']['reached']:.0f} kB" if "a picture" in of else ""
    said = f"A JPEG of 640 x 360 takes {1000 / pictured - 1000 / described:.1f} ms{kilobytes}."
    if "channels that are read" in of:
        count = of["channels that are read"]
        said = (
            f"One core reads {count['reached']:.1f} channels of 720p at 25 frames/s in segments of "
            '2 s with `every="200 ms"`, a picture each second and the opening of segments '
            f"included. The goal of {count['target']:g} is {_verdict(count['met'])}. {said}"
        )
    about = result["machine"]
    commit = f", commit {about['commit'][:12]}" if "commit" in about else ""
    load = f"load average {about['load_average_at_start']:.1f} at the start"
    return "\n".join([*lines, "", said, "", f"{about['cores']} cores, {load}{commit}."])


def _goal(row: Mapping[str, Any]) -> str:
    if row["target"] is None:
        return ""
    return f"at least {row['target']:g}: {_verdict(row['met'])}"


def _verdict(met: bool) -> str:
    return "reached" if met else "missed"


def _shots(rows: Mapping[tuple[str, str], Mapping[str, Any]], seeds: Sequence[int]) -> str:
    sections = [f"shots, seed {seed}" for seed in seeds]

    def each(what: str, digits: int = 2) -> str:
        return ", ".join(f"{rows[of, what]['reached']:.{digits}f}" for of in sections)

    lines = ["| | recall of cuts | recall of gradual changes | false |", "|---|---|---|---|"]
    ours = (each("recall of cuts"), each("recall of gradual changes"), each("false", 0))
    lines.append(f"| `ab.video.shots` | {' | '.join(ours)} |")
    for kind in _KINDS:
        what = f"PySceneDetect, {kind}: recall of cuts"
        notes = [re.findall(r"[\d.]+", rows[of, what]["note"]) for of in sections]
        others = " | ".join(map(", ".join, zip(*notes, strict=True)))
        lines.append(f"| PySceneDetect, {kind} | {each(what)} | {others} |")
    films = "; ".join(
        f"seed {seed}: {rows[of, 'recall of cuts']['note']}"
        for seed, of in zip(seeds, sections, strict=True)
    )
    return "\n".join([f"Films: {films}.", "", *lines])


@dataclass(frozen=True)
class Table:
    """One table of results/video-recall.md: its title, its columns, and rows by name."""

    title: str
    columns: list[str]
    rows: Mapping[str, list[str]]

    def exact(self, column: str, names: Sequence[str]) -> float:
        """The mean of rows in per cent, as exact as the number of key frames makes it."""
        place, count = self.columns.index(column), int(self.title.split()[self._number])
        found = [round(float(self.rows[name][place]) * count / 100) / count for name in names]
        return 100 * sum(found) / len(found)

    @property
    def _number(self) -> int:
        """Which word of the title says how many key frames there are."""
        return next(n for n, word in enumerate(self.title.split()) if word.isdigit())

    def names(self, kind: str) -> list[str]:
        """The transformations that a mean is of: ``tuned`` or ``held out``."""
        names = [name for name in self.rows if name not in _APART]
        mean = next(n for n, name in enumerate(names) if name.startswith(f"{kind}, mean"))
        before = [n for n, name in enumerate(names[:mean]) if "mean of" in name or name in _OTHERS]
        return names[max(before, default=-1) + 1 : mean]

    def mean(self, kind: str) -> list[str]:
        """The row of means of these transformations, as it is stored."""
        return next(row for name, row in self.rows.items() if name.startswith(f"{kind}, mean"))


_APART = ("squeeze", "mirror")
_OTHERS = ("threshold",)


def tables(stored: str) -> list[Table]:
    """All tables, in their order."""
    found: list[Table] = []
    for line in stored.splitlines():
        cells = [cell.strip(" *") for cell in line.strip().strip("|").split("|")]
        if re.fullmatch(r"\*\*.+\*\*", line):
            found.append(Table(line.strip("*"), [], {}))
        elif line.startswith("| | "):
            found[-1].columns[:] = cells[1:]
        elif line.startswith("| "):
            found[-1] = Table(
                found[-1].title, found[-1].columns, {**found[-1].rows, cells[0]: cells[1:]}
            )
    return found


def _recall(found: Sequence[Table]) -> str:
    seen, unseen, _, seen_common, unseen_common, *more = found
    parts = [
        "With the thresholds that let no pair of the seen clips be false:",
        _summary(seen, unseen, with_false=True),
        "With the least thresholds that let no pair of either set be false:",
        _summary(seen_common, unseen_common, with_false=False),
        "The goals, with these thresholds:",
        _goals(seen_common, unseen_common),
    ]
    if more:
        shots, films = more
        parts += [
            "Harder: other shots of the same film are distractors too; and films that move, each "
            "held out once, with thresholds of the others, their other shots included:",
            _harder(shots, films),
        ]
    return "\n\n".join(parts)


def _head(table: Table, first: str) -> list[str]:
    names = [_NAMES.get(name, name) for name in table.columns]
    return [f"| {first} | " + " | ".join(names) + " |", "|---|---|" + "---:|" * len(names)]


def _summary(seen: Table, unseen: Table, with_false: bool) -> str:
    lines = _head(seen, "clips | transformations")
    if not with_false:
        lines.append("| both | threshold | " + " | ".join(seen.rows["threshold"]) + " |")
    for clips, of in (("seen", seen), ("unseen", unseen)):
        for kind, said in (("tuned", "that the layout was made for"), ("held out", "held out")):
            count = len(of.names(kind))
            lines.append(f"| {clips} | {count} {said} | " + " | ".join(of.mean(kind)) + " |")
        for name in _APART:
            lines.append(f"| {clips} | {name} | " + " | ".join(of.rows[name]) + " |")
    if with_false:
        false = (f"{int(cell):,}" for cell in unseen.rows["false, of a million pairs"])
        lines.append("| unseen | false, of a million pairs | " + " | ".join(false) + " |")
    return "\n".join(lines)


def _goals(seen: Table, unseen: Table) -> str:
    lines = ["| goal at precision 1.0 | at least | reached | |", "|---|---:|---:|---|"]
    for column, held_out in (("both", 90), ("layout", 75), ("layout, three views", 75)):
        for of, clips, kind, goal in (
            (seen, "seen clips, what the layout was made for", "tuned", 99),
            (unseen, "unseen clips, held-out transformations", "held out", held_out),
        ):
            reached = of.exact(column, of.names(kind))
            verdict = _verdict(reached >= goal)
            name = _NAMES.get(column, column)
            lines.append(f"| {name}: {clips} | {goal} | {reached:.1f} | {verdict} |")
    return "\n".join(lines)


def _harder(shots: Table, films: Table) -> str:
    lines = _head(shots, "what is compared | transformations")
    for said, of in (("other shots too", shots), ("films held out", films)):
        lines.append(f"| {said} | threshold | " + " | ".join(of.rows["threshold"]) + " |")
        for kind in ("tuned", "held out"):
            count = len(of.names(kind))
            lines.append(f"| {said} | {count}, {kind} | " + " | ".join(of.mean(kind)) + " |")
        false = of.rows["false, of a million pairs"]
        lines.append(f"| {said} | false, of a million pairs | " + " | ".join(false) + " |")
    return "\n".join(lines)


def main() -> None:
    """Write the page again."""
    page = with_video(PAGE.read_text(), json.loads((RESULTS / "video.json").read_text()))
    PAGE.write_text(with_recall(page, (RESULTS / "video-recall.md").read_text()))


if __name__ == "__main__":
    main()
