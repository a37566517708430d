"""Programs that live worlds and kill processes: what they add up, and that they see faults."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("nats", reason="pip install 'anabranch[edge]'")

from scripts.reliability import kills, worlds


def test_worlds_add_up_over_runs_as_long_as_the_code_is_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "worlds.json"
    first = worlds.run((0, 3), 1, path)
    assert first["ranges"] == [[0, 3]] and first["counts"]["worlds"] == 3 and not first["failed"]
    lived: list[tuple[int, int]] = []
    more = {"counts": {"worlds": 2}, "failed": [4], "cpu seconds": 0.5}

    class Pool:
        def __init__(self, _: int) -> None: ...
        def __enter__(self) -> Pool:
            return self

        def __exit__(self, *_: object) -> None: ...
        def imap_unordered(self, _: Any, todo: list[tuple[int, int]]) -> Any:
            lived.extend(todo)
            return ({"range": list(one), **more} for one in todo)

    monkeypatch.setattr(worlds.multiprocessing, "get_context", lambda _: SimpleNamespace(Pool=Pool))
    second = worlds.run((1, 5), 2, path)
    assert lived == [(3, 5)] and second["ranges"] == [[0, 5]] and second["failed"] == [4]
    assert second["counts"] == {**first["counts"], "worlds": 5} and len(second["begun"]) == 2
    assert worlds.run((0, 5), 2, path)["failed"] == [4] and len(lived) == 1
    monkeypatch.setattr(worlds, "code_hash", lambda: "another")
    assert worlds.run((0, 2), 2, path)["ranges"] == [[0, 2]]


def test_a_run_of_kills_that_lost_or_doubled_or_did_too_little_has_failed() -> None:
    good = {"kills": {"cloud": 3}, "expected": 9, "lost": 0, "double or not due": 0}
    assert kills.faults(good, 3) == []
    assert kills.faults({**good, "lost": 2}, 3) == ["lost: 2"]
    assert kills.faults({**good, "double or not due": 1}, 4) == [
        "double or not due: 1",
        "3 of 4 kills",
    ]
    assert kills.faults({**good, "expected": 0}, 3) == ["nothing was due"]
    assert kills.faults({"error": "AssertionError: x"}, 3) == ["AssertionError: x"]
