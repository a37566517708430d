"""The commands as a user runs them: a hub serves two devices, and one of them finds the pairs."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("nats", reason="pip install 'anabranch[edge]'")

from anabranch.edge.definitions import View
from anabranch.edge.hub import Hub
from anabranch.edge.wishes import Requests, Wishes
from scripts.services.beside import free_ports
from tests.edge.fleet import friends
from tests.sinks.stories import needed

pytestmark = pytest.mark.services

COMMAND = [sys.executable, "-c", "from anabranch.cli.main import main; main()", "edge"]


def start(name: Path, *words: object) -> subprocess.Popen[str]:
    with name.with_suffix(".log").open("w") as log, name.with_suffix(".out").open("w") as out:
        return subprocess.Popen(
            [*COMMAND, *map(str, words)], stdin=subprocess.PIPE, stdout=out, stderr=log, text=True
        )


def test_serve_and_agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from scripts.services.nats import server

    monkeypatch.setenv("PATH", str(Path(needed(server)).parent), prepend=":")
    hub = Hub.create(tmp_path / "hub", ["localhost", "127.0.0.1"])
    (port,) = free_ports(1)
    streams, definitions, views = friends(["ann", "bob"], [(0, 1)])
    near = tuple(view for view, _ in views)
    assert isinstance(near[0], View)
    Requests(hub.control).write(Wishes(tuple(streams), tuple(definitions), near))
    serving = start(tmp_path / "hub", "serve", hub.folder, "--listen", f"127.0.0.1:{port}")
    agents = []
    try:
        for name, folder in zip(("ann", "bob"), hub.enrol("ann", "bob"), strict=True):
            words = ["--broker", f"tls://127.0.0.1:{port}", "--credentials", folder]
            words += ["--folder", tmp_path / name, "--view", "near", "--flush", "0.2 seconds"]
            agents.append(start(tmp_path / name, "agent", name, *words))
        for _ in range(120):
            for name, agent in zip(("ann", "bob"), agents, strict=True):
                assert agent.stdin is not None
                agent.stdin.write(json.dumps({"stream": f"gps[{name}]", "xy": [0.5, 1.0]}) + "\n")
                agent.stdin.flush()
            time.sleep(0.5)
            found = [(tmp_path / f"{name}.out").read_text() for name in ("ann", "bob")]
            if all(found):
                break
        results = [json.loads(line) for line in "".join(found).splitlines()]
        assert {result["view"] for result in results} == {"near(ann,bob)"}
        assert {result["score"] for result in results} == {0.0}
    finally:
        for process in (*agents, serving):
            process.terminate()
            process.communicate()
