"""A standalone Spark cluster from pip's PySpark: a master, and workers that come and go.

    python -m scripts.services.cluster              until Ctrl-C
    python -m scripts.services.cluster COMMAND ...  around a command

Prints its address; a command finds it in ``SPARK_MASTER``. PySpark brings no scripts that start a
cluster, but all of its classes. Where namespaces may be made, each worker is in one of its own,
with an address of its own, and reaches the others through a bridge only; elsewhere all are on
loopback, at addresses of their own. Nothing is left when it ends.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pyspark

from scripts.services.beside import beside, free_ports

__all__ = ["Cluster", "Worker", "cluster"]

ROOT = Path(__file__).resolve().parents[2]
_PATIENCE = 90
_MEMORY = "1g"


@dataclass
class Worker:
    """A worker daemon, with the executors that it has started."""

    name: str
    host: str
    process: subprocess.Popen[bytes]
    space: str | None

    def kill(self) -> None:
        """SIGKILL to the daemon and all that it has started: the machine is gone."""
        _kill(self.process)
        if self.space is not None:
            listed = _ip("netns", "pids", self.space)
            for pid in listed.split():
                with suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)


@dataclass
class Cluster:
    """A running cluster; `host` is the address at which a driver must be reached."""

    folder: Path
    host: str
    port: int
    page: int
    bridge: str | None
    path: str  # where Python on workers finds packages that are not installed
    cores: int = 1  # of each worker
    workers: list[Worker] = field(default_factory=list)

    @property
    def address(self) -> str:
        """What ``--master`` takes."""
        return f"spark://{self.host}:{self.port}"

    def state(self) -> dict[str, Any]:
        """What the master knows: its ``workers`` and ``activeapps``."""
        with urlopen(f"http://{self.host}:{self.page}/json/", timeout=10) as page:
            found: dict[str, Any] = json.load(page)
        return found

    def alive(self) -> list[str]:
        """The hosts of the workers that the master counts on."""
        return [worker["host"] for worker in self.state()["workers"] if worker["state"] == "ALIVE"]

    def add(self) -> Worker:
        """Start one more worker, and wait until the master knows it."""
        number = len(self.workers) + 1
        name = f"worker-{number}"
        # On loopback too a worker has an address of its own: Spark takes each for a machine.
        host, space = f"127.0.0.{number + 1}", None
        if self.bridge is not None:
            host = f"{self.host.rpartition('.')[0]}.{number + 1}"
            space = _space(self.bridge, host, number)
        before = len(self.alive())
        daemon = ["org.apache.spark.deploy.worker.Worker", "--host", host, "--webui-port", "0"]
        room = [
            "--cores",
            str(self.cores),
            "--memory",
            _MEMORY,
            "--work-dir",
            str(self.folder / name),
        ]
        log = self.folder / f"{name}.log"
        process = _daemon(log, host, self.path, [*daemon, *room, self.address], space)
        worker = Worker(name, host, process, space)
        self.workers.append(worker)
        _await(lambda: len(self.alive()) > before, process, log)
        return worker

    def executors(self, worker: Worker) -> int:
        """How many executors a worker has started so far."""
        return len(list((self.folder / worker.name).glob("app-*/*")))


@contextmanager
def cluster(workers: int = 2, path: str = str(ROOT), cores: int = 1) -> Iterator[Cluster]:
    """A cluster for the length of a block; `path` is the ``PYTHONPATH`` of its workers."""
    with ExitStack() as undo:
        folder = Path(tempfile.mkdtemp(prefix="anabranch-cluster-"))
        undo.callback(shutil.rmtree, folder, ignore_errors=True)
        bridge, host = _bridge(undo)
        port, page = free_ports(2)
        made = Cluster(folder, host, port, page, bridge, path, cores)
        daemon = ["org.apache.spark.deploy.master.Master", "--host", host, "--port", str(port)]
        log = folder / "master.log"
        master = _daemon(log, host, path, [*daemon, "--webui-port", str(page)])
        undo.callback(_kill, master)
        undo.callback(_remove, made)
        _await(lambda: made.state()["status"] == "ALIVE", master, log)
        for _ in range(workers):
            made.add()
        yield made


def _daemon(
    log: Path, host: str, path: str, command: list[str], space: str | None = None
) -> subprocess.Popen[bytes]:
    home = Path(pyspark.__file__).parent
    inside = [] if space is None else ["ip", "netns", "exec", space]
    environment = {
        **os.environ,
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": host,
        "SPARK_DAEMON_MEMORY": "256m",
        "PYTHONPATH": path,
    }
    with log.open("wb") as out:
        return subprocess.Popen(
            [*inside, str(home / "bin" / "spark-class"), *command],
            stdout=out,
            stderr=out,
            env=environment,
            start_new_session=True,
        )


def _await(holds: Callable[[], bool], process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + _PATIENCE
    while time.monotonic() < deadline and process.poll() is None:
        with suppress(OSError):
            if holds():
                return
        time.sleep(0.1)
    raise RuntimeError(f"the daemon did not start:\n{log.read_text(errors='replace')[-3000:]}")


def _kill(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _remove(made: Cluster) -> None:
    for worker in made.workers:
        worker.kill()
        if worker.space is not None:
            with suppress(subprocess.CalledProcessError):  # it goes with the last process inside
                _ip("link", "delete", worker.space.replace("-", "o"))
            _ip("netns", "delete", worker.space)


# ---------------------------------------------------------------- a network of its own


def _bridge(undo: ExitStack) -> tuple[str | None, str]:
    """A bridge and the host's address on it; loopback where none may be made."""
    name = f"ab{os.getpid()}"
    try:
        _ip("link", "add", name, "type", "bridge")
    except (OSError, subprocess.CalledProcessError):
        return None, "127.0.0.1"
    undo.callback(_ip, "link", "delete", name)
    host = f"10.203.{os.getpid() % 250}.1"
    _ip("address", "add", f"{host}/24", "dev", name)
    _ip("link", "set", name, "up")
    return name, host


def _space(bridge: str, host: str, number: int) -> str:
    """A network namespace with one cable, to the bridge."""
    name, outer, inner = f"{bridge}-{number}", f"{bridge}o{number}", f"{bridge}i{number}"
    _ip("netns", "add", name)
    _ip("link", "add", outer, "type", "veth", "peer", "name", inner, "netns", name)
    _ip("link", "set", outer, "master", bridge, "up")
    for command in (["address", "add", f"{host}/24", "dev", inner], ["link", "set", inner, "up"]):
        _ip("-n", name, *command)
    _ip("-n", name, "link", "set", "lo", "up")
    return name


def _ip(*command: str) -> str:
    done = subprocess.run(["ip", *command], check=True, capture_output=True, text=True)
    return done.stdout


@contextmanager
def _address() -> Iterator[str]:
    with cluster() as made:
        os.environ["SPARK_LOCAL_IP"] = made.host
        yield made.address


if __name__ == "__main__":
    sys.exit(beside(_address(), "SPARK_MASTER", sys.argv[1:]))
