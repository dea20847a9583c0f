"""Errors of the data source on their way through Spark, which keeps nothing of them but a text.

Sets no policy: what is wrong is said where it is found.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from omnigraph import settings
from omnigraph.errors import OmniGraphError

# Spark's own switch, read in the process that failed: it sends the message alone, without the calls that led to it.
_HIDE: Final = "SPARK_HIDE_TRACEBACK"
_HIDDEN_BY_US: Final = "omnigraph"


@contextmanager
def coded(*, is_planning: bool = True) -> Iterator[None]:
    """Let errors reach the user of Spark as `code: message`; with their traceback only in tasks, or by setting.

    A process that plans serves data sources alone. One that runs tasks serves the user's own functions as well, which
    keep their tracebacks.
    """
    if os.environ.get(_HIDE) == _HIDDEN_BY_US:
        del os.environ[_HIDE]
    try:
        yield
    except OmniGraphError as error:
        error.args = (f"{error.code}: {error.message}",)
        if is_planning and settings.read("OMNIGRAPH_SPARK_TRACEBACK") != "on":
            os.environ.setdefault(_HIDE, _HIDDEN_BY_US)
        raise
