"""Files that cannot be loaded: each is refused with a clear error, as a call, as a command and on Spark."""

from __future__ import annotations

import gzip
import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest

from omnigraph.cli import main
from omnigraph.engine.input import csv_reader, line_ranges, read_split
from omnigraph.engine.input.splits import Columns
from omnigraph.errors import Effect, OmniGraphError, StorageError, UsageError
from omnigraph.graph import Graph, session_of
from omnigraph.limits import LOAD_REJECTED_CHARACTERS
from omnigraph.manifest.intents import pending
from omnigraph.pipeline import load
from omnigraph.spark import executors
from omnigraph.spark.executors import Executors
from tests.support.crash_campaign import REPOSITORY
from tests.support.pipeline_fixtures import contents, lines_of, world

LINES = lines_of([{"type": "Person", "data": {"name": f"p{place}"}} for place in range(3_000)])
ROWS = b"name\n" + b"".join(b"p%d\n" % place for place in range(3_000))


def zstd(raw: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(raw)
    return bytes(sink.getvalue())


def parquet(**columns: object) -> bytes:
    sink = pa.BufferOutputStream()
    pyarrow.parquet.write_table(pa.table(columns), sink)
    return bytes(sink.getvalue())


FILES: dict[str, bytes] = {
    "good.ndjson": LINES,
    "cut.ndjson.gz": gzip.compress(LINES)[:-20],
    "half.ndjson.gz": gzip.compress(LINES)[: len(gzip.compress(LINES)) // 2],
    "head.ndjson.gz": gzip.compress(LINES)[:5],
    "none.ndjson.gz": b"",
    "sum.ndjson.gz": gzip.compress(LINES)[:-8] + bytes(8),
    "plain.ndjson.gz": LINES,
    "cut.ndjson.zst": zstd(LINES)[:-20],
    "head.ndjson.zst": zstd(LINES)[:5],
    "none.ndjson.zst": b"",
    "plain.ndjson.zst": LINES,
    "packed.ndjson": gzip.compress(LINES),
    "mixed/a.ndjson": LINES,
    "mixed/b.parquet": parquet(name=["x"]),
    "odd/a.ndjson": LINES,
    "odd/b.txt": b"x",
    "cut.csv.gz": gzip.compress(ROWS)[:-20],
    "empty.csv": b"",
    "latin.csv": "name\nJosé\n".encode("latin-1"),
    "noise.csv": bytes(range(128, 256)) + b"\n",
    "ragged.csv": b"name,team\nx,y,z\n",
    "twice.csv": b"name,name\nx,y\n",
    "knows.csv": b"a,b\nann,bob\n",
    "good.csv": ROWS,
    "cut.parquet": parquet(name=["x"] * 1_000)[:100],
    "noise.parquet": b"PAR1" + bytes(2_000) + b"PAR1",
    "nan.parquet": parquet(text=["x"], score=[float("nan")]),
    "nested.parquet": parquet(name=["x"], level=[{"x": 1}]),
}
# What is given, and words of the answer; `data`, `Type=file` for a node, `Type>file` for an edge.
BAD = [
    ("missing.ndjson", "usage.invalid", "no such file"),
    ("missing-*.ndjson", "usage.invalid", "matches no file"),
    ("nowhere/", "usage.invalid", "no such file"),
    ("hollow", "usage.invalid", "matches no file"),
    ("cut.ndjson.gz", "usage.invalid", "Truncated"),
    ("half.ndjson.gz", "usage.invalid", "Truncated"),
    ("head.ndjson.gz", "usage.invalid", "Truncated"),
    ("none.ndjson.gz", "usage.invalid", "is empty"),
    ("sum.ndjson.gz", "usage.invalid", "incorrect data check"),
    ("plain.ndjson.gz", "usage.invalid", "incorrect header check"),
    ("cut.ndjson.zst", "usage.invalid", "Truncated"),
    ("head.ndjson.zst", "usage.invalid", "Truncated"),
    ("none.ndjson.zst", "usage.invalid", "is empty"),
    ("plain.ndjson.zst", "usage.invalid", "ZSTD"),
    ("packed.ndjson", "data.rejected", "this is compressed data"),
    ("mixed", "usage.invalid", "--node Type=FILE"),
    ("odd", "usage.invalid", "unsupported format"),
    ("Person=mixed", "usage.invalid", "pass it as `data`"),
    ("Person=missing.csv", "usage.invalid", "no such file"),
    ("Person=cut.csv.gz", "usage.invalid", "Truncated"),
    ("Person=empty.csv", "usage.invalid", "is empty"),
    ("Person=latin.csv", "data.rejected", "line 2: column `name` is not UTF-8 text"),
    ("Person=noise.csv", "usage.invalid", "cannot read"),
    ("Person=ragged.csv", "data.rejected", "line 2: this row has 3 fields, and the header has 2"),
    ("Person=twice.csv", "usage.invalid", "two columns map to `name`"),
    ("Person=cut.parquet", "usage.invalid", "not a Parquet file"),
    ("Person=noise.parquet", "usage.invalid", "Parquet"),
    ("Person=nested.parquet", "data.rejected", "`Person.level` cannot hold this value"),
    ("Note=nan.parquet", "data.rejected", "not a finite number"),
    ("Persn=good.csv", "usage.invalid", "did you mean `Person`"),
    ("Knows=good.csv", "usage.invalid", "no node type `Knows`"),
    ("Note=good.csv", "data.rejected", "has no property `name`"),
    ("Person=good.csv:a->b", "usage.invalid", "has no endpoints"),
    ("Likes>knows.csv:a->b", "usage.invalid", "no edge type `Likes`"),
    ("Knows>knows.csv", "usage.invalid", "`from` and `to`"),
    ("Knows>knows.csv:a->c", "usage.invalid", "`a` and `c`"),
    ("Knows>knows.csv:->b", "usage.invalid", "two columns"),
]


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Graph]:
    """A graph that nothing is written to, in a directory with all the files."""
    folder = tmp_path_factory.mktemp("files")
    for name, raw in FILES.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(raw)
    (folder / "hollow").mkdir()
    before = Path.cwd()
    os.chdir(folder)
    yield world(folder / "g.omni")
    os.chdir(before)


def state_of(graph: Graph) -> object:
    files = {str(path) for path in Path(graph.uri).rglob("*") if path.is_file()}
    return graph.snapshot().version, files, pending(session_of(graph).kernel.store)


def called(graph: Graph, given: str, **options: Any) -> OmniGraphError:
    name, sign, file = given.partition("=")
    edge, to, ends = given.partition(">") if not sign and given[0].isupper() else ("", "", "")
    where: dict[str, Any] = {"data": given}
    if to:
        where = {"edges": {edge: ends}}
    elif sign:
        where = {"nodes": {name: file}}
    with pytest.raises(OmniGraphError) as caught:
        load(graph, **where, **{"mode": "append", "engine": "local", **options})
    return caught.value


def commanded(graph: Graph, given: str, capsys: pytest.CaptureFixture[str], *options: str) -> dict[str, Any]:
    option = "--node" if "=" in given else "--data"
    if option == "--data" and given[0].isupper():
        option, given = "--edge", given.replace(">", "=", 1)
    assert main(["load", graph.uri, option, given, "--mode", "append", "--quiet", "--json", *options]) == 1
    answer: dict[str, Any] = json.loads(capsys.readouterr().out)
    return answer


@pytest.mark.parametrize(("given", "code", "words"), BAD)
def test_bad_file_is_refused_by_call_and_by_command(
    graph: Graph, given: str, code: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = state_of(graph)
    error = called(graph, given)
    assert (error.code, error.effect.value) == (code, "none")
    assert words in error.message
    assert commanded(graph, given, capsys)["error"] == error.message
    assert state_of(graph) == before


@pytest.mark.parametrize(
    ("given", "code", "words"),
    [
        ("missing.ndjson", "usage.invalid", "no such file"),
        ("mixed", "usage.invalid", "is a directory"),
        ("packed.ndjson", "data.rejected", "this is compressed data"),
        ("cut.ndjson.gz", "data.rejected", "use a load, which reads `.gz`"),
        ("cut.ndjson.zst", "data.rejected", "this is compressed data"),
        ("good.csv", "data.rejected", "not NDJSON"),
        ("noise.csv", "data.rejected", "not UTF-8"),
    ],
)
def test_bad_file_is_refused_by_an_ingest(
    graph: Graph, given: str, code: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = state_of(graph)
    with pytest.raises(OmniGraphError) as caught:
        graph.ingest(given, mode="append")
    assert (caught.value.code, caught.value.effect.value) == (code, "none")
    assert words in caught.value.message
    assert main(["ingest", graph.uri, "--data", given, "--mode", "append", "--quiet", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["error"] == caught.value.message
    assert state_of(graph) == before


@pytest.mark.spark
@pytest.mark.slow
def test_bad_files_on_spark_are_refused_as_in_process(
    spark: Any, graph: Graph, capsys: pytest.CaptureFixture[str]
) -> None:
    before = state_of(graph)
    for given in ("cut.ndjson.gz", "cut.ndjson.zst", "Person=noise.csv", "Knows>knows.csv:a->c", "Note=good.csv"):
        answer = commanded(graph, given, capsys, "--engine", "spark")
        assert answer == called(graph, given).to_json()
    assert state_of(graph) == before


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"data": [None]}, "unsupported input of type `NoneType`"),
        ({"data": 7}, "unsupported input of type `int`"),
        ({"data": {"Person": "good.csv"}}, "unsupported input of type `dict`"),
        ({"data": "a\0b"}, "invalid path"),
        ({"nodes": ["good.csv"]}, "`nodes` must be a mapping"),
        ({"nodes": {7: "good.csv"}}, "no node type `7`"),
        ({"nodes": {"Person": None}}, "unsupported input of type `NoneType`"),
        ({"data": "good.ndjson", "branch": 7}, "`branch` must be a string"),
        ({"data": "good.ndjson", "branch": "b", "from_branch": 7}, "`from_branch` must be a string"),
        ({"data": "good.ndjson", "job_id": 7}, "`job_id` must be a string"),
        ({"data": "good.ndjson", "report": 7}, "`report` must be a string or a path"),
        ({"data": "good.ndjson", "max_errors": "x"}, "`max_errors` must be an integer"),
        ({"data": "good.ndjson", "max_errors": -1, "on_error": "quarantine", "report": "out"}, "must be >= 0"),
        ({"data": "good.ndjson", "mode": ["append"]}, "unknown mode"),
        ({"nodes": {"Person": Columns("good.csv", properties={"nam": "name"})}}, "no column `nam` to map"),
        ({"nodes": {"Person": Columns("good.csv", properties={"name": "nme"})}}, "has no property `nme`"),
    ],
)
def test_load_of_wrong_arguments_is_refused(graph: Graph, options: dict[str, Any], words: str) -> None:
    before = state_of(graph)
    with pytest.raises(OmniGraphError) as caught:
        load(graph, **{"mode": "append", "engine": "local", **options})
    assert words in caught.value.message
    assert state_of(graph) == before


def test_empty_file_of_lines_is_an_input_of_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    graph = world(tmp_path / "g.omni")
    before = contents(graph)
    (tmp_path / "empty.ndjson").write_bytes(b"")
    for command in ("load", "ingest"):
        options = ["--data", str(tmp_path / "empty.ndjson"), "--mode", "merge", "--quiet", "--json"]
        assert main([command, graph.uri, *options]) == 0
        assert json.loads(capsys.readouterr().out)["total_entities"] == 0
    assert contents(graph) == before


# -- lines that are too long -----------------------------------------------------------------------------------


def test_line_too_long_in_a_compressed_file_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = world(tmp_path / "g.omni")
    for module in (line_ranges, read_split):
        monkeypatch.setattr(module, "LOAD_LINE_BYTES_MAX", 100)
    monkeypatch.setattr(line_ranges, "LOAD_SPLIT_BYTES", 50)
    good, other = (
        lines_of([{"type": "Person", "data": {"name": "a"}}]),
        lines_of([{"type": "Person", "data": {"name": "b"}}]),
    )
    # What follows within the line looks like a line of its own at the place where a piece begins.
    long = (b"x" * (50 - len(good) % 50) + b" " * 450 + good).rstrip(b"\n")
    file = tmp_path / "in.ndjson.gz"
    file.write_bytes(gzip.compress(good + long + b"\n" + other))
    with pytest.raises(OmniGraphError) as caught:
        load(graph, file, mode="append", engine="local")
    assert [(one["rule"], one["line"]) for one in caught.value.context["violations"]] == [("N11", 2)]  # type: ignore[attr-defined]
    report = load(graph, file, mode="append", engine="local", on_error="quarantine", report=tmp_path / "out")
    assert (report.total_entities, report.rejected_by_code) == (2, {"N11": 1})


def test_rejected_line_that_is_long_is_kept_in_part(tmp_path: Path) -> None:
    graph, file = world(tmp_path / "g.omni"), tmp_path / "in.ndjson"
    line = lines_of([{"type": "Person", "data": {"name": "é" * 200_000, "level": 99}}])
    file.write_bytes(line.decode("unicode_escape").encode())
    load(graph, file, mode="append", engine="local", on_error="quarantine", report=tmp_path / "out")
    [rejected] = (tmp_path / "out" / "rejected.ndjson").read_text().splitlines()
    record = json.loads(rejected)["record"]
    assert len(record) == LOAD_REJECTED_CHARACTERS
    assert record.startswith('{"type": "Person", "data": {"name": "éé')


def test_row_of_csv_that_is_too_long_names_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (csv_reader, read_split):
        monkeypatch.setattr(module, "LOAD_CSV_ROW_BYTES_MAX", 1_000)
    graph, file = world(tmp_path / "g.omni"), tmp_path / "in.csv"
    file.write_bytes(b'name\nx\n"' + b"y" * 5_000)
    with pytest.raises(OmniGraphError) as caught:
        load(graph, nodes={"Person": file}, mode="append", engine="local")
    assert (caught.value.code, caught.value.context["rule"]) == ("limit.exceeded", "N11")
    assert "a row of more than 1000 bytes" in caught.value.message


# What the system counts for a child begins with the memory of its parent, so the child looks at itself.
_WITH_PEAK = """
import sys
from omnigraph.cli import main
try:
    sys.exit(main(sys.argv[1:]))
finally:
    with open("/proc/self/status") as lines:
        print(next(line for line in lines if line.startswith("VmHWM")), file=sys.stderr, end="")
"""


@pytest.mark.slow
def test_line_of_a_gigabyte_is_refused_in_bounded_memory(tmp_path: Path) -> None:
    graph, file = world(tmp_path / "g.omni"), tmp_path / "in.ndjson"
    with file.open("wb") as stream:
        stream.write(b'{"type":"Person","data":{"name":"')
        stream.truncate(2**30)
    command = ["load", graph.uri, "--data", str(file), "--mode", "append", "--engine", "local", "--quiet", "--json"]
    before = state_of(graph)
    run = subprocess.run([sys.executable, "-c", _WITH_PEAK, *command], capture_output=True, text=True, cwd=REPOSITORY)
    said, (_, kilobytes, _) = json.loads(run.stdout), run.stderr.splitlines()[-1].split()
    assert (run.returncode, said["code"], said["rule"], said["line"]) == (1, "limit.exceeded", "N11", 1)
    assert int(kilobytes) * 1024 < 2**30 // 4 * 3
    assert state_of(graph) == before


# -- a full disk -----------------------------------------------------------------------------------------------

# No file may grow past some size: what a task writes fails, as on a full disk, and what the graph notes does not.
_FILE_BYTES = 262_144
_ON_A_FULL_DISK = f"""
import resource, sys
from omnigraph.cli import main
resource.setrlimit(resource.RLIMIT_FSIZE, ({_FILE_BYTES}, resource.RLIM_INFINITY))
sys.exit(main(sys.argv[1:]))
"""


def many_people(folder: Path) -> Path:
    file = folder / "in.ndjson"
    file.write_bytes(lines_of([{"type": "Person", "data": {"name": os.urandom(100).hex()}} for _ in range(5_000)]))
    return file


@pytest.mark.slow
def test_full_disk_under_a_load_fails_it_and_leaves_nothing(tmp_path: Path) -> None:
    graph, file = world(tmp_path / "g.omni"), many_people(tmp_path)
    before = state_of(graph)
    command = ["load", graph.uri, "--data", str(file), "--mode", "merge", "--engine", "local", "--quiet", "--json"]
    run = subprocess.run([sys.executable, "-c", _ON_A_FULL_DISK, *command], capture_output=True, text=True)
    assert run.returncode == 1, run.stderr
    said = json.loads(run.stdout)
    assert (said["code"], said["effect"]) == ("storage.failed", "none")
    assert "exceed the size" in said["error"]
    assert state_of(graph) == before


def run_on_a_full_disk(work: Callable[[Any], Any], payload: Any) -> Any:
    limit, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (_FILE_BYTES, most))
    try:
        return work(payload)
    finally:
        # The worker goes on to the tasks of other tests.
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, most))


