"""What travels with a load: the options of the caller, the job that tasks receive, and the report that it returns.

Tasks never read the manifest: all they know of the graph is in a `Job`.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

import orjson

from omnigraph import clock
from omnigraph.display import commit_note, summarize
from omnigraph.engine.embed.cache import EmbedCounts
from omnigraph.engine.tasks import GraphAccess, parse_catalog
from omnigraph.errors import Effect, UsageError
from omnigraph.lang.catalog import Catalog, Type, TypeKey
from omnigraph.limits import VIOLATIONS_MAX
from omnigraph.public_values import Commit, EntityCounts, Mode, OnDuplicate
from omnigraph.rules.delta import INTENTS, Intent, Violation, choose_winner
from omnigraph.store.objects.failures import from_os_error
from omnigraph.store.read.dataset import DatasetRef
from omnigraph.store.write.fragments import claims

if TYPE_CHECKING:
    from omnigraph.engine.input.frame_rows import RowOrigin
    from omnigraph.engine.load.stage_split import EmbedJob

REPORT: Final = "report.json"
QUARANTINE: Final = "rejected.ndjson"
_SAMPLES: Final = 5
# A path that was an address once, such as `s3:/bucket`, has one slash; a drive has one letter.
_ADDRESS: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")


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


@dataclass(frozen=True, slots=True)
class LoadReport:
    """The result of a load. `already_applied` if an earlier load with the same job id made the commit.

    There is no commit if the input had no valid entities.
    """

    branch: str
    base_branch: str | None
    branch_created: bool
    mode: Mode
    job_id: str
    engine: str
    nodes: Mapping[str, int]
    edges: Mapping[str, int]
    commit: Commit | None
    actor: str | None = None
    already_applied: bool = False
    rejected: Sequence[RejectedLine] = field(default=())
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
    def commit_id(self) -> str | None:
        """The id of the commit; None if nothing was written."""
        return self.commit.commit_id if self.commit else None

    @property
    def total_entities(self) -> int:
        """The number of nodes and edges that were loaded."""
        return sum(self.nodes.values()) + sum(self.edges.values())

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
            "nodes": EntityCounts(self.nodes).to_json(),
            "edges": EntityCounts(self.edges).to_json(),
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


# How violations of an input name a row: "line 7".
UNIT: Final = "line"
# The digest of inputs that are not compared.
NO_DIGEST: Final = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadOptions:
    """What the caller asked of a load.

    Attributes:
        mode: `append`, `merge` or `overwrite`.
        branch: The branch to write to.
        base: The branch to create it from; None if it exists.
        job_id: Idempotency key of the load.
        is_repeatable: Whether the caller chose the key, so that it may be used again.
        digest: Digest of the input, if the load is repeatable.
        is_rejecting: Whether wrong entities, up to `errors_max`, are left out and written to `report_folder`.
        embed: Whether missing `@embed` vectors are made.
        properties: Further properties of the commit.
        commits_empty: Whether an input without entities is committed as well.
        on_duplicate: Which of several incoming entities with one id is loaded: the `first`, the `last`, or none, which
            is an `error`.
    """

    mode: Mode
    branch: str
    base: str | None = None
    job_id: str = ""
    is_repeatable: bool = False
    digest: str = ""
    is_rejecting: bool = False
    errors_max: int = 0
    report_folder: Path | None = None
    embed: bool = False
    properties: Mapping[str, str] = field(default_factory=dict)
    commits_empty: bool = False
    on_duplicate: OnDuplicate = "error"


@dataclass(frozen=True, slots=True)
class InputSchema:
    """The schema that an input is read with: the types that the actor may write, as JSON.

    The hash is that of the full schema, which must be the same when the load is published. So what the actor may see is
    computed once, and every task agrees on it.
    """

    ir: str
    full_hash: str

    @property
    def catalog(self) -> Catalog:
        return parse_catalog(self.ir)


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A load as its tasks see it.

    Attributes:
        options: What the caller asked for.
        access: Where the graph is; its operation id names all files of the load.
        scratch: Folder for key segments and other temporary files.
        schema: The schema that the input is read with.
        base_version: Manifest version that an overwrite was planned on; None if it may replace newer rows.
        targets: The datasets that rows of each type are staged for.
        embed: How to make missing `@embed` vectors; None if they are not made.
        now_ms: What the default `now()` means in all tasks, in milliseconds since 1970.
    """

    options: LoadOptions
    access: GraphAccess
    scratch: str
    schema: InputSchema
    base_version: int | None
    targets: Mapping[TypeKey, DatasetRef]
    embed: EmbedJob | None = None
    now_ms: int = field(default_factory=lambda: clock.now_us() // 1_000)

    @property
    def operation_id(self) -> str:
        return self.access.operation_id

    @property
    def intent(self) -> Intent:
        return INTENTS[self.options.mode]

    def winner(self, type_: Type) -> OnDuplicate:
        """Return which of several incoming entities with one id is loaded."""
        return choose_winner(self.options.on_duplicate, self.intent, type_)

    @property
    def is_rejecting(self) -> bool:
        return self.options.is_rejecting

    @property
    def violations_max(self) -> int:
        """How many violations a task reports."""
        return self.options.errors_max + 1 if self.is_rejecting else VIOLATIONS_MAX

    @property
    def claims(self) -> list[str]:
        """The path prefixes under which tasks stage files."""
        return [path for ref in self.targets.values() for path in claims(ref, self.operation_id)]

    @property
    def catalog(self) -> Catalog:
        return self.schema.catalog
