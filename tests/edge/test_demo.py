"""The demo of devices in small: it runs to its end, compares as it goes, and is exact."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest

pytest.importorskip("nats", reason="pip install 'anabranch[edge]'")

from tests.sinks.stories import needed

pytestmark = [
    pytest.mark.services,
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


def test_a_few_devices_are_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    from rich.console import Console

    from anabranch.cli.steered import Steered
    from anabranch.spark.demo.edge import run_edge_demo
    from scripts.services.nats import server

    monkeypatch.setenv("PATH", str(Path(needed(server)).parent), prepend=":")
    said = io.StringIO()
    assert run_edge_demo(6, 60.0, Steered(), Console(file=said, width=200)) == 0
    text = said.getvalue()
    assert re.search(r"\d+ bytes/s, \d+ up and \d+ down; \d+ of \d+ views on devices", text)
    assert "busy devices become quiet" in text and ": the same, each once" in text
