"""Rows of one side as columns: what travels, what is stored and what kernels compare.

A block holds event times, the plan stamps of its rows (epoch and mask, see `routing`) and named
columns, each a numpy array (one value or one vector a row) or an Arrow array for everything that
is only carried. Blocks are immutable: kernels attach what they derive (a normalised matrix, a sort
order) to the block itself, so that it is computed once for as long as the block lives.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, is_dataclass
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from anabranch.flow.container import pack, unpack
from anabranch.flow.forms import stored_type, wide_type
from anabranch.flow.values import plain_values

__all__ = [
    "Block",
    "Column",
    "concat",
    "decode_batch",
    "encode_batch",
    "joined",
    "narrowed",
    "take",
    "together",
    "weigh",
]

Column = Any  # np.ndarray (1-D or 2-D) or pa.Array; numpy's and Arrow's stubs do not meet.
T = TypeVar("T")

# How much of Arrow columns is put together as it is stored: offsets have 31 bits.
TOGETHER_BYTES = 1 << 30


@dataclass(eq=False)
class Block:
    """Columns of some rows of one side.

    Examples
    --------
    >>> block = Block.of(t=[30, 10], columns={"id": np.array([7, 8]), "v": np.eye(2, dtype="f4")})
    >>> block.in_time_order().columns["id"].tolist()
    [8, 7]
    >>> again = Block.decode(block.encode())
    >>> again.t.tolist(), again.columns["v"].tolist(), again.epoch.tolist()
    ([30, 10], [[1.0, 0.0], [0.0, 1.0]], [0, 0])
    """

    t: np.ndarray
    epoch: np.ndarray
    mask: np.ndarray
    columns: dict[str, Column]
    meta: dict[str, Any] = field(default_factory=dict)
    _derived: dict[Any, Any] = field(default_factory=dict, repr=False)
    _derived_bytes: int = field(default=0, repr=False)
    _inner: list[Block] = field(default_factory=list, repr=False)  # blocks in what was derived
    _growing: list[Any] = field(default_factory=list, repr=False)  # what must be weighed anew

    @classmethod
    def of(cls, t: Any, columns: dict[str, Column], epoch: int = 0, mask: int = 1) -> Block:
        """A block whose rows all have the same stamps."""
        times = np.ascontiguousarray(t, np.int64)
        return cls(times, np.full(len(times), epoch), np.full(len(times), mask), columns)

    def __post_init__(self) -> None:
        # Stored blocks are read-only views; if fresh ones were not, every compiled kernel would
        # be compiled again for each mixture of the two.
        self.t, self.epoch, self.mask = map(_read_only, (self.t, self.epoch, self.mask))
        for name, column in self.columns.items():
            if isinstance(column, np.ndarray):
                self.columns[name] = _read_only(column)

    def __len__(self) -> int:
        return len(self.t)

    @property
    def nbytes(self) -> int:
        """Bytes of times and columns; stamps are mostly alike and then cost nothing."""
        return int(self.t.nbytes + sum(column.nbytes for column in self.columns.values()))

    @property
    def held_bytes(self) -> int:
        """Bytes in memory: `nbytes`, and what has been derived so far."""
        return self.nbytes + self._attached_bytes

    @property
    def _attached_bytes(self) -> int:
        """Bytes of all that was derived, also of what was derived of blocks among that."""
        inner = sum(block._attached_bytes for block in self._inner)
        return self._derived_bytes + inner + sum(map(weigh, self._growing))

    def derive(
        self, key: Any, make: Callable[[Block], T], *, shares: bool = False, grows: bool = False
    ) -> T:
        """``make(self)``, computed once.

        What `shares` the buffers of this block weighs nothing; what `grows` is weighed anew
        whenever that is asked for.
        """
        if key not in self._derived:
            made = self._derived[key] = make(self)
            self._derived_bytes += 0 if shares or grows else weigh(made)
            self._growing += [made] if grows else []
            self._inner += _blocks_in(made)
        found: T = self._derived[key]
        return found

    def has_derived(self, key: Any) -> bool:
        """Whether `derive` has this already."""
        return key in self._derived

    def take(self, rows: np.ndarray) -> Block:
        """The rows at these positions, in this order."""
        columns = {name: take(column, rows) for name, column in self.columns.items()}
        return Block(self.t[rows], self.epoch[rows], self.mask[rows], columns)

    def slice(self, start: int, stop: int) -> Block:
        """Rows ``start:stop``, without copying."""
        columns = {name: column[start:stop] for name, column in self.columns.items()}
        return Block(self.t[start:stop], self.epoch[start:stop], self.mask[start:stop], columns)

    def pieces(self, size: int) -> list[Block]:
        """The rows in blocks of about so many bytes, without copying; at least one."""
        count = max(1, -(-self.nbytes // size))
        step = max(1, -(-len(self) // count))
        starts = range(0, max(1, len(self)), step)
        return [self.slice(start, min(start + step, len(self))) for start in starts]

    def in_stored_form(self) -> Block:
        """The same rows with the types in which columns are stored; itself if it has them."""
        wide = {
            name: narrowed(column, stored_type(column.type))
            for name, column in self.columns.items()
            if not isinstance(column, np.ndarray) and stored_type(column.type) != column.type
        }
        if not wide:
            return self
        return Block(self.t, self.epoch, self.mask, {**self.columns, **wide}, self.meta)

    def in_time_order(self) -> Block:
        """The same rows by rising time; itself if they already are."""
        if len(self.t) < 2 or bool((self.t[1:] >= self.t[:-1]).all()):
            return self
        return self.take(np.argsort(self.t, kind="stable"))

    def without(self, *names: str) -> Block:
        """The same rows without these columns."""
        columns = {key: column for key, column in self.columns.items() if key not in names}
        return Block(self.t, self.epoch, self.mask, columns, self.meta)

    def digest(self) -> str:
        """A hash of times and columns, however and by whatever versions of Arrow they are held.

        Examples
        --------
        >>> here = Block.of([1], {"id": pa.array(["a"]), "v": np.eye(1)})
        >>> there = Block.of([1], {"v": np.eye(1), "id": pa.array(["a"], pa.large_string())})
        >>> here.digest() == there.digest(), here.digest() == here.without("v").digest()
        (True, False)
        """
        found = hashlib.sha256(np.asarray(self.t, "<i8").tobytes())
        for name in sorted(self.columns):
            column = self.columns[name]
            if isinstance(column, np.ndarray):
                plain = column.astype(column.dtype.newbyteorder("<"))
                head, data = f"{plain.dtype.str} {plain.shape}", plain.tobytes()
            else:
                parts = list(plain_values(column))
                head, data = f"values {[*map(len, parts)]}", b"".join(parts)
            found.update(f"{name} {head} {len(data)} ".encode() + data)
        return found.hexdigest()

    def encode(self, *, small: bool = False, **meta: Any) -> bytes:
        """Bytes that `decode` reads, compressed if they are to be `small`.

        Stamps that are alike in all rows are stored once.
        """
        stamps, arrays, names = {}, [pa.array(self.t)], ["t"]
        for name, stamp in (("epoch", self.epoch), ("mask", self.mask)):
            if len(stamp) and not bool((stamp == stamp[0]).all()):
                arrays.append(pa.array(stamp))
                names.append(name)
            else:
                stamps[name] = int(stamp[0]) if len(stamp) else 0
        numpy_columns = []
        for name, column in self.columns.items():
            if isinstance(column, np.ndarray):
                numpy_columns.append(name)
                column = _to_arrow(column)
            arrays.append(column)
            names.append("c." + name)
        rows = encode_batch(pa.RecordBatch.from_arrays(arrays, names))
        return pack({"rows": rows}, {"stamps": stamps, "numpy": numpy_columns, **meta}, small=small)

    @classmethod
    def decode(cls, data: Any) -> Block:
        """The block that `encode` wrote; its arrays are read-only views of `data`."""
        parts, meta = unpack(data)
        batch = decode_batch(parts["rows"])
        numpy_columns = set(meta.pop("numpy"))
        columns: dict[str, Column] = {}
        stamps: dict[str, np.ndarray] = {
            name: np.full(batch.num_rows, value, np.int64)
            for name, value in meta.pop("stamps").items()
        }
        for name, array in zip(batch.schema.names, batch.columns, strict=True):
            if not name.startswith("c."):
                stamps[name] = array.to_numpy()
            elif name[2:] in numpy_columns:
                columns[name[2:]] = _to_numpy(array)
            else:
                columns[name[2:]] = array
        return cls(stamps["t"], stamps["epoch"], stamps["mask"], columns, meta)


def encode_batch(batch: pa.RecordBatch) -> pa.Buffer:
    """A batch as one buffer, which `decode_batch` reads."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue()


