"""Find or start the Spark session, register the data source, and run jobs that can be watched and cancelled.

The only module that starts Spark.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import threading
import warnings
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

from omnigraph import clock, settings
from omnigraph.errors import PipelineError, PipelineUnavailable
from omnigraph.ids import new_ulid
from omnigraph.pipeline.spark.java import find_java
from omnigraph.pipeline.spark.master import require_running_at, require_valid_master, with_task_retries

T = TypeVar("T")

_POLL_SECONDS: Final = 0.2
_STOP_SECONDS: Final = 10
_ARCHIVE_SECONDS: Final = 60
_NO_PACKAGE: Final = "No module named 'omnigraph'"
# Tasks work in Python and native code, so the JVM needs only its fast-starting compiler.
_FAST_START: Final = "-XX:TieredStopAtLevel=1"
_OPTIONS: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.catalogImplementation": "in-memory",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
}
_LOCAL_OPTIONS: Final = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.python.daemon.module": "omnigraph.pipeline.spark.daemon",
}


def session(master: str | None = None, options: Mapping[str, str] | None = None) -> Any:
    """Return the running Spark session, one at `SPARK_REMOTE`, or a new one.

    Args:
        master: The master of a new session, or the `sc://` address of a Spark Connect server; by default Spark runs on
            this machine.
        options: Settings of a session that is started here; a running one stays as it is.

    Returns:
        The session.

    Raises:
        PipelineUnavailable: Spark or Java is not installed.
        PipelineError: Spark did not start.

    Example:
        >>> from omnigraph import pipeline
        >>> spark = pipeline.session()  # doctest: +SKIP
    """
    try:
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise PipelineUnavailable(
            'the pipeline runs on Spark, which is not installed; type `pip install "omnigraph[spark]"`. Smaller inputs'
            ' load without it: `engine="local"`'
        ) from error
    remote = os.environ.get("SPARK_REMOTE") or (master if (master or "").startswith("sc://") else None)
    try:
        active = SparkSession.getActiveSession()
        if active is not None and master is None:
            return active
        return _connect(SparkSession, remote) if remote else _start(SparkSession, master, options or {})
    except ImportError as error:
        raise PipelineUnavailable(
            f"Spark Connect at `{remote}` needs packages that are not installed ({first_line(error)}); type"
            ' `pip install "pyspark[connect]"`, or unset SPARK_REMOTE to run Spark on this machine'
        ) from error
    except (PySparkException, Py4JError, OSError, RuntimeError, ValueError) as error:
        raise PipelineError(f"Spark did not start: {first_line(error)}; check the master and Java") from error


def _connect(builder_of: Any, remote: str) -> Any:
    """Return a Spark Connect session; this package is sent to its executors."""
    spark = builder_of.builder.remote(remote).getOrCreate()
    _ship_once(spark, getattr(spark, "session_id", ""))
    return spark


def _start(builder_of: Any, master: str | None, extra_options: Mapping[str, str]) -> Any:
    if master is not None:
        require_valid_master(master)
    cache = cache_folder()
    java_home, version = find_java(cache)
    os.environ["JAVA_HOME"] = java_home
    # Workers run the interpreter of the driver; numerical libraries leave the cores to Spark.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # A cluster of processes on this machine, `local-cluster[…]`, is a cluster.
    is_local = master is None or master == "local" or master.startswith("local[")
    builder = builder_of.builder.appName("omnigraph").master(with_task_retries(master))
    options = _OPTIONS | (
        _LOCAL_OPTIONS | {"spark.driver.extraJavaOptions": _java_options(cache, version)} if is_local else {}
    )
    if is_local:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    for name, value in {**options, **extra_options}.items():
        builder = builder.config(name, value)
    with _keep_interrupt_handler(), warnings.catch_warnings():
        # The fork that starts the JVM never runs Lance.
        warnings.filterwarnings("ignore", message="lance is not fork-safe")
        spark = builder.getOrCreate()
    if not is_local:
        require_running_at(spark, str(master))
        _ship_once(spark, spark.sparkContext.applicationId)
    return spark


def _java_options(cache: Path, version: int) -> str:
    """Return JVM options that use an archive of loaded classes (CDS), or write one at exit."""
    import pyspark

    name = f"spark-{pyspark.__version__}-java-{version}"
    options = f"{_FAST_START} -Dlog4j2.configurationFile={Path(__file__).with_name('log4j2.properties').as_uri()}"
    # The JVM ignores an archive if the class path has a directory, such as that of a configuration.
    has_directories = any(os.environ.get(name) for name in ("SPARK_CONF_DIR", "HADOOP_CONF_DIR", "YARN_CONF_DIR"))
    if has_directories or settings.read("OMNIGRAPH_SPARK_ARCHIVE") != "on":
        return options
    # A JVM outlives its session for a moment, so a younger archive may still be incomplete.
    archives = [
        archive
        for archive in cache.glob(f"{name}.*.jsa")
        if clock.now_us() / 1e6 - archive.stat().st_mtime > _ARCHIVE_SECONDS
    ]
    if archives:
        return f"{options} -XX:SharedArchiveFile={min(archives)} -Xlog:disable"
    return f"{options} -XX:ArchiveClassesAtExit={cache / f'{name}.{os.getpid()}.jsa'} -Xlog:disable"


def cache_folder() -> Path:
    """Return the cache directory for Java shims and class archives."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    folder = Path(base) / "omnigraph"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return Path(tempfile.mkdtemp(prefix="omnigraph-"))
    return folder


