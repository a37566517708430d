"""A former name is refused with its new one."""

from __future__ import annotations

import inspect

import pytest

import anabranch as ab
from anabranch.assembly.fitting import WindowFit

NAMES = {
    "spans": "ab.ranges",
    "interest": "ab.selective",
    "wait": "ab.close.after",
    "session": "ab.close.gap",
    "learned": "ab.close.learned",
    "count_or_timeout": "ab.close.count",
    "predict": "ab.estimate_state",
    "recommend": "ab.rank_services",
    "Knowledge": "ab.assembly.ServiceStats",
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
    (lambda: ab.assemble(None, buckets=8), r"no buckets=: write plan=ab.keyed\(8\)"),
    (lambda: ab.broadcast(4, master="left"), "so side='right' for master='left'"),
    (lambda: ab.segments(4, master="left"), "so side='right' for master='left'"),
    (lambda: ab.segments(4, segment="1 s"), "segment= is now called length="),
    (lambda: ab.fit_windows(None, alpha=0.9), "alpha= is now called cover="),
    (lambda: ab.close.gap("1 s", linger="1 s"), "linger= is now called remember="),
    (
        lambda: ab.close.learned(head="page"),
        "close.learned cannot start: head= is now called kind=",
    ),
    (lambda: ab.assemble(None, id="order"), "no id=: the columns that name an instance are key="),
    (lambda: ab.estimate_state(1.0, degrees=[1]), "degrees= is now called sizes="),
    (lambda: ab.rank_services(None, "1 s", decay="1 d"), "no decay=: half_life= says at"),
    (lambda: ab.follow(None, None, plan=1), "no plan=: the hub places views, by what they cost"),
    (lambda: ab.follow(None, None, rejects="x"), "no rejects=: .* `anabranch story` counts them"),
    (lambda: ab.spans_of(None, rejects="x"), "no rejects=: bad_rows='keep' emits a row"),
    (lambda: ab.video.frames(None, "x", rejects="y"), "no rejects=: .* name each with its reason"),
    (lambda: ab.video.table(None, "x", rejects="y"), "no rejects=: .* name each with its reason"),
    (lambda: ab.video.shots(None, rejects="x"), "no rejects=: a frame without channel"),
    (lambda: ab.video.describe(None, rejects="x"), "no rejects=: a key frame without"),
    (lambda: ab.video.topics(None, rejects="x"), "no rejects=: a bad pair stops the query"),
    (lambda: ab.video.frames(None, "x", keep="1 d"), "keep= is now called remove_after="),
    (lambda: ab.video.table(None, "x", bad="fail"), "bad= is now called bad_rows="),
    (
        lambda: ab.assembly.ServiceStats("stats").get("a", tau="1 d"),
        "tau= is now called half_life=",
    ),
]


@pytest.mark.parametrize(("call", "says"), CALLS)
def test_a_former_argument_says_the_present_one(call, says):
    with pytest.raises(ab.errors.InvalidCall, match=says):
        call()


@pytest.mark.parametrize("verb", ["correlate", "dedupe", "nearest", "assemble", "groups"])
def test_streaming_verbs_have_one_vocabulary(verb):
    words = {"time", "keep", "watermark", "bad_rows", "rejects", "plan", "control"}
    words |= {"id" if verb != "assemble" else "key"}
    assert words <= set(inspect.signature(getattr(ab, verb)).parameters)
    for former, now in (("late", "watermark"), ("collect", "keep")):
        with pytest.raises(ab.errors.InvalidCall, match=f"{former}= is now called {now}="):
            getattr(ab, verb)(None, **{former: 1})


def test_an_unknown_name_lists_those_there_are():
    with pytest.raises(AttributeError, match="has no attribute 'corelate'; it has configure"):
        ab.corelate  # noqa: B018


