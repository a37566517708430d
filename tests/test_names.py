"""What `ab.` offers: verbs, predicates, plans and namespaces; the rest is in the namespaces."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module

import pytest

import anabranch as ab

NAMESPACES = {
    "assembly": ("ServiceStats", "StateEstimate", "WindowFit"),
    "close": ("after", "count", "gap", "learned", "until"),
    "errors": ("AnabranchError", "BadRow", "InvalidCall", "StateMismatch"),
    "placement": ("CoreNetwork", "Placement", "PlacementLog", "Switcher", "template"),
    "plans": ("PlanLog",),
    "sinks": ("delta", "iceberg", "kafka", "parquet", "postgres"),
    "video": (
        "calibrate",
        "describe",
        "frames",
        "lite0",
        "ocr",
        "onnx",
        "shots",
        "table",
        "topics",
    ),
}
VERBS = (
    *("configure", "correlate", "nearest", "top", "assemble", "sla", "rank_services", "place"),
    *("dedupe", "groups", "spans_of", "place_pairs", "fit_windows", "estimate_state"),
    *("metrics", "watch", "dashboard", "rejects", "rescale", "feed", "view", "follow"),
)
PREDICATES = (
    *("cosine", "dot", "euclidean", "manhattan", "hamming", "haversine", "emd"),
    *("edit", "jaro_winkler", "jaccard", "within", "same", "differs", "custom"),
)
PLANS = (
    *("broadcast", "segments", "grid", "ranges", "keyed", "triangle", "selective", "adaptive"),
    *("ssp", "csp"),
)


def test_the_top_level_lists_verbs_predicates_plans_and_namespaces() -> None:
    for _ in ("before they are loaded", "and after"):
        listed = {name for name in dir(ab) if not name.startswith("_")}
        assert listed == set(ab.__all__) == {*VERBS, *PREDICATES, *PLANS, *NAMESPACES}
        assert all(hasattr(ab, name) for name in listed)


@pytest.mark.parametrize("space", NAMESPACES)
def test_what_a_namespace_holds_is_there_alone_and_the_flat_name_says_where(space: str) -> None:
    home = getattr(ab, space)
    assert home is import_module("anabranch.assembly.close" if space == "close" else home.__name__)
    for name in NAMESPACES[space]:
        assert name in home.__all__ and getattr(home, name) is not None
        with pytest.raises(AttributeError, match=rf" ab\.{space}\.{name}$"):
            getattr(ab, name)
    with pytest.raises(AttributeError, match="'nothing'"):
        home.nothing  # noqa: B018


def test_feeds_have_one_name() -> None:
    with pytest.raises(AttributeError, match=r"ab\.placement\.feed is now called ab\.feed"):
        ab.placement.feed  # noqa: B018


@pytest.mark.parametrize("use", ["ab.errors.BadRow", "ab.plans.PlanLog", "ab.assembly.WindowFit"])
def test_a_namespace_brings_no_spark_along(use: str) -> None:
    code = f"import sys, anabranch as ab; {use}; assert 'pyspark' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
