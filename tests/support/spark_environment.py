"""How every Spark that a test starts is set up, in this process or in another."""

from __future__ import annotations

import os
import shlex
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Final

_REPOSITORY: Final = Path(__file__).parents[2]
# A JVM that lives for seconds needs no optimised code and no proof of Spark's classes.
_JAVA: Final = (
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
    f" -Dderby.stream.error.file={os.devnull}"
)
# Tiny data needs few tasks, and no plan that is compiled, or changed while it runs. What a lost executor held is not
# asked for again and again.
SETTINGS: Final = {
    "spark.executor.extraJavaOptions": _JAVA,
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.shuffle.io.maxRetries": "1",
    "spark.shuffle.io.retryWait": "200ms",
}
_OURS: Final = ("SPARK_HOME", "SPARK_SUBMIT_OPTS", "SPARK_DAEMON_JAVA_OPTS", "PYSPARK_SUBMIT_ARGS")


def set_up_spark() -> None:
    """Set the environment that Spark starts with; what is set already stays as it is."""
    # Python workers start in the folder of whatever test started the JVM; they find the tests all the same.
    paths = (str(_REPOSITORY), os.environ.get("PYTHONPATH"))
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    os.environ.setdefault("OMNIGRAPH_SPARK_ARCHIVE", "off")
    os.environ.setdefault("SPARK_SUBMIT_OPTS", _JAVA)
    os.environ.setdefault("SPARK_DAEMON_JAVA_OPTS", _JAVA)
    options = [word for name, value in SETTINGS.items() for word in ("--conf", f"{name}={value}")]
    os.environ.setdefault("PYSPARK_SUBMIT_ARGS", shlex.join([*options, "pyspark-shell"]))
    spec = find_spec("pyspark")
    if spec is not None and spec.origin is not None:
        os.environ.setdefault("SPARK_HOME", str(_link_home(Path(spec.origin).parent)))


def environment_of_a_user() -> dict[str, str]:
    """Return the environment without any of this."""
    return {name: value for name, value in os.environ.items() if name not in _OURS}


def _link_home(installed: Path) -> Path:
    """Return a home of Spark with all but its archive of `pyspark`, which every Python worker would compile again."""
    home = _REPOSITORY / ".pytest_cache" / "spark"
    home.mkdir(parents=True, exist_ok=True)
    for name in ("bin", "jars", "sbin"):
        link = home / name
        if not link.is_symlink() or link.readlink() != installed / name:
            link.unlink(missing_ok=True)
            with suppress(FileExistsError):
                link.symlink_to(installed / name)
    return home
