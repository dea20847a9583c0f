"""The result of a load, for the caller and as files: `report.json`, and the rejected lines in `rejected.ndjson`."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Final

import orjson

from omnigraph.display import commit_note, summarize
from omnigraph.engine.embed.cache import EmbedCounts
from omnigraph.errors import Effect, UsageError
from omnigraph.lang.catalog import TypeKey
from omnigraph.public_values import IngestReceipt
from omnigraph.rules.delta import Violation
from omnigraph.store.objects.failures import from_os_error

if TYPE_CHECKING:
    from omnigraph.engine.input.frame_rows import RowOrigin

REPORT: Final = "report.json"
QUARANTINE: Final = "rejected.ndjson"
_SAMPLES: Final = 5
# A path that was an address once, such as `s3:/bucket`, has one slash; a drive has one letter.
_ADDRESS: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")


@dataclass(frozen=True, slots=True)
class LoadReport(IngestReceipt):
    """The result of a load. `already_applied` if an earlier load with the same job id made the commit.

    There is no commit if the input had no valid entities.
    """

    job_id: str = ""
    engine: str = "local"
    already_applied: bool = False
    rejected: Sequence[RejectedLine] = ()
    embedded: Mapping[str, EmbedCounts] = field(default_factory=dict)
    input_bytes: int = 0
    seconds: float = 0.0

    def __repr__(self) -> str:
        counts = [f"{count:,} {name}" for name, count in {**self.nodes, **self.edges}.items()]
        rejected = f"{len(self.rejected):,} rejected" if self.rejected else None
        applied = "already applied" if self.already_applied else None
        subject = f"{self.mode} on {self.branch}"
        return summarize(self, subject, *counts, rejected, applied, commit_note(self.commit))

    @property
    def receipt(self) -> IngestReceipt:
        """The part of the report that a server answers."""
        return IngestReceipt(**{item.name: getattr(self, item.name) for item in fields(IngestReceipt)})

    @property
    def rejected_by_code(self) -> dict[str, int]:
        """How many entities a quarantine left out, by the rule they break."""
        return dict(sorted(Counter(line.violation.rule for line in self.rejected).items()))

    def to_json(self) -> dict[str, object]:
        """Return the report as a JSON object, with samples of what was rejected.

        Returns:
            The object.

        Example:
            >>> from omnigraph import pipeline
            >>> pipeline.load(graph, nodes={"Person": []}).to_json()["mode"]  # doctest: +SKIP
            'merge'
        """
        samples = {code: self._samples(code) for code in self.rejected_by_code}
        seconds = max(self.seconds, 1e-9)
        return {
            "branch": self.branch,
            "base_branch": self.base_branch,
            "branch_created": self.branch_created,
            "mode": self.mode,
            "job_id": self.job_id,
            "already_applied": self.already_applied,
            "engine": self.engine,
            "nodes": self.nodes.to_json(),
            "edges": self.edges.to_json(),
            "total_entities": self.total_entities,
            "rejected": [
                {"code": code, "count": count, "samples": samples[code]}
                for code, count in self.rejected_by_code.items()
            ],
            "embedded": [{"property": name, **counts.to_json()} for name, counts in sorted(self.embedded.items())],
            "input_bytes": self.input_bytes,
            "seconds": round(self.seconds, 3),
            "entities_per_second": round(self.total_entities / seconds),
            "megabytes_per_second": round(self.input_bytes / 1e6 / seconds, 1),
            "actor_id": self.actor,
            "commit": self.commit.to_json() if self.commit else None,
        }

    def _samples(self, code: str) -> list[dict[str, object]]:
        return [line.to_json() for line in self.rejected if line.violation.rule == code][:_SAMPLES]


@dataclass(frozen=True, slots=True)
class RejectedLine:
    """A rejected line, with its file and its line number there; `origin` of a row of a view of a declared pipeline."""

    file: str
    line: int
    violation: Violation
    text: str
    type_key: TypeKey | None = None
    origin: RowOrigin | None = None

    def to_json(self) -> dict[str, object]:
        location: dict[str, object] = {"file": self.file, "line": self.line}
        if self.origin is not None:
            location = {"type": None if self.type_key is None else self.type_key.name, **self.origin.to_json()}
        return {**location, "code": self.violation.rule, "reason": self.violation.message, "record": self.text}


def prepare_folder(folder: str | os.PathLike[str]) -> Path:
    """Create the report directory before the load starts, so that a bad path fails early."""
    path = Path(folder)
    if _ADDRESS.match(os.fspath(folder)):
        raise UsageError(f"cannot write reports to `{folder}`: choose a directory of this machine", path=str(folder))
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = (error.strerror or "it cannot be created").lower()
        raise UsageError(
            f"cannot write reports to `{path}`: {reason}; choose another directory", path=str(path)
        ) from error
    return path


def write_rejected(folder: Path, rejected: Sequence[RejectedLine]) -> None:
    """Write the rejected lines, each with its reason, to `rejected.ndjson`."""
    content = b"".join(orjson.dumps(line.to_json(), option=orjson.OPT_APPEND_NEWLINE) for line in rejected)
    _write_file(folder / QUARANTINE, content, Effect.NONE)


def write_report(folder: Path, report: LoadReport) -> None:
    """Write the result of a load to `report.json`."""
    text = orjson.dumps(report.to_json(), option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
    _write_file(folder / REPORT, text, Effect.NONE if report.commit is None else Effect.APPLIED)


def _write_file(path: Path, content: bytes, effect: Effect) -> None:
    try:
        path.write_bytes(content)
    except OSError as error:
        failure = from_os_error(error, "write", str(path))
        failure.effect = effect
        raise failure from error
