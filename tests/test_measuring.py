"""Results of benchmarks say of every section where, when and from which code it comes."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from anabranch.flow import origin as code
from benchmarks import PINNED
from benchmarks.measuring import Screen, beside_earlier, machine, with_missed

ROOT = Path(__file__).parents[1]
RESULTS = [
    path
    for pattern in (
        "benchmarks/results/*.json",
        "papers/*/results/*.json",
        "scripts/reliability/results/*.json",
    )
    for path in sorted(ROOT.glob(pattern))
]


# Results of before each said where it comes from. It may only become shorter.
OLDER = {
    "benchmarks/results/assemble-12s.json",
    "benchmarks/results/assemble-4s.json",
    "benchmarks/results/emd.json",
    "benchmarks/results/nearest.json",
    "benchmarks/results/place-spark-10000-1.json",
    "benchmarks/results/place.json",
    "benchmarks/results/scale.json",
    "papers/dssis/results/dssis-queues.json",
    "papers/dssis/results/dssis-windows.json",
    "papers/emd/results/emd-figures.json",
    "papers/knn/results/knn-10.json",
    "papers/knn/results/knn-11-cells.json",
    "papers/knn/results/knn-11-paper-size.json",
    "papers/knn/results/knn-11-variance.json",
    "papers/knn/results/knn-11.json",
    "papers/knn/results/knn-12.json",
    "papers/knn/results/knn-13.json",
    "papers/knn/results/knn-14.json",
    "papers/knn/results/knn-15.json",
    "papers/knn/results/knn-16.json",
    "papers/knn/results/knn-8.json",
    "papers/knn/results/knn-9.json",
    "papers/knn/results/knn-churn.json",
    "papers/knn/results/knn-error.json",
    "papers/knn/results/knn-slack.json",
    "papers/race/results/place-improvement.json",
    "papers/vico/results/vico-10-beta50.json",
    "papers/vico/results/vico-10.json",
    "papers/vico/results/vico-11.json",
    "papers/vico/results/vico-12-queue300.json",
    "papers/vico/results/vico-12.json",
    "papers/vico/results/vico-9-beta50.json",
    "papers/vico/results/vico-9.json",
    "papers/vico/results/vico-growth.json",
    "scripts/reliability/results/fuzz.json",
}


def run(machine: str, *sections: str) -> dict[str, Any]:
    rows = [{"section": section, "what": machine} for section in sections]
    return {"machine": {"cpu": machine}, "rows": rows, "details": dict.fromkeys(sections, machine)}


def test_a_section_that_is_kept_keeps_the_machine_that_it_came_from(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    for result in (run("first", "a", "b"), run("second", "b", "c"), run("third", "c")):
        path.write_text(json.dumps(beside_earlier(path, result)))
    found = json.loads(path.read_text())
    origins = {"a": "first", "b": "second", "c": "third"}
    assert found["sections"] == {section: {"cpu": cpu} for section, cpu in origins.items()}
    assert {row["section"]: row["what"] for row in found["rows"]} == origins
    assert found["details"] == origins
    assert "machine" not in found, "it would be taken for that of all sections"


def test_rows_that_a_section_has_no_more_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "rivals.json"
    first = run("here", "a", "b")
    first["rows"].append({"section": "a", "what": "against Flink"})
    path.write_text(json.dumps(beside_earlier(path, first)))
    beside_earlier(path, run("here", "a"))
    assert capsys.readouterr().err == "no more in rivals.json: a, against Flink\n"


def test_a_row_that_cannot_be_measured_here_is_kept_and_says_so(tmp_path: Path) -> None:
    path, what = tmp_path / "result.json", "news texts, d=256"
    first, again = run("here", "filters"), run("there", "filters")
    first["rows"].append({"section": "filters", "what": what, "reached": 3.5})
    path.write_text(json.dumps(beside_earlier(path, first)))
    screen = Screen(Console(quiet=True))
    screen.miss("filters", what, "no gensim")
    screen.miss("filters", "never measured", "no gensim")
    for _ in range(2):  # also where it was kept before
        found = with_missed(path, again, screen.missed)
        path.write_text(json.dumps(beside_earlier(path, found)))
    *_, row = json.loads(path.read_text())["rows"]
    assert (row["what"], row["reached"], row["from"]) == (what, 3.5, {"cpu": "here"})
    assert row["kept"] == "not measured again: no gensim"
    assert with_missed(path, again, {}) == again


def test_a_file_that_does_not_say_where_its_sections_come_from_makes_them_unknown(
    tmp_path: Path,
) -> None:
    path = tmp_path / "result.json"
    path.write_text(json.dumps(run("somewhere", "a")))
    found = beside_earlier(path, run("here", "b"))
    assert found["sections"] == {"a": "unknown", "b": {"cpu": "here"}}


def test_a_result_names_its_date_and_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    said = {"rev-parse": "abc1234", "status": " M anabranch/calls.py"}
    monkeypatch.setattr(code, "_git", lambda *words: said[words[0]])
    found = machine()
    assert (found["commit"], found["changed_since_commit"]) == ("abc1234", True)
    assert found["date"].endswith("+00:00")
    assert found["package"] == code.package_hash()
    said["status"] = ""
    assert machine()["changed_since_commit"] is False
    monkeypatch.setattr(code, "_git", lambda *words: None)
    assert machine()["commit"] == "unknown"


def _kernel_of(package: str, **pinned: str) -> str:
    """The BLAS kernel that a process has which imports a package of ours, and its child's names."""
    code = f"""
import {package}, os
from benchmarks.measuring import machine
print(machine()["blas"], sorted(set(os.environ) & set({sorted(PINNED)})))
"""
    clean = {name: value for name, value in os.environ.items() if name not in PINNED}
    said = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={**clean, "PYTHONPATH": str(ROOT), **pinned},
        capture_output=True,
        text=True,
        check=True,
    )
    return said.stdout.strip()


