"""The paper's window experiments on the drawn trace, and policies on a real access log."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import anabranch as ab
from anabranch.assembly.closing import Closing
from anabranch.assembly.table import Column
from papers.dssis.arrays import assemble_arrays
from papers.dssis.tracing.accesslog import AccessLog, read_access_log
from papers.dssis.tracing.generator import Trace, generate_trace
from papers.dssis.tracing.scoring import LEVELS, rows_of_sliding, rows_of_windows, score

LOG = Path(__file__).parents[3] / "shared" / "data" / "apache_access.log.gz"


@given(
    st.lists(
        st.tuples(st.integers(0, 4), st.integers(0, 3), st.booleans()), min_size=1, max_size=30
    )
)
def test_scores_by_counting(drawn: list[tuple[int, int, bool]]) -> None:
    names = {name: n for n, name in enumerate(dict.fromkeys(truth for _, truth, _ in drawn))}
    numbers = {row: n for n, row in enumerate(dict.fromkeys(row for row, _, _ in drawn))}
    rows = [numbers[row] for row, _, _ in drawn]
    truth = [names[of] for _, of, _ in drawn]
    kinds = [kind for _, _, kind in drawn]
    inside = defaultdict(list)
    for place, row in enumerate(rows):
        inside[row].append(place)
    k = dict.fromkeys(names.values(), 0)
    seen, opened, mixed = set(), set(), set()
    for row in sorted(inside):
        places = inside[row]
        owner = truth[places[0]]
        foreign = any(truth[p] != owner for p in places)
        if kinds[places[0]]:
            opened.add(owner)
        if foreign:
            mixed |= {truth[p] for p in places}
        if owner not in seen:
            seen.add(owner)
            k[owner] = 0 if foreign else len(places)
    degree = {i: truth.count(i) for i in k}
    found = score(np.array(rows), np.array(truth), np.array(kinds))
    for level, share in zip(LEVELS, found.completeness, strict=True):
        assert share == pytest.approx(np.mean([k[i] / degree[i] >= level for i in k]))
    assert found.events == pytest.approx(sum(k.values()) / len(rows))
    assert found.recall == pytest.approx(len(opened) / len(k))
    assert found.correct == pytest.approx(1 - len(mixed) / len(k))


@pytest.fixture(scope="module")
def trace() -> Trace:
    return generate_trace(seed=0)


def keys(trace: Trace) -> np.ndarray:
    columns = np.stack([trace.kind, trace.instance_ts, trace.client])
    return np.unique(columns, axis=1, return_inverse=True)[1].ravel()


def test_table_6(trace: Trace) -> None:
    """Within two points of what five seeds give; the paper's own are in papers/dssis/README.md."""
    kinds = trace.service == 0
    found = assemble_arrays(trace.event_ts, keys(trace), ab.close.count(13, "22 seconds"))
    swa = score(rows_of_windows(found), trace.truth, kinds)
    shares = [100 * x for x in (*swa.completeness, swa.events)]
    assert shares == pytest.approx([83.2, 98.9, 99.7, 98.2], abs=1.0)
    assert swa.recall > 0.9999 and swa.correct > 0.9999
    for size, want in {
        8000: [15.7, 19.6, 26.8, 50.7],
        16000: [47.0, 51.8, 59.0, 73.0],
        32000: [72.0, 74.9, 78.9, 86.1],
    }.items():
        sliding = score(rows_of_sliding(keys(trace), size), trace.truth, kinds)
        shares = [100 * x for x in (*sliding.completeness, sliding.events)]
        assert shares == pytest.approx(want, abs=2.0)


def test_most_windows_of_the_paper_time_out(trace: Trace) -> None:
    """Its section 5.3 expects five per cent: every instance below 13 waits for the timeout."""
    found = assemble_arrays(trace.event_ts, keys(trace), ab.close.count(13, "22 seconds"))
    timed_out = (found.column(Column.REASON) == 2).mean()
    assert 0.5 < timed_out < 0.7


def test_steps_and_order_change_nothing(trace: Trace) -> None:
    key, closing = keys(trace), ab.close.learned("22 seconds", after=5)
    some = slice(0, 30_000)
    one = assemble_arrays(trace.event_ts[some], key[some], closing, kind=trace.kind[some])
    many = assemble_arrays(trace.event_ts[some], key[some], closing, kind=trace.kind[some], steps=9)
    assert (one.windows[:, : Column.ORDER] == many.windows[:, : Column.ORDER]).all()
    assert (one.rows == many.rows).all()


@pytest.fixture(scope="module")
def log() -> AccessLog:
    if not LOG.exists():
        pytest.skip("the access log is not here")
    return read_access_log(LOG)


def point(log: AccessLog, closing: Closing) -> tuple[float, float]:
    """Precise completeness, and the mean life of windows in seconds."""
    made = assemble_arrays(log.t, log.key, closing, kind=log.kind)
    order = np.lexsort((np.arange(len(log.t)), log.t))
    found = score(rows_of_windows(made)[order], log.truth[order], log.is_page[order])
    return found.completeness[0], made.life.mean() / 1e6


@pytest.mark.parametrize(
    ("other", "risk"),
    [
        (ab.close.count(13, "22 seconds"), 0.2),
        (ab.close.after("30 seconds"), 0.2),
        (ab.close.gap("8 seconds"), 0.5),
        (ab.close.gap("30 seconds"), 0.05),
        (ab.close.gap("40 seconds"), 0.01),
    ],
)
def test_learned_closing_is_sooner_and_more_complete(
    log: AccessLog, other: Closing, risk: float
) -> None:
    completeness, life = point(log, ab.close.learned("60 seconds", risk=risk))
    rival, rival_life = point(log, other)
    assert completeness > rival and life < rival_life


@pytest.mark.parametrize("risk", [0.2, 0.05, 0.01, 0.002])
def test_no_more_windows_than_allowed_close_too_early(log: AccessLog, risk: float) -> None:
    completeness, _ = point(log, ab.close.learned("60 seconds", risk=risk))
    assert 1 - completeness < risk


def test_the_log_is_what_it_is(log: AccessLog) -> None:
    assert (log.lines, log.unreadable, log.without_page) == (10_000, 0, 1071)
    assert len(log.t) == 8929 and log.truth.max() + 1 == 4455
