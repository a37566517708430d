"""A Kafka topic, written in transactions: one per micro-batch, with a record of its number.

Kafka fences: who begins to write as an app ends the transactions of whoever did so before. After
that nothing of this app is open, so the record of its progress can be read to its end. It has a
topic of its own for each app, because open transactions of others would hide what lies after them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from anabranch.errors import StateMismatch
from anabranch.flow.delivery import Progress
from anabranch.spark.frames import JSON_FORM, by_name
from anabranch.spark.sinks.sink import Batch, Target, Writer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["KafkaTopic"]

_SECONDS = 60.0
_QUIET = {"log_level": "3"}


class KafkaTopic(Target):
    """A topic, and the one producer that may write to it as an app."""

    verb = "sinks.kafka"
    packages = ("confluent_kafka",)
    extra = "kafka"

    def __init__(
        self, servers: str, topic: str, key: Sequence[str], options: Mapping[str, str]
    ) -> None:
        self.servers = servers
        self.place = topic
        self.key = tuple(key)
        self.options = dict(options)
        self._producer: Any = None
        self._done: Progress | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Connect sends the sink to its server, where it connects anew."""
        return {**self.__dict__, "_producer": None, "_done": None}

    def shaped(self, frame: DataFrame) -> DataFrame:
        """``value`` and ``key`` of the records: as they are, or rows as JSON."""
        from pyspark.sql import functions as F

        kinds = dict(frame.dtypes)
        if kinds.get("value") in ("string", "binary") and kinds.keys() <= {"key", "value"}:
            key = F.col("key") if "key" in kinds else F.lit(None)
            return frame.select(key.cast("binary").alias("key"), F.col("value").cast("binary"))
        row = F.struct(*map(by_name, frame.columns))
        named = [by_name(name) for name in self.key]
        if len(named) == 1:
            key = named[0].cast("string")
        else:
            key = F.to_json(F.struct(*named), JSON_FORM) if named else F.lit(None)
        value = F.to_json(row, JSON_FORM)
        return frame.select(key.cast("binary").alias("key"), value.cast("binary").alias("value"))

    def spark_problem(self, spark: Any) -> str | None:
        return self.driver_problem()

    @contextmanager
    def open(self, batch: Batch) -> Iterator[Writer]:
        from confluent_kafka import KafkaError, KafkaException

        fenced = (KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH)
        try:
            if self._producer is None:
                self._begin(batch.app)
            yield _Transaction(self, batch, self._producer, self._done)
            self._done = batch.note
        except BaseException as error:
            self._give_up()
            if isinstance(error, KafkaException) and error.args[0].code() in fenced:
                # Kafka ends both alike: by a newer number of the one that may write.
                raise StateMismatch(
                    f"Kafka has ended the transaction of app={batch.app!r}: another query has "
                    "begun to write under this name, and only the newest one may; or the batch "
                    "was not sent within transaction.timeout.ms. Give each query an app= of its "
                    "own, or the sink a longer options={'transaction.timeout.ms': ...}"
                ) from error
            raise

    def _give_up(self) -> None:
        """Abort what is open; if that cannot be, whoever writes next as this app does it."""
        from confluent_kafka import KafkaException

        producer, self._producer = self._producer, None
        try:
            if producer is not None:
                producer.abort_transaction(_SECONDS)
        except KafkaException:
            pass

    def progress_topic(self, app: str) -> str:
        """Where the newest batch of an app is noted."""
        return f"anabranch.progress.{app}"

    def _begin(self, app: str) -> None:
        from confluent_kafka import Producer

        given = {
            "bootstrap.servers": self.servers,
            "transactional.id": f"anabranch-{app}",
            "linger.ms": "5",
            **_QUIET,
            **self.options,
        }
        producer = Producer(given)
        producer.init_transactions(_SECONDS)
        self._make_progress(app)
        self._done = self._noted(app)
        self._producer = producer

    def _make_progress(self, app: str) -> None:
        """A topic that keeps the newest record of a key for good."""
        from confluent_kafka import KafkaError, KafkaException
        from confluent_kafka.admin import AdminClient, NewTopic

        admin = AdminClient({"bootstrap.servers": self.servers, **_QUIET, **self.options})
        name = self.progress_topic(app)
        if name in admin.list_topics(timeout=_SECONDS).topics:
            return
        wanted = NewTopic(name, 1, config={"cleanup.policy": "compact"})
        try:
            admin.create_topics([wanted])[name].result(_SECONDS)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise

    def _noted(self, app: str) -> Progress | None:
        """The newest committed record of an app's progress."""
        from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, TopicPartition
        from confluent_kafka import KafkaError as E

        given = {
            "bootstrap.servers": self.servers,
            "group.id": f"anabranch-{app}",
            "enable.auto.commit": "false",
            "enable.partition.eof": "true",
            "isolation.level": "read_committed",
            **_QUIET,
            **self.options,
        }
        consumer = Consumer(given)
        consumer.assign([TopicPartition(self.progress_topic(app), 0, OFFSET_BEGINNING)])
        found = None
        try:
            while True:
                message = consumer.poll(_SECONDS)
                if message is None:
                    raise TimeoutError(f"Kafka did not send {self.progress_topic(app)}")
                error = message.error()
                if error is not None and error.code() == E._PARTITION_EOF:
                    return found
                if error is not None and not error.retriable():
                    raise KafkaException(error)
                if error is None and message.key() == self.place.encode():
                    note = json.loads(message.value())
                    found = Progress.noted(note["batch"], note["query"])
        finally:
            consumer.close()


class _Transaction(Writer):
    def __init__(
        self, target: KafkaTopic, batch: Batch, producer: Any, done: Progress | None
    ) -> None:
        self.target = target
        self.batch = batch
        self.producer = producer
        self.done = done

    def write(self, columns: Mapping[str, str]) -> None:
        batch, producer, topic = self.batch, self.producer, self.target.place
        producer.begin_transaction()
        for number, (key, value) in enumerate(self._records()):
            self._send(topic, key, value)
            if number == batch.rows // 2:
                batch.reached("half sent")
        note = json.dumps({"batch": batch.number, "query": batch.note.origin}).encode()
        self._send(self.target.progress_topic(batch.app), topic.encode(), note, partition=0)
        producer.flush(_SECONDS)
        batch.reached("ready")
        producer.commit_transaction(_SECONDS)

    def _records(self) -> Iterator[tuple[bytes | None, bytes | None]]:
        """Keys and values; a null value stays one, for it deletes its key in a compacted topic."""
        if self.batch.table is not None:
            columns = [self.batch.table[name].to_pylist() for name in ("key", "value")]
            yield from zip(*columns, strict=True)
        else:
            for row in self.batch.frame.toLocalIterator(prefetchPartitions=True):
                yield _bytes(row.key), _bytes(row.value)

    def _send(self, topic: str, key: Any, value: bytes | None, **where: int) -> None:
        while True:
            try:
                self.producer.produce(topic, value=value, key=key, **where)
                return
            except BufferError:  # more than librdkafka holds: wait until some are sent
                self.producer.poll(1.0)


def _bytes(value: bytearray | None) -> bytes | None:
    return None if value is None else bytes(value)
