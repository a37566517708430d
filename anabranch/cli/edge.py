"""``anabranch edge``: the hub, its devices, and a demo of both.

``register(app)`` adds the commands to a Typer application.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import typer

from anabranch.errors import AnabranchError, extra

__all__ = ["register"]

edge = typer.Typer(
    help="Devices and the hub that serves them: views run where their data costs least to move.",
    no_args_is_help=True,
)
_HUB = typer.Argument(help="The hub's folder, made by `anabranch edge init`.")
_LISTEN = typer.Option(help="Address and port of the broker.")


def register(app: typer.Typer) -> None:
    """Add the commands to an application."""
    app.add_typer(edge, name="edge")


@contextmanager
def _told() -> Iterator[None]:
    """What goes wrong is said in one line, with exit code 2."""
    try:
        with extra("edge", "anabranch edge", "nats"), extra("edge", "anabranch edge", "msgpack"):
            import msgpack  # noqa: F401
            import nats  # noqa: F401
        yield
    except AnabranchError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(2) from None
    except KeyboardInterrupt:
        raise typer.Exit(130) from None


@edge.command()
def init(
    hub: Annotated[Path, typer.Argument(help="A folder that is empty or not there yet.")],
    host: Annotated[
        list[str], typer.Option(help="A name or address under which devices reach the hub.")
    ] = ["localhost", "127.0.0.1"],  # noqa: B006
) -> None:
    """Make a hub: its authority, the broker's users and settings, an empty log of placements."""
    from anabranch.edge.hub import Hub

    with _told():
        made = Hub.create(hub, host)
        typer.echo(f"a hub in {made.folder}, reached as {', '.join(host)}")
        typer.echo(f"next: anabranch edge enrol {hub} DEVICE; anabranch edge serve {hub}")


@edge.command()
def enrol(
    hub: Annotated[Path, _HUB],
    devices: Annotated[list[str], typer.Argument(help="Names: letters, digits, - and _.")],
    out: Annotated[
        Path | None, typer.Option(help="Move the credentials here, a folder for each device.")
    ] = None,
) -> None:
    """Let devices in, at once: a key and a certificate for each, to be carried there."""
    from anabranch.edge.hub import Hub

    with _told():
        made = Hub(hub)
        if out is not None:
            _refuse_out(out, devices)  # before anybody is let in, who then has no credentials
        for folder in made.enrol(*devices):
            if out is not None:
                try:
                    folder = Path(shutil.move(folder, out / folder.name))
                except OSError as error:
                    raise AnabranchError(
                        f"{folder.name} is enrolled, and {folder} cannot be moved to {out} "
                        f"({error.strerror}): carry it from there"
                    ) from None
            typer.echo(f"{folder.name}: credentials in {folder}")


