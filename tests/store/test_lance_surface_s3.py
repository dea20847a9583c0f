"""Guards of the Lance surface on S3: the same promises over the protocol, and what each costs in requests."""

from __future__ import annotations

from collections import Counter
from typing import Any

import lance
import pytest
from lance import LanceDataset, LanceOperation, Transaction
from lance.commit import CommitConflictError
from lance.dataset import Session  # type: ignore[attr-defined]  # re-exported, but not named in its `__all__`

from omnigraph.store.objects.control_objects import Objects
from omnigraph.store.objects.uri import Location
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
    winners,
)
from tests.support.s3_server import S3Server, s3_server

__all__ = ["s3_server"]
pytestmark = pytest.mark.s3


@pytest.fixture
def uri(s3_server: S3Server) -> str:
    return s3_server.uri("graph/nodes/a")


@pytest.fixture
def options(s3_server: S3Server, uri: str) -> dict[str, str]:
    return Location.parse(uri).lance_options()


def asked(server: S3Server) -> Counter[str]:
    """Return the requests since the last call, by method; a listing is a GET of the bucket itself."""
    found = Counter("LIST" if not one.key else one.method for one in server.requests)
    server.forget()
    return found


def store(options: dict[str, str]) -> dict[str, Any]:
    return {"storage_options": options}


def test_managed_commit_of_two_datasets_is_invisible_and_cheap(
    s3_server: S3Server, uri: str, options: dict[str, str]
) -> None:
    """`Store.commit`: LIST and two PUTs a dataset, however many take part; staged manifests are no versions."""
    for name in (f"{uri}1", f"{uri}2"):
        handle, registrar = create(name, options), Registrar()
        staged = stage(handle, table("a"), **store(options))
        s3_server.forget()
        made = managed(handle, staged, registrar, **store(options))
        assert asked(s3_server) == {"LIST": 1, "PUT": 2}
        assert registrar.requests[0]["manifest_path"].rpartition("/")[2].startswith(f"{manifest_name(2)}-")
        assert (made.count_rows(), lance.dataset(name, **store(options)).version) == (1, 1)
    for name in (f"{uri}1", f"{uri}2"):
        assert lance.dataset(name, **store(options)).latest_version == 1


def test_managed_commit_over_a_foreign_commit_skips_a_version(
    s3_server: S3Server, uri: str, options: dict[str, str]
) -> None:
    """`Store.commit`: drift shows as a version after the next, on S3 as on disk."""
    handle, registrar = create(uri, options), Registrar()
    staged = stage(handle, table("a"), **store(options))
    commit(handle, stage(handle, table("foreign"), **store(options)), **store(options))
    managed(handle, staged, registrar, **store(options))
    assert registrar.requests[0]["version"] == 3


def test_strict_overwrite_race_has_one_winner(s3_server: S3Server, uri: str, options: dict[str, str]) -> None:
    """`Store.commit_strictly`: the CAS of the whole graph, by put-if-absent."""
    create(uri, options)
    for _ in range(ROUNDS):
        base = lance.dataset(uri, **store(options))
        staged = [stage(base, table(f"t{thread}"), "overwrite", **store(options)) for thread in range(4)]

        def attempt(thread: int, base: LanceDataset = base, staged: list[Transaction] = staged) -> object:
            return commit(base, staged[thread], **store(options))

        s3_server.forget()
        assert winners(attempt) == 1
        assert any(one.condition == "*" for one in s3_server.requests if one.key.endswith(".manifest"))
        assert lance.dataset(uri, **store(options)).version == base.version + 1


def test_strict_overwrite_loses_to_any_commit(s3_server: S3Server, uri: str, options: dict[str, str]) -> None:
    """`Store.commit_strictly`: never rebased, also not by a client that has seen nothing of the other."""
    handle = create(uri, options)
    staged = stage(handle, table("b"), "overwrite", **store(options))
    commit(handle, stage(handle, table("a"), **store(options)), **store(options))
    with pytest.raises(CommitConflictError):
        commit(handle, staged, **store(options))


