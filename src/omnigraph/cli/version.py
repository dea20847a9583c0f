"""`omnigraph version`."""

from __future__ import annotations

import typer

from omnigraph import __version__
from omnigraph.release import FORMAT_STAMP


def version() -> int:
    typer.echo(f"omnigraph {__version__}\ninternal-schema {FORMAT_STAMP}")
    return 0
