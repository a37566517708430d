"""The relay's state on the hub's disk: whole or not at all, and there after a power cut."""

from __future__ import annotations

import os
import re
from pathlib import Path

from anabranch.edge.overflow import sync_folder
from anabranch.edge.relay_state import RelayState

__all__ = ["INTERVAL", "snapshot_path", "snapshots", "write_snapshot"]

INTERVAL = 10.0
"""Seconds between snapshots of a relay that serves."""


def snapshot_path(folder: Path, generation: int) -> Path:
    """Where the state of a generation of streams is."""
    return folder / f"relay-{generation}.state"


def snapshots(folder: Path) -> dict[int, Path]:
    """The states that there are, by generation."""
    found = [(path, re.fullmatch(r"relay-(\d+)\.state", path.name)) for path in folder.iterdir()]
    return {int(match[1]): path for path, match in found if match is not None}


def write_snapshot(path: Path, relay: RelayState) -> None:
    """Write a relay down, right after a flush whose messages are stored."""
    draft = path.with_suffix(".new")
    with draft.open("wb") as file:
        file.write(relay.snapshot())
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
    sync_folder(path.parent)
