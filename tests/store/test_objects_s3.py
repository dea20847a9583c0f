"""Objects in S3 when storage fails: what is tried again, what is refused, and what the error says."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from obstore import exceptions

import tests.support.s3_server
from omnigraph.errors import Effect, StorageError, StorageKind
from omnigraph.store.objects import uri
from omnigraph.store.objects.bucket_objects import from_client_error
from omnigraph.store.objects.control_objects import Objects
from omnigraph.store.objects.schemes import STORES
from omnigraph.store.objects.uri import Location
from tests.support.s3_server import (
    CONFLICT_409,
    DENY_403,
    DROP_AFTER,
    DROP_BEFORE,
    ERROR_500,
    EXPIRED_400,
    THROTTLE_503,
    Fault,
    Request,
    S3Server,
)

s3_server = tests.support.s3_server.s3_server


@pytest.fixture
def bucket(s3_server: S3Server) -> Objects:
    return Objects(Location.parse(s3_server.uri("g")))


def first_only(fault: Fault) -> Callable[[Request], Fault | None]:
    """Return a fault that befalls the next request alone."""
    remaining = [fault]
    return lambda _: remaining.pop() if remaining else None


@pytest.mark.s3
@pytest.mark.parametrize("fault", [ERROR_500, THROTTLE_503, DROP_BEFORE, DROP_AFTER], ids=lambda fault: str(fault.kind))
def test_s3_single_fault_is_retried(s3_server: S3Server, bucket: Objects, fault: Fault) -> None:
    for operation in (
        lambda: bucket.write("a", b"x"),
        lambda: bucket.read("a"),
        lambda: bucket.exists("a"),
        lambda: bucket.list(""),
        lambda: bucket.delete("a"),
    ):
        s3_server.fault = first_only(fault)
        operation()
    assert not bucket.exists("a")


@pytest.mark.s3
@pytest.mark.parametrize("fault", [ERROR_500, THROTTLE_503, DROP_BEFORE, DROP_AFTER], ids=lambda fault: str(fault.kind))
def test_s3_write_if_absent_winner_knows_in_spite_of_a_fault(
    s3_server: S3Server, bucket: Objects, fault: Fault
) -> None:
    s3_server.fault = first_only(fault)
    assert bucket.write_if_absent("a", b"same") is True
    s3_server.fault = first_only(fault)
    assert bucket.write_if_absent("a", b"same") is False


@pytest.mark.s3
@pytest.mark.parametrize("fault", [ERROR_500, DROP_AFTER], ids=lambda fault: str(fault.kind))
def test_s3_lasting_fault_is_transient(s3_server: S3Server, bucket: Objects, fault: Fault) -> None:
    s3_server.fault = lambda _: fault
    operations: dict[str, Callable[[], object]] = {
        "read": lambda: bucket.read("a"),
        "write": lambda: bucket.write("a", b"x"),
        "write_if_absent": lambda: bucket.write_if_absent("b", b"x"),
    }
    for operation in operations.values():
        s3_server.forget()
        with pytest.raises(StorageError, match="try again") as caught:
            operation()
        assert caught.value.storage_kind is StorageKind.TRANSIENT
        assert caught.value.retryable
        assert len(s3_server.requests) == 1 + uri.RETRIES_MAX
        # What became of an object says nothing about the graph; only the publish does.
        assert caught.value.effect is Effect.NONE


@pytest.mark.s3
def test_s3_conditional_put_that_meets_another_request_tries_again(s3_server: S3Server, bucket: Objects) -> None:
    s3_server.fault = first_only(CONFLICT_409)
    assert bucket.write_if_absent("a", b"x") is True
    assert bucket.read("a") == b"x"
    s3_server.fault = lambda request: CONFLICT_409 if request.method == "PUT" else None
    with pytest.raises(StorageError, match="under way") as caught:
        bucket.write_if_absent("b", b"x")
    assert caught.value.retryable
    assert bucket.write_if_absent("a", b"x") is False


@pytest.mark.s3
@pytest.mark.parametrize(
    ("fault", "words"), [(DENY_403, "AWS_ACCESS_KEY_ID"), (EXPIRED_400, "AWS_SESSION_TOKEN")], ids=["403", "400"]
)
def test_s3_refused_request_names_the_setting(s3_server: S3Server, bucket: Objects, fault: Fault, words: str) -> None:
    s3_server.fault = lambda _: fault
    operations: list[Callable[[], object]] = [
        lambda: bucket.read("a"),
        lambda: bucket.exists("a"),
        lambda: bucket.write("a", b"x"),
        lambda: bucket.list("x"),
        lambda: bucket.delete("a"),
    ]
    for operation in operations:
        with pytest.raises(StorageError, match=words) as caught:
            operation()
        assert (caught.value.storage_kind, caught.value.retryable) == (StorageKind.CONFIGURATION, False)


@pytest.mark.s3
def test_s3_missing_bucket_is_named(s3_server: S3Server) -> None:
    objects = Objects(Location.parse("s3://no-such-bucket/g"))
    for operation in (lambda: objects.write("a", b"x"), lambda: objects.list(""), lambda: objects.read("a")):
        with pytest.raises(StorageError, match="no such bucket") as caught:
            operation()
        assert (caught.value.storage_kind, caught.value.retryable) == (StorageKind.CONFIGURATION, False)


@pytest.mark.s3
def test_s3_nobody_listens_is_transient(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:9")
    with pytest.raises(StorageError, match="AWS_ENDPOINT_URL") as caught:
        Objects(Location.parse("s3://graphs/g")).exists("a")
    assert caught.value.storage_kind is StorageKind.TRANSIENT


# The test server accepts any credentials, so these answers are judged by the exception that stands for them.
@pytest.mark.parametrize(
    ("error", "kind", "words"),
    [
        (FileNotFoundError(), StorageKind.NOT_FOUND, "bucket"),
        (exceptions.PermissionDeniedError(), StorageKind.CONFIGURATION, "AWS_ACCESS_KEY_ID"),
        (exceptions.UnauthenticatedError(), StorageKind.CONFIGURATION, "AWS_SECRET_ACCESS_KEY"),
        (exceptions.UnknownConfigurationKeyError(), StorageKind.CONFIGURATION, "setting"),
        (exceptions.AlreadyExistsError(), StorageKind.PRECONDITION, "exists"),
        (exceptions.PreconditionError(), StorageKind.PRECONDITION, "read it again"),
        (exceptions.NotModifiedError(), StorageKind.PRECONDITION, "did not change"),
        (exceptions.NotSupportedError(), StorageKind.PERMANENT, "lacks the operation"),
        (exceptions.InvalidPathError(), StorageKind.PERMANENT, "name"),
        (exceptions.GenericError("403 permission denied"), StorageKind.TRANSIENT, "try again"),
        (exceptions.JoinError(), StorageKind.UNKNOWN, "unforeseen"),
        (ValueError(), StorageKind.UNKNOWN, "unforeseen"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else None,
)
def test_from_client_error_judges_by_type(error: Exception, kind: StorageKind, words: str) -> None:
    found = from_client_error(error, "write", "s3://lake/g/a", STORES["s3"])
    assert (found.storage_kind, found.effect, found.context["object"]) == (kind, Effect.NONE, "s3://lake/g/a")
    assert words in found.message
