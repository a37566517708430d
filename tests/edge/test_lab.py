"""The lab: its line counts what sockets carry, and devices send what the plan says, row for row."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("nats", reason="pip install 'anabranch[edge]'")

from anabranch.cli.steered import Steered
from anabranch.edge.book import Book
from anabranch.edge.definitions import Stream, View
from anabranch.edge.keeper_state import KeeperState
from anabranch.edge.ownership import Boundary
from anabranch.edge.placements import Entry
from anabranch.testing.lab import measures, report
from anabranch.testing.lab.delays import Heard, delay_goals, spans_of
from anabranch.testing.lab.lab import Lab, Reading
from anabranch.testing.lab.line import Line
from anabranch.testing.lab.measures import Goal, Load, _load, _predicted, _sizes, within
from anabranch.testing.lab.results import expected
from anabranch.testing.lab.workload import Workload

HOUR = 3600.0


def test_a_line_delays_and_counts_both_ways() -> None:
    delays: list[float] = []

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1000):
            writer.write(2 * data)
        writer.close()

    async def story() -> None:
        loop = asyncio.get_running_loop()

        def at_once(delay: float, callback: Any, *given: Any) -> asyncio.Handle:
            """The clock of the line, which jumps."""
            delays.append(delay)
            return loop.call_soon(callback, *given)

        loop.call_later = at_once  # type: ignore[method-assign,assignment]
        server = await asyncio.start_server(echo, "127.0.0.1", 0)
        line = Line(server.sockets[0].getsockname()[:2], HOUR)
        reader, writer = await asyncio.open_connection("127.0.0.1", await line.serve())
        for times, size in ((2, 100), (4, 7)):
            writer.write(bytes(size))
            assert await reader.readexactly(2 * size) == bytes(2 * size)
            assert delays.count(HOUR) >= times  # there and back
        counts = line.counts()
        assert counts["up"] == 107 and counts["connections"] == counts["open"] == 1
        assert counts["up_packets"] >= 2 and counts["down_packets"] >= 2
        line.ends.copy().pop().end()
        assert await reader.read() == b""  # the end of the connection
        after = line.counts()
        assert after["open"] == 0 and after["up"] == 107  # what was carried is not forgotten
        line.close()
        writer.close()
        await writer.wait_closed()
        server.close()
        await server.wait_closed()

    asyncio.run(story())


def test_a_line_that_is_cut_lets_nobody_through_for_a_while() -> None:
    heard: list[str] = []

    async def hear(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append("begin")
        with suppress(ConnectionError):
            await reader.read()
            writer.close()
            await writer.wait_closed()
        heard.append("end")

    async def until(holds: Callable[[], bool]) -> None:
        while not holds():
            await asyncio.sleep(0)

    async def story() -> None:
        server = await asyncio.start_server(hear, "127.0.0.1", 0)
        line = Line(server.sockets[0].getsockname()[:2], 0.0)
        port = await line.serve()
        ends = [await asyncio.open_connection("127.0.0.1", port) for _ in range(4)]
        await until(lambda: heard.count("begin") == 4)
        line.cut(0.5, HOUR)
        await until(lambda: len(line.ends) == 2)
        ends.append(await asyncio.open_connection("127.0.0.1", port))
        with suppress(ConnectionError):
            assert await ends[-1][0].read() == b""
        assert line.is_cut and line.connections == 4
        line.cut(0.0, 0.0)
        ends.append(await asyncio.open_connection("127.0.0.1", port))
        await until(lambda: heard.count("begin") == 5)
        assert not line.is_cut and len(line.ends) == 3
        line.close()
        for reader, writer in ends:
            with suppress(ConnectionError):
                await reader.read()
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()
        server.close()
        await server.wait_closed()
        await until(lambda: heard.count("end") == 5)
        for _ in range(20):  # lines have ends without a word of their own
            await asyncio.sleep(0)

    asyncio.run(story())


def test_rows_that_are_due_are_those_of_each_view_and_link() -> None:
    pairs, shares = np.array([[0, 1], [0, 2]]), np.array([[1.0, 0.25], [0.5, 1.0]])
    workload = Workload(pairs, shares, np.ones(3))
    rows = {str(device): (np.arange(32) * 1_000_000).tolist() for device in range(3)}
    counted = workload.counted(rows, 32.0)
    assert counted.tolist() == shares.tolist()
    # The first view at device 1 and the second in the cloud: device 0 sends all of its rows, of
    # which device 1 gets all, and device 2 sends all.
    places = {workload.name(0): "d00001", workload.name(1): "cloud"}
    load = _load(workload, places, rows, 32.0, 2.0)
    assert load.rows == pytest.approx(32 * (1.0 + 1.0 + 1.0))
    assert load.up_frames == pytest.approx(32 * (0.5 + 0.5))  # one every two seconds


def test_a_phase_is_predicted_from_its_rates_and_the_phase_before() -> None:
    """With twice the rows, in as many frames since a flush limits them, or in twice as many."""
    counts = {"up_frames": 100, "down_frames": 50, "sections": 150, "up_rows": 100, "down_rows": 50}
    bytes_ = {"up": 9000, "down": 4000, "up_payload": 6000, "down_payload": 3000}
    others = dict.fromkeys(("up_packets", "down_packets", "broker_memory", "cloud_memory"), 10)
    times: dict[str, Any] = {"seconds": 10.0, "broker_cpu": 0.1, "cloud_cpu": 0.1, "open": 3}
    one = Reading(**counts, **bytes_, **others, **times, lone=0)
    first = Load(150, 100, 45, 140)
    same = _predicted(one, first, first, 0)
    assert same["payload"] == pytest.approx(9000) and same["wire"] == pytest.approx(one.wire)
    fuller = _predicted(one, first, Load(300, 100, 45, 140), 0)
    double = _predicted(one, first, Load(300, 200, 90, 280), 0)
    assert double["payload"] == pytest.approx(2 * same["payload"])
    assert double["wire"] == pytest.approx(2 * same["wire"])
    second = replace(first, up_frames=180)
    assert double["up_frames"] == 200 and fuller["up_frames"] == 100
    assert same["payload"] < fuller["payload"] < double["payload"]
    # Ten frames were without rows: as many come again, however many have rows.
    assert _predicted(one, replace(first, up_frames=90), second, 0)["up_frames"] == 190
    # Acknowledgements of all devices at once, in either half, are no traffic of rows.
    acked = replace(one, down_frames=50 + 60, lone=60)
    twice = Load(300, 200, 90, 280)
    assert _predicted(acked, first, twice, 0)["down_frames"] == 2 * 50
    assert _predicted(one, first, twice, 60)["down_frames"] == 2 * 50 + 60
    more = _predicted(one, first, twice, 60)["wire"] - double["wire"]
    assert more == pytest.approx(60 * (same["around"] + same["scale"] * _sizes()[1]))


def measured(
    monkeypatch: pytest.MonkeyPatch,
    workload: Workload,
    seconds: float,
    moves: int,
    ended: int = 0,
) -> tuple[dict[str, Any], list[float]]:
    """What `fleet` finds of a hub that is made up, and for how long rows were put each time.

    While the first `moves` of these last, views move from device 0 to device 1 and back: once in
    every two.
    """
    counted, puts = 0.0, list[float]()
    state = SimpleNamespace(counts={})

    class Hub:
        flush_seconds, cloud = 1.0, SimpleNamespace(relay=SimpleNamespace(state=state))

        async def __aenter__(self) -> Hub:
            return self

        async def __aexit__(self, *_: object) -> None:
            pass

        async def deploy(self, *_: object) -> int:
            return 0

        async def adoption(self, _: int) -> np.ndarray:
            return np.array([0.1, 0.1])

        def places(self) -> dict[str, str]:
            place = f"d{(min(len(puts), moves) + 1) // 2 % 2:05d}"
            return dict.fromkeys(map(workload.name, range(len(workload.pairs))), place)

        async def put(self, workload: Workload, seconds: float) -> dict[str, list[int]]:
            rows = {}
            puts.append(seconds)
            for device, period in enumerate(workload.periods.tolist()):
                rows[str(device)] = list(range(int(seconds / period)))
            return rows

        async def read(self) -> Reading:
            nonlocal counted
            counted += 100
            names = Reading.__dataclass_fields__
            counts: dict[str, Any] = {name: counted * (name != "open") for name in names}
            counts["ended"] = ended * counted
            return Reading(**counts)

    async def at_once(_: float) -> None:
        pass

    given: list[Any] = []
    monkeypatch.setattr(asyncio, "sleep", at_once)
    monkeypatch.setattr(measures, "Lab", lambda *_, **more: given.append(more["decide"]) or Hub())
    found = asyncio.run(measures.fleet(workload, seconds=seconds, decide=print))
    assert given == [print]
    return found, puts


def test_frames_are_of_the_time_in_which_rows_are_put(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reading ends later, when the last rows have come; nobody sends frames until then."""
    pairs = np.array([[0, 1], [1, 2]])  # both at 1, the busiest
    workload = Workload(pairs, np.ones((2, 2)), np.array([0.25, 0.2, 2.0]), tick=0)
    seconds = 16.0
    found, puts = measured(monkeypatch, workload, seconds, moves=1)
    assert puts == 3 * [measures.SETTLING, seconds]  # the first one again
    assert found["moved"] == {"first": False, "second": False}
    assert all("views moved" not in goal.what for goal in measures.goals(found))
    lone = next(goal for goal in measures.goals(found) if "lone acknowledgements" in goal.what)
    page = (Path(__file__).parents[2] / "docs" / "edge.md").read_text()
    assert lone.measured == found["second"]["lone"] and f"`{lone.what.strip()}`" in page
    # One a second of device 0 in either phase; of device 2 there are 8 in 16 seconds, before 4.
    assert found["predicted"]["up_frames"] == pytest.approx(100 + (16 + 8) - (16 + 4))


