"""The rules of plan, apply, approve and refresh, each on a real folder and real graphs."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest

import omnigraph as og
from omnigraph.cli import main
from omnigraph.cluster import ClusterError
from omnigraph.cluster.apply import Apply
from omnigraph.cluster.ledger import payload_path
from omnigraph.cluster.recovery import write_sidecar
from omnigraph.store.objects.control_objects import Objects
from tests.support.cluster_folder import QUERIES, SCHEMA, changes, cluster, codes, deploy, write_folder

POLICIES = "policies:\n  team: {file: team.yaml, applies_to: [knowledge]}\n"
NEW_SCHEMA = "node Person { name: String @key  team: String? }\n"
IMPOSSIBLE = "node Person { name: I64 @key }\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_folder(tmp_path / "team")


def state_json(folder: Path) -> dict[str, object]:
    stored = cluster(folder).ledger.read()
    assert stored is not None
    return stored.state.to_json()


# -- validate --------------------------------------------------------------------------------------------------


def test_missing_file_is_a_finding_with_its_folder(tmp_path: Path) -> None:
    with pytest.raises(ClusterError) as caught:
        cluster(tmp_path)
    assert [item.code for item in caught.value.findings] == ["cluster_yaml_missing"]


@pytest.mark.parametrize("name", ["my_graph", "policies", "graphs"])
def test_graph_id_that_no_server_can_serve_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ClusterError) as caught:
        cluster(write_folder(tmp_path / "team", graphs=(name,)))
    assert [item.code for item in caught.value.findings] == ["invalid_name"]


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("version: 1\nversion: 1\ngraphs: {}\n", "duplicate_yaml_key"),
        ("version: 1\ngraphs: {}\nui: {}\n", "future_phase_field"),
        ("version: 1\ngraphs: {}\nproviders: {embedding: {p: {api_key: sk-123}}}\n", "inline_secret"),
        ("version: 1\ngraphs: {}\nproviders: {embedding: {p: {kind: openai}}}\n", "provider_key_missing"),
        ("version: 1\ngraphs: {}\npolicies: {p: {file: a, applies_to: [x]}}\n", "unknown_graph"),
        (
            "version: 1\ngraphs: {g: {schema: a}}\npolicies: {p: {file: a, applies_to: [g, cluster]}}\n",
            "policy_mixed_binding_kinds",
        ),
        (
            """version: 1
graphs: {g: {schema: a}}
policies:
  p: {file: a, applies_to: [g]}
  q: {file: a, applies_to: [g]}
""",
            "duplicate_policy_binding",
        ),
        ("version: 1\ngraphs: {g: {schema: a, embedding_provider: p}}\n", "unknown_provider"),
        (
            "version: 1\ngraphs: {g: {schema: a, external_blobs: {allow: [{base: blobs, scope: server_safe}]}}}\n",
            "invalid_blob_base",
        ),
        (
            """version: 1
graphs:
  g: {schema: a, external_blobs: {allow: [{base: 's3://b/x/../y', scope: server_safe}]}}
