"""Checks of the Spark master: its kind, whether it answers, and that the session runs at it."""

from __future__ import annotations

import socket
from typing import Any, Final

from omnigraph.errors import PipelineError, UsageError
from omnigraph.limits import SPARK_MASTER_SECONDS_MAX

_STANDALONE: Final = "spark://"
_MASTER_PREFIXES: Final = ("local", "yarn", "k8s://", _STANDALONE)


def require_valid_master(master: str) -> None:
    """Reject an unknown kind of master, and a standalone master that does not answer; Spark checks the rest."""
    if not master.startswith(_MASTER_PREFIXES):
        raise UsageError(
            f"unknown Spark master `{master}`; expected `local[N]`, `spark://host:port`, `sc://host:port`, `yarn` or"
            " `k8s://…`",
            master=master,
        )
    if not master.startswith(_STANDALONE):
        return
    reasons = [_connection_error(address) for address in master.removeprefix(_STANDALONE).split(",")]
    if all(reasons):
        raise PipelineError(
            f"no Spark master answers at `{master}` ({reasons[0]}); nothing was started. Check the address, or omit"
            " the master to run Spark on this machine",
            master=master,
        )


def require_running_at(spark: Any, master: str) -> None:
    """Raise if the session runs at another master: Spark returns the session of the process, whatever was requested."""
    running = spark.sparkContext.master
    # Spark completes the addresses of some other kinds of masters.
    if running != master and (running.startswith("local") or master.startswith("spark://")):
        raise PipelineError(
            f"Spark runs at `{running}` in this process already, not at `{master}`; stop that session first, or omit"
            " the master",
            master=master,
        )


def with_task_retries(master: str | None) -> str:
    """Return a master that retries a task whose worker died.

    >>> with_task_retries(None), with_task_retries("local[2]"), with_task_retries("spark://host:7077")
    ('local[*,3]', 'local[2,3]', 'spark://host:7077')
    """
    if master is None or master == "local[*]":
        return "local[*,3]"
    return f"{master[:-1]},3]" if master.startswith("local[") and "," not in master else master


def _connection_error(address: str) -> str | None:
    """Return why a connection to an address fails; None if it succeeds."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or int(port) > 65_535:
        return f"`{address}` is not `host:port`"
    try:
        with socket.create_connection((host.strip("[]"), int(port)), SPARK_MASTER_SECONDS_MAX):
            return None
    except OSError as error:
        return (error.strerror or str(error) or "no answer in time").lower()
