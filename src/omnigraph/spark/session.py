"""Find or start the Spark session, register the data source, and run jobs that can be watched and cancelled.

The only module that starts Spark.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
import tempfile
import threading
import warnings
import zipfile
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from omnigraph import clock, settings
from omnigraph.engine.tasks import describe_stage
from omnigraph.errors import PipelineError, PipelineUnavailable, UsageError
from omnigraph.extras import requiring_extra
from omnigraph.ids import new_ulid
from omnigraph.limits import SPARK_MASTER_SECONDS_MAX
from omnigraph.spark.java import find_java
from omnigraph.spark.worker_python import worker_python

T = TypeVar("T")
# The modules of Py4J that log.
_PY4J: Final = ("java_gateway", "clientserver")

_POLL_SECONDS: Final = 0.2
_STOP_SECONDS: Final = 10
_ARCHIVE_SECONDS: Final = 60
_NO_PACKAGE: Final = "No module named 'omnigraph'"
# Our own tasks work in Python and native code: a JVM that runs nothing else needs only its fast-starting compiler.
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
    "spark.python.daemon.module": "omnigraph.spark.daemon",
}
# Settings of the Spark that this process starts, as a command was given them.
_process_options: dict[str, str] = {}
_STANDALONE: Final = "spark://"
_MASTER_PREFIXES: Final = ("local", "yarn", "k8s://", _STANDALONE)


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
    return _find_or_start(master, options or {}, is_for_tasks=False)


@contextmanager
def with_process_options(options: Mapping[str, str]) -> Iterator[None]:
    """Set options of every Spark that is started within the block, by any thread; those of `session` come first."""
    _process_options.update(options)
    try:
        yield
    finally:
        _process_options.clear()


def task_session(master: str | None) -> Any:
    """Return the running session or a new one, which starts fast because it is meant for our own tasks alone."""
    return _find_or_start(master, {}, is_for_tasks=True)


def _find_or_start(master: str | None, options: Mapping[str, str], *, is_for_tasks: bool) -> Any:
    without = "The engine `local` runs loads, merges, exports and maintenance without it"
    with requiring_extra("jobs on Spark", without, PipelineUnavailable):
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException
        from pyspark.sql import SparkSession
    remote = os.environ.get("SPARK_REMOTE") or (master if (master or "").startswith("sc://") else None)
    try:
        active = _find_running(SparkSession)
        if active is not None and not remote:
            return _require_same_master(active, master)
        if active is not None and master is None:
            return active
        if remote and _process_options:
            raise UsageError(
                f"`--conf` sets options of a Spark that is started here, and `{remote}` is a running Spark Connect"
                " server; set them there, or omit `--conf`",
                remote=remote,
            )
        if remote:
            return _connect(SparkSession, remote)
        return _start(SparkSession, master, {**_process_options, **options}, is_for_tasks=is_for_tasks)
    except ImportError as error:
        raise PipelineUnavailable(
            f"Spark Connect at `{remote}` needs packages that are not installed ({first_line(error)}); type"
            ' `pip install "pyspark[connect]"`, or unset SPARK_REMOTE to run Spark on this machine'
        ) from error
    except (PySparkException, Py4JError, OSError, RuntimeError, ValueError) as error:
        raise PipelineError(f"Spark did not start: {first_line(error)}; check the master and Java") from error


def _find_running(builder_of: Any) -> Any:
    """Return a session that runs in this process, whichever thread has started it."""
    active = builder_of.getActiveSession()
    if active is not None:
        return active
    started = getattr(builder_of, "_instantiatedSession", None)
    is_stopped = started is None or getattr(started.sparkContext, "_jsc", None) is None
    return None if is_stopped else started


def _require_same_master(active: Any, master: str | None) -> Any:
    """Return a session that runs already as it is: it may be the caller's, so its settings are not ours to change.

    A process has one Spark, so a cluster other than the one that it uses is an error; a number of cores is not.
    """
    if master is None:
        return active
    require_valid_master(master)
    running = active.sparkContext.master
    if running != master and not (_is_local(master) and _is_local(running)):
        raise PipelineError(
            f"a Spark session at `{running}` is running in this process, so none can be started at `{master}`; stop it,"
            " or leave the master out to use it",
            master=master,
        )
    return active


def _is_local(master: str) -> bool:
    # A cluster of processes on this machine, `local-cluster[…]`, is a cluster.
    return master == "local" or master.startswith("local[")


def _connect(builder_of: Any, remote: str) -> Any:
    """Return a Spark Connect session; this package is sent to its executors."""
    spark = builder_of.builder.remote(remote).getOrCreate()
    _ship_once(spark, getattr(spark, "session_id", ""))
    return spark


def _start(builder_of: Any, master: str | None, extra_options: Mapping[str, str], *, is_for_tasks: bool) -> Any:
    if master is not None:
        require_valid_master(master)
    cache = cache_folder()
    java_home, version = find_java(cache)
    os.environ["JAVA_HOME"] = java_home
    is_local = master is None or _is_local(master)
    # Workers run the interpreter of the driver; numerical libraries leave the cores to Spark.
    python = worker_python(cache) if is_local else sys.executable
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    builder = builder_of.builder.appName("omnigraph").master(with_task_retries(master))
    options = dict(_OPTIONS)
    if is_local:
        java_options = _java_options(cache, version, is_for_tasks=is_for_tasks)
        options |= _LOCAL_OPTIONS | {"spark.driver.extraJavaOptions": java_options}
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    for name, value in {**options, **extra_options}.items():
        builder = builder.config(name, value)
    with _keep_interrupt_handler(), _default_setting("PYSPARK_PYTHON", python), warnings.catch_warnings():
        # The fork that starts the JVM never runs Lance.
        warnings.filterwarnings("ignore", message="lance is not fork-safe")
        spark = builder.getOrCreate()
    if not is_local:
        require_running_at(spark, str(master))
        _ship_once(spark, spark.sparkContext.applicationId)
    return spark


def _java_options(cache: Path, version: int, *, is_for_tasks: bool = False) -> str:
    """Return JVM options: the compiler, logging, and an archive of loaded classes (CDS) to use, or to write at exit."""
    import pyspark

    # An archive has the classes of one run, and the tasks of this package need others than queries.
    name = f"spark-{pyspark.__version__}-java-{version}-{'tasks' if is_for_tasks else 'queries'}"
    options = f"-Dlog4j2.configurationFile={Path(__file__).with_name('log4j2.properties').as_uri()}"
    if is_for_tasks:
        options = f"{_FAST_START} {options}"
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
def _default_setting(name: str, value: str) -> Iterator[None]:
    """Set an environment variable for a block, unless it is set."""
    if name in os.environ:
        yield
        return
    os.environ[name] = value
    try:
        yield
    finally:
        del os.environ[name]


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


def run_job(spark: Any, stage: str, job: Callable[[], T], report: Callable[[int], None] = lambda done: None) -> T:
    """Run a Spark job, report the number of finished tasks, and cancel only this job if the caller is interrupted."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        context = spark.sparkContext
    except PySparkException:
        # Spark Connect has no local context to watch or cancel.
        try:
            return job()
        except PySparkException as error:
            raise _job_failure(stage, error) from error
    from pyspark import InheritableThread

    group, outcome = f"omnigraph-{new_ulid()}", Future[T]()
    description = describe_stage(stage)

    def run() -> None:
        context.setJobGroup(group, description, interruptOnCancel=True)
        try:
            outcome.set_result(job())
        except BaseException as error:  # noqa: BLE001 - raised by the caller, below
            outcome.set_exception(error)

    thread = InheritableThread(target=run, daemon=True)
    thread.start()
    try:
        while thread.is_alive():
            thread.join(_POLL_SECONDS)
            report(_count_done_tasks(context, group))
    except BaseException:
        # Ctrl-C reaches Spark, too. Py4J logs a traceback in every thread that waits for an answer when Spark stops:
        # in that of the job, which is given up, and in this one.
        job_thread, own_thread = thread.ident, threading.get_ident()
        logging.getLogger().addFilter(
            lambda record: record.thread != job_thread and (record.thread != own_thread or record.module not in _PY4J)
        )
        with suppress(PySparkException, Py4JError, OSError):
            context.cancelJobGroup(group)
        thread.join(_STOP_SECONDS)
        raise
    try:
        value = outcome.result()
    except (PySparkException, Py4JError, OSError) as error:
        raise _job_failure(stage, error) from error
    measured = _measured.get()
    if measured is not None:
        measured.add_input(context, group)
    return value


