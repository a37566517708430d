"""A cluster in virtual time: the plans, router and controller of the library on simulated hosts.

Only hosts, links and processors are simulated (ViCo paper, section 4.3); frames are routed by
`anabranch.plans.routing` and plans change through `plans.controller`, as on Spark.

==============  ============================================================================
``settings``    what a run is: cluster, workload, and every choice the paper leaves open
``workload``    hosts, rates and frames, drawn from the seed
``hosts``       one second of every host: receive, compare, forget
``methods``     SSP, CSP, grid, the adaptive plans, and the two baselines
``runs``        a whole run: route, step, report, change plans
``figures``     figures 9 to 12 of the paper, and the growth past it
``drawing``     the same as pictures
==============  ============================================================================
"""

from papers.vico.simulation.figures import RECIPES, Figure, Point, Recipe, compute
from papers.vico.simulation.methods import METHODS, Method
from papers.vico.simulation.runs import Outcome, simulate
from papers.vico.simulation.settings import Settings

__all__ = [
    "METHODS",
    "RECIPES",
    "Figure",
    "Method",
    "Outcome",
    "Point",
    "Recipe",
    "Settings",
    "compute",
    "simulate",
]