@pytest.mark.parametrize(("moves", "mixed"), [(2 * measures._PHASES, 1), (100, 2)])
def test_what_is_counted_while_views_move_is_a_goal_that_is_missed(
    monkeypatch: pytest.MonkeyPatch, moves: int, mixed: int
) -> None:
    """In either phase: the reading is of several placements, and what it says is of none."""
    pairs = np.array([[0, 1], [1, 2]])
    workload = Workload(pairs, np.ones((2, 2)), np.array([0.25, 0.2, 2.0]), tick=0)
    found, _ = measured(monkeypatch, workload, 16.0, moves)
    goals = [goal for goal in measures.goals(found) if goal.what.startswith("views moved while")]
    names = [f"views moved while the {phase} phase ran" for phase in ("first", "second")]
    assert [goal.what for goal in goals] == names[:mixed]
    assert all("MISSED" in goal.line() for goal in goals)


def test_views_begin_where_the_lab_says_and_are_steered_from_there(tmp_path: Path) -> None:
    """The hub's own decisions are a part of what is measured, as where it serves."""
    workload = Workload(np.array([[0, 1], [1, 2]]), np.ones((2, 2)), np.ones(3), tick=0)
    book, steered = Book(), Steered()
    keeper, counts = KeeperState(book), ("rows", "carried", "heard")
    relay = SimpleNamespace(
        state=SimpleNamespace(book=book), **{name: Counter[str]() for name in counts}
    )
    lab = Lab(3, decide=steered)
    lab.cloud = SimpleNamespace(  # type: ignore[assignment]
        keeper=SimpleNamespace(state=keeper, watermark=1),
        relay=relay,
        hub=SimpleNamespace(control=tmp_path),
        rates={},
    )

    async def written() -> int:
        steered._decide(lab.cloud, 0.0)
        entry = keeper.next_entry()
        assert entry is not None and [place for _, place in entry.views] == ["d00002", "cloud"]
        book.enact(entry)
        return 0

    lab._written = written  # type: ignore[method-assign]
    wanted = {workload.name(0): "d00002", workload.name(1): "cloud"}
    asyncio.run(lab.deploy(workload, wanted))
    assert lab.places() == wanted
    lab.cloud.rates |= {"gps[d00000]": 1.0, "gps[d00001]": 9.0, "gps[d00002]": 1.0}
    for second in range(1, 60):
        relay.heard = Counter({f"d{k:05d}": second for k in range(3)})
        steered._decide(lab.cloud, float(second))
    entry = keeper.next_entry()
    assert entry is not None and {place for _, place in entry.moves} == {"d00001"}


