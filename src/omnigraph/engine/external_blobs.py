"""External blobs: objects outside of a graph that a write may name, and whose bytes it copies into the graph.

Denied by default; a cluster allows bases per graph. A blob is always stored by value, so that what a commit holds never
changes with an object that others can replace: the rules decide what may be read, once, while it is written.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final
from urllib.parse import urlsplit

from omnigraph.errors import GraphError, LimitExceeded, StorageError, UsageError
from omnigraph.limits import (
    EXTERNAL_BLOB_BYTES_MAX,
    EXTERNAL_BLOB_READS,
    EXTERNAL_BLOB_URI_BYTES_MAX,
    EXTERNAL_BLOBS_MAX,
)
from omnigraph.rules.coerce import BLOB_PREFIX
from omnigraph.store.objects.control_objects import Objects
from omnigraph.store.objects.schemes import REMOTE_FORMS
from omnigraph.store.objects.uri import Location

SERVER_SAFE: Final = "server_safe"
EMBEDDED_ONLY: Final = "embedded_only"
BLOB_SCOPES: Final = (SERVER_SAFE, EMBEDDED_ONLY)


@dataclass(frozen=True)
class BlobBase:
    """A folder or prefix below which blobs may be read; `scope` says whether a server may."""

    uri: str
    scope: str
    location: Location

    @classmethod
    def parse(cls, text: str, scope: str) -> BlobBase:
        """Return a base; raises `UsageError` unless it is canonical, without credentials, and allowed in its scope.

        >>> BlobBase.parse("s3://media/photos/", "server_safe").uri
        's3://media/photos'
        """
        parts = urlsplit(text)
        if "@" in parts.netloc or parts.query or parts.fragment:
            raise UsageError("a base must not hold credentials, a query or a fragment; write `scheme://bucket/prefix`")
        segments = parts.path.strip("/").split("/") if parts.path.strip("/") else []
        is_absolute = bool(parts.scheme) or text.startswith("/")
        if not is_absolute or {".", "..", ""} & set(segments):
            raise UsageError(f"`{text}` must be an absolute path or an address, without `.`, `..` or `//`")
        location = Location.parse(text)
        if location.has_paths and scope == SERVER_SAFE:
            raise UsageError(
                f"`{text}` is a local path, which a server never reads; use {REMOTE_FORMS} or `{EMBEDDED_ONLY}`"
            )
        return cls(location.uri, scope, location)

    def overlaps(self, other: BlobBase) -> bool:
        return self.location.contains(other.location) or other.location.contains(self.location)

    @cached_property
    def objects(self) -> Objects:
        return Objects(self.location)


@dataclass(frozen=True, slots=True)
class BlobRules:
    """The bases that a graph allows."""

    bases: tuple[BlobBase, ...]

    def find(self, uri: str) -> tuple[BlobBase, str] | None:
        """Return the base of an address and the path below it; None if no base allows it."""
        try:
            location = Location.parse(uri)
        except UsageError:
            return None
        for base in self.bases:
            if location != base.location and base.location.contains(location):
                return base, os.path.relpath(location.path, base.location.path or ".")
        return None


@dataclass
class BlobReader:
    """Reads the external blobs of one write: each address once, within the limits of a write."""

    rules: BlobRules
    _read: dict[str, bytes] = field(default_factory=dict)
    _bytes: int = 0

    def resolve(self, values: Sequence[object]) -> list[object]:
        """Return values with the bytes of allowed addresses in their place; other values stay, to be rejected."""
        named = [value for value in values if isinstance(value, str) and not value.startswith(BLOB_PREFIX)]
        sources = {uri: self._find(uri) for uri in dict.fromkeys(named) if uri not in self._read}
        allowed = {uri: source for uri, source in sources.items() if source is not None}
        self._limit("External blobs in a write", EXTERNAL_BLOBS_MAX, len(self._read) + len(allowed))
        with ThreadPoolExecutor(EXTERNAL_BLOB_READS) as pool:
            # Charged before any of them is read.
            self._bytes += sum(pool.map(_size, allowed, allowed.values()))
            self._limit("External blob bytes in a write", EXTERNAL_BLOB_BYTES_MAX, self._bytes)
            self._read |= zip(allowed, pool.map(_read, allowed, allowed.values()), strict=True)
        return [self._read.get(value, value) if isinstance(value, str) else value for value in values]

    def _find(self, uri: str) -> tuple[BlobBase, str] | None:
        self._limit("External blob address bytes", EXTERNAL_BLOB_URI_BYTES_MAX, len(uri.encode(errors="replace")))
        return self.rules.find(uri)

    def _limit(self, resource: str, limit: int, actual: int) -> None:
        if actual > limit:
            message = f"{resource}: {actual:,} of at most {limit:,}; nothing was written, split the write"
            raise LimitExceeded(message, resource=resource, limit=limit, actual=actual)


def _size(uri: str, source: tuple[BlobBase, str]) -> int:
    base, path = source
    try:
        # Opening a pipe would block.
        is_file = not base.location.has_paths or os.path.isfile(base.location.child(path).path)
        size = base.objects.size(path) if is_file else None
    except (StorageError, UsageError) as failure:
        raise _unreadable(uri, failure.message) from None
    if size is None:
        raise _unreadable(uri, "there is no such object")
    return size


def _read(uri: str, source: tuple[BlobBase, str]) -> bytes:
    base, path = source
    try:
        return base.objects.read(path)
    except StorageError as failure:
        raise _unreadable(uri, failure.message) from None


def _unreadable(uri: str, reason: str) -> GraphError:
    return GraphError(
        f"the external blob `{uri}` cannot be read: {reason}; nothing was written",
        code="blob.source_unreadable",
        uri=uri,
    )
