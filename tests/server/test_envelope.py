"""The one shape of an error: a member for every situation that has one, and nothing of where a graph is kept."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from omnigraph.errors import (
    BudgetExceeded,
    ChangeFeedGap,
    Effect,
    GraphError,
    KeyConflict,
    LimitExceeded,
    MergeConflict,
    OmniGraphError,
    PreconditionFailed,
    ReadSetChanged,
    SchemaBoundary,
    StorageError,
    StorageKind,
    UsageError,
    VersionMismatch,
)
from omnigraph.graph import Graph
from omnigraph.server import errors
from omnigraph.server.auth import Tokens
from omnigraph.server.errors import CODES, error_body, redact_error
from omnigraph.server.registry import GraphConfig, GraphRegistry, ServedGraph, open_registry
from tests.support.live_server import ADD, PEOPLE, Live

CONFLICT = {"type_key": "node:Person", "entity_id": "a", "kind": "DivergentUpdate", "message": "m", "base": None}

MEMBERS: list[tuple[OmniGraphError, int, str, Any]] = [
    (
        MergeConflict("no", conflicts=[CONFLICT]),
        409,
        "merge_conflicts",
        [
            {
                "entity_kind": "node",
                "type_name": "Person",
                "entity_id": "a",
                "kind": "divergent_update",
                "message": "m",
            }
        ],
    ),
    (
        VersionMismatch("no", type_key="edge:Knows", expected=3, actual=0),
        409,
        "published_dataset_version_conflict",
        {
            "entity_kind": "edge",
            "type_name": "Knows",
            "expected_published_dataset_version": 3,
            "actual_published_dataset_version": 0,
        },
    ),
    (
        ReadSetChanged("no", member="graph_head:main", expected="a", actual="b"),
        409,
        "read_set_conflict",
        {"member": "graph_head:main", "expected": "a", "actual": "b"},
    ),
    (
        KeyConflict("no", type_key="node:Person", entity_id="a"),
        409,
        "key_conflict",
        {"entity_kind": "node", "type_name": "Person", "entity_id": "a"},
    ),
    (
        SchemaBoundary("no", reason="schema_boundary", graph_commit_id="c", type_name="T"),
        409,
        "change_diff_refusal",
        {"reason": "schema_boundary", "graph_commit_id": "c", "type_name": "T"},
    ),
    (
        GraphError("no", code="commit.parentless", reason="parentless_commit", graph_commit_id="c"),
        409,
        "change_diff_refusal",
        {"reason": "parentless_commit", "graph_commit_id": "c"},
    ),
    (
        ChangeFeedGap("no", first_unreadable_commit_id="c"),
        410,
        "change_feed_gap",
        {"first_unreadable_commit_id": "c"},
    ),
    (
        PreconditionFailed("no", branch="main", expected="a", actual="b"),
        412,
        "precondition_failure",
        {"expected": "a", "actual": "b"},
    ),
    (
        LimitExceeded("no", resource="r", limit=1, actual=2),
        413,
        "resource_limit",
        {"resource": "r", "limit": 1, "actual": 2},
    ),
    (
        BudgetExceeded("no", limit="rows", allowed=1, needed=2, where="w"),
        413,
        "resource_limit",
        {"resource": "rows", "limit": 1, "actual": 2},
    ),
    (
        GraphError("no", code="blob.range", start=0, end=9, length=3),
        416,
        "blob_range",
        {"start": 0, "end": 9, "length": 3},
    ),
]


@pytest.mark.parametrize(("error", "status", "member", "shape"), MEMBERS, ids=lambda one: str(one)[:40])
def test_error_body_situation_has_its_member(error: OmniGraphError, status: int, member: str, shape: Any) -> None:
    body = error_body(error)
    assert error.kind.http_status == status
    assert body[member] == shape
    assert body.get("code") == ("bad_request" if status == 416 else CODES.get(status))
    assert (body["omnigraph_code"], body["effect"], body["retryable"]) == (error.code, "none", error.retryable)


@pytest.fixture
def house(graph_uri: str) -> Iterator[GraphRegistry]:
    house = open_registry([GraphConfig("g", graph_uri)], Tokens(), is_unauthenticated=True)
    yield house
    house.close()


def naming(hosted: ServedGraph) -> UsageError:
    """Return an error that names the place of a graph wherever it can."""
    uri = hosted.graph.uri
    bare = uri.strip("/")
    return UsageError(f"look at `{uri}/nodes`", path=f"{uri}/x", deep=[{"at": f"file {bare}/nodes"}], uri=uri)


def test_told_names_the_graph_instead_of_its_place(house: GraphRegistry) -> None:
    body = redact_error(naming(house.served["g"]), house.served["g"])
    assert "secret-place" not in str(body)
    assert body["error"] == "look at `g/nodes`"
    assert body["context"] == {"path": "g/x", "deep": [{"at": "file g/nodes"}]}


def test_told_of_texts_left_as_they_are_is_caught(house: GraphRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(errors, "_replace_paths", lambda value, roots, graph_id: value)
    assert "secret-place" in str(redact_error(naming(house.served["g"]), house.served["g"]))


@pytest.mark.parametrize("code", ["storage.failed", "graph.corrupt", "internal.bug", "storage.drift"])
def test_told_failures_of_storage_are_told_in_fixed_words(house: GraphRegistry, code: str) -> None:
    error = GraphError("s3://bucket/secret-place/nodes", code=code, object="secret-place", kind="transient")
    body = redact_error(error, house.served["g"])
    assert "secret-place" not in str(body)
    assert body["context"] == {"kind": "transient"}


def test_told_change_routes_tell_only_what_is_listed(house: GraphRegistry) -> None:
    error = LimitExceeded("too much", resource="r", limit=1, actual=2, key="secret-place")
    assert redact_error(error, house.served["g"], is_change=True) == {
        "error": "too much",
        "omnigraph_code": "limit.exceeded",
        "effect": "none",
        "retryable": False,
        "resource_limit": {"resource": "r", "limit": 1, "actual": 2},
        "context": {"resource": "r", "limit": 1, "actual": 2},
    }


def test_write_of_unknown_outcome_names_its_operation(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = Graph.mutate
    applied: list[str] = []

    def lost(graph: Graph, *given: Any, **more: Any) -> Any:
        receipt = plain(graph, *given, **more)
        assert receipt.commit is not None
        applied.append(receipt.commit.operation_id)
        raise StorageError(
            "storage did not answer", effect=Effect.UNKNOWN, kind=StorageKind.TRANSIENT, operation_id=applied[0]
        )

    monkeypatch.setattr(Graph, "mutate", lost)
    reply = live.post("/graphs/g/mutate", {"query": ADD, "params": {"name": "x"}})
    assert (reply.status, reply.json()["effect"], reply.json()["operation_id"]) == (500, "unknown", applied[0])
    asked = live.get(f"/graphs/g/operations/{reply.json()['operation_id']}").json()
    assert asked["outcome"] == "applied"
    assert asked["commit"]["operation_id"] == applied[0]


class Mute:
    """A value that has no form as text."""

    def __str__(self) -> str:
        raise KeyError("secret-place")


def nested() -> list[object]:
    """Return a list that holds itself."""
    endless: list[object] = []
    endless.append(endless)
    return endless


ODD: list[tuple[OmniGraphError, int]] = [
    (BudgetExceeded("no", limit="rows", allowed=2**62, needed=10**400, where="w"), 413),
    (BudgetExceeded("no", limit="rows", allowed=2**62, needed=1e300, where="w"), 413),
    (BudgetExceeded("no", limit="rows", allowed=1, needed=float("inf"), where="w"), 413),
    (BudgetExceeded("no", limit="rows", allowed=1, needed=float("nan"), where="w"), 413),
    (LimitExceeded("no", resource="r", limit=1, actual=2**64), 413),
    (UsageError("no", value=-(2**64)), 400),
    (UsageError("no", value=10**5_000), 400),
    (UsageError("lone surrogate \ud800", value="\udfff"), 400),
    (UsageError("no", value={(1, 2): 3, Mute(): 4, "\ud800": 5}), 400),
    (UsageError("no", value=[Mute(), b"\xff", {1}, object]), 400),
    (UsageError("no", value=nested()), 500),
    (MergeConflict("no", conflicts=[{"kind": "DivergentUpdate"}]), 500),
    (MergeConflict("no", conflicts=7, operation_id="op"), 500),
]


def test_error_is_json_whatever_it_knows(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    for error, status in ODD:

        def fail(*given: Any, error: OmniGraphError = error, **more: Any) -> Any:
            raise error

        monkeypatch.setattr(Graph, "query", fail)
        reply = live.post("/graphs/g/query", {"query": PEOPLE})
        assert (reply.status, reply.headers["content-type"]) == (status, "application/json"), error.context
        code = error.code if status < 500 else "internal.bug"
        assert reply.json()["omnigraph_code"] == code
        assert b"secret-place" not in reply.body
        if code == "query.budget_exceeded":
            assert reply.json()["resource_limit"]["actual"] == 2**63 - 1
    assert reply.json()["operation_id"] == "op"


@pytest.mark.parametrize("patterns", [28, 40, 500])
def test_count_beyond_64_bits_is_refused_in_json(live: Live, patterns: int) -> None:
    match = " ".join(f"$p{place}: Person" for place in range(patterns))
    reply = live.post("/graphs/g/query", {"query": f"query q() {{ match {{ {match} }} return {{ count($p0) as n }} }}"})
    assert (reply.status, reply.json()["omnigraph_code"]) == (413, "query.budget_exceeded")
    assert reply.json()["resource_limit"] == {"resource": "rows", "limit": 2**62, "actual": 2**63 - 1}
