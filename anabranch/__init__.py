"""Anabranch: correlate distributed data streams over sliding windows, on PySpark.

The verbs need Spark; everything else, from predicates to kernels, does not, and importing this
package does not import Spark until a verb is used.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from anabranch.assembly.closing import count_or_timeout, learned, session, wait
from anabranch.assembly.keys import by_head, by_head_client, by_head_time, by_head_time_client
from anabranch.compiled import forget_stale
from anabranch.control import adaptive
from anabranch.emd import emd
from anabranch.errors import AnabranchError, BadRow, InvalidCall, StateMismatch
from anabranch.interest import interest
from anabranch.planlog import PlanLog
from anabranch.plans import csp, grid, ssp
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
from anabranch.spans import spans

if TYPE_CHECKING:
    from anabranch.fitting import WindowFit, fit_windows
    from anabranch.placement import CoreNetwork, Placement, Switcher, feed, place, template
    from anabranch.queueing import Prediction, predict
    from anabranch.spark.assemble import assemble
    from anabranch.spark.correlate import correlate
    from anabranch.spark.knowledge import Knowledge
    from anabranch.spark.metrics import metrics
    from anabranch.spark.nearest import nearest, top
    from anabranch.spark.settings import configure
    from anabranch.spark.sla import recommend, sla
    from anabranch.spark.watch import watch

__version__ = "0.1.0"

forget_stale(Path(__file__).parent)

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
    # instances out of invocations: the verb, what names one, when its window closes
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
    "Knowledge",
    # where views run, between edge devices and the cloud
    "place",
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

_SPARK = {
    "Knowledge": "knowledge",
    "recommend": "sla",
    "sla": "sla",
    "assemble": "assemble",
    "configure": "settings",
    "correlate": "correlate",
    "metrics": "metrics",
    "nearest": "nearest",
    "top": "nearest",
    "watch": "watch",
}

_PLACEMENT = ("place", "template", "feed", "Placement", "CoreNetwork", "Switcher")

# Solvers and fits bring scipy along; they are loaded when they are asked for.
_MODELS = {
    "fit_windows": "fitting",
    "WindowFit": "fitting",
    "predict": "queueing",
    "Prediction": "queueing",
}


def __getattr__(name: str) -> Any:
    if name in _MODELS:
        import importlib

        return getattr(importlib.import_module(f"anabranch.{_MODELS[name]}"), name)
    if name in _PLACEMENT:
        import importlib

        return getattr(importlib.import_module("anabranch.placement"), name)
    if name in _SPARK:
        import importlib

        return getattr(importlib.import_module(f"anabranch.spark.{_SPARK[name]}"), name)
    raise AttributeError(
        f"module 'anabranch' has no attribute {name!r}; it has {', '.join(__all__)}"
    )
