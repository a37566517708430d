"""Load reports in, plan changes out: no clock, no thread, no Spark."""

from __future__ import annotations

import numpy as np
import pytest

import anabranch as ab
from anabranch.flow.load import Load
from anabranch.plans.controller import Change, Controller, Report
from anabranch.plans.costs import choose, copies
from anabranch.plans.hashed import Broadcast, Grid
from anabranch.plans.log import Entry
from anabranch.plans.plan import Plan
from anabranch.plans.routing import LivePlans
from anabranch.plans.segments import Segments
from anabranch.plans.story import story

SECOND = 1_000_000
START = 1_700_000_000 * SECOND
WINDOW = (10 * SECOND, 10 * SECOND)


class Cluster:
    """A made-up cluster: rates and speeds in, the loads that a plan would report out."""

    def __init__(
        self, settings, start: Plan, speeds=None, span: int = 2 * SECOND, bind=None, one=False
    ):
        self.entries = [Entry(0, 0, start, 0, (0,), {"rule": "start"})]
        self.controller = Controller(
            self.entries, WINDOW, SECOND, settings, one_stream=one, bind=bind
        )
        self.one_stream = one
        self.speeds = speeds or {}
        self.span = span
        self.per_copy = 1e-6
        self.batch = 0
        self.watermark = START
        self.changes: list[tuple[int, Change]] = []

    @property
    def plan(self) -> Plan:
        return [entry for entry in self.entries if entry.first <= self.batch][-1].plan

    def run(self, batches: int, left: float, right: float, comparisons: float = 1e6, requests=()):
        for _ in range(batches):
            plan, k = self.plan, self.plan.workers
            sent = copies(plan, (left, right), WINDOW, self.one_stream)
            shares = np.ones(k) / k
            weights = getattr(plan, "weights", None)
            if weights is not None and not isinstance(plan, Grid):
                shares = np.array(weights) / sum(weights)
            loads = [
                Load(
                    worker,
                    rows_left=int(left) if worker == 0 else 0,
                    rows_right=int(right) if worker == 0 and not self.one_stream else 0,
                    copies_left=int(sent * shares[worker]),
                    comparisons=int(comparisons * shares[worker]),
                    compare_seconds=comparisons
                    * shares[worker]
                    / (1e7 * self.speeds.get(worker, 1)),
                    busy_seconds=comparisons * shares[worker] / (1e7 * self.speeds.get(worker, 1))
                    + sent * shares[worker] * self.per_copy,
                )
                for worker in range(k)
            ]
            change = self.controller.handle(
                Report(self.batch, 1.0, self.watermark, tuple(loads)), requests
            )
            requests = ()
            if change is not None:
                entry = change.entry(self.batch + 3)
                self.entries.append(entry)
                self.controller.written(entry)
                self.changes.append((self.batch, change))
            self.batch += 1
            self.watermark += self.span
        return self

    @property
    def switches(self) -> list[Change]:
        return [
            change for _, change in self.changes if change.cause["rule"] not in ("mark", "retire")
        ]


def test_the_faster_stream_becomes_the_master():
    cluster = Cluster(ab.adaptive(4, policies=["shape"]), Broadcast(4, "right"))
    cluster.run(20, left=1000, right=100)
    assert cluster.switches == []
    cluster.run(30, left=100, right=1000)
    (switch,) = cluster.switches
    assert switch.plan == Broadcast(4, "left")
    assert switch.cause["rule"] == "shape"
    assert switch.cause["figures"]["copies"] > switch.cause["figures"]["instead"]
    assert switch.cause["old"] == "broadcast(4, side=right)"


@pytest.mark.parametrize("start", [Broadcast(4, "right"), Segments(4, 10 * SECOND, "right")])
def test_roles_switch_once_the_slave_is_clearly_faster(start):
    cluster = Cluster(ab.adaptive(4, policies=["role"]), start).run(30, left=800, right=1000)
    assert cluster.switches == []
    cluster.run(30, left=500, right=1000)
    (switch,) = cluster.switches
    assert switch.plan.side == "left" and type(switch.plan) is type(start)
    assert switch.cause["figures"]["right rows"] > 1.35 * switch.cause["figures"]["left rows"]


