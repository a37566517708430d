"""``anabranch edge``: a hub is made and its devices are let in, and what goes wrong is one line."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("nats", reason="pip install 'anabranch[edge]'")

from typer.testing import CliRunner

from anabranch.cli.main import app
from anabranch.edge.hub import Hub


def run(*words: object, given: str = "") -> tuple[int, str]:
    done = CliRunner().invoke(app, ["edge", *map(str, words)], input=given)
    return done.exit_code, done.output


def test_a_hub_from_init_to_revoke(tmp_path: Path) -> None:
    hub = tmp_path / "hub"
    assert run("init", hub, "--host", "hub.example.com")[0] == 0
    code, text = run("enrol", hub, "alice", "bob", "--out", tmp_path / "out")
    assert code == 0 and "alice: credentials in" in text
    names = {path.name for path in (tmp_path / "out" / "alice").iterdir()}
    assert names == {"key.pem", "cert.pem", "ca.pem"}
    assert run("revoke", hub, "alice") == (0, "alice may no longer connect\n")
    assert Hub(hub).devices() == ["bob"]
    users = (hub / "users.conf").read_text()
    assert 'publish: "u.bob", subscribe: "d.bob"' in users and "alice" not in users


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["enrol", "{hub}", "bob"], "bob enrolled already"),
        (["enrol", "{hub}", "a.*"], "a device is named by"),
        (["enrol", "{hub}", "cloud"], "'cloud' is the name of the other side"),
        (["revoke", "{hub}", "alice"], "alice not enrolled"),
        (["enrol", "{hub}/nowhere", "bob"], "there is no hub in"),
        (["init", "{hub}"], "a hub needs an empty folder"),
        (["init", "{hub}/users.json"], "users.json cannot be made a hub (Not a directory)"),
        (["init", "{hub}/users.json/below"], "below cannot be made a hub (Not a directory)"),
        (["init", "{hub}/new", "--host", "bad host!"], "reach the hub, for example hub.example"),
        (["enrol", "{hub}", "ann", "--out", "{hub}/users.json"], "credentials cannot be put into"),
        (["enrol", "{hub}", "ann", "--out", "/proc/nope"], "credentials cannot be put into"),
        (["enrol", "{hub}", "bob", "--out", "{hub}/devices"], "there is something at"),
        (["serve", "{hub}", "--listen", "4222"], "listen must be ADDRESS:PORT"),
    ],
)
def test_what_goes_wrong_is_one_line(tmp_path: Path, words: list[str], said: str) -> None:
    Hub.create(tmp_path, ["localhost"]).enrol("bob")
    code, text = run(*(word.format(hub=tmp_path) for word in words))
    assert code == 2
    assert said in " ".join(text.split()) and "Traceback" not in text
    assert Hub(tmp_path).devices() == ["bob"]


def test_a_device_that_is_named_twice_is_enrolled_once(tmp_path: Path) -> None:
    Hub.create(tmp_path / "hub", ["localhost"])
    code, text = run("enrol", tmp_path / "hub", "dave", "dave", "--out", tmp_path / "out")
    assert (code, text) == (0, f"dave: credentials in {tmp_path / 'out' / 'dave'}\n")


def test_the_story_of_a_new_hub_is_empty(tmp_path: Path) -> None:
    hub = Hub.create(tmp_path, ["localhost"])
    done = CliRunner().invoke(app, ["story", str(hub.control)])
    assert done.exit_code == 0 and done.output.startswith("the log of placements is empty")


def test_a_line_that_is_no_row_ends_the_agent(tmp_path: Path) -> None:
    hub = Hub.create(tmp_path / "hub", ["localhost"])
    (folder,) = hub.enrol("bob")
    words = ["--broker", "tls://127.0.0.1:9", "--credentials", folder, "--folder", tmp_path / "b"]
    code, text = run("agent", "bob", *words, given='{"stream": "gps[bob]", "x": 1}\nnonsense\n')
    assert code == 2
    assert "a line must be JSON with a \"stream\", got 'nonsense'" in text
