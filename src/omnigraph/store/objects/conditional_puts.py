"""Proof that an object store honours conditional puts, on which every commit and lock rests.

A store, or a proxy in front of it, that ignores `If-None-Match` lets two writers publish the same version: both are
acknowledged and one is lost, without a trace. So a process lets the store refuse one conditional put before its first
write counts.

The object that the store must not replace stays in the graph, one for each endpoint through which it is written. So
the proof takes one request, and two only for the first writer through an endpoint.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

import orjson

from omnigraph.errors import StorageError, StorageKind, UnsafeStore
from omnigraph.store.objects.backend import Backend
from omnigraph.store.objects.uri import Location

ENDPOINTS_FOLDER: Final = "__endpoints"

# The endpoints and buckets that this process has seen refuse a conditional put.
_proven: Final[set[tuple[str, str]]] = set()


def forget_proven() -> None:
    """Let the next write prove its store again; for tests."""
    _proven.clear()


def is_proven(root: Location) -> bool:
    """Return True if this process has the proof, or needs none: on a disk, a hard link never replaces a name."""
    return not root.kind.publishes_by_put or (root.kind.endpoint_name(), root.bucket) in _proven


def require_conditional_puts(root: Location, backend: Backend) -> None:
    """Raise `UnsafeStore` unless the store refuses to create an object twice; no request if this process knows."""
    if is_proven(root):
        return
    endpoint = root.kind.endpoint_name()
    condition = f"`{root.kind.create_condition.partition(':')[0]}`"
    stamp = f"{ENDPOINTS_FOLDER}/{blake2b(endpoint.encode(), digest_size=8).hexdigest()}.json"
    body = orjson.dumps({"format": 1, "endpoint": endpoint})
    try:
        # Only a refusal is a proof. The first put may create the stamp, so one that succeeds proves nothing.
        is_refused = not backend.create(stamp, body) or not backend.create(stamp, body)
    except StorageError as error:
        if error.storage_kind is not StorageKind.PERMANENT:
            raise
        raise _unsafe(root, endpoint, f"does not implement conditional puts ({condition})") from error
    if not is_refused:
        backend.delete(stamp)
        raise _unsafe(root, endpoint, f"ignores {condition}: it replaced an object that a put had to leave alone")
    _proven.add((endpoint, root.bucket))


def _unsafe(root: Location, endpoint: str, why: str) -> UnsafeStore:
    return UnsafeStore(
        f"the store at `{endpoint}` ({root.kind.title}) {why}. Two writers could both believe that they published, and"
        " one commit would be lost, so nothing was written. Use a store that honours conditional puts, or repair the"
        f" proxy in front of it, and check it with `omnigraph doctor {root.uri}`",
        kind=StorageKind.CONFIGURATION,
        endpoint=endpoint,
        object=root.uri,
    )