def test_a_segment_length_that_cannot_gain_is_not_tried():
    cluster = Cluster(ab.adaptive(4, policies=["segment"]), Segments(4, 8 * SECOND))
    assert cluster.run(100, 1000, 1000).switches == []  # copies cost nothing, loads are even


def test_equal_rates_want_a_square():
    cluster = Cluster(ab.adaptive(4, policies=["shape"]), Broadcast(4, "right")).run(30, 500, 500)
    assert [change.plan for change in cluster.switches] == [Grid(2, 2)]


@pytest.mark.parametrize(
    "start", [Broadcast(2), Broadcast(4), Grid(2, 2), Grid(4, 2), Segments(4, 10 * SECOND)]
)
def test_rates_that_wobble_by_a_fifth_change_nothing(start):
    cluster = Cluster(ab.adaptive(8), start)
    cluster.run(60, 1000, 1000 if start != Broadcast(4) else 200)
    switched = len(cluster.switches)
    random = np.random.default_rng(0)
    for _ in range(200):
        low, high = (1000, 1000) if start != Broadcast(4) else (1000, 200)
        cluster.run(1, low * random.uniform(0.8, 1.2), high * random.uniform(0.8, 1.2))
    assert len(cluster.switches) == switched


@pytest.mark.parametrize("workers", [3, 5, 7, 10, 13])
def test_rates_that_sway_against_each_other_by_a_fifth_do_not_flap(workers):
    cluster = Cluster(ab.adaptive(workers, policies=["shape"]), choose(workers))
    cluster.run(40, 1000, 1000)
    switched = len(cluster.switches)
    for n in range(400):
        sway = 0.2 * np.sin(2 * np.pi * n / 40)
        cluster.run(1, 1000 * (1 + sway), 1000 * (1 - sway))
    assert len(cluster.switches) == switched
    cluster.run(40, 100, 10_000)
    assert cluster.plan == Broadcast(workers, "left")


def test_uneven_loads_that_speeds_do_not_explain_change_no_shares():
    cluster = Cluster(ab.adaptive(4, policies=["weights"]), Broadcast(4))
    loads = tuple(
        Load(
            worker,
            rows_left=1000 if worker == 0 else 0,
            comparisons=compared,
            compare_seconds=compared / 1e7,
            busy_seconds=compared / 1e7 + 0.05,
        )
        for worker, compared in enumerate([8_000_000, 400_000, 300_000, 300_000])
    )
    for batch in range(60):
        report = Report(batch, 1.0, START + batch * 2 * SECOND, loads)
        assert cluster.controller.handle(report) is None


def uneven_batches(cluster: Cluster) -> Cluster:
    random = np.random.default_rng(0)
    for _ in range(20):
        cluster.span = int(300 * SECOND * random.uniform(0.95, 1.05))
        cluster.run(1, 100_000, 100_000, comparisons=1e4)
    return cluster


def test_segments_are_chosen_though_no_two_batches_span_the_same():
    cluster = uneven_batches(Cluster(ab.adaptive(8, policies=["kind"]), Grid(4, 2)))
    assert isinstance(cluster.switches[0].plan, Segments)


def test_a_plan_that_the_call_cannot_run_under_is_never_chosen():
    def bind(plan: Plan) -> Plan:
        if isinstance(plan, Segments):
            raise ValueError("the window counts rows")
        return plan

    settings = ab.adaptive(8, policies=["kind"])
    assert uneven_batches(Cluster(settings, Grid(4, 2), bind=bind)).switches == []


def test_a_query_without_a_watermark_or_rows_changes_nothing():
    cluster = Cluster(ab.adaptive(4, policies=["workers"]), Broadcast(4))
    cluster.watermark, cluster.span = 0, 0
    assert cluster.run(20, 10, 10, comparisons=10).switches == []
    cluster.watermark, cluster.span = START, 20 * SECOND
    cluster.run(2, 10, 10, comparisons=10)
    assert cluster.run(20, 0, 0, comparisons=0).switches == []
    assert cluster.run(4, 10, 10, comparisons=10).switches != []


