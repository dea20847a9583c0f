"""Hard drops and cleanup: no file of the graph holds the bytes any more, and everything else reads as before."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph import clock
from omnigraph.errors import OmniGraphError
from omnigraph.graph import session_of
from omnigraph.lang.catalog import TypeKey
from omnigraph.limits import STAGED_SECONDS_MAX
from omnigraph.store.files import shredding
from tests.support.graph_template import copy_built

SCHEMA = """
node Person { name: String @key
  age: I32? @index
  about: String? @index
  secret: String? @index
  notes: [String]?
  scan: Blob?
  photo: Blob? }
node Diary { k: String @key
  text: String? @index }
edge Wrote: Person -> Diary { since: I32? }
"""
KEPT = (
    SCHEMA.replace("  secret: String? @index\n", "").replace("  notes: [String]?\n", "").replace("  scan: Blob?\n", "")
)
SECRETS = (b"TOPSECRET", b"HIDDENNOTE", b"SCANBYTES", b"SCANLARGE", b"SCANMIDDLE")
PEOPLE = "query q() { match { $p: Person } return { $p.name, $p.age, $p.about } order { $p.name asc } }"
FOUND = 'query q() { match { $p: Person search($p.about, "sailor") } return { $p.name } order { $p.name asc } }'


def person(number: int, secret: str = "TOPSECRET") -> dict[str, Any]:
    # Lance keeps blobs in the data file, in a file that several share, or in one of their own, by their size.
    sizes = {0: b"SCANLARGE" * 480_000, 1: b"SCANMIDDLE" * 10_000, 2: b"SCANMIDDLE" * 10_000}
    photos = {0: b"PHOTO" * 20_000, 1: b"PHOTOMIDDLE" * 10_000, 2: b"PHOTO" * 860_000}
    return {
        "type": "Person",
        "data": {
            "name": f"p{number:02d}",
            "age": number,
            "about": f"sailor {number}",
            "secret": secret,
            "notes": ["HIDDENNOTE", f"n{number}"],
            "scan": sizes.get(number, b"SCANBYTES%d" % number),
            "photo": photos.get(number, b"PHOTOBYTES%d" % number),
        },
    }


def build(path: Path) -> og.Graph:
    """Return a graph with tags, a branch that was merged, deletes and updates."""
    graph = og.init(path, schema=SCHEMA)
    graph.ingest([person(number) for number in range(5)])
    graph.maintenance.ensure_indices()
    graph.tags.create("first")
    graph.branches.create("review")
    graph.ingest([person(7, "TOPSECRET-on-a-branch")], branch="review")
    graph.ingest([person(8), {"type": "Diary", "data": {"k": "d", "text": "DEARDIARY"}}])
    graph.branches.merge("review", delete_branch=True)
    graph.mutate('query q() { delete Person where name = "p03" }')
    graph.mutate('query q() { update Person set { age: 40 } where name = "p04" }')
    graph.ingest([{"edge": "Wrote", "from": "p00", "to": "d", "data": {}}])
    graph.tags.create("last")
    # What no version shows any more is there too: a write that was never published.
    session_of(graph).kernel.store.objects.write("nodes/.keep", b"")
    return graph


class History:
    """Such a graph, with hard drops at its end."""

    def __init__(self, path: Path) -> None:
        self.path = path / "g.omni"
        self.graph = copy_built(build, self.path)
        # Commits of a branch that is deleted may go with the next cleanup.
        self.commits = [one.commit_id for one in self.graph.commits() if one.branch == "main"]
        self.before = {one: self.read(one) for one in (*self.commits, "first", "last")}

    def read(self, at: str) -> object:
        rows = self.graph.query(PEOPLE, at=at).to_json_rows()
        found = self.graph.query(FOUND, at=at).to_json_rows()
        photos = [self.graph.blob("Person", row["p.name"], "photo", at=at) for row in rows]
        return rows, found, [one.read(max(0, one.length - 4096)) for one in photos], [one.etag for one in photos]

    def drop(self, schema: str = KEPT) -> None:
        self.graph.schema.apply(schema, allow_data_loss=True)

    def files_with(self, *secrets: bytes) -> list[str]:
        files = [one for one in self.path.rglob("*") if one.is_file()]
        return sorted(
            str(one.relative_to(self.path)) for one in files if any(word in one.read_bytes() for word in secrets)
        )


@pytest.fixture
def history(tmp_path: Path) -> History:
    return History(tmp_path)


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Let writers from before the drop be too late to publish."""
    real = clock.storage_us

    def move() -> None:
        # What counts is storage's time, not that of this machine.
        monkeypatch.setattr(clock, "storage_us", lambda us: real(us) + (STAGED_SECONDS_MAX + 60) * 1_000_000)

    return move