def decode_batch(data: Any) -> pa.RecordBatch:
    """The batch that `encode_batch` wrote, as views of `data`."""
    buffer = data if isinstance(data, pa.Buffer) else pa.py_buffer(data)
    return pa.ipc.open_stream(buffer).read_next_batch()


def take(column: Column, rows: np.ndarray) -> Column:
    """The values of a column at these positions, in a wide type where they need one."""
    if isinstance(column, np.ndarray):
        return column[rows]
    places = pa.array(rows)
    try:
        return column.take(places)
    except pa.ArrowInvalid:
        # A few long texts, taken often, are more than their offsets can tell.
        wide = wide_type(column.type)
        if wide == column.type:
            raise
        return column.cast(wide).take(places)


def joined(columns: Sequence[Column]) -> Column:
    """The values of columns one after the other, in a wide type if they are too much for theirs.

    Examples
    --------
    >>> joined([pa.array(["a"]), pa.array(["b"], pa.large_string())]).to_pylist()
    ['a', 'b']
    """
    if len(columns) == 1:
        return columns[0]
    if isinstance(columns[0], np.ndarray):
        return np.concatenate(columns)
    types = {column.type for column in columns}
    if len(types) > 1 or sum(column.nbytes for column in columns) > TOGETHER_BYTES:
        columns = [column.cast(wide_type(column.type)) for column in columns]
    return pa.concat_arrays(columns)


