"""Graph URIs: local paths and addresses in object stores, and the options of their storage clients.

Parsing and settings only; nothing is opened here.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote

from omnigraph.errors import UsageError
from omnigraph.limits import PUBLISH_DEADLINE_SECONDS
from omnigraph.store.objects.schemes import FORMS, LOCAL, OTHER_SPELLINGS, STORES, StoreKind

# A request that starts within the retry time and then runs into its timeout ends before the publish deadline.
REQUEST_TIMEOUT_SECONDS: Final = PUBLISH_DEADLINE_SECONDS // 2
RETRY_TIMEOUT_SECONDS: Final = PUBLISH_DEADLINE_SECONDS // 3
CONNECT_TIMEOUT_SECONDS: Final = PUBLISH_DEADLINE_SECONDS // 6
RETRIES_MAX: Final = 4

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(//)?")
# Outside of these, storage clients disagree on how a key is written in an address.
_KEY_SEGMENT = re.compile(r"[A-Za-z0-9!_.*'()=+@,-]+")

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
        if match and scheme in STORES:
            address, kind = text[match.end() :] if match[2] else "", STORES[scheme]
            return cls._parse_file(text, address) if kind is LOCAL else cls._parse_bucket(text, address, kind)
        # `a:b` may be a file name, but `ftp://b` cannot be meant as one.
        if match and match[2]:
            meant = OTHER_SPELLINGS.get(scheme)
            hint = f"; write {STORES[meant].form} for {STORES[meant].title}" if meant else ""
            raise _bad_uri(text, f"has the scheme `{scheme}`, which is not supported{hint}")
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
    def _parse_bucket(cls, text: str, address: str, kind: StoreKind) -> Location:
        bucket, _, key = address.partition("/")
        if not kind.bucket_pattern.fullmatch(bucket):
            raise _bad_uri(text, f"has no valid {kind.bucket_word} name after `{kind.scheme}://`")
        key = key.strip("/")
        for segment in key.split("/") if key else ():
            if segment in ("", ".", "..") or not _KEY_SEGMENT.fullmatch(segment):
                raise _bad_uri(text, f"has the key segment `{segment}`; use letters, digits and any of !_.*'()=+@,-")
        return cls(kind.scheme, bucket, key)

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
        return Location(self.scheme, self.bucket, folder or (separator if self.has_paths else ""))

    @property
    def kind(self) -> StoreKind:
        """What the store at this location can do."""
        return STORES[self.scheme]

    @property
    def has_paths(self) -> bool:
        """Whether this is a path in a file system."""
        return self.kind.has_paths

    @property
    def uri(self) -> str:
        """The address as Lance takes it."""
        return self.path if self.has_paths else f"{self.scheme}://{self.bucket}/{self.path}".rstrip("/")

    def contains(self, other: Location) -> bool:
        """Return True if another location is this one or below it, also by way of symbolic links.

        >>> lake = Location.parse("s3://lake/graphs/supply")
        >>> lake.contains(lake.child("nodes")), lake.contains(Location.parse("s3://lake/graphs/supply2"))
        (True, False)
        """
        if (self.scheme, self.bucket) != (other.scheme, other.bucket):
            return False
        outer, inner = (
            os.path.realpath(location.path) if location.has_paths else location.path for location in (self, other)
        )
        return f"{inner}/".startswith(f"{outer.rstrip('/')}/" if outer else "")

    @property
    def name(self) -> str:
        """The last segment."""
        return self.path.rpartition("/")[2] or self.bucket

    def client_options(self) -> dict[str, str]:
        """Return the options of object store clients for this bucket; empty for local paths."""
        return self.kind.options(self.bucket)

    def lance_options(self) -> dict[str, str]:
        """Return the `storage_options` with which Lance opens this location; empty for local ones."""
        if self.has_paths:
            return {}
        return self.client_options() | {
            "timeout": f"{REQUEST_TIMEOUT_SECONDS}s",
            "connect_timeout": f"{CONNECT_TIMEOUT_SECONDS}s",
            "client_max_retries": str(RETRIES_MAX),
            "client_retry_timeout": str(RETRY_TIMEOUT_SECONDS),
            # Lance would repeat all retries of the client when it is throttled.
            "lance_aimd_max_retries": "0",
        }


def _bad_uri(text: str, reason: str) -> UsageError:
    printable = ascii(text)[1:-1] if _UNNAMEABLE.search(text) else text
    return UsageError(f"the address `{printable}` {reason}; give {FORMS}", uri=printable)
