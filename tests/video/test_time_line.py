"""One damaged segment leaves the times of the others, and the watermark, where they are."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.video.films import film, write
from tests.video.reads import read
from tests.video.test_hostile import flipped

pytest.importorskip("av")
FRAMES = film([13, 12])
BEGIN = datetime(2024, 5, 1, tzinfo=UTC)
KINDS = ("ts", "running", "mkv", "mp4", "avi")
# Of the flips that say most of what is not so, those of each kind of file.
LIES = {
    "ts": (67, 233, 63),
    "running": (67, 233, 63),
    "mkv": (239, 166, 182),
    "mp4": (5, 12, 20),
    "avi": (116, 264, 206),
}


class Channel:
    """Four segments of a second, of which the second is damaged."""

    def __init__(self, folder: Path, kind: str, named: bool) -> None:
        self.folder, self.named = folder, named
        self.kind = "ts" if kind == "running" else kind
        folder.mkdir(parents=True)
        step = 25 if kind == "running" else 0
        for n in range(4):
            write(folder / self.name(n), FRAMES, first=step * n)
        self.whole = (folder / self.name(1)).read_bytes()

    def name(self, n: int) -> str:
        stem = f"20240501T00000{n}" if self.named else f"{n}"
        return f"{stem}.{self.kind}"

    def times(self, damaged: bytes) -> list[list[datetime]]:
        """By segment, the times of its frames."""
        (self.folder / self.name(1)).write_bytes(damaged)
        rows, _ = read(self.folder, start={} if self.named else {"": 1_714_521_600_000_000})
        return [[row["ts"] for row in rows if row["segment"] == self.name(n)] for n in range(4)]

    def moved(self, damaged: bytes) -> tuple[float, float]:
        """By how many seconds at most frames are earlier and later than those of a whole film."""
        want, got = self.times(self.whole), self.times(damaged)
        assert len(got[2]) == len(got[3]) == len(FRAMES) and got[0] == want[0]
        by = [(a - b).total_seconds() for n in (2, 3) for a, b in zip(got[n], want[n], strict=True)]
        ends = [(got[1][-1] - want[1][-1]).total_seconds()] if got[1] else []
        return min(by), max(by + ends)


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_a_lying_segment_moves_no_other(kind: str, named: bool, tmp_path: Path) -> None:
    channel = Channel(tmp_path / "a", kind, named)
    assert channel.moved(channel.whole) == (0, 0)
    for seed in LIES[kind]:
        earlier, later = channel.moved(flipped(channel.whole, seed, 1 + seed % 40))
        # Without names nobody knows how long a segment was that cannot be opened.
        assert -1 <= earlier <= later <= 0.1, seed
        assert earlier == 0 or not named, seed