def test_policies_wait_while_more_than_two_plans_are_live():
    cluster = Cluster(ab.adaptive(8, policies=["shape"]), Broadcast(4))
    cluster.controller.delay = 600 * SECOND  # nothing is retired for long
    for n in range(10):
        cluster.run(12, *((1000, 100) if n % 2 else (100, 1000)))
    assert len(cluster.entries[-1].live) == 3


def test_a_worker_without_a_report_is_idle():
    cluster = Cluster(ab.adaptive(4), Segments(4, SECOND))
    for batch in range(40):  # one worker at a time
        busy = Load(batch % 4, rows_left=10, comparisons=1, busy_seconds=0.8, compare_seconds=0.8)
        cluster.controller.handle(Report(batch, 1.0, START, (busy,)))
    loads = cluster.controller._seen.loads
    assert sum(loads.values()) / 4 < 0.3


def test_what_another_run_wrote_is_caught_up_with():
    cluster = Cluster(None, Broadcast(4)).run(1, 10, 10, requests=[(Grid(2, 2), "")])
    stale = Controller(cluster.entries[:1], WINDOW, SECOND)
    stale.catch_up(cluster.entries)
    change = stale.handle(Report(5, 1.0, START, (Load(0),)), [(Broadcast(2), "again")])
    assert change.epoch == 2 and change.live == (0, 1, 2)


def test_slow_workers_get_smaller_shares_once():
    cluster = Cluster(ab.adaptive(4, policies=["weights"]), Broadcast(4), speeds={2: 0.5})
    cluster.run(60, 1000, 100, comparisons=4e6)
    (switch,) = cluster.switches
    weights = switch.plan.weights
    assert weights[2] < 0.7 * weights[0]
    assert switch.cause["figures"]["max load / mean"] > 1.2


def test_segments_are_chosen_when_a_batch_spans_many_of_them_and_left_when_it_does_not():
    copying = ab.adaptive(8, policies=["kind"])
    # Comparisons are few and a batch durations 300 s, so copies decide: catching up.
    cluster = Cluster(copying, Grid(4, 2), span=300 * SECOND)
    cluster.run(12, 100_000, 100_000, comparisons=1e4)
    assert isinstance(cluster.switches[0].plan, Segments)
    # Then it is live: a batch durations a tenth of a second, and one worker would do half the work.
    cluster.span = SECOND // 10
    cluster.controller._seen.duration = 0.0
    cluster.run(400, 1000, 1000, comparisons=1e9)
    assert not isinstance(cluster.plan, Segments)


def test_the_segment_length_climbs_and_settles():
    cluster = Cluster(ab.adaptive(4, policies=["segment"]), Segments(4, 8 * SECOND))
    best = 18 * SECOND  # throughput peaks here
    cluster.per_copy = 1e-4  # or a longer segment would have nothing to save

    for _ in range(300):
        length = cluster.plan.length
        off = abs(np.log(length / best))
        cluster.speeds = dict.fromkeys(range(4), 1 / (1 + off))
        cluster.run(1, 1000, 1000)
    lengths = [change.plan.length for change in cluster.switches]
    assert lengths[0] == 12 * SECOND and 18 * SECOND in lengths
    assert cluster.plan.length == 18 * SECOND
    assert len(lengths) <= 6
    before = len(lengths)
    cluster.run(100, 1000, 1000, comparisons=1e6)
    assert len(cluster.switches) == before


def test_busy_workers_are_joined_by_more_and_idle_ones_leave():
    cluster = Cluster(ab.adaptive(8, policies=["workers"]), Broadcast(2), span=10 * SECOND)
    cluster.run(15, 1000, 100, comparisons=3e7)  # 1.5 s of work for each of two workers, in 1 s
    assert cluster.plan.workers == 4
    cluster.run(60, 1000, 100, comparisons=1e4)
    assert cluster.plan.workers == 1


