"""Any order, batching, doubling and snapshot gives the twin's results, and state stays bounded."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.edge.definitions import Definition, Stream, View
from anabranch.edge.directives import Directive, Hosted
from anabranch.edge.evaluator import Evaluator
from anabranch.edge.ownership import LATEST, Boundary, retire
from anabranch.edge.sections import Section
from anabranch.errors import StateMismatch
from tests.edge.twin import Known, Put, twin
from tests.edge.world import identities
from tests.examples import examples

STREAMS = [Stream(f"gps[{who}]", who, {"x": "bigint", "name": "string"}, 2) for who in "abc"]
NEAR = Definition("near", "pairs", (7, 3), ["within", "x", "x", 2], (("x",), ("name", "x")))
BIG = Definition("big", "each", (0, 0), [["x", ">=", 3]], (("name",),))
VIEWS = [
    View("near(a,b)", "near", (0, 1), (1.0, 0.5)),
    View("near(c,a)", "near", (2, 0), (0.5, 1.0)),
    View("big(b)", "big", (1,), (1.0,)),
]
BOUNDS = (Boundary(0, "here"), Boundary(2, "there"), Boundary(4, "here"))


def told(bounds: tuple[Boundary, ...] = BOUNDS) -> Directive:
    hosted = tuple(Hosted(number, view, bounds) for number, view in enumerate(VIEWS))
    return Directive(5, False, tuple(enumerate(STREAMS)), (NEAR, BIG), hosted)


@st.composite
def histories(draw: st.DrawFn) -> dict[int, list[Put]]:
    rows = {}
    for stream in range(3):
        count = draw(st.integers(0, 14))
        t = np.cumsum(draw(st.lists(st.integers(0, 4), min_size=count, max_size=count)))
        stamps = sorted(draw(st.lists(st.integers(0, 5), min_size=count, max_size=count)))
        values = draw(st.lists(st.integers(0, 5), min_size=count, max_size=count))
        rows[stream] = [
            Put(n, 100 + int(t[n]), stamps[n], {"x": values[n], "name": f"{stream}.{n}"})
            for n in range(count)
        ]
    return rows


def where(definition: Definition, a: Put, b: Put) -> bool:
    near = abs(int(a.values["x"]) - int(b.values["x"])) <= 2
    return near if definition is NEAR else int(a.values["x"]) >= 3


def sections(rows: dict[int, list[Put]], cuts: list[int]) -> dict[int, list[Section]]:
    """The rows that can be sampled, cut into sections of one stamp, each with its watermark."""
    found: dict[int, list[Section]] = {}
    for stream, mine in rows.items():
        firsts = [row for k, row in enumerate(mine) if k == 0 or row.t // 2 != mine[k - 1].t // 2]
        for k, row in enumerate(firsts):
            later = firsts[k + 1].t - 1 if k + 1 < len(firsts) else LATEST - 100
            n, t = np.array([row.n]), np.array([row.t])
            columns = np.array([row.values["x"]]), np.array([row.values["name"]], object)
            found.setdefault(stream, []).append(
                Section(stream, row.stamp, n, t, columns, later if k % 2 or k in cuts else -1)
            )
        end = np.empty(0, np.int64)
        found.setdefault(stream, []).append(Section(stream, 5, end, end, (), LATEST - 100))
    return found


@settings(max_examples=examples(40))
@given(histories(), st.data())
def test_any_way_rows_come_the_results_are_the_twins(
    rows: dict[int, list[Put]], data: st.DataObject
) -> None:
    left = sections(rows, data.draw(st.lists(st.integers(0, 9), max_size=4)))
    place = Evaluator("here")
    place.learn(told())
    found = []
    done: list[Section] = []
    while any(left.values()):
        stream = data.draw(st.sampled_from([k for k, some in left.items() if some]))
        batch = [
            left[stream].pop(0) for _ in range(min(len(left[stream]), data.draw(st.integers(1, 4))))
        ]
        again = data.draw(st.lists(st.sampled_from(done), max_size=2)) if done else []
        done += batch
        steps = data.draw(st.permutations([*batch, *(replace(one, watermark=-1) for one in again)]))
        found += place.take(steps)
        if data.draw(st.booleans()):
            place = Evaluator.restore(place.snapshot())
    known = [
        Known(number, view, BIG if number == 2 else NEAR, 0, np.inf)
        for number, view in enumerate(VIEWS)
    ]
    stamps = {s: {row.n: row.stamp for row in mine} for s, mine in rows.items()}
    due = []
    for one in twin(known, STREAMS, rows, where):
        inputs = VIEWS[one[0]].inputs
        low = min(stamps[s][n] for s, n in zip(inputs, one[1:], strict=True))
        due += [one] if low < 2 or low >= 4 else []  # others are there, not here
    assert sorted(identities(found)) == sorted(due)
    assert place.rows == 0
    names = {s: {row.n: row.values["name"] for row in mine} for s, mine in rows.items()}
    for results in found:
        view = VIEWS[results.view]
        kept = results.columns[0 if results.view == 2 else 1]
        assert kept.tolist() == [names[view.inputs[-1]][n] for n in results.n[-1].tolist()]


def row(stream: int, n: int, t: int, stamp: int) -> Section:
    columns = np.array([0]), np.array(["x"], object)
    return Section(stream, stamp, np.array([n]), np.array([t]), columns, t - 1)


def test_state_is_freed_by_the_watermarks_of_partners_alone() -> None:
    place = Evaluator("here")
    place.learn(told())
    for n in range(50):
        place.step([row(0, n, 100 + 2 * n, 0)])
    assert place.rows == 50  # nothing is known of b and c: their channels have not opened
    place.step([row(1, 0, 150, 0)])  # which a has passed already
    assert place.rows == 50
    place.step([row(2, 0, 150, 0)])
    assert place.rows < 40
    place.step([row(1, 1, 300, 0), row(2, 1, 300, 0)])
    assert place.rows <= 4


def test_a_boundary_that_is_retired_too_early_is_an_error() -> None:
    early = retire(BOUNDS, 0, 120)  # no row stamped below 2 comes after 120 - 7
    place = Evaluator("here")
    place.learn(told(early))
    place.step([row(0, 0, 113, 1), row(0, 1, 130, 2)])
    with pytest.raises(StateMismatch, match="was retired too early at 'here': row 2 at 114"):
        place.step([row(1, 2, 114, 1)])
    held = Evaluator("here")
    held.learn(told())
    held.step([row(1, 2, 114, 1)])
    with pytest.raises(StateMismatch, match="retired too early"):
        held.learn(told(early))


def test_a_view_that_has_found_all_its_pairs_is_forgotten() -> None:
    place = Evaluator("there")
    place.learn(told(BOUNDS))
    place.step([row(0, 0, 100, 2), row(1, 0, 100, 2), row(2, 0, 100, 2)])
    place.learn(told(retire(BOUNDS, 2, 107)))
    assert not place.done and place.rows == 3
    for stream in range(3):
        place.step([row(stream, 1, 200, 4)])
    assert not place.rows and place.done == {0, 1, 2}
    assert place.known[0] == VIEWS[0]
    with pytest.raises(StateMismatch, match="was retired too early at 'there'"):
        place.step([row(0, 2, 201, 3)])  # after the mark, though stamped before the boundary


def test_state_of_another_version_is_rejected() -> None:
    blob = bytearray(Evaluator("here").snapshot())
    blob[1] = 9
    with pytest.raises(StateMismatch, match="has version 9, and this is 1"):
        Evaluator.restore(bytes(blob))