""",
            "invalid_blob_base",
        ),
    ],
)
def test_fault_of_the_file_has_a_code_and_a_place(tmp_path: Path, text: str, code: str) -> None:
    (tmp_path / "cluster.yaml").write_text(text)
    with pytest.raises(ClusterError) as caught:
        cluster(tmp_path)
    assert [item.code for item in caught.value.findings] == [code]
    assert caught.value.findings[0].line is not None


def test_unknown_graph_of_a_policy_suggests_the_nearest(folder: Path) -> None:
    with pytest.raises(ClusterError, match="there is no graph `knowlege`; did you mean `knowledge`"):
        cluster(write_folder(folder, extra=POLICIES.replace("[knowledge]", "[knowlege]")))


def test_foreign_graph_at_a_new_address_is_told_with_a_remedy(folder: Path) -> None:
    deploy(folder)
    write_folder(folder, graphs=("knowledge", "other"))
    og.init(folder.parent / "theirs.omni", "node City { name: String @key }").close()
    (folder.parent / "theirs.omni").rename(folder / "graphs" / "other.omni")
    [finding] = [item for item in deploy(folder).findings if item.code == "apply_failed"]
    assert "move it away, or declare the schema that it has" in finding.message


def test_file_in_place_of_a_folder_of_queries_is_told(folder: Path) -> None:
    config = folder / "cluster.yaml"
    config.write_text(config.read_text().replace("queries: queries", "queries: queries/people.gq"))
    [finding] = cluster(folder).validate().findings
    assert (finding.code, "write `[queries/people.gq]`" in finding.message) == ("query_not_found", True)


def test_duplicate_query_name_is_a_finding(folder: Path) -> None:
    (folder / "queries" / "more.gq").write_text(QUERIES)
    assert "duplicate_query_name" in codes(cluster(folder).validate())


def test_queries_are_checked_against_the_declared_schema(folder: Path) -> None:
    deploy(folder)
    (folder / "queries" / "people.gq").write_text("query t() { match { $p: Person } return { $p.team as team } }\n")
    assert "query_invalid" in codes(cluster(folder).validate())
    (folder / "person.pg").write_text(NEW_SCHEMA)
    assert cluster(folder).validate().ok


# -- plan and apply --------------------------------------------------------------------------------------------


def test_unsupported_schema_change_blocks_all_of_its_graph(folder: Path) -> None:
    deploy(folder)
    (folder / "person.pg").write_text(IMPOSSIBLE)
    (folder / "queries" / "people.gq").write_text(
        "query all() { match { $p: Person  $p.name > 1 } return { $p.name as name } }\n"
    )
    before = state_json(folder)
    report = deploy(folder)
    assert report.members["converged"] is False
    assert {item["disposition"] for item in changes(report).values()} == {"blocked"}
    assert changes(report)["schema.knowledge"]["reason"] == "schema_change_unsupported"
    assert changes(report)["query.knowledge.all"]["reason"] == "dependency_not_applied"
    assert "apply_dependency_blocked" in codes(report)
    assert state_json(folder)["applied_revision"] == before["applied_revision"]


def test_failed_creation_keeps_approved_deletions_and_blocks_policies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_folder(tmp_path / "team", graphs=("keep", "old"))
    deploy(folder)
    write_folder(folder, graphs=("keep", "new"), extra="policies:\n  team: {file: team.yaml, applies_to: [new]}\n")
    assert cluster(folder).approve("graph.old").ok

    def fail(*_: object, **__: object) -> None:
        raise og.StorageError("no space left")

    monkeypatch.setattr("omnigraph.cluster.apply.init", fail)
    report = deploy(folder)
    assert not report.ok
    assert "apply_failed" in codes(report)
    assert changes(report)["graph.old"]["disposition"] == "blocked"
    assert changes(report)["policy.team"]["disposition"] == "blocked"
    resources = state_json(folder)["applied_revision"]["resources"]  # type: ignore[index]
    assert "graph.old" in resources
    assert "policy.team" not in resources
    monkeypatch.undo()
    again = deploy(folder)
    assert again.members["converged"] is True, again.findings
    assert not (folder / "graphs" / "old.omni").exists()


def test_config_digest_is_recorded_only_when_converged(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "team", graphs=("a", "b"))
    deploy(folder)
    before = cluster(folder).ledger.read()
    write_folder(folder, graphs=("a",))
    assert deploy(folder).members["converged"] is False
    after = cluster(folder).ledger.read()
    assert before is not None
    assert after is not None
    assert after.state.config_digest == before.state.config_digest
    assert deploy(folder).members["state_written"] is False


def test_file_that_changes_during_an_apply_stops_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deploy(folder)
    (folder / "person.pg").write_text(NEW_SCHEMA)
    check = Apply._check_sources

    def edit(self: Apply) -> None:
        (folder / "cluster.yaml").write_text((folder / "cluster.yaml").read_text() + "# edited\n")
        check(self)

    monkeypatch.setattr(Apply, "_check_sources", edit)
    with pytest.raises(ClusterError) as caught:
        cluster(folder).apply()
    assert {item.code for item in caught.value.findings} == {"resource_content_changed"}
    with og.open(folder / "graphs" / "knowledge.omni") as graph:
        assert graph.schema.source == SCHEMA


def test_policy_binding_change_is_a_metadata_change(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "team", graphs=("knowledge", "other"), extra=POLICIES)
    deploy(folder)
    write_folder(folder, graphs=("knowledge", "other"), extra=POLICIES.replace("[knowledge]", "[other]"))
    change = changes(cluster(folder).plan())["policy.team"]
    assert (change["binding_change"], change["metadata_change"]) == (True, "policy_bindings")
    assert change["before_digest"] == change["after_digest"]


def test_provider_change_reaches_the_graphs_that_use_it(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "team")
    config = (folder / "cluster.yaml").read_text() + "    embedding_provider: texts\n"
    provider = "providers: {embedding: {texts: {kind: mock, model: MODEL}}}\n"
    (folder / "cluster.yaml").write_text(config + provider.replace("MODEL", "a"))
    assert deploy(folder).members["converged"] is True
    (folder / "cluster.yaml").write_text(config + provider.replace("MODEL", "b"))
    report = cluster(folder).plan()
    assert changes(report)["provider.embedding.texts"]["metadata_change"] == "embedding_profile"
    assert changes(report)["graph.knowledge"]["disposition"] == "derived"
    assert "graph.knowledge" in report.members["blast_radius"]["provider.embedding.texts"]


def test_unavailable_graph_gives_a_plan_without_a_migration(folder: Path) -> None:
    deploy(folder)
    (folder / "graphs" / "knowledge.omni").rename(folder / "moved")
    (folder / "person.pg").write_text(NEW_SCHEMA)
    report = cluster(folder).plan()
    assert report.ok
    assert "schema_preview_unavailable" in codes(report)


# -- approvals -------------------------------------------------------------------------------------------------


def test_approval_is_consumed_with_the_state_and_kept(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "team", graphs=("a", "b"))
    deploy(folder)
    write_folder(folder, graphs=("a",))
    approval = cluster(folder).approve("graph.b", "old").members["approval"]
    assert changes(cluster(folder).plan())["graph.b"]["disposition"] == "applied"
    assert deploy(folder).members["converged"] is True
    record = state_json(folder)["approval_records"][approval["approval_id"]]  # type: ignore[index]
    assert record["consumed_at"] is not None
    stored = orjson.loads((folder / f"__cluster/approvals/{approval['approval_id']}.json").read_bytes())
    assert stored == record


def test_approval_in_the_ledger_is_never_used_again(tmp_path: Path) -> None:
    # As after a crash between the state and the rewriting of the artifact.
    folder = write_folder(tmp_path / "team", graphs=("a", "b"))
    deploy(folder)
    write_folder(folder, graphs=("a",))
    artifact = cluster(folder).approve("graph.b").members["approval"]
    deploy(folder)
    write_folder(folder, graphs=("a", "b"))
    deploy(folder)
    (folder / f"__cluster/approvals/{artifact['approval_id']}.json").write_bytes(orjson.dumps(artifact))
    write_folder(folder, graphs=("a",))
    assert changes(deploy(folder))["graph.b"]["disposition"] == "blocked"


def test_approving_what_needs_none_is_refused(folder: Path) -> None:
    deploy(folder)
    assert codes(cluster(folder).approve("graph.knowledge")) == ["approval_not_required"]


# -- refresh, import and status --------------------------------------------------------------------------------


def test_refresh_without_news_writes_no_revision(folder: Path) -> None:
    deploy(folder)
    cluster(folder).refresh()
    report = cluster(folder).refresh()
    assert report.members["state_written"] is False


def test_missing_graph_is_drift_and_the_next_apply_creates_it(folder: Path) -> None:
    deploy(folder)
    (folder / "graphs" / "knowledge.omni").rename(folder / "moved")
    report = cluster(folder).refresh()
    assert "graph_missing" in codes(report)
    assert state_json(folder)["resource_statuses"]["graph.knowledge"]["status"] == "drifted"  # type: ignore[index]
    assert deploy(folder).members["converged"] is True


def test_drift_is_reported_until_it_is_repaired(folder: Path) -> None:
    write_folder(folder, graphs=("knowledge", "other"), extra=POLICIES)
    deploy(folder)
    with og.open(folder / "graphs" / "knowledge.omni") as graph:
        graph.schema.apply("node Person { name: String @key  extra: I64? }")
    (folder / "graphs" / "other.omni").rename(folder / "moved")
    next((folder / "__cluster" / "resources" / "policy").rglob("*.yaml")).unlink()
    drift = ["schema_drifted", "graph_missing", "catalog_payload_missing"]
    assert codes(cluster(folder).refresh()) == drift
    again = cluster(folder).refresh()
    assert (codes(again), again.members["state_written"]) == (drift, False)
    (folder / "moved").rename(folder / "graphs" / "other.omni")
    assert codes(cluster(folder).refresh()) == ["schema_drifted", "catalog_payload_missing"]
    assert state_json(folder)["resource_statuses"]["graph.other"]["status"] == "applied"  # type: ignore[index]
    assert deploy(folder).members["converged"] is True
    assert codes(cluster(folder).refresh()) == []


def test_tampered_payload_is_reported_dropped_and_stored_again(folder: Path) -> None:
    deploy(folder)
    digest = cluster(folder).validate().members["resource_digests"]["query.knowledge.all"]
    path = folder / payload_path("query.knowledge.all", digest)
    path.write_text("query all() {}")
    assert codes(cluster(folder).status()) == ["catalog_payload_mismatch"]
    assert cluster(folder).refresh().ok
    assert deploy(folder).members["converged"] is True
    assert codes(cluster(folder).status()) == []
    path.unlink()
    assert codes(cluster(folder).status()) == ["catalog_payload_missing"]


def deny_reading_queries(monkeypatch: pytest.MonkeyPatch) -> None:
    read = Objects.read_if_exists

    def fail(self: Objects, path: str) -> bytes | None:
        if path.endswith(".gq"):
            raise og.StorageError("permission denied")
        return read(self, path)

    monkeypatch.setattr(Objects, "read_if_exists", fail)


def test_unreadable_payload_keeps_its_digest_and_fails(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deploy(folder)
    deny_reading_queries(monkeypatch)
    report = cluster(folder).refresh()
    assert codes(report) == ["catalog_payload_read_error"]
    assert not report.ok
    state = state_json(folder)
    assert "query.knowledge.all" in state["applied_revision"]["resources"]  # type: ignore[index]
    assert state["resource_statuses"]["query.knowledge.all"]["status"] == "error"  # type: ignore[index]


def test_drift_is_noticed_while_the_folder_has_other_changes(folder: Path) -> None:
    deploy(folder)
    with og.open(folder / "graphs" / "knowledge.omni") as graph:
        graph.schema.apply("node Person { name: String @key  extra: I64? }")
    (folder / "person.pg").write_text(NEW_SCHEMA)
    assert "schema_drifted" in codes(cluster(folder).refresh())


def test_pending_folder_change_alone_is_no_drift(folder: Path) -> None:
    deploy(folder)
    (folder / "person.pg").write_text(NEW_SCHEMA)
    assert codes(cluster(folder).refresh()) == []


def test_second_import_is_refused(folder: Path) -> None:
    deploy(folder)
    assert codes(cluster(folder).import_()) == ["state_already_exists"]


def test_import_adopts_a_graph_and_writes_nothing_beside_a_broken_one(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "team", graphs=("good", "broken"))
    og.init(folder / "graphs" / "good.omni", SCHEMA).close()
    og.init(folder / "graphs" / "broken.omni", SCHEMA).close()
    for path in (folder / "graphs" / "broken.omni" / "__manifest").rglob("*"):
        if path.is_file():
            path.write_bytes(b"x")
    report = cluster(folder).import_()
    assert codes(report) == ["graph_unavailable"]
    assert cluster(folder).ledger.read() is None


def test_state_with_an_unknown_member_is_refused(folder: Path) -> None:
    deploy(folder)
    path = max((folder / "__cluster" / "state").iterdir())
    state = orjson.loads(path.read_bytes())
    state["applied_revision"]["extra"] = 1
    path.write_bytes(orjson.dumps(state))
    with pytest.raises(ClusterError, match="state_unreadable"):
        cluster(folder).status()


# -- recovery --------------------------------------------------------------------------------------------------


def test_plan_and_status_warn_of_a_sidecar_and_change_nothing(folder: Path) -> None:
    deploy(folder)
    write_sidecar(cluster(folder).ledger, "schema_apply", "knowledge", "d", NEW_SCHEMA, "ada")
    (folder / "queries" / "people.gq").write_text(QUERIES + "// more\n")
    for report in (cluster(folder).plan(), cluster(folder).status()):
        assert codes(report) == ["cluster_recovery_pending"]
        assert report.ok
    assert changes(cluster(folder).plan())["query.knowledge.all"]["disposition"] == "applied"
    assert deploy(folder).members["converged"] is True
    assert codes(cluster(folder).status()) == []


def test_half_made_graph_blocks_until_it_is_removed(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "team", graphs=("knowledge", "second"))
    write_folder(folder)
    deploy(folder)
    write_folder(folder, graphs=("knowledge", "second"))
    og.init(folder / "graphs" / "second.omni", SCHEMA).close()
    for path in (folder / "graphs" / "second.omni" / "__manifest").rglob("*"):
        if path.is_file():
            path.write_bytes(b"x")
    write_sidecar(cluster(folder).ledger, "graph_create", "second", "d", SCHEMA, "ada")
    report = deploy(folder)
    assert "graph_create_incomplete" in codes(report)
    assert not report.ok
    assert report.members["converged"] is False
    assert changes(report)["graph.second"]["reason"] == "cluster_recovery_pending"
    statuses = state_json(folder)["resource_statuses"]
    assert statuses["graph.second"]["status"] == "error"  # type: ignore[index]
    (folder / "graphs" / "second.omni").rename(folder / "moved")
    assert deploy(folder).members["converged"] is True


def test_foreign_graph_at_the_address_is_kept(folder: Path) -> None:
    cluster(folder).import_()
    og.init(folder / "graphs" / "knowledge.omni", "node Other { number: I64 @key }").close()
    write_sidecar(cluster(folder).ledger, "graph_create", "knowledge", "d", SCHEMA, "ada")
    report = deploy(folder)
    assert "actual_applied_state_pending" in codes(report)
    assert state_json(folder)["resource_statuses"]["graph.knowledge"]["status"] == "drifted"  # type: ignore[index]
    with og.open(folder / "graphs" / "knowledge.omni") as graph:
        assert list(graph.schema.nodes) == ["Other"]


def test_sidecar_without_a_movement_is_an_error_and_nothing_converges(folder: Path) -> None:
    deploy(folder)
    cluster(folder).ledger.write_json("__cluster/recoveries/odd.json", {"schema_version": 1})
    report = deploy(folder)
    assert "cluster_recovery_unattributed" in codes(report)
    assert report.members["converged"] is False


def test_apply_stores_lost_content_again_in_a_new_revision(folder: Path) -> None:
    write_folder(folder, extra=POLICIES)
    deploy(folder)
    paths = [path for suffix in ("gq", "yaml") for path in (folder / "__cluster" / "resources").rglob(f"*.{suffix}")]
    paths[0].write_text("tampered")
    paths[1].unlink()
    lost = ["catalog_payload_missing", "catalog_payload_mismatch"]
    assert codes(cluster(folder).plan()) == lost
    report = deploy(folder)
    assert codes(report) == lost
    # Servers follow the ledger: without a revision they would not look again.
    assert (report.members["converged"], report.members["state_written"]) == (True, True)
    assert codes(cluster(folder).status()) == []
    assert deploy(folder).members["state_written"] is False


def test_unreadable_content_is_no_convergence(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deploy(folder)
    deny_reading_queries(monkeypatch)
    report = deploy(folder)
    assert (report.ok, report.members["converged"]) == (False, False)
    assert codes(report) == ["catalog_payload_read_error"]


def test_unsupported_schema_change_says_what_and_where(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    deploy(folder)
    (folder / "person.pg").write_text(IMPOSSIBLE)
    assert main(["cluster", "plan", "--config", str(folder)]) == 0
    assert "schema.knowledge: ! node:Person.name: [OG-MF-106] type of `Person.name` changes" in capsys.readouterr().out
    [finding] = [item for item in deploy(folder).findings if item.code == "schema_change_unsupported"]
    assert "[OG-MF-106] type of `Person.name` changes from `String` to `I64`" in finding.message
    assert main(["cluster", "status", "--config", str(folder)]) == 0
    assert "schema_change_unsupported" in capsys.readouterr().out