def test_replaced_plans_are_retired_when_the_watermark_has_passed_their_rows():
    cluster = Cluster(None, Broadcast(4))
    cluster.run(1, 10, 10, requests=[(Grid(2, 2), "by hand, for a test")])
    assert cluster.entries[-1].live == (0, 1)
    cluster.run(30, 10, 10)
    rules = [(batch, change.cause["rule"]) for batch, change in cluster.changes]
    # The switch holds from batch 3; then the mark is known: watermark + 1 s late + 1 ms. Batches
    # are 2 s apart, so 10 s of window later is six batches on.
    assert rules == [(0, "by hand"), (3, "mark"), (9, "retire")]
    mark = cluster.changes[1][1].marks[0]
    assert mark == START + 3 * 2 * SECOND + SECOND + 1000
    assert cluster.entries[-1].live == (1,)


def test_a_controller_goes_on_from_its_log():
    cluster = Cluster(None, Broadcast(4)).run(1, 10, 10, requests=[(Grid(2, 2), "")]).run(4, 10, 10)
    again = Controller(cluster.entries, WINDOW, SECOND)
    change = again.handle(Report(9, 1.0, START + 100 * SECOND, (Load(0),)))
    assert change is not None and change.live == (1,)
    lost = Controller(cluster.entries[:2], WINDOW, SECOND)  # the driver died before the mark
    assert lost.handle(Report(7, 1.0, START + 40 * SECOND, (Load(2),))) is None
    change = lost.handle(Report(7, 1.0, START + 40 * SECOND, (Load(0),)))
    assert change.marks == {0: START + 41 * SECOND + 1000} and change.live == (0, 1)


def test_a_mask_never_overflows():
    cluster = Cluster(None, Broadcast(1), span=0)
    for n in range(100):
        cluster.run(1, 10, 10, requests=[(Broadcast(1 + n % 3), "often")])
    newest = cluster.entries[-1]
    assert newest.epoch - min(newest.live) < 63
    LivePlans({number: Broadcast(1) for number in newest.live})


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"workers": 0}, "workers must be a whole number of at least 1, got 0"),
        ({"workers": None}, "workers must be a whole number of at least 1, got None"),
        ({"workers": 10**9}, "workers must be a whole number of at most 20,160"),
        ({"start": ab.grid(3, 2)}, "has more than 4 workers"),
        ({"start": "grid"}, "start must be a plan such as .* got 'grid'"),
        ({"start": ab.selective(2)}, "start must be a plan such as .* got Selective"),
        *(
            ({"weights": weights}, "weights must be three numbers of at least 0 that sum to 1, got")
            for weights in (None, 1, "abc", (), (1, 1, 1), (0.5, 0.5), (1, 1, -1), (1, None, 0))
        ),
        ({"weights": (float("nan"), 0.5, 0.5)}, "weights must be three numbers"),
        ({"policies": ["luck"]}, r"unknown policies \['luck'\]; known are shape"),
        ({"policies": [["shape"]]}, "unknown policies"),
        *(
            (
                {"policies": wrong},
                f"policies must be a list of one or more of shape.* got {wrong!r}",
            )
            for wrong in ("shape", None, 5)
        ),
        ({"policies": []}, r"policies must be a list of one or more of shape"),
        *(
            ({name: wrong}, f"{name} must be a number of bytes above 0, got")
            for name in ("memory", "bandwidth")
            for wrong in (None, "1GB", 0, -1, float("nan"), float("inf"), True, [1])
        ),
    ],
)
def test_bad_settings_are_refused(wrong, says):
    with pytest.raises(ab.errors.InvalidCall, match=says):
        ab.adaptive(**{"workers": 4, **wrong})


def test_the_story_tells_every_change():
    cluster = Cluster(ab.adaptive(4, policies=["shape"]), Broadcast(4)).run(40, 100, 1000)
    lines = story(cluster.entries)
    assert lines[0] == "batch 0: starts with plan 0, broadcast(4, side=right)."
    assert (
        "plan 1, broadcast(4, side=left), replaces plan 0, broadcast(4, side=right) (shape: saves"
        in lines[1]
    )
    assert "left rows 100" in lines[1]
    assert any("plan 0 retired" in line for line in lines)
