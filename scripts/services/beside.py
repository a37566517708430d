"""What every script of a component does: find free ports, and run a command beside it."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager

__all__ = ["beside", "free_ports"]


def beside(service: AbstractContextManager[str], variable: str, command: Sequence[str]) -> int:
    """Run a command that finds the service's address in a variable, or the service alone."""
    with service as address:
        print(f"{variable}={address}", flush=True)
        if command:
            return subprocess.run(command, env={**os.environ, variable: address}).returncode
        try:
            while True:
                time.sleep(3600)
        except KeyboardInterrupt:
            return 0


def free_ports(count: int) -> list[int]:
    """Ports of loopback that nobody listens on."""
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports
