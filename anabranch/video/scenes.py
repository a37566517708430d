"""What made-up channels can show, and how each of them looks."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["ADVERT", "ADVERT_SHOT", "FAR", "OWN", "SCENES", "STORIES", "STYLES", "Scene", "Style"]


@dataclass(frozen=True)
class Scene:
    """A stretch of a clip that shows one thing; of a still, as long as one likes."""

    clip: str
    begin: float = 0.0
    end: float = 60.0


SCENES = {
    "taxi": Scene("bikes", 1.24, 3.0),
    "fence": Scene("bikes", 5.52, 7.44),
    "night": Scene("night", 0.0, 4.6),
    "tower": Scene("night", 4.72, 7.5),
    "street": Scene("street", 0.0, 2.4),
    "towers": Scene("towers", 3.8, 6.1),
    "bunny": Scene("bunny", 0.0, 5.2),
    "phone": Scene("phone", 0.0, 3.9),  # no channel shows it: it states no licence
    **{
        name: Scene(name)
        for name in (
            *("astronaut", "camera", "cat", "coffee", "galaxies"),
            *("retina", "rocket", "coins", "temple", "flower", "clock"),
            *("horse", "brick", "writing", "gravel", "grass"),
        )
    },
}
STORIES = (
    ("DOCK STRIKE IN GHENT", ("fence", "coins")),
    ("POWER CUT IN RIGA", ("night", "temple")),
    ("BRIDGE SHUT IN PORTO", ("street",)),
    ("ROCKET LEAVES CADIZ", ("rocket", "astronaut")),
    ("CLOCK STOPS IN LUND", ("clock",)),
    ("RABBIT FOUND IN TURKU", ("bunny",)),
)
"""What several channels tell: a headline and its scenes."""
ADVERT = ("horse", "brick", "writing", "gravel", "grass")
"""The shots of an advert; that they are alike on two channels is nothing to tell."""
FAR = "coffee"
"""What two channels show farther apart than the window, and no channel otherwise."""
ADVERT_SHOT = 1_600_000
"""How long each of them is, in microseconds."""
OWN = (
    ("cat", "towers", "camera"),
    ("flower", "taxi", "flower"),
    ("retina", "galaxies", "tower"),
)
"""What each channel shows of its own, in turns."""


@dataclass(frozen=True)
class Style:
    """How a channel looks: its encoder, its frames, and what it does to footage."""

    channel: str
    codec: str
    size: tuple[int, int]
    rate: int
    bit_rate: int
    crop: float
    gamma: float
    luma: int  # of ident, logo and caption, as are the two colours
    colours: tuple[int, int]
    begin: int  # seconds after the first channel


STYLES = (
    Style("north", "mpeg2video", (640, 360), 25, 3_000_000, 0.0, 1.0, 70, (190, 100), 0),
    Style("south", "mpeg4", (512, 288), 30, 1_500_000, 0.03, 0.9, 110, (90, 200), 4),
    Style("west", "mpeg2video", (480, 270), 24, 1_500_000, 0.02, 1.12, 90, (110, 60), 8),
)
