"""Frames come back as they were; damaged ones and those of other versions are rejected."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from anabranch.edge.codec import read_column, write_column
from anabranch.edge.definitions import Definition, Stream, View
from anabranch.edge.directives import Directive, Hosted
from anabranch.edge.frames import (
    Down,
    FrameError,
    Output,
    Up,
    decode_down,
    decode_output,
    decode_up,
    encode_down,
    encode_output,
    encode_up,
)
from anabranch.edge.ownership import EARLIEST, LATEST, Boundary
from anabranch.edge.sections import Results, Section

LONG = st.integers(-(2**63), 2**63 - 1)
FLOATS = st.one_of(
    st.floats(allow_nan=False),
    st.decimals(-1000, 1000, places=5).map(float),
    st.integers(-1000, 1000).map(float),
)


def arrays(rows: int) -> st.SearchStrategy[np.ndarray]:
    def column(elements: Any, dtype: Any) -> st.SearchStrategy[np.ndarray]:
        return st.lists(elements, min_size=rows, max_size=rows).map(lambda v: np.array(v, dtype))

    return st.one_of(
        column(LONG, np.int64),
        column(st.integers(-(2**31), 2**31 - 1), np.int32),
        column(FLOATS, np.float64),
        column(st.floats(width=32, allow_nan=False), np.float32),
        column(st.booleans(), np.bool_),
        column(st.text(), object),
        hnp.arrays(np.float64, (rows, 3), elements=FLOATS),
        hnp.arrays(np.float32, (rows, 2), elements=st.floats(width=32, allow_nan=False)),
    )


@st.composite
def sections(draw: st.DrawFn) -> Section:
    rows = draw(st.integers(1, 6))
    base = draw(st.integers(0, 5)) << 32
    n = base + np.cumsum(draw(st.lists(st.integers(1, 9), min_size=rows, max_size=rows)))
    t = np.sort(np.array(draw(st.lists(LONG, min_size=rows, max_size=rows)), np.int64))
    columns = tuple(draw(st.lists(arrays(rows), max_size=3)))
    small = st.integers(0, 300)
    return Section(draw(small), draw(small), n, t, columns, draw(LONG), draw(st.floats(0, 1)))


def same(one: np.ndarray, other: np.ndarray) -> bool:
    """Equal to the last bit, and of one type."""
    if one.dtype != other.dtype or one.shape != other.shape:
        return False
    if one.dtype == object:
        return bool(one.tolist() == other.tolist())
    return np.ascontiguousarray(one).tobytes() == np.ascontiguousarray(other).tobytes()


def equal(one: Any, other: Any) -> bool:
    mine, yours = vars(one), vars(other)
    for name, value in mine.items():
        if name == "packed":  # the same once more, as bytes
            continue
        if isinstance(value, np.ndarray):
            if not same(value, yours[name]):
                return False
        elif isinstance(value, tuple) and value and isinstance(value[0], np.ndarray):
            if not all(map(same, value, yours[name])):
                return False
        elif value != yours[name]:
            return False
    return True


@given(st.lists(sections(), max_size=3), st.integers(0, 2**31 - 1))
def test_a_frame_of_a_device_comes_back(rows: list[Section], incarnation: int) -> None:
    up = Up(incarnation, 7, 3, 2, tuple(rows), (), {"adopted": [[3, EARLIEST]]})
    back = decode_up(encode_up(up))
    assert (back.incarnation, back.number, back.epoch, back.seen) == (incarnation, 7, 3, 2)
    assert back.extras == up.extras
    assert all(map(equal, rows, back.sections)) and len(back.sections) == len(rows)
    # Passed on as it came, it is what a mailbox would have of the rows themselves.
    passed = encode_down(Down(0, 1, 2, back.sections))
    assert all(map(equal, rows, decode_down(passed).steps))
    assert passed == encode_down(Down(0, 1, 2, tuple(rows)))


@given(sections(), st.integers(1, 5))
def test_a_frame_of_a_mailbox_comes_back_in_its_order(section: Section, epoch: int) -> None:
    view = View("near(a,b)", "near", (0, 4), (1.0, 0.05))
    bounds = Boundary(0, "cloud", until=9), Boundary(epoch, "ann", until=LATEST)
    directive = Directive(
        epoch,
        False,
        ((4, Stream("gps[b]", "b", {"xy": "array<double>"}, 1_000_000)),),
        (Definition("near", "pairs", (3, 4), ["same", "x", "x"], (("x",), ())),),
        (Hosted(2, view, bounds),),
        ((4, 0.5, LATEST),),
    )
    found = Results(
        2,
        (np.array([1, 2]), np.array([5, 3])),
        (np.array([10, 20]), np.array([11, 19])),
        np.array([3, 4]),
        np.array([0.5, np.nan]),
        (np.array([[1.0, 2.0], [3.0, 4.5]]),),
    )
    down = Down(4, 99, -1, (section, directive, section), (found,), {"rewind": 3})
    back = decode_down(encode_down(down))
    assert back.steps[1] == directive and equal(back.steps[0], section)
    assert equal(back.results[0], found)
    assert (back.number, back.position, back.acked, back.extras) == (4, 99, -1, {"rewind": 3})
    assert equal(decode_output(encode_output(Output(8, (found,)))).results[0], found)


@given(st.data())
def test_a_column_comes_back_to_the_last_bit(data: st.DataObject) -> None:
    column = data.draw(arrays(data.draw(st.integers(1, 9))))
    assert same(read_column(write_column(column), len(column)), column)


@given(sections(), st.data())
def test_a_damaged_frame_is_rejected_or_a_frame(section: Section, data: st.DataObject) -> None:
    content = bytearray(encode_up(Up(1, 0, 0, 0, (section,))))
    at = data.draw(st.integers(0, len(content) - 1))
    content[at] ^= data.draw(st.integers(1, 255))
    try:
        decode_up(bytes(content[: data.draw(st.integers(0, len(content)))]))
    except FrameError as error:
        assert "damaged" in str(error) or "version" in str(error)


def test_a_frame_of_another_version_says_so() -> None:
    content = bytearray(encode_down(Down(0, 0, 0)))
    content[1] = 1
    with pytest.raises(FrameError, match="a frame of version 1, and this is version 3: upgrade"):
        decode_down(bytes(content))


def test_rows_with_few_decimals_are_short() -> None:
    t = 1_794_777_279_000_000 + np.cumsum(np.random.default_rng(1).integers(9e5, 11e5, 60))
    xy = np.round(47.3 + np.cumsum(np.random.default_rng(2).normal(0, 1e-4, (60, 2)), axis=0), 6)
    section = Section(3, 5, np.arange(60), t, (xy,), int(t[-1]))
    assert len(encode_up(Up(0, 1, 5, 1, (section,)))) / 60 < 13
