"""Receipts of embeddings: what became of each `@embed` property, and the commit that did it.

Pure values.
"""

from __future__ import annotations

from dataclasses import dataclass

from omnigraph.engine.embed.filler import Tally
from omnigraph.manifest.model import Commit


@dataclass(frozen=True, slots=True)
class PropertyEmbedded:
    """One property: how many entities got a vector or lost one, and for how many texts the provider was asked."""

    type_name: str
    property_name: str
    tally: Tally

    def to_json(self) -> dict[str, object]:
        return {"type": self.type_name, "property": self.property_name, **self.tally.to_json()}


@dataclass(frozen=True, slots=True)
class EmbedReceipt:
    """A finished embedding; `commit` is None when every vector was as it should be."""

    branch: str
    mode: str
    engine: str
    properties: tuple[PropertyEmbedded, ...]
    commit: Commit | None
    actor: str | None = None

    def to_json(self) -> dict[str, object]:
        return {
            "branch": self.branch,
            "mode": self.mode,
            "engine": self.engine,
            "properties": [one.to_json() for one in self.properties],
            "actor_id": self.actor,
            "commit": self.commit.to_json(self.branch) if self.commit else None,
        }
