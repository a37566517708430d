"""A block's digest is that of its values, wherever they come from."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.flow.blocks import Block

FAR = (2**63 - 1, -(2**63))  # no datetime holds them, in any zone
COLUMNS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "text": (pa.string(), ["a", None, "", "ab", "a"]),
    "wide text": (pa.large_string(), ["a", None, "", "ab", "b"]),
    "bytes": (pa.binary(), [b"a", None, b"\0", b"", b"b"]),
    "instants": (pa.timestamp("us", "UTC"), [FAR[0], None, FAR[1], 0, 1]),
    "numbers": (pa.int32(), [1, None, -1, 0, 7]),
    "truths": (pa.bool_(), [True, None, False, False, True]),
    "decimals": (pa.decimal128(9, 2), [Decimal("1.25"), None, Decimal("-3"), Decimal(0), None]),
    "lists": (pa.list_(pa.string()), [["x", None], None, [], ["", "x"], [None, "x"]]),
    "vectors": (pa.list_(pa.float32(), 2), [[1, 2], None, [3, None], [0, 0], [2, 1]]),
    "structs": (
        pa.struct({"z": pa.timestamp("us", "Asia/Tokyo"), "s": pa.string()}),
        [{"z": FAR[0], "s": "a"}, None, {"z": None, "s": None}, {"z": 0, "s": ""}, {}],
    ),
    "maps": (pa.map_(pa.string(), pa.int64()), [[("a", 1)], None, [], [("b", None)], [("a", 2)]]),
    "nothing": (pa.null(), [None] * 5),
}


def digest(array: pa.Array) -> str:
    return Block.of(range(len(array)), {"c": array}).digest()


@pytest.mark.parametrize("name", COLUMNS)
def test_equal_rows_have_equal_digests_wherever_they_lie(name: str) -> None:
    kind, values = COLUMNS[name]
    array = pa.array(values, kind)
    for start in range(5):
        for stop in range(start, 6):
            part, alone = array[start:stop], pa.array(values[start:stop], kind)
            later = pa.concat_arrays([array, array])[5 + start : 5 + stop]
            taken = array.take(pa.array(range(start, stop), pa.int64()))
            assert len({digest(each) for each in (part, alone, later, taken)}) == 1


@pytest.mark.parametrize("name", [name for name in COLUMNS if name != "nothing"])
def test_other_rows_have_other_digests(name: str) -> None:
    kind, values = COLUMNS[name]
    array = pa.array(values, kind)
    parts = [array[start:stop] for start in range(5) for stop in range(start + 1, 6)]
    kinds = [part for n, part in enumerate(parts) if part not in parts[:n]]
    assert len({digest(part) for part in kinds}) == len(kinds)


@given(st.lists(st.lists(st.text(max_size=2) | st.none(), max_size=3) | st.none(), max_size=4))
def test_the_width_of_offsets_does_not_matter(values: list[Any]) -> None:
    narrow = pa.array(values, pa.list_(pa.string()))
    wide = pa.array(values, pa.large_list(pa.large_string()))
    assert digest(narrow) == digest(wide)
