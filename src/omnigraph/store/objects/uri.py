"""Graph URIs: local paths and S3 addresses, and the options of their storage clients.

Parsing and settings only; nothing is opened here.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote, urlsplit

from omnigraph import settings
from omnigraph.errors import UsageError
from omnigraph.limits import PUBLISH_DEADLINE_SECONDS

FORMS: Final = "a local path, `file:///path` or `s3://bucket/prefix`"

# A request that starts within the retry time and then runs into its timeout ends before the publish deadline.
REQUEST_TIMEOUT_SECONDS: Final = PUBLISH_DEADLINE_SECONDS // 2
RETRY_TIMEOUT_SECONDS: Final = PUBLISH_DEADLINE_SECONDS // 3
CONNECT_TIMEOUT_SECONDS: Final = PUBLISH_DEADLINE_SECONDS // 6
RETRIES_MAX: Final = 4

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(//)?")
_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
# Outside of these, storage clients disagree on how a key is written in an address.
_KEY_SEGMENT = re.compile(r"[A-Za-z0-9!_.*'()=+@,-]+")

_UNUSABLE = re.compile(r"[\s\\<>\"{}|^`\x00-\x1f\x7f]|[^\x00-\x7f]")

# An IPv4 or IPv6 address: no bucket name can stand before it.
_ADDRESS = re.compile(r"[0-9.]+|.*:.*")
_UNNAMEABLE = re.compile("[\x00-\x1f\x7f\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Location:
    """A location in storage: a graph root, or a path below it."""

    scheme: str
    bucket: str
    path: str

    @classmethod
    def parse(cls, text: str) -> Location:
        """Read an address as a user writes it; a relative path starts at the current directory.

        >>> Location.parse("s3://lake/graphs/supply/").child("__manifest").uri
        's3://lake/graphs/supply/__manifest'
        >>> Location.parse("file:///data/my%20graph").uri
        '/data/my graph'
        """
        match = _SCHEME.match(text)
        scheme = match[1].lower() if match else ""
        if scheme in ("http", "https"):
            raise UsageError(
                f"`{text}` is the address of a server, not of storage; connect to it with `og.connect(…)` or"
                f" `--server`, or give {FORMS}",
                uri=text,
            )
        if match and scheme == "s3":
            return cls._parse_s3(text, text[match.end() :] if match[2] else "")
        if match and scheme == "file":
            return cls._parse_file(text, text[match.end() :] if match[2] else "")
        # `a:b` may be a file name, but `gs://b` cannot be meant as one.
        if match and match[2]:
            raise _bad_uri(text, f"has the scheme `{scheme}`, which is not supported")
        if not text.strip():
            raise _bad_uri(text, "is empty")
        return cls._local(text, os.path.expanduser(text))

    @classmethod
    def _parse_file(cls, text: str, escaped: str) -> Location:
        if not escaped.startswith("/"):
            raise _bad_uri(text, "names a host or a relative path; write three slashes: `file:///path`")
        if "?" in escaped or "#" in escaped:
            raise _bad_uri(text, "has a query or fragment; write `?` as `%3F` and `#` as `%23`")
        return cls._local(text, unquote(escaped, errors="surrogateescape"))

    @classmethod
    def _local(cls, text: str, path: str) -> Location:
        if _UNNAMEABLE.search(path):
            raise _bad_uri(text, "contains a control character or broken UTF-8")
        return cls("file", "", os.path.abspath(path))

    @classmethod
    def _parse_s3(cls, text: str, address: str) -> Location:
        bucket, _, key = address.partition("/")
        if not _BUCKET.fullmatch(bucket):
            raise _bad_uri(text, "has no valid bucket name after `s3://`")
        key = key.strip("/")
        for segment in key.split("/") if key else ():
            if segment in ("", ".", "..") or not _KEY_SEGMENT.fullmatch(segment):
                raise _bad_uri(text, f"has the key segment `{segment}`; use letters, digits and any of !_.*'()=+@,-")
        return cls("s3", bucket, key)

    def child(self, *parts: str) -> Location:
        """Return the location `parts` below this one."""
        below = "/".join(parts)
        assert ".." not in below.split("/"), "a child lies below its parent"
        return Location(self.scheme, self.bucket, f"{self.path.rstrip('/')}/{below}" if self.path else below)

    @property
    def parent(self) -> Location | None:
        """The location around this one; None for a whole bucket and for `/`.

        >>> Location.parse("s3://lake/graphs").parent, Location.parse("s3://lake").parent
        (Location(scheme='s3', bucket='lake', path=''), None)
        """
        folder, separator, name = self.path.rpartition("/")
        if not name:
            return None
        return Location(self.scheme, self.bucket, folder or (separator if self.is_local else ""))

    @property
    def is_local(self) -> bool:
        return self.scheme == "file"

    @property
    def uri(self) -> str:
        """The address as Lance takes it."""
        return self.path if self.is_local else f"s3://{self.bucket}/{self.path}".rstrip("/")

    def contains(self, other: Location) -> bool:
        """Return True if another location is this one or below it, also by way of symbolic links.

        >>> lake = Location.parse("s3://lake/graphs/supply")
        >>> lake.contains(lake.child("nodes")), lake.contains(Location.parse("s3://lake/graphs/supply2"))
        (True, False)
        """
        if (self.scheme, self.bucket) != (other.scheme, other.bucket):
            return False
        outer, inner = (
            os.path.realpath(location.path) if location.is_local else location.path for location in (self, other)
        )
        return f"{inner}/".startswith(f"{outer.rstrip('/')}/" if outer else "")

    @property
    def name(self) -> str:
        """The last segment."""
        return self.path.rpartition("/")[2] or self.bucket

    def s3_options(self) -> dict[str, str]:
        """Return the options of object store clients for this bucket; with host names if that is asked for.

        With `aws_virtual_hosted_style_request` the clients take the endpoint for that of the bucket. Without the bucket
        in it, the first segment of the key would be the bucket.
        """
        options = s3_options()
        if options.get("aws_virtual_hosted_style_request") == "true" and "aws_endpoint" in options:
            options["aws_endpoint"] = _bucket_endpoint(options["aws_endpoint"], self.bucket)
        return options

    def lance_options(self) -> dict[str, str]:
        """Return the `storage_options` with which Lance opens this location; empty for local ones."""
        if self.is_local:
            return {}
        return self.s3_options() | {
            "timeout": f"{REQUEST_TIMEOUT_SECONDS}s",
            "connect_timeout": f"{CONNECT_TIMEOUT_SECONDS}s",
            "client_max_retries": str(RETRIES_MAX),
            "client_retry_timeout": str(RETRY_TIMEOUT_SECONDS),
            # Lance would repeat all retries of the client when it is throttled.
            "lance_aimd_max_retries": "0",
        }


def s3_options() -> dict[str, str]:
    """Return what the `AWS_*` settings say, under the names that object store clients use."""
    endpoint = _endpoint()
    allow_http = _flag("AWS_ALLOW_HTTP")
    if endpoint.startswith("http://") and not allow_http:
        raise UsageError(
            f"the endpoint `{endpoint}` has no TLS; set AWS_ALLOW_HTTP=true to use it, or give an https:// address",
            setting="AWS_ALLOW_HTTP",
        )
    path_style = _flag("AWS_S3_FORCE_PATH_STYLE")
    options = {
        "aws_region": settings.read("AWS_REGION"),
        "aws_access_key_id": settings.read("AWS_ACCESS_KEY_ID"),
        "aws_secret_access_key": settings.read("AWS_SECRET_ACCESS_KEY"),
        "aws_session_token": settings.read("AWS_SESSION_TOKEN"),
        "aws_endpoint": endpoint,
        "aws_virtual_hosted_style_request": "" if path_style is None else str(not path_style).lower(),
        "allow_http": "true" if allow_http else "",
    }
    return {name: value for name, value in options.items() if value}


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


def endpoint_name() -> str:
    """Return the address of the store that requests go to, without credentials; that of AWS S3 if none is set."""
    parts = urlsplit(_endpoint() or f"https://s3.{settings.read('AWS_REGION') or 'us-east-1'}.amazonaws.com")
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path.rstrip('/')}"


def _endpoint() -> str:
    """Return the address of the store; one that the clients cannot parse would make them panic."""
    name = "AWS_ENDPOINT_URL_S3" if settings.read("AWS_ENDPOINT_URL_S3") else "AWS_ENDPOINT_URL"
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


def _bad_uri(text: str, reason: str) -> UsageError:
    printable = ascii(text)[1:-1] if _UNNAMEABLE.search(text) else text
    return UsageError(f"the address `{printable}` {reason}; give {FORMS}", uri=printable)