@pytest.mark.parametrize("package", ["benchmarks.correlate_filters", "papers.style"])
def test_benchmarks_multiply_as_fast_as_the_processor_can(package: str) -> None:
    slow = _kernel_of(package, OPENBLAS_CORETYPE="Prescott", OPENBLAS_L2_SIZE="512")
    assert slow == _kernel_of(package)
    assert "Prescott" not in slow and slow.endswith("[]")


@pytest.mark.parametrize("path", RESULTS, ids=lambda path: path.name)
def test_stored_results_tell_of_each_section_that_they_have(path: Path) -> None:
    result = json.loads(path.read_text())
    if isinstance(result, dict) and "sections" in result:
        named = {row["section"] for row in result["rows"]} if "rows" in result else set(result)
        assert set(result["sections"]) == named - {"sections"}


def origins(result: Any) -> dict[str, Any]:
    """What a stored result says of where it comes from, by its parts; one part has no name."""
    if isinstance(result, list):
        return {str(number): row.get("origin") for number, row in enumerate(result)}
    if "sections" in result:
        return dict(result["sections"])
    if isinstance(result.get("begun"), list):  # of runs that add up
        return {str(number): about for number, about in enumerate(result["begun"])}
    for about in (*map(result.get, ("origin", "machine", "begun")), result):
        if isinstance(about, dict) and "commit" in about:
            return {"": about}
    parts = {
        name: about.get("begun", about) for name, about in result.items() if isinstance(about, dict)
    }
    return parts if any("commit" in about for about in parts.values()) else {"": None}


def unsigned(path: Path) -> set[str]:
    """The parts of a stored result that do not say from when and from which code they are."""
    found = origins(json.loads(path.read_text()))
    said = {"date", "commit", "changed_since_commit"}
    lacking = {part for part, about in found.items() if not said <= set(about or ())}
    name = path.relative_to(ROOT).as_posix()
    return {name} if lacking == set(found) else {f"{name}: {part}" for part in lacking}


def test_stored_results_say_where_they_come_from_or_are_older_ones() -> None:
    """A result that was taken anew leaves the list of older ones; none comes to it."""
    found = set().union(*map(unsigned, RESULTS))
    assert not found - OLDER, "results without date and commit: take them anew"
    assert not OLDER - found, "these say where they come from: strike them off the list"


