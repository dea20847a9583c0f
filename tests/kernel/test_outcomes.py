"""What a writer is told when S3 loses its answers: applied once, not applied, or unknown with a name to ask for."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from omnigraph.errors import Effect, GraphError, OmniGraphError, StorageError
from omnigraph.lang.diagnostic import Source
from omnigraph.lang.schema import compile_schema
from omnigraph.manifest import branches
from omnigraph.manifest.create import init
from omnigraph.store.objects.uri import Location
from omnigraph.store.store import Store
from tests.support.examples import IS_LONG, spread
from tests.support.kernel_fixtures import CITY, PERSON, SCHEMA, check_invariants, create, ids_of, insert, open_graph
from tests.support.s3_server import (
    CONFLICT_409,
    DENY_403,
    DROP_AFTER,
    DROP_BEFORE,
    ERROR_500,
    THROTTLE_503,
    Fault,
    Request,
    S3Server,
    s3_server,
)

__all__ = ["s3_server"]

pytestmark = pytest.mark.s3


def is_publish(request: Request) -> bool:
    return request.method == "PUT" and "__manifest/_versions/" in request.key and request.condition == "*"


def first(wanted: Callable[[Request], bool], fault: Fault) -> Callable[[Request], Fault | None]:
    """Return a fault for the first request of a kind, and for no other."""
    left = [fault]
    return lambda request: left.pop() if left and wanted(request) else None


@pytest.mark.parametrize("fault", [DROP_AFTER, DROP_BEFORE, ERROR_500, THROTTLE_503], ids=lambda fault: fault.kind)
def test_publish_whose_answer_is_lost_once_is_applied_exactly_once(s3_server: S3Server, fault: Fault) -> None:
    kernel = create(s3_server.uri("g"))
    insert(kernel, {PERSON: ["a"]})
    s3_server.fault = first(is_publish, fault)
    receipt = insert(kernel, {PERSON: ["b"], CITY: ["x"]})
    kernel.close()
    fresh = open_graph(s3_server.uri("g"))
    assert receipt.commit is not None
    assert fresh.snapshot().head == receipt.commit.commit_id
    assert (ids_of(fresh, PERSON), ids_of(fresh, CITY)) == (["a", "b"], ["x"])
    assert len(list(fresh.history())) == 3
    check_invariants(fresh)
    fresh.close()


@pytest.mark.parametrize("fault", [DROP_AFTER, DROP_BEFORE, ERROR_500], ids=lambda fault: fault.kind)
def test_each_mutating_request_of_a_commit_may_fail_once(s3_server: S3Server, fault: Fault) -> None:
    kernel = create(s3_server.uri("g"))
    insert(kernel, {PERSON: ["a00"]})
    kernel.close()
    s3_server.forget()
    insert(kernel, {PERSON: ["a01"]})
    kernel.close()
    mutations = s3_server.mutations
    assert mutations >= 7
    for place in range(1, mutations + 1):
        s3_server.on_mutation(place, "before" if fault is not DROP_AFTER else "after", lambda _: fault)
        insert(kernel, {PERSON: [f"b{place:02d}"]})
        kernel.close()
    fresh = open_graph(s3_server.uri("g"))
    assert len(ids_of(fresh, PERSON)) == 2 + mutations
    check_invariants(fresh)
    fresh.close()


def silent(wanted: Callable[[Request], bool]) -> Callable[[Request], Fault | None]:
    return lambda request: ERROR_500 if wanted(request) else None


def test_publish_never_answered_is_unknown_and_names_its_operation(s3_server: S3Server) -> None:
    kernel = create(s3_server.uri("g"))
    insert(kernel, {PERSON: ["a"]})
    s3_server.fault = silent(is_publish)
    with pytest.raises(StorageError) as caught:
        insert(kernel, {PERSON: ["b"]})
    assert (caught.value.effect, caught.value.retryable) == (Effect.UNKNOWN, True)
    operation_id = str(caught.value.context["operation_id"])
    assert operation_id in caught.value.message
    s3_server.fault = None
    fresh = open_graph(s3_server.uri("g"))
    assert operation_id not in {one.operation_id for one in fresh.history()}
    insert(kernel, {PERSON: ["c"]})
    assert ids_of(fresh, PERSON) == ["a", "c"]
    kernel.close()
    check_invariants(fresh)
    fresh.close()


def test_publish_applied_before_silence_is_unknown_and_is_in_history(s3_server: S3Server) -> None:
    kernel = create(s3_server.uri("g"))
    insert(kernel, {PERSON: ["a"]})
    kernel.close()
    gone: list[Request] = []

    def fault(request: Request) -> Fault | None:
        if gone:
            return ERROR_500
        if is_publish(request):
            gone.append(request)
            return DROP_AFTER
        return None

    s3_server.fault = fault
    with pytest.raises(StorageError) as caught:
        insert(kernel, {PERSON: ["b"]})
    assert caught.value.effect is Effect.UNKNOWN
    s3_server.fault = None
    fresh = open_graph(s3_server.uri("g"))
    assert caught.value.context["operation_id"] == next(fresh.history()).operation_id
    assert ids_of(fresh, PERSON) == ["a", "b"]
    insert(kernel, {PERSON: ["c"]})
    kernel.close()
    assert ids_of(fresh, PERSON) == ["a", "b", "c"]
    check_invariants(fresh)
    fresh.close()


def test_staging_that_storage_never_answers_is_a_failure_without_effect(s3_server: S3Server) -> None:
    kernel = create(s3_server.uri("g"))
    s3_server.fault = silent(lambda request: request.method == "PUT" and "/nodes/" in request.key)
    with pytest.raises(StorageError) as caught:
        insert(kernel, {PERSON: ["a"]})
    assert caught.value.effect is Effect.NONE
    s3_server.fault = None
    insert(kernel, {PERSON: ["b"]})
    kernel.close()
    fresh = open_graph(s3_server.uri("g"))
    assert ids_of(fresh, PERSON) == ["b"]
    check_invariants(fresh)
    fresh.close()


def test_link_that_fails_in_the_background_is_finished_by_the_next_one(s3_server: S3Server) -> None:
    kernel = create(s3_server.uri("g"))
    s3_server.fault = silent(
        lambda request: request.method == "PUT" and "/nodes/" in request.key and request.condition == "*"
    )
    insert(kernel, {PERSON: ["a"]})
    kernel.close()
    s3_server.fault = None
    reader = open_graph(s3_server.uri("g"), read_only=True)
    assert ids_of(reader, PERSON) == ["a"]
    insert(kernel, {CITY: ["x"]})
    kernel.close()
    fresh = open_graph(s3_server.uri("g"))
    assert ids_of(fresh, PERSON) == ["a"]
    check_invariants(fresh)
    fresh.close()


def test_branch_whose_answers_are_lost_is_created_once(s3_server: S3Server) -> None:
    kernel = create(s3_server.uri("g"))
    s3_server.forget()
    branches.create_branch(kernel, "b0", kernel.snapshot())
    mutations = s3_server.mutations
    for place in range(1, mutations + 1):
        s3_server.on_mutation(place, "after", lambda _: DROP_AFTER)
        branches.create_branch(kernel, f"b{place}", kernel.snapshot())
        insert(kernel, {PERSON: ["a"]}, f"b{place}")
    kernel.close()
    check_invariants(open_graph(s3_server.uri("g")))


def test_init_with_any_answer_lost_makes_one_graph_or_none(s3_server: S3Server) -> None:
    schema = compile_schema(Source("schema.pg", SCHEMA), domain="01ARZ3NDEKTSV4RRFFQ69G5FAV")
    init(Store(Location.parse(s3_server.uri("probe"))), schema)
    mutations = s3_server.mutations
    for place in spread(mutations, None if IS_LONG else 5):
        uri = s3_server.uri(f"g{place}")
        s3_server.on_mutation(place, "after", lambda _: DROP_AFTER)
        try:
            init(Store(Location.parse(uri)), schema)
        except GraphError as error:
            pytest.fail(f"mutation {place}: {error.code}: {error.message}")
        except OmniGraphError:
            init(Store(Location.parse(uri)), schema)
        check_invariants(open_graph(uri))


@pytest.mark.parametrize("fault", [DENY_403, ERROR_500, THROTTLE_503], ids=lambda fault: fault.kind)
def test_fork_that_storage_does_not_list_is_refused_after_few_requests(s3_server: S3Server, fault: Fault) -> None:
    kernel = create(s3_server.uri("g"))
    insert(kernel, {PERSON: ["a"]})
    kernel.close()
    s3_server.fault = lambda one: fault if one.method == "PUT" and "/_refs/branches/" in one.key else None
    s3_server.forget()
    with pytest.raises(StorageError) as caught:
        branches.create_branch(kernel, "x", kernel.snapshot())
    assert (caught.value.effect, caught.value.retryable) == (Effect.NONE, fault is not DENY_403)
    assert len(s3_server.requests) < 60
    s3_server.fault = None
    made = branches.create_branch(kernel, "x", kernel.snapshot())
    insert(kernel, {PERSON: ["b"]}, "x")
    kernel.close()
    fresh = open_graph(s3_server.uri("g"))
    assert ids_of(fresh, PERSON, "x") == ["a", "b"]
    # The fork that the branch names is the one that protects what it reads.
    assert fresh.store.objects.exists(f"__manifest/_refs/branches/{made.branch_id}.json")
    check_invariants(fresh)
    fresh.close()


@pytest.mark.parametrize("conflicts", [1, 2, 6], ids=str)
def test_publish_that_meets_another_conditional_put_is_tried_again(s3_server: S3Server, conflicts: int) -> None:
    kernel = create(s3_server.uri("g"))
    insert(kernel, {PERSON: ["a"]})
    kernel.close()
    left = [CONFLICT_409] * conflicts
    s3_server.fault = lambda request: left.pop() if left and is_publish(request) else None
    receipt = insert(kernel, {PERSON: ["b"]})
    kernel.close()
    assert receipt.commit is not None
    fresh = open_graph(s3_server.uri("g"))
    assert (ids_of(fresh, PERSON), left) == (["a", "b"], [])
    assert len(list(fresh.history())) == 3
    fresh.close()


@pytest.mark.parametrize("fault", [THROTTLE_503, DROP_BEFORE, DENY_403], ids=lambda fault: fault.kind)
def test_catalog_that_storage_does_not_give_out_is_not_called_corrupt(s3_server: S3Server, fault: Fault) -> None:
    kernel = create(s3_server.uri("g"))
    kernel.close()
    s3_server.fault = lambda one: fault if one.method == "GET" and "__manifest/data/" in one.key else None
    with pytest.raises(StorageError) as caught:
        open_graph(s3_server.uri("g")).snapshot()
    assert (caught.value.code, caught.value.retryable) == ("storage.failed", fault is not DENY_403)
