"""Embedding of what is stored: vectors of `@embed` properties made from their source texts, or from what is cached.

Imports the graph session, the embedders of `read.search`, and the store.
"""

from omnigraph.engine.embed.embed import EmbedReceipt, embed

__all__ = ["EmbedReceipt", "embed"]
