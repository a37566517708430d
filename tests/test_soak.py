"""How a long run is judged: growth is found, noise is not taken for it, and nothing gets lost."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from scripts.reliability import soak
from scripts.reliability.evidence import workplace, write
from scripts.reliability.lives import LIVES
from scripts.reliability.slopes import shift, slope
from scripts.reliability.soak import Soak, faults, judged

T = np.arange(0, 3600, 10.0)
LATER = np.clip(T / 1800 - 1, 0, 1)  # from 0 to 1 in the half that is judged


def _noise(by: np.random.Generator, spell: float, series: int) -> np.ndarray:
    """Stationary, of variance 1: what is high stays high for `spell` seconds or so."""
    stays = np.exp(-10 / spell)
    found = by.normal(size=(series, len(T)))
    found[:, 1:] *= np.sqrt(1 - stays**2)
    for place in range(1, len(T)):
        found[:, place] += stays * found[:, place - 1]
    return found


def _report(seconds: np.ndarray, **others: np.ndarray) -> dict[str, Any]:
    """The report of a run of one hour, by the seconds of its queries' micro-batches."""
    figures = {f"{verb}_batch_seconds": mine for verb, mine in zip(LIVES, seconds, strict=True)}
    figures |= {"seconds": T, "batch_seconds": seconds.mean(axis=0), **others}
    rows = zip(*figures.values(), strict=True)
    return judged([dict(zip(figures, row, strict=True)) for row in rows])


def _busy(seed: int, alike: float, swing: float, spell: float = 120) -> np.ndarray:
    """Micro-batches of six queries on a busy machine; some of the noise is that of all."""
    by = np.random.default_rng(seed)
    own, common = _noise(by, spell, len(LIVES)), _noise(by, spell, 1)
    return 4 * np.exp(swing * (np.sqrt(1 - alike) * own + np.sqrt(alike) * common))


def _share(found: Sequence[Sequence[str]]) -> float:
    return float(np.mean([any(one.endswith("grows") for one in each) for each in found]))


def test_noise_is_rarely_taken_for_growth() -> None:
    for alike in (0.0, 0.5, 1.0):
        reports = [_report(_busy(seed, alike, 0.3)) for seed in range(100)]
        for short in (False, True):
            assert _share([faults(report, short) for report in reports]) <= 0.04
    calm = [faults(_report(_busy(seed, 0.0, 0.15))) for seed in range(100)]
    assert _share(calm) <= 0.02 and sum(not found for found in calm) >= 90


def test_growth_of_all_queries_and_of_memory_is_found_in_noise() -> None:
    found = []
    for seed in range(50):
        report = _report(_busy(seed, 0.0, 0.15) * (1 + LATER / 2))
        found.append(faults(report, short=True))
    assert _share(found) >= 0.9
    memory = []
    for seed in range(50):
        by = np.random.default_rng(seed)
        grown = 1 + 0.3 * T / 3600
        heap = 120 * grown + 40 * by.random(len(T))  # what is under way
        driver = 250 * grown * (1 + 0.01 * _noise(by, 120, 1)[0])
        report = _report(_busy(seed, 0.5, 0.15), heap_mb=heap, driver_mb=driver)
        memory.append({"heap_mb: grows", "driver_mb: grows"} <= {*faults(report, short=True)})
    assert np.mean(memory) >= 0.95


def test_a_heap_that_leaks_slowly_is_not_flat() -> None:
    moment = 30 * (np.arange(len(T)) % 7)
    for rate in (0.05, 0.2, 0.5):  # per hour
        heap = 100 * (1 + rate * T / 3600) + moment
        readings = [{"seconds": t, "heap_mb": x} for t, x in zip(T, heap, strict=True)]
        assert judged(readings)["slopes"]["heap_mb"]["verdict"] == "grows"


def test_in_a_short_run_little_is_no_growth() -> None:
    little, much = 100 + 3 * T / 3600, 100 + 15 * T / 3600
    steady = 3 + np.zeros((len(LIVES), len(T)))
    report = _report(steady, driver_mb=little, jvm_mb=much)
    assert faults(report, short=True) == ["jvm_mb: grows"]
    assert faults(report) == ["driver_mb: grows", "jvm_mb: grows"]
    assert report["slopes"]["jvm_mb"]["rise"] == pytest.approx(7.5, abs=0.1)


def test_what_is_earlier_than_the_last_restart_is_not_judged() -> None:
    """Restarts may end in the second half, and what they add is no growth."""
    steps = 100 + np.where(T < 2600, T // 300, 9.0)
    assert slope(T, steps).verdict == "grows"
    assert slope(T, steps, since=2600).verdict == "flat"
    assert shift(T, steps**8).verdict == "grows" and shift(T, steps**8, 2600).verdict == "flat"
    # A restart in the first half leaves the half as it is.
    assert slope(T, steps, since=900) == slope(T, steps)


def test_a_plan_that_never_changes_is_a_fault() -> None:
    report = _report(3 + np.zeros((len(LIVES), len(T))))
    changes = {"correlate": 3, "nearest": 0, "groups": 0}
    assert faults({**report, "plan_changes": changes}) == ["nearest: its plan never changed"]


def test_a_failing_run_leaves_its_folder_and_the_shown_report_as_it_was(tmp_path: Path) -> None:
    shown = tmp_path / "shown.json"
    with workplace("test") as place:
        assert place.report(None, shown) == shown
        assert place.report(tmp_path / "mine.json", shown) == tmp_path / "mine.json"
    assert not place.folder.exists()
    with pytest.raises(RuntimeError), workplace("test") as place:
        raise RuntimeError("it broke")
    assert place.failed and place.folder.exists()
    write({"errors": ["it broke"]}, place.report(None, shown))
    assert not shown.exists()
    assert json.loads((place.folder / "shown.json").read_text()) == {"errors": ["it broke"]}
    (place.folder / "shown.json").unlink()
    place.folder.rmdir()


def test_a_soak_that_breaks_reports_what_it_has_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Session:
        """Which every query ends on."""

        def __getattr__(self, name: str) -> Any:
            if name == "sparkContext":
                return type("Context", (), {"setLogLevel": lambda self, level: None})()
            raise RuntimeError("full has ended: of something")

    monkeypatch.setattr(soak, "new_session", lambda *_, **__: Session())
    run = Soak(tmp_path, 60, "1 second", 1)
    with run._kept.open("w") as file:
        for t in range(40):
            file.write(json.dumps({"seconds": float(t), "driver_mb": 100.0}) + "\n")
    report = run.run()
    assert report["errors"] == ["RuntimeError: full has ended: of something"]
    assert len(report["readings"]) == 40 and report["slopes"]["driver_mb"]["verdict"] == "flat"
    assert faults(report, short=True)[0] == "RuntimeError: full has ended: of something"
