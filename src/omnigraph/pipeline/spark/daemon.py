"""The parent of Spark's Python workers: it has imported what tasks need, so that no worker has to.

Imports only. A worker is a fork of this process, and whoever has used Lance must not be forked.
"""

from __future__ import annotations

import warnings

warnings.filterwarnings("ignore", message="lance is not fork-safe")

import pyspark.daemon  # noqa: E402 - the warning comes up while the rest is imported

if __name__ == "__main__":
    pyspark.daemon.manager()
