"""The programs behind docs/reliability.md: a few cases of each, and that they notice faults."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from anabranch.flow.zones import in_utc
from scripts.reliability import RESULTS, fuzz, fuzz_correlate
from scripts.reliability.chaos import Chaos
from scripts.reliability.driven import cause_of
from scripts.reliability.driver import ENDED
from scripts.reliability.evidence import circumstances
from scripts.reliability.fuzz import MIX, VERBS
from scripts.reliability.lives import LIVES, Life
from scripts.reliability.picture import draw_both
from scripts.reliability.scenes import CAUSES, SCENES, Goal, goals
from scripts.reliability.slopes import Slope, shift, slope
from scripts.reliability.soak import faults, judged
from scripts.reliability.streams import NUMBERS, batches, reached, rows_of


@pytest.mark.parametrize("verb", VERBS)
def test_random_cases(verb: str) -> None:
    outcomes = {VERBS[verb](seed) for seed in range(200 if verb == "calls" else 15)}
    assert outcomes & {"exact", "taken"} and len(outcomes) > 1
    assert sum(MIX.values()) == pytest.approx(1)


def test_a_lost_a_double_and_a_rejected_row_are_noticed() -> None:
    for seed in range(200):
        case = fuzz_correlate.draw(seed)
        if case.drop and case.how == "inner":
            got, rejected = fuzz_correlate.run_in_process(case)
            if len(got) > 3:
                break
    fuzz_correlate.compare(case, got, rejected)
    with pytest.raises(AssertionError, match="rows rejected"):
        fuzz_correlate.compare(case, got, rejected + 1)
    pair = next(iter(got))
    with pytest.raises(AssertionError, match="should not be"):
        fuzz_correlate.compare(case, got + type(got)([pair]), rejected)
    sure = [pair for pair in got if _raises(case, got - type(got)([pair]), rejected)]
    assert sure, "no pair would be missed"


def _raises(case: fuzz_correlate.Case, got: object, rejected: int) -> bool:
    try:
        fuzz_correlate.compare(case, got, rejected)  # type: ignore[arg-type]
    except AssertionError as error:
        return "lost" in str(error)
    return False


def test_growth_is_told_from_noise() -> None:
    t, random = np.arange(0, 7200, 10.0), np.random.default_rng(2)
    noise = random.normal(0, 2, len(t))
    assert slope(t, 300 + noise * 0.01).verdict == "flat"
    assert slope(t, 300 + noise + t / 3600 * 30).verdict == "grows"
    assert slope(t, 300 + noise * 40).verdict == "too short to tell"
    assert Slope(300, 0.009, -0.01, 0.029).verdict == "flat"
    assert Slope(300, 0.011, -0.01, 0.029).verdict == "too short to tell"
    assert Slope(300, 0.009, -0.01, 0.031).verdict == "too short to tell"
    # What happened in the first half does not count.
    assert slope(t, np.where(t < 3000, t, 3000.0)).verdict == "flat"
    with pytest.raises(ValueError, match="too few"):
        slope([0, 1, 2], [1, 1, 1])


def test_times_that_rise_are_told_from_times_that_jump() -> None:
    t, random = np.arange(0, 3600, 10.0), np.random.default_rng(2)
    jumps = 3 + 2 * random.random(len(t)) + 30 * (random.random(len(t)) > 0.95)
    saw = 200 + np.arange(len(t)) % 5 * 40.0
    assert shift(t, jumps).verdict == shift(t, saw).verdict == "flat"
    assert shift(t, jumps + t / 3600 * 4).verdict == "grows"
    assert shift(t, saw * (1 + t / 3600)).verdict == "grows"
    # One late spell, as when another program runs, is not growth, and not its absence either.
    spells = np.where((t // 150) % 2 == 1, 9.0, 3.0) + np.where(t > 3100, 3.0, 0.0)
    assert shift(t, spells).verdict in ("flat", "too noisy to tell")
    assert shift(t, np.where(t < 1700, t, 5.0)).verdict == "flat"


def test_a_long_run_fails_where_it_cannot_tell() -> None:
    t = np.arange(0, 3600, 10.0)
    noise = np.random.default_rng(2).normal(0, 1, len(t))

    def report(**figures: np.ndarray) -> dict[str, dict[str, object]]:
        flat = {"jvm_mb": 900 + 0 * t, "nearest_batch_seconds": 3 + 0.1 * noise}
        names = {"seconds": t, "nearest_control_kb": t, **flat, **figures}
        return judged(
            [dict(zip(names, row, strict=True)) for row in zip(*names.values(), strict=True)]
        )

    assert set(report()["slopes"]) == {"jvm_mb"}
    assert set(report()["shifts"]) == {"nearest_batch_seconds"}
    assert faults(report()) == []
    unsure = report(driver_mb=100 + 20 * noise)
    assert faults(unsure) == ["driver_mb: too short to tell"]
    assert faults(unsure, short=True) == []
    assert faults(report(driver_mb=100 + t / 60), short=True) == ["driver_mb: grows"]
    # What lies on the heap for a moment says nothing of what stays there.
    moment = 40 * (np.arange(len(t)) % 5)
    assert faults(report(heap_mb=100 + moment)) == []
    assert faults(report(heap_mb=100 + moment + t / 60), short=True) == ["heap_mb: grows"]
    # A query whose times jump is excused where those of all together do not.
    jumps = {"full_batch_seconds": np.where((t // 150) % 3 == 1, 9.0, 3.0) * (1 + (t > 2700) / 3)}
    assert faults(report(**jumps)) == ["full_batch_seconds: too noisy to tell"]
    assert faults(report(**jumps, batch_seconds=3 + 0 * t)) == []
    assert faults({**report(), "restarts": 0}, short=True) == [
        "restarts: none, for starts took all the time"
    ]
    assert faults(report(workers=6 + 0 * t)) == []
    assert faults(report(workers=0 * t), short=True) == [
        "workers: none was found, so none was measured"
    ]
    growing = report(emd_checkpoint_kb=t + 1)
    assert faults(growing, short=True) == ["emd_checkpoint_kb: grows"]


BREAKING = """
import json, math, sys
from pathlib import Path
from scripts.reliability.chaos import in_scene
from scripts.reliability.scenes import Goal, Scene
kinds = ("driver", "worker", "memory", "entry", "request")
scene, goal = Scene(dict.fromkeys(kinds, 1), 1.0), Goal(5, 4, math.inf)
print(json.dumps(in_scene(Path(sys.argv[1]), scene, goal, 1, 1.0)))
"""


@pytest.mark.slow
def test_everything_breaks_once(tmp_path: Path) -> None:
    """In a process of its own, for its session is another than that of the tests."""
    command = [sys.executable, "-c", BREAKING, str(tmp_path / "local")]
    made = subprocess.run(command, capture_output=True, text=True)
    assert made.returncode == 0, made.stderr[-4000:]
    report = json.loads(made.stdout.splitlines()[-1])
    assert not report["faults"] and set(report["done"].values()) == {1}
    assert set(report["answers"]) == set(LIVES)
    assert all(answer["results"] > 0 for answer in report["answers"].values())
    assert report["queries_that_ended"]["entry: StateMismatch"] == 1


@pytest.mark.slow
def test_a_soak_of_a_minute_measures_and_restarts(tmp_path: Path) -> None:
    """What it takes to get going counts as growth in so short a run, and nothing else may fail."""
    command = ["-m", "scripts.reliability.soak", "--hours", "0.02", "--trigger", "2 seconds"]
    command += ["--every", "5", "--short", "--report", str(tmp_path / "soak.json")]
    made = subprocess.run([sys.executable, *command], capture_output=True, text=True)
    assert (tmp_path / "soak.json").exists(), made.stderr[-4000:]
    report = json.loads((tmp_path / "soak.json").read_text())
    assert all(fault.endswith(": grows") for fault in faults(report, short=True)), made.stderr
    assert set(report["answers"]) == set(LIVES) and report["restarts"] > 0
    assert report["shifts"]["workers"]["late"] >= 2
    assert report["slopes"]["mean_worker_mb"]["mean"] > 10
    assert sum(report["plan_changes"].values()) > 0 and (tmp_path / "soak-dark.svg").exists()


def test_a_report_says_of_which_code_it_is_and_how_busy_the_machine_was() -> None:
    found = circumstances()
    about = {"date", "commit", "changed_since_commit", "package", "cores", "load"}
    assert about == set(found)
    assert found["cores"] >= 1 and found["load"] >= 0


def test_a_fuzz_that_failed_does_not_replace_the_report_that_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(seed: int) -> str:
        raise ValueError(seed)

    monkeypatch.setattr(fuzz, "RESULTS", tmp_path)
    checks = dict.fromkeys(VERBS, lambda seed: "exact")
    for broken in (True, False):
        monkeypatch.setattr(fuzz, "VERBS", {**checks, "calls": failing} if broken else checks)
        monkeypatch.setattr(sys, "argv", ["fuzz", "--cases", "20", "--spark", "0"])
        with pytest.raises(SystemExit) as ended:
            fuzz.main()
        assert bool(ended.value.code) is broken
        assert (tmp_path / "fuzz.json").exists() is not broken
    report = json.loads((tmp_path / "fuzz.json").read_text())
    assert report["calls"]["cases"] == 15 and report["begun"]["commit"]


def test_rows_are_functions_of_their_numbers() -> None:
    first = rows_of(np.arange(5 * NUMBERS), 0)
    again = rows_of(np.arange(3 * NUMBERS, 5 * NUMBERS), 0)
    last = first.slice(len(first) - len(again))
    assert last.drop_columns(["v"]).equals(again.drop_columns(["v"]))  # some v are NaN
    assert repr(last["v"].to_pylist()) == repr(again["v"].to_pylist())
    silent = [(not left, not right) for left, right in batches(80)]
    assert {(True, False), (False, True), (True, True), (False, False)} == set(silent)


def test_a_life_reads_numbers_and_topics_and_means_instants_in_any_zone() -> None:
    assert reached({"offset": 60, "timestamp": 1}) == reached({"numbers-0": {"0": 60}}) == 60
    zones = ["America/New_York", "UTC", "Asia/Kathmandu"]
    kinds = [pa.list_(pa.struct({"ts": pa.timestamp("us", zone)})) for zone in zones]
    tables = [in_utc(pa.table({"items": pa.array([[{"ts": 7}]], kind)})) for kind in kinds]
    assert pa.concat_tables(tables)["items"].type == kinds[1]


def test_what_is_done_has_causes_and_a_method() -> None:
    assert all(hasattr(Chaos, f"_{kind}") for kind in CAUSES)
    assert {kind for scene in SCENES.values() for kind in scene.what} == set(CAUSES)
    assert "disk" not in SCENES["local"].without(["disk"]).what
    parts = goals(list(SCENES), Goal(100, 1000, 60))
    assert sum(part.kills for part in parts.values()) >= 100
    assert all(part.kills >= 10 and part.plan_changes >= 100 for part in parts.values())
    assert goals(["clock"], Goal(7, 5, 60)) == {"clock": Goal(7, 5, 60)}
    assert not Goal(7, 5, 60).reached(7, 4) and Goal(7, 5, 60).reached(8, 5)


def test_the_error_of_a_driver_names_the_cause_and_not_its_chatter() -> None:
    causes = SCENES["local"].causes("memory")
    chatter = "Python worker exited unexpectedly; out of memory; EOFException\n"
    assert cause_of(chatter, causes) is None
    assert cause_of(f"{chatter}{ENDED}full: ValueError: memory, EOF, crashed", causes) is None
    assert cause_of(f"{chatter}{ENDED}full: numpy ArrayMemoryError", causes) == "MemoryError"


def test_a_soak_is_drawn_beside_its_report(tmp_path: Path) -> None:
    kept = json.loads((RESULTS / "soak.json").read_text())
    draw_both(kept, tmp_path / "mine.json")
    assert {path.name for path in tmp_path.glob("*.svg")} == {"mine.svg", "mine-dark.svg"}


def test_a_life_counts_committed_micro_batches_alone(tmp_path: Path) -> None:
    life = Life(LIVES[0], tmp_path)
    (life.checkpoint / "commits").mkdir(parents=True)
    (life.checkpoint / "commits" / "0").touch()
    life.sink.mkdir()
    with pytest.raises(AssertionError, match="0 results of 1 batches"):
        life.results()


def test_the_reports_that_the_page_shows_are_there() -> None:
    for path in RESULTS.glob("*.json"):
        assert json.loads(path.read_text())


def test_the_kept_reports_are_judged_as_the_program_judges() -> None:
    for path in RESULTS.glob("soak*.json"):
        report = json.loads(path.read_text())
        for kind, again in judged(report["readings"], report.get("restarted", 0.0)).items():
            kept = {name: report[kind][name]["verdict"] for name in again}
            assert kept == {name: found["verdict"] for name, found in again.items()}
