"""What a user hears whose settings for S3 are wrong: which one it is, and that trying again does not help."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.errors import OmniGraphError, StorageError, UsageError
from omnigraph.store import dataset_cache
from omnigraph.store.objects import uri
from tests.support.s3_server import Fault, S3Server, refuse, s3_server

__all__ = ["s3_server"]

pytestmark = pytest.mark.s3

SCHEMA = "node Person { name: String @key }"


def opened(address: str) -> object:
    return og.open(address)


def made(address: str) -> object:
    return og.init(address, SCHEMA)


BOTH = pytest.mark.parametrize("work", [opened, made])


# Lance repeats its first listing some times before it gives up, so that an open takes two seconds.
@BOTH
@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (refuse("403 Forbidden", "InvalidAccessKeyId"), "AWS_ACCESS_KEY_ID"),
        (refuse("403 Forbidden", "SignatureDoesNotMatch"), "AWS_SECRET_ACCESS_KEY"),
        (refuse("403 Forbidden", "AccessDenied"), "permission denied"),
        (refuse("403 Forbidden", "RequestTimeTooSkewed"), "clock"),
        (refuse("400 Bad Request", "ExpiredToken"), "AWS_SESSION_TOKEN"),
        (refuse("400 Bad Request", "AuthorizationHeaderMalformed"), "AWS_REGION"),
        (refuse("301 Moved Permanently", "PermanentRedirect"), "AWS_REGION"),
    ],
    ids=lambda one: one.answer[1] if isinstance(one, Fault) and one.answer else None,
)
def test_refusal_of_the_store_names_the_setting(
    s3_server: S3Server, work: Callable[[str], object], fault: Fault, words: str
) -> None:
    s3_server.fault = lambda _: fault
    with pytest.raises(StorageError, match=words) as caught:
        work(s3_server.uri("g"))
    assert (caught.value.context["kind"], caught.value.retryable) == ("configuration", False)


@BOTH
def test_missing_bucket_is_named(s3_server: S3Server, work: Callable[[str], object]) -> None:
    with pytest.raises(StorageError, match="no such bucket") as caught:
        work("s3://no-such-bucket/g")
    assert (caught.value.context["kind"], caught.value.retryable) == ("configuration", False)


@BOTH
def test_store_that_does_not_run_is_told_as_such(
    s3_server: S3Server, work: Callable[[str], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uri, "RETRIES_MAX", 0)
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:9")
    with pytest.raises(StorageError, match="AWS_ENDPOINT_URL") as caught:
        work("s3://graphs/g")
    assert caught.value.retryable


@BOTH
@pytest.mark.parametrize(
    "endpoint",
    [
        "127.0.0.1:9000",
        "localhost",
        "ftp://host",
        "http://",
        "http://host:0",
        "http://host:99999",
        "http://a b",
        "://x",
    ],
)
def test_endpoint_that_is_no_address_is_a_usage_error(
    work: Callable[[str], object], endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", endpoint)
    with pytest.raises(UsageError, match="AWS_ENDPOINT_URL_S3") as caught:
        work("s3://graphs/g")
    assert caught.value.context["value"] == endpoint


def test_scheme_in_capitals_is_the_same_scheme(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", s3_server.endpoint.replace("http", "HTTP"))
    made(s3_server.uri("g"))
    monkeypatch.setenv("AWS_ALLOW_HTTP", "false")
    with pytest.raises(UsageError, match="AWS_ALLOW_HTTP"):
        opened(s3_server.uri("g"))


@pytest.mark.slow
def test_endpoint_that_says_nothing_is_given_up_after_one_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dataset_cache, "OPEN_SECONDS_MAX", 1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        for name, value in S3Server().settings(f"http://127.0.0.1:{silent.getsockname()[1]}").items():
            monkeypatch.setenv(name, value)
        with pytest.raises(OmniGraphError, match="within 1 seconds") as caught:
            opened("s3://graphs/g")
    assert caught.value.retryable


@BOTH
def test_machine_without_ca_certificates_is_told_so(
    work: Callable[[str], object], s3_server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a container without `ca-certificates`: the client cannot even be made, also for plain HTTP."""
    (tmp_path / "none.pem").touch()
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "none.pem"))
    monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path))
    with pytest.raises(StorageError, match="install `ca-certificates`, or set SSL_CERT_FILE") as caught:
        work("s3://graphs/g")
    assert (caught.value.storage_kind.value, caught.value.effect.value) == ("configuration", "none")
    assert not caught.value.retryable
