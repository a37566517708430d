"""Continuous k-nearest-neighbour queries over sliding windows: the kernels, without Spark.

===================  =======================================================================
``algorithm``        what queries, reports and every algorithm look like
``scoring``          the distance of a query and an object, the same to the last bit everywhere
``repair``           the list with repair; exact, and the fastest
``horizons``         what owners of queries can promise, so that objects need not be sent to them
``belated``          the list with repair for objects that come after their turn
``relaxed``          RA: the relaxed k-skyband; exact
``probabilistic``    PA: the k + c best; misses few on streams in random order
``filtered``         RAPF: a k-skyband behind a filter over recent objects; exact
===================  =======================================================================
"""

from anabranch.neighbours.lists.algorithm import METRICS, Algorithm, Queries, Reports
from anabranch.neighbours.lists.repair import ListWithRepair
from anabranch.neighbours.lists.reserve import reserve
from anabranch.neighbours.methods.filtered import Filtered
from anabranch.neighbours.methods.probabilistic import Probabilistic
from anabranch.neighbours.methods.relaxed import Relaxed

__all__ = [
    "FOREVER",
    "METRICS",
    "Algorithm",
    "Filtered",
    "ListWithRepair",
    "Probabilistic",
    "Queries",
    "Relaxed",
    "Reports",
    "reserve",
]
