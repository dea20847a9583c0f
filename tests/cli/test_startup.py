"""What the process of a command does about garbage and pandas; a process of somebody else is left alone."""

from __future__ import annotations

import subprocess
import sys

import pytest

CODE = """
import gc
from omnigraph.cli import startup
usual, frozen = gc.get_threshold(), gc.get_freeze_count()
{claim}
print(gc.get_threshold()[0] > 10 * usual[0])
startup.restore_gc()
print(gc.get_threshold() == usual, gc.get_freeze_count() > frozen)
"""


@pytest.mark.parametrize(
    ("claim", "told"), [("startup.tune_for_short_process()", ["True", "True True"]), ("", ["False", "True False"])]
)
def test_garbage_waits_in_the_process_of_a_command_that_does_not_stay(claim: str, told: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", CODE.format(claim=claim)], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.splitlines() == told


PANDAS = """
import sys
from omnigraph.cli import startup
{claim}
import pyarrow.dataset
print("pandas" in sys.modules)
print(len(pyarrow.table({{"a": [1]}}).to_pandas()), "pandas" in sys.modules)
"""


NULLS = """
from omnigraph.arrow_import import postpone_pandas
{claim}
import pyarrow
import pandas
print(pyarrow.array(pandas.Series([1.0, float("nan")])).null_count)
"""


@pytest.mark.slow
@pytest.mark.parametrize("claim", ["postpone_pandas()", ""])
def test_arrow_knows_the_nulls_of_pandas_that_came_later(claim: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", NULLS.format(claim=claim)], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout == "1\n"


@pytest.mark.slow
@pytest.mark.parametrize(("claim", "is_loaded"), [("startup.tune_for_short_process()", False), ("", True)])
def test_arrow_loads_pandas_when_a_call_needs_it(claim: str, is_loaded: bool) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PANDAS.format(claim=claim)], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.splitlines() == [str(is_loaded), "1 True"]
