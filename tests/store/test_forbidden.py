"""A directory that may not be written, and a read-only disk: told plainly, of the graph's directory."""

from __future__ import annotations

import errno
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from omnigraph.errors import StorageKind
from omnigraph.store.objects.failures import from_os_error
from omnigraph.store.read.dataset import storage_error

CHILD = """
import os, sys
import omnigraph as og
place, warm = sys.argv[1:]
INSERT = 'query q() { insert A { k: "x" } }'
DATA = b'{"type": "A", "data": {"k": "a"}}'

def attempts(graph):
    yield lambda: graph.mutate(INSERT)
    yield lambda: graph.ingest(DATA)
    yield lambda: graph.branches.create("b")
    yield lambda: graph.tags.create("t")
    yield lambda: graph.maintenance.optimize()
    yield lambda: graph.schema.apply("node A { k: String @key  n: I32? }")

# Everything is loaded while this user may still read the library.
other = og.init(warm, "node A { k: String @key }")
for attempt in attempts(other):
    try:
        attempt()
    except og.errors.OmniGraphError:
        pass
graph = og.init(place, "node A { k: String @key }")
graph.ingest(DATA)
if os.geteuid() == 0:
    os.setegid(65534)
    os.seteuid(65534)
else:
    for folder, _, _ in os.walk(place):
        os.chmod(folder, 0o555)
print(graph.query("query q() { match { $a: A } return { $a.k } }").to_json_rows())
for attempt in attempts(graph):
    try:
        print("done", attempt())
    except og.errors.StorageError as error:
        print(error.storage_kind.value, error.effect.value, error.message)
"""


@pytest.mark.slow
def test_directory_without_write_permission_is_told_of_plainly() -> None:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        given = [sys.executable, "-c", CHILD, f"{folder}/g.omni", f"{folder}/warm.omni"]
        lines = subprocess.run(given, capture_output=True, text=True, check=True).stdout.splitlines()
    assert lines[0] == "[{'a.k': 'a'}]"
    assert len(lines) == 7
    for line in lines[1:]:
        assert line.startswith("configuration none cannot ")
        assert "permission denied: this user may not do that; check the owner and mode of the directory" in line
        assert not any(word in line for word in ("nodes/", "LanceError", "__manifest", "os error", "deleting"))


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        ("LanceError(IO): Permission denied (os error 13)", "permission denied: this user may not do that"),
        ("LanceError(IO): Read-only file system (os error 30), rust/x.rs:1", "the file system is read-only: mount it"),
    ],
)
def test_failure_of_lance_in_a_forbidden_directory_hides_the_step(text: str, remedy: str) -> None:
    error = storage_error("deleting rows of nodes/0000000000000006-000000000000002c@4", OSError(text))
    assert error.message.startswith(f"cannot work in the graph's directory: {remedy}")
    assert error.storage_kind is StorageKind.CONFIGURATION
    assert "deleting rows" in str(error.context["doing"])


def test_failure_of_one_file_names_the_file() -> None:
    full = from_os_error(OSError(errno.ENOSPC, ""), "write", "/g/a.json", "/g")
    assert full.message.startswith("cannot write `/g/a.json`: the disk is full")
    forbidden = from_os_error(PermissionError(errno.EACCES, ""), "write", "/g/a.json", "/g")
    assert forbidden.message.startswith("cannot write in `/g`: permission denied")
    assert forbidden.context["object"] == "/g/a.json"