def narrowed(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """A column in a narrower type: part of a wide one, whose values fit.

    Arrow looks at where a part begins in the buffers of the whole, not at how much of them it uses.
    Put together alone, it has buffers of its own.

    Examples
    --------
    >>> narrowed(pa.array(["a", "b", "c"], pa.large_string())[1:], pa.string()).to_pylist()
    ['b', 'c']
    """
    return (pa.concat_arrays([column]) if column.offset else column).cast(kind)


def concat(blocks: Sequence[Block]) -> Block:
    """The rows of all blocks, one after the other; columns may become wide.

    Examples
    --------
    >>> concat([Block.of(t=[1], columns={}), Block.of(t=[2, 3], columns={})]).t.tolist()
    [1, 2, 3]
    """
    if len(blocks) == 1:
        return blocks[0]
    columns = {
        name: joined([block.columns[name] for block in blocks]) for name in blocks[0].columns
    }
    return Block(
        np.concatenate([block.t for block in blocks]),
        np.concatenate([block.epoch for block in blocks]),
        np.concatenate([block.mask for block in blocks]),
        columns,
    )


def together(blocks: Sequence[Block]) -> list[list[Block]]:
    """The blocks in as few groups as can be put together in stored form, in their order.

    Examples
    --------
    >>> few = [Block.of(t=[n], columns={"id": pa.array(["a"])}) for n in range(3)]
    >>> [len(group) for group in together(few)]
    [3]
    """
    sizes = [
        sum(c.nbytes for c in block.columns.values() if not isinstance(c, np.ndarray))
        for block in blocks
    ]
    groups: list[list[Block]] = []
    filled = 0
    for block, size in zip(blocks, sizes, strict=True):
        if not groups or filled + size > TOGETHER_BYTES:
            groups.append([])
            filled = 0
        groups[-1].append(block)
        filled += size
    return groups


def weigh(value: Any) -> int:
    """Bytes of all arrays in something, or what it says itself; views count as copies.

    Examples
    --------
    >>> weigh({"a": np.zeros(2), "b": [np.zeros(1, np.int8), "text"]})
    17
    """
    if hasattr(value, "nbytes"):
        return int(value.nbytes)
    if is_dataclass(value):
        return sum(weigh(part) for part in vars(value).values())
    if isinstance(value, dict):
        return sum(weigh(part) for part in value.values())
    if isinstance(value, (tuple, list)):
        return sum(weigh(part) for part in value)
    return 0


def _blocks_in(value: Any) -> Iterator[Block]:
    """The blocks in something, as `weigh` looks through it."""
    if isinstance(value, Block):
        yield value
    elif is_dataclass(value):
        yield from _blocks_in(list(vars(value).values()))
    elif isinstance(value, dict):
        yield from _blocks_in(list(value.values()))
    elif isinstance(value, (tuple, list)):
        for part in value:
            yield from _blocks_in(part)


def _read_only(array: np.ndarray) -> np.ndarray:
    view = np.ascontiguousarray(array).view()
    view.flags.writeable = False
    return view


def _to_arrow(column: np.ndarray) -> pa.Array:
    if column.ndim == 1:
        return pa.array(column)
    flat = pa.array(np.ascontiguousarray(column).ravel())
    return pa.FixedSizeListArray.from_arrays(flat, column.shape[1])


def _to_numpy(array: pa.Array) -> np.ndarray:
    if pa.types.is_fixed_size_list(array.type):
        width = array.type.list_size
        flat: np.ndarray = array.flatten().to_numpy()
        return flat.reshape(-1, width)
    values: np.ndarray = array.to_numpy(zero_copy_only=not pa.types.is_boolean(array.type))
    return values
