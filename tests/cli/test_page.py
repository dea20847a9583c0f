"""The examples of the page about the command line are run, as far as they need no server and come to an end."""

from __future__ import annotations

import io
import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

import omnigraph as og
from omnigraph.cli import main
from tests.support.cluster_folder import deploy, write_folder
from tests.support.guide_runner import BLOCK
from tools import built_docs

ROOT = Path(__file__).parents[2]
PAGE = built_docs.read_page("cli.md")
SUPPLY = ROOT / "examples" / "supply"
COMMIT = "01JCW0V7Q2M4RRP5K3WBF8E1ZD"
# What needs a server, goes on until somebody stops it, or is run by the guides to clusters and pipelines.
ELSEWHERE = (
    "serve",
    "graphs list",
    "alias",
    "lsp",
    "doctor s3:",
    "reconcile graph.omni --every",
    "COMMAND",
    "cluster import",
    "cluster force-unlock",
    *(
        f"pipeline {word}"
        for word in ("validate", "plan", "run", "backfill", "retry-rejected", "schedule", "status", "history")
    ),
)
# What has to be there first. A cherry-pick takes a commit of another branch.
FIRST = {
    "branch rename": ["branch create review/ada --store graph.omni"],
    "branch delete": ["branch create review/ada --store graph.omni"],
    "branch merge": ["branch create review/ada --store graph.omni"],
    "diff": ["branch create review/ada --store graph.omni"],
    "tag delete": ["tag create release-1 --store graph.omni"],
    "cherry-pick": [
        "branch create review/ada --store graph.omni",
        "ingest graph.omni --data more.ndjson --mode merge --branch review/ada",
    ],
}
LOGO = '{"type": "Package", "data": {"name": "wide-term", "ecosystem": "crates", "logo": "base64:aGVsbG8="}}\n'
MORE = '{"type": "Package", "data": {"name": "one-more", "ecosystem": "npm"}}\n'


def examples() -> Iterator[str]:
    for block in BLOCK.finditer(PAGE):
        if block["language"] == "sh":
            yield from block["text"].splitlines()


def words_of(line: str) -> list[str]:
    """Return the arguments of a command, redirections included.

    >>> words_of("omnigraph login lake < token.txt  # from a file")
    ['login', 'lake', '<', 'token.txt']
    """
    inner = re.fullmatch(r'eval "\$\((.*)\)"', line)
    program, *words = shlex.split(inner[1] if inner else line, comments=True)
    assert program == "omnigraph", line
    return words


RUNNABLE = [line for line in examples() if not " ".join(words_of(line)).startswith(ELSEWHERE)]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with everything that the page names."""
    folder = tmp_path_factory.mktemp("page")
    schema = (
        (SUPPLY / "schema.pg").read_text(encoding="utf-8").replace("downloads: U64?", "downloads: U64?\n  logo: Blob?")
    )
    policies = BLOCK.finditer((ROOT / "docs" / "policy.md").read_text(encoding="utf-8"))
    [config] = [one["text"] for one in BLOCK.finditer(PAGE) if one["language"] == "yaml"]
    files = {
        "schema.pg": schema,
        "old.pg": schema,
        "new.pg": (SUPPLY / "next.pg").read_text(encoding="utf-8"),
        "more.ndjson": MORE,
        "token.txt": "secret\n",
        "draft.gq": "match { $p: Package } return { $p.name }\n",
        "people.csv": "name,age\nada,36\nbob,41\n",
        "knows.csv": "a,b\nada,bob\n",
        "home/config.yaml": config,
    } | {one["file"]: one["text"] for one in policies if one["file"]}
    for name, text in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    (folder / "queries").mkdir()
    for target in ("queries.gq", "queries/queries.gq"):
        shutil.copy(SUPPLY / "queries.gq", folder / target)
    shutil.copy(SUPPLY / "data.ndjson", folder / "data.ndjson")
    parquet.write_table(pa.table({"a": ["ada"], "b": ["bob"]}), folder / "knows.parquet")
    with og.init(folder / "graph.omni", schema) as graph:
        graph.ingest(folder / "data.ndjson")
        graph.ingest(LOGO.encode())
    # A cluster from whose folder the graph `old` was taken out.
    assert deploy(write_folder(folder / "team", graphs=("knowledge", "old"))).ok
    write_folder(folder / "team")
    return folder


def run(line: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    words = words_of(line)
    if "<" in words:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO((folder / words[-1]).read_bytes()), "utf-8"))
    elif words[0] == "shell":
        monkeypatch.setattr("sys.stdin", io.StringIO(":schema\n"))
    ends = [words.index(sign) for sign in "<>" if sign in words]
    return main(words[: min(ends, default=len(words))])


@pytest.mark.slow
@pytest.mark.parametrize("line", RUNNABLE)
def test_example_of_the_page_runs(line: str, world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, line = prepare(line, world, tmp_path, monkeypatch)
    assert run(line, folder, monkeypatch) == 0


def prepare(line: str, world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, str]:
    """Go to a folder in which an example can run, and return it with the example."""
    folder = tmp_path / "here"
    shutil.copytree(world, folder)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("OMNIGRAPH_HOME", str(folder / "home"))
    monkeypatch.setenv("OMNIGRAPH_EMBED_PROVIDER", "mock")
    monkeypatch.setenv("OMNIGRAPH_EMBED_MODEL", "text-small")
    if line.startswith("omnigraph schema infer"):
        (folder / "schema.pg").unlink()
    if line.startswith("omnigraph init"):
        shutil.rmtree(folder / "graph.omni")
    first = next((lines for name, lines in FIRST.items() if line.startswith(f"omnigraph {name} ")), [])
    for one in first:
        assert main(shlex.split(one)) == 0, one
    if COMMIT in line:
        branch = "review/ada" if "cherry-pick" in line else "main"
        line = line.replace(COMMIT, og.open("graph.omni").snapshot(branch).head or "")
    return folder, line


def test_examples_that_are_not_run_are_few() -> None:
    assert len(RUNNABLE) >= 45
    assert len(list(examples())) - len(RUNNABLE) == len(ELSEWHERE)