@pytest.mark.parametrize("kind", ["friends", "sampled"])
def test_workloads_have_each_pair_once_and_nobody_with_himself(kind: str) -> None:
    workload: Workload = getattr(Workload, kind)(50)
    assert (workload.pairs[:, 0] < workload.pairs[:, 1]).all()
    assert len(np.unique(workload.pairs, axis=0)) == len(workload.pairs) >= 50
    assert len(workload.plan().location) == len(workload.pairs)


def test_a_connection_that_is_lost_is_counted_and_is_a_goal_that_is_missed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The device connects again, and the run goes on."""
    counts = dict.fromkeys(Reading.__dataclass_fields__, 5)
    more = {**dict.fromkeys(counts, 9), "open": 4, "ended": 7}
    reading: dict[str, Any] = vars(Reading(**more).since(Reading(**counts)))
    assert (reading["open"], reading["ended"], reading["up"]) == (4, 2, 4)
    workload = Workload(np.array([[0, 1]]), np.ones((1, 2)), np.ones(3), tick=0)
    found, _ = measured(monkeypatch, workload, 16.0, moves=0, ended=1)
    lines = [goal.line() for goal in measures.goals(found) if "connections lost" in goal.what]
    assert len(lines) == 2 and all("MISSED" in line for line in lines)
    assert lines[0].startswith("connections lost in the first phase")


def test_who_has_not_adopted_a_placement_counts() -> None:
    lab = Lab(3)
    entry = Entry(0, written="1970-01-01T00:00:10+00:00")
    views, bounds = [View("v", "near", (0, 1)), View("w", "near", (0, 2))], Boundary(0, "cloud")
    streams = [Stream(name, name, {}) for name in ("ann", "bob", "cyd")]
    book = SimpleNamespace(views=views, bounds=[(bounds,)] * 2, streams=streams)
    lab.cloud = SimpleNamespace(  # type: ignore[assignment]
        keeper=SimpleNamespace(log=SimpleNamespace(entries=lambda: [entry])),
        relay=SimpleNamespace(state=SimpleNamespace(book=book)),
    )

    async def told(**_: Any) -> list[Any]:
        return [{"adopted": {"0": {"ann": 10.25, "bob": 10.5}}}]

    lab._order = told  # type: ignore[method-assign]
    found = asyncio.run(lab.adoption(0, patience=0.0)).tolist()
    assert found == [0.25, 0.5, np.inf]
    assert not Goal("95 % have adopted", within(found, 0.95), 1.0, "s").met


def test_an_order_is_waited_for_as_long_as_it_lasts() -> None:
    lab = Lab(1)
    lab._serving = SimpleNamespace(done=lambda: False)  # type: ignore[assignment]
    lab._fleets = [SimpleNamespace()]  # type: ignore[list-item]

    async def asked(_: Any, text: str, seconds: float = 0.0) -> float:
        return seconds

    lab._ask = asked  # type: ignore[method-assign]
    assert asyncio.run(lab._order(do="put", seconds=400.0)) == [400.0]
    assert asyncio.run(lab._order(do="tell")) == [0.0]


def test_a_directive_is_timed_from_the_report_that_called_for_it() -> None:
    """The newest of the streams that moved, of those before the entry; not one after it."""
    clock = iter([100.0, 107.0, 108.5, 110.0])
    heard = Heard(lambda cloud: None, lambda: next(clock))
    for rates in ({"a": 1.0, "b": 1.0}, {"a": 5.0, "b": 1.0}, {"a": 5.0, "c": 2.0}, {"a": 6.0}):
        heard(SimpleNamespace(rates=rates))
    entry = Entry(1, moves=((0, "ann"),), written="1970-01-01T00:01:49+00:00")
    assert spans_of(entry, heard, ["a", "b"], [0.25, np.inf]) == [2.25, None]
    assert spans_of(entry, heard, ["c"], [0.25]) == [0.75]
    assert spans_of(entry, heard, ["nobody"], [0.25]) == []
    found = {"p50": 0.1, "p99": 0.2}
    for spans, met in (([0.5] * 20, True), ([0.5] * 9 + [None], False), ([], False)):
        goals = delay_goals(found, found, {"spans": spans})
        assert [goal.met for goal in goals] == [True] * 4 + [met]


def test_the_lab_measures_all_that_has_a_goal(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Views in the cloud and reports too; what was found is written beside the goals."""
    asked: list[Any] = []

    async def timed(*given: Any, cloud: bool = False) -> dict[str, Any]:
        asked.append((given[0], cloud))
        return {"p50": 0.1, "p99": 0.2, "spans": [0.5]}

    async def whole(*_: Any) -> dict[str, Any]:
        return {}

    for name, by in (("latency", timed), ("directives", timed), ("fleet", whole)):
        monkeypatch.setattr(report, name, by)
    monkeypatch.setattr(report, "goals", lambda found: [])
    given = {"devices": 30, "workload": "friends", "flush": "1 second", "seconds": 9.0}
    said: list[str] = []
    more = {"round_trip": 0.08, "slower": 1.0, "processes": 1}
    out = tmp_path / "lab.json"
    assert asyncio.run(report.measure({**given, **more}, out, said.append, dict)) == 0
    assert asked == [(20, False), (20, True), (20, False)]
    assert sum("goal" in line for line in said) == 5
    assert {"latency", "latency in the cloud", "directives"} <= json.loads(out.read_text()).keys()


