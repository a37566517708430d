"""An agent without a hub: it keeps what is put, says what it cannot keep, and is light."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from datetime import date, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("nats", reason="pip install 'anabranch[edge]'")

from anabranch.edge import Agent
from anabranch.edge.certificates import client_context, issue, make_authority
from anabranch.edge.definitions import Stream
from anabranch.edge.outbox import Outbox, OutboxFull
from anabranch.errors import AnabranchError, InvalidCall

NOWHERE = "tls://127.0.0.1:9"


@pytest.fixture(scope="module")
def credentials(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("authority")
    make_authority(folder)
    issue(folder, folder / "alice", "alice")
    return folder / "alice"


def agent(credentials: Path, folder: Path, **options: Any) -> Agent:
    return Agent("alice", broker=NOWHERE, credentials=credentials, folder=folder, **options)


def test_rows_are_kept_without_a_connection(credentials: Path, tmp_path: Path) -> None:
    async def story() -> None:
        for count in (3, 2):
            async with agent(credentials, tmp_path) as made:
                await asyncio.gather(*(made.put("gps", xy=[0.5, k]) for k in range(count)))
                assert not made.connected

    asyncio.run(story())
    box = Outbox(tmp_path)
    rows = list(box.load()[1])
    first = box.incarnation << 32
    box.close()
    assert [row.n - first for row in rows] == [0, 1, 2, 3, 4]
    assert [row.values["xy"][1] for row in rows] == [0, 1, 2, 0, 1]
    assert {row.stamp for row in rows} == {None}


def test_a_full_outbox_raises_or_thins(credentials: Path, tmp_path: Path) -> None:
    async def story() -> None:
        async with agent(credentials, tmp_path, limit=200_000) as made:
            with pytest.raises(OutboxFull, match="the outbox is full"):
                for _ in range(100):
                    await asyncio.gather(*(made.put("log", text="x" * 1000) for _ in range(50)))
        async with agent(credentials, tmp_path, limit=200_000, full="thin") as made:
            await made.put("log", text="y")
            assert made.dropped == {"log[alice]": 1}

    asyncio.run(story())


def test_a_full_disk_refuses_rows_and_takes_them_again(credentials: Path, tmp_path: Path) -> None:
    """Nothing of what was refused is kept, and the agent goes on by itself once there is room."""
    kept: list[int] = []

    async def story() -> None:
        async with agent(credentials, tmp_path) as made:
            made._box._base.execute("PRAGMA max_page_count = 40")
            refused = 0
            for n in range(300):
                try:
                    await made.put("log", n=n, text="x" * 20_000)
                    kept.append(n)
                except OutboxFull as error:
                    assert f"the disk of {tmp_path} is full" in str(error)
                    refused += 1
                    if refused == 3:
                        made._box._base.execute("PRAGMA max_page_count = 1000000")
                if len(kept) > 20:
                    break
            assert refused == 3 and made._error is None

    asyncio.run(story())
    box = Outbox(tmp_path)
    rows = list(box.load()[1])
    box.close()
    assert [row.values["n"] for row in rows] == kept and len(kept) > 10
    assert [row.n for row in rows] == list(range(len(rows)))  # no number is left out


def test_times_must_not_go_back(credentials: Path, tmp_path: Path) -> None:
    async def story() -> None:
        async with agent(credentials, tmp_path) as made:
            await made.put("gps", x=1.0)
            with pytest.raises(InvalidCall, match="time goes back"):
                await made.put("gps", time=1_000_000, x=1.0)
            with pytest.raises(InvalidCall, match="time must have a time zone"):
                await made.put("gps", time=datetime(2026, 1, 1), x=1.0)

    asyncio.run(story())


@pytest.mark.parametrize("full", [False, True])
def test_a_put_that_cannot_be_is_refused_before_anything_else(
    credentials: Path, tmp_path: Path, full: bool
) -> None:
    """Also of a stream with a tick, and where a full outbox would drop it."""

    async def story() -> None:
        async with agent(credentials, tmp_path, full="thin") as made:
            tick = Stream("gps[alice]", "alice", {"x": "double"}, tick=1_000_000)
            made._state.stream("gps[alice]").declared = tick
            made._box.limit = 1 if full else made._box.limit
            for wrong in (1.5, "x", True, -1, 1 << 70, date(2026, 1, 1), float("nan")):
                with pytest.raises(InvalidCall, match="whole microseconds since 1970, got"):
                    await made.put("gps", time=wrong, x=1.0)  # type: ignore[arg-type]
            for stream in (None, 5, "", b"gps"):
                with pytest.raises(InvalidCall, match="stream must be the name of a feed"):
                    await made.put(stream, x=1.0)  # type: ignore[arg-type]
            with pytest.raises(InvalidCall, match="column 'x' must be a finite number"):
                await made.put("gps", x="fast")
            assert not made.dropped

    asyncio.run(story())


def test_values_that_cannot_be_kept_are_refused_and_numpys_are_kept(
    credentials: Path, tmp_path: Path
) -> None:
    """A view may not have asked for the stream yet; nothing of it may stop the agent."""
    good = {
        "whole": np.int64(3),
        "real": np.float32(0.5),
        "yes": np.bool_(True),
        "xy": np.array([1.0, 2.0]),
        "mixed": (np.int32(1), 2.5),
    }

    async def story() -> None:
        async with agent(credentials, tmp_path) as made:
            large = np.array([1, 1 << 63], np.uint64), np.array([0.1], np.longdouble)
            strange = (None, object(), {"a": 1}, 1 << 70, "\ud800", b"x", ["a"], np.eye(2))
            for wrong in (*strange, *large):
                with pytest.raises(InvalidCall, match="column 'x' must be a text, a boolean,"):
                    await made.put("gps", x=wrong)
            await made.put("gps", time=np.int64(1 << 60), **good)  # type: ignore[arg-type]
            assert made._error is None

    asyncio.run(story())
    box = Outbox(tmp_path)
    [row] = box.load()[1]
    box.close()
    kept = {"whole": 3, "real": 0.5, "yes": True, "xy": [1.0, 2.0], "mixed": [1, 2.5]}
    assert row.values == kept and row.t == 1 << 60


def test_a_row_without_a_time_is_taken_though_the_clock_went_back(
    credentials: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a stream that was quiet, and whose watermark went on with the clock."""
    now = [2_000_000_000_000_000]
    monkeypatch.setattr("anabranch.edge.agent._now", lambda: now[0])

    async def story() -> None:
        async with agent(credentials, tmp_path) as made:
            await made.put("gps", x=1.0)
            now[0] += 60_000_000
            made._state.flush(now[0])
            now[0] -= 3_600_000_000
            await made.put("gps", x=2.0)
            own = made._state.stream("gps[alice]")
            assert own.newest == 2_000_000_000_000_000 + 59_000_001

    asyncio.run(story())


