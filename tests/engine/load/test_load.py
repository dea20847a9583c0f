"""Loads that are staged in files: modes, branches, jobs, quarantine, races, and what is left on disk."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest

import omnigraph as og
from omnigraph import failpoints
from omnigraph.engine.load.report import LoadReport
from omnigraph.engine.load.transaction import LoadTransaction
from omnigraph.engine.session import View
from omnigraph.engine.tasks import Unit
from omnigraph.errors import DataError, GraphError, JobExists, OmniGraphError, ReadSetChanged, UsageError
from omnigraph.failpoints import Point
from omnigraph.graph import Graph, session_of
from omnigraph.lang.catalog import TypeKey
from omnigraph.pipeline import load
from tests.support.orphan_sweep import sweep
from tests.support.pipeline_fixtures import contents, lines_of, load_bytes, splits_of, staging_in_files, world
from tests.support.write_fixtures import rows


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[Graph]:
    with staging_in_files():
        yield world(tmp_path / "g.omni")


def person(name: str, **values: object) -> dict[str, Any]:
    return {"type": "Person", "data": {"name": name, **values}}


def knows(start: str, end: str, **values: object) -> dict[str, Any]:
    return {"edge": "Knows", "from": start, "to": end, "data": values}


def stray_files(graph: Graph) -> list[str]:
    """Return files of loads that no version names, intents included."""
    session_of(graph).kernel.store.close()
    before = _files(graph)
    sweep(session_of(graph).kernel, older_than_seconds=0)
    gone = before - _files(graph)
    return sorted([path for path in before if "_staging" in path or "__recovery/0" in path] + [
        path for path in gone if "/data/" in path and not path.startswith("__")
    ])  # fmt: skip


def _files(graph: Graph) -> set[str]:
    root = Path(graph.uri)
    return {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}


def test_load_is_one_commit_that_says_what_it_did(graph: Graph, tmp_path: Path) -> None:
    before = graph.snapshot()
    with splits_of(50):
        report = load_bytes(graph, lines_of([person("cy"), person("dee"), knows("cy", "dee")]), tmp_path, "append")
    after = graph.snapshot()
    assert report.commit is not None
    assert (after.version, report.commit_id, report.commit.parent) == (
        before.version + 1,
        after.head,
        before.head,
    )
    assert (dict(report.nodes), dict(report.edges), report.total_entities) == ({"Person": 2}, {"Knows": 1}, 3)
    assert (report.commit.kind, report.engine, report.commit.properties["mode"]) == ("load", "local", "append")
    assert stray_files(graph) == []


@pytest.mark.slow
def test_load_merge_replaces_rows_in_every_fragment_and_adds_others(graph: Graph, tmp_path: Path) -> None:
    for name in ("cy", "dee", "eve"):
        load_bytes(graph, lines_of([person(name, level=1, team=name)]), tmp_path, "append")
    graph.maintenance.ensure_indices()
    with splits_of(60):
        raw = lines_of([person(name, level=5, team=name) for name in ("ann", "cy", "eve", "fay")])
        load_bytes(graph, raw, tmp_path, "merge")
    found = rows(graph, "node:Person")
    assert {name: row["level"] for name, row in found.items()} == {
        "ann": 5, "bob": 2, "cy": 5, "dee": 1, "eve": 5, "fay": 5,
    }  # fmt: skip
    dataset = session_of(graph).view().dataset(TypeKey("node:Person"))
    ids = dataset.read(["id"], with_row_id=True)
    assert len(set(ids["_rowid"].to_pylist())) == 6
    assert dataset.count() == 6 == graph.snapshot().state.pins[TypeKey("node:Person")].row_count
    assert graph.query('query q() { match { $p: Person { name: "fay" } } return { $p.level } }').to_json_rows() == [
        {"p.level": 5}
    ]
    # What was loaded is known to the writers that follow.
    with pytest.raises(OmniGraphError) as caught:
        graph.ingest(lines_of([person("fay")]), mode="append")
    assert caught.value.context["rule"] == "E11"
    assert stray_files(graph) == []


@pytest.mark.slow
def test_load_merge_keeps_the_last_of_an_id_over_splits(graph: Graph, tmp_path: Path) -> None:
    notes = [{"type": "Note", "data": {"id": "n9", "text": f"{place}"}} for place in range(9)]
    with splits_of(40):
        report = load_bytes(graph, lines_of(notes), tmp_path, "merge")
    assert rows(graph, "node:Note")["n9"]["text"] == "8"
    assert report.total_entities == 1
    assert stray_files(graph) == []


def test_load_overwrite_replaces_named_types_only(graph: Graph, tmp_path: Path) -> None:
    load_bytes(graph, lines_of([knows("bob", "ann")]), tmp_path, "overwrite")
    assert [row["src"] for row in rows(graph, "edge:Knows").values()] == ["bob"]
    assert set(rows(graph, "node:Person")) == {"ann", "bob"}


@pytest.mark.slow
def test_load_on_a_new_branch_leaves_main_alone(graph: Graph, tmp_path: Path) -> None:
    main = contents(graph)
    report = load_bytes(graph, lines_of([person("cy")]), tmp_path, "merge", branch="review", from_branch="main")
    assert (report.branch_created, report.base_branch) == (True, "main")
    load_bytes(graph, lines_of([person("ann", level=3)]), tmp_path, "merge", branch="review")
    assert contents(graph) == main
    found = rows(graph, "node:Person", "review")
    assert (set(found), found["ann"]["level"]) == ({"ann", "bob", "cy"}, 3)


def test_load_that_fails_leaves_no_branch_behind(graph: Graph, tmp_path: Path) -> None:
    with pytest.raises(DataError):
        load_bytes(graph, lines_of([knows("ann", "no")]), tmp_path, "merge", branch="review", from_branch="main")
    assert "review" not in graph.snapshot().state.branches
    with pytest.raises(GraphError) as caught:
        load_bytes(graph, b"", tmp_path, "merge", branch="review")
    assert caught.value.code == "branch.not_found"


def test_load_of_a_job_is_done_once(graph: Graph, tmp_path: Path) -> None:
    raw = lines_of([{"type": "Note", "data": {"text": "no id"}}])
    first = load_bytes(graph, raw, tmp_path, "append", job_id="day-1")
    again = load_bytes(graph, raw, tmp_path, "append", job_id="day-1")
    assert (again.already_applied, again.commit_id) == (True, first.commit_id)
    assert graph.snapshot().head == first.commit_id
    for other, mode in ((raw + raw, "append"), (raw, "merge")):
        with pytest.raises(JobExists) as caught:
            load_bytes(graph, other, tmp_path, mode, job_id="day-1")
        assert caught.value.context["commit_id"] == first.commit_id
    assert not load_bytes(graph, raw, tmp_path, "append", job_id="day-2").already_applied


@pytest.mark.slow
def test_load_of_a_job_is_recognised_however_its_files_are_cut(graph: Graph, tmp_path: Path) -> None:
    table = pa.table({"name": [f"p{one}" for one in range(40)]})
    pa.parquet.write_table(table, tmp_path / "people.parquet", row_group_size=10)
    files = {"nodes": {"Person": str(tmp_path / "people.parquet")}, "job_id": "day-1"}
    raw = lines_of([{"type": "Note", "data": {"text": str(one)}} for one in range(20)])
    with splits_of(100):
        first = load_bytes(graph, raw, tmp_path, "append", **files)
    again = load_bytes(graph, raw, tmp_path, "append", **files)
    assert (again.already_applied, again.commit_id) == (True, first.commit_id)
    pa.parquet.write_table(table, tmp_path / "people.parquet", row_group_size=20)
    with pytest.raises(JobExists):
        load_bytes(graph, raw, tmp_path, "append", **files)


@pytest.mark.slow
def test_load_prepares_anew_when_another_writer_was_faster(
    graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    interfere(monkeypatch, graph, 'insert Person { name: "eve", level: 4, team: "red" }')
    load_bytes(graph, lines_of([person("ann", level=7), person("dee")]), tmp_path, "merge")
    found = rows(graph, "node:Person")
    assert (set(found), found["ann"]["level"]) == ({"ann", "bob", "dee", "eve"}, 7)
    interfere(monkeypatch, graph, 'insert Person { name: "zed" }')
    with pytest.raises(OmniGraphError) as caught:
        load_bytes(graph, lines_of([person("zed")]), tmp_path, "append")
    assert caught.value.context["rule"] == "E11"
    note = lines_of([{"type": "Note", "data": {"id": "n1", "text": "t"}}])
    interfere(monkeypatch, graph, 'insert Note { text: "meanwhile" }')
    with pytest.raises(ReadSetChanged):
        load_bytes(graph, note, tmp_path, "overwrite")
    assert stray_files(graph) == []


class DuringReading:
    """Watches a load, and does something else while its first stage reads."""

    def __init__(self, action: Callable[[], object], stage: str = "reading") -> None:
        self.action, self.stage = action, stage

    def __call__(self, stage: str, done: int, total: int, unit: Unit) -> None:
        if stage == self.stage:
            self.stage = ""
            self.action()


@pytest.mark.slow
@pytest.mark.parametrize("branch", ["main", "side"])
def test_overwrite_of_a_type_that_changed_while_it_was_read_conflicts(
    graph: Graph, tmp_path: Path, branch: str
) -> None:
    if branch != "main":
        graph.branches.create(branch)
    note = lines_of([{"type": "Note", "data": {"id": "n1", "text": "t"}}])
    other = og.open(graph.uri)
    insert = DuringReading(lambda: other.mutate('query q() { insert Note { text: "meanwhile" } }', branch=branch))
    with pytest.raises(ReadSetChanged, match="changed on branch") as caught:
        load_bytes(graph, note, tmp_path, "overwrite", branch=branch, progress=insert)
    assert caught.value.effect.value == "none"
    assert stray_files(graph) == []
    assert len(rows(graph, "node:Note", branch)) == 2
    load_bytes(graph, note, tmp_path, "overwrite", branch=branch)
    assert set(rows(graph, "node:Note", branch)) == {"n1"}


@pytest.mark.slow
def test_overwrite_is_prepared_again_beside_other_types_and_upkeep(graph: Graph, tmp_path: Path) -> None:
    note = lines_of([{"type": "Note", "data": {"id": "n1", "text": "t"}}])
    other = og.open(graph.uri)

    def write_elsewhere() -> None:
        other.mutate('query q() { insert Person { name: "eve" } }')

    load_bytes(graph, note, tmp_path, "overwrite", progress=DuringReading(write_elsewhere))
    assert (set(rows(graph, "node:Note")), "eve" in rows(graph, "node:Person")) == ({"n1"}, True)
    assert other.commits()[0].kind == "load"
    load_bytes(graph, note, tmp_path, "overwrite", progress=DuringReading(lambda: other.maintenance.ensure_indices()))
    assert [one.kind for one in other.commits()[:3]] == ["load", "ensure_indices", "load"]
    assert set(rows(graph, "node:Note")) == {"n1"}


@pytest.mark.slow
@pytest.mark.parametrize("branch", ["main", "new"])
def test_load_that_lost_to_the_same_job_is_already_applied(graph: Graph, tmp_path: Path, branch: str) -> None:
    raw, other = lines_of([person("cy")]), og.open(graph.uri)
    options: dict[str, Any] = {"job_id": "day-1", "branch": branch, "from_branch": None if branch == "main" else "main"}
    first: list[LoadReport] = []
    twin = DuringReading(lambda: first.append(load_bytes(other, raw, tmp_path, "append", **options)))
    again = load_bytes(graph, raw, tmp_path, "append", progress=twin, **options)
    assert (again.already_applied, again.commit_id) == (True, first[0].commit_id)
    assert stray_files(graph) == []
    (tmp_path / "b").mkdir()
    other_raw = lines_of([person("dee")])
    rival = DuringReading(lambda: load_bytes(other, other_raw, tmp_path / "b", "append", job_id="day-2"))
    with pytest.raises(JobExists, match="loaded other input"):
        load_bytes(graph, lines_of([person("eve")]), tmp_path, "append", progress=rival, job_id="day-2")


@pytest.mark.slow
def test_load_on_a_branch_that_the_same_job_creates_is_applied_once(graph: Graph, tmp_path: Path) -> None:
    raw, other = lines_of([person("cy")]), og.open(graph.uri)
    options: dict[str, Any] = {"job_id": "day-1", "branch": "new", "from_branch": "main"}
    first: list[LoadReport] = []
    twin = DuringReading(
        lambda: first.append(load_bytes(other, raw, tmp_path, "append", **options)), "hashing the input"
    )
    again = load_bytes(graph, raw, tmp_path, "append", progress=twin, **options)
    assert (again.already_applied, again.commit_id) == (True, first[0].commit_id)


def interfere(monkeypatch: pytest.MonkeyPatch, graph: Graph, statement: str) -> None:
    """Let another writer publish right after the next load has judged its input."""
    other, judge, calls = og.open(graph.uri), LoadTransaction._validate, list[str]()

    def judge_and_lose(self: LoadTransaction, view: View) -> None:
        judge(self, view)
        if not calls:
            calls.append(statement)
            other.mutate(f"query q() {{ {statement} }}")

    monkeypatch.setattr(LoadTransaction, "_validate", judge_and_lose)


# -- quarantine ------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_load_with_quarantine_leaves_out_bad_rows_and_dependents(graph: Graph, tmp_path: Path) -> None:
    records = [
        person("cy"),
        person("dee", level=77),
        knows("cy", "dee"),
        {"type": "Person", "data": {"nam": "x"}},
        person("cy"),
        person("fay", email="ann@x"),
        knows("cy", "ann"),
        {"edge": "Wrote", "from": "cy", "to": "n1", "data": {"id": "a"}},
        {"edge": "Wrote", "from": "ann", "to": "n1", "data": {"id": "b"}},
        {"edge": "Wrote", "from": "ann", "to": "n1", "data": {"id": "c"}},
    ]
    for size in (60, 10_000):
        folder = tmp_path / f"out{size}"
        with splits_of(size):
            report = load_bytes(
                graph, lines_of(records), tmp_path, "append", on_error="quarantine", report=folder, branch=f"b{size}",
                from_branch="main",
            )  # fmt: skip
        rejected = [json.loads(line) for line in (folder / "rejected.ndjson").read_text().splitlines()]
        codes = {one["line"]: one["code"] for one in rejected}
        assert codes == {2: "E8", 3: "E9", 4: "N6", 5: "E5", 6: "E5", 9: "E10", 10: "E10"}
        assert all(json.loads(one["record"]) == records[one["line"] - 1] for one in rejected)
        assert report.rejected_by_code == {"E10": 2, "E5": 2, "E8": 1, "E9": 1, "N6": 1}
        written = json.loads((folder / "report.json").read_text())
        assert (written["total_entities"], written["commit"]["graph_commit_id"]) == (3, report.commit_id)
        assert set(rows(graph, "node:Person", f"b{size}")) == {"ann", "bob", "cy"}
        assert set(rows(graph, "edge:Wrote", f"b{size}")) == {"w1", "w2", "a"}
    assert stray_files(graph) == []


def test_load_with_quarantine_refuses_more_than_it_may_reject(graph: Graph, tmp_path: Path) -> None:
    raw = lines_of([person(name, level=77) for name in "abcdef"])
    before = graph.snapshot().head
    with splits_of(50), pytest.raises(DataError) as caught:
        load_bytes(graph, raw, tmp_path, "append", on_error="quarantine", report=tmp_path / "out", max_errors=3)
    assert "more than 3" in caught.value.message
    assert len((tmp_path / "out" / "rejected.ndjson").read_text().splitlines()) == 3
    assert graph.snapshot().head == before
    assert stray_files(graph) == []


def test_load_with_quarantine_fails_on_what_has_no_line(graph: Graph, tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        load_bytes(graph, lines_of([person("cy")]), tmp_path, "overwrite", on_error="quarantine", report=tmp_path / "o")
    assert caught.value.context["rule"] == "E9"


# -- bad input -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"data": "missing.ndjson"}, "missing.ndjson"),
        ({"data": "nothing-*.ndjson"}, "matches no file"),
        ({"data": "picture.png"}, "unsupported format"),
        ({"data": "table.parquet"}, "--node"),
        ({"data": "folder"}, "unsupported format"),
        ({"data": "cut.ndjson.gz"}, "cannot read"),
        ({"nodes": {"Persn": "table.parquet"}}, "did you mean `Person`"),
        ({"nodes": {"Person": "lines.ndjson"}}, "pass it as `data`"),
        ({"nodes": {"Person": "fake.parquet"}}, "not a Parquet file"),
        ({"nodes": {"Person": "empty.csv"}}, "is empty"),
        ({"nodes": {"Person": 7}}, "unsupported input"),
        ({"nodes": {"Person": "other.csv"}}, "has no property `nam`"),
        ({"edges": {"Knows": "other.csv:a->b"}}, "`a` and `b`"),
        ({"edges": {"Knows": "other.csv:->b"}}, "two columns"),
        ({"edges": {"Knows": "other.csv"}}, "`from` and `to`"),
        ({}, "nothing to load"),
        ({"data": "lines.ndjson", "mode": "upsert"}, "unknown mode `upsert`"),
        ({"data": "lines.ndjson", "engine": "hadoop"}, "unknown engine"),
        ({"data": "lines.ndjson", "on_error": "quarantine"}, "`report`"),
        ({"data": "lines.ndjson", "on_error": "quarantine", "report": "lines.ndjson"}, "cannot write reports"),
    ],
)
def test_load_of_bad_input_says_what_is_wrong(
    graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], words: str
) -> None:
    import gzip

    import pyarrow as pa
    import pyarrow.parquet

    monkeypatch.chdir(tmp_path)
    Path("lines.ndjson").write_bytes(lines_of([person("cy")]))
    Path("picture.png").write_bytes(b"x")
    Path("folder").mkdir()
    Path("folder/a.ndjson").write_bytes(b"")
    Path("folder/b.xml").write_bytes(b"")
    Path("cut.ndjson.gz").write_bytes(gzip.compress(lines_of([person("cy")] * 1000))[:-20])
    Path("fake.parquet").write_bytes(b"PAR1")
    Path("empty.csv").write_bytes(b"")
    Path("other.csv").write_text("nam\nx\n")
    pyarrow.parquet.write_table(pa.table({"name": ["x"]}), "table.parquet")
    before = graph.snapshot().head
    with pytest.raises((UsageError, DataError)) as caught:
        load(graph, **{"engine": "local", **options})
    assert words in caught.value.message
    assert graph.snapshot().head == before


def test_load_of_several_files_names_the_file_of_a_violation(graph: Graph, tmp_path: Path) -> None:
    (tmp_path / "a.ndjson").write_bytes(lines_of([person("cy"), person("dee")]))
    (tmp_path / "b.ndjson").write_bytes(lines_of([person("eve"), person("fay", level=44)]))
    with pytest.raises(DataError) as caught:
        load(graph, [tmp_path / "a.ndjson", tmp_path / "b.ndjson"], mode="append", engine="local")
    assert caught.value.message.startswith(f"`{tmp_path}/b.ndjson` line 2: ")
    violations: Any = caught.value.context["violations"]
    assert (violations[0]["file"], violations[0]["line"]) == (str(tmp_path / "b.ndjson"), 2)


@pytest.mark.parametrize("mode", ["append", "merge", "overwrite"])
def test_load_of_nothing_is_no_commit(graph: Graph, tmp_path: Path, mode: Any) -> None:
    before = graph.snapshot()
    report = load_bytes(graph, b"\n", tmp_path, mode)
    assert (report.total_entities, report.commit, report.to_json()["commit"]) == (0, None, None)
    assert graph.snapshot() == before
    assert stray_files(graph) == []


def test_load_that_empties_a_type_is_a_commit(graph: Graph, tmp_path: Path) -> None:
    path = tmp_path / "none.csv"
    path.write_text("name\n", encoding="utf-8")
    graph.ingest(b'{"type": "Person", "data": {"name": "zoe"}}')
    with pytest.raises(DataError, match="Knows"):
        load(graph, nodes={"Person": path}, mode="overwrite", engine="local")
    assert load(graph, nodes={"Person": path}, mode="merge", engine="local").commit is None


@pytest.mark.parametrize("point", [Point.COMMIT_PREPARED, Point.PUBLISH_AFTER, Point.LINK_BEFORE])
def test_load_interrupted_around_its_publish_takes_no_data_away(graph: Graph, tmp_path: Path, point: Point) -> None:
    def interrupt(_: str) -> None:
        raise KeyboardInterrupt

    raw = lines_of([person("ann", level=6), person("cy")])
    with failpoints.armed({point: interrupt}), pytest.raises(KeyboardInterrupt):
        load_bytes(graph, raw, tmp_path, "merge")
    is_published = point is not Point.COMMIT_PREPARED
    found = rows(og.open(graph.uri), TypeKey("node:Person"))
    assert (found["ann"]["level"] == 6, "cy" in found) == (is_published, is_published)
    assert [path for path in _files(graph) if "_staging" in path or "__recovery/0" in path] == []


# -- a driver that dies ----------------------------------------------------------------------------------------

_DYING = """
import sys
import omnigraph as og
from omnigraph import failpoints
from omnigraph.failpoints import Point
from omnigraph.pipeline import load
from tests.support.pipeline_fixtures import staging_in_files
with staging_in_files(), failpoints.armed({Point(sys.argv[3]): failpoints.kill}):
    load(og.open(sys.argv[1]), sys.argv[2], mode="merge", engine="local")
"""


@pytest.mark.slow
@pytest.mark.parametrize("point", ["commit.prepared", "publish.before", "publish.after"])
def test_load_killed_driver_leaves_what_a_sweep_removes(graph: Graph, tmp_path: Path, point: str) -> None:
    file = tmp_path / "in.ndjson"
    file.write_bytes(lines_of([person("ann", level=8), person("cy")]))
    before = contents(graph)
    command = [sys.executable, "-c", _DYING, graph.uri, str(file), point]
    died = subprocess.run(command, env=os.environ | {"OMNIGRAPH_DURABILITY": "process"}, capture_output=True)
    assert died.returncode == -signal.SIGKILL, died.stderr
    is_published = point == "publish.after"
    assert (contents(graph) == before) is not is_published
    report = sweep(session_of(graph).kernel)
    assert (report.rolled_forward, report.rolled_back) == ((1, 0) if is_published else (0, 1))
    if not is_published:
        assert report.files_removed >= 2
        assert contents(graph) == before
    left = [path for path in Path(graph.uri).rglob("*") if path.is_file() and "_staging" in str(path)]
    assert (left == []) is not is_published
    load(graph, file, mode="merge", engine="local")
    assert rows(graph, "node:Person")["ann"]["level"] == 8
