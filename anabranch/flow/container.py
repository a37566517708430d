"""The one form of everything that is stored or sent: named parts and a few notes, as bytes.

A part is a numpy array or a string of bytes. Arrays are read back as read-only views, without a
copy. The first bytes tell the version of the layout, so that a checkpoint of another version is
refused in words and not misread.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from anabranch.errors import StateMismatch

__all__ = ["pack", "unpack"]

_MAGIC = b"anabra"
_VERSION = 7
_PLAIN, _COMPRESSED = 0, 1
_HEAD = 16  # magic, version, form, and the length of what describes the parts
_ALIGNED = 8


def pack(
    parts: Mapping[str, Any], meta: Mapping[str, Any] | None = None, *, small: bool = False
) -> bytes:
    """Bytes that `unpack` reads; compressed if they are to be `small`.

    Examples
    --------
    >>> parts, meta = unpack(pack({"a": np.eye(2), "b": b"xyz"}, {"n": 1}))
    >>> parts["a"].tolist(), bytes(parts["b"]), meta
    ([[1.0, 0.0], [0.0, 1.0]], b'xyz', {'n': 1})
    """
    described, buffers = [], []
    for name, part in parts.items():
        if isinstance(part, np.ndarray):
            # Column by column where it is to be small: values of a column are alike.
            columns = small and part.ndim == 2
            raw: Any = part.tobytes("F" if columns else "C")
            described.append([name, len(raw), part.dtype.str, list(part.shape), columns])
        else:
            raw = memoryview(part)
            described.append([name, raw.nbytes])
        buffers += [raw, b"\0" * (-len(memoryview(raw)) % _ALIGNED)]
    about = json.dumps({"parts": described, "meta": dict(meta or {})}).encode()
    about += b" " * (-(len(about)) % _ALIGNED)
    if small:
        whole = b"".join([about, *buffers])
        packed: bytes = pa.compress(whole, "zstd", asbytes=True)
        size = len(whole).to_bytes(8, "little")
        return _head(_COMPRESSED, len(about)) + size + packed
    return b"".join([_head(_PLAIN, len(about)), about, *buffers])


def unpack(data: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """The parts and the notes that `pack` was given; parts of bytes as views."""
    view = memoryview(data)
    if bytes(view[:6]) != _MAGIC or view[6] != _VERSION:
        raise StateMismatch(
            f"stored data begins with {bytes(view[:7])!r}, this version of anabranch reads "
            f"{_MAGIC + bytes([_VERSION])!r}: it was written by another version; restart with that "
            "one, or begin a new checkpoint"
        )
    length = int.from_bytes(view[8:16], "little")
    body = view[_HEAD:]
    if view[7] == _COMPRESSED:
        size = int.from_bytes(body[:8], "little")
        body = memoryview(pa.decompress(body[8:], size, "zstd", asbytes=True))
    about = json.loads(bytes(body[:length]))
    parts: dict[str, Any] = {}
    at = length
    for name, size, *kind in about["parts"]:
        raw = body[at : at + size]
        parts[name] = raw if not kind else _array(raw, *kind)
        at += size + -size % _ALIGNED
    return parts, about["meta"]


def _array(raw: memoryview, dtype: str, shape: list[int], columns: bool) -> np.ndarray:
    flat = np.frombuffer(raw, dtype)
    if columns:
        return np.ascontiguousarray(flat.reshape(shape[::-1]).T)
    return flat.reshape(shape)


def _head(form: int, length: int) -> bytes:
    return _MAGIC + bytes([_VERSION, form]) + length.to_bytes(8, "little")
