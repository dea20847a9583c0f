"""Settings of storage clients as options: what the `AWS_*`, `GOOGLE_*` and `AZURE_*` variables say of each store.

Both clients, ours and the one inside Lance, take the same names of options. Nothing is opened here.
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import urlsplit

from omnigraph import settings
from omnigraph.errors import UsageError

_UNUSABLE = re.compile(r"[\s\\<>\"{}|^`\x00-\x1f\x7f]|[^\x00-\x7f]")
# An IPv4 or IPv6 address: no bucket name can stand before it.
_ADDRESS = re.compile(r"[0-9.]+|.*:.*")
_ACCOUNT = re.compile(r"[a-z0-9]{3,24}")

# The account of the Azure emulator and its published key.
_EMULATOR_ACCOUNT: Final = "devstoreaccount1"
_EMULATOR_KEY: Final = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
_EMULATOR_ENDPOINT: Final = "http://127.0.0.1:10000/devstoreaccount1"


def s3_bucket_options(bucket: str) -> dict[str, str]:
    """Return the options for a bucket of S3; with host names if that is asked for.

    With `aws_virtual_hosted_style_request` the clients take the endpoint for that of the bucket. Without the bucket
    in it, the first segment of the key would be the bucket.
    """
    options = s3_options()
    if options.get("aws_virtual_hosted_style_request") == "true" and "aws_endpoint" in options:
        options["aws_endpoint"] = _bucket_endpoint(options["aws_endpoint"], bucket)
    return options


def s3_options() -> dict[str, str]:
    """Return what the `AWS_*` settings say, under the names that object store clients use."""
    endpoint = _s3_endpoint()
    path_style = _flag("AWS_S3_FORCE_PATH_STYLE")
    return _options(
        *("AWS_REGION", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"),
        aws_endpoint=endpoint,
        aws_virtual_hosted_style_request="" if path_style is None else str(not path_style).lower(),
        allow_http=_allow_http("AWS_ALLOW_HTTP", endpoint),
    )


def s3_endpoint_name() -> str:
    """Return the address that requests go to, without credentials; that of AWS S3 if none is set."""
    return _public(_s3_endpoint() or f"https://s3.{settings.read('AWS_REGION') or 'us-east-1'}.amazonaws.com")


def _s3_endpoint() -> str:
    return _endpoint("AWS_ENDPOINT_URL_S3" if settings.read("AWS_ENDPOINT_URL_S3") else "AWS_ENDPOINT_URL")


def _bucket_endpoint(endpoint: str, bucket: str) -> str:
    parts = urlsplit(endpoint)
    host = parts.hostname or ""
    if host.startswith(f"{bucket}."):
        return endpoint
    if _ADDRESS.fullmatch(host) or parts.path.strip("/"):
        raise UsageError(
            f"AWS_S3_FORCE_PATH_STYLE is `false`, but the bucket `{bucket}` cannot stand before the host of"
            f" `{endpoint}`; set AWS_S3_FORCE_PATH_STYLE=true, or give an endpoint with a host name and without a path",
            setting="AWS_S3_FORCE_PATH_STYLE",
            value="false",
        )
    user, separator, address = parts.netloc.rpartition("@")
    return f"{parts.scheme}://{user}{separator}{bucket}.{address}"


def gcs_options(_bucket: str = "") -> dict[str, str]:
    """Return what the `GOOGLE_*` settings say, under the names that object store clients use."""
    endpoint = _endpoint("GOOGLE_BASE_URL")
    return _options(
        "GOOGLE_APPLICATION_CREDENTIALS",
        "GOOGLE_SERVICE_ACCOUNT",
        "GOOGLE_SERVICE_ACCOUNT_KEY",
        "GOOGLE_BEARER_TOKEN",
        google_base_url=endpoint.rstrip("/"),
        allow_http=_allow_http("GOOGLE_ALLOW_HTTP", endpoint),
    )


def gcs_endpoint_name() -> str:
    """Return the address that requests go to; that of Google Cloud Storage if none is set."""
    return _public(_endpoint("GOOGLE_BASE_URL") or "https://storage.googleapis.com")


def azure_options(_container: str = "") -> dict[str, str]:
    """Return what the `AZURE_*` settings say, under the names that object store clients use.

    Raises `UsageError` without a storage account: an address names its container alone.
    """
    endpoint, is_emulator = _azure_endpoint(), bool(_flag("AZURE_STORAGE_USE_EMULATOR"))
    account, key = settings.read("AZURE_STORAGE_ACCOUNT_NAME"), settings.read("AZURE_STORAGE_ACCOUNT_KEY")
    if is_emulator:
        account, key = account or _EMULATOR_ACCOUNT, key or _EMULATOR_KEY
    if not _ACCOUNT.fullmatch(account):
        reason = f"is `{account}`, which no account is called" if account else "is not set"
        raise UsageError(
            f"AZURE_STORAGE_ACCOUNT_NAME {reason}; set it to the storage account of the container, with its key in"
            " AZURE_STORAGE_ACCOUNT_KEY or a token in AZURE_STORAGE_SAS_TOKEN",
            setting="AZURE_STORAGE_ACCOUNT_NAME",
            value=account,
        )
    return _options(
        *("AZURE_STORAGE_SAS_TOKEN", "AZURE_STORAGE_TOKEN", "AZURE_CLIENT_ID", "AZURE_CLIENT_SECRET"),
        *("AZURE_TENANT_ID", "AZURE_FEDERATED_TOKEN_FILE"),
        azure_storage_account_name=account,
        azure_storage_account_key=key,
        azure_storage_endpoint=endpoint,
        # What it stands for is spelled out above: by themselves, the clients would forget the endpoint.
        azure_storage_use_emulator="false",
        allow_http="true" if is_emulator else _allow_http("AZURE_ALLOW_HTTP", endpoint),
    )


def azure_endpoint_name() -> str:
    """Return the address that requests go to; that of the account if none is set."""
    return _public(_azure_endpoint() or f"https://{settings.read('AZURE_STORAGE_ACCOUNT_NAME')}.blob.core.windows.net")


def _azure_endpoint() -> str:
    endpoint = _endpoint("AZURE_STORAGE_ENDPOINT")
    return endpoint or (_EMULATOR_ENDPOINT if _flag("AZURE_STORAGE_USE_EMULATOR") else "")


def _options(*names: str, **others: str) -> dict[str, str]:
    """Return the options that have the names of settings, and others, as far as they are set."""
    options = {name.lower(): settings.read(name) for name in names} | others
    return {name: value for name, value in options.items() if value}


def _public(endpoint: str) -> str:
    parts = urlsplit(endpoint)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path.rstrip('/')}"


def _allow_http(name: str, endpoint: str) -> str:
    is_allowed = _flag(name)
    if endpoint.startswith("http://") and not is_allowed:
        raise UsageError(
            f"the endpoint `{_public(endpoint)}` has no TLS; set {name}=true to use it, or give an https:// address",
            setting=name,
        )
    return "true" if is_allowed else ""


def _endpoint(name: str) -> str:
    """Return the address of a store; one that the clients cannot parse would make them panic."""
    text = settings.read(name)
    if not text:
        return ""
    try:
        parts = urlsplit(text)
        is_usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        is_usable = is_usable and not (parts.query or parts.fragment or _UNUSABLE.search(text))
    except ValueError:
        is_usable = False
    if not is_usable:
        raise UsageError(
            f"{name} is `{text}`, which is not the address of a store; write it as `https://host` or"
            " `http://host:port`",
            setting=name,
            value=text,
        )
    return f"{parts.scheme}:{text.partition(':')[2]}"


def _flag(name: str) -> bool | None:
    value = settings.read(name)
    if value.lower() not in ("", "true", "false", "1", "0"):
        raise UsageError(f"{name} is `{value}`; set it to `true` or `false`", setting=name, value=value)
    return value.lower() in ("true", "1") if value else None
