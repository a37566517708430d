"""One Spark session for all tests of a run, and for the examples in `anabranch.spark`."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import settings

from tests.examples import PROFILE

settings.load_profile(PROFILE)

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    from pyspark.sql import SparkSession

    import anabranch as ab

    session = (
        SparkSession.builder.master("local[2]")
        .appName("anabranch tests")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse")))
        .config("spark.driver.memory", "2g")
        # Tests are short: a quick compiler that stops early beats one that optimises for hours.
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    yield ab.configure(session, workers=2)
    session.stop()


@pytest.fixture(autouse=True)
def _spark_in_examples(request: pytest.FixtureRequest, doctest_namespace: dict[str, Any]) -> None:
    if isinstance(request.node, pytest.DoctestItem) and ".spark." in request.node.name:
        doctest_namespace["spark"] = request.getfixturevalue("spark")


@pytest.hookimpl(tryfirst=True)  # before -m chooses
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what needs Spark, so that it can run beside the rest."""
    for item in items:
        names = getattr(item, "fixturenames", ())
        example = isinstance(item, pytest.DoctestItem) and ".spark." in item.name
        if "spark" in names or example or "tests/spark" in item.nodeid:
            item.add_marker(pytest.mark.spark)
