"""Anabranch: correlate distributed data streams over sliding windows, on PySpark.

Verbs, predicates and plans are here; what goes with them is in namespaces:

================  ==================================================================
`ab.close`        when the windows of `assemble` close
`ab.assembly`     ``ServiceStats``, ``WindowFit``, ``StateEstimate``
`ab.placement`    ``Placement, PlacementLog, CoreNetwork, Switcher, template``
`ab.plans`        ``PlanLog``
`ab.video`        films as rows: frames, features, shots
`ab.sinks`        exactly once into Delta, Iceberg, PostgreSQL, Kafka and Parquet
`ab.errors`       ``AnabranchError, InvalidCall, BadRow, StateMismatch``
================  ==================================================================

Every public name is loaded when it is first asked for: a predicate brings no Spark along, and a
plan no compiler.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from anabranch import assembly, errors, placement, plans, video
    from anabranch.assembly import close
    from anabranch.assembly.fitting import WindowFit as _WindowFit  # noqa: F401
    from anabranch.assembly.predicting import StateEstimate as _StateEstimate  # noqa: F401
    from anabranch.assembly.predicting import estimate_state
    from anabranch.correlation.emd.measure import emd
    from anabranch.neighbours.selective.routing import selective
    from anabranch.placement.feeds import feed
    from anabranch.placement.views import view
    from anabranch.plans.controller import adaptive
    from anabranch.plans.hashed import broadcast, grid, keyed, ssp
    from anabranch.plans.ranges import ranges
    from anabranch.plans.segments import csp, segments
    from anabranch.plans.triangle import triangle
    from anabranch.predicates import (
        cosine,
        custom,
        differs,
        dot,
        euclidean,
        hamming,
        manhattan,
        same,
        within,
    )
    from anabranch.predicates.globe import haversine
    from anabranch.predicates.sets import jaccard
    from anabranch.predicates.texts import edit, jaro_winkler
    from anabranch.spark import sinks
    from anabranch.spark.assemble import assemble
    from anabranch.spark.correlate import correlate
    from anabranch.spark.dashboard.board import dashboard
    from anabranch.spark.dedupe import dedupe
    from anabranch.spark.figures import metrics
    from anabranch.spark.fitting import fit_windows
    from anabranch.spark.follow import follow
    from anabranch.spark.groups import groups
    from anabranch.spark.nearest import nearest
    from anabranch.spark.place import place, place_pairs
    from anabranch.spark.rejects import rejects
    from anabranch.spark.rescale import rescale
    from anabranch.spark.service_stats import ServiceStats as _ServiceStats  # noqa: F401
    from anabranch.spark.settings import configure
    from anabranch.spark.sla import rank_services, sla
    from anabranch.spark.spans import spans_of
    from anabranch.spark.top import top
    from anabranch.spark.watch import watch

__version__ = "0.2.0"

__all__ = [
    # set up
    "configure",
    # what to compare
    "cosine",
    "dot",
    "euclidean",
    "manhattan",
    "hamming",
    "haversine",
    "edit",
    "jaro_winkler",
    "jaccard",
    "emd",
    "within",
    "same",
    "differs",
    "custom",
    # how to split the work
    "broadcast",
    "segments",
    "grid",
    "ranges",
    "keyed",
    "triangle",
    "selective",
    "adaptive",
    # the same by the names of the ViCo paper
    "ssp",
    "csp",
    # the verbs
    "correlate",
    "dedupe",
    "groups",
    "nearest",
    "top",
    "assemble",
    # spans out of OpenTelemetry's messages
    "spans_of",
    # how services keep their promises
    "sla",
    "rank_services",
    # where views run, between edge devices and the cloud
    "place",
    "place_pairs",
    # ... and the system that runs them
    "feed",
    "view",
    "follow",
    # window sizes from data, and what they will cost
    "fit_windows",
    "estimate_state",
    # what it does while it runs
    "metrics",
    "watch",
    "dashboard",
    "rejects",
    # from then on with more or fewer partitions
    "rescale",
    # namespaces: closing policies, and the classes that go with verbs, plans and errors
    "close",
    "assembly",
    "placement",
    "plans",
    "sinks",
    "video",
    "errors",
]

# Where each public name lives; those with a dot are in a namespace.
_HOME = {
    "anabranch.assembly.close": "close.after close.count close.gap close.learned close.until",
    "anabranch.assembly.fitting": "assembly.WindowFit",
    "anabranch.assembly.predicting": "assembly.StateEstimate estimate_state",
    "anabranch.correlation.emd.measure": "emd",
    "anabranch.errors": "errors.AnabranchError errors.BadRow errors.InvalidCall "
    "errors.StateMismatch",
    "anabranch.neighbours.selective.routing": "selective",
    "anabranch.placement": "placement.CoreNetwork placement.Placement placement.Switcher "
    "placement.template",
    "anabranch.placement.feeds": "feed",
    "anabranch.plans.controller": "adaptive",
    "anabranch.plans.hashed": "broadcast grid keyed ssp",
    "anabranch.plans.log": "plans.PlanLog",
    "anabranch.plans.segments": "csp segments",
    "anabranch.plans.ranges": "ranges",
    "anabranch.plans.triangle": "triangle",
    "anabranch.predicates.globe": "haversine",
    "anabranch.predicates.sets": "jaccard",
    "anabranch.predicates.texts": "edit jaro_winkler",
    "anabranch.predicates": "cosine custom differs dot euclidean hamming manhattan same within",
    "anabranch.spark.assemble": "assemble",
    "anabranch.spark.correlate": "correlate",
    "anabranch.spark.dashboard.board": "dashboard",
    "anabranch.spark.dedupe": "dedupe",
    "anabranch.spark.fitting": "fit_windows",
    "anabranch.spark.follow": "follow",
    "anabranch.spark.groups": "groups",
    "anabranch.spark.service_stats": "assembly.ServiceStats",
    "anabranch.spark.figures": "metrics",
    "anabranch.spark.nearest": "nearest",
    "anabranch.spark.place": "place place_pairs",
    "anabranch.placement.log": "placement.PlacementLog",
    "anabranch.spark.rejects": "rejects",
    "anabranch.spark.rescale": "rescale",
    "anabranch.spark.settings": "configure",
    "anabranch.spark.sinks": "sinks.delta sinks.iceberg sinks.kafka sinks.parquet sinks.postgres",
    "anabranch.spark.sla": "rank_services sla",
    "anabranch.spark.spans": "spans_of",
    "anabranch.spark.top": "top",
    "anabranch.placement.views": "view",
    "anabranch.spark.watch": "watch",
    "anabranch.spark.video.reading": "video.frames video.table",
    "anabranch.spark.video.archiving": "video.archive",
    "anabranch.spark.video.describing": "video.describe",
    "anabranch.spark.video.topics": "video.topics",
    "anabranch.video.captions": "video.ocr",
    "anabranch.video.network": "video.lite0 video.onnx",
    "anabranch.spark.video.keyframes": "video.shots",
    "anabranch.video.calibration": "video.calibrate",
}
_MODULE = {name: module for module, names in _HOME.items() for name in names.split()}
# What somebody may look for here that is in a namespace, and there alone: one name for one thing.
_INSIDE = {name.rpartition(".")[2]: name for name in _MODULE if "." in name}
# Public names that are modules themselves.
_NAMESPACES = {
    "close": "anabranch.assembly.close",
    "assembly": "anabranch.assembly",
    "placement": "anabranch.placement",
    "plans": "anabranch.plans",
    "errors": "anabranch.errors",
    "sinks": "anabranch.spark.sinks",
    "video": "anabranch.video",
}
# What former names are called now.
_FORMER = {
    "spans": "ab.ranges",
    "interest": "ab.selective",
    "wait": "ab.close.after",
    "session": "ab.close.gap",
    "learned": "ab.close.learned",
    "count_or_timeout": "ab.close.count",
    "predict": "ab.estimate_state",
    "Prediction": "ab.assembly.StateEstimate",
    "recommend": "ab.rank_services",
    "Knowledge": "ab.assembly.ServiceStats",
    "by_head": "no longer there; name the columns: key=['page']",
    "by_head_time": "no longer there; name the columns: key=['page', 'started']",
    "by_head_client": "no longer there; name the columns: key=['page', 'client']",
    "by_head_time_client": "no longer there; name the columns: key=['page', 'started', 'client']",
}


def __getattr__(name: str) -> Any:
    if name in _NAMESPACES:
        found: Any = import_module(_NAMESPACES[name])
    elif name in _MODULE:
        found = getattr(import_module(_MODULE[name]), name.rpartition(".")[2])
    elif name in _FORMER:
        now = _FORMER[name]
        raise AttributeError(f"ab.{name} is {'now called ' if now.startswith('ab.') else ''}{now}")
    elif name in _INSIDE:
        raise AttributeError(f"ab.{name} is in a namespace: write ab.{_INSIDE[name]}")
    else:
        raise AttributeError(
            f"module 'anabranch' has no attribute {name!r}; it has {', '.join(__all__)}"
        )
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted([*__all__, *(name for name in globals() if name.startswith("__"))])
