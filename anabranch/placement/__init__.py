"""Where views run: on edge devices or in the cloud, at the least traffic.

After the RACE paper (Chandramouli, Nath and Zhou, "Supporting distributed feed-following apps over
edge devices", 2013), with its errors corrected: F1 to F8 in docs/papers-race.md.

==============  =============================================================================
`place`         the verb
`placement`     what it returns: cost, proof, tables, explanations, re-planning
`templates`     logical views, materialised over reference data
`keys`          ... the keys of their feeds, in words
`switching`     when rates change: which views to move, and when
`corenet`       several sites behind the cloud
`graph`         the view graph as arrays
`reading`       tables in, view graph out
`optima`        what each device would choose for itself
`prefix`        ... where nothing is shared, in one level
`candidates`    ... in several levels
`mincut`        ... where downloads are shared
`settling`      devices that want the same views
`cover`         ... in one level: trees and linear programs
`program`       ... in general: integer programs and local search
`cost`          what a placement costs
`explaining`    why a view is where it is
==============  =============================================================================
"""

from anabranch.placement.corenet import CoreNetwork
from anabranch.placement.place import place
from anabranch.placement.placement import Placement, plan_graph
from anabranch.placement.switching import Switcher
from anabranch.placement.templates import feed, template

__all__ = ["CoreNetwork", "Placement", "Switcher", "feed", "place", "plan_graph", "template"]
