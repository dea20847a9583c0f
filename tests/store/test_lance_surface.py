"""Guards: one test per behaviour of Lance that we rely on and that its documents do not promise.

A guard that fails after an upgrade names the part of ours that must be thought through again.
"""

from __future__ import annotations

import json
import os
from datetime import timedelta
from pathlib import Path

import lance
import pytest
from lance import LanceDataset, LanceOperation, Transaction
from lance.commit import CommitConflictError

from tests.support.lance_double import (
    ROUNDS,
    SCHEMA,
    Registrar,
    commit,
    create,
    managed,
    manifest_bytes,
    manifest_name,
    stage,
    table,
    upsert,
    winners,
)

HINT = "latest_version_hint.json"


@pytest.fixture
def uri(tmp_path: Path) -> str:
    return str(tmp_path / "dataset")


def link(uri: str, registrar: Registrar, version: int) -> None:
    os.link(f"/{registrar.requests[-1]['manifest_path'].lstrip('/')}", f"{uri}/_versions/{manifest_name(version)}")


# -- managed commits ---------------------------------------------------------------------------------------------


def test_managed_commit_of_a_plain_handle_stages_the_manifest(uri: str) -> None:
    """`Store.commit`: a dataset changes by path only when `Store.link` says so."""
    handle, registrar = create(uri), Registrar()
    staged = managed(handle, stage(handle, table("a")), registrar)
    (request,) = registrar.requests
    assert (staged.version, staged.count_rows(), request["version"]) == (2, 1, 2)
    name = request["manifest_path"].rpartition("/")[2]
    assert name.startswith(f"{manifest_name(2)}-")
    assert {manifest_name(1), name} == set(os.listdir(f"{uri}/_versions")) - {HINT}
    assert (lance.dataset(uri).version, lance.dataset(uri).latest_version) == (1, 1)


@pytest.mark.slow
def test_managed_commit_refused_by_the_registrar_aborts(uri: str) -> None:
    """`Store.commit`: the registrar has the last word on a version."""
    handle = create(uri)
    with pytest.raises(OSError):
        managed(handle, stage(handle, table("a")), Registrar(refuse=True))
    assert lance.dataset(uri).version == 1


def test_managed_commit_over_a_foreign_commit_skips_a_version(uri: str) -> None:
    """`Store.commit`: Lance rebases silently over drift; a version after the next is how the registrar sees it."""
    handle, registrar = create(uri), Registrar()
    transaction = stage(handle, table("a"))
    commit(lance.dataset(uri), stage(handle, table("foreign")))
    managed(handle, transaction, registrar)
    assert registrar.requests[0]["version"] == 3


def test_managed_commit_on_an_unlinked_handle_goes_on_from_it(uri: str) -> None:
    """`Store.commit`: a chain of changes, each on the staged version before it."""
    handle = create(uri)
    for number in range(3):
        handle = managed(handle, stage(handle, table(f"k{number}")), Registrar())
    assert (handle.version, handle.count_rows(), lance.dataset(uri).version) == (4, 3, 1)
    handle.validate()  # type: ignore[no-untyped-call]


def test_link_of_a_staged_manifest_makes_the_version_head(uri: str) -> None:
    """`Store.link`: one hard link is all that is needed for any Lance tool to see the version."""
    handle, registrar = create(uri), Registrar()
    managed(handle, stage(handle, table("a")), registrar)
    link(uri, registrar, 2)
    latest = lance.dataset(uri)
    assert (latest.version, latest.to_table().to_pylist()) == (2, [{"id": "a", "n": 0}])


