"""Addresses: what users write, and what the storage clients get."""

from __future__ import annotations

import os
from pathlib import Path

import lance
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import omnigraph as og
import tests.support.s3_server
from omnigraph.errors import UsageError
from omnigraph.limits import PUBLISH_DEADLINE_SECONDS
from omnigraph.settings import SETTINGS
from omnigraph.store.objects import client_settings, uri
from omnigraph.store.objects.schemes import FORMS, REMOTE, STORES
from omnigraph.store.objects.uri import Location
from tests.support.s3_server import THROTTLE_503, Fault, Request, S3Server

s3_server = tests.support.s3_server.s3_server


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(("AWS_", "GOOGLE_", "AZURE_")):
            monkeypatch.delenv(name)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/a/b", "/a/b"),
        ("/a/b/", "/a/b"),
        ("/a/./x/../b", "/a/b"),
        ("/a//b", "/a/b"),
        ("file:///a/b", "/a/b"),
        ("FILE:///a/b", "/a/b"),
        ("file:///a%20b/c%23", "/a b/c#"),
        ("file:///a/../b", "/b"),
        ("/a/50%25 #1?", "/a/50%25 #1?"),
        ("/été", "/été"),
    ],
)
def test_parse_local_address_is_an_absolute_path(text: str, expected: str) -> None:
    location = Location.parse(text)
    assert (location.has_paths, location.uri, location.path) == (True, expected, expected)


def test_parse_relative_path_starts_at_the_current_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert Location.parse("g.omni").path == f"{tmp_path}/g.omni"
    assert Location.parse("../g").path == f"{tmp_path.parent}/g"
    assert Location.parse("a:b").path == f"{tmp_path}/a:b"


def test_parse_tilde_is_the_home_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ada")
    assert Location.parse("~/g").path == "/home/ada/g"


@pytest.mark.parametrize(
    ("text", "bucket", "key"),
    [
        ("s3://lake", "lake", ""),
        ("s3://lake/", "lake", ""),
        ("s3://lake/a/b/", "lake", "a/b"),
        ("S3://lake/a", "lake", "a"),
        ("s3://my.lake-1/a=1/b_c", "my.lake-1", "a=1/b_c"),
    ],
)
def test_parse_s3_address_has_bucket_and_key(text: str, bucket: str, key: str) -> None:
    location = Location.parse(text)
    assert (location.has_paths, location.bucket, location.path) == (False, bucket, key)
    assert location.uri == f"s3://{bucket}/{key}".rstrip("/")


@pytest.mark.parametrize(
    ("text", "bucket", "key"),
    [
        ("gs://lake", "lake", ""),
        ("GS://my_lake.example.org/a/b/", "my_lake.example.org", "a/b"),
        ("az://lake-1/a=1/b", "lake-1", "a=1/b"),
        ("Az://lake", "lake", ""),
    ],
)
def test_parse_address_of_another_store_has_bucket_and_key(text: str, bucket: str, key: str) -> None:
    location = Location.parse(text)
    assert (location.has_paths, location.bucket, location.path) == (False, bucket, key)
    assert location.uri == f"{text[:2].lower()}://{bucket}/{key}".rstrip("/")
    assert location.child("x").parent == location


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("gcs://lake/g", "`gs://bucket/prefix` for Google"),
        ("azure://lake/g", "`az://container/prefix` for Azure"),
        ("abfss://lake@account.dfs.core.windows.net/g", "`az://container/prefix` for Azure"),
        ("wasbs://lake@account.blob.core.windows.net/g", "`az://container/prefix` for Azure"),
        ("s3a://lake/g", "`s3://bucket/prefix` for S3"),
    ],
)
def test_parse_spelling_of_another_tool_is_refused_with_ours(text: str, form: str) -> None:
    with pytest.raises(UsageError, match=f"which is not supported; write {form}"):
        Location.parse(text)


def test_contains_tells_stores_apart() -> None:
    assert not Location.parse("gs://lake").contains(Location.parse("s3://lake/g"))
    assert Location.parse("az://lake").contains(Location.parse("az://lake/g"))


