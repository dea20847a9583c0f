"""The topic of the page: reads on a social graph, against graph, relational and search engines."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

# Data and the peers' databases are kept here from run to run, because building them takes longer than measuring.
CACHE = Path(os.environ.get("OMNIGRAPH_BENCH_CACHE", Path(tempfile.gettempdir()) / "omnigraph-bench"))
