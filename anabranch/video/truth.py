"""The truth about a made-up programme, as a file says it: what is shown, and what is due."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from anabranch.video.channels import BEGIN, SCENES, SECOND, Due, Programme, Shot

__all__ = ["truth"]


def truth(plan: Programme) -> dict[str, Any]:
    """All shots with what was done to them, and pairs of them by number; times are in seconds.

    `due` pairs must be found. `far` ones are farther apart than the window, and must not be. Of
    `ruined` ones no match is expected, and none is a fault.

    Examples
    --------
    >>> from anabranch.video.channels import programme
    >>> told = truth(programme(seed=7))
    >>> [len(told[name]) for name in ("due", "topics", "far")]
    [29, 6, 3]
    """
    number = {shot: n for n, shot in enumerate(plan.shots)}

    def pairs(of: Iterable[Due]) -> list[list[int]]:
        return sorted([number[one], number[other]] for one, other in of)

    (damaged, at), (missing, place) = plan.damaged, plan.missing
    return {
        "window": plan.window / SECOND,
        "damaged": {"channel": damaged, "segment": at},
        "missing": {"channel": missing, "segment": place},
        "shots": [_told(plan, shot) for shot in plan.shots],
        "due": pairs(plan.pairs),
        "topics": sorted(pairs(topic) for topic in plan.topics),
        "far": pairs(plan.far),
        "ruined": pairs(plan.ruined),
    }


def _told(plan: Programme, shot: Shot) -> dict[str, Any]:
    scene = SCENES.get(shot.scene)
    begin, end = ((t - BEGIN) / SECOND for t in (shot.begin, shot.end))
    return {
        "channel": shot.channel,
        "begin": begin,
        "end": end,
        "scene": shot.scene,
        "clip": scene and scene.clip,
        "from": scene and scene.begin + shot.lead,
        "done": [name for name in ("mirrored", "ruined", "fade") if getattr(shot, name)],
        "spoilt": plan.spoilt(shot),
    }