@pytest.mark.parametrize("text", ["http://host/g", "https://host", "HTTP://host"])
def test_parse_server_address_points_to_the_server_option(text: str) -> None:
    with pytest.raises(UsageError, match="--server"):
        Location.parse(text)


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            "   ",
            "gcs://b/p",
            "abfss://c@account.dfs.core.windows.net/p",
            "s3a://b/p",
            "memory://",
            "s3://",
            "s3:///k",
            "s3:/b/k",
            "s3:b",
            "s3://B_/k",
            "s3://my_lake/k",
            "az://a--b/k",
            "az://a.b/k",
            "az:/c/k",
            "gs:///k",
            "gs://lake/a//b",
        ),
        *("s3://lake/a//b", "s3://lake/../b", "s3://lake/a%20b", "s3://lake/a b", "s3://lake/a?x", "s3://lake/ü"),
        *(
            "file://host/a",
            "file:a",
            "file:/a",
            "file://",
            "file:///a?b",
            "file:///a#b",
            "file:///a%00b",
            "file:///%ff",
        ),
        *("/a\0b", "/a\nb", "/a\ud800"),
    ],
)
def test_parse_other_address_is_refused_with_the_supported_forms(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        Location.parse(text)
    assert FORMS in caught.value.message
    assert caught.value.message.encode("utf-8")


@given(st.text())
def test_parse_any_text_is_a_location_or_a_usage_error(text: str) -> None:
    try:
        location = Location.parse(text)
    except UsageError:
        return
    assert Location.parse(location.uri) == location


def test_child_and_name_follow_the_path() -> None:
    assert Location.parse("/g").child("nodes", "a").uri == "/g/nodes/a"
    assert Location.parse("/").child("g").uri == "/g"
    assert Location.parse("s3://lake").child("nodes/a").uri == "s3://lake/nodes/a"
    assert [Location.parse(text).name for text in ("/a/g", "s3://lake/g", "s3://lake")] == ["g", "g", "lake"]


@pytest.mark.parametrize("name", ["a b", "a%20b", "a#b", "a?b", "ü", "a[1]~", "a:b", "a*b"])
def test_uri_unusual_local_name_is_one_that_lance_takes_literally(tmp_path: Path, name: str) -> None:
    location = Location.parse(f"{tmp_path}/{name}").child("t")
    lance.write_dataset(pa.table({"a": [1]}), location.uri)
    assert (tmp_path / name / "t" / "_versions").is_dir()


def test_lance_options_local_are_empty() -> None:
    assert Location.parse("/g").lance_options() == {}


def test_lance_options_without_settings_leave_credentials_to_the_client() -> None:
    options = Location.parse("s3://lake/g").lance_options()
    assert options["aws_region"] == "us-east-1"
    assert not [name for name in options if "key" in name or "token" in name or "endpoint" in name]


def test_lance_options_carry_every_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "AWS_REGION": "eu-west-1",
        "AWS_ACCESS_KEY_ID": "id",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_SESSION_TOKEN": "token",
        "AWS_ENDPOINT_URL": "http://general",
        "AWS_ENDPOINT_URL_S3": "http://special",
        "AWS_S3_FORCE_PATH_STYLE": "true",
        "AWS_ALLOW_HTTP": "true",
    }.items():
        monkeypatch.setenv(name, value)
    assert client_settings.s3_options() == {
        "aws_region": "eu-west-1",
        "aws_access_key_id": "id",
        "aws_secret_access_key": "secret",
        "aws_session_token": "token",
        "aws_endpoint": "http://special",
        "aws_virtual_hosted_style_request": "false",
        "allow_http": "true",
    }
    assert client_settings.s3_options().items() <= Location.parse("s3://lake/g").lance_options().items()


