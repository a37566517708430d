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

__all__ = ["broker", "mock_broker"]

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


@contextmanager
def broker() -> Iterator[str]:
    """A broker for the length of a block; its ``bootstrap.servers``."""
    jars = ":".join(map(str, fetched("kafka-broker")))
    folder = Path(tempfile.mkdtemp(prefix="anabranch-kafka-"))
    port, other = free_ports(2)
    settings = folder / "server.properties"
    settings.write_text(_SETTINGS.format(port=port, other=other, folder=folder))
    run = [java(), "-Xmx512m", "-cp", jars]
    ident = "anabranch-tests-000000"  # 22 letters, as Kafka wants them
    storage = ["kafka.tools.StorageTool", "format", "--standalone", "-t", ident]
    process = None
    try:
        with (folder / "log").open("wb") as log:
            subprocess.run(
                [*run, *storage, "-c", str(settings)], stdout=log, stderr=log, check=True
            )
            process = subprocess.Popen([*run, "kafka.Kafka", str(settings)], stdout=log, stderr=log)
        _await(port, process, folder / "log")
        yield f"127.0.0.1:{port}"
    finally:
        if process is not None:
            process.kill()
            process.wait()
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
