"""Writes the means that the built-in network is centred by, over frames of the clips.

Run it with the extra ``video-concepts``; the result is part of the package, so that the same frame
is described by the same numbers everywhere.
"""

from __future__ import annotations

import json
from pathlib import Path

import av
import numpy as np

from anabranch.video.clips import CENTRED, fetch
from anabranch.video.network import pooled

PLACE = Path(__file__).parent.parent / "anabranch" / "video" / "network.json"
EVERY = 8  # frames


def main() -> None:
    """A few frames of each clip, each clip counting the same."""
    means = []
    for path in fetch(CENTRED).values():
        with av.open(str(path)) as film:
            frames = [f for n, f in enumerate(film.decode(video=0)) if n % EVERY == 0]
        pictures = [
            f.reformat(640, 360, "rgb24", interpolation="AREA").to_ndarray() for f in frames
        ]
        means.append(pooled(np.stack(pictures)))
    embedding, concepts = (np.mean([of[n] for of in means], axis=0) for n in (0, 1))
    form = {
        "embedding": [round(float(x), 4) for x in embedding],
        "concepts": [round(float(x), 4) for x in concepts],
    }
    PLACE.write_text(json.dumps(form, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
