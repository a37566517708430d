"""The JetStream source: every message once across kills; a stream that is not what it was."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as pq
import pytest

from anabranch.errors import InvalidCall, StateMismatch
from anabranch.spark.jetstream import JetStream
from tests.spark.processes import driver, newest

pytestmark = pytest.mark.services


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Any]:
    from anabranch.edge.broker import running
    from anabranch.edge.hub import Hub
    from scripts.services.nats import server
    from tests.sinks.stories import installed, needed

    installed("nats")
    program = needed(server)
    hub = Hub.create(tmp_path / "hub", ["127.0.0.1"])
    with running(hub, program=program) as started:
        yield started


def options(broker: Any, **more: Any) -> dict[str, str]:
    given = {"url": broker.address, "credentials": str(broker.hub.cloud), "stream": "IN", **more}
    return {name: str(value) for name, value in given.items()}


def with_stream(broker: Any, work: Callable[[Any], Any]) -> Any:
    """Do something with the broker's streams."""

    async def run() -> Any:
        import nats

        from anabranch.edge.certificates import client_context

        client = await nats.connect(broker.address, tls=client_context(broker.hub.cloud))
        try:
            return await work(client.jetstream())
        finally:
            await client.close()

    return asyncio.run(run())


def feed(broker: Any, first: int, last: int, **limits: Any) -> None:
    """Messages that say their own number, of two subjects."""

    async def work(stream: Any) -> None:
        from nats.js.api import StreamConfig

        await stream.add_stream(StreamConfig(name="IN", subjects=["in.*"], **limits))
        for number in range(first, last + 1):
            await stream.publish(f"in.{number % 2}", b"%d" % number)

    with_stream(broker, work)


def remove(broker: Any) -> None:
    with_stream(broker, lambda stream: stream.delete_stream("IN"))


def reader(broker: Any, **more: Any) -> Any:
    return JetStream(options(broker, **more)).streamReader(None)  # type: ignore[arg-type]


def read(source: Any, start: Any, end: Any) -> list[int]:
    batches = [batch for part in source.partitions(start, end) for batch in source.read(part)]
    rows = [row for batch in batches for row in batch.to_pylist()]
    assert all(row["subject"] == f"in.{row['seq'] % 2}" for row in rows)
    assert [int(row["data"]) for row in rows] == [row["seq"] for row in rows]
    return [row["seq"] for row in rows]


@pytest.mark.spark
def test_every_message_once_though_the_driver_is_killed(broker: Any, tmp_path: Path) -> None:
    """Killed twice between the offsets and the commit of a batch, then the broker too."""
    feed(broker, 1, 300)
    call = json.dumps(options(broker, max_rows=40))
    for batch in (1, 3):
        with driver(tmp_path, call, "--kill", str(batch), script="jetstream_driver.py") as run:
            run.process.wait()
        begun, ended = newest(tmp_path, "offsets"), newest(tmp_path, "commits")
        assert (begun, ended) == (batch, batch - 1), run.tail()
    broker.kill()
    broker.start()
    with driver(tmp_path, call, script="jetstream_driver.py") as run:
        run.finish()
    feed(broker, 301, 310)
    with driver(tmp_path, call, script="jetstream_driver.py") as run:
        run.finish()
    tables = [pd.read_parquet(path) for path in sorted((tmp_path / "out").glob("*.parquet"))]
    found = pd.concat(tables)
    assert sorted(found["seq"]) == list(range(1, 311))
    assert max(map(len, tables)) == 40
    assert [int(data) for data in found["data"]] == found["seq"].tolist()


