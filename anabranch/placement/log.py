"""The log of placements as people use it: what runs, why, and what is to run."""

from __future__ import annotations

import os
from typing import Any

from anabranch.edge import placements
from anabranch.edge.story import story
from anabranch.edge.wishes import Requests
from anabranch.errors import InvalidCall
from anabranch.flow.folders import path_problems
from anabranch.placement.views import as_list, wishes_of

__all__ = ["PlacementLog"]


class PlacementLog(placements.PlacementLog):
    """The log of placements in a control directory.

    Examples
    --------
    >>> import tempfile, pandas as pd, anabranch as ab
    >>> gps = ab.feed("gps", by="user", columns="speed double")
    >>> fast = ab.view("fast", {gps: None}, where=[("speed", ">=", 30)])
    >>> log = ab.placement.PlacementLog(tempfile.mkdtemp())
    >>> log.views(fast.over(pd.DataFrame({"user": ["ann"]})), cause="ann has a car")
    >>> log.entries(), log.story()   # the keeper will enact it
    ([], [])
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        problems = path_problems("path", path)
        if problems:
            raise InvalidCall("PlacementLog", problems)
        super().__init__(path)

    def views(self, views: Any, cause: str = "by hand") -> None:
        """Ask the keeper for these views and no others; those that remain are not touched.

        Costs and watermark stay as they were asked for before.
        """
        problems: list[str] = []
        given = as_list(views, problems)
        if not isinstance(cause, str):
            problems.append(f"cause must be a text, got {cause!r}")
        if problems:
            raise InvalidCall("views", problems)
        requests = Requests(self.path)
        before = requests.newest()
        kept = {}
        if before is not None:
            names = ("upload_cost", "download_cost", "watermark")
            kept = {name: getattr(before, name) for name in names}
        requests.write(wishes_of(given, **kept, cause=cause))

    def story(self) -> list[str]:
        """What happened, in sentences."""
        return story(self.entries())