def _refuse_out(out: Path, devices: list[str]) -> None:
    """Make a folder for credentials; raise if they cannot be put there."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=out):
            pass
    except OSError as error:
        raise AnabranchError(
            f"--out: credentials cannot be put into {out} ({error.strerror}): name a folder, or "
            "one that can be made"
        ) from None
    there = [str(out / name) for name in devices if (out / name).exists()]
    if there:
        raise AnabranchError(
            f"--out: there is something at {', '.join(dict.fromkeys(there))}: move it away, or "
            "name another folder"
        )


@edge.command()
def revoke(
    hub: Annotated[Path, _HUB],
    devices: Annotated[list[str], typer.Argument(help="Names of enrolled devices.")],
) -> None:
    """Lock devices out, at once. Enrolled again, they need the new credentials."""
    from anabranch.edge.hub import Hub

    with _told():
        Hub(hub).revoke(*devices)
        typer.echo(f"{', '.join(devices)} may no longer connect")


@edge.command()
def agent(
    device: Annotated[str, typer.Argument(help="Its name, as it was enrolled.")],
    broker: Annotated[str, typer.Option(help="Address of the hub: tls://host:4222.")],
    credentials: Annotated[Path, typer.Option(help="The folder that `enrol` made.")],
    folder: Annotated[Path, typer.Option(help="Where rows are kept until the cloud has them.")],
    view: Annotated[list[str] | None, typer.Option(help="Print the results of this view.")] = None,
    flush: Annotated[str, typer.Option(help="How long a row may wait for others.")] = "1 second",
) -> None:
    """Run a device: rows as JSON lines on standard input, results as JSON lines on the output.

    A line is {"stream": "gps", "xy": [1.0, 2.0]}; "time", in microseconds, is now if it is not
    given. The next line is read when the row is durable, so lines wait if the disk does.
    """
    with _told():
        from anabranch.edge.agent import Agent

        made = Agent(device, broker=broker, credentials=credentials, folder=folder, flush=flush)
        for name in view or []:
            made.on(name, lambda result: typer.echo(json.dumps(result)))
        asyncio.run(_feed(made))


async def _feed(made: Any) -> None:
    async with made:
        while line := await asyncio.to_thread(sys.stdin.readline):
            try:
                values = json.loads(line)
                stream = values.pop("stream")
            except (ValueError, KeyError, AttributeError, TypeError):
                raise AnabranchError(
                    f'a line must be JSON with a "stream", got {line.strip()[:80]!r}'
                ) from None
            await made.put(stream, **values)
        await made.drained()
        for stream, count in made.unfit.items():
            typer.echo(f"{stream}: {count:,} rows do not fit and are left out", err=True)


@edge.command()
def serve(
    hub: Annotated[Path, _HUB],
    listen: Annotated[str, _LISTEN] = "0.0.0.0:4222",
    sync_interval: Annotated[
        str, typer.Option(help="How often the broker syncs its store: a power cut loses less.")
    ] = "1s",
    buckets: Annotated[
        int, typer.Option(min=1, help="Keys of the cloud's state; fixed once anything has run.")
    ] = 4,
) -> None:
    """Run a hub, until Ctrl-C: broker, relay and keeper. Views come from `ab.follow`."""
    with _told():
        from anabranch.cli.steered import Steered
        from anabranch.edge.broker import running
        from anabranch.edge.hub import Hub
        from anabranch.edge.serving import Cloud

        made = Hub(hub)
        with running(made, listen, sync_interval=sync_interval) as broker:
            signal.signal(signal.SIGTERM, signal.default_int_handler)  # the broker ends with it
            typer.echo(f"serving {len(made.devices())} devices at {broker.address}")
            typer.echo(f"control={made.control}, credentials={made.cloud}")
            cloud = Cloud(made, broker.address, buckets=buckets, decide=Steered())
            asyncio.run(cloud.run())


@edge.command()
def recover(
    hub: Annotated[Path, _HUB],
    buckets: Annotated[
        int, typer.Option(min=1, help="Keys of the cloud's state, if `serve` never wrote it down.")
    ] = 4,
) -> None:
    """Heal a hub whose broker has lost messages, by a power cut or a store put back from a backup.

    Stop `serve` before. New streams are opened, with what is left of the old ones; devices and the
    query then send again what they keep, and everybody drops what they have had. Restore the
    broker's store alone, never HUB/control. Start the query again if it has stopped.
    """
    with _told():
        from anabranch.edge.broker import running
        from anabranch.edge.hub import Hub
        from anabranch.edge.recovering import Recovery
        from anabranch.edge.streams import connect

        made = Hub(hub)
        if made.running() is not None:
            raise AnabranchError(
                f"the broker of {made.folder} runs, and recovering needs its store: stop serving "
                "first"
            )

        async def run(address: str) -> list[str]:
            client = await connect(address, made.cloud, "recover")
            try:
                recovery = Recovery(client, made.folder, made.control, buckets)
                return (await recovery.run()).lines()
            finally:
                await client.close()

        with running(made) as broker:  # on a port that devices do not know
            for line in asyncio.run(run(broker.address)):
                typer.echo(line)


@edge.command()
def demo(
    devices: Annotated[int, typer.Option(min=4, help="How many there are.")] = 100,
    seconds: Annotated[
        float, typer.Option(min=60, help="How long; their rates change after half of it.")
    ] = 180,
) -> None:
    """Watch devices find out who is near, while views move to where that costs least.

    Starts a broker, relay and keeper, devices and a query on Spark, all on this machine. After half
    of the time busy devices become quiet and quiet ones busy, and views move by themselves. At the
    end all results are compared with the batch answer over all rows.

    Exit code: 0 if they are the same, 1 if not.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    with _told():
        from rich.console import Console

        from anabranch.cli.steered import Steered
        from anabranch.spark.demo.edge import run_edge_demo

        raise typer.Exit(run_edge_demo(devices, seconds, Steered(), Console()))


@edge.command()
def lab(
    devices: Annotated[int, typer.Option(min=4, help="How many there are.")] = 100,
    workload: Annotated[
        str, typer.Option(help="friends: of the RACE paper; sampled: shares of rows that differ.")
    ] = "friends",
    flush: Annotated[str, typer.Option(help="How long a row may wait for others.")] = "1 second",
    round_trip: Annotated[
        float, typer.Option(min=0, help="Milliseconds to the broker and back.")
    ] = 80.0,
    seconds: Annotated[float, typer.Option(min=5, help="Of each of two phases.")] = 20.0,
    slower: Annotated[float, typer.Option(min=0, help="Times as long between rows.")] = 1.0,
    processes: Annotated[int, typer.Option(min=1, help="That run the devices.")] = 1,
    out: Annotated[Path | None, typer.Option(help="Write all that was counted here.")] = None,
) -> None:
    """Measure a hub and its devices on this machine: bytes, latency, adoption, CPU.

    Between devices and broker is a line with a delay; no root is needed. Every number has its goal
    beside it. Exit code: 0 if all are met, 1 if not.
    """
    with _told():
        from anabranch.cli.steered import Steered
        from anabranch.testing.lab.report import measure

        asked = {"devices": devices, "workload": workload, "flush": flush, "seconds": seconds}
        more = {"round_trip": round_trip / 1e3, "slower": slower, "processes": processes}
        raise typer.Exit(asyncio.run(measure({**asked, **more}, out, typer.echo, Steered)))
