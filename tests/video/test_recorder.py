"""The recorder of the documentation: what it names its files is what the source reads in them."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

import pytest

from anabranch.video.segments import named_time
from tests.video.films import film, write

pytest.importorskip("av")
SECOND = 1_000_000
_RECORD = """
import sys
import av
source, pattern, *options = sys.argv[1:]
options = dict(option.split("=") for option in options)
with av.open(source) as of, av.open(pattern, "w", format="segment", options=options) as out:
    stream = out.add_stream_from_template(of.streams.video[0])
    for packet in of.demux(video=0):
        if packet.pts is not None:
            packet.stream = stream
            out.mux(packet)
"""


def test_names_of_the_recipe_are_read_as_the_time_they_were_written(tmp_path: Path) -> None:
    """FFmpeg names files in the zone of its process, which the recipe sets to the source's."""
    page = Path("docs/video.md").read_text()
    recipe = shlex.split(re.search(r"^[^\n`]*ffmpeg -rtsp.*?(?=\n```)", page, re.M | re.S)[0])  # type: ignore[index]
    at = recipe.index("ffmpeg")
    said = dict(pair.split("=", 1) for pair in recipe[:at])
    options = {
        name.removeprefix("-"): value
        for name, value in pairwise(recipe[at:])
        if name in ("-segment_time", "-segment_format", "-strftime")
    }
    whole = write(tmp_path / "whole.mkv", film([10]), codec="mpeg2video")
    pattern = str(tmp_path / Path(recipe[-1]).name)
    began = time.time()
    subprocess.run(
        [
            *(sys.executable, "-c", _RECORD, str(whole), pattern),
            *(f"{name}={value}" for name, value in options.items()),
        ],
        env={**os.environ, "TZ": "Asia/Tokyo", **said},
        check=True,
    )
    (written,) = tmp_path.glob("*.ts")
    named = named_time(written.name)
    assert named is not None
    assert int(began) * SECOND <= named <= time.time() * SECOND
