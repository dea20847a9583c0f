"""Folders and ledgers that were damaged, tampered with, or written to do harm."""

from __future__ import annotations

import os
from pathlib import Path

import orjson
import pytest

import omnigraph as og
from omnigraph.cli import main
from omnigraph.cluster import ClusterError
from omnigraph.cluster.recovery import write_sidecar
from tests.support.cluster_folder import QUERIES, cluster, codes, crash_apply, deploy, write_folder

pytestmark = pytest.mark.slow

NEW_SCHEMA = "node Person { name: String @key  team: String? }\n"
PROVIDER = "providers: {embedding: {texts: {kind: openai, api_key: '${KEY}', base_url: 'URL'}}}\n"
BLOBS = "    external_blobs: {allow: [{base: 'BASE', scope: server_safe}]}\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_folder(tmp_path / "team")


def config_codes(folder: Path) -> list[str]:
    with pytest.raises(ClusterError) as caught:
        cluster(folder)
    assert all(item.line is not None for item in caught.value.findings)
    assert "hunter2" not in str(caught.value)
    return [item.code for item in caught.value.findings]


# -- the folder --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("member", ["schema: person.pg", "queries: queries"])
def test_file_outside_the_folder_is_refused(folder: Path, member: str) -> None:
    for name in ("person.pg", "queries"):
        (folder / name).rename(folder.parent / name)
    config, name = folder / "cluster.yaml", member.split()[1]
    text = config.read_text()
    (folder / "person.pg").write_text("node Person { name: String @key }\n")
    for target in (f"../{name}", str(folder.parent / name)):
        config.write_text(text.replace(member, f"{member.split()[0]} {target}"))
        assert "path_outside_folder" in codes(cluster(folder).validate())
    config.write_text(text)
    (folder / "person.pg").unlink()
    os.symlink(folder.parent / "person.pg", folder / "person.pg")
    os.symlink(folder.parent / "queries", folder / "queries")
    assert "path_outside_folder" in codes(cluster(folder).validate())


def test_policy_outside_the_folder_is_refused_and_not_shown(folder: Path) -> None:
    (folder.parent / "private").write_text("hunter2")
    write_folder(folder, extra="policies: {p: {file: ../private, applies_to: [knowledge]}}\n")
    report = cluster(folder).validate()
    assert codes(report) == ["path_outside_folder"]
    assert "hunter2" not in str(report.to_json())


def test_pipe_or_odd_name_in_place_of_a_file_is_a_finding(folder: Path) -> None:
    (folder / "person.pg").unlink()
    os.mkfifo(folder / "person.pg")
    (folder / "team.yaml").unlink()
    os.mkfifo(folder / "team.yaml")
    config = folder / "cluster.yaml"
    config.write_text(config.read_text() + "policies: {p: {file: team.yaml, applies_to: [knowledge]}}\n")
    assert codes(cluster(folder).validate()) == ["schema_not_found", "policy_not_found"]
    config.write_text(config.read_text().replace("team.yaml", '"a\\0b"').replace("person.pg", '"a\\0b"'))
    assert codes(cluster(folder).validate()) == ["schema_not_found", "policy_not_found"]


@pytest.mark.parametrize(
    "text",
    [
        "version: 1\na: &a [x, x]\nb: &b [*a, *a]\ngraphs: {}\n",
        "version: 1\ngraphs: {g: {<<: {schema: person.pg}}}\n",
        "version: 1\ngraphs: " + "[" * 5_000 + "]" * 5_000 + "\n",
        "version: 1\ngraphs: {g: {schema: !!python/object/apply:os.system [id]}}\n",
        "version: 1\ngraphs: {}\n---\nversion: 1\n",
    ],
)
def test_hostile_yaml_is_refused(folder: Path, text: str) -> None:
    (folder / "cluster.yaml").write_text(text)
    expected = "nesting_limit" if "[[" in text else "invalid_cluster_yaml"
    assert expected in config_codes(folder)


def test_huge_yaml_is_refused(folder: Path) -> None:
    (folder / "cluster.yaml").write_text("version: 1\ngraphs: {}\n#" + "x" * 2_000_000)
    with pytest.raises(ClusterError, match="the limit is"):
        cluster(folder)


