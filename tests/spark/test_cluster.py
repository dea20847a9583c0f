"""A real cluster on loopback: a master, two workers, a load, and a worker that dies while its tasks write."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph.graph import session_of
from omnigraph.manifest.intents import pending
from omnigraph.spark.java import find_java
from tests.support.crash_campaign import REPOSITORY
from tests.support.examples import IS_LONG
from tests.support.orphan_sweep import sweep
from tests.support.pipeline_fixtures import contents, lines_of, world

PEOPLE = 8_000 if IS_LONG else 2_000
LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Cluster:
    """The address of a master, and the process groups of its workers."""

    master: str
    workers: list[int]


@contextmanager
def cluster(folder: Path) -> Iterator[Cluster]:
    """Start a master and two workers of one core each, and end all of them."""
    with ExitStack() as stack:
        port = free_port()
        master = f"spark://{LOOPBACK}:{port}"
        part = "org.apache.spark.deploy.{0}"
        words = ["--host", LOOPBACK, "--port", str(port), "--webui-port", str(free_port())]
        wait_for(start(stack, folder, [part.format("master.Master"), *words]), "elected leader")
        workers = []
        for name in ("one", "two"):
            words = ["--host", LOOPBACK, "--cores", "1", "--memory", "1g", "--webui-port", str(free_port())]
            workers.append(
                start(stack, folder, [part.format("worker.Worker"), *words, "-d", str(folder / name), master])
            )
        for worker in workers:
            wait_for(worker, "Successfully registered with master")
        yield Cluster(master, [worker.process.pid for worker in workers])


@dataclass(frozen=True, slots=True)
class Part:
    """A process of Spark, and who listens to it once it is ready."""

    process: subprocess.Popen[str]
    listener: threading.Thread


def start(stack: ExitStack, folder: Path, command: list[str]) -> Part:
    """Start a part of Spark in a process group of its own."""
    import pyspark

    home = Path(pyspark.__file__).parent
    process = subprocess.Popen(
        [str(home / "bin" / "spark-class"), *command],
        env=environment(folder),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stderr is not None
    # Whoever goes on talking must be heard, or it waits for that.
    listener = threading.Thread(target=process.stderr.read)
    stack.callback(end, process, listener)
    return Part(process, listener)


def wait_for(part: Part, sign: str) -> None:
    """Return when a part says that it is ready."""
    assert part.process.stderr is not None
    said = []
    for line in part.process.stderr:
        said.append(line)
        if sign in line:
            part.listener.start()
            return
    raise AssertionError("".join(said))


def end(process: subprocess.Popen[str], listener: threading.Thread) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    if listener.is_alive():
        listener.join()
    assert process.stderr is not None
    process.stderr.close()


def environment(folder: Path) -> dict[str, str]:
    java, _ = find_java(folder)
    return os.environ | {"JAVA_HOME": java, "SPARK_LOCAL_IP": LOOPBACK, "SPARK_LOCAL_DIRS": str(folder / "local")}


def free_port() -> int:
    with socket.socket() as one:
        one.bind((LOOPBACK, 0))
        return int(one.getsockname()[1])


def records() -> list[dict[str, Any]]:
    people = [
        {"type": "Person", "data": {"name": f"p{place}", "email": f"{place}@" + "x" * 900}} for place in range(PEOPLE)
    ]
    edges = [
        {"edge": "Knows", "from": f"p{place}", "to": f"p{place * 7 % PEOPLE}", "data": {"id": f"e{place}"}}
        for place in range(PEOPLE)
    ]
    return [*people, *edges]


@pytest.mark.spark
@pytest.mark.slow
def test_cluster_that_loses_a_worker_loads_the_same_as_an_ingest(tmp_path: Path) -> None:
    file = tmp_path / "input.ndjson"
    file.write_bytes(lines_of(records()))
    here, there = world(tmp_path / "here"), world(tmp_path / "there")
    here.ingest(file, mode="append")
    before = there.snapshot().version
    with cluster(tmp_path) as running:
        given = {"graph": there.uri, "file": str(file), "master": running.master, "kill": running.workers[:1]}
        run = subprocess.run(
            [sys.executable, "-m", "tests.support.spark_driver", json.dumps(given)],
            cwd=REPOSITORY,
            env=environment(tmp_path),
            capture_output=True,
            text=True,
        )
        assert run.returncode == 0, run.stderr
    report = json.loads(run.stdout.splitlines()[-1])
    # The worker died in the stage that writes data files, after the first of them and before the last.
    assert report["struck"] is not None
    assert report["stage"] == "reading"
    assert report["data_files"] > 0
    assert report["total_entities"] == 2 * PEOPLE
    again = og.open(there.uri)
    assert again.snapshot().version == before + 1
    assert contents(again) == contents(here)
    kernel = session_of(again).kernel
    assert pending(kernel.store) == ([], [])
    assert list(Path(there.uri).rglob("_staging-*/*")) == []
    # What the dead worker was just writing has no name yet by which the load could know it.
    sweep(kernel, 0.0)
    assert contents(og.open(there.uri)) == contents(here)