def test_lance_options_of_google_carry_every_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in STORES["gs"].settings:
        monkeypatch.setenv(name, f"value of {name}")
    monkeypatch.setenv("GOOGLE_BASE_URL", "http://127.0.0.1:4443/")
    monkeypatch.setenv("GOOGLE_ALLOW_HTTP", "true")
    assert client_settings.gcs_options() == {
        "google_application_credentials": "value of GOOGLE_APPLICATION_CREDENTIALS",
        "google_service_account": "value of GOOGLE_SERVICE_ACCOUNT",
        "google_service_account_key": "value of GOOGLE_SERVICE_ACCOUNT_KEY",
        "google_bearer_token": "value of GOOGLE_BEARER_TOKEN",
        "google_base_url": "http://127.0.0.1:4443",
        "allow_http": "true",
    }
    assert client_settings.gcs_options().items() <= Location.parse("gs://lake/g").lance_options().items()


def test_lance_options_of_azure_carry_every_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in STORES["az"].settings:
        monkeypatch.setenv(name, f"value of {name}")
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "lake")
    monkeypatch.setenv("AZURE_STORAGE_ENDPOINT", "https://store.example.org")
    monkeypatch.setenv("AZURE_STORAGE_USE_EMULATOR", "false")
    monkeypatch.setenv("AZURE_ALLOW_HTTP", "false")
    options = Location.parse("az://lake/g").lance_options()
    plain = ("KEY", "SAS_TOKEN", "TOKEN", "ID", "SECRET", "FILE")
    carried = [name for name in STORES["az"].settings if name.endswith(plain)]
    names = {"AZURE_STORAGE_ACCOUNT_KEY": "azure_storage_account_key"}
    assert {options[names.get(name, name.lower())] for name in carried} == {f"value of {name}" for name in carried}
    assert len(carried) == 7
    assert (options["azure_storage_account_name"], options["azure_storage_endpoint"]) == (
        "lake",
        "https://store.example.org",
    )
    assert "allow_http" not in options


def test_lance_options_of_the_azure_emulator_need_no_other_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_STORAGE_USE_EMULATOR", "true")
    options = Location.parse("az://lake/g").lance_options()
    assert options["azure_storage_endpoint"] == "http://127.0.0.1:10000/devstoreaccount1"
    assert (options["azure_storage_account_name"], options["allow_http"]) == ("devstoreaccount1", "true")
    # The clients' own mode would forget the endpoint.
    assert options["azure_storage_use_emulator"] == "false"


@pytest.mark.parametrize("name", ["", "Lake", "a/b", "lake.blob.core.windows.net"])
def test_lance_options_of_azure_need_an_account(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", name)
    with pytest.raises(UsageError, match="AZURE_STORAGE_ACCOUNT_NAME"):
        Location.parse("az://lake/g").lance_options()


@pytest.mark.parametrize(("address", "name"), [("gs://lake/g", "GOOGLE"), ("az://lake/g", "AZURE")])
def test_endpoint_of_another_store_without_tls_needs_consent(
    address: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "lake")
    monkeypatch.setenv(STORES[address[:2]].endpoint_setting, "http://127.0.0.1:9000")
    with pytest.raises(UsageError, match=f"{name}_ALLOW_HTTP=true"):
        Location.parse(address).lance_options()
    monkeypatch.setenv(STORES[address[:2]].endpoint_setting, "127.0.0.1:9000")
    with pytest.raises(UsageError, match=STORES[address[:2]].endpoint_setting):
        Location.parse(address).lance_options()


def test_hints_of_a_store_name_settings_of_its_own() -> None:
    for kind in REMOTE:
        hints = {*kind.credential_settings, kind.endpoint_setting, kind.place_setting}
        assert hints <= set(kind.settings)
    assert {setting.scheme for setting in SETTINGS.values()} == {"", *(kind.scheme for kind in REMOTE)}


def test_secret_settings_are_all_known_to_be_such() -> None:
    words = ("SECRET", "TOKEN", "_KEY", "SAS")
    # Names of files, of a rejected setting, of a public half, and of what is no credential.
    public = {"AWS_ACCESS_KEY_ID", "AZURE_FEDERATED_TOKEN_FILE", "OMNIGRAPH_SERVER_BEARER_TOKENS_FILE"}
    public.add("OMNIGRAPH_SERVER_BEARER_TOKENS_AWS_SECRET")
    named = {name for name in SETTINGS if any(word in name for word in words)} - public
    assert named == {setting.name for setting in SETTINGS.values() if setting.is_secret}


def test_lance_options_end_a_request_before_the_publish_deadline() -> None:
    # Between tries the client pauses 0.1 s at first and at most twice as long each time.
    longest_pause = 0.1 * 2**uri.RETRIES_MAX
    assert uri.RETRY_TIMEOUT_SECONDS + longest_pause + uri.REQUEST_TIMEOUT_SECONDS < PUBLISH_DEADLINE_SECONDS
    options = Location.parse("s3://lake/g").lance_options()
    assert options["timeout"] == f"{uri.REQUEST_TIMEOUT_SECONDS}s"
    assert options["client_retry_timeout"] == str(uri.RETRY_TIMEOUT_SECONDS)


def test_s3_options_endpoint_without_tls_needs_consent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9000")
    with pytest.raises(UsageError, match="AWS_ALLOW_HTTP=true"):
        client_settings.s3_options()


@pytest.mark.parametrize("name", ["AWS_ALLOW_HTTP", "AWS_S3_FORCE_PATH_STYLE"])
def test_s3_options_flag_that_is_neither_true_nor_false_is_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "perhaps")
    with pytest.raises(UsageError, match=name):
        client_settings.s3_options()


