"""What the relay takes: of CPU a frame, alone and with a broker.

    python -m benchmarks.relay        # a minute; writes benchmarks/results/relay.json

500 devices with three friends each send a frame a second, all through one connection. Views are in
the cloud, or on devices, which then get the rows of their friends. The fold is the relay's state
machine with its codec; the rest is nats-py, TLS and asyncio. CPU seconds, not the clock: other work
on the machine still makes them longer.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from anabranch.edge.broker import running
from anabranch.edge.copies import checksum
from anabranch.edge.fetching import server
from anabranch.edge.frames import Up, decode_up, encode_down, encode_up
from anabranch.edge.hub import Hub
from anabranch.edge.placements import Entry
from anabranch.edge.relay_state import RelayState
from anabranch.edge.sections import Section
from anabranch.edge.serving import Cloud
from anabranch.edge.streams import connect
from anabranch.testing.lab.devices import name_of
from anabranch.testing.lab.workload import Workload
from benchmarks.origin import origin

RESULTS = Path(__file__).parent / "results" / "relay.json"
DEVICES, SECONDS, TICK = 500, 10, 25  # frames of a turn: those of 50 ms
INCARNATION = 7
BEGIN = 1_794_777_279_000_000


def entry(on_devices: bool) -> Entry:
    """Everybody compares with three friends."""
    rng = np.random.default_rng(1)
    pairs = rng.integers(0, DEVICES, (3 * DEVICES, 2))
    pairs = np.unique(np.sort(pairs[pairs[:, 0] != pairs[:, 1]], axis=1), axis=0)
    workload = Workload(pairs, np.ones(pairs.shape), np.ones(DEVICES))
    places = {
        workload.name(view): name_of(pair[1]) if on_devices else "cloud"
        for view, pair in enumerate(pairs.tolist())
    }
    streams, definitions, views = workload.wishes(places)
    return Entry(0, tuple(streams), tuple(definitions), tuple(views))


def frames(rows: int) -> list[tuple[str, bytes]]:
    """A frame of every device for each second; the first says that the entry was adopted."""
    adopted = Up(INCARNATION, 0, 0, -1, extras={"adopted": [[0, -1]]})
    found = [(name_of(device), encode_up(adopted)) for device in range(DEVICES)]
    before = {device: checksum(content) for device, (_, content) in enumerate(found)}
    rng = np.random.default_rng(2)
    for second in range(SECONDS):
        for device in range(DEVICES):
            t = BEGIN + (second * rows + np.arange(rows)) * 1_000_000 + device
            n = (INCARNATION << 32) + second * rows + np.arange(rows)
            xy = np.round(rng.uniform(0, 1000, (rows, 2)), 1)
            section = Section(device, 0, n, t, (xy,), int(t[-1]) - 1)
            up = Up(INCARNATION, second + 1, 0, second, (section,), before=before[device])
            found.append((name_of(device), encode_up(up)))
            before[device] = checksum(found[-1][1])
    return found


def folded(on_devices: bool, rows: int) -> dict[str, Any]:
    """The state machine and the codec, without a broker."""
    state = RelayState(4)
    state.entry(1, entry(on_devices))
    waiting, position, sent = frames(rows), 2, 0
    begun = 0.0
    for first in range(0, len(waiting), TICK):
        if first == DEVICES:  # all have adopted the entry
            begun, sent = time.process_time(), 0
        for device, content in waiting[first : first + TICK]:
            state.frame(position, device, decode_up(content))
            position += 1
        sent += len([encode_down(message.frame) for message in state.flush()])
    spent = time.process_time() - begun
    count = DEVICES * SECONDS
    return {"rows": rows, "us_a_frame": 1e6 * spent / count, "messages_a_frame": sent / count}


def _feed(address: str, credentials: Path, on_devices: bool) -> None:
    async def feed() -> None:
        client = await connect(address, credentials, "feed")
        form = json.dumps(entry(on_devices).to_dict()).encode()
        await client.publish("k", form)
        waiting = frames(1)
        for device, content in waiting[:DEVICES]:
            await client.publish(f"u.{device}", content)
        await client.flush()
        await asyncio.sleep(3)
        begun = time.monotonic()
        for number, (device, content) in enumerate(waiting[DEVICES:]):
            await client.publish(f"u.{device}", content)
            early = begun + number / DEVICES - time.monotonic()
            if early > 0.01:
                await asyncio.sleep(early)
        await client.flush()
        await client.close()

    asyncio.run(feed())


def _cpu(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def served(hub: Hub, address: str, broker: int, on_devices: bool) -> dict[str, Any]:
    """Relay and keeper in this process, with a broker and its streams."""
    cloud = Cloud(hub, address)
    serving = asyncio.create_task(cloud.run())
    await cloud.ready.wait()
    spawn = multiprocessing.get_context("spawn")
    feeder = spawn.Process(target=_feed, args=(address, hub.cloud, on_devices))
    feeder.start()
    last, state = 1 + DEVICES + DEVICES * SECONDS, cloud.relay.state
    while state.position < 1 + DEVICES:
        await asyncio.sleep(0.05)
    await asyncio.sleep(1)
    begun, own, other = time.monotonic(), time.process_time(), _cpu(broker)
    while state.position < last:
        await asyncio.sleep(0.05)
    seconds = time.monotonic() - begun
    own, other = time.process_time() - own, _cpu(broker) - other
    feeder.join()
    serving.cancel()
    count = DEVICES * SECONDS
    return {
        "seconds": seconds,
        "relay_us_a_frame": 1e6 * own / count,
        "broker_us_a_frame": 1e6 * other / count,
        # Of a core, at a frame a second of every device, however long it took.
        "percent_at_500": 100 * (own + other) / SECONDS,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.parse_args()
    results: dict[str, Any] = {
        "origin": origin(),
        "load": os.getloadavg()[0],
        "cores": os.cpu_count(),
    }
    for on_devices in (False, True):
        name = "on devices" if on_devices else "in the cloud"
        results[name] = {"fold": [folded(on_devices, rows) for rows in (1, 5)]}
        with tempfile.TemporaryDirectory() as folder:
            hub = Hub.create(Path(folder) / "hub", ["127.0.0.1"])
            with running(hub, program=server(print)) as broker:
                assert broker.process is not None
                story = served(hub, broker.address, broker.process.pid, on_devices)
                results[name] |= asyncio.run(story)
        print(name, results[name], flush=True)
    RESULTS.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