@dataclass(slots=True)
class JobInput:
    """What the Spark jobs of a stage have read, as Spark's own metrics count it; what is read twice counts twice."""

    rows: int = 0
    bytes: int = 0

    def add_input(self, context: Any, group: str) -> None:
        """Add the metrics of all jobs of a group; a Spark that does not show them is no reason to fail."""
        from py4j.protocol import Py4JError

        with suppress(Py4JError, AttributeError):
            spark = context._jsc.sc()
            # Metrics arrive after the result.
            spark.listenerBus().waitUntilEmpty()
            tracker, store = context.statusTracker(), spark.statusStore()
            jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(group)]
            for stage in {stage for job in jobs if job is not None for stage in job.stageIds}:
                with suppress(Py4JError):
                    data = store.lastStageAttempt(stage)
                    self.rows += data.inputRecords()
                    self.bytes += data.inputBytes()


_measured: ContextVar[JobInput | None] = ContextVar("input of the jobs of a stage", default=None)


@contextmanager
def measuring_jobs() -> Iterator[JobInput]:
    """Sum up what the Spark jobs of a block read."""
    measured = JobInput()
    token = _measured.set(measured)
    try:
        yield measured
    finally:
        _measured.reset(token)


def _job_failure(stage: str, error: Exception) -> PipelineError:
    reason = _failure_reason(error)
    hint = ". Install it on the executors, or send it as a `.zip` with `--py-files`" if _NO_PACKAGE in reason else ""
    return PipelineError(f"Spark failed in the stage `{stage}`: {reason}; nothing was published{hint}", stage=stage)


