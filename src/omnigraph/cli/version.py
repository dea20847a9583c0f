"""`omnigraph version`."""

from __future__ import annotations

import typer

from omnigraph import __version__


def version() -> int:
    typer.echo(f"omnigraph {__version__}")
    return 0
