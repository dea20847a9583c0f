"""Groups in a bucket, and beside the groups of another process: nothing is lost, and nothing comes twice."""

from __future__ import annotations

import json
import os
import sys
import threading
from functools import partial
from pathlib import Path
from subprocess import PIPE

import pytest

import omnigraph as og
from omnigraph.graph import session_of
from tests.engine.write.test_group_model import check_states
from tests.support.forked_python import ForkedPython
from tests.support.grouped_writes import groups_of, write_together
from tests.support.s3_server import S3Server, s3_server

__all__ = ["s3_server"]

SCHEMA = "node Person { name: String @key  age: I32? }\nedge Knows: Person -> Person"
ADD = "query q($name: String, $age: I32) { insert Person { name: $name, age: $age } }"
AGE = "query q($name: String, $age: I32) { update Person set { age: $age } where name = $name }"
DROP = "query q($name: String) { delete Person where name = $name }"
PEOPLE = "query q() { match { $p: Person } return { $p.name as name, $p.age as age } order { name asc } }"
THREADS, WRITES = 6, 6


@pytest.mark.s3
def test_group_in_a_bucket_has_the_states_between_its_commits(s3_server: S3Server) -> None:
    uri = s3_server.uri("groups")
    with og.init(uri, SCHEMA) as graph:
        graph.mutate(ADD, params={"name": "ada", "age": 1})
        receipts = write_together(
            graph,
            [
                partial(graph.mutate, ADD, params={"name": "bob", "age": 2}),
                partial(graph.mutate, AGE, params={"name": "ada", "age": 3}),
                partial(graph.mutate, AGE, params={"name": "bob", "age": 4}),
                partial(graph.mutate, DROP, params={"name": "ada"}),
            ],
        )
        with og.open(uri, read_only=True) as reader:
            states = [
                {row["name"]: row["age"] for row in reader.query(PEOPLE, at=receipt.commit.commit_id).rows()}  # type: ignore[union-attr]
                for receipt in receipts
            ]
        assert states == [{"ada": 1, "bob": 2}, {"ada": 3, "bob": 2}, {"ada": 3, "bob": 4}, {"bob": 4}]
        check_states(graph)
        graph.branches.create("review", at=receipts[2].commit.commit_id)  # type: ignore[union-attr]
        assert [row["age"] for row in graph.query(PEOPLE, branch="review").rows()] == [3, 4]
        assert graph.maintenance.verify(data=True).is_sound


def write_from_threads(root: str, name: str) -> None:
    """Write from several threads of this process once a line of input comes; print what was acknowledged."""
    done: list[str] = []

    def write(graph: og.Graph, thread: int) -> None:
        for number in range(WRITES):
            graph.mutate(ADD, params={"name": f"{name}-{thread}-{number}", "age": number})
            # All of them meet on one row.
            graph.mutate(AGE, params={"name": "ada", "age": thread})
            done.append(f"{name}-{thread}-{number}")
            # One system call, so that lines of several threads do not mix.
            os.write(sys.stderr.fileno(), f"{name}-{thread}-{number}\n".encode())

    with og.open(root) as graph:
        print("ready", flush=True)
        sys.stdin.readline()
        threads = [threading.Thread(target=write, args=(graph, thread)) for thread in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    print(json.dumps(done), flush=True)


@pytest.mark.slow
def test_groups_of_two_processes_lose_nothing(tmp_path: Path) -> None:
    root = str(tmp_path / "graph.omni")
    with og.init(root, SCHEMA) as graph:
        graph.mutate(ADD, params={"name": "ada", "age": 1})
    command = [sys.executable, "-m", "tests.engine.write.test_group_places", root]
    processes = [ForkedPython([*command, name], stdin=PIPE, stdout=PIPE, text=True) for name in ("ann", "ben")]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    answers = [process.communicate()[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    done = [name for answer in answers for name in json.loads(answer)]
    assert len(done) == 2 * THREADS * WRITES
    with og.open(root) as graph:
        assert {row["name"] for row in graph.query(PEOPLE).rows()} == {*done, "ada"}
        assert any(len(group) > 1 for group in groups_of(graph)), "nothing was grouped"
        check_states(graph)
        assert graph.maintenance.verify().is_sound
        kernel = session_of(graph).kernel
        operations = [commit.operation_id for commit in kernel.history()]
        assert len(set(operations)) == len(operations)


@pytest.mark.slow
@pytest.mark.parametrize("acknowledged", [1, 7, 20])
def test_killed_process_loses_nothing_acknowledged(tmp_path: Path, acknowledged: int) -> None:
    root = str(tmp_path / "graph.omni")
    with og.init(root, SCHEMA) as graph:
        graph.mutate(ADD, params={"name": "ada", "age": 1})
    command = [sys.executable, "-m", "tests.engine.write.test_group_places", root, "ann"]
    process = ForkedPython(command, stdin=PIPE, stdout=PIPE, stderr=PIPE, text=True)
    assert process.stdout is not None
    assert process.stdin is not None
    assert process.stderr is not None
    assert process.stdout.readline() == "ready\n"
    process.stdin.write("go\n")
    process.stdin.flush()
    told = [process.stderr.readline().strip() for _ in range(acknowledged)]
    process.kill()
    told += process.communicate()[1].split()
    with og.open(root) as graph:
        names = [row["name"] for row in graph.query(PEOPLE).rows()]
        assert len(set(names)) == len(names)
        assert set(told) <= set(names)
        # Of each thread one write may have been on its way.
        assert len(names) <= 1 + len(told) + THREADS
        check_states(graph)
        graph.mutate(AGE, params={"name": "ada", "age": 9})
        assert graph.maintenance.verify(data=True).is_sound


if __name__ == "__main__":
    write_from_threads(*sys.argv[1:])
