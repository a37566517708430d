"""An S3-compatible object store on loopback, from the package ``moto``: in memory, made for tests.

    python -m scripts.services.object_store              until Ctrl-C
    python -m scripts.services.object_store COMMAND ...  around a command

Prints its address; a command finds it in ``S3_ENDPOINT``. It has one bucket, ``anabranch``. It
wants to be told a key in ``AWS_ACCESS_KEY_ID`` and ``AWS_SECRET_ACCESS_KEY``, but any will do.
"""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from urllib.request import Request, urlopen

from scripts.services.beside import beside, free_ports
from scripts.services.jars import Absent, fetched

__all__ = ["BUCKET", "object_store", "s3a_settings"]

BUCKET = "anabranch"
_PATIENCE = 60


@contextmanager
def object_store() -> Iterator[str]:
    """A store for the length of a block; its endpoint."""
    if find_spec("moto") is None or find_spec("flask") is None:
        raise Absent("moto is not installed: pip install 'moto[server,s3]'")
    (port,) = free_ports(1)
    endpoint = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        _await(port, process)
        urlopen(Request(f"{endpoint}/{BUCKET}", method="PUT"), timeout=10).close()
        yield endpoint
    finally:
        process.kill()
        process.wait()


def s3a_settings(endpoint: str) -> dict[str, str]:
    """What Spark must be told to find the store at ``s3a://anabranch/``."""
    store = "spark.hadoop.fs.s3a"
    return {
        "spark.jars": ",".join(map(str, fetched("s3a"))),
        f"{store}.endpoint": endpoint,
        f"{store}.endpoint.region": "us-east-1",
        f"{store}.path.style.access": "true",
        f"{store}.connection.ssl.enabled": "false",
        # The quicker way asks "may I go on?" first, to which this server has no answer.
        f"{store}.optimized.copy.from.local.enabled": "false",
    }


def _await(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + _PATIENCE
    while time.monotonic() < deadline and process.poll() is None:
        with socket.socket() as trial:
            if trial.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise RuntimeError("the object store did not start")


if __name__ == "__main__":
    sys.exit(beside(object_store(), "S3_ENDPOINT", sys.argv[1:]))
