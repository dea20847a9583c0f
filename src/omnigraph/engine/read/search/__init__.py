"""Search: text predicates, text relevance, nearest vectors, and the embedding of query texts.

Imports the engine's core and the store; the executor above it turns row ids into bindings.
"""

from omnigraph.engine.read.search.embed import Embedder, Purpose, embed_query, from_settings
from omnigraph.engine.read.search.text import bm25, text_matches
from omnigraph.engine.read.search.vector import nearest

__all__ = ["Embedder", "Purpose", "bm25", "embed_query", "from_settings", "nearest", "text_matches"]