def test_a_result_without_a_date_and_commit_is_noticed(tmp_path: Path) -> None:
    said = {"date": "today", "commit": "abc", "changed_since_commit": False}
    good = [{"origin": said, "n": 1}, {"machine": said}, said, [{"origin": said}]]
    good.append({"sections": {"a": said}, "rows": [{"section": "a"}]})
    good.append({"code": "abc", "begun": [said, said]})
    bad: list[Any] = [{}, {"machine": {"cpu": 1}}, [{"origin": said}, {}]]
    bad.append({"one scene": said, "other": {"seed": 1}})
    bad.append({"sections": {"a": said, "b": "unknown"}})
    bad.append({"code": "abc", "begun": [said, {"seeds": [0, 9]}]})
    assert all(set(about) == set(said) for one in good for about in origins(one).values())
    for one in bad:
        assert not all(set(about or ()) == set(said) for about in origins(one).values())


class Figure(float):
    """A stored figure; where a page does not say how it is written, with two digits."""

    def __format__(self, how: str) -> str:
        return super().__format__(how or ".2g").replace("e+0", "e")


VECTORS = "correlate on one core against {}, {} stored rows"
WAITS = (
    "complete",
    "median wait after the last span",
    "95 % wait after the last span",
    "mean time open",
)
WAITING = ("decision_wait 30 s", "decision_wait 10 s")
EQUAL = "fixed wait that is as complete as ours"
OURS = "the root and 3 s of grace, or learned"
IN_WORKERS = "`ab.dedupe` costs {} times the pairs of one stream"
PARTNERS = (
    *(f"{how} against inner" for how in ("left", "right", "full", "anti")),
    *(f"{how}, plan log against inner, plan log" for how in ("left", "full", "anti")),
)
QUOTED = [
    *(
        (
            "docs/correlate.md",
            f"\n| {workers} |{' {:.2f} |' * len(PARTNERS)}\n",
            "correlate",
            [f"{what}, {workers} workers: time" for what in PARTNERS],
        )
        for workers in (4, 16)
    ),
    ("docs/groups.md", IN_WORKERS, "asks", ["dedupe against one: cost"]),
    (
        "docs/correlate.md",
        f'{IN_WORKERS}, one stream {{}} of the stream joined with itself, and `"left"` {{}} of the '
        "pairs alone ({} where workers decide together)",
        "asks",
        [
            f"{what}: cost"
            for what in (
                *("dedupe against one", "one against twice"),
                *("left against inner", "left, homes against inner"),
            )
        ],
    ),
    (
        "docs/traces.md",
        "\n{:.0f} traces, the longest of {:.1f} s\n",
        "traces",
        ["traces", "longest trace"],
    ),
    *(
        (
            "docs/traces.md",
            f"\n{name} {{:.2%}} {{:.2f}} s {{:.2f}} s {{:.1f}} s\n",
            "traces",
            [f"{name}: {what}" for what in WAITS],
        )
        for name in (*WAITING, "the root and 3 s of grace", "learned", OURS)
    ),
    (
        "docs/traces.md",
        "\nfixed wait of {:g} s, as complete as ours {:.2%} {:.2f} s {:.2f} s {:.1f} s\n",
        "traces",
        [EQUAL, *(f"as complete as ours: {what}" for what in WAITS)],
    ),
    (
        "docs/traces.md",
        "To be as complete as the last line, it must be {:g} s",
        "traces",
        [EQUAL],
    ),
    (
        "docs/traces.md",
        "95 % within {:.2f} s of it. So {:.1f} s of traffic is held in memory instead of {:.1f} s.",
        "traces",
        [f"{OURS}: {WAITS[2]}", f"{OURS}: {WAITS[3]}", f"as complete as ours: {WAITS[3]}"],
    ),
    *(
        (
            "docs/correlate.md",
            f"{words} | {{}} / {{}} / {{}} |",
            "rivals",
            [VECTORS.format(rival, size) for size in ("250", "4,000", "64,000")],
        )
        for words, rival in (
            ("against 250 / 4,000 / 64,000 stored ones", "FAISS on one core"),
            ("FAISS on two cores, ours on one", "FAISS on two cores"),
            ("a consumer written in numpy, on one core", "numpy"),
        )
    ),
    (
        "docs/correlate.md",
        "1,000 / 2,000 / 4,000 / 16,000 rows a side | {} / {} / {} / {} |",
        "rivals",
        [
            f"correlate against a cross join, {size} rows a side"
            for size in ("1,000", "2,000", "4,000", "16,000")
        ],
    ),
    (
        "docs/correlate.md",
        "500 / 1,500 / 6,000 / 24,000 objects | {} / {} / {} / {} |",
        "rivals",
        [
            f"nearest against nearestByJoin, {size} objects"
            for size in ("500", "1,500", "6,000", "24,000")
        ],
    ),
    (
        "docs/correlate.md",
        "one key for all, 15,000 / 30,000 rows a side | {} / {} |",
        "rivals",
        [f"correlate against Flink (plain), {size} rows a side" for size in ("15,000", "30,000")],
    ),
    (
        "docs/correlate.md",
        "15,000 / 30,000 / 60,000 / 240,000 rows a side | {} / {} / {} / {} |",
        "rivals",
        [
            f"correlate against Flink (cells), {size} rows a side"
            for size in ("15,000", "30,000", "60,000", "240,000")
        ],
    ),
    (
        "docs/predicates.md",
        "| `ab.edit(...) <= 2` | {} | {}: ",
        "text",
        ["edit <= 2: pairs/s", "edit <= 2: times as fast as rapidfuzz cdist"],
    ),
    (
        "docs/predicates.md",
        "| `ab.jaro_winkler(...) >= 0.92` | {} | {}: ",
        "text",
        [
            "jaro_winkler >= 0.92: pairs/s",
            "jaro_winkler >= 0.92: times as fast as rapidfuzz cdist",
        ],
    ),
    (
        "docs/predicates.md",
        "`ab.edit` is {} times as fast as Spark's `crossJoin`",
        "text",
        ["edit <= 2: times as fast as a cross join"],
    ),
    (
        "docs/predicates.md",
        "`a | b` of two cosines takes {} times as long",
        "asks",
        ["a | b against a and b alone, added: cost"],
    ),
    (
        "docs/predicates.md",
        "`a & ~ab.within(...)` {} times as long",
        "asks",
        ["a & ~within against a & within: cost"],
    ),
    (
        "docs/nearest.md",
        "takes {} of the time of `k` alone",
        "nearest",
        ["within= against k alone: cost"],
    ),
    (
        "docs/correlate.md",
        "takes {} of its time. The goal, 0.6, is missed",
        "correlate",
        ["one stream against the stream twice: time"],
    ),
]


