"""What every test shares: how Hypothesis behaves, and the count of pending cases after a run."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import settings

from tests.support.case_file import CASES, CaseSyntaxError, read_cases

# Python workers of Spark start in the folder of whatever test started the JVM; they find the tests all the same.
_PATHS = (str(Path(__file__).parent.parent), os.environ.get("PYTHONPATH"))
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, _PATHS))

# A shared machine is no stopwatch: slow examples are not wrong ones. What is checked before a change lands tries the
# same examples each time, so that red means the change; `make test-long` looks for new ones.
settings.register_profile("omnigraph", deadline=None, derandomize=True)
settings.register_profile("long", deadline=None)
settings.load_profile("long" if os.environ.get("OMNIGRAPH_TEST_LONG") else "omnigraph")


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