FORMER_METHODS = [
    (lambda: ab.close.wait, "close.wait is now called close.after"),
    (lambda: ab.close.session, "close.session is now called close.gap"),
    (lambda: ab.close.count_or_timeout, "close.count_or_timeout is now called close.count"),
    (lambda: ab.close.sesion, "has no attribute 'sesion'; it has after, count, gap, learned"),
    (lambda: ab.assembly.ServiceStats("stats").absorb, "absorb is now called update"),
    (lambda: ab.assembly.ServiceStats("stats").of, "of is now called get"),
    (lambda: ab.assembly.ServiceStats("stats").put, "put is not there: update, get and table are"),
    (lambda: object.__new__(WindowFit).span, "WindowFit.span is now called instance_duration"),
    (lambda: object.__new__(WindowFit).span_fit, "WindowFit.span_fit is now called duration_fit"),
    (lambda: object.__new__(WindowFit).spam, "has no attribute 'spam'; it has size, timeout"),
    (lambda: ab.by_head, "is no longer there; name the columns"),
]


@pytest.mark.parametrize(("use", "says"), FORMER_METHODS)
def test_a_former_attribute_says_the_present_one(use, says):
    with pytest.raises(AttributeError, match=says):
        use()


PLAN = ab.place([("w", "p", 10.0), ("w", "q", 2.0)], {"p": "P", "q": "Q"})
INCOMPLETE = [
    (lambda: ab.correlate(), "left= is missing"),
    (lambda: ab.correlate(None, None, None), "3 arguments without a name, and it takes 2: name"),
    (lambda: ab.nearest(None), "queries= is missing"),
    (lambda: ab.assemble(), "inputs= is missing"),
    (lambda: ab.sla(None), "promises= is missing"),
    (
        lambda: ab.sla(None, "1 s", head="page"),
        "no head=; there is instances=, promises=, service=",
    ),
    (lambda: ab.close.count(3), "close.count cannot start: timeout= is missing"),
    (lambda: ab.close.until(), "close.until cannot start: marker= is missing"),
    (lambda: ab.grid(4), "cols= is missing"),
    (lambda: ab.cosine(), "left= is missing"),
    (lambda: ab.cosine("v", "w", left="v"), "left= is given twice, by its place and by its name"),
    (lambda: ab.within(), "left= is missing"),
    (lambda: ab.emd("v", grund="line"), "no grund=; there is left=, right=, ground="),
    (lambda: ab.metrics(), "query= is missing"),
    (lambda: ab.placement.CoreNetwork(), "CoreNetwork cannot start, 2 problems"),
    (lambda: ab.placement.CoreNetwork([], {}, site={}), "no site=; there is links=, attached=, si"),
    (lambda: PLAN.explain(), "Placement.explain cannot start: view= is missing"),
    (lambda: PLAN.replan(x=1), "Placement.replan cannot start: there is no x=; there is changes="),
    (lambda: PLAN.draw(pth="a.svg"), "no pth=; there is path=, most=, dark="),
    (lambda: PLAN.traffic(1), "1 argument without a name, and it takes 0"),
    (lambda: ab.placement.Switcher(PLAN, 1).observe(), "Switcher.observe .* changes= is missing"),
    (lambda: ab.plans.PlanLog("log").append(), "PlanLog.append cannot start: plan= is missing"),
    (lambda: ab.video.lite0(1), "video.lite0 cannot start: 1 argument without a name"),
    (lambda: ab.video.ocr(prt=""), "video.ocr cannot start: there is no prt="),
    (lambda: ab.video.onnx("x"), "video.onnx cannot start: names= is missing"),
    (lambda: ab.plans.PlanLog("log", 1), "2 arguments without a name, and it takes 1: name"),
]


@pytest.mark.parametrize(("call", "says"), INCOMPLETE)
def test_a_call_with_too_few_or_too_many_arguments_says_which(call, says):
    with pytest.raises(ab.errors.InvalidCall, match=says):
        call()
