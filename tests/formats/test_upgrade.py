"""Upgrades: a graph of the frozen format becomes one of a later format, with all of its history and branches."""

from __future__ import annotations

from pathlib import Path

import orjson
import pyarrow as pa
import pytest

import omnigraph as og
from omnigraph import failpoints
from omnigraph.cli import main
from omnigraph.errors import GraphError, OmniGraphError, StorageError
from omnigraph.failpoints import Point
from omnigraph.graph import session_of
from omnigraph.manifest import catalog_format, recovery
from omnigraph.manifest.catalog_format import FormatUpgrade
from omnigraph.manifest.recovery import AuditRow
from omnigraph.store.store import Store
from tests.formats.frozen_formats import make, thaw

pytestmark = pytest.mark.slow

OLD = 7
NEXT = 8
PEOPLE = "query q() { match { $p: Person } return { $p.name as name, $p.age as age } order { name asc } }"


def mark(table: pa.Table) -> pa.Table:
    """The step of the tests: commits of the next format say which format they were made in."""
    said = []
    for kind, text in zip(table["object_type"].to_pylist(), table["metadata"].to_pylist(), strict=True):
        if kind == "graph_commit":
            members = orjson.loads(text or "")
            members["properties"]["made_in"] = str(OLD)
            text = orjson.dumps(members).decode()
        said.append(text)
    place = table.schema.get_field_index("metadata")
    return table.set_column(place, table.schema.field(place), pa.array(said, pa.string()))


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> None:
    """Be the release after this one."""
    monkeypatch.setattr(catalog_format, "FORMAT_STAMP", NEXT)
    monkeypatch.setattr(catalog_format, "UPGRADES", (FormatUpgrade(OLD, NEXT, mark),))


@pytest.fixture
def old(tmp_path: Path) -> Path:
    return thaw(OLD, tmp_path)


def made_in(graph: og.Graph, branch: str = "main") -> list[str | None]:
    return [one.properties.get("made_in") for one in graph.commits(branch)]


def test_frozen_graph_of_today_still_reads(old: Path) -> None:
    assert catalog_format.FORMAT_STAMP == OLD, (
        "write the step from the frozen format, and freeze a graph of the new one"
    )
    graph = og.open(old)
    assert graph.query(PEOPLE).rows() == [{"name": "ada", "age": 36}, {"name": "bob", "age": None}]
    assert graph.query(PEOPLE, at="first").rows()[0]["age"] is None
    assert graph.maintenance.verify().is_sound


def test_open_old_format_is_refused_with_the_command_to_run(old: Path, later: None) -> None:
    for read_only in (False, True):
        with pytest.raises(GraphError, match="omnigraph upgrade") as refused:
            og.open(old, read_only=read_only)
        assert (refused.value.code, refused.value.context["found"]) == ("graph.format", OLD)


def test_upgrade_without_steps_is_refused(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog_format, "FORMAT_STAMP", NEXT)
    with pytest.raises(GraphError, match="Export it"):
        og.upgrade(old)


def test_upgrade_keeps_data_history_and_tags(old: Path, later: None) -> None:
    report = og.upgrade(old, actor="ann")
    assert (report.before, report.after, report.branches) == (OLD, NEXT, ("main",))
    graph = og.open(old)
    assert [one.kind for one in graph.commits()] == ["mutation", "ingest", "ingest", "init"]
    assert made_in(graph) == [str(OLD)] * 4
    # The past was not rewritten; it is read through the step.
    for at, ages in (("first", [None, None]), (graph.commits()[0].commit_id, [36, None])):
        assert [row["age"] for row in graph.query(PEOPLE, at=at).rows()] == ages
    graph.mutate('query q() { update Person set { age: 1 } where name = "bob" }')
    assert made_in(graph) == [None, *[str(OLD)] * 4]
    assert graph.maintenance.verify().is_sound
    assert [(row.outcome, row.actor) for row in recovery.read_audit(session_of(graph).kernel.store)] == [
        ("Upgraded", "ann")
    ]


def test_upgrade_again_does_nothing(old: Path, later: None) -> None:
    og.upgrade(old)
    version = og.open(old).snapshot().version
    assert og.upgrade(old).branches == ()
    assert og.open(old).snapshot().version == version


