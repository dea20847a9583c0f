"""Proven files: a write that storage loses is noticed before the publish, whatever file it belongs to.

Lance does not notice when the last write of a file, its footer, fails; see `shortwrites` and `failwrite.c`.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from moto.core.models import DEFAULT_ACCOUNT_ID
from moto.s3.models import s3_backends

from omnigraph.errors import Effect, StorageError
from omnigraph.store.write.file_proof import fault_of
from tests.support.kernel_fixtures import PERSON, create, ids_of, insert, open_graph
from tests.support.s3_server import BUCKET, Request, S3Server, s3_server

__all__ = ["s3_server"]

REPOSITORY = Path(__file__).parents[2]
KINDS = ("insert", "update", "delete", "blob", "optimize", "branch")
# Files of every sort, by a pattern of the path that they are written at; the one before the last is that of blobs.
FILES = (
    "*/__manifest/data/*",
    "*/nodes/*/data/.tmp*",
    "*/_deletions/*",
    "*/_indices/*",
    "*/_versions/*",
    "*/nodes/*/data/[01]*/*",
    "*/_transactions/*",
)


def attempts(folder: Path, kinds: Sequence[str], faults: Sequence[object], **env: str) -> list[dict[str, str]]:
    """Run writes under faults in a child process, and return what came of each."""
    command = [
        sys.executable,
        "-m",
        "tests.kernel.short_writes",
        str(folder),
        ",".join(kinds),
        ",".join(map(str, faults)),
    ]
    ran = subprocess.run(
        command,
        cwd=REPOSITORY,
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return [json.loads(line) for line in ran.stdout.splitlines()]


def check(found: Sequence[dict[str, str]]) -> None:
    """Assert that every write either is there, whole, or was refused and has left the graph as it was."""
    assert found
    for one in found:
        if one["outcome"] == "acknowledged":
            assert one["after"] in ("same", "changed"), one
        else:
            assert (one["outcome"], one["effect"], one["after"]) == ("storage.failed", "none", "same"), one


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kinds", "offsets"),
    [
        pytest.param(("insert",), (-1,), id="sample"),
        pytest.param(KINDS, (-90, -48, -39, -24, -5, -1, 3), id="all", marks=pytest.mark.long),
    ],
)
def test_write_past_a_file_size_limit_is_refused_or_whole(
    tmp_path: Path, kinds: tuple[str, ...], offsets: tuple[int, ...]
) -> None:
    found = attempts(tmp_path, kinds, offsets, OMNIGRAPH_DURABILITY="process")
    check(found)
    # Lance itself refuses most of them; the others are what this test is about.
    assert any("was not written whole" in one.get("message", "") for one in found)


@pytest.fixture
def shim(tmp_path: Path) -> dict[str, str]:
    """Build the library that loses a write."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None or sys.platform != "linux":
        pytest.skip("no C compiler on a Linux machine: single lost writes cannot be injected here")
    library = tmp_path / "failwrite.so"
    source = str(Path(__file__).with_name("failwrite.c"))
    subprocess.run([compiler, "-shared", "-fPIC", "-o", str(library), source, "-ldl"], check=True)
    return {"LD_PRELOAD": str(library), "SHIM_ORDER": str(tmp_path / "order")}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kinds", "files", "numbers", "codes"),
    [
        pytest.param(("update",), FILES[:3], (1, 2), (errno.ENOSPC,), id="sample"),
        pytest.param(KINDS, FILES, (1, 2, 3), (errno.ENOSPC, errno.EIO), id="all", marks=pytest.mark.long),
    ],
)
def test_single_lost_write_is_refused_or_without_effect(
    tmp_path: Path,
    shim: dict[str, str],
    kinds: tuple[str, ...],
    files: tuple[str, ...],
    numbers: tuple[int, ...],
    codes: tuple[int, ...],
) -> None:
    orders = [f"{file} {number} {code}" for file in files for number in numbers for code in codes]
    found = attempts(tmp_path / "g", kinds, orders, **shim)
    check(found)
    assert any("was not written whole" in one.get("message", "") for one in found)


# -- object stores -------------------------------------------------------------------------------------------------


@pytest.mark.s3
@pytest.mark.parametrize("folder", ["nodes/", "__manifest/data/"])
def test_object_that_lost_its_end_is_refused_before_the_publish(s3_server: S3Server, folder: str) -> None:
    kernel = create(s3_server.uri("g"))
    insert(kernel, {PERSON: ["a"]})
    kernel.close()

    def cut(request: Request) -> None:
        if folder in request.key and "/data/" in request.key:
            stored = s3_backends[DEFAULT_ACCOUNT_ID]["aws"].get_object(BUCKET, request.key)
            assert stored is not None
            stored.value = stored.value[:-7]  # type: ignore[misc]  # what moto lets us do, its stub does not

    for number in range(1, 6):
        s3_server.on_mutation(number, "after", cut)
    with pytest.raises(StorageError, match="was not written whole") as caught:
        insert(kernel, {PERSON: ["b"]})
    assert caught.value.effect is Effect.NONE
    kernel.close()
    assert ids_of(open_graph(s3_server.uri("g")), PERSON) == ["a"]


# -- footers -------------------------------------------------------------------------------------------------------


def test_every_cut_of_every_file_of_a_graph_shows_in_its_footer(tmp_path: Path) -> None:
    root = tmp_path / "g.omni"
    insert(create(str(root)), {PERSON: ["a"]})
    files = [file for file in root.rglob("*") if file.suffix in (".lance", ".manifest", ".arrow") and file.is_file()]
    assert files
    for file in files:
        data = file.read_bytes()
        assert fault_of(file.name, len(data), data[-64:]) is None
        for length in range(len(data)):
            assert fault_of(file.name, length, data[:length][-64:]) is not None, (file, length)
