"""`python -m omnigraph` is the `omnigraph` command."""

from __future__ import annotations

import sys

from omnigraph.cli import main

if __name__ == "__main__":
    sys.exit(main())
