"""Networks that describe pictures: any ONNX model, or the one that is built in."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np

from anabranch.calls import Check, is_number
from anabranch.errors import extra, renamed
from anabranch.video.lite import EMBEDDING, LOGITS, build, read_weights, weights_path
from anabranch.video.planes import area

__all__ = ["CONCEPTS", "Network", "lite0", "onnx", "pooled", "summed"]

_MEAN, _STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of ImageNet's pictures
_NUMBERS = files(__package__) / "network.json"

CONCEPTS: Mapping[str, tuple[int, ...]] = {
    name: tuple(
        n
        for part in classes.split()
        for n in range(int(part.split("-")[0]), int(part.split("-")[-1]) + 1)
    )
    for name, classes in {
        "person in a suit": "451 457 834 906",
        "soldier": "413 439 465 652 763-764",
        "doctor": "617 823 830 845",
        "sport": "429-430 522 574 722 746 768 805 852 890 981",
        "winter sport": "537 795-796 802",
        "helmet": "518 560",
        "car": "436 468 511 581 609 627 656 661 717 751 817",
        "lorry and bus": "555 569 654 675 734 757 779 803 864 867 874",
        "bicycle and motorcycle": "444 665 670-671 880",
        "train": "466 547 565 705 820 829",
        "aircraft": "403-405 417 895",
        "rocket": "657 744 812",
        "ship": "472 484 510 554 576 625 628 724 780 814 833 871 914",
        "port": "449 460 536",
        "water": "973-978",
        "mountain": "970 972 979-980",
        "tower": "437 682 900",
        "bridge": "718 821 839 888",
        "church and temple": "442 497 538 663 668 832",
        "palace and castle": "483 698 873",
        "house": "425 500 580 624 706 716 743",
        "crane and machine": "517 595 730 856",
        "street": "704 919-920",
        "shop": "415 454 467 509 582 788 860 865",
        "restaurant": "762 806 809",
        "food": "924-935 959-969",
        "fruit and vegetables": "936-957",
        "drink": "441 504 572 849 898-899 901 907",
        "screen": "508 527 620 664 681 782 851",
        "telephone": "487 528 707",
        "microphone and stage": "650 754 819 848",
        "music": "401-402 420 486 541 546 558 566 579 594 776 875 881 889",
        "book and page": "454 916-918 921-922",
        "clock": "409 530 531 826 892",
        "furniture": "423 431 453 526 532 559 765 831 857",
        "kitchen": "534 550 651 760 827 859 891",
        "dog": "151-275",
        "cat": "281-293",
        "bird and fish": "0-24 80-100 127-146 389-397",
        "other animal": "25-68 101-126 147-150 276-280 294-388",
    }.items()
}
"""Forty things that news show, each by the ImageNet classes that belong to it."""


@dataclass(frozen=True)
class Network:
    """A model that says what pictures show: a function for ``concepts=``.

    `groups` are the classes of each name, whose scores are put together; without them there is a
    name for each class. `path` is empty for the model that is built in.
    """

    path: str
    names: tuple[str, ...]
    size: tuple[int, int]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    layer: str
    groups: tuple[tuple[int, ...], ...] = ()

    def __call__(self, pictures: np.ndarray) -> np.ndarray:
        """Scores of pictures (n, height, width, 3): one row each, in the order of `names`."""
        scores: np.ndarray = self._run(pictures, self.layer)
        if not self.groups:
            return scores
        return summed(scores, self.groups) - np.asarray(_numbers()["concepts"], np.float32)

    def embed(self, pictures: np.ndarray) -> np.ndarray:
        """What the built-in model has before its last layer, less its mean over many pictures."""
        found: np.ndarray = self._run(pictures, EMBEDDING) - np.asarray(
            _numbers()["embedding"], np.float32
        )
        return found

    def _run(self, pictures: np.ndarray, layer: str) -> np.ndarray:
        session = _session(self.path)
        name = session.get_inputs()[0].name
        # One by one: what a picture gets must not depend on which others came with it.
        rows = [session.run([layer or None], {name: self._fed(one)})[0] for one in pictures]
        return np.concatenate(rows) if rows else np.empty((0, len(self.names)), np.float32)

    def _fed(self, picture: np.ndarray) -> np.ndarray:
        wide, high = self.size
        planes = [area(picture[..., n], high, wide) for n in range(3)]
        scaled = np.stack(planes).astype(np.float32) / 255
        mean, std = (np.array(of, np.float32)[:, None, None] for of in (self.mean, self.std))
        fed: np.ndarray = ((scaled - mean) / std)[None]
        return fed


@renamed()
def lite0() -> Network:
    """EfficientNet-Lite0 with forty concepts, from the weights of the extra ``video-concepts``.

    About 12 ms a picture on one core. It raises at once if a package is missing.

    Examples
    --------
    >>> keys = ab.video.describe(shots, vector="both", concepts=ab.video.lite0())  # doctest: +SKIP
    """
    weights_path()
    with extra("video-concepts", "ab.video.lite0", "onnx"):
        import onnx as _  # noqa: F401
    _runtime()
    return Network("", tuple(CONCEPTS), (224, 224), _MEAN, _STD, LOGITS, tuple(CONCEPTS.values()))


@renamed()
def onnx(
    path: str,
    *,
    names: Sequence[str],
    size: tuple[int, int] = (224, 224),
    mean: Sequence[float] = _MEAN,
    std: Sequence[float] = _STD,
    layer: str = "",
) -> Network:
    """Any ONNX model that takes pictures (n, 3, height, width), as a function for ``concepts=``.

    Parameters
    ----------
    path
        The model. It must be visible to all executors.
    names
        What the numbers of its output are called.
    size
        Width and height that it takes.
    mean, std
        Of the pictures that it was trained with, by colour, from 0 to 1.
    layer
        The output to take; by default the first.
    """
    check = Check()
    names = check.names("names", names)
    if not isinstance(path, (str, os.PathLike)) or not str(path):
        check.say(f"path must be the path of a model, got {path!r}")
    if not isinstance(layer, str):
        check.say(f"layer must be the name of an output, got {layer!r}")
    for label, given, count in (("size", size, 2), ("mean", mean, 3), ("std", std, 3)):
        if (
            not isinstance(given, (tuple, list))
            or len(given) != count
            or not all(is_number(one) for one in given)
        ):
            check.say(f"{label} must be {count} numbers, got {given!r}")
    check.refuse("onnx")
    _runtime()
    width, height = size
    return Network(str(path), names, (int(width), int(height)), tuple(mean), tuple(std), layer)


def summed(logits: np.ndarray, groups: Sequence[Sequence[int]]) -> np.ndarray:
    """The logarithm of the summed likelihoods of the classes of each group.

    Examples
    --------
    >>> summed(np.log([[1.0, 2.0, 4.0]]), [(0, 1), (2,)]).round(3).tolist()
    [[1.099, 1.386]]
    """
    most = logits.max(axis=1, keepdims=True)
    likely = np.exp(logits - most)
    sums = np.stack([likely[:, list(group)].sum(axis=1) for group in groups], axis=1)
    found: np.ndarray = np.log(sums) + most
    return found


def pooled(pictures: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean embedding and mean concept scores of pictures: the numbers that are shipped."""
    network = lite0()
    logits = network._run(pictures, LOGITS)
    return network._run(pictures, EMBEDDING).mean(axis=0), summed(logits, network.groups).mean(
        axis=0
    )


@cache
def _numbers() -> dict[str, list[float]]:
    found: dict[str, list[float]] = json.loads(_NUMBERS.read_text())
    return found


def _runtime() -> Any:
    with extra("video-concepts", "a network", "onnxruntime"):
        import onnxruntime
    return onnxruntime


@cache
def _session(path: str) -> Any:
    """One session in each process, on one thread: parallelism is Spark's."""
    runtime = _runtime()
    options = runtime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    model = path or build(read_weights(weights_path()))
    return runtime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