@pytest.mark.parametrize("url", ["https://ada:hunter2@host/v1", "https://host/v1?key=hunter2"])
def test_secret_in_the_address_of_a_provider_is_refused(folder: Path, url: str) -> None:
    write_folder(folder, extra=PROVIDER.replace("URL", url))
    assert config_codes(folder) == ["inline_secret"]


def test_secret_in_the_address_of_storage_is_refused(folder: Path) -> None:
    write_folder(folder, storage="s3://ada:hunter2@bucket/team")
    assert config_codes(folder) == ["inline_secret"]
    write_folder(folder, storage="gcs://bucket/team")
    assert config_codes(folder) == ["invalid_storage"]


@pytest.mark.parametrize("base", ["s3://ada:hunter2@bucket/a", "s3://bucket/a?x=1", "file:///a", "/a"])
def test_unsafe_base_of_blobs_is_refused(folder: Path, base: str) -> None:
    write_folder(folder, extra=BLOBS.replace("BASE", base))
    assert config_codes(folder) == ["invalid_blob_base"]


def test_relative_storage_starts_at_the_folder(folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    write_folder(folder, storage="./data")
    assert deploy(folder).members["converged"] is True
    assert (folder / "data" / "graphs" / "knowledge.omni").is_dir()
    assert list(Path.cwd().iterdir()) == []


def test_every_failure_of_a_command_is_a_report(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    deploy(folder)
    arguments = ["cluster", "approve", "graph.knowledge", "--config", str(folder), "--json"]
    assert main(arguments) == 1
    report = orjson.loads(capsys.readouterr().out)
    assert (report["ok"], [item["code"] for item in report["diagnostics"]]) == (False, ["usage.invalid"])
    (folder / "person.pg").write_text("nod")
    assert main(["cluster", "validate", "--config", str(folder)]) == 1
    assert ": ok" not in capsys.readouterr().out


# -- the ledger --------------------------------------------------------------------------------------------------


def newest(folder: Path) -> Path:
    return max((folder / "__cluster" / "state").iterdir())


@pytest.mark.parametrize("damage", [b"", b"[]", b"{}", b"\xff"])
def test_damaged_revision_is_named(folder: Path, damage: bytes) -> None:
    deploy(folder)
    newest(folder).write_bytes(damage)
    with pytest.raises(ClusterError, match="state_unreadable"):
        cluster(folder).status()


@pytest.mark.parametrize("member", ["approval_records", "observations", "operation", "resource_statuses"])
def test_revision_with_a_member_of_another_type_is_named(folder: Path, member: str) -> None:
    deploy(folder)
    state = orjson.loads(newest(folder).read_bytes())
    newest(folder).write_bytes(orjson.dumps({**state, member: 3}))
    with pytest.raises(ClusterError, match="state_unreadable"):
        cluster(folder).status()


def test_revision_under_another_number_is_never_built_upon(folder: Path) -> None:
    deploy(folder)
    (folder / "__cluster" / "state" / "000000000009.json").write_bytes(newest(folder).read_bytes())
    (folder / "person.pg").write_text(NEW_SCHEMA)
    with pytest.raises(ClusterError, match="state_unreadable"):
        cluster(folder).apply()
    with og.open(folder / "graphs" / "knowledge.omni") as graph:
        assert "team" not in graph.schema.source


def test_history_goes_on_around_a_lost_or_damaged_revision(folder: Path) -> None:
    deploy(folder)
    for index in range(3):
        (folder / "queries" / "people.gq").write_text(QUERIES + f"// {index}\n")
        deploy(folder)
    revisions = sorted((folder / "__cluster" / "state").iterdir())
    revisions[1].unlink()
    revisions[2].write_bytes(b"x")
    report = cluster(folder).history()
    assert report.ok
    assert [item["revision"] for item in report.members["revisions"]] == [5, 4, 1]
    assert codes(report) == ["state_unreadable", "state_revision_missing"]


@pytest.mark.parametrize("name", ["7.json", "\u00b2.json", "000000000009.json.tmp", "0000000000099.json"])
def test_stray_object_beside_the_revisions_is_no_revision(folder: Path, name: str) -> None:
    deploy(folder)
    (folder / "__cluster" / "state" / name).write_text("{}")
    assert codes(cluster(folder).status()) == []
    assert cluster(folder).apply().members["converged"] is True
    assert codes(cluster(folder).history()) == []


def test_damaged_approval_is_named(folder: Path) -> None:
    deploy(folder)
    cluster(folder).ledger.write_json("__cluster/approvals/odd.json", {})
    with pytest.raises(ClusterError, match="cluster_object_unreadable"):
        cluster(folder).plan()


@pytest.mark.parametrize(
    "changed",
    [{"graph_id": ["knowledge"]}, {"graph_id": "../../x"}, {"kind": "format"}, {"desired_schema": 1}, {"actor": ...}],
)
def test_sidecar_of_no_known_movement_is_kept_and_named(folder: Path, changed: dict[str, object]) -> None:
    deploy(folder)
    texts = dict.fromkeys(("operation_id", "desired_schema_digest", "desired_schema"), "x")
    sidecar = {**texts, "kind": "graph_delete", "graph_id": "knowledge", "started_at": 1, "actor": None, **changed}
    path = "__cluster/recoveries/odd.json"
    cluster(folder).ledger.write_json(path, {name: value for name, value in sidecar.items() if value is not ...})
    assert "cluster_recovery_unattributed" in codes(cluster(folder).apply())
    assert (folder / path).exists()


def test_damaged_text_of_a_schema_is_reported_and_stored_again(folder: Path) -> None:
    deploy(folder)
    [path] = (folder / "__cluster" / "resources" / "schema").rglob("*.pg")
    path.write_text("tampered")
    assert codes(cluster(folder).status()) == ["catalog_payload_mismatch"]
    assert cluster(folder).refresh().ok
    assert cluster(folder).diff().ok
    assert deploy(folder).ok
    assert codes(cluster(folder).status()) == []


# -- what changed between a crash and the next apply -----------------------------------------------------------


def crash_after_creation(folder: Path) -> None:
    """Create a graph, and crash before the ledger knows of it."""
    cluster(folder).import_()
    number = 3
    while not (folder / "graphs" / "knowledge.omni" / "__manifest").exists() or not is_open(folder):
        assert crash_apply(folder, "after", number)
        for path in (folder / "graphs").glob("*"):
            if not is_open(folder):
                path.rename(folder.parent / f"half-made-{number}")
        number += 1


def is_open(folder: Path) -> bool:
    try:
        og.open(folder / "graphs" / "knowledge.omni").close()
    except og.OmniGraphError:
        return False
    return True


def test_schema_that_changes_after_a_crashed_creation_is_applied(folder: Path) -> None:
    crash_after_creation(folder)
    (folder / "person.pg").write_text(NEW_SCHEMA)
    report = cluster(folder).apply()
    assert report.members["converged"] is True, report.findings
    with og.open(folder / "graphs" / "knowledge.omni") as graph:
        assert "team" in graph.schema.source


def test_graph_withdrawn_after_a_crashed_creation_needs_an_approval(folder: Path) -> None:
    crash_after_creation(folder)
    (folder / "cluster.yaml").write_text("version: 1\ngraphs: {}\n")
    assert "approval_required" in codes(cluster(folder).apply())
    assert cluster(folder).approve("graph.knowledge").ok
    assert cluster(folder).apply().members["converged"] is True
    assert not (folder / "graphs" / "knowledge.omni").exists()


def test_folders_that_a_crashed_deletion_left_are_removed(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "team", graphs=("a", "b"))
    deploy(folder)
    write_folder(folder, graphs=("a",))
    approval = cluster(folder).approve("graph.b").members["approval"]
    write_sidecar(cluster(folder).ledger, "graph_delete", "b", "d", "", "ada", approval_id=approval["approval_id"])
    for path in (folder / "graphs" / "b.omni").rglob("*"):
        if path.is_file():
            path.unlink()
    assert cluster(folder).apply().members["converged"] is True
    assert not (folder / "graphs" / "b.omni").exists()


def test_what_is_deployed_is_found_while_the_folder_is_being_edited(folder: Path) -> None:
    write_folder(folder, storage="data")
    deploy(folder)
    (folder / "cluster.yaml").write_text("version: 2\ngraphs: {g: {schem: x}}\nstorage: data\n")
    assert main(["verify", "--cluster", str(folder)]) == 0
    (folder / "cluster.yaml").write_text("storage: data\ngraphs: {\n")
    assert main(["verify", "--cluster", str(folder)]) == 1
