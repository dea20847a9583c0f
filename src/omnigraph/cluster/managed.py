"""Guards graphs that belong to a cluster: only `cluster apply` creates them and changes their schemas."""

from __future__ import annotations

from pathlib import Path

from omnigraph.cluster.ledger import STATE_FOLDER, Ledger
from omnigraph.errors import GraphError
from omnigraph.store.objects.uri import Location


def refuse_managed(uri: str, command: str) -> None:
    """Raise if an address belongs to a cluster, whose graphs and schemas only `cluster apply` changes."""
    address = Location.parse(uri).uri.rstrip("/")
    root, _, rest = address.rpartition("/graphs/")
    if root and rest.endswith(".omni") and "/" not in rest and Ledger(root).revisions():
        raise _managed(uri, root, command)


def refuse_inside_cluster(uri: str, command: str) -> None:
    """Raise if a new graph would be inside the storage of a cluster; in a bucket, only where its graphs are."""
    refuse_managed(uri, command)
    location = Location.parse(uri)
    for folder in Path(location.path).parents if location.is_local else ():
        if (folder / STATE_FOLDER).is_dir():
            raise _managed(uri, str(folder), command)


def _managed(uri: str, root: str, command: str) -> GraphError:
    return GraphError(
        f"`{uri}` belongs to the cluster at `{root}`; change its folder and run `omnigraph cluster apply` instead"
        f" of `{command}`",
        code="cluster.managed",
        cluster=root,
    )
