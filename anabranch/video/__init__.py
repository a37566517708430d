"""Films as data: decoded frames, what describes them, and where shots begin.

As `ab.video` it holds ``frames`` and ``table``, the frames of films as rows; ``shots``, their key
frames; ``archive``, which keeps those; ``calibrate``, which finds a threshold; and ``topics``, what
several channels tell. What runs on Spark is loaded when it is asked for. A module of this folder
must not have the name of one of these.
"""

from typing import Any

__all__ = [
    *("archive", "calibrate", "describe", "frames", "lite0", "ocr", "onnx", "shots", "table"),
    "topics",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        have = ", ".join(__all__)
        raise AttributeError(f"module 'anabranch.video' has no attribute {name!r}; it has {have}")
    import anabranch  # which knows where each is, and loads what it needs

    found = globals()[name] = getattr(anabranch, f"video.{name}")
    return found
