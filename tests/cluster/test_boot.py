"""What a server takes from a ledger: refusals at the start, quarantine, providers and reloads."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import orjson
import pytest

import omnigraph as og
from omnigraph.cluster import ClusterError
from omnigraph.cluster.applied_state import AppliedSources, applied_embedder
from omnigraph.cluster.ledger import payload_path
from omnigraph.cluster.recovery import write_sidecar
from omnigraph.engine.query.ranking import default_embedder
from omnigraph.graph import session_of
from omnigraph.server.auth import AuthMode, Tokens
from omnigraph.server.registry import GraphRegistry, Reconcilers, listed, open_cluster_registry
from tests.support.cluster_folder import QUERIES, SCHEMA, cluster, deploy, write_folder

pytestmark = pytest.mark.slow

POLICIES = "policies:\n  team: {file: team.yaml, applies_to: [knowledge]}\n"


def sources(folder: Path) -> AppliedSources:
    return AppliedSources(cluster(folder).ledger, lambda: Tokens(()), lambda *_: AuthMode(False, False, True))


@contextmanager
def served(folder: Path, *, requires_all: bool = False) -> Iterator[GraphRegistry]:
    registry = open_cluster_registry(sources(folder), requires_all=requires_all)
    try:
        yield registry
    finally:
        registry.close()


def refusal(folder: Path, *, requires_all: bool = False) -> list[str]:
    with pytest.raises(ClusterError) as caught, served(folder, requires_all=requires_all):
        pass
    return [item.code for item in caught.value.findings]


def query_names(registry: GraphRegistry, graph_id: str = "knowledge") -> list[str]:
    return [query.name for query in registry.served[graph_id].stored().queries]


def is_stale(registry: GraphRegistry) -> bool:
    return registry.is_stale


def edit_state(folder: Path, edit: Any) -> None:
    """Change the newest revision in storage, as a broken tool would."""
    path = max((folder / "__cluster" / "state").iterdir())
    state = orjson.loads(path.read_bytes())
    edit(state["applied_revision"]["resources"])
    path.write_bytes(orjson.dumps(state))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_folder(tmp_path / "team")


def test_no_ledger_and_no_graph_are_refused(folder: Path) -> None:
    assert refusal(folder) == ["cluster_state_missing"]
    cluster(folder).import_()
    assert refusal(folder) == ["cluster_empty"]


def test_lost_or_changed_content_is_refused(folder: Path) -> None:
    deploy(folder)
    digest = cluster(folder).validate().members["resource_digests"]["query.knowledge.all"]
    path = folder / payload_path("query.knowledge.all", digest)
    path.write_text("query all() {}")
    assert refusal(folder) == ["catalog_payload_digest_mismatch"]
    path.unlink()
    assert refusal(folder) == ["catalog_payload_missing"]


def test_policy_without_bindings_is_refused(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "team", extra=POLICIES)
    deploy(folder)
    edit_state(folder, lambda resources: resources["policy.team"].pop("applies_to"))
    assert refusal(folder) == ["policy_bindings_missing"]


def test_two_policies_of_a_graph_are_refused(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "team", extra=POLICIES)
    deploy(folder)
    text = (folder / "team.yaml").read_bytes()
    ledger = cluster(folder).ledger
    digest = cluster(folder).validate().members["resource_digests"]["policy.team"]
    ledger.write_payload("policy.other", digest, text)
    edit_state(folder, lambda resources: resources.update({"policy.other": resources["policy.team"]}))
    assert refusal(folder) == ["duplicate_policy_binding"]


def test_sidecar_that_names_nothing_is_refused(folder: Path) -> None:
    deploy(folder)
    cluster(folder).ledger.write_json("__cluster/recoveries/odd.json", {"schema_version": 1})
    assert refusal(folder) == ["cluster_recovery_unattributed"]


def test_unfinished_movement_quarantines_its_graph_alone(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "team", graphs=("a", "b"))
    deploy(folder)
    write_sidecar(cluster(folder).ledger, "schema_apply", "b", "d", SCHEMA, "ada")
    with served(folder) as registry:
        assert list(registry.served) == ["a"]
    assert refusal(folder, requires_all=True) == ["cluster_recovery_pending"]


def test_graph_that_does_not_open_is_quarantined(folder: Path) -> None:
    deploy(folder)
    (folder / "graphs" / "knowledge.omni").rename(folder / "moved")
    with (
        pytest.raises(ClusterError, match="restore it, or run `omnigraph cluster refresh` and `apply`"),
        served(folder),
    ):
        pass
    assert refusal(folder) == ["graph_unavailable", "cluster_no_healthy_graphs"]


def test_running_server_keeps_a_graph_unless_it_is_being_deleted(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "team", graphs=("a", "b"))
    deploy(folder)
    with served(folder) as registry:
        write_sidecar(cluster(folder).ledger, "schema_apply", "b", "d", SCHEMA, "ada")
        registry.reload()
        assert list(registry.served) == ["a", "b"]
        deploy(folder)
        write_sidecar(cluster(folder).ledger, "graph_delete", "b", "d", "", "ada")
        registry.reload()
        assert list(registry.served) == ["a"]
        assert not is_stale(registry)


def test_bad_revision_is_refused_and_the_old_one_keeps_serving(folder: Path) -> None:
    deploy(folder)
    with served(folder) as registry:
        (folder / "queries" / "people.gq").write_text(QUERIES + QUERIES.replace("all", "again"))
        deploy(folder)
        digest = cluster(folder).validate().members["resource_digests"]["query.knowledge.all"]
        good = folder / payload_path("query.knowledge.again", digest)
        text = good.read_bytes()
        for path in (folder / "__cluster" / "resources" / "query").rglob(f"{digest}.gq"):
            path.write_text("query all() {}")
        registry.reload()
        assert is_stale(registry)
        assert query_names(registry) == ["all"]
        for path in (folder / "__cluster" / "resources" / "query").rglob(f"{digest}.gq"):
            path.write_bytes(text)
        registry.reload()
        assert not is_stale(registry)
        assert query_names(registry) == ["again", "all"]


def test_request_in_flight_finishes_with_what_it_began_with(folder: Path) -> None:
    deploy(folder)
    with og.open(folder / "graphs" / "knowledge.omni") as graph:
        graph.mutate('query add() { insert Person { name: "Ann" } }')
    with served(folder) as registry:
        item = registry.find("knowledge", None)
        request = item.for_request(None, None)
        (folder / "queries" / "people.gq").write_text(QUERIES.replace("all", "other"))
        (folder / "person.pg").write_text("node Person { name: String @key  team: String? }\n")
        deploy(folder)
        registry.reload()
        assert query_names(registry) == ["other"]
        assert [query.name for query in item.stored().queries] == ["all"]
        assert request.query(QUERIES).rows() == [{"name": "Ann"}]


def write_provider(folder: Path, kind: str, key: str = "") -> None:
    base = write_folder(folder) / "cluster.yaml"
    text = base.read_text() + "    embedding_provider: texts\n"
    base.write_text(text + f"providers: {{embedding: {{texts: {{kind: {kind}, model: tiny{key}}}}}}}\n")


def test_graph_uses_the_provider_of_its_revision(folder: Path) -> None:
    write_provider(folder, "mock")
    deploy(folder)
    with served(folder) as registry:
        session = session_of(registry.served["knowledge"].graph)
        assert default_embedder(session.view()).model == "tiny"
        write_folder(folder)
        deploy(folder)
        registry.reload()
        assert default_embedder(session.view()).model != "tiny"


def test_provider_without_its_secret_quarantines_the_graph(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_provider(folder, "openai", ", api_key: '${TEAM_KEY}'")
    deploy(folder)
    monkeypatch.delenv("TEAM_KEY", raising=False)
    assert refusal(folder) == ["embedding_provider_unresolved", "cluster_no_healthy_graphs"]
    monkeypatch.setenv("TEAM_KEY", "secret")
    with served(folder) as registry:
        assert list(registry.served) == ["knowledge"]
    stored = cluster(folder).ledger.read()
    assert stored is not None
    assert vars(applied_embedder(stored.state, "knowledge"))["_key"] == "secret"
    assert b"secret" not in max((folder / "__cluster" / "state").iterdir()).read_bytes()


def test_tampered_provider_and_blob_policy_are_refused(folder: Path) -> None:
    write_provider(folder, "mock")
    deploy(folder)
    edit_state(folder, lambda all_: all_["provider.embedding.texts"]["embedding_profile"].update(model="other"))
    assert refusal(folder) == ["embedding_provider_digest_mismatch"]
    write_folder(folder)
    path = folder / "cluster.yaml"
    path.write_text(path.read_text() + "    external_blobs: {allow: [{base: 's3://media/x', scope: server_safe}]}\n")
    deploy(folder)
    edit_state(folder, lambda all_: all_["graph.knowledge"]["external_blob_policy"].update(allow=[]))
    assert refusal(folder) == ["external_blob_policy_digest_mismatch"]


def test_only_declared_queries_of_a_file_are_served(folder: Path) -> None:
    (folder / "both.gq").write_text(QUERIES + QUERIES.replace("all", "private"))
    (folder / "other.gq").write_text(QUERIES.replace("all", "private"))
    text = (folder / "cluster.yaml").read_text()
    (folder / "cluster.yaml").write_text(text.replace("queries: queries", "queries: {all: {file: both.gq}}"))
    deploy(folder)
    with served(folder) as registry:
        assert query_names(registry) == ["all"]
        declared = "queries: {all: {file: both.gq}, private: {file: other.gq}}"
        (folder / "cluster.yaml").write_text(text.replace("queries: queries", declared))
        assert deploy(folder).members["converged"] is True
        registry.reload()
        assert query_names(registry) == ["all", "private"]


def test_revision_that_would_take_a_graph_away_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TEAM_KEY", raising=False)
    folder = write_folder(tmp_path / "team")
    deploy(folder)
    with served(folder) as registry:
        write_provider(folder, "openai", ", api_key: '${TEAM_KEY}'")
        path = folder / "cluster.yaml"
        path.write_text(path.read_text().replace("graphs:", "graphs:\n  second: {schema: person.pg}"))
        assert deploy(folder).members["converged"] is True
        registry.reload()
        assert is_stale(registry)
        assert list(registry.served) == ["knowledge"]
        monkeypatch.setenv("TEAM_KEY", "secret")
        registry.reload()
        assert list(registry.served) == ["knowledge", "second"]


# -- graphs that come and go ---------------------------------------------------------------------------------------


def names(registry: GraphRegistry, graph_id: str) -> list[dict[str, object]]:
    return registry.find(graph_id, None).for_request(None, None).query(QUERIES).rows()


def add_person(folder: Path, graph_id: str, name: str) -> None:
    with og.open(folder / "graphs" / f"{graph_id}.omni") as graph:
        graph.mutate(f'query add() {{ insert Person {{ name: "{name}" }} }}')


def delete_graph(folder: Path, *, keep: str, delete: str) -> None:
    write_folder(folder, graphs=(keep,))
    assert cluster(folder).approve(f"graph.{delete}").ok
    assert deploy(folder).members["converged"] is True


def test_graph_that_was_deleted_and_created_again_is_opened_anew(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "team", graphs=("a", "b"))
    deploy(folder)
    add_person(folder, "b", "Old")
    with served(folder) as registry:
        assert names(registry, "b") == [{"name": "Old"}]
        # Both happen between two looks of the server.
        delete_graph(folder, keep="a", delete="b")
        write_folder(folder, graphs=("a", "b"))
        deploy(folder)
        add_person(folder, "b", "New")
        registry.reload()
        assert names(registry, "b") == [{"name": "New"}]
        registry.find("b", None).for_request(None, None).mutate('query add() { insert Person { name: "X" } }')
        assert len(registry.retired) == 1


def test_lost_graph_that_apply_creates_again_is_opened_anew(folder: Path) -> None:
    deploy(folder)
    add_person(folder, "knowledge", "Old")
    with served(folder) as registry:
        assert names(registry, "knowledge") == [{"name": "Old"}]
        (folder / "graphs" / "knowledge.omni").rename(folder / "moved")
        cluster(folder).refresh()
        deploy(folder)
        registry.reload()
        assert names(registry, "knowledge") == []


def test_retired_graph_is_closed_after_its_last_request(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "team", graphs=("a", "b"))
    deploy(folder)
    with served(folder) as registry:
        item = registry.find("b", None)
        with listed(object(), item.requests):
            delete_graph(folder, keep="a", delete="b")
            registry.reload()
            registry.close_retired()
            assert registry.retired == [item]
        registry.close_retired()
        assert registry.retired == []


def test_many_reloads_keep_nothing_open(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "team", graphs=("a", "b"))
    deploy(folder)
    with served(folder) as registry:
        graph = registry.served["a"].graph
        for index in range(200):
            registry.reload()
            registry.close_retired()
            assert registry.served["a"].graph is graph, index
        assert registry.retired == []


def test_ledger_that_was_restored_is_followed(folder: Path) -> None:
    deploy(folder)
    (folder / "queries" / "people.gq").write_text(QUERIES.replace("all", "second"))
    deploy(folder)
    with served(folder) as registry:
        max((folder / "__cluster" / "state").iterdir()).unlink()
        (folder / "queries" / "people.gq").write_text(QUERIES.replace("all", "third"))
        deploy(folder)
        assert registry.needs_reload()
        registry.reload()
        assert query_names(registry) == ["third"]


def test_storage_that_fails_for_a_while_is_asked_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deploy(folder)
    with served(folder) as registry:
        (folder / "queries" / "people.gq").write_text(QUERIES.replace("all", "later"))
        deploy(folder)

        def fail(*_: object) -> None:
            raise og.StorageError("no connection")

        monkeypatch.setattr("omnigraph.cluster.ledger.Ledger.fingerprint", fail)
        assert not registry.needs_reload()
        monkeypatch.undo()
        # The revision is seen, but storage fails while it is read.
        monkeypatch.setattr("omnigraph.cluster.ledger.Ledger.read_payload", fail)
        assert registry.needs_reload()
        registry.reload()
        assert is_stale(registry)
        assert query_names(registry) == ["all"]
        monkeypatch.undo()
        looks = [registry.needs_reload() for _ in range(2)]
        assert looks == [False, True]
        registry.reload()
        assert query_names(registry) == ["later"]
        assert not any(registry.needs_reload() for _ in range(50))


def test_bad_revision_is_not_read_again_and_again(folder: Path) -> None:
    deploy(folder)
    with served(folder) as registry:
        (folder / "queries" / "people.gq").write_text(QUERIES.replace("all", "later"))
        deploy(folder)
        for path in (folder / "__cluster" / "resources" / "query").rglob("*.gq"):
            path.write_text("damaged")
        registry.reload()
        assert is_stale(registry)
        assert not any(registry.needs_reload() for _ in range(50))


def test_graph_that_could_not_be_opened_is_tried_again(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "team", graphs=("a", "b"))
    deploy(folder)
    (folder / "graphs" / "b.omni").rename(folder / "moved")
    with served(folder) as registry:
        assert list(registry.served) == ["a"]
        assert list(registry.quarantined) == ["b"]
        (folder / "moved").rename(folder / "graphs" / "b.omni")
        assert any(registry.needs_reload() for _ in range(2))
        registry.reload()
        assert list(registry.served) == ["a", "b"]
        assert not any(registry.needs_reload() for _ in range(50))


def test_maintenance_follows_the_graphs_of_a_server(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "team", graphs=("a", "b"))
    deploy(folder)
    reconcilers = Reconcilers(timedelta(hours=1))
    with served(folder) as registry:
        first, second = (item.graph for item in registry.served.values())
        reconcilers.follow([first])
        running = reconcilers._running[first]
        assert running.wait_for(1, 30)
        reconcilers.follow([first, second])
        assert reconcilers._running[first] is running
        assert reconcilers._running[second].wait_for(1, 30)
        reconcilers.follow([second])
        assert list(reconcilers._running) == [second]
        assert (reconcilers.rounds, reconcilers.failures) == (2, 0)
        reconcilers.stop()


# -- external blobs ------------------------------------------------------------------------------------------------


def test_server_uses_safe_bases_and_a_program_all_of_them(tmp_path: Path) -> None:
    (tmp_path / "media").mkdir()
    (tmp_path / "media" / "a").write_bytes(b"image")
    bases = f"[{{base: 's3://media/x', scope: server_safe}}, {{base: {tmp_path}/media, scope: embedded_only}}]"
    folder = write_folder(tmp_path / "team", extra=f"    external_blobs: {{allow: {bases}}}\n")
    (folder / "person.pg").write_text("node Person { name: String @key  photo: Blob? }\n")
    deploy(folder)
    record = {"type": "Person", "data": {"name": "Ann", "photo": f"{tmp_path}/media/a"}}
    with served(folder) as registry:
        graph = registry.find("knowledge", None).for_request(None, None)
        rules = session_of(graph).external_blobs
        assert rules is not None
        assert [base.uri for base in rules.bases] == ["s3://media/x"]
        with pytest.raises(og.DataError, match="external_blobs"):
            graph.ingest([record])
        # The rules of a revision come and go with it.
        write_folder(folder)
        deploy(folder)
        registry.reload()
        assert session_of(registry.served["knowledge"].graph).external_blobs is None
        assert session_of(graph).external_blobs is rules
    write_folder(folder, extra=f"    external_blobs: {{allow: {bases}}}\n")
    (folder / "person.pg").write_text("node Person { name: String @key  photo: Blob? }\n")
    deploy(folder)
    with cluster(folder).open() as opened:
        opened.ingest([record])
        assert opened.blob("Person", "Ann", "photo").read() == b"image"
