"""Where views run: on edge devices or in the cloud, at the least traffic.

After the RACE paper (Chandramouli, Nath and Zhou, "Supporting distributed feed-following apps over
edge devices", 2013), with its errors corrected: F1 to F8 in papers/race/README.md.

==============  =============================================================================
`call`          the verb, for tables in memory
`placement`     what it returns: cost, proof, tables, explanations, re-planning
`explaining`    ... why a view is where it is
`feeds`         what devices put out
`templates`     logical views, materialised over reference data
`switching`     when rates change: which views to move, and when
`steering`      ... of a running system: which views move by what devices report
`views`         logical views that are executed
`log`           the log of placements, as people use it
`corenet`       several sites behind the cloud
`graph`         the view graph as arrays
`orders`        ... in which order they are walked
`pinning`       views that stay, and who reads a view
`reading`       tables in, view graph out
`tables`        ... what a caller's tables and values hold
`devices`       what each device would choose for itself
`conflicts`     devices that want the same views
`cost`          what a placement costs
==============  =============================================================================
"""

from typing import TYPE_CHECKING, Any

from anabranch.placement.call import place
from anabranch.placement.corenet import CoreNetwork
from anabranch.placement.placement import Placement, plan_graph
from anabranch.placement.switching import Switcher
from anabranch.placement.templates import template

if TYPE_CHECKING:
    from anabranch.placement.log import PlacementLog

__all__ = [
    "CoreNetwork",
    "Placement",
    "PlacementLog",
    "Switcher",
    "place",
    "plan_graph",
    "template",
]


def __getattr__(name: str) -> Any:
    if name == "feed":  # of views that run, too: one name for one thing
        raise AttributeError("ab.placement.feed is now called ab.feed")
    if name != "PlacementLog":
        have = ", ".join(__all__)
        raise AttributeError(
            f"module 'anabranch.placement' has no attribute {name!r}; it has {have}"
        )
    from anabranch.placement.log import PlacementLog  # which knows the running system

    return PlacementLog
