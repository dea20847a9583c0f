"""What every test shares: how Hypothesis and Spark behave, the order of tests, and the count of pending cases."""

from __future__ import annotations

import atexit
import gc
import os
import re
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from _pytest.doctest import DoctestModule
from hypothesis import settings

from omnigraph.errors import PipelineError
from tests.support.case_file import CASES, CaseSyntaxError, read_cases
from tests.support.examples import IS_LONG, examples, spread
from tests.support.identity_services import disable_identity_services
from tests.support.spark_environment import set_up_spark

set_up_spark()
disable_identity_services()

# Nothing that a test writes need survive a power cut, but where `power_durability` or a `Zygote` says otherwise.
os.environ.setdefault("OMNIGRAPH_DURABILITY", "process")

# What commands print must not depend on the terminal that the tests are run in.
os.environ.pop("COLUMNS", None)

# A shared machine is no stopwatch: slow examples are not wrong ones. What is checked before a change lands tries the
# same examples each time, so that red means the change; `make test-long` looks for new ones.
settings.register_profile("omnigraph", deadline=None, derandomize=True, max_examples=examples(100))
settings.register_profile("long", deadline=None)
settings.load_profile("long" if IS_LONG else "omnigraph")


@pytest.fixture
def power_durability(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sync as the product does by default."""
    monkeypatch.setenv("OMNIGRAPH_DURABILITY", "power")


@pytest.fixture(scope="session")
def wrong_master() -> PipelineError:
    """Return how a session that cannot start is refused, asked for before there is one that runs."""
    from pyspark import SparkContext

    from omnigraph.spark.session import session

    assert SparkContext._active_spark_context is None, "a test has started Spark without the fixture `spark`"
    with pytest.raises(PipelineError) as caught:
        session("local[nonsense]")
    return caught.value


@pytest.fixture(scope="session")
def spark(wrong_master: PipelineError) -> Iterator[Any]:
    from omnigraph.spark.session import session

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


class ModuleFilter:
    """Imports no module for nothing; also outside this folder, hence a plugin of its own.

    Doctests are looked for only in modules that have some, and tests only in modules that are not left out as a whole
    by a selection of the form `not (slow or s3)`.
    """

    def __init__(self, selection: str) -> None:
        left_out = re.fullmatch(r"not \((\w+(?: or \w+)*)\)", selection)
        marks = left_out[1].replace(" or ", "|") if left_out else "(?!)"
        self._left_out = re.compile(rf"^pytestmark = .*pytest\.mark\.(?:{marks})\b", re.MULTILINE)

    def pytest_ignore_collect(self, collection_path: Path) -> bool | None:
        if collection_path.suffix != ".py":
            return None
        text = collection_path.read_text(encoding="utf-8")
        if collection_path.name.startswith("test_"):
            return self._left_out.search(text) is not None or None
        return ">>> " not in text or None

    @pytest.hookimpl(wrapper=True)
    def pytest_collect_file(self, file_path: Path) -> Generator[None, list[Any], list[Any]]:
        collectors = yield
        if file_path.name.startswith("test_"):
            return [collector for collector in collectors if not isinstance(collector, DoctestModule)]
        return collectors


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(ModuleFilter(config.option.markexpr))
    gc.disable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    """Order the tests; let the garbage collector run seldom, and pass by the modules and tests that stay to the end."""
    worker: dict[str, Any] = getattr(session.config, "workerinput", {})
    session.items[:] = in_order(session.items, worker.get("workercount", 1))
    gc.freeze()
    gc.set_threshold(10_000, 10, 10)
    gc.enable()
    atexit.register(gc.unfreeze)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    leave_all_but_samples(items)


def in_order(items: list[pytest.Item], workers: int) -> list[pytest.Item]:
    """Return the tests in the order for so many workers, so that no long one is left for the end.

    With `--dist worksteal` each worker begins with an equal part of this order, and takes from the end of another's
    when it is done. The first part begins with the tests that share a Spark session, so that one worker has the only
    one; the second with those that start a Spark of their own.
    """
    shared: list[pytest.Item] = []
    separate: list[pytest.Item] = []
    others: list[pytest.Item] = []
    for item in sorted(items, key=lambda item: not item.get_closest_marker("slow")):
        has_session = "spark" in getattr(item, "fixturenames", ())
        (shared if has_session else separate if item.get_closest_marker("spark") else others).append(item)
    first = max(0, len(items) // workers - len(shared)) if workers > 1 else 0
    return [*shared, *others[:first], *separate, *others[first:]]


def leave_all_but_samples(items: list[pytest.Item]) -> None:
    """Mark as long what the marker `sampled` leaves out: all cases of a test but so many, spread over their order."""
    cases: dict[str, list[pytest.Function]] = {}
    for item in items:
        is_sampled = item.get_closest_marker("sampled") and not item.get_closest_marker("long")
        if isinstance(item, pytest.Function) and is_sampled:
            cases.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for group in cases.values():
        [mark, *_] = group[0].iter_markers("sampled")
        group.sort(key=lambda item: tuple(item.callspec.indices.values()))
        kept = {number - 1 for number in spread(len(group), mark.args[0])}
        for place, item in enumerate(group):
            if place not in kept:
                item.add_marker("long")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say how much of the conformance corpus still waits for an engine, when it was run."""
    reports = [report for group in terminalreporter.stats.values() for report in group]
    if any("test_cases.py" in getattr(report, "nodeid", "") for report in reports):
        try:
            cases = [case for path in sorted(CASES.glob("*.case")) for case in read_cases(path)]
        except CaseSyntaxError:
            return
        numbers = {case.number for case in cases if case.number}
        waiting = {case.number for case in cases if case.number and case.pending}
        terminalreporter.write_line(
            f"cases: {len(cases)}, of them pending {sum(case.pending is not None for case in cases)};"
            f" conformance numbers: {len(numbers)} of 120, of them waiting for an engine {len(waiting)}"
        )
