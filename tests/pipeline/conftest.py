"""One Spark session for all tests of a worker that need it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

from omnigraph.pipeline.spark.session import session


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    os.environ["OMNIGRAPH_SPARK_ARCHIVE"] = "off"
    running = session("local[2]")
    yield running
    running.stop()
