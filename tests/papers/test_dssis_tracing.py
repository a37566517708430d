"""The generated trace is the one the paper describes."""

from __future__ import annotations

import numpy as np
import pytest

from anabranch.errors import InvalidCall
from papers.dssis.tracing import LITERAL, TraceSettings, generate_trace

SEEDS = range(5)


def test_calibrated_counts_and_replay():
    traces = [generate_trace(seed=seed) for seed in SEEDS]
    tuples = np.mean([len(trace) for trace in traces])
    assert tuples == pytest.approx(173_151, rel=0.003)
    assert tuples == pytest.approx(174_069, rel=0.01)  # as printed
    assert np.mean([np.ptp(t.event_ts) / 1e6 for t in traces]) == pytest.approx(163.2, abs=4)
    for trace in traces:
        assert len(trace.sizes()) == 13_997
        assert len(np.unique(trace.kind)) == 10_000
        views = np.bincount(trace.kind[trace.service == 0])
        assert views.min() == 1 and views.max() <= 50
        assert trace.spans().max() <= 28.0
        assert set(np.unique(trace.stream)) == {0, 1}


def test_literal_counts():
    traces = [generate_trace(seed=seed, **LITERAL) for seed in SEEDS]
    assert np.mean([len(trace) for trace in traces]) == pytest.approx(159_154, rel=0.003)
    spans = np.concatenate([trace.spans() for trace in traces])
    assert spans.mean() == pytest.approx(11.253, rel=0.01)
    assert np.mean(spans <= 22) == pytest.approx(0.9503, abs=0.005)


def test_columns_agree():
    trace = generate_trace(seed=3, instances=2_000, kinds=1_500, optional_calls=0.1, jitter_s=0.5)
    assert np.all(np.diff(trace.arrival_ts) >= 0)
    late = trace.arrival_ts - trace.event_ts
    assert np.all(late[trace.stream == 0] == 0)
    assert 0 < late.max() <= 500_000
    kinds = trace.service == 0
    order = np.argsort(trace.truth[kinds])
    started = trace.event_ts[kinds][order]
    assert np.array_equal(trace.instance_ts, (started // 1_000_000 * 1_000_000)[trace.truth])
    assert np.array_equal(trace.degree, trace.sizes()[trace.truth])
    assert np.all(trace.event_ts >= started[trace.truth])
    table = trace.table()
    assert table.num_rows == len(trace)
    assert len(table.group_by("service").aggregate([]).column("service")) == len(
        {(h, s) for h, s in zip(trace.kind, trace.service, strict=True)}
    )


def test_an_object_stays_in_its_stream_and_a_page_keeps_its_degree():
    trace = generate_trace(seed=4, instances=3_000, kinds=300, popularity=1.0)
    kinds = {(h, s, w) for h, s, w in zip(trace.kind, trace.service, trace.stream, strict=True)}
    assert len(kinds) == len({kind[:2] for kind in kinds})
    assert len({(h, d) for h, d in zip(trace.kind, trace.degree, strict=True)}) == len(
        np.unique(trace.kind)
    )


def test_same_seed_same_trace():
    one, two, other = (generate_trace(seed=seed, instances=12_000) for seed in (7, 7, 8))
    assert np.array_equal(one.event_ts, two.event_ts) and np.array_equal(one.kind, two.kind)
    assert len(one) != len(other) or not np.array_equal(one.event_ts, other.event_ts)


def test_impossible_settings_are_refused_together():
    with pytest.raises(InvalidCall) as caught:
        TraceSettings(instances=0, spacing="odd", optional_calls=1.0)
    assert len(caught.value.problems) == 3
    with pytest.raises(InvalidCall, match="popularity"):
        generate_trace(instances=10, kinds=20)