def test_link_over_a_hole_reads_row_versions_and_delta_right(uri: str) -> None:
    """`Store.link`: only the last version of a chain is linked, and change feeds look past the hole."""
    handle, registrar = create(uri), Registrar()
    handle = managed(handle, stage(handle, table("a", "b")), registrar)
    link(uri, registrar, 2)
    handle = managed(handle, upsert(handle, table("a", "c", n=1)), Registrar())
    handle = managed(handle, upsert(handle, table("b", n=2)), registrar)
    link(uri, registrar, 4)
    latest = lance.dataset(uri)
    assert [version["version"] for version in latest.versions()] == [1, 2, 4]
    columns = ["id", "_row_created_at_version", "_row_last_updated_at_version"]
    found = {row["id"]: tuple(row.values())[1:] for row in latest.to_table(columns=columns).to_pylist()}
    assert found == {"a": (2, 3), "b": (2, 4), "c": (3, 3)}
    delta = latest.delta(begin_version=2, end_version=4)
    assert delta.get_inserted_rows().read_all()["id"].to_pylist() == ["c"]
    assert set(delta.get_updated_rows().read_all()["id"].to_pylist()) == {"a", "b"}


@pytest.mark.parametrize("hinted", [1, 2, 3, 4, 5, 1_000_000])
def test_version_hint_of_any_value_does_not_mislead_an_open(uri: str, hinted: int) -> None:
    """`Store.open_latest`: managed commits leave a hint of the version they staged, published or not."""
    handle, registrar = create(uri), Registrar()
    for version in (2, 3, 4):
        handle = managed(handle, stage(handle, table(f"k{version}")), registrar)
        assert json.loads(Path(f"{uri}/_versions/{HINT}").read_text()) == {"version": version}
        if version != 3:
            link(uri, registrar, version)
    Path(f"{uri}/_versions/{HINT}").write_text(json.dumps({"version": hinted}))
    assert (lance.dataset(uri).version, lance.dataset(uri, version=1).latest_version) == (4, 4)


def test_strict_overwrite_below_a_hole_is_not_refused(uri: str) -> None:
    """Why `__manifest` may have no holes and keeps its young versions: a stale writer would win inside of one."""
    handle, registrar = create(uri), Registrar()
    for number in (2, 3):
        handle = managed(handle, stage(handle, table(f"k{number}")), registrar)
    link(uri, registrar, 3)
    stale = lance.dataset(uri, version=1)
    assert commit(stale, stage(stale, table("lost"), "overwrite")).version == 2
    assert lance.dataset(uri).version == 3


def test_managed_commit_keeps_properties_and_transaction(uri: str) -> None:
    """Audit and `repair`: a version says which graph commit made it; one that was never linked only to its handle."""
    handle = create(uri)
    staged = stage(handle, table("a"))
    registrar = Registrar()
    handle = managed(handle, Transaction(1, staged.operation, "own-id", {"commit": "01J"}), registrar)
    own = handle.read_transaction(2)
    assert own is not None
    assert (own.uuid, own.transaction_properties) == ("own-id", {"commit": "01J"})
    handle = managed(handle, upsert(handle, table("a", n=1)), Registrar())
    with pytest.raises(OSError):
        handle.read_transaction(2)
    link(uri, registrar, 2)
    found = [handle.read_transaction(version) for version in (2, 3)]
    assert [type(one.operation).__name__ for one in found if one is not None] == ["Append", "Update"]


def test_managed_commit_on_a_branch_stays_in_its_tree(uri: str) -> None:
    """`Store.commit` on a graph branch: same rules, versions continue from the fork."""
    handle = commit(create(uri), stage(lance.dataset(uri), table("a")))
    branch, registrar = handle.create_branch("01HZX"), Registrar()
    staged = managed(branch, stage(branch, table("b")), registrar)
    assert (staged.version, staged.count_rows()) == (3, 2)
    assert f"/tree/01HZX/_versions/{manifest_name(3)}-" in registrar.requests[0]["manifest_path"]
    assert lance.dataset(f"{uri}/tree/01HZX").version == 2


def test_unlinked_version_opens_from_its_manifest_bytes(uri: str) -> None:
    """`Store.open_unlinked`: the footer's layout, and an open that writes nothing."""
    handle, registrar = create(uri), Registrar()
    managed(handle, stage(handle, table("a")), registrar)
    raw = Path(f"/{registrar.requests[0]['manifest_path'].lstrip('/')}").read_bytes()
    assert raw[-4:] == b"LANC"
    before = sorted(Path(uri).rglob("*"))
    opened = LanceDataset(uri, 2, serialized_manifest=manifest_bytes(raw))
    assert (opened.version, opened.to_table()["id"].to_pylist()) == (2, ["a"])
    assert sorted(Path(uri).rglob("*")) == before
    assert managed(opened, stage(opened, table("b")), Registrar()).count_rows() == 2


