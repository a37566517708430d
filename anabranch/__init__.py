"""Anabranch: correlate distributed data streams over sliding windows, on PySpark.

Every public name is loaded when it is first asked for: a predicate brings no Spark along, and a
plan no compiler.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from anabranch.assembly.closing import count_or_timeout, learned, session, wait
    from anabranch.assembly.fitting import WindowFit
    from anabranch.assembly.keys import by_head, by_head_client, by_head_time, by_head_time_client
    from anabranch.assembly.predicting import Prediction, predict
    from anabranch.correlation.emd.measure import emd
    from anabranch.errors import AnabranchError, BadRow, InvalidCall, StateMismatch
    from anabranch.neighbours.interest.routing import interest
    from anabranch.placement import CoreNetwork, Placement, Switcher, feed, template
    from anabranch.plans.controller import adaptive
    from anabranch.plans.hashed import grid, ssp
    from anabranch.plans.log import PlanLog
    from anabranch.plans.ranges import spans
    from anabranch.plans.segments import csp
    from anabranch.predicates import (
        cosine,
        custom,
        dot,
        euclidean,
        hamming,
        manhattan,
        same,
        within,
    )
    from anabranch.spark.assemble import assemble
    from anabranch.spark.correlate import correlate
    from anabranch.spark.figures import metrics
    from anabranch.spark.fitting import fit_windows
    from anabranch.spark.knowledge import ServiceStats
    from anabranch.spark.nearest import nearest, top
    from anabranch.spark.place import place, place_pairs
    from anabranch.spark.settings import configure
    from anabranch.spark.sla import recommend, sla
    from anabranch.spark.watch import watch

__version__ = "0.1.0"

__all__ = [
    # set up
    "configure",
    # what to compare
    "cosine",
    "dot",
    "euclidean",
    "manhattan",
    "hamming",
    "emd",
    "within",
    "same",
    "custom",
    # how to split the work
    "ssp",
    "csp",
    "grid",
    "spans",
    "interest",
    "adaptive",
    # the verbs
    "correlate",
    "nearest",
    "top",
    # instances out of events: the verb, what names one, when its window closes
    "assemble",
    "by_head",
    "by_head_time",
    "by_head_client",
    "by_head_time_client",
    "count_or_timeout",
    "learned",
    "session",
    "wait",
    # what instances tell of services
    "sla",
    "recommend",
    "ServiceStats",
    # where views run, between edge devices and the cloud
    "place",
    "place_pairs",
    "template",
    "feed",
    "Placement",
    "CoreNetwork",
    "Switcher",
    # window sizes from data, and what they will cost
    "fit_windows",
    "WindowFit",
    "predict",
    "Prediction",
    # what it does while it runs
    "metrics",
    "watch",
    "PlanLog",
    # what can go wrong
    "AnabranchError",
    "InvalidCall",
    "BadRow",
    "StateMismatch",
]

# Where each public name lives.
_HOME = {
    "anabranch.assembly.closing": "count_or_timeout learned session wait",
    "anabranch.assembly.fitting": "WindowFit",
    "anabranch.assembly.keys": "by_head by_head_client by_head_time by_head_time_client",
    "anabranch.assembly.predicting": "Prediction predict",
    "anabranch.correlation.emd.measure": "emd",
    "anabranch.errors": "AnabranchError BadRow InvalidCall StateMismatch",
    "anabranch.neighbours.interest.routing": "interest",
    "anabranch.placement": "CoreNetwork Placement Switcher feed template",
    "anabranch.plans.controller": "adaptive",
    "anabranch.plans.hashed": "grid ssp",
    "anabranch.plans.log": "PlanLog",
    "anabranch.plans.segments": "csp",
    "anabranch.plans.ranges": "spans",
    "anabranch.predicates": "cosine custom dot euclidean hamming manhattan same within",
    "anabranch.spark.assemble": "assemble",
    "anabranch.spark.correlate": "correlate",
    "anabranch.spark.fitting": "fit_windows",
    "anabranch.spark.knowledge": "ServiceStats",
    "anabranch.spark.figures": "metrics",
    "anabranch.spark.nearest": "nearest top",
    "anabranch.spark.place": "place place_pairs",
    "anabranch.spark.settings": "configure",
    "anabranch.spark.sla": "recommend sla",
    "anabranch.spark.watch": "watch",
}
_MODULE = {name: module for module, names in _HOME.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    if name not in _MODULE:
        raise AttributeError(
            f"module 'anabranch' has no attribute {name!r}; it has {', '.join(__all__)}"
        )
    found = getattr(import_module(_MODULE[name]), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
