"""Clusters: graphs, schemas, queries and policies declared in one folder, planned and applied like code."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from omnigraph.cluster.cluster import Cluster as Cluster
    from omnigraph.cluster.cluster import Report as Report
    from omnigraph.findings import ClusterError as ClusterError
    from omnigraph.findings import Finding as Finding

_HOMES = {"Cluster": "cluster", "Report": "cluster", "ClusterError": "config", "Finding": "config"}
__all__ = ["Cluster", "ClusterError", "Finding", "Report"]


def __getattr__(name: str) -> Any:
    # Imported when used: the command line mostly needs the ledger alone, and starts fast.
    if name not in _HOMES:
        raise AttributeError(f"module `{__name__}` has no attribute `{name}`")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
