"""What scenes need of a machine, tried before anything begins: the last scene is hours away."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path

from scripts.reliability.scenes import Clock, Scene, small_disk
from scripts.services.jars import Absent, fetched

__all__ = ["missing"]

_FAILURES = (OSError, subprocess.CalledProcessError)


def missing(scenes: Mapping[str, Scene]) -> list[str]:
    """What these scenes lack here, and what to do about it."""
    found = []
    for name, scene in scenes.items():
        if not scene.what:
            found.append(f"{name}: nothing is left to be done there; name other scenes (--scene)")
        for needed, lacks in _NEEDS:
            if needed(scene):
                found += [f"{name}: {lack}" for lack in lacks()]
    return found


def _kafka() -> Iterator[str]:
    if find_spec("confluent_kafka") is None:
        yield "confluent_kafka is not installed; pip install -e '.[kafka]'"
    for jars in ("kafka-broker", "spark-kafka"):
        try:
            fetched(jars)
        except Absent as error:
            yield f"the jars of {jars} cannot be had; {error}"


def _compiler() -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="anabranch-clock-") as folder:
        try:
            Clock(Path(folder)).environment()
        except _FAILURES as error:
            yield f"cc does not compile clock.c ({error}); apt-get install gcc libc6-dev"


def _disk() -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="anabranch-disk-") as folder:
        try:
            with small_disk(Path(folder)):
                pass
        except _FAILURES as error:
            yield (
                f"mount makes no small disk ({error}); be root, or leave it out: --without disk "
                "(make: WITHOUT=disk)"
            )


_NEEDS: tuple[tuple[Callable[[Scene], bool], Callable[[], Iterator[str]]], ...] = (
    (lambda scene: "disk" in scene.what, _disk),
    (lambda scene: scene.broker, _kafka),
    (lambda scene: scene.clock, _compiler),
)
