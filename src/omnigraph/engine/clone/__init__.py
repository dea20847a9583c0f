"""Clone: a graph copied whole, with history, branches, tags and blobs, between disks and object stores."""

from omnigraph.engine.clone.clone import CloneReport, clone_graph

__all__ = ["CloneReport", "clone_graph"]
