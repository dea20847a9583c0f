"""What an index run answers.

Pure values and their JSON form.
"""

from __future__ import annotations

from dataclasses import dataclass

from omnigraph.manifest.model import Commit
from omnigraph.store.index import IndexSpec, PendingIndex


@dataclass(frozen=True, slots=True)
class IndexReport:
    """Indexes built by this run, and those that wait for data; `commit` is None when there was nothing to build."""

    branch: str
    built: tuple[tuple[str, IndexSpec], ...]
    pending: tuple[tuple[str, PendingIndex], ...]
    commit: Commit | None

    def to_json(self) -> dict[str, object]:
        return {
            "branch": self.branch,
            "built": [
                {"type_key": key, "property": spec.column, "kind": spec.kind.name.lower()} for key, spec in self.built
            ],
            "pending": [
                {"type_key": key, "property": one.spec.column, "reason": one.reason} for key, one in self.pending
            ],
            "commit": self.commit.to_json(self.branch) if self.commit else None,
        }