@pytest.mark.spark
def test_follow_finds_each_result_once_though_its_driver_is_killed(
    broker: Any, tmp_path: Path
) -> None:
    """Killed twice after a micro-batch was computed and sent back, before it was committed."""
    from anabranch.edge.frames import decode_output
    from anabranch.edge.streams import Streams
    from anabranch.edge.wishes import Requests
    from anabranch.placement.views import wishes_of
    from tests.spark import follow_world as world
    from tests.spark.follow_frames import recorded

    rows = world.rows()
    hub = recorded(tmp_path / "control", wishes_of(world.views()), rows)

    async def fill(stream: Any) -> None:
        await Streams.of(0).make(stream)
        for subject, content in hub.frames:
            await stream.publish(subject, content)

    with_stream(broker, fill)
    call = json.dumps(
        {
            "broker": broker.address,
            "control": str(tmp_path / "control"),
            "credentials": str(broker.hub.cloud),
            "max_frames": 20,
        }
    )
    for batch in (1, 3):
        with driver(tmp_path, call, "--kill", str(batch), script="follow_driver.py") as run:
            run.process.wait()
        begun, ended = newest(tmp_path, "offsets"), newest(tmp_path, "commits")
        assert (begun, ended) == (batch, batch - 1), run.tail()
    with driver(tmp_path, call, script="follow_driver.py") as run:
        run.finish()
    files = sorted((tmp_path / "out").glob("*.parquet"))
    assert len(files) == -(-len(hub.frames) // 20)
    found = [row for path in files for row in pq.read_table(path).to_pylist()]
    assert world.identities(found) == sorted(world.truth(rows))
    assert Requests(tmp_path / "control").newest() is not None

    async def sent_back(stream: Any) -> list[Any]:
        state = (await stream.stream_info("UP")).state
        numbers = range(state.first_seq, state.last_seq + 1)
        return [await stream.get_msg("UP", number) for number in numbers]

    back = []
    for message in with_stream(broker, sent_back):
        for one in decode_output(message.data).results:
            name = hub.relay.book.views[one.view].name
            back += [(name, *map(int, pair)) for pair in zip(*one.n, strict=True)]
    in_the_cloud = [row for row in found if row["place"] == "cloud" and "nearby" in row["view"]]
    assert sorted(back) == world.identities(in_the_cloud) != []


def test_limits_and_the_end_of_a_query_that_ends(broker: Any) -> None:
    from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

    feed(broker, 1, 12_000)
    source = reader(broker, max_rows=7)
    assert source.getDefaultReadLimit() == ReadMaxRows(7)
    start = source.initialOffset()
    assert (start["gen"], start["seq"]) == (0, 0)
    middle = source.latestOffset(start, ReadMaxRows(7))
    assert read(source, start, middle) == list(range(1, 8))
    source.prepareForTriggerAvailableNow()
    feed(broker, 12_001, 12_005)
    end = source.latestOffset(middle, ReadAllAvailable())
    assert len(source.partitions(middle, end)) == 3
    assert read(source, middle, end) == list(range(8, 12_001))
    assert source.latestOffset(end, ReadMaxRows(7)) == end
    assert read(source, end, end) == []


def test_a_stream_that_was_full_takes_frames_once_a_query_has_them(
    broker: Any, tmp_path: Path
) -> None:
    from pyspark.sql.streaming.datasource import ReadMaxRows

    from anabranch.edge.frames import Down, encode_down
    from anabranch.edge.wishes import Wishes
    from anabranch.spark.follow_source import Followed, asking

    frame = encode_down(Down(0, 0, -1, extras={"filled": "x" * 1000}))

    async def fill(stream: Any) -> int:
        from nats.js.api import DiscardPolicy, StreamConfig
        from nats.js.errors import APIError

        bounds = {"discard": DiscardPolicy.NEW, "max_bytes": 20_000}
        await stream.add_stream(StreamConfig(name="IN", subjects=["in.*"], **bounds))
        for count in range(100):
            try:
                await stream.publish(f"in.{count % 2}", frame)
            except APIError:
                return count
        raise AssertionError("it is not bounded")

    count = with_stream(broker, fill)
    assert count > 10 and with_stream(broker, fill) == 0
    given = options(broker, **asking(str(tmp_path), Wishes()))
    source: Any = Followed(given).streamReader(None)  # type: ignore[arg-type]
    start = source.initialOffset()
    end = source.latestOffset(start, ReadMaxRows(100))
    assert end["seq"] == count
    source.latestOffset(end, ReadMaxRows(100))  # Spark asks again when its checkpoint has them
    assert with_stream(broker, lambda stream: stream.stream_info("IN")).state.messages == 2
    assert with_stream(broker, fill) == count - 2
    again: Any = Followed(given).streamReader(None)  # type: ignore[arg-type]
    with pytest.raises(StateMismatch, match="the next message to read is 1"):
        again.latestOffset(start, ReadMaxRows(100))  # a new checkpoint cannot have them
    more = source.latestOffset(end, ReadMaxRows(100))
    assert [part.first for part in source.partitions(end, more)] == [count + 1]


def test_what_is_refused(broker: Any, tmp_path: Path) -> None:
    from pyspark.sql.streaming.datasource import ReadAllAvailable

    everything = ReadAllAvailable()
    with pytest.raises(StateMismatch, match="there is no stream IN at"):
        reader(broker).initialOffset()
    feed(broker, 1, 20)
    source = reader(broker)
    start = source.initialOffset()
    end = source.latestOffset(start, everything)
    # The broker's store is set back, as by a power cut.
    broker.stop()
    shutil.copytree(broker.hub.folder / "store", tmp_path / "store")
    broker.start()
    feed(broker, 21, 30)
    later = source.latestOffset(end, everything)
    broker.kill()
    shutil.rmtree(broker.hub.folder / "store")
    shutil.copytree(tmp_path / "store", broker.hub.folder / "store")
    broker.start()
    for call in (
        lambda: source.latestOffset(later, everything),
        lambda: source.partitions(end, later),
    ):
        with pytest.raises(StateMismatch, match=r"went back: its last message is 20, .* 30"):
            call()
    assert read(source, start, end) == list(range(1, 21))
    # Some messages are removed, one of them in the middle.
    with_stream(broker, lambda stream: stream.delete_msg("IN", 15))
    with pytest.raises(StateMismatch, match="has no message 15, but 16"):
        read(source, start, end)
    with_stream(broker, lambda stream: stream.purge_stream("IN", keep=10))
    with pytest.raises(StateMismatch, match="begins at 10, the next message to read is 1"):
        source.latestOffset(start, everything)
    # The stream is another one of that name; a new generation begins with its first message.
    remove(broker)
    feed(broker, 1, 40)
    for call in (
        lambda: source.latestOffset(end, everything),
        lambda: source.partitions(start, end),
    ):
        with pytest.raises(StateMismatch, match="its numbers mean other messages"):
            call()


def test_a_new_generation_is_read_from_its_beginning(broker: Any) -> None:
    from pyspark.sql.streaming.datasource import ReadAllAvailable

    feed(broker, 1, 20)
    before = reader(broker)
    old = before.latestOffset(before.initialOffset(), ReadAllAvailable())
    remove(broker)

    async def open_generation(stream: Any) -> None:
        from nats.js.api import StreamConfig

        await stream.add_stream(StreamConfig(name="IN-1", subjects=["in.*"]))
        for number in range(1, 6):
            await stream.publish(f"in.{number % 2}", b"%d" % number)

    with_stream(broker, open_generation)
    after = reader(broker, generation=1)
    end = after.latestOffset(old, ReadAllAvailable())
    assert (end["gen"], end["seq"]) == (1, 5)
    assert read(after, old, end) == [1, 2, 3, 4, 5]
    with pytest.raises(StateMismatch, match="set generation=1"):
        before.partitions(old, end)


def test_wrong_options() -> None:
    for wrong, words in (
        ({}, "url is missing"),
        ({"url": "nats://x", "max_rows": "0"}, "max_rows must be a whole number of at least 1"),
        ({"url": "nats://x", "generation": "a"}, "generation must be a whole number of at least 0"),
        ({"url": "nats://x", "rows": "1"}, r"unknown options .*rows"),
    ):
        with pytest.raises(InvalidCall, match=words):
            JetStream(wrong).streamReader(None)  # type: ignore[arg-type]