@contextmanager
def _keep_interrupt_handler() -> Iterator[None]:
    """Restore the SIGINT handler of the caller: that of Spark cancels all jobs of the session."""
    is_main = threading.current_thread() is threading.main_thread()
    before = signal.getsignal(signal.SIGINT) if is_main else None
    try:
        yield
    finally:
        if is_main:
            signal.signal(signal.SIGINT, before)


# The applications, and sessions of Spark Connect, whose executors have the package.
_shipped: Final[set[str]] = set()


def _ship_once(spark: Any, key: str) -> None:
    """Send this package, unless the application has it: Spark refuses a second file of the same name."""
    if key not in _shipped:
        ship(spark)
        _shipped.add(key)


def ship(spark: Any) -> None:
    """Send this package to remote executors; its dependencies must be installed there."""
    root = Path(clock.__file__).parent
    archive = Path(tempfile.mkdtemp(prefix="omnigraph-")) / "omnigraph.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as packed:
        for path in sorted(root.rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                packed.write(path, Path("omnigraph") / path.relative_to(root))
        # Spark finds the data source by this module name.
        packed.write(root.with_name("pyspark_omnigraph.py"), "pyspark_omnigraph.py")
    spark.addArtifacts(str(archive), pyfile=True)


def register(spark: Any) -> None:
    """Register the format `omnigraph` in a session whose workers run another Python than this process.

    Spark finds the format by itself if this package is installed for the Python of its workers: `PYSPARK_PYTHON`, or
    `python3` on the path, which differs from this one unless its environment is active.

    Args:
        spark: The Spark session.

    Raises:
        PipelineError: Spark refused the format.

    Example:
        >>> from omnigraph import pipeline
        >>> pipeline.register(spark)  # doctest: +SKIP
    """
    from pyspark.errors import PySparkException

    from pyspark_omnigraph import DefaultSource

    try:
        context = spark.sparkContext
    except PySparkException:
        # Spark Connect has no local context.
        spark.dataSource.register(DefaultSource)
        return
    # Spark sends each Python function with the path of the interpreter that runs it.
    before, context.pythonExec = context.pythonExec, sys.executable
    try:
        spark.dataSource.register(DefaultSource)
    finally:
        context.pythonExec = before


def run_job(spark: Any, stage: str, job: Callable[[], T], reach: Callable[[int], None]) -> T:
    """Run a Spark job, report the number of finished tasks, and cancel only this job if the caller is interrupted."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        context = spark.sparkContext
    except PySparkException:
        # Spark Connect has no local context to watch or cancel.
        return _run_remote(stage, job)
    from pyspark import InheritableThread

    group, outcome = f"omnigraph-{new_ulid()}", _Outcome()

    def run() -> None:
        context.setJobGroup(group, stage, interruptOnCancel=True)
        try:
            outcome.value = job()
        except (PySparkException, Py4JError, OSError) as error:
            outcome.error = error

    thread = InheritableThread(target=run, daemon=True)
    thread.start()
    try:
        while thread.is_alive():
            thread.join(_POLL_SECONDS)
            reach(_count_done_tasks(context, group))
    except BaseException:
        context.cancelJobGroup(group)
        thread.join(_STOP_SECONDS)
        raise
    if outcome.error is not None:
        raise _job_failure(stage, outcome.error) from outcome.error
    value: T = outcome.value
    return value


class _Outcome:
    """The result or error of a job's thread."""

    value: Any = None
    error: Exception | None = None


def _run_remote(stage: str, job: Callable[[], T]) -> T:
    from pyspark.errors import PySparkException

    try:
        return job()
    except PySparkException as error:
        raise _job_failure(stage, error) from error


def _job_failure(stage: str, error: Exception) -> PipelineError:
    reason = _failure_reason(error)
    hint = ". Install it on the executors, or send it as a `.zip` with `--py-files`" if _NO_PACKAGE in reason else ""
    return PipelineError(f"Spark failed in the stage `{stage}`: {reason}; nothing was published{hint}", stage=stage)


def _failure_reason(error: Exception) -> str:
    """Return the message of the task's exception, which is the last line below its traceback."""
    text = str(error).partition("JVM stacktrace")[0]
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.strip().startswith("at ")]
    named = [line for line in lines if ": " in line]
    return (named or lines or [type(error).__name__])[-1][:300]


def first_line(error: Exception) -> str:
    """Return the reason of a Spark error without its stack."""
    # A Java error starts with the failed call; the reason follows.
    text = str(error).partition("\n: ")[2].strip() or str(error).strip()
    return text.splitlines()[0][:300] if text else type(error).__name__


def _count_done_tasks(context: Any, group: str) -> int:
    tracker = context.statusTracker()
    jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(group)]
    stages = [tracker.getStageInfo(stage) for job in jobs if job is not None for stage in job.stageIds]
    return sum(stage.numCompletedTasks for stage in stages if stage is not None)