def test_upgrade_older_release_is_told_to_upgrade_itself(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as later:
        later.setattr(catalog_format, "FORMAT_STAMP", NEXT)
        later.setattr(catalog_format, "UPGRADES", (FormatUpgrade(OLD, NEXT, mark),))
        og.upgrade(old)
    with pytest.raises(GraphError, match="Upgrade omnigraph first"):
        og.open(old)


def test_upgrade_step_that_is_forgotten_is_caught(old: Path, later: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog_format, "UPGRADES", (FormatUpgrade(OLD, NEXT, lambda table: table),))
    og.upgrade(old)
    assert made_in(og.open(old)) != [str(OLD)] * 4


def test_upgrade_brings_every_branch_along(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "graph.omni"
    graph = make(str(root))
    for name in ("review", "idle"):
        graph.branches.create(name)
    graph.ingest([{"type": "Person", "data": {"name": "cyd"}}], branch="review")
    graph.close()
    monkeypatch.setattr(catalog_format, "FORMAT_STAMP", NEXT)
    monkeypatch.setattr(catalog_format, "UPGRADES", (FormatUpgrade(OLD, NEXT, mark),))
    assert og.upgrade(root).branches == ("main", "idle", "review")
    graph = og.open(root)
    assert [len(graph.query(PEOPLE, branch=name).rows()) for name in ("main", "idle", "review")] == [2, 2, 3]
    # A branch that starts from a version of before is one of the new format as soon as it is written to.
    graph.branches.create("past", at="first")
    graph.ingest([{"type": "Person", "data": {"name": "dan"}}], branch="past")
    assert made_in(graph, "past") == [None, str(OLD), str(OLD)]
    assert graph.branches.merge("review").outcome == "fast_forward"
    assert graph.maintenance.verify().is_sound


def test_upgrade_branch_deleted_meanwhile_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "graph.omni"
    graph = make(str(root))
    for name in ("review", "idle"):
        graph.branches.create(name)
    graph.close()
    monkeypatch.setattr(catalog_format, "FORMAT_STAMP", NEXT)
    monkeypatch.setattr(catalog_format, "UPGRADES", (FormatUpgrade(OLD, NEXT, mark),))
    record = recovery.record_outcome

    def record_then_delete(store: Store, row: AuditRow) -> None:
        record(store, row)
        other = og.open(root)
        if "idle" in other.branches.list():
            other.branches.delete("idle")

    monkeypatch.setattr(recovery, "record_outcome", record_then_delete)
    assert og.upgrade(root).branches == ("main", "review")


def test_upgrade_cut_off_anywhere_can_be_run_again(tmp_path: Path, later: None) -> None:
    for number in range(1, 60):
        root, passed = thaw(OLD, tmp_path / str(number)), 0

        def cut(_: str, number: int = number) -> None:
            nonlocal passed
            passed += 1
            if passed == number:
                raise StorageError("cut off")

        try:
            with failpoints.armed(dict.fromkeys((Point.DURABLE_BEFORE, Point.DURABLE_AFTER), cut)):
                og.upgrade(root)
        except OmniGraphError:
            pass
        og.upgrade(root)
        assert made_in(og.open(root)) == [str(OLD)] * 4
        if passed < number:
            assert number > 4
            return
    raise AssertionError("an upgrade has more moments than were tried")


def test_upgrade_command_says_what_it_did(old: Path, later: None, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["snapshot", str(old)]) == 1
    assert f"omnigraph upgrade {old}" in capsys.readouterr().err
    assert main(["upgrade", str(old)]) == 0
    assert capsys.readouterr().out == f"format {OLD} → {NEXT}: main\n"
    assert main(["upgrade", str(old)]) == 0
    assert "nothing to do" in capsys.readouterr().out


@pytest.mark.parametrize("publishes", [1, 2, 3])
@pytest.mark.parametrize("point", [Point.PUBLISH_BEFORE, Point.PUBLISH_AFTER])
def test_upgrade_killed_anywhere_loses_no_audit_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, publishes: int, point: Point
) -> None:
    root = tmp_path / "graph.omni"
    graph = make(str(root))
    for name in ("review", "idle"):
        graph.branches.create(name)
    monkeypatch.setattr(catalog_format, "FORMAT_STAMP", NEXT)
    monkeypatch.setattr(catalog_format, "UPGRADES", (FormatUpgrade(OLD, NEXT, mark),))
    passed: list[str] = []

    class Killed(BaseException):
        pass

    def kill(detail: str) -> None:
        passed.append(detail)
        if len(passed) == publishes:
            raise Killed

    with failpoints.armed({point: kill}), pytest.raises(Killed):
        og.upgrade(root, actor="ann")
    # Others may go on writing in the new format before it is run again.
    if point is Point.PUBLISH_AFTER:
        og.open(root).mutate('query q() { insert Person { name: "eve" } }')
    for _ in range(2):
        og.upgrade(root, actor="ann")
    store = session_of(og.open(root)).kernel.store
    audited = recovery.read_audit(store)
    assert [row.outcome for row in audited] == ["Upgraded"] * 3
    assert len({row.operation_id for row in audited}) == 3
    assert not store.objects.exists("__upgrade.json")
