"""``anabranch doctor``: each fault is named with its remedy, and only faults are."""

from __future__ import annotations

import copy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from anabranch.cli.doctor import NOTE, OK, WRONG, judge
from anabranch.spark.doctor import PACKAGES, examine, settled

PACKED = dict.fromkeys(PACKAGES, "1.0")
HERE = {
    "host": "a",
    "pid": 1,
    "parent": 1,
    "python": "3.11.7",
    "executable": "python",
    "time": 100.0,
    "cache": "/opt/numba/anabranch",
    "packages": PACKED,
    "control_read": True,
    "control_written": True,
}
SOUND: dict[str, Any] = {
    "spark": {"client": "4.3.0", "server": "4.3.0"},
    "java": "17.0.15",
    "cores": 4,
    "partitions": "4",
    "provider": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    "control": "/shared",
    "driver": HERE,
    "executors": [{**HERE, "host": "b", "pid": 2, "time": 101.0, "java": "21.0.1"}],
    "error": None,
    "after": 102.0,
    "registered": {"executors": 1, "hosts": 1},
    "asked": None,
}


def changed(**changes: Any) -> dict[str, Any]:
    """Sound facts but for these; ``executor`` changes the executor's."""
    facts = copy.deepcopy(SOUND)
    facts["executors"][0].update(changes.pop("executor", {}))
    return {**facts, **changes}


def test_what_is_sound_is_ok() -> None:
    assert {finding.level for finding in judge(SOUND)} == {OK}
    assert len(list(judge(SOUND))) == 11
    assert any("the same versions, under Java 21.0.1" in str(finding) for finding in judge(SOUND))


FAULTS = {
    "Spark is 4.0.2": (changed(spark={"client": "4.0.2", "server": "4.0.2"}), "pip install"),
    "pyspark here is 4.2.1": (
        changed(spark={"client": "4.2.1", "server": "4.3.0"}),
        "install the same",
    ),
    "Java is 11.0.2": (changed(java="11.0.2"), "install 17 or newer"),
    "executor on b has Java 11.0.2": (
        changed(executor={"java": "11.0.2"}),
        "install 17 or newer there",
    ),
    "the driver has no numba": (
        changed(driver={**HERE, "packages": {**PACKED, "numba": None}}),
        "pip install anabranch",
    ),
    "a job on the executors fails (ModuleNotFoundError: pyarrow)": (
        changed(error="ModuleNotFoundError: pyarrow", executors=[]),
        "PYSPARK_PYTHON",
    ),
    "executor on b cannot import anabranch": (
        changed(executor={"import_error": "No module named 'anabranch'"}),
        "install it there",
    ),
    "executor on b runs Python 3.12.1, the driver 3.11.7": (
        changed(executor={"python": "3.12.1"}),
        "same minor version",
    ),
    "executor on b has numba 0.61 (driver: 1.0)": (
        changed(executor={"packages": {**PACKED, "numba": "0.61"}}),
        "same versions",
    ),
    "the executor on b cannot keep compiled code": (
        changed(executor={"cache": None}),
        "NUMBA_CACHE_DIR",
    ),
    "executor on b does not see /shared (the driver's file is not there)": (
        changed(executor={"control_read": False}),
        "share",
    ),
    "the driver cannot write control=/shared (PermissionError)": (
        changed(control_error="PermissionError"),
        "share",
    ),
    "1 of 3 executors were seen, on 1 of 2 hosts": (
        changed(registered={"executors": 3, "hosts": 2}),
        "run it again",
    ),
    "1 of the 4 executors that spark.executor.instances asks for are there": (
        changed(asked=4),
        "when all have started",
    ),
    "the clock of b is at least 7.0 s off": (changed(executor={"time": 109.0}), "NTP"),
}


@pytest.mark.parametrize("what", FAULTS)
def test_each_fault_is_named_with_its_remedy(what: str) -> None:
    facts, remedy = FAULTS[what]
    wrong = [str(finding) for finding in judge(facts) if finding.level == WRONG]
    assert any(what in line and remedy in line for line in wrong), wrong


def test_what_configure_would_set_is_a_note() -> None:
    facts = changed(partitions="200", provider="x.HDFSBackedStateStoreProvider")
    notes = [finding for finding in judge(facts) if finding.level == NOTE]
    assert ["200 for 4 cores" in notes[0].what, "HDFSBacked" in notes[1].what] == [True, True]
    assert all("ab.configure" in note.remedy for note in notes)
    assert not any(finding.level == WRONG for finding in judge(facts))


def test_through_connect_it_is_not_known_whether_all_were_seen() -> None:
    found = [finding for finding in judge(changed(registered=None)) if finding.level != OK]
    assert [finding.level for finding in found] == [NOTE]
    assert "1 executors on 1 hosts were seen, and through Connect" in found[0].what


@pytest.mark.parametrize(
    ("asked", "coming", "there", "looks"),
    [
        (None, [0, 0, 1, 2, 2, 2], 2, 6),  # a session starts before its executors
        (4, [2, 2, 2, 2, 4, 5], 4, 5),
        (4, [2] * 99, 2, 30),
        (None, [0] * 99, 0, 30),
        (0, [1], 1, 1),
    ],
)
def test_executors_are_waited_for(
    asked: int | None, coming: list[int], there: int, looks: int
) -> None:
    left = iter(coming)
    assert settled(lambda: next(left), asked, sleep=lambda _: None) == there
    assert len(coming) - len(list(left)) == looks


@pytest.mark.slow
def test_a_real_session_is_examined_and_nothing_is_left_behind(spark: Any, tmp_path: Path) -> None:
    facts = examine(spark, str(tmp_path))
    assert facts["error"] is None
    assert {finding.level for finding in judge(facts)} == {OK}
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.spark
def test_the_command_exits_by_what_it_found(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "anabranch.cli.main", "doctor", "--master", "local[2]"]
    sound = subprocess.run([*command, "--control", str(tmp_path)], capture_output=True, text=True)
    assert sound.returncode == 0, sound.stdout + sound.stderr
    assert "nothing is wrong" in sound.stdout
    assert f"read and write control={tmp_path}" in sound.stdout
    wrong = subprocess.run([*command, "--control", "/proc/x"], capture_output=True, text=True)
    assert wrong.returncode == 1
    assert "1 wrong" in wrong.stdout
