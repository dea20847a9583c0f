"""One Spark session for all tests of a worker that need it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from omnigraph.errors import PipelineError
from omnigraph.spark.session import session


@pytest.fixture(scope="session")
def wrong_master() -> PipelineError:
    """Return how a session that cannot start is refused, asked for before there is one that runs."""
    from pyspark import SparkContext

    assert SparkContext._active_spark_context is None, "a test has started Spark without the fixture `spark`"
    with pytest.raises(PipelineError) as caught:
        session("local[nonsense]")
    return caught.value


@pytest.fixture(scope="session")
def spark(wrong_master: PipelineError) -> Iterator[Any]:
    running = session("local[2]")
    yield running
    running.stop()


_QUICK = {"spark.sql.shuffle.partitions": "1", "spark.sql.adaptive.enabled": "false"}


@pytest.fixture
def quick(spark: Any) -> Iterator[Any]:
    """Give tiny data few tasks."""
    before = {name: spark.conf.get(name) for name in _QUICK}
    for name, value in _QUICK.items():
        spark.conf.set(name, value)
    yield spark
    for name, value in before.items():
        spark.conf.set(name, value)
