"""Masters: whether an address is one, and whether a standalone cluster answers, before Spark is started for it.

Knows addresses alone; Spark itself would ask for a minute, and talk about it all the time.
"""

from __future__ import annotations

import socket
from typing import Final

from omnigraph.errors import PipelineError, UsageError
from omnigraph.limits import SPARK_MASTER_SECONDS_MAX

_STANDALONE: Final = "spark://"
_KINDS: Final = ("local", "yarn", "k8s://", _STANDALONE)


def require_master(master: str) -> None:
    """Refuse what is no master, and a standalone one of which no address answers; the rest is for Spark to judge."""
    if not master.startswith(_KINDS):
        raise UsageError(
            f"`{master}` is no Spark master; it is `local[N]`, `spark://host:port`, `sc://host:port`, `yarn` or"
            " `k8s://…`",
            master=master,
        )
    if not master.startswith(_STANDALONE):
        return
    reasons = [_silence(address) for address in master.removeprefix(_STANDALONE).split(",")]
    if all(reasons):
        raise PipelineError(
            f"no Spark master answers at `{master}` ({reasons[0]}); nothing was started. Check the address, or leave"
            " the master away to run Spark on this machine",
            master=master,
        )


def _silence(address: str) -> str | None:
    """Return why nobody answers at an address; None if somebody does."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or int(port) > 65_535:
        return f"`{address}` is not `host:port`"
    try:
        with socket.create_connection((host.strip("[]"), int(port)), SPARK_MASTER_SECONDS_MAX):
            return None
    except OSError as error:
        return (error.strerror or str(error) or "no answer in time").lower()
