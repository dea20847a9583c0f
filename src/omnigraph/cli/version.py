"""`omnigraph version`."""

from __future__ import annotations

from omnigraph import __version__
from omnigraph.cli.terminal import echo
from omnigraph.release import FORMAT_STAMP


def version() -> int:
    echo(f"omnigraph {__version__}\ninternal-schema {FORMAT_STAMP}")
    return 0