def test_a_full_disk_takes_back_neither_a_bye_nor_what_was_dropped(
    credentials: Path, tmp_path: Path
) -> None:
    """Both have happened in this process, whatever becomes of the rows that wait."""

    async def story() -> None:
        async with agent(credentials, tmp_path) as made:
            made._state._seen = 0  # the cloud has been heard
            await made._enqueue(made._state.leave())
            assert made._state._presence.left and not made._state._presence.waiting
            made._state.stream("gps[alice]").dropped = 3
            made._undo(OutboxFull("full"))
            assert made._state.stream("gps[alice]").dropped == 3
            assert made._state._presence.left and made._state._presence.due() == {}
        async with agent(credentials, tmp_path) as made:
            made._undo(OutboxFull("full"))  # before it could say that it is back
            assert made._state._presence.due() == {"bye": False}

    asyncio.run(story())


def test_a_wrong_call_names_all_problems(credentials: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidCall, match="2 problems") as error:
        agent(credentials, tmp_path, full="drop", flush="soon")
    assert "full must be 'raise' or 'thin'" in str(error.value)
    with pytest.raises(InvalidCall, match="4 problems"):
        Agent("alice", broker=5, credentials=3, folder=None, limit=1.5)  # type: ignore[arg-type]
    made = agent(credentials, tmp_path)
    with pytest.raises(InvalidCall, match="2 problems"):
        made.on(None, "print")  # type: ignore[arg-type]


def test_a_folder_without_credentials_is_named(tmp_path: Path) -> None:
    with pytest.raises(AnabranchError, match="there are no credentials in"):
        client_context(tmp_path)


def test_a_device_needs_little() -> None:
    code = """
import pathlib, sys, anabranch.edge.agent
heavy = {"numba", "scipy", "pyarrow", "pandas", "pyspark", "typer", "rich"} & sys.modules.keys()
pages = int(pathlib.Path("/proc/self/statm").read_text().split()[1])
print(len(heavy), pages * 4)
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    heavy, kilobytes = map(int, run.stdout.split())
    assert heavy == 0
    assert kilobytes < 45_000


def test_a_device_runs_with_three_packages(credentials: Path, tmp_path: Path) -> None:
    """Those that docs/edge.md installs beside anabranch, which is installed without its own."""
    page = (Path(__file__).parents[2] / "docs" / "edge.md").read_text()
    _, _, rest = page.partition("pip install --no-deps anabranch\npip install ")
    packages = [re.split(r"[<>=]", word.strip("'"))[0] for word in rest.splitlines()[0].split()]
    assert packages == ["numpy", "msgpack", "nats-py"]
    project = (Path(__file__).parents[2] / "pyproject.toml").read_text()
    assert all(f'"{word}"' in project for word in re.findall(r"'(\S+)'", rest.splitlines()[0]))
    code = f"""
import asyncio, sys

class Nothing:
    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        if top not in {{*sys.stdlib_module_names, "anabranch", "numpy", "msgpack", "nats"}}:
            raise ModuleNotFoundError(f"there is no {{top}} here", name=top)

sys.meta_path.insert(0, Nothing())
from anabranch.edge import Agent

async def story():
    options = {{"credentials": {str(credentials)!r}, "folder": {str(tmp_path)!r}}}
    async with Agent("alice", broker={NOWHERE!r}, **options) as agent:
        agent.on("nearby", print)
        await agent.put("gps", xy=[1.0, 2.0])

asyncio.run(story())
"""
    subprocess.run([sys.executable, "-c", code], check=True)
    box = Outbox(tmp_path)
    assert [row.values["xy"] for row in box.load()[1]] == [[1.0, 2.0]]
    box.close()


def test_what_a_commit_takes_is_part_of_the_flush(
    credentials: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So no row waits for longer; a flush that is missed is not made up for."""
    now, flushed, commits = 100.0, list[float](), iter([0.3, 0.0, 2.5, 0.2, 0.2])

    async def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds

    async def commit(_: Any) -> None:
        nonlocal now
        flushed.append(now)
        now += next(commits)

    async def story() -> None:
        async with agent(credentials, tmp_path) as made:
            monkeypatch.setattr("anabranch.edge.agent.clock.monotonic", lambda: now)
            monkeypatch.setattr("anabranch.edge.agent.asyncio.sleep", sleep)
            monkeypatch.setattr(made, "_enqueue", commit)
            with pytest.raises(RuntimeError, match="StopIteration"):
                await made._flushing()
            monkeypatch.undo()

    asyncio.run(story())
    assert flushed == pytest.approx([101.0, 102.0, 103.0, 105.5, 106.5, 107.5])