def test_default_cleanup_leaves_staged_files_alone(uri: str) -> None:
    """`cleanup`: what a writer has staged outlives a cleanup that runs meanwhile."""
    handle, registrar = create(uri), Registrar()
    handle = commit(handle, stage(handle, table("a")))
    pending = stage(handle, table("c"))
    staged = managed(handle, stage(handle, table("b")), registrar)
    lance.dataset(uri).cleanup_old_versions(older_than=timedelta(0))
    assert staged.count_rows() == 2
    assert managed(handle, pending, Registrar()).to_table().num_rows == 2
    link(uri, registrar, 3)
    assert lance.dataset(uri).to_table().num_rows == 2


# -- strict commits ----------------------------------------------------------------------------------------------


def test_strict_overwrite_loses_to_any_commit(uri: str) -> None:
    """`Store.commit_strictly`: the publish of a graph commit is never rebased over another."""
    create(uri)
    first, second = lance.dataset(uri), lance.dataset(uri)
    staged = stage(second, table("b"), "overwrite")
    commit(first, stage(first, table("a")))
    with pytest.raises(CommitConflictError):
        commit(second, staged)
    with pytest.raises(CommitConflictError):
        commit(lance.dataset(uri, version=1), staged)
    assert lance.dataset(uri).to_table()["id"].to_pylist() == ["a"]


def test_strict_overwrite_race_has_one_winner(uri: str) -> None:
    """`Store.commit_strictly`: the CAS of the whole graph."""
    create(uri)
    for _ in range(ROUNDS):
        base = lance.dataset(uri)
        staged = [stage(base, table(f"t{thread}"), "overwrite") for thread in range(4)]
        assert winners(lambda thread, base=base, staged=staged: commit(base, staged[thread])) == 1  # type: ignore[misc]
        assert lance.dataset(uri).version == base.version + 1


def test_exclusive_create_race_has_one_winner(tmp_path: Path) -> None:
    """`Store.create`: two initialisers cannot both create a dataset."""
    for number in range(ROUNDS):
        uri = str(tmp_path / str(number))
        assert winners(lambda thread, uri=uri: create(uri)) == 1  # type: ignore[misc]
        assert lance.dataset(uri).version == 1


def test_append_without_retries_is_still_rebased(uri: str) -> None:
    """Why a publish is an `Overwrite`: every other operation moves over a foreign commit without a word."""
    handle = create(uri)
    first, second = stage(handle, table("a")), stage(handle, table("b"))
    commit(handle, first)
    assert commit(handle, second).version == 3


def test_overwrite_keeps_row_ids_key_and_given_metadata(uri: str) -> None:
    """`change.overwrite` and `Store.commit_strictly`: what a version carries after all rows were replaced."""
    handle = create(uri)
    for rows in (["a", "b"], []):
        schema = SCHEMA.with_metadata({"stamp": str(len(rows))})
        staged = stage(handle, table(*rows).cast(schema), "overwrite").operation.fragments if rows else []  # type: ignore[attr-defined]
        handle = commit(handle, Transaction(handle.version, LanceOperation.Overwrite(schema, staged)))
        latest = lance.dataset(uri)
        assert latest.has_stable_row_ids
        assert latest.schema.metadata == {b"stamp": str(len(rows)).encode()}
        assert latest.schema.field("id").metadata == SCHEMA.field("id").metadata
        assert not latest.schema.field("id").nullable
    handle = commit(handle, stage(handle, table("c").cast(handle.schema)))
    assert handle.to_table(columns=["id"], with_row_id=True).to_pylist() == [{"id": "c", "_rowid": 2}]


def test_manifest_names_sort_newest_first(uri: str) -> None:
    """`dataset.manifest_name`: one probe by name tells whether a version is there."""
    handle = create(uri)
    commit(handle, stage(handle, table("a")))
    assert sorted(set(os.listdir(f"{uri}/_versions")) - {HINT}) == [manifest_name(2), manifest_name(1)]