@pytest.mark.s3
def test_lance_options_throttled_commit_is_tried_as_often_as_they_say(s3_server: S3Server) -> None:
    location = Location.parse(s3_server.uri("t"))
    options = location.lance_options()
    dataset = lance.write_dataset(pa.table({"a": [1]}), location.uri, storage_options=options)
    operation = lance.LanceOperation.Overwrite(pa.schema({"a": pa.int64()}), [])

    def throttle_commits(request: Request) -> Fault | None:
        return THROTTLE_503 if request.condition else None

    s3_server.fault = throttle_commits
    with pytest.raises(OSError, match="Slow"):
        lance.LanceDataset.commit(dataset, lance.Transaction(1, operation), max_retries=0, storage_options=options)
    tries = [request for request in s3_server.requests if request.condition and request.key.endswith(".manifest")]
    assert len(tries) == 1 + 1 + uri.RETRIES_MAX  # the first created the dataset


def host_style(monkeypatch: pytest.MonkeyPatch, endpoint: str) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", endpoint)
    monkeypatch.setenv("AWS_S3_FORCE_PATH_STYLE", "false")
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")


@pytest.mark.parametrize(
    ("endpoint", "address"),
    [
        ("https://s3.example.org", "https://lake.s3.example.org"),
        ("http://store:9000/", "http://lake.store:9000"),
        ("https://lake.s3.example.org", "https://lake.s3.example.org"),
    ],
)
def test_host_style_puts_the_bucket_before_the_host(
    monkeypatch: pytest.MonkeyPatch, endpoint: str, address: str
) -> None:
    host_style(monkeypatch, endpoint)
    options = Location.parse("s3://lake/other/x.omni").lance_options()
    assert options["aws_endpoint"] == address
    assert options["aws_virtual_hosted_style_request"] == "true"


@pytest.mark.parametrize("endpoint", ["http://127.0.0.1:9000", "http://[::1]:9000", "https://store.example.org/s3"])
def test_host_style_without_a_host_name_is_refused(monkeypatch: pytest.MonkeyPatch, endpoint: str) -> None:
    host_style(monkeypatch, endpoint)
    with pytest.raises(UsageError, match="AWS_S3_FORCE_PATH_STYLE=true"):
        Location.parse("s3://lake/other/x.omni").lance_options()


@pytest.mark.s3
def test_host_style_sends_both_clients_to_the_host_of_the_bucket(
    monkeypatch: pytest.MonkeyPatch, s3_server: S3Server
) -> None:
    host_style(monkeypatch, s3_server.endpoint)
    for work in (lambda address: og.init(address, "node P { name: String @key }"), og.open):
        with pytest.raises(UsageError, match="AWS_S3_FORCE_PATH_STYLE"):
            work("s3://lake/graphs/x.omni")
    assert s3_server.requests == []
