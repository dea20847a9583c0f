"""The `omnigraph` command.

A surface: it parses arguments, calls the product and prints; it decides nothing that the product does not.
"""

from omnigraph.cli.app import main

__all__ = ["main"]
