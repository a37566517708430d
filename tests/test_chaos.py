"""What is done to a driver, what counts as done, and what a query may name that ends of it."""

from __future__ import annotations

import json
import os
import random
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from scripts.reliability import chaos, driven, needs
from scripts.reliability.chaos import Chaos, faults, in_scene
from scripts.reliability.driven import Blow
from scripts.reliability.driver import ENDED
from scripts.reliability.gauges import ended, session, worked
from scripts.reliability.lives import LIVES, clocks, unchanged
from scripts.reliability.scenes import SCENES, Goal, Scene
from scripts.services.jars import Absent

LOST = f"{ENDED}full has ended: Python worker exited unexpectedly"


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Chaos]:
    """A run whose driver does nothing."""
    made = Chaos(tmp_path, tmp_path, SCENES["local"], Goal(1, 0, 60), random.Random(1), 1.0)
    made.process = _does_nothing()
    yield made
    made._kill()


def _does_nothing() -> subprocess.Popen[bytes]:
    return subprocess.Popen(["sleep", "60"], start_new_session=True)


def _commit(run: Chaos, verb: str, batch: int) -> None:
    folder = run.folder / verb / "checkpoint" / "commits"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / str(batch)).touch()


def _end(run: Chaos, said: str) -> None:
    """The driver ends with these words."""
    assert run.process is not None
    run.log.write_text(said)
    run.process.kill()
    run.process.wait()