def _failure_reason(error: Exception) -> str:
    """Return the message of the task's exception: the last line below its traceback, or all of the last Java cause."""
    text = str(error).partition("JVM stacktrace")[0]
    lines = [
        line.strip() for line in text.splitlines() if line.strip() and not line.strip().startswith(("at ", "... "))
    ]
    causes = [index for index, line in enumerate(lines) if line.startswith("Caused by: ")]
    if causes:
        return " ".join(lines[causes[-1] :])[:300]
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


def require_valid_master(master: str) -> None:
    """Reject an unknown kind of master, and a standalone master that does not answer; Spark checks the rest."""
    if not master.startswith(_MASTER_PREFIXES):
        raise UsageError(
            f"unknown Spark master `{master}`; expected `local[N]`, `spark://host:port`, `sc://host:port`, `yarn` or"
            " `k8s://…`",
            master=master,
        )
    if not master.startswith(_STANDALONE):
        return
    reasons = [_connection_error(address) for address in master.removeprefix(_STANDALONE).split(",")]
    if all(reasons):
        raise PipelineError(
            f"no Spark master answers at `{master}` ({reasons[0]}); nothing was started. Check the address, or omit"
            " the master to run Spark on this machine",
            master=master,
        )


def require_running_at(spark: Any, master: str) -> None:
    """Raise if the session runs at another master: Spark returns the running session whatever master is requested."""
    running = spark.sparkContext.master
    # Spark completes the addresses of some other kinds of masters.
    if running != master and (running.startswith("local") or master.startswith("spark://")):
        raise PipelineError(
            f"Spark runs at `{running}` in this process already, not at `{master}`; stop that session first, or omit"
            " the master",
            master=master,
        )


def with_task_retries(master: str | None) -> str:
    """Return a master that retries a task whose worker died.

    >>> with_task_retries(None), with_task_retries("local[2]"), with_task_retries("spark://host:7077")
    ('local[*,3]', 'local[2,3]', 'spark://host:7077')
    """
    if master is None or master == "local[*]":
        return "local[*,3]"
    return f"{master[:-1]},3]" if master.startswith("local[") and "," not in master else master


def _connection_error(address: str) -> str | None:
    """Return why a connection to an address fails; None if it succeeds."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or int(port) > 65_535:
        return f"`{address}` is not `host:port`"
    try:
        with socket.create_connection((host.strip("[]"), int(port)), SPARK_MASTER_SECONDS_MAX):
            return None
    except OSError as error:
        return (error.strerror or str(error) or "no answer in time").lower()