class FullDisks(Executors):
    """Executors without room for what their tasks write."""

    def run(self, stage: str, work: Any, payloads: Any, sizes: Any = ()) -> Any:
        return super().run(stage, partial(run_on_a_full_disk, work), payloads, sizes)


@pytest.mark.spark
@pytest.mark.slow
def test_full_disk_under_a_spark_task_fails_the_load_and_leaves_nothing(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph, file = world(tmp_path / "g.omni"), many_people(tmp_path)
    before = state_of(graph)
    monkeypatch.setattr(executors, "start_executors", lambda _: FullDisks(spark))
    with pytest.raises(StorageError, match="exceed the size") as caught:
        load(graph, file, mode="merge", engine="spark")
    assert (caught.value.code, caught.value.effect) == ("storage.failed", Effect.NONE)
    assert state_of(graph) == before


def test_open_file_that_is_gone_meanwhile_is_refused(tmp_path: Path) -> None:
    from omnigraph.engine.input.filesystems import open_stream

    with pytest.raises(UsageError, match="cannot read"):
        open_stream(str(tmp_path / "gone.ndjson"), None)


def test_report_that_cannot_be_written_says_that_the_load_was_applied(tmp_path: Path) -> None:
    graph, file = world(tmp_path / "g.omni"), tmp_path / "in.ndjson"
    file.write_bytes(lines_of([{"type": "Person", "data": {"name": "someone new"}}]))
    (tmp_path / "out" / "report.json").mkdir(parents=True)
    with pytest.raises(StorageError) as caught:
        load(graph, file, mode="append", engine="local", report=tmp_path / "out")
    assert caught.value.effect is Effect.APPLIED
    assert "report.json" in caught.value.message
    assert graph.commits()[0].kind == "load"
