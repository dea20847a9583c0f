"""The `omnigraph` command.

A thin layer: it parses arguments, calls the library and prints the result.
"""

from omnigraph.cli.app import main

__all__ = ["main"]
