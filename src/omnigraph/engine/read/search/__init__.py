"""Search: text predicates, text relevance, nearest vectors, and the embedding of query texts.

Imports the engine's core and the store; the executor above it turns row ids into bindings.
"""

from omnigraph.engine.read.search.embed import Embedder, Purpose, check_model, embed_query, from_settings
from omnigraph.engine.read.search.prepared import embedder_of
from omnigraph.engine.read.search.text import bm25, describe_search, text_matches
from omnigraph.engine.read.search.vector import checked_vector, describe_nearest, nearest

__all__ = [
    "Embedder",
    "Purpose",
    "bm25",
    "check_model",
    "checked_vector",
    "describe_nearest",
    "describe_search",
    "embed_query",
    "embedder_of",
    "from_settings",
    "nearest",
    "text_matches",
]
