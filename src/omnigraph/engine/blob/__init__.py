"""Blobs: what is stored about one, and ranges of its bytes.

Reads one pinned state; how bytes travel to a client is a matter of the surfaces.
"""

from omnigraph.engine.blob.handle import Blob, blob

__all__ = ["Blob", "blob"]
