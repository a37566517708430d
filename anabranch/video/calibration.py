"""Where a threshold must lie so that no two different films match, and what it then finds."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from anabranch.errors import InvalidCall, renamed

__all__ = ["Calibration", "calibrate"]


@dataclass(frozen=True)
class Calibration:
    """What a set of frames and their copies says of a threshold of the cosine.

    Attributes
    ----------
    threshold
        The greatest cosine of any two frames of different clips, copied or not: precision is 1.0
        for what lies above it.
    recall
        Of each kind of copy, the share that lies above it.
    frames
        How many frames there were of each kind.
    """

    threshold: float
    recall: Mapping[str, float]
    frames: int


@renamed()
def calibrate(
    vectors: Any,
    clips: Any,
    copies: Mapping[str, Any] | None = None,
    apart: Collection[str] = (),
) -> Calibration:
    """The threshold of precision 1.0 for these frames, and what share of copies it finds.

    Parameters
    ----------
    vectors
        One row per key frame: `features`, or any other vectors that are compared by cosine; or of
        each several ``views``, an array (n, views, numbers), of which the two most alike count.
    clips
        Of which clip each is. Frames of one clip are not judged against each other.
    copies
        By name, vectors of the same frames after they were cropped, captioned, encoded again.
    apart
        Names of copies that do not count for the threshold, only what it finds of them.

    Examples
    --------
    >>> frames = np.array([[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]])
    >>> found = calibrate(frames, ["a", "b", "a"], {"noise": frames + [0.3, 0.0]})
    >>> round(found.threshold, 3), found.recall, found.frames
    (0.939, {'noise': 1.0}, 3)
    """
    problems = []
    if not (copies is None or isinstance(copies, Mapping)):
        problems.append(f"copies must be a dict of vectors by name, got {copies!r}")
    if not isinstance(apart, Collection) or isinstance(apart, (str, bytes)):
        problems.append(f"apart must be a list of names of copies, got {apart!r}")
    if problems:
        raise InvalidCall("video.calibrate", problems)
    kept = _unit("vectors", vectors)
    labels = np.asarray(clips)
    made = {name: _unit(f"copies[{name!r}]", each) for name, each in (copies or {}).items()}
    if labels.shape != (len(kept),):
        problems.append(f"clips must name the clip of each of {len(kept)} vectors, got {clips!r}")
    problems += [
        f"copies[{name!r}] must have the shape of vectors, {np.shape(vectors)}, "
        f"got {np.shape((copies or {})[name])}"
        for name, each in made.items()
        if each.shape != kept.shape
    ]
    if not problems and len(np.unique(labels)) < 2:
        problems.append("clips must name at least two different clips")
    if problems:
        raise InvalidCall("video.calibrate", problems)
    different = labels[:, None] != labels[None, :]
    alike = {name: _best(kept, each) for name, each in made.items()}
    judged = [_best(kept, kept), *(of for name, of in alike.items() if name not in apart)]
    threshold = max(float(of[different].max()) for of in judged)
    recall = {name: float((np.diag(of) > threshold).mean()) for name, of in alike.items()}
    return Calibration(threshold, recall, len(kept))


def _best(ones: np.ndarray, others: np.ndarray) -> np.ndarray:
    """The cosine of any two frames: that of their most similar views."""
    pairs = (
        ones[:, v] @ others[:, w].T for v in range(ones.shape[1]) for w in range(others.shape[1])
    )
    found: np.ndarray = np.max([*pairs], axis=0)
    return found


def _unit(name: str, rows: Any) -> np.ndarray:
    try:
        found = np.asarray(rows, np.float64)
    except (TypeError, ValueError):
        problem = (
            f"{name} must be rows of vectors or of views, all numbers, got {type(rows).__name__}"
        )
        raise InvalidCall("video.calibrate", [problem]) from None
    if found.ndim not in (2, 3) or not found.size:
        problem = f"{name} must be rows of vectors or of views, got an array of shape {found.shape}"
        raise InvalidCall("video.calibrate", [problem])
    found = found.reshape(len(found), -1, found.shape[-1])
    lengths = np.sqrt((found * found).sum(2, keepdims=True))
    unit: np.ndarray = np.divide(found, lengths, out=np.zeros_like(found), where=lengths > 0)
    return unit
