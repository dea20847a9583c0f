"""What an applied schema answers.

A pure value and its JSON form.
"""

from __future__ import annotations

from dataclasses import dataclass

from omnigraph.lang.migrate import Step
from omnigraph.manifest.model import MAIN, Commit


@dataclass(frozen=True, slots=True)
class SchemaReceipt:
    """The outcome of an apply; without a step nothing was applied, and there is no commit.

    `purge_pending` names what was dropped for good: no commit, branch or tag shows it from now on, and the next
    cleanup removes its bytes.
    """

    supported: bool
    applied: bool
    graph_manifest_version: int
    steps: tuple[Step, ...]
    commit: Commit | None = None
    purge_pending: tuple[str, ...] = ()

    def to_json(self) -> dict[str, object]:
        return {
            "supported": self.supported,
            "applied": self.applied,
            "graph_manifest_version": self.graph_manifest_version,
            "step_count": len(self.steps),
            "steps": [step.to_json() for step in self.steps],
            "commit": self.commit.to_json(MAIN) if self.commit else None,
            "purge_pending": list(self.purge_pending),
        }