@pytest.mark.slow
def test_cleanup_leaves_no_byte_of_dropped_properties(history: History, later: Callable[[], None]) -> None:
    graph = history.graph
    assert history.files_with(*SECRETS)
    history.drop()
    report = graph.maintenance.cleanup(keep=100, confirm=True)
    assert history.files_with(*SECRETS) == []
    assert {one.name for one in report.purged} == {"node:Person.secret", "node:Person.notes", "node:Person.scan"}
    assert [one.error for one in report.purged] == [None] * 3
    assert sum(one.files for one in report.purged) > 0
    assert not any(one.is_done for one in report.purged), "a writer from before the drop may still be at work"
    # Every commit and tag that was kept is still there, with all that was not dropped.
    with og.open(graph.uri) as fresh:
        history.graph = fresh
        assert {at: history.read(at) for at in history.before} == history.before
        later()
        assert all(one.is_done for one in fresh.maintenance.cleanup(keep=100, confirm=True).purged)
        assert fresh.maintenance.cleanup(keep=100, confirm=True).purged == ()
        fresh.maintenance.optimize()
        assert fresh.maintenance.verify(data=True).is_sound
        assert history.read("last") == history.before["last"]
    assert history.read("first") == history.before["first"]


@pytest.mark.slow
def test_cleanup_leaves_no_byte_of_a_dropped_type(history: History, later: Callable[[], None]) -> None:
    assert history.files_with(b"DEARDIARY")
    without = SCHEMA[: SCHEMA.index("node Diary")]
    history.drop(without)
    later()
    report = history.graph.maintenance.cleanup(keep=100, confirm=True)
    assert {(one.name, one.is_done) for one in report.purged} == {("edge:Wrote", True), ("node:Diary", True)}
    assert history.files_with(b"DEARDIARY") == []
    assert {at: history.read(at) for at in history.before} == history.before


@pytest.mark.slow
def test_work_on_the_past_goes_on_after_a_purge(history: History) -> None:
    graph = history.graph
    history.drop()
    graph.maintenance.cleanup(keep=100, confirm=True)
    insert = next(one for one in graph.commits()[::-1] if one.kind == "ingest")
    with og.open(graph.uri) as fresh:
        receipt = fresh.revert(insert.commit_id, dry_run=True)
        assert receipt is not None
        assert fresh.diff("first", "main").changes.num_rows > 0
        assert b"".join(fresh.export(at="first", names="then")).count(b"\n") == 5
        assert fresh.changes(start="beginning").blocks
        fresh.tags.create("again", at=str(graph.tags.list()[0].commit_id))
        fresh.ingest([{"type": "Person", "data": {"name": "p00", "age": 1}}])
        assert fresh.maintenance.cleanup(keep=1, older_than=timedelta(0), confirm=True).purged


@pytest.mark.slow
def test_dry_run_says_what_would_be_purged_and_changes_nothing(history: History) -> None:
    history.drop()
    before = history.files_with(*SECRETS)
    report = history.graph.maintenance.cleanup(keep=100, dry_run=True)
    assert len(report.purged) == 3
    assert history.files_with(*SECRETS) == before


@pytest.mark.slow
def test_soft_drop_purges_nothing(history: History) -> None:
    history.graph.schema.apply(KEPT)
    assert history.graph.maintenance.cleanup(keep=100, confirm=True).purged == ()
    assert history.files_with(*SECRETS)


