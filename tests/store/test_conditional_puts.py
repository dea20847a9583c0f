"""Stores that ignore conditional puts are refused before anything is published: by `init`, `clone` and first writes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import omnigraph as og
import tests.support.s3_server
from omnigraph.store.objects import conditional_puts
from omnigraph.store.objects.control_objects import Objects
from omnigraph.store.objects.uri import Location
from tests.support.s3_server import CONDITIONS, CONFLICT_409, THROTTLE_503, Fault, Request, S3Server, refuse

pytestmark = pytest.mark.s3
s3_server = tests.support.s3_server.s3_server

SCHEMA = "node P { name: String @key }"
ADD = "query add($n: String) { insert P { name: $n } }"
NAMES = "query all() { match { $p: P } return { $p.name as name } order { name } }"


def stored_keys(server: S3Server) -> list[str]:
    ignored, server.ignored_headers = server.ignored_headers, frozenset()
    keys = [info.path for info in Objects(Location.parse(server.uri("g"))).list("")]
    server.ignored_headers = ignored
    return keys


def as_another_process() -> None:
    """Forget what this process has proven of its stores."""
    conditional_puts.forget_proven()


def test_init_on_a_store_without_conditions_is_refused_and_leaves_nothing(s3_server: S3Server) -> None:
    s3_server.ignored_headers = CONDITIONS
    with pytest.raises(og.UnsafeStore, match=r"ignores `If-None-Match`.*omnigraph doctor s3://graphs/g") as refused:
        og.init(s3_server.uri("g"), schema=SCHEMA)
    assert (refused.value.code, refused.value.retryable, refused.value.effect) == ("storage.unsafe", False, "none")
    assert stored_keys(s3_server) == []


def test_clone_to_a_store_without_conditions_leaves_nothing(s3_server: S3Server, tmp_path: Path) -> None:
    with og.init(tmp_path / "g.omni", schema=SCHEMA) as graph:
        s3_server.ignored_headers = CONDITIONS
        with pytest.raises(og.UnsafeStore):
            graph.clone(s3_server.uri("g"))
    assert stored_keys(s3_server) == []


WRITES: dict[str, Callable[[og.Graph], object]] = {
    "mutate": lambda graph: graph.mutate(ADD, {"n": "b"}),
    "load": lambda graph: graph.load([{"type": "P", "data": {"name": "b"}}]),
    "branch": lambda graph: graph.branches.create("x"),
    "schema": lambda graph: graph.schema.apply(SCHEMA.replace("}", " age: I32? }")),
}


@pytest.mark.parametrize("write", WRITES)
def test_first_write_of_a_process_without_conditions_publishes_nothing(s3_server: S3Server, write: str) -> None:
    with og.init(s3_server.uri("g"), schema=SCHEMA) as graph:
        graph.mutate(ADD, {"n": "a"})
    as_another_process()
    s3_server.ignored_headers = CONDITIONS
    with og.open(s3_server.uri("g")) as graph:
        before = graph.branches.list(), graph.commits()
        with pytest.raises(og.UnsafeStore):
            WRITES[write](graph)
        assert (graph.branches.list(), graph.commits()) == before
        assert graph.query(NAMES).rows() == [{"name": "a"}]


def test_readers_of_a_store_without_conditions_are_not_refused(s3_server: S3Server) -> None:
    og.init(s3_server.uri("g"), schema=SCHEMA).close()
    as_another_process()
    s3_server.ignored_headers = CONDITIONS
    with og.open(s3_server.uri("g"), read_only=True) as graph:
        assert graph.query(NAMES).rows() == []


def proofs(server: S3Server) -> list[Request]:
    return [request for request in server.requests if request.key.startswith("g/__endpoints/")]


def test_first_write_of_a_process_proves_conditions_with_one_request(s3_server: S3Server) -> None:
    og.init(s3_server.uri("g"), schema=SCHEMA).close()
    assert [request.condition for request in proofs(s3_server)] == ["*", "*"]
    as_another_process()
    s3_server.forget()
    with og.open(s3_server.uri("g")) as graph:
        graph.mutate(ADD, {"n": "a"})
        graph.mutate(ADD, {"n": "b"})
    with og.open(s3_server.uri("g")) as graph:
        graph.mutate(ADD, {"n": "c"})
    assert [(request.method, request.condition) for request in proofs(s3_server)] == [("PUT", "*")]


def test_proof_is_made_per_endpoint(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    og.init(s3_server.uri("g"), schema=SCHEMA).close()
    s3_server.ignored_headers = CONDITIONS
    # The same server under another name, as a proxy in front of it would be.
    for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"):
        monkeypatch.setenv(name, s3_server.endpoint.replace("127.0.0.1", "localhost"))
    with og.open(s3_server.uri("g")) as graph, pytest.raises(og.UnsafeStore, match="localhost"):
        graph.mutate(ADD, {"n": "a"})


def test_store_that_does_not_implement_conditions_is_refused(s3_server: S3Server) -> None:
    not_there = refuse("501 Not Implemented", "NotImplemented")
    s3_server.fault = lambda request: not_there if request.condition else None
    with pytest.raises(og.UnsafeStore, match="does not implement"):
        og.init(s3_server.uri("g"), schema=SCHEMA)


@pytest.mark.parametrize("fault", [CONFLICT_409, THROTTLE_503], ids=["conflict", "throttled"])
def test_passing_fault_during_the_proof_is_no_refusal(s3_server: S3Server, fault: Fault) -> None:
    faults = [fault]
    s3_server.fault = lambda request: faults.pop() if faults and "__endpoints" in request.key else None
    og.init(s3_server.uri("g"), schema=SCHEMA).close()
    with og.open(s3_server.uri("g")) as graph:
        graph.mutate(ADD, {"n": "a"})
