"""Queues that predict what stream operators hold, how long tuples stay and what is lost.

===================  =====================================================================
`bulk_queue`         MAP/PH[a,b]/1/N, exact: stateless operators, count windows
`ggc`, `gg_infinity` many servers, from two moments
`window_array`       the small window array: open windows, their life, their storage
`windowed_join`      a sliding-window join on one worker
`linear_law`         large count windows at low load
`max_rate_for_loss`  load shedding: how much input is bearable
`estimate_state`            all of it for one assembly, in a sentence
===================  =====================================================================
"""

from anabranch.assembly.fitting.window_array import WindowArray, window_array
from anabranch.assembly.predicting import StateEstimate, estimate_state
from papers.dssis.queueing.arrivals import MAP, poisson, renewal
from papers.dssis.queueing.bulk import QueueFigures, bulk_queue
from papers.dssis.queueing.join import JoinFigures, windowed_join
from papers.dssis.queueing.linear import LinearLaw, linear_law
from papers.dssis.queueing.manyserver import GGc, GGInfinity, gg_infinity, ggc
from papers.dssis.queueing.shedding import Shedding, max_rate_for_loss

__all__ = [
    "MAP",
    "GGInfinity",
    "GGc",
    "JoinFigures",
    "LinearLaw",
    "StateEstimate",
    "QueueFigures",
    "Shedding",
    "WindowArray",
    "bulk_queue",
    "gg_infinity",
    "ggc",
    "linear_law",
    "max_rate_for_loss",
    "poisson",
    "estimate_state",
    "renewal",
    "window_array",
    "windowed_join",
]
