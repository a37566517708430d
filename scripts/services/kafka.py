"""A Kafka broker on loopback, from Maven's jars: one process, KRaft, without ZooKeeper.

    python -m scripts.services.kafka                        until Ctrl-C
    python -m scripts.services.kafka python examples/kafka_news.py    around a command

Prints its address; a command finds it in ``KAFKA_SERVERS``. Nothing is left when it ends.
"""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from scripts.services.beside import beside, free_ports
from scripts.services.jars import Absent, fetched, java

__all__ = ["Broker", "broker", "mock_broker", "mortal_broker"]

_PATIENCE = 90
_SETTINGS = """
process.roles=broker,controller
node.id=1
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{other}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
controller.quorum.bootstrap.servers=127.0.0.1:{other}
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
offsets.topic.num.partitions=4
transaction.state.log.num.partitions=4
num.partitions=2
group.initial.rebalance.delay.ms=0
log.dirs={folder}/data
"""


class Broker:
    """A broker in a folder, which may be killed and started again: what it has stored stays."""

    def __init__(self, folder: Path) -> None:
        self._log = folder / "log"
        self._port, other = free_ports(2)
        self._settings = folder / "server.properties"
        self._settings.write_text(_SETTINGS.format(port=self._port, other=other, folder=folder))
        jars = ":".join(map(str, fetched("kafka-broker")))
        self._run = [java(), "-Xmx512m", "-cp", jars]
        ident = "anabranch-tests-000000"  # 22 letters, as Kafka wants them
        storage = ["kafka.tools.StorageTool", "format", "--standalone", "-t", ident]
        with self._log.open("wb") as log:
            command = [*self._run, *storage, "-c", str(self._settings)]
            subprocess.run(command, stdout=log, stderr=log, check=True)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def servers(self) -> str:
        """Its ``bootstrap.servers``."""
        return f"127.0.0.1:{self._port}"

    def start(self) -> None:
        """Start it, at the same address every time, and wait until it listens."""
        with self._log.open("ab") as log:
            command = [*self._run, "kafka.Kafka", str(self._settings)]
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        _await(self._port, self._process, self._log)

    def kill(self) -> None:
        """SIGKILL, if it runs."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


@contextmanager
def broker() -> Iterator[str]:
    """A broker for the length of a block; its ``bootstrap.servers``."""
    with mortal_broker() as made:
        yield made.servers


@contextmanager
def mortal_broker() -> Iterator[Broker]:
    """The same, for one who wants to kill it and start it again."""
    folder = Path(tempfile.mkdtemp(prefix="anabranch-kafka-"))
    made = None
    try:
        made = Broker(folder)
        made.start()
        yield made
    finally:
        if made is not None:
            made.kill()
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def mock_broker(*topics: str) -> Iterator[str]:
    """The broker inside librdkafka, where there is no Maven: in memory, made for tests.

    It has topics as soon as they are asked for, but cannot be asked to make them.
    """
    try:
        from confluent_kafka import Producer
    except ImportError as error:
        raise Absent("pip install 'anabranch[kafka]'") from error
    holder = Producer({"test.mock.num.brokers": 1, "bootstrap.servers": "none", "log_level": 0})
    (found,) = holder.list_topics(timeout=10).brokers.values()
    for topic in topics:
        holder.list_topics(topic, timeout=10)
    yield f"{found.host}:{found.port}"
    del holder


def _await(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + _PATIENCE
    while time.monotonic() < deadline:
        if process.poll() is not None:
            break
        with socket.socket() as trial:
            if trial.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise RuntimeError(f"the broker did not start:\n{log.read_text(errors='replace')[-3000:]}")


if __name__ == "__main__":
    sys.exit(beside(broker(), "KAFKA_SERVERS", sys.argv[1:]))