def test_a_kill_counts_if_it_hits_a_worker_that_works(
    run: Chaos, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[dict[int, str]] = [{}, {1: "jvm"}]
    with subprocess.Popen(["sleep", "60"]) as idle, subprocess.Popen(["sleep", "60"]) as it:
        found += [{1: "jvm", it.pid: "worker", idle.pid: "worker"}] * 3
        ticks = {it.pid: [5, 5, 6], idle.pid: [7, 7, 7]}
        monkeypatch.setattr(chaos, "processes", lambda _: found.pop(0))
        monkeypatch.setattr(chaos, "worked", lambda pid: ticks[pid].pop(0))
        assert run._hit("worker", "worker", lambda pid: os.kill(pid, signal.SIGKILL)) == it.pid
        assert it.wait() == -signal.SIGKILL and not found and idle.poll() is None
        assert list(run.blows) == ["worker"]
        _end(run, "")
        assert run._hit("worker", "worker", lambda pid: os.kill(pid, signal.SIGKILL)) is None
        idle.kill()


# It asks for memory again and again, so that it does not matter when the limit comes.
HUNGRY = """
print("began", flush=True)
while True:
    bytearray(64 << 20)
"""
MODEST = """
import time
print("began", flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize(("program", "counts"), [(HUNGRY, True), (MODEST, False)])
def test_a_limit_counts_if_the_worker_dies_of_it(
    run: Chaos, monkeypatch: pytest.MonkeyPatch, program: str, counts: bool
) -> None:
    settled: list[str] = []
    monkeypatch.setattr(chaos, "_STARVES", 60 if counts else 1)
    monkeypatch.setattr(run, "_settle", settled.append)
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as worker:
        assert worker.stdout is not None and worker.stdout.readline()
        looks = iter(range(100))
        monkeypatch.setattr(chaos, "processes", lambda _: {worker.pid: "worker"})
        monkeypatch.setattr(chaos, "worked", lambda _: next(looks))
        assert run._memory() is counts and settled == ["memory"]
        assert ended(worker.pid) is counts
        if not counts:  # it has what it had
            ours = resource.getrlimit(resource.RLIMIT_AS)
            assert resource.prlimit(worker.pid, resource.RLIMIT_AS) == ours
        worker.kill()


def test_what_works_and_what_has_ended() -> None:
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as busy:
        until = time.monotonic() + 30
        while not worked(busy.pid) and time.monotonic() < until:
            time.sleep(0.05)
        assert worked(busy.pid) > 0 and not ended(busy.pid)
        busy.kill()
        while not ended(busy.pid) and time.monotonic() < until:  # nobody has asked after it yet
            time.sleep(0.05)
        assert ended(busy.pid) and worked(busy.pid) == 0


def test_a_clock_counts_once_a_micro_batch_has_its_time(
    run: Chaos, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chaos, "PATIENCE", 1)
    monkeypatch.setattr(run, "_settle", lambda kind: None)
    offsets = run.lives[0].checkpoint / "offsets"
    offsets.mkdir(parents=True)

    def begin(ahead: float) -> None:
        told = {"batchTimestampMs": int(1000 * (time.time() + ahead))}
        (offsets / "0").write_text(f"v1\n{json.dumps(told)}\n{{}}")

    begin(0)
    assert clocks(run.lives[0].checkpoint, time.time() + 60) == []
    assert not run._clock(), "no micro-batch has begun"
    monkeypatch.setattr(run.clock, "jump", lambda _: begin(0))
    run.clock.ahead = 3600
    assert not run._clock(), "it has the old time"
    monkeypatch.setattr(run.clock, "jump", lambda _: begin(3600))
    assert run._clock()


def test_a_query_that_ends_late_is_blamed_on_what_was_done(run: Chaos) -> None:
    """Others have gone on meanwhile, so that all seemed well."""
    for verb in LIVES:
        _commit(run, verb, 0)
    run._strike("worker")
    run._strike("request")
    for verb in LIVES[1:]:
        _commit(run, verb, 9)
    _end(run, LOST)
    assert run._blame() == "Python worker exited unexpectedly"
    assert run.ended == {"worker: Python worker exited unexpectedly": 1}
    _commit(run, LIVES[0], 2)
    with pytest.raises(AssertionError, match="after nothing a query ended without a named cause"):
        run._blame()


def test_a_blow_is_over_with_its_driver_its_commits_or_its_time() -> None:
    blow = Blow("worker", 7, [3, 5], 100.0)
    assert not blow.is_over(7, [9, 6], 110)
    assert blow.is_over(7, [5, 7], 110)
    assert blow.is_over(8, [3, 5], 110)
    assert blow.is_over(7, [3, 5], 100 + driven.PATIENCE + 1)
    away = Blow("broker", 7, [3, 5], 100.0)
    assert not away.is_over(8, [3, 5], 110) and away.is_over(8, [5, 7], 110)


LEAVES = """
import os, subprocess
subprocess.Popen(["sleep", "60"])
subprocess.Popen(["sleep", "60"], process_group=0)
"""


def test_nothing_of_an_ended_driver_is_left(run: Chaos, monkeypatch: pytest.MonkeyPatch) -> None:
    run._kill()
    run.process = subprocess.Popen([sys.executable, "-c", LEAVES], start_new_session=True)
    assert run.process.wait() == 0
    before = run.process.pid
    assert len(session(before)) == 2
    scratch = run.aside / "scratch"
    (scratch / "blocks").mkdir(parents=True)
    began: list[list[str]] = []

    def begin(command: list[str], **_: Any) -> subprocess.Popen[bytes]:
        assert not session(before) and not scratch.exists()
        began.append(command)
        return run.process  # type: ignore[return-value]

    monkeypatch.setattr(driven.subprocess, "Popen", begin)
    run._ensure()
    monkeypatch.undo()
    assert began[0][began[0].index("--scratch") + 1] == str(scratch)
    assert run.log.name == "driver-001.log"


def test_few_kills_are_of_all_kinds() -> None:
    for scene in SCENES.values():
        for seed in range(20):
            plan = scene.plan(random.Random(seed))
            assert {*plan[: len(scene.what)]} == {*scene.what}
            assert {kind: plan.count(kind) for kind in plan} == scene.what
    assert "disk" in SCENES["local"].plan(random.Random(1))[:10]


def test_what_hits_nothing_again_and_again_is_an_error(
    run: Chaos, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "_wait_a_while", lambda often: None)
    monkeypatch.setattr(run, "_request", lambda: False)
    with pytest.raises(AssertionError, match="request has hit nothing"):
        for _ in range(50):
            run._next(["request"])
    assert run.done.total() == 0


def test_a_scene_without_kills_or_without_plan_changes_has_not_passed() -> None:
    with pytest.raises(ValueError, match="shows nothing"):
        Goal(0, 10, 60)
    assert unchanged({"correlate": 1, "nearest": 0, "assemble": 0}) == ["nearest"]
    report = {"errors": [], "enough": False, "plan_changes": {"correlate": 1, "full": 0}}
    assert faults(report, Goal(1, 1, 60)) == [
        "cut short of 1 kills and 1 plan changes",
        "full: its plan never changed",
    ]
    changes = dict.fromkeys(LIVES, 3)
    assert not faults({"errors": [], "enough": True, "plan_changes": changes}, Goal(1, 1, 60))


def test_a_scene_that_breaks_reports_it_and_leaves_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nothing_happens(run: Chaos, often: float) -> None:
        (run.folder / "checkpoint").touch()
        raise AssertionError("nothing happens")

    monkeypatch.setattr(Chaos, "_ensure", lambda run: run.log.write_text("what it said"))
    monkeypatch.setattr(Chaos, "_wait_a_while", nothing_happens)
    report = in_scene(tmp_path / "local", Scene({"driver": 1}, 1.0), Goal(1, 0, 60), 1, 1.0)
    assert report["errors"] == ["AssertionError: nothing happens"] and report["kills"] == 0
    assert report["faults"][0] == "AssertionError: nothing happens"
    assert (tmp_path / "local" / "lives" / "checkpoint").exists()
    assert (tmp_path / "local" / "driver-000.log").read_text() == "what it said"


def test_a_run_that_fails_leaves_the_shown_report_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = tmp_path / "chaos.json"
    shown.write_text('{"broker": 1}')
    outcomes = {"local": ["it broke"], "clock": []}

    def played(place: Path, *_: Any) -> dict[str, Any]:
        place.mkdir(parents=True)
        return {"errors": [], "faults": outcomes[place.name]}

    monkeypatch.setattr(chaos, "RESULTS", tmp_path)
    monkeypatch.setattr(chaos, "missing", lambda scenes: [])
    monkeypatch.setattr(chaos, "in_scene", played)
    monkeypatch.setattr(driven.shutil, "rmtree", lambda *_, **__: None)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(sys, "argv", ["chaos", "--scene", "local", "--scene", "clock"])
    with pytest.raises(SystemExit, match="local: it broke"):
        chaos.main()
    assert json.loads(shown.read_text()) == {"broker": 1}
    (folder,) = tmp_path.glob("anabranch-chaos-*")
    assert set(json.loads((folder / "chaos.json").read_text())) == {"local", "clock"}
    assert str(folder) in capsys.readouterr().out
    outcomes["local"] = []
    chaos.main()
    assert set(json.loads(shown.read_text())) == {"broker", "local", "clock"}
    monkeypatch.setattr(sys, "argv", ["chaos", "--kills", "0"])
    with pytest.raises(SystemExit):
        chaos.main()


def test_what_scenes_lack_is_said_before_anything_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_jars(name: str) -> list[Path]:
        raise Absent("Maven is not installed: apt-get install maven")

    monkeypatch.setattr(needs, "find_spec", lambda name: None)
    monkeypatch.setattr(needs, "fetched", no_jars)
    monkeypatch.setenv("PATH", "/nowhere")
    found = "\n".join(needs.missing(SCENES))
    for lack in ("broker: confluent_kafka", "clock: cc", "local: mount"):
        assert lack in found
    for cure in ("install maven", "'.[kafka]'", "--without disk", "install gcc"):
        assert cure in found
    assert needs.missing({"cluster": SCENES["cluster"]}) == []
    assert needs.missing({"local": SCENES["local"].without(["disk"])}) == []
    assert "nothing is left" in needs.missing({"local": Scene({}, 1.0)})[0]
    monkeypatch.setattr(chaos, "in_scene", None)  # nothing begins
    monkeypatch.setattr(sys, "argv", ["chaos", "--scene", "clock"])
    with pytest.raises(SystemExit, match="chaos cannot begin"):
        chaos.main()
