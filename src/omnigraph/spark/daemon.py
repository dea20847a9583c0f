"""The parent process of Spark's Python workers, with the imports that tasks need already done.

Imports only: workers are forks of this process, and a process that has used Lance must not fork.
"""

from __future__ import annotations

import gc
import warnings

from omnigraph.arrow_import import postpone_pandas


def main() -> None:
    # Imports make hardly any garbage, and workers that need pandas import it.
    gc.disable()
    postpone_pandas()
    # Lance warns of forks as soon as it is imported.
    warnings.filterwarnings("ignore", message="lance is not fork-safe")
    import pyspark.daemon
    import pyspark.worker

    import omnigraph.engine.load.stage_split  # noqa: F401 - its workers are forked with what tasks need

    # A worker collects garbage after each task. Frozen imports are passed over, and their pages stay shared.
    gc.collect()
    gc.freeze()
    gc.enable()
    pyspark.daemon.manager()


if __name__ == "__main__":
    main()
