"""One Spark session for all tests of a run, and for the examples in `anabranch.spark`."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import pytest
from hypothesis import settings

from tests.examples import PROFILE

settings.load_profile(PROFILE)

# The kernels for a GPU have no examples, and import what only executors with one need.
collect_ignore = [
    f"anabranch/flow/gpu/{name}.py"
    for name in ("areas", "join", "torch_device")
    if find_spec("triton") is None
]

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    from tests.spark.sessions import new_session

    session = new_session(tmp_path_factory.mktemp("session"))
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


@pytest.fixture(autouse=True)
def _spark_in_examples(request: pytest.FixtureRequest, doctest_namespace: dict[str, Any]) -> None:
    if isinstance(request.node, pytest.DoctestItem) and ".spark." in request.node.name:
        doctest_namespace["spark"] = request.getfixturevalue("spark")


@pytest.hookimpl(tryfirst=True)  # before -m chooses
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what needs Spark here, and let it begin: it takes longest.

    Tests that start it in another process mark themselves.
    """
    for item in items:
        names = getattr(item, "fixturenames", ())
        example = isinstance(item, pytest.DoctestItem) and ".spark." in item.name
        if example or "spark" in names:
            item.add_marker(pytest.mark.spark)
    files = {item.path for item in items if item.get_closest_marker("spark")}
    items.sort(key=lambda item: item.path not in files)