def test_exclusive_create_race_has_one_winner(s3_server: S3Server, uri: str, options: dict[str, str]) -> None:
    """`Store.create`: put-if-absent of the first manifest."""
    for number in range(ROUNDS):

        def attempt(_: int, name: str = f"{uri}{number}") -> object:
            return create(name, options)

        assert winners(attempt) == 1
        assert lance.dataset(f"{uri}{number}", **store(options)).version == 1


def test_strict_publish_costs_three_puts(s3_server: S3Server, uri: str, options: dict[str, str]) -> None:
    """`Store.stage_strict` and `commit_strictly`: rows, transaction, manifest, and not one read."""
    handle = create(uri, options)
    s3_server.forget()
    schema = SCHEMA.with_metadata({"stamp": "1"})
    staged: Any = stage(handle, table("a").cast(schema), "overwrite", **store(options)).operation
    operation = LanceOperation.Overwrite(schema, staged.fragments)
    made = commit(handle, Transaction(1, operation), **store(options))
    assert asked(s3_server) == {"PUT": 3}
    assert made.schema.metadata == {b"stamp": b"1"}


def test_cold_open_and_probe_cost_few_requests(s3_server: S3Server, uri: str, options: dict[str, str]) -> None:
    """The request budget of a read: open by LIST and GET, read of a small table in two more, probe by one LIST."""
    handle = create(uri, options)
    commit(handle, stage(handle, table("a"), **store(options)), **store(options))
    s3_server.forget()
    opened = lance.dataset(uri, session=Session(), **store(options))
    opening = asked(s3_server)
    rows = opened.to_table()
    reading = asked(s3_server)
    assert opened.latest_version == 2
    assert (opening, reading["GET"] <= 2, asked(s3_server)) == ({"LIST": 1, "GET": 1}, True, {"LIST": 1})
    assert rows.num_rows == 1


def test_unlinked_version_opens_from_its_manifest_bytes(s3_server: S3Server, uri: str, options: dict[str, str]) -> None:
    """`Store.open_unlinked`: one HEAD, then only what the rows need, and nothing that writes."""
    handle, registrar = create(uri, options), Registrar()
    managed(handle, stage(handle, table("a"), **store(options)), registrar, **store(options))
    raw = Objects(Location.parse(s3_server.uri("graph"))).read(staged_path(registrar))
    s3_server.forget()
    opened = LanceDataset(uri, 2, serialized_manifest=manifest_bytes(raw), **store(options))
    assert asked(s3_server) == {"HEAD": 1}
    assert opened.to_table()["id"].to_pylist() == ["a"]
    assert asked(s3_server).keys() == {"GET"}


def test_copied_manifests_make_both_versions_head(s3_server: S3Server, uri: str, options: dict[str, str]) -> None:
    """`Store.link`: a copy under the final name is all that is needed for any Lance tool to see the version."""
    objects = Objects(Location.parse(s3_server.uri("graph")))
    for name in ("nodes/a", "nodes/b"):
        place = s3_server.uri(f"graph/{name}")
        handle, registrar = create(place, options), Registrar()
        handle = managed(handle, stage(handle, table("a"), **store(options)), Registrar(), **store(options))
        managed(handle, stage(handle, table("b"), **store(options)), registrar, **store(options))
        assert lance.dataset(place, **store(options)).version == 1
        assert objects.link(staged_path(registrar, name), f"{name}/_versions/{manifest_name(3)}")
        latest = lance.dataset(place, **store(options))
        assert (latest.version, latest.to_table()["id"].to_pylist()) == (3, ["a", "b"])


def staged_path(registrar: Registrar, name: str = "nodes/a") -> str:
    return f"{name}/_versions/{registrar.requests[-1]['manifest_path'].rpartition('/')[2]}"
