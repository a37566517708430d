"""A PostgreSQL server on loopback, from the system's packages, in a folder that goes with it.

    python -m scripts.services.postgres              until Ctrl-C
    python -m scripts.services.postgres COMMAND ...  around a command

Prints its address; a command finds it in ``POSTGRES_DSN``. It never runs as root.
"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from scripts.services.beside import beside, free_ports
from scripts.services.jars import Absent

__all__ = ["server"]


@contextmanager
def server() -> Iterator[str]:
    """A server for the length of a block; how to connect to it."""
    programs = _programs()
    folder = Path(tempfile.mkdtemp(prefix="anabranch-postgres-"))
    data, (port,) = folder / "data", free_ports(1)
    user = _unprivileged()
    if user is not None:
        os.chown(folder, user, user)

    def run(*command: str) -> None:
        done = subprocess.run(
            command, user=user, group=user, cwd=folder, capture_output=True, text=True
        )
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)}: {done.stdout[-500:]}{done.stderr[-1500:]}")

    control = [str(programs / "pg_ctl"), "-D", str(data), "-l", str(folder / "log"), "-w"]
    try:
        run(str(programs / "initdb"), "-D", str(data), "-U", "anabranch", "-A", "trust", "-N")
        options = f"-p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories= -c fsync=on"
        run(*control, "-o", options, "start")
        yield f"host=127.0.0.1 port={port} user=anabranch dbname=postgres"
    finally:
        if (data / "postmaster.pid").exists():
            run(*control, "-m", "immediate", "stop")
        shutil.rmtree(folder, ignore_errors=True)


def _programs() -> Path:
    """Where the server's programs are; Debian keeps them off the path."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    on_path = shutil.which("initdb")
    if not found and on_path is None:
        raise Absent("PostgreSQL is not installed: apt-get install postgresql")
    return found[-1].parent if found else Path(on_path or "").parent


def _unprivileged() -> int | None:
    """Whom to run it as, if we are root, whom it refuses."""
    if os.getuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name).pw_uid
        except KeyError:
            continue
    raise Absent("PostgreSQL refuses to run as root, and there is no other user")


if __name__ == "__main__":
    sys.exit(beside(server(), "POSTGRES_DSN", sys.argv[1:]))