def test_a_goal_that_is_missed_says_so() -> None:
    assert "MISSED" in Goal("bytes", 171.0, 110.0).line() and not Goal("bytes", 171.0, 110.0).met
    assert "goal" not in Goal("bytes", 171.0, None).line()


@pytest.mark.services
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_devices_send_the_rows_that_the_plan_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from scripts.services.nats import server
    from tests.sinks.stories import needed

    monkeypatch.setenv("PATH", str(Path(needed(server)).parent), prepend=":")
    workload = replace(Workload.sampled(8, friends=2.0), periods=np.full(8, 0.5))
    location = dict(workload.plan().location)

    async def story() -> None:
        async with Lab(8, round_trip=0.02) as lab:
            epoch = await lab.deploy(workload, location)
            assert np.isfinite(await lab.adoption(epoch)).sum() == 8
            before = await lab.read()
            rows = await lab.put(workload, 6.0)
            await asyncio.sleep(3)
            found = (await lab.read()).since(before)
        due = _load(workload, location, rows, 1.0, lab.flush_seconds).rows
        assert found.up_rows + found.down_rows == round(due)
        assert found.up > found.up_payload > 0 and found.wire > found.up + found.down

    asyncio.run(story())


@pytest.mark.services
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_connections_that_are_cut_while_views_move_lose_and_double_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Half of all connections break, twice, and nobody comes back for some seconds."""
    from scripts.services.nats import server
    from tests.sinks.stories import needed

    monkeypatch.setenv("PATH", str(Path(needed(server)).parent), prepend=":")
    workload = replace(
        Workload.sampled(6, friends=1.5, near=400.05, window=2_000_000, deliver=("cloud",), tick=0),
        periods=np.full(6, 0.4),
    )
    names = list(map(workload.name, range(len(workload.pairs))))
    cloud = dict.fromkeys(names, "cloud")
    first = {name: f"d{a:05d}" for name, (a, _) in zip(names, workload.pairs, strict=True)}

    async def story() -> tuple[Any, Any, list[dict[str, str]], int]:
        async with Lab(6, round_trip=0.02, flush="0.5 seconds", ack_after=1.0) as lab:
            views = lab.watch()
            await lab.adoption(await lab.deploy(workload, cloud))
            at, places = asyncio.create_task(lab.put(workload, 24.0)), []
            for location in (first, cloud):
                await asyncio.sleep(3)
                await asyncio.gather(lab.cut(0.5, 4.0), lab.move(location))
                await asyncio.sleep(7)
                places.append(lab.places())
            await at
            await lab.settled(views)
            rows = await lab.kept()
            made = (await lab._ask(lab._line, ""))["connections"]
            assert made >= 6 + 2 * 3  # a device whose connection broke has made another
            return views.found, expected(workload, rows), places, sum(map(len, rows))

    found, due, places, rows = asyncio.run(story())
    assert places == [first, cloud] and rows >= 6 * 24 / 0.4 / 2
    assert len(due) > 100 and found == Counter(dict.fromkeys(due, 1))
