"""A former name is refused with its new one."""

from __future__ import annotations

import pytest

import anabranch as ab

NAMES = {
    "spans": "ab.ranges",
    "interest": "ab.selective",
    "wait": "ab.close.after",
    "session": "ab.close.gap",
    "learned": "ab.close.learned",
    "count_or_timeout": "ab.close.count",
    "predict": "ab.estimate_state",
    "recommend": "ab.rank_services",
    "Knowledge": "ab.ServiceStats",
    "by_head_client": r"key=\['page', 'client'\]",
}


@pytest.mark.parametrize("name", NAMES)
def test_a_former_name_says_the_present_one(name):
    with pytest.raises(AttributeError, match=NAMES[name]):
        getattr(ab, name)


CALLS = [
    (lambda: ab.correlate(None, None, late="1 s"), "late= is now called watermark="),
    (lambda: ab.nearest(None, None, late="1 s"), "late= is now called watermark="),
    (lambda: ab.nearest(None, None, expected=5), "expected= is now called objects_per_window="),
    (lambda: ab.assemble(None, collect="x"), "collect= is now called keep="),
    (lambda: ab.fit_windows(None, alpha=0.9), "alpha= is now called cover="),
    (lambda: ab.close.gap("1 s", linger="1 s"), "linger= is now called remember="),
    (lambda: ab.close.learned(head="page"), "head= is now called kind="),
    (lambda: ab.estimate_state(1.0, degrees=[1]), "degrees= is now called sizes="),
]


@pytest.mark.parametrize(("call", "says"), CALLS)
def test_a_former_argument_says_the_present_one(call, says):
    with pytest.raises(ab.InvalidCall, match=says):
        call()


def test_an_unknown_name_lists_those_there_are():
    with pytest.raises(AttributeError, match="has no attribute 'corelate'; it has configure"):
        ab.corelate  # noqa: B018
