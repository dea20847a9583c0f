"""Findings about configurations: coded problems with a place in a file or in the ledger of a cluster."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from omnigraph.errors import OmniGraphError
from omnigraph.public_values import PublicValue

Level = Literal["error", "warning"]


@dataclass(frozen=True, slots=True)
class Finding(PublicValue):
    """A problem. `path` names a member of `cluster.yaml`, a file or a resource; lines and columns count from 1."""

    code: str
    severity: Level
    path: str
    message: str
    line: int | None = None
    column: int | None = None

    def render(self) -> str:
        position = self.path if self.line is None else f"{self.path} (line {self.line}, column {self.column})"
        return f"{self.severity}[{self.code}]: {position}: {self.message}"


def error(code: str, path: str, message: str) -> Finding:
    """Return a finding that makes a command fail."""
    return Finding(code, "error", path, message)


def warning(code: str, path: str, message: str) -> Finding:
    """Return a finding that a command only reports."""
    return Finding(code, "warning", path, message)


def has_errors(findings: Iterable[Finding]) -> bool:
    return any(finding.severity == "error" for finding in findings)


class ClusterError(OmniGraphError):
    """A cluster command that cannot go on; `findings` say why."""

    code = "cluster.rejected"

    @classmethod
    def of(cls, findings: Sequence[Finding]) -> ClusterError:
        """Return the error of findings; its message has a line for each."""
        text = "\n".join(finding.render() for finding in findings)
        return cls(text, findings=[finding.to_json() for finding in findings])

    @property
    def findings(self) -> tuple[Finding, ...]:
        items: Any = self.context.get("findings", ())
        return tuple(Finding.from_json(item) for item in items)


def cluster_error(code: str, path: str, message: str) -> ClusterError:
    return ClusterError.of([error(code, path, message)])
