"""What is measured in the lab, each with its goal beside it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from anabranch.calls import Check
from anabranch.edge.frames import Down, Up, encode_down, encode_up
from anabranch.edge.sections import Section
from anabranch.placement.placement import Placement
from anabranch.testing.lab.lab import Lab, Reading
from anabranch.testing.lab.workload import Workload

__all__ = ["SETTLING", "Goal", "Load", "fleet", "goals", "lasted", "within"]

_TICK = 0.05  # seconds that the relay gathers
SETTLING = 10.0  # seconds in which devices report new rates, before anything is counted
_PHASES = 4  # in which views may move, for each that is counted
_REST = 1.5  # seconds after which all that was put has been sent, on top of the flush


@dataclass(frozen=True)
class Goal:
    """A number that was measured, and the most that it may be; None if there is no goal."""

    what: str
    measured: float
    most: float | None
    unit: str = ""

    @property
    def met(self) -> bool:
        """Whether it is."""
        return self.most is None or self.measured <= self.most

    def line(self) -> str:
        """For people.

        Examples
        --------
        >>> print(Goal("wire a row", 98.25, 110, "bytes").line())
        wire a row                                  98.2 bytes   goal 110     met
        """
        goal = "" if self.most is None else f"goal {self.most:g}"
        verdict = "" if self.most is None else ("met" if self.met else "MISSED")
        return (
            f"{self.what:42} {_plain(self.measured):>5} {self.unit:7} {goal:12} {verdict}".rstrip()
        )


def _plain(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}" if value >= 0.01 else f"{value:.2f}"


async def fleet(
    workload: Workload,
    flush: str = "1 second",
    seconds: float = 20.0,
    processes: int = 1,
    round_trip: float = 0.08,
    decide: Any = None,
) -> dict[str, Any]:
    """Deploy views, then put rows twice: what adoption, bytes, CPU and memory come to.

    `decide` is given to `Cloud`, as `anabranch edge serve` does: views begin at the best places by
    their rates, and may move. Rows are counted once none does; if that never comes, a goal is
    missed, for what was counted is of several placements.
    Bytes of a row and of a frame are calibrated by the first half, in which devices have rows half
    as often, and predict the second from `plan.traffic()` at the rates of its rows.
    """
    plan = workload.plan()
    slow = replace(workload, periods=2 * workload.periods)
    async with Lab(
        workload.devices,
        round_trip=round_trip,
        flush=flush,
        processes=processes,
        decide=decide,
    ) as lab:
        before = await lab.read()
        epoch = await lab.deploy(workload, dict(plan.location))
        adopted = await lab.adoption(epoch)
        await asyncio.sleep(_REST)
        deployed = (await lab.read()).since(before)
        one, few, there, still = await _counted(lab, slow, seconds)
        two, rows, at, at_rest = await _counted(lab, workload, seconds)
        counts = dict(lab.cloud.relay.state.counts)
    first = _load(workload, there, few, seconds, lab.flush_seconds)
    second = _load(workload, at, rows, seconds, lab.flush_seconds)
    return {
        "devices": workload.devices,
        "views": len(workload.pairs),
        "on_devices": sum(place != "cloud" for place in at.values()),
        "moved": {"first": not still, "second": not at_rest},
        "flush": flush,
        "adoption": [round(one, 3) if np.isfinite(one) else None for one in adopted.tolist()],
        "deployment": {"wire": deployed.wire, "bytes": deployed.up + deployed.down},
        "rows_put": sum(map(len, rows.values())) / two.seconds,
        "rows_due": second.rows,
        "first": vars(one),
        "second": vars(two),
        "predicted": _predicted(one, first, second, two.lone),
        "counts": counts,
    }


async def _counted(
    lab: Lab, workload: Workload, seconds: float
) -> tuple[Reading, dict[str, list[int]], dict[str, str], bool]:
    """What a phase comes to, its rows, where views were, and whether they stayed there.

    It is counted from the start while any moves, a few times.
    """
    for _ in range(_PHASES):
        places = lab.places()
        await _rows(lab, workload, SETTLING)
        found, rows = await _rows(lab, workload, seconds)
        if still := lab.places() == places:
            break
    return found, rows, places, still


async def _rows(
    lab: Lab, workload: Workload, seconds: float
) -> tuple[Reading, dict[str, list[int]]]:
    before = await lab.read()
    rows = await lab.put(workload, seconds)
    await asyncio.sleep(lab.flush_seconds + _REST)
    return (await lab.read()).since(before), rows


def _load(
    workload: Workload,
    location: Mapping[str, str],
    rows: Mapping[str, list[int]],
    seconds: float,
    flush: float,
) -> Load:
    """What rows come to over all links, by `plan.traffic()` of these places at their rates.

    `seconds` is how long rows were put: what is counted ends later, when the last have arrived.
    """
    plan = workload.plan(workload.counted(rows, seconds), pin=location)
    return Load.of(plan, flush, seconds)


@dataclass(frozen=True)
class Load:
    """What a phase comes to by its rates: counts over all links, before anything is measured."""

    rows: float
    up_frames: float
    down_frames: float
    sections: float

    @classmethod
    def of(cls, plan: Placement, flush: float, seconds: float) -> Load:
        """Of a placement at the rates of its rows.

        A stream has a section in each frame, and a frame with each row, but one a flush at most.
        Sections that come to a mailbox within a tick of the relay share a frame.

        Examples
        --------
        >>> from anabranch.placement.call import place
        >>> needs = [("v", "a", 4.0), ("v", "b", 0.5)]
        >>> plan = place(needs, {"a": "A", "b": "B"}, 1.0, 1.0, pin={"v": "B"})
        >>> load = Load.of(plan, 1.0, 100.0)   # a goes up and down, in a frame a second
        >>> load.rows, load.up_frames, load.sections, round(load.down_frames, 1)
        (800.0, 100.0, 200.0, 97.5)
        """
        links = plan.traffic()
        rates, upward = links["rate"].to_numpy(), links["direction"].to_numpy() == "up"
        sent = np.minimum(rates, 1.0 / flush) if flush else rates
        _, device = np.unique(links["device"].to_numpy()[~upward], return_inverse=True)
        arriving = np.bincount(device, sent[~upward]) if len(device) else np.zeros(0)
        down = (1.0 - np.exp(-arriving * _TICK)) / _TICK
        sums = rates.sum(), sent[upward].sum(), down.sum(), sent.sum()
        return cls(*(float(one) * seconds for one in sums))

    @property
    def payload(self) -> float:
        """Bytes of these rows and frames, as the codec writes them."""
        return self.heads + self.further

    @property
    def heads(self) -> float:
        """Bytes of frames, and of sections with one row each."""
        up, down, section, _ = _sizes()
        return self.up_frames * up + self.down_frames * down + self.sections * section

    @property
    def further(self) -> float:
        """Bytes of rows that share a section with another."""
        return (self.rows - self.sections) * _sizes()[-1]


def _predicted(one: Reading, first: Load, second: Load, lone: int) -> dict[str, float]:
    """Payload and wire of the second half, from its rates and from the first half alone.

    Frames with rows and sections grow as their loads do. Rows are as long as the codec says; the
    first half calibrates heads of frames and sections, and what is around a frame on the wire.
    Lone acknowledgements follow neither from rates nor from another half: one a minute and device,
    those of all devices at once. So they are given, as many as were counted in the second half.
    """
    before = one.up_payload + one.down_payload
    counted = Load(one.up_rows + one.down_rows, one.up_frames, one.down_frames, one.sections)
    scale = (before - counted.further) / counted.heads
    around = (one.wire - before) / (one.up_frames + one.down_frames)
    # Frames without rows, which say rates, come with time and not with rows.
    up_frames = second.up_frames + one.up_frames - first.up_frames
    down_frames = (one.down_frames - one.lone) * second.down_frames / max(first.down_frames, 1.0)
    down_frames += lone
    sections = one.sections * second.sections / first.sections
    due = Load(second.rows, up_frames, down_frames, sections)
    payload = scale * due.heads + due.further
    wire = payload + around * (up_frames + down_frames)
    frames = {"up_frames": up_frames, "down_frames": down_frames, "sections": sections}
    return {"scale": scale, "around": around, "payload": payload, "wire": wire, **frames}


def _sizes() -> tuple[float, float, float, float]:
    """Bytes of an empty frame up and down, of a section with a row, and of each further row."""
    moment, number, rng = 1_794_837_900, 1000, np.random.default_rng(1)
    incarnation, check = 1, 3_405_691_582
    many = 50

    def frame(rows: int, sections: int) -> int:
        n = (incarnation << 32) + number + np.arange(rows)
        t = moment * 10**6 + np.cumsum(rng.integers(100_000, 1_000_000, rows))
        xy = np.round(rng.uniform(0, 1000, (rows, 2)), 1)
        some = (Section(number, 1, n, t, (xy,), int(t[-1])),) * sections
        return len(encode_up(Up(incarnation, number, 1, number, some, before=check)))

    up, down = frame(1, 0), len(encode_down(Down(number, 100 * number, number, check=check)))
    one = float(np.mean([frame(1, 1) - up for _ in range(20)]))
    return up, down, one, (frame(many, 1) - up - one) / (many - 1)


def goals(found: dict[str, Any]) -> list[Goal]:
    """What `fleet` found, with the goals."""
    two, predicted = found["second"], found["predicted"]
    sent = two["up_rows"] + two["down_rows"]
    payload = two["up_payload"] + two["down_payload"]
    wire = Reading(**two).wire
    many, most = found["devices"] >= 100, {"1 second": 110.0, "5 seconds": 35.0}.get(found["flush"])
    adopted = within(found["adoption"], 0.95)
    in_time = 1.0 if found["devices"] <= 100 else 2.0
    cpu = 100 * (two["broker_cpu"] + two["cloud_cpu"]) / lasted(found)
    memory = (two["broker_memory"] + two["cloud_memory"]) / 1e6
    moved = [phase for phase, has in found["moved"].items() if has]
    mixed = [Goal(f"views moved while the {phase} phase ran", 1.0, 0.0) for phase in moved]
    ended = [(phase, found[phase]["ended"]) for phase in found["moved"] if found[phase]["ended"]]
    lost = [Goal(f"connections lost in the {phase} phase", many, 0.0) for phase, many in ended]
    return [
        *mixed,
        *lost,
        Goal("95 % have adopted a placement after", adopted, in_time, "s"),
        Goal("deployment", found["deployment"]["wire"] / 1e6, 0.5 if many else None, "MB"),
        Goal("rows sent, off plan.traffic() by", _off(sent, found["rows_due"]), 2.0, "%"),
        Goal("payload, off what is predicted by", _off(payload, predicted["payload"]), 2.0, "%"),
        Goal("wire, off what is predicted by", _off(wire, predicted["wire"]), 5.0, "%"),
        Goal("  given the lone acknowledgements counted", two["lone"], None, "frames"),
        Goal("a row on sockets", (two["up"] + two["down"]) / sent, most, "bytes"),
        Goal("a row with headers and acks of packets", wire / sent, most, "bytes"),
        Goal("broker, relay and keeper", cpu, 25.0, "% CPU"),
        Goal("their memory", memory, 350.0, "MB"),
    ]


def lasted(found: dict[str, Any]) -> float:
    """Seconds in which rows were put, of all that the second phase took."""
    flush: float = Check().duration("flush", found["flush"]) / 1e6
    return float(found["second"]["seconds"]) - flush - _REST


def within(adoption: Sequence[float | None], share: float) -> float:
    """The time within which a share of devices has adopted; None is one that never has.

    Examples
    --------
    >>> within([0.1, 0.2, 0.3, None], 0.5), within([0.1, 0.2, 0.3, None], 0.95)
    (0.3, inf)
    """
    after = [np.inf if one is None else one for one in adoption]
    return float(np.quantile(after, share, method="higher"))


def _off(measured: float, predicted: float) -> float:
    return 100 * abs(measured / predicted - 1)