@pytest.mark.slow
def test_purge_that_forgets_indexes_is_caught(history: History, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("omnigraph.engine.maintain.purge._indexes", lambda *_: iter(()))
    history.drop()
    history.graph.maintenance.cleanup(keep=100, confirm=True)
    assert history.files_with(*SECRETS)


@pytest.mark.slow
def test_purge_of_a_file_that_is_no_data_file_says_so(history: History) -> None:
    history.drop()
    pin = history.graph.snapshot().state.pins[TypeKey("node:Person")]
    (history.path / pin.path / "data" / "broken.lance").write_bytes(b"TOPSECRET")
    report = history.graph.maintenance.cleanup(keep=100, confirm=True)
    assert all(one.error and "cannot be purged" in one.error for one in report.purged)


@pytest.mark.parametrize("size", [3, 4, 130, 131, 132, 16_388])
def test_filler_has_the_size_of_what_it_replaces(size: int) -> None:
    assert len(shredding._filler(size)) == size


def test_shredding_refuses_what_it_does_not_know() -> None:
    with pytest.raises(OmniGraphError, match="does not end"):
        shredding.shred_columns(b"nothing", [1], None)


@pytest.mark.slow
def test_vectors_of_a_dropped_text_leave_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMNIGRAPH_EMBEDDINGS_MOCK", "1")
    schema = 'node N { k: String @key\n  text: String?\n  v: Vector(8)? @embed("text") }'
    with og.init(tmp_path / "g.omni", schema=schema) as graph:
        graph.ingest([{"type": "N", "data": {"k": "a", "text": "words"}}])
        graph.embed()
        assert session_of(graph).kernel.store.objects.list("_embeddings")
        graph.schema.apply("node N { k: String @key }", allow_data_loss=True)
        graph.maintenance.cleanup(keep=9, confirm=True)
        assert not session_of(graph).kernel.store.objects.list("_embeddings")


NOTES = "node Note { k: String @key\n  a: I32?\n  %s\n  c: String? }"


@pytest.mark.slow
def test_purge_spares_the_columns_that_had_the_number_before_an_overwrite(tmp_path: Path) -> None:
    with og.init(tmp_path / "g.omni", NOTES % "b: String?") as graph:
        graph.ingest([{"type": "Note", "data": {"k": "n", "a": 1, "b": "bee", "c": "sea"}}])
        then = graph.commits()[0].commit_id
        # Without `a`, an overwrite numbers `b` and `c` again; `c` gets the number that `b` had.
        graph.schema.apply(NOTES.replace("  a: I32?\n", "") % "b: String?")
        graph.load([{"type": "Note", "data": {"k": "n", "b": "bee", "c": "CSECRET"}}], mode="overwrite")
        graph.load([{"type": "Note", "data": {"k": "m", "c": "CSECRET"}}])
        graph.schema.apply("node Note { k: String @key\n  b: String? }", allow_data_loss=True)
        assert graph.maintenance.cleanup(keep=100, confirm=True).purged[0].error is None
        assert not any(b"CSECRET" in one.read_bytes() or b"sea" in one.read_bytes() for one in data_files(graph))
        with og.open(graph.uri) as fresh:
            note = fresh.get("Note", "n")
            assert note is not None
            assert note["b"] == "bee"
            rows = fresh.query("match { $n: Note } return { $n.k, $n.b }", at=then).to_json_rows()
            assert rows == [{"n.k": "n", "n.b": "bee"}]
            assert fresh.maintenance.verify(data=True).is_sound


@pytest.mark.slow
def test_purge_on_main_spares_what_a_branch_has_added(tmp_path: Path) -> None:
    with og.init(tmp_path / "g.omni", "node Note { k: String @key }") as graph:
        graph.ingest([{"type": "Note", "data": {"k": "n"}}])
        graph.branches.create("topic")
        for branch, name in (("main", "b"), ("topic", "c")):
            # Each fork numbers its columns on its own, so both properties get the same number.
            graph.schema.apply(f"node Note {{ k: String @key\n  {name}: String? }}", branch=branch)
            graph.ingest([{"type": "Note", "data": {"k": f"{branch}-note", name: name * 20}}], branch=branch)
        graph.schema.apply("node Note { k: String @key }", allow_data_loss=True)
        graph.maintenance.cleanup(keep=100, confirm=True)
        assert not any(b"b" * 20 in one.read_bytes() for one in data_files(graph))
        with og.open(graph.uri) as fresh:
            note = fresh.get("Note", "topic-note", branch="topic")
            assert note is not None
            assert note["c"] == "c" * 20
            assert fresh.maintenance.verify(data=True).is_sound


@pytest.mark.slow
@pytest.mark.parametrize("name", ["staged.lance", "staged/00000001.blob"])
def test_purge_leaves_the_files_that_a_writer_is_staging(history: History, name: str) -> None:
    pin = history.graph.snapshot().state.pins[TypeKey("node:Person")]
    folder = history.path / pin.path / "data"
    file = next(one for one in folder.rglob("*") if one.suffix == Path(name).suffix)
    staged = folder / name
    staged.parent.mkdir(exist_ok=True)
    staged.write_bytes(file.read_bytes())
    history.drop()
    report = history.graph.maintenance.cleanup(keep=100, confirm=True)
    assert staged.read_bytes()[-4096:] != bytes(4096)
    assert not any(one.is_done for one in report.purged)


def data_files(graph: og.Graph) -> list[Path]:
    return [one for one in Path(graph.uri).glob("nodes/**/data/**/*") if one.is_file()]
