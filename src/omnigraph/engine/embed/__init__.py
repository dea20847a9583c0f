"""Embed stored data: fill the vectors of `@embed` properties from their source texts, through a vector cache."""

from omnigraph.engine.embed.embed import EmbedReceipt, embed

__all__ = ["EmbedReceipt", "embed"]
