"""Where chaos happens: what a driver runs on, and what may be done to it there."""

from __future__ import annotations

import math
import random
import subprocess
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

__all__ = ["BUSY", "CAUSES", "SCENES", "Clock", "Goal", "Scene", "goals", "small_disk"]

# What the error of a query that ends may say. Spark gives up on a task at its fourth loss, and on a
# process that does not answer within seconds, as on a busy machine.
BUSY = ("failed to connect back", "CANNOT_OPEN_SOCKET", "Accept timed out", "Error: timed out")
_LOST = ("Python worker exited unexpectedly", "Connection reset", "Broken pipe", "EOFException",
         "EOFError")  # fmt: skip
_REFUSED = ("MemoryError", "bad_alloc", "Cannot allocate memory", "out of memory",
            "can't start new thread", "failed to map segment", "malloc of size")  # fmt: skip
_GONE = ("ExecutorLostFailure", "FetchFailed", "Failed to connect", *_LOST)
_AWAY = ("TimeoutException", "DisconnectException", "Failed to create new KafkaAdminClient")


@dataclass(frozen=True)
class Scene:
    """What is done, how often in twenty or so, and how the driver is started.

    Of all that is done in all scenes, `share` is done in this one.
    """

    what: Mapping[str, int]
    share: float
    master: str = "local[2,4]"
    broker: bool = False
    clock: bool = False

    def without(self, kinds: Collection[str]) -> Scene:
        """The same, where some of it cannot be done."""
        return replace(self, what={k: often for k, often in self.what.items() if k not in kinds})

    def plan(self, by: random.Random) -> list[str]:
        """What is done in which order: each kind once, so that few kills are of all kinds.

        Then again, until each was done as often as it shall be.
        """
        once = list(self.what)
        again = [kind for kind, often in self.what.items() for _ in range(often - 1)]
        by.shuffle(once)
        by.shuffle(again)
        return once + again

    def causes(self, kind: str) -> tuple[str, ...]:
        """What a query may name that ends after this was done."""
        return (*CAUSES[kind], *BUSY, *(_GONE if "cluster" in self.master else ()))


CAUSES: dict[str, tuple[str, ...]] = {
    "driver": (),
    "worker": _LOST,
    "memory": (*_REFUSED, *_LOST),
    "disk": ("No space left on device", "FSError"),
    "entry": ("StateMismatch",),
    "request": (),
    "executor": _GONE,
    "broker": _AWAY,
    "clock": (),
    "zone": (),
}

SCENES = {
    "local": Scene(
        {"driver": 4, "worker": 6, "memory": 4, "disk": 1, "entry": 2, "request": 3}, 0.5
    ),
    "cluster": Scene({"executor": 7, "worker": 2, "driver": 1}, 0.2, "local-cluster[2,1,1024]"),
    "broker": Scene({"broker": 6, "worker": 1, "driver": 1}, 0.15, broker=True),
    "clock": Scene({"clock": 7, "zone": 3}, 0.15, clock=True),
}


@dataclass(frozen=True)
class Goal:
    """When it is enough. Where nothing is done nothing is shown, so it takes a kill at least."""

    kills: int
    plan_changes: int
    seconds: float  # after which it is enough in any case

    def __post_init__(self) -> None:
        if self.kills < 1:
            raise ValueError("a scene without a kill shows nothing")

    def reached(self, kills: int, plan_changes: int) -> bool:
        """Whether so many are as many as were wanted."""
        return kills >= self.kills and plan_changes >= self.plan_changes


def goals(scenes: Sequence[str], total: Goal) -> dict[str, Goal]:
    """What is to be done in each scene: its share, or all of it if it is the only one."""
    shares = {name: SCENES[name].share for name in scenes}
    parts = {name: share / sum(shares.values()) for name, share in shares.items()}
    return {
        name: Goal(
            math.ceil(part * total.kills),
            math.ceil(part * total.plan_changes),
            part * total.seconds,
        )
        for name, part in parts.items()
    }


_ROOM = "512m"  # of the disk under the checkpoints
_ZONES = ("UTC", "America/New_York", "Asia/Kathmandu", "Pacific/Kiritimati", "Australia/Lord_Howe")
_JUMPS = (-86_400, -7200, -3600, -61, -1, 1, 59, 3600, 7200, 86_400)


@dataclass
class Clock:
    """The clock of a driver and all its processes, which jumps; needs a C compiler.

    Debian's libfaketime was tried: with it Python cannot sleep without faking pauses as well.
    """

    folder: Path
    zone: str = "UTC"
    ahead: int = 0  # seconds

    def environment(self) -> dict[str, str]:
        """What a process needs in order to see this clock, and to live in this zone."""
        library = self.folder / "clock.so"
        if not library.exists():
            source = Path(__file__).parent / "clock.c"
            options = ["-O2", "-Wall", "-shared", "-fPIC", "-o", str(library), str(source), "-ldl"]
            subprocess.run(["cc", *options], check=True)
        self._write()
        return {"TZ": self.zone, "LD_PRELOAD": str(library), "CLOCK_AHEAD": str(self._note)}

    @property
    def _note(self) -> Path:
        return self.folder / "ahead"

    def jump(self, by: random.Random) -> None:
        """Forward or back, by a second up to a day."""
        self.ahead += by.choice(_JUMPS)
        self._write()

    def travel(self, by: random.Random) -> None:
        """To another zone, from the next start on."""
        self.zone = by.choice([zone for zone in _ZONES if zone != self.zone])

    def _write(self) -> None:
        draft = self._note.with_suffix(".draft")
        draft.write_text(f"{self.ahead:+d}\n")
        draft.replace(self._note)


@contextmanager
def small_disk(folder: Path) -> Iterator[None]:
    """A disk of little room in place of a folder; needs the right to mount one."""
    mount = ["mount", "-t", "tmpfs", "-o", f"size={_ROOM}", "tmpfs", str(folder)]
    subprocess.run(mount, check=True, capture_output=True, text=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)
