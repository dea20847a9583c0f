"""The interpreter of Spark's Python workers on this machine: that of this process, behind a script."""

from __future__ import annotations

import os
import shlex
import sys
from hashlib import sha256
from pathlib import Path
from typing import Final

from omnigraph.spark.java import write_script

# Spark puts its zipped copy of pyspark, and a jar, before all other modules. Python keeps no bytecode of a zip: each
# process that plans a read or forks workers would compile pyspark again, for 0.4 CPU seconds.
_SCRIPT: Final = """#!/bin/sh
kept=
set -f
IFS=:
for entry in $PYTHONPATH; do
  case $entry in
    {home}/python/lib/*|{home}/jars/*) ;;
    *) kept=$kept:$entry ;;
  esac
done
PYTHONPATH=${{kept#:}} exec {python} "$@"
"""


def worker_python(cache: Path) -> str:
    """Return what starts a worker with the interpreter of this process and its installed pyspark."""
    import pyspark

    home = Path(pyspark.__file__).parent
    if os.name != "posix" or Path(os.environ.get("SPARK_HOME", home)) != home:
        # The zipped copy of another Spark may be the only one that its workers have.
        return sys.executable
    text = _SCRIPT.format(home=shlex.quote(str(home)), python=shlex.quote(sys.executable))
    return write_script(cache / f"python-{sha256(text.encode()).hexdigest()[:8]}", text)
