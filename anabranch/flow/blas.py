"""One task, one core: matrix products must not start threads of their own."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager

from threadpoolctl import ThreadpoolController

__all__ = ["single_threaded"]


@functools.cache
def _controller() -> ThreadpoolController:
    # Looking for the loaded BLAS libraries takes milliseconds, so once per process.
    return ThreadpoolController()


@contextmanager
def single_threaded() -> Iterator[None]:
    """Keep BLAS to one thread inside the block."""
    with _controller().limit(limits=1, user_api="blas"):
        yield
