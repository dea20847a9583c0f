"""What a writer is told when the store answers 409, 501 or 507: the kind of failure, and whether a retry helps."""

from __future__ import annotations

import pytest

import tests.support.s3_server
from omnigraph.errors import Effect, StorageError, StorageKind
from omnigraph.manifest import branches
from omnigraph.manifest.kernel import Kernel
from tests.support.kernel_fixtures import PERSON, create, ids_of, insert
from tests.support.s3_server import CONFLICT_409, Fault, Request, S3Server, refuse

pytestmark = pytest.mark.s3
s3_server = tests.support.s3_server.s3_server

LACKING_501 = refuse("501 Not Implemented", "NotImplemented")
FULL_507 = refuse("507 Insufficient Storage", "XMinioStorageFull")


@pytest.fixture
def kernel(s3_server: S3Server) -> Kernel:
    return create(s3_server.uri("g"))


def is_publish(request: Request) -> bool:
    return bool(request.condition) and request.key.startswith("g/__manifest/_versions/")


def refuse_publishes(server: S3Server, fault: Fault) -> None:
    server.fault = lambda request: fault if is_publish(request) else None


def test_conflict_while_a_branch_is_listed_is_retryable(s3_server: S3Server, kernel: Kernel) -> None:
    s3_server.fault = lambda request: CONFLICT_409 if request.condition and "_refs/branches" in request.key else None
    with pytest.raises(StorageError, match="try again") as refused:
        branches.create_branch(kernel, "x", kernel.snapshot())
    assert (refused.value.storage_kind, refused.value.effect) == (StorageKind.TRANSIENT, Effect.NONE)
    s3_server.fault = None
    branches.create_branch(kernel, "x", kernel.snapshot())
    kernel.close()


def test_publish_that_the_store_lacks_has_no_effect_and_no_retry(s3_server: S3Server, kernel: Kernel) -> None:
    refuse_publishes(s3_server, LACKING_501)
    with pytest.raises(StorageError, match="lacks the operation") as refused:
        insert(kernel, {PERSON: ["a"]})
    assert (refused.value.storage_kind, refused.value.effect) == (StorageKind.PERMANENT, Effect.NONE)
    s3_server.fault = None
    assert ids_of(kernel, PERSON) == []
    kernel.close()


def test_publish_to_a_full_store_is_not_retryable(s3_server: S3Server, kernel: Kernel) -> None:
    refuse_publishes(s3_server, FULL_507)
    with pytest.raises(StorageError, match="is full") as refused:
        insert(kernel, {PERSON: ["a"]})
    # The client repeats a request by itself, so an earlier one may still arrive.
    assert (refused.value.storage_kind, refused.value.effect) == (StorageKind.FULL, Effect.UNKNOWN)
    assert not refused.value.retryable
    kernel.close()


def test_write_to_a_full_store_is_of_kind_full(s3_server: S3Server, kernel: Kernel) -> None:
    s3_server.fault = lambda request: FULL_507 if request.method == "PUT" and "nodes" in request.key else None
    with pytest.raises(StorageError, match="is full") as refused:
        insert(kernel, {PERSON: ["a"]})
    assert (refused.value.storage_kind, refused.value.effect) == (StorageKind.FULL, Effect.NONE)
    kernel.close()