@pytest.mark.parametrize(
    ("rival", "section", "name"),
    [
        ("FAISS, flat", "vectors", "FAISS on one core"),
        ("FAISS on two", "vectors", "FAISS on two cores"),
        ("a consumer written in numpy", "vectors", "numpy"),
        ("Spark's cross join", "tables", "cross join"),
        ("Spark's `nearestByJoin`", "tables", "nearestByJoin"),
        ("Flink, join", "bands", "Flink (plain)"),
        ("Flink, the same", "bands", "Flink (cells)"),
    ],
)
def test_the_page_says_from_which_size_ours_is_faster(rival: str, section: str, name: str) -> None:
    stored = json.loads((ROOT / "benchmarks/results/rivals.json").read_text())
    least = stored["details"][section]["wins"][name]["faster from"]
    lines = (ROOT / "docs/correlate.md").read_text().splitlines()
    (line,) = (line for line in lines if line.startswith(f"| {rival}"))
    assert line.split("|")[-2].strip() == (f"{least:,}" if least else "no size tried")


@pytest.mark.parametrize(("page", "words", "name", "figures"), QUOTED)
def test_pages_quote_stored_figures(page: str, words: str, name: str, figures: list[str]) -> None:
    result = json.loads((ROOT / f"benchmarks/results/{name}.json").read_text())
    parts = [result] if "rows" in result else [part for part in result.values() if "rows" in part]
    rows = [row for part in parts for row in part["rows"]]
    stored: dict[str, float] = {}
    for row in rows:
        stored.setdefault(row["what"], row["reached"])  # pairs/s on one core come before Spark's
    want = words.format(*(Figure(stored[figure]) for figure in figures))
    assert want in re.sub(" +", " ", (ROOT / page).read_text())  # as wide as a table makes it
