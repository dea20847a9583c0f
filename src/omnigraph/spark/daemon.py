"""The parent process of Spark's Python workers, with the imports that tasks need already done.

Imports only: workers are forks of this process, and a process that has used Lance must not fork.
"""

from __future__ import annotations

import gc
import warnings

warnings.filterwarnings("ignore", message="lance is not fork-safe")

import pyspark.daemon  # noqa: E402 - the import raises the warning

if __name__ == "__main__":
    # A worker collects garbage after each task. Frozen imports are passed over, and their pages stay shared.
    gc.collect()
    gc.freeze()
    pyspark.daemon.manager()
